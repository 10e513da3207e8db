"""Segment headers: 128 bytes that are right or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments._header import (
    SEGMENT_HEADER_BYTES,
    SegmentFlag,
    SegmentHeader,
    pack_header,
    unpack_header,
)

HEADER = SegmentHeader(
    store_id=bytes(range(16)),
    segment_id=3,
    base_seq=813,
    generation=0,
    created_ns=1_700_000_000_000_000_000,
    prev_chain=bytes(range(32)),
    salt=0xDEAD_BEEF,
)

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)


@given(
    st.builds(
        SegmentHeader,
        store_id=st.binary(min_size=16, max_size=16),
        segment_id=u64,
        base_seq=u64,
        generation=u64,
        created_ns=st.integers(-(2**63), 2**63 - 1),
        prev_chain=st.binary(min_size=32, max_size=32),
        salt=u32,
        flags=u32,
        major=st.integers(0, 2**16 - 1),
        minor=st.integers(0, 2**16 - 1),
        compatible=u32,
        incompatible=u32,
    )
)
def test_a_header_comes_back_as_it_was_packed(header: SegmentHeader) -> None:
    packed = pack_header(header)
    assert len(packed) == SEGMENT_HEADER_BYTES
    assert unpack_header(packed + b"frames") == header


def test_any_flipped_bit_is_noticed() -> None:
    packed = pack_header(HEADER)
    for bit in range(8 * len(packed)):
        flipped = bytearray(packed)
        flipped[bit // 8] ^= 1 << bit % 8
        assert unpack_header(flipped) is None


@pytest.mark.parametrize("size", [0, 7, 8, 127])
def test_a_cut_header_is_no_header(size: int) -> None:
    assert unpack_header(pack_header(HEADER)[:size]) is None


@given(st.binary(min_size=128, max_size=200))
def test_random_bytes_are_no_header(noise: bytes) -> None:
    assert unpack_header(noise) is None


def test_this_version_supports_its_own_headers_and_newer_minor_ones() -> None:
    assert HEADER.is_supported
    assert HEADER._replace(minor=7, compatible=1).is_supported


@pytest.mark.parametrize("change", [{"major": 2}, {"major": 0}, {"incompatible": 1 << 31}])
def test_another_major_version_or_an_unknown_feature_is_not_supported(
    change: dict[str, int],
) -> None:
    header = unpack_header(pack_header(HEADER._replace(**change)))  # type: ignore[arg-type]
    assert header is not None
    assert not header.is_supported


def test_a_moved_tail_is_said_in_the_flags() -> None:
    header = unpack_header(pack_header(HEADER._replace(flags=int(SegmentFlag.MOVED_TAIL))))
    assert header is not None
    assert header.took_tail
    assert not HEADER.took_tail


@pytest.mark.parametrize("change", [{"store_id": b"short"}, {"prev_chain": b""}])
def test_ids_and_chains_of_a_wrong_size_are_refused(change: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="segment header"):
        pack_header(HEADER._replace(**change))  # type: ignore[arg-type]
