"""Random bytes are given once each, whatever sizes are asked for."""

from __future__ import annotations

from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments._nonces import DRAWN_BYTES, RandomBytes


@given(st.lists(st.integers(0, 3 * DRAWN_BYTES), max_size=30))
def test_bytes_are_given_once_each_and_as_many_as_asked_for(sizes: list[int]) -> None:
    drawn = bytearray()
    numbers = count()

    def draw(size: int) -> bytes:
        words = b"".join(next(numbers).to_bytes(4, "little") for _ in range(size // 4 + 1))
        drawn.extend(words[:size])
        return words[:size]

    source = RandomBytes(draw)
    places = []
    for size in sizes:
        taken = source.take(size)
        assert len(taken) == size
        if size >= 8:  # which is found at one place only
            places.append((drawn.index(taken), size))
    places.sort()
    assert all(start + size <= behind for (start, size), (behind, _) in pairwise(places))


def test_few_bytes_cost_one_call_for_many() -> None:
    calls: list[int] = []

    def draw(size: int) -> bytes:
        calls.append(size)
        return bytes(size)

    source = RandomBytes(draw)
    for _ in range(DRAWN_BYTES // 16 + 1):
        source.take(16)
    source.take(DRAWN_BYTES + 1)
    assert calls == [DRAWN_BYTES, DRAWN_BYTES, DRAWN_BYTES + 1]
