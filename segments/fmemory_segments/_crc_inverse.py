"""CRC32C backwards: what a checksum tells of bytes that are lost or changed.

A checksum of bytes that are known tells the value that it began with, and that value the four bytes
that gave it. So the salt of a segment whose header is lost comes back from any intact frame. And a
checksum that is wrong by one flipped bit tells which one. Whoever repairs by this must have a
second checksum that confirms it. No I/O, and no meaning of the bytes.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from fmemory_segments._frame import Buffer

_POLYNOMIAL: Final = 0x82F6_3B78
_ALL: Final = 0xFFFF_FFFF


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE: Final = _table()
_BY_TOP: Final = {value >> 24: number for number, value in enumerate(_TABLE)}
_BIT_OF: Final = {_TABLE[1 << bit]: bit for bit in range(8)}


def seed_of(data: Buffer, crc: int) -> int:
    """The seed with which these bytes have this CRC.

    Cost: O(bytes) in Python; for headers.

    >>> seed_of(b"frame", crc32c(b"frame", 7))
    7
    """
    state = crc ^ _ALL
    for byte in reversed(bytes(data)):
        number = _BY_TOP[state >> 24]
        state = (state ^ _TABLE[number]) << 8 & _ALL | number ^ byte
    return state ^ _ALL


def four_bytes_of(crc: int) -> bytes:
    """The only four bytes that have this CRC, unseeded.

    >>> four_bytes_of(crc32c(b"salt"))
    b'salt'
    """
    state, numbers = crc ^ _ALL, []
    for _ in range(4):
        number = _BY_TOP[state >> 24]
        numbers.append(number)
        state = (state ^ _TABLE[number]) << 8 & _ALL
    state, found = _ALL, bytearray()
    for number in reversed(numbers):
        found.append(state & 0xFF ^ number)
        state = state >> 8 ^ _TABLE[number]
    return bytes(found)


def flipped_bit(data: Buffer, crc: int, seed: int = 0) -> int | None:
    """Which one bit of the data, changed, gives them this CRC; None if none does.

    The bit is counted from the lowest of the first byte. Where the flipped bit is in the CRC
    itself, that is the number of bits of the data: the data are right.

    Cost: O(bytes) in Python, about 0.2 µs each.

    >>> flipped_bit(b"frame", crc32c(b"fqame")) is None
    True
    >>> flipped_bit(b"frama", crc32c(b"frame")), flipped_bit(b"frame", crc32c(b"frame") ^ 8)
    (34, 40)
    """
    state = crc32c(data, seed) ^ crc
    size = len(data)
    if state.bit_count() == 1:
        return 8 * size
    for number in range(size - 1, -1, -1):
        bit = _BIT_OF.get(state)
        if bit is not None:
            return 8 * number + bit
        top = _BY_TOP[state >> 24]
        state = (state ^ _TABLE[top]) << 8 & _ALL | top
    return None


def with_bit_flipped(data: Buffer, bit: int) -> bytes:
    """The data with this bit changed, or as they are where the bit lies behind them."""
    changed = bytearray(data)
    if bit < 8 * len(changed):
        changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)
