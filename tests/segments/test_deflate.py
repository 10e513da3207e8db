"""Deflated parts of frames come back as they were, and nothing larger than was allowed does."""

from __future__ import annotations

import tracemalloc
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments._batch import decode_meta
from fmemory_segments._deflate import deflate, inflate
from fmemory_segments._frame import FrameDamage, FrameFlag, FrameHeader, FrameKind

MB = 1 << 20
BOTH = FrameFlag.BATCH_END | FrameFlag.DEFLATED


def header_of(kind: int, flags: int, meta: bytes = b"") -> FrameHeader:
    return FrameHeader(b"", kind, flags, 0, 1, 0, 1, 5, 0, 0, len(meta), 0, 0, 0, 0)


@given(parts=st.lists(st.binary(max_size=300)))
def test_what_was_deflated_comes_back(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert inflate(deflate(parts), len(whole), "part") == whole


@given(content=st.binary(min_size=1, max_size=300), less=st.integers(1, 300))
def test_more_than_was_allowed_is_damage(content: bytes, less: int) -> None:
    with pytest.raises(FrameDamage, match="at most"):
        inflate(deflate([content]), max(0, len(content) - less), "part")


@given(content=st.binary(max_size=300), other=st.binary(min_size=1, max_size=9))
def test_a_stream_that_is_not_one_is_damage(content: bytes, other: bytes) -> None:
    packed = deflate([content])
    for wrong in (packed[: -len(other)], packed + other, other):
        with pytest.raises(FrameDamage, match="part"):
            inflate(wrong, MB, "part")


def test_a_few_bytes_that_say_they_are_many_take_no_memory() -> None:
    bomb = zlib.compress(bytes(256 * MB), 9)
    assert len(bomb) < MB
    tracemalloc.start()
    try:
        with pytest.raises(FrameDamage, match="at most"):
            inflate(bomb, MB, "part")
        assert tracemalloc.get_traced_memory()[1] < 8 * MB
    finally:
        tracemalloc.stop()


def test_a_deflated_ledger_is_read() -> None:
    entry = [["n"], 1, "noted", [3, bytes(32)], [], 0, 0, None, None, None, None, None]
    packed = deflate([msgspec.msgpack.encode([entry])])
    (event,) = decode_meta(packed, header_of(FrameKind.LEDGER, BOTH, packed)).events
    assert (event.stream, event.type) == (("n",), "noted")


@pytest.mark.parametrize(
    ("kind", "flags", "known"),
    [
        (FrameKind.BATCH, 0, True),
        (FrameKind.BATCH, 1, True),
        (FrameKind.BATCH, 2, False),
        (FrameKind.BATCH, 3, False),
        (FrameKind.BLOCK, 3, False),
        (FrameKind.SEAL, 3, True),
        (FrameKind.LEDGER, 3, True),
        (FrameKind.LEDGER, 4, False),
        (FrameKind.SEAL, 5, False),
    ],
)
def test_only_ledger_and_seal_may_be_deflated(kind: int, flags: int, known: bool) -> None:
    assert header_of(kind, flags).is_supported is known
