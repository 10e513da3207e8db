"""No bytes make a decoder do anything but decode, or say in its own words that it cannot.

Goal: what an attacker or a bad disk wrote is a typed error and never an exception that nobody
expects, an endless loop, or a gigabyte asked for because four bytes said so. Method: samples of all
that is read, spoiled by a seed in seven ways, checksums put right again; memory is traced. What
would have to break: a length that is believed before it was checked, a decoder's exception that is
not translated, a column that points behind its end.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests.crash.decoders import Decoder, decoders, spoiled, with_a_nested_field
from tests.crash.settings import ROUNDS, chooser

CASES = 800 * ROUNDS
PEAK_BYTES_MAX = 1 << 20
PEAK_PER_BYTE = 100


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Gives a function that says how much memory was held at most since it was called last."""
    tracemalloc.start()
    start = tracemalloc.get_traced_memory()[0]

    def peak() -> int:
        nonlocal start
        found = tracemalloc.get_traced_memory()[1] - start
        tracemalloc.reset_peak()
        start = tracemalloc.get_traced_memory()[0]
        return found

    try:
        yield peak
    finally:
        tracemalloc.stop()


def complaint(decoder: Decoder, choose: Random, count: int) -> str:
    """What the first case with something wrong shows."""
    with traced() as peak:
        for number in range(count):
            data = spoiled(choose, choose.choice(decoder.samples))
            peak()
            try:
                decoder.decode(data)
            except decoder.errors:
                pass
            except Exception as error:
                return f"case {number}: {type(error).__name__}: {error} for {data[:200]!r}"
            if (held := peak()) > PEAK_BYTES_MAX + PEAK_PER_BYTE * len(data):
                return f"case {number}: {held} bytes were held for {data[:200]!r}"
    return ""


@pytest.mark.parametrize("decoder", decoders(), ids=lambda one: one.name)
def test_spoiled_bytes_are_an_error_that_callers_expect(decoder: Decoder) -> None:
    assert complaint(decoder, chooser(decoder.name), CASES) == ""


@pytest.mark.parametrize("decoder", decoders(), ids=lambda one: one.name)
def test_what_a_writer_wrote_is_decoded(decoder: Decoder) -> None:
    for sample in decoder.samples:
        assert decoder.decode(sample) is not None


@pytest.mark.parametrize("name", ["BATCH", "LEDGER", "BLOCK", "SEAL", "event of a table"])
def test_field_of_a_later_version_that_nests_without_end_is_damage(name: str) -> None:
    """Fields may be appended by later versions, so a decoder passes over what it does not know."""
    (decoder,) = (one for one in decoders() if one.name == name)
    for sample in decoder.samples:
        for depth in (10, 100_000):
            data = with_a_nested_field(sample, depth, in_first=name in ("BATCH", "LEDGER"))
            if depth == 10:
                assert decoder.decode(data) is not None
            else:
                with pytest.raises(decoder.errors):
                    decoder.decode(data)


def test_fuzzing_tells_of_an_exception_that_nobody_expects() -> None:
    decoder = Decoder("careless", [b"\x00\x00\x00\x04four"], lambda data: data[4])
    assert "IndexError" in complaint(decoder, chooser("careless"), 200)


def test_fuzzing_tells_of_a_length_that_is_believed() -> None:
    def believe(data: bytes) -> object:
        return bytes(min(int.from_bytes(data[:4], "little"), sys.maxsize))

    decoder = Decoder("trusting", [b"\x04\x00\x00\x00four"], believe, (MemoryError,))
    assert "were held" in complaint(decoder, chooser("trusting"), 200)
