"""Frames: packing is exact, and no other bytes pass for a frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    Buffer,
    FrameHeader,
    FrameTooLarge,
    data_ok,
    frame_bytes,
    meta_ok,
    pack_frame,
    scan_headers,
    unpack_header,
)

SALT = 0xDEAD_BEEF
OFFSET = 4096


def pack(
    meta: bytes = b"meta!",
    parts: list[Buffer] | None = None,
    *,
    kind: int = 1,
    flags: int = 1,
    offset: int = OFFSET,
) -> tuple[FrameHeader, bytes]:
    parts = [b"some", b"", b"data"] if parts is None else parts
    header, buffers = pack_frame(
        kind,
        flags,
        event_count=3,
        prev_frame_bytes=72,
        first_seq=41,
        time_ns=-5,
        synced_to=40,
        batch_offset=2,
        meta=meta,
        data_parts=parts,
        data_bytes=sum(map(len, parts)),
        salt=SALT,
        offset=offset,
    )
    return header, b"".join(buffers)


def regions(header: FrameHeader, packed: bytes) -> tuple[bytes, bytes]:
    return packed[FRAME_HEADER_BYTES : header.data_start], packed[header.data_start :]


def is_whole(packed: bytes, salt: int = SALT, offset: int = OFFSET) -> bool:
    header = unpack_header(packed, salt, offset)
    if header is None or frame_bytes(header) != len(packed):
        return False
    meta, data = regions(header, packed)
    return meta_ok(header, meta, salt, offset) and data_ok(header, data, salt, offset)


def flips(packed: bytes, start: int, end: int) -> list[bytes]:
    flipped = []
    for bit in range(8 * start, 8 * end):
        copy = bytearray(packed)
        copy[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(copy))
    return flipped


@given(
    meta=st.binary(max_size=40),
    parts=st.lists(st.binary(max_size=20), max_size=4),
    kind=st.integers(1, 4),
    salt=st.integers(0, 2**32 - 1),
    offset=st.integers(16, 2**40).map(lambda number: 8 * number),
    numbers=st.tuples(*[st.integers(0, 2**32 - 1)] * 3, *[st.integers(0, 2**63)] * 2),
    time_ns=st.integers(-(2**63), 2**63 - 1),
)
def test_a_frame_of_any_kind_comes_back_as_it_was_packed(
    meta: bytes,
    parts: list[bytes],
    kind: int,
    salt: int,
    offset: int,
    numbers: tuple[int, int, int, int, int],
    time_ns: int,
) -> None:
    header, buffers = pack_frame(
        kind,
        1,
        event_count=numbers[0],
        prev_frame_bytes=numbers[1],
        first_seq=numbers[3],
        time_ns=time_ns,
        synced_to=numbers[4],
        batch_offset=numbers[2],
        meta=meta,
        data_parts=parts,
        data_bytes=sum(map(len, parts)),
        salt=salt,
        offset=offset,
    )
    packed = b"".join(buffers)
    assert unpack_header(packed, salt, offset) == header
    assert is_whole(packed, salt, offset)
    stored_meta, stored_data = regions(header, packed)
    assert stored_meta[: header.meta_bytes] == meta
    assert stored_data[: header.data_bytes] == b"".join(parts)
    assert (header.kind, header.time_ns, header.first_seq) == (kind, time_ns, numbers[3])


def test_a_frame_takes_a_multiple_of_8_bytes_and_pads_with_zeros() -> None:
    header, packed = pack(b"12345", [b"1234567"])
    assert len(packed) == frame_bytes(header) == 64 + 8 + 8
    assert packed[69:72] == bytes(3)
    assert packed[79:] == bytes(1)


def test_data_is_passed_on_uncopied() -> None:
    data = bytes(1000)
    _, buffers = pack_frame(
        1,
        1,
        event_count=1,
        prev_frame_bytes=0,
        first_seq=1,
        time_ns=0,
        synced_to=0,
        batch_offset=0,
        meta=b"m",
        data_parts=[data],
        data_bytes=1000,
        salt=SALT,
        offset=128,
    )
    assert buffers[1] is data


def test_any_flipped_bit_of_a_header_is_noticed() -> None:
    _, packed = pack()
    assert not any(unpack_header(flipped, SALT, OFFSET) for flipped in flips(packed, 0, 64))


def test_any_flipped_bit_of_meta_data_or_padding_is_noticed() -> None:
    _, packed = pack()
    assert is_whole(packed)
    assert not any(is_whole(flipped) for flipped in flips(packed, 64, len(packed)))


def test_a_frame_at_another_offset_or_in_another_file_is_not_believed() -> None:
    _, packed = pack()
    assert unpack_header(packed, SALT, OFFSET + 8) is None
    assert unpack_header(packed, SALT + 1, OFFSET) is None


def test_equal_content_at_another_offset_has_other_checksums() -> None:
    here, _ = pack()
    there, _ = pack(offset=OFFSET + 96)
    assert here.meta_crc != there.meta_crc
    assert here.data_crc != there.data_crc


def test_data_may_come_in_several_buffers() -> None:
    header, packed = pack()
    _, data = regions(header, packed)
    assert data_ok(header, [data[:3], memoryview(data)[3:]], SALT, OFFSET)
    assert not data_ok(header, [data[:3], data[4:]], SALT, OFFSET)


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_no_header(noise: bytes, starts_with_magic: bool) -> None:
    packed = FRAME_MAGIC + noise if starts_with_magic else noise
    assert unpack_header(packed, SALT, OFFSET) is None


@pytest.mark.parametrize("size", range(64))
def test_a_cut_header_is_no_header(size: int) -> None:
    _, packed = pack()
    assert unpack_header(packed[:size], SALT, OFFSET) is None


def test_a_size_above_the_limit_is_not_believed_even_with_the_right_checksum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fmemory_segments._frame.FRAME_BYTES_MAX", 1 << 40)
    _, packed = pack(b"", [bytes(1 << 26)])
    monkeypatch.undo()
    assert unpack_header(packed[:64], SALT, OFFSET) is None


def test_a_frame_above_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(FrameTooLarge) as raised:
        pack(b"", [bytes(1 << 26)])
    assert raised.value.frame_bytes == (1 << 26) + 64
    assert raised.value.frame_bytes_max == 1 << 26


def test_a_seal_may_be_larger_than_other_frames() -> None:
    _, packed = pack(b"", [bytes(1 << 26)], kind=2)
    assert unpack_header(packed[:64], SALT, OFFSET) is not None


@pytest.mark.parametrize(("kind", "flags"), [(0, 0), (5, 1), (200, 0), (1, 2), (1, 128)])
def test_a_frame_of_a_newer_version_is_told_from_damage(kind: int, flags: int) -> None:
    _, packed = pack(kind=kind, flags=flags)
    header = unpack_header(packed, SALT, OFFSET)
    assert header is not None
    assert not header.is_supported


@given(st.binary(max_size=40), st.integers(0, 5))
def test_a_scan_finds_every_header_and_no_other(noise: bytes, gap: int) -> None:
    noise += bytes(-len(noise) % 8)
    first = 1024 + len(noise)
    header, packed = pack(offset=first)
    second = first + len(packed) + 8 * gap
    other, more = pack(offset=second)
    view = noise + packed + FRAME_MAGIC + bytes(8 * gap)[4:] if gap else noise + packed
    assert list(scan_headers(view + more, SALT, 1024)) == [(first, header), (second, other)]


def test_a_scan_ignores_headers_beside_the_steps_of_8() -> None:
    _, packed = pack(offset=1028)
    assert list(scan_headers(bytes(4) + packed, SALT, 1024)) == []
