"""Checksums told backwards give what they were made from."""

from __future__ import annotations

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments._crc_inverse import flipped_bit, four_bytes_of, seed_of, with_bit_flipped

CRC = st.integers(0, (1 << 32) - 1)


@given(st.binary(max_size=200), CRC)
def test_the_seed_comes_back(data: bytes, seed: int) -> None:
    assert seed_of(data, crc32c(data, seed)) == seed


@given(st.binary(min_size=4, max_size=4))
def test_four_bytes_come_back(data: bytes) -> None:
    assert four_bytes_of(crc32c(data)) == data


@given(st.binary(min_size=1, max_size=200), CRC, st.data())
def test_a_flipped_bit_is_found(data: bytes, seed: int, draw: st.DataObject) -> None:
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = with_bit_flipped(data, bit)

    assert flipped_bit(flipped, crc32c(data, seed), seed) == bit


@given(st.binary(min_size=1, max_size=200), CRC, st.integers(0, 31))
def test_a_flipped_bit_of_the_checksum_blames_no_data(data: bytes, seed: int, bit: int) -> None:
    found = flipped_bit(data, crc32c(data, seed) ^ 1 << bit, seed)

    assert found == 8 * len(data)
    assert with_bit_flipped(data, found) == data


@given(st.binary(min_size=2, max_size=200), st.data())
def test_two_flipped_bits_are_never_taken_for_one(data: bytes, draw: st.DataObject) -> None:
    bits = draw.draw(st.sets(st.integers(0, 8 * len(data) - 1), min_size=2, max_size=2))
    flipped = data
    for bit in bits:
        flipped = with_bit_flipped(flipped, bit)

    assert flipped_bit(flipped, crc32c(data)) is None
