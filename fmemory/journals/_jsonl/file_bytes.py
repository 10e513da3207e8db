"""Bytes of a file that are looked at part by part, as if they were in memory.

A batch is one piece of a file, however large it is. So whoever goes through a file takes it from
here: line by line, or by searching, and only a few megabytes are in memory. What is read twice may
have been changed in between, as any file may; lines carry checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final, Protocol

PART_BYTES: Final = 1 << 22


class Data(Protocol):
    """Bytes in memory or in a file."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...
    def find(self, one: bytes, start: int, /) -> int:
        """The first place of a byte from `start` on; -1 = none."""
        ...


class FileBytes:
    """The bytes of a file from an offset on. See `Data`.

    Args:
        read: Gives so many bytes at an offset of the file, or fewer where it ends: offset, size.
        start: Offset of the first.
        size: How many.
    """

    def __init__(self, read: Callable[[int, int], bytes], start: int, size: int) -> None:
        self._read = read
        self._start = start
        self._size = size
        self._part_start = 0
        self._part = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        first, stop, _ = part.indices(self._size)
        size = max(0, stop - first)
        at = first - self._part_start
        if at < 0 or at + size > len(self._part):
            self._go_to(first, size)
            at = 0
        return self._part[at : at + size]

    def find(self, one: bytes, start: int, /) -> int:
        """The first place of a byte from `start` on; -1 = none."""
        while start < self._size:
            if not 0 <= start - self._part_start < len(self._part):
                self._go_to(start, 1)
            found = self._part.find(one, start - self._part_start)
            if found >= 0:
                return self._part_start + found
            if not self._part:
                return -1  # The file ends before.
            start = self._part_start + len(self._part)
        return -1

    def _go_to(self, first: int, size: int) -> None:
        self._part = b""
        size = min(max(size, PART_BYTES), self._size - first)
        self._part = self._read(self._start + first, size)
        self._part_start = first


def parts(data: Data, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Some megabytes at a time, from a place on."""
    end = len(data) if stop is None else stop
    for at in range(start, end, PART_BYTES):
        yield data[at : min(at + PART_BYTES, end)]


def is_made_of(data: Data, start: int, characters: bytes) -> bool:
    """Whether there is nothing but these bytes from a place on.

    >>> is_made_of(b"line  ", 4, b" "), is_made_of(b"line  ", 3, b" ")
    (True, False)
    """
    return not any(part.strip(characters) for part in parts(data, start))


def count_of(data: Data, one: bytes, stop: int) -> int:
    """How often a byte stands before a place.

    >>> count_of(b"a,b,c", b",", 3)
    1
    """
    return sum(part.count(one) for part in parts(data, 0, stop))


def fingerprint(data: Data, start: int) -> bytes:
    """Names what stands from a place on."""
    digest = sha256()
    for part in parts(data, start):
        digest.update(part)
    return digest.digest()
