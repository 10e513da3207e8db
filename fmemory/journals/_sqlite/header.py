"""The first bytes of an SQLite file, read without disturbing who has the file open.

Closing any descriptor of a file gives up all POSIX locks that the process holds on it, those of its
SQLite connections included (https://www.sqlite.org/howtocorrupt.html, section 2.2). Another process
then takes the file for unused, and removes the write-ahead log from under them: acknowledged writes
are gone. So a descriptor of an SQLite file that was opened here is never closed: one is kept for
each file that a process looked at.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

HEADER_BYTES: Final = 100
MAGIC: Final = b"SQLite format 3\x00"

_kept: dict[tuple[int, int], int] = {}
_lock = threading.Lock()


def read_header(path: Path) -> bytes:
    """The first 100 bytes of a file, fewer where it ends before.

    Raises:
        OSError: It cannot be read.
    """
    if os.name != "posix":
        with path.open("rb") as file:
            return file.read(HEADER_BYTES)
    found = path.stat()
    with _lock:
        descriptor = _kept.get((found.st_dev, found.st_ino))
        if descriptor is not None:
            return os.pread(descriptor, HEADER_BYTES, 0)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            opened = os.fstat(descriptor)
            header = os.pread(descriptor, HEADER_BYTES, 0)
        except BaseException:
            os.close(descriptor)
            raise
        if not opened.st_size or header.startswith(MAGIC):
            # One that is empty may be about to become one.
            _kept[opened.st_dev, opened.st_ino] = descriptor
        else:
            os.close(descriptor)
        return header


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as those of SQLite do.

    Raises:
        OSError: It cannot be read.
    """
    return read_header(path).startswith(MAGIC)
