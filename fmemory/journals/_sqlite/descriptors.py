"""Reading an SQLite file as bytes, without disturbing who has it open.

Closing any descriptor of a file gives up all POSIX locks that the process holds on it, those of its
SQLite connections included (https://www.sqlite.org/howtocorrupt.html, section 2.2). Another process
then takes the file for unused, and removes the write-ahead log from under them: acknowledged writes
are gone. So a descriptor of an SQLite file that was opened here is not closed but waits for the
next reader, as long as the file has a name: there is one for each file that a process looked at,
and for each that is looked at meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fmemory._fork_lock import ForkLock

HEADER_BYTES: Final = 100
MAGIC: Final = b"SQLite format 3\x00"
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_HAS_POSIX_LOCKS: Final = os.name == "posix"

_idle: dict[tuple[int, int], list[int]] = {}
_lock = ForkLock()


def take(path: Path) -> int:
    """A descriptor to read a file by, for one reader at a time; to be given back, not closed.

    Raises:
        OSError: The file cannot be opened.
    """
    if _HAS_POSIX_LOCKS:
        found = path.stat()
        with _lock:
            waiting = _idle.get((found.st_dev, found.st_ino))
            if waiting:
                return waiting.pop()
    return os.open(path, _FLAGS)


def give_back(descriptor: int) -> None:
    """Keep it for the next reader; those of files that were deleted are closed."""
    if not _HAS_POSIX_LOCKS:
        os.close(descriptor)
        return
    found = os.fstat(descriptor)
    with _lock:
        _idle.setdefault((found.st_dev, found.st_ino), []).append(descriptor)
        # Nobody can open a file without a name any more, so its locks keep nobody out.
        for inode in [one for one, waiting in _idle.items() if _is_nameless(waiting)]:
            for each in _idle.pop(inode):
                os.close(each)


def read_at(descriptor: int, size: int, at: int) -> bytes:
    """Bytes of a file, fewer only at its end.

    Raises:
        OSError: They cannot be read.
    """
    parts = []
    while size > 0:
        if _HAS_POSIX_LOCKS:  # A child of this process shares the descriptor's position.
            part = os.pread(descriptor, size, at)
        else:
            os.lseek(descriptor, at, os.SEEK_SET)
            part = os.read(descriptor, size)
        if not part:
            break
        parts.append(part)
        size, at = size - len(part), at + len(part)
    return b"".join(parts)


def read_header(path: Path) -> bytes:
    """The first 100 bytes of a file, fewer where it ends before.

    Raises:
        OSError: It cannot be read.
    """
    descriptor = take(path)
    is_of_sqlite = False
    try:
        header = read_at(descriptor, HEADER_BYTES, 0)
        # One that is empty may be about to become one.
        is_of_sqlite = not header or header.startswith(MAGIC)
    finally:
        if is_of_sqlite:
            give_back(descriptor)
        else:
            os.close(descriptor)
    return header


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as those of SQLite do.

    Raises:
        OSError: It cannot be read.
    """
    return read_header(path).startswith(MAGIC)


def _is_nameless(waiting: list[int]) -> bool:
    return not waiting or not os.fstat(waiting[0]).st_nlink
