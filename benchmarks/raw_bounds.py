"""What the machine can do at best: disk and memory figures that no store can beat.

A put is bounded by one write and one fdatasync, a scan by copying the bytes out of the page cache,
a fresh result by the page faults of the memory it is written to.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROWS_PER_PAGE = 500
NOTE_BYTES = 260  # about what text, metadata and id of one record take
TIMES = 30
FRESH_BYTES = 64 * 1024**2


class RawDisk:
    """One file, written at its end and made durable: `write` returns when the bytes are on disk."""

    def __init__(self, path: Path, *, zeros_ahead_bytes: int = 0) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._offset = 0
        if zeros_ahead_bytes:
            os.pwrite(self._fd, bytes(zeros_ahead_bytes), 0)
            os.fsync(self._fd)

    def write(self, data: bytes) -> None:
        """Append `data` and wait for the disk."""
        self._offset += os.pwrite(self._fd, data, self._offset)
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def measure_bounds(folder: Path, *, row_bytes: int) -> dict[str, float]:
    """Named bounds in µs, medians of 30.

    Args:
        folder: Where the stores will lie.
        row_bytes: Bytes of one vector.
    """
    record = bytes(range(256)) * ((row_bytes + NOTE_BYTES) // 256 + 1)
    record = record[: row_bytes + NOTE_BYTES]
    page = record * ROWS_PER_PAGE
    growing = RawDisk(folder / "raw-growing")
    ahead = RawDisk(folder / "raw-ahead", zeros_ahead_bytes=2 * TIMES * len(record))
    paged = RawDisk(folder / "raw-pages")
    try:
        return {
            "write of one record + fdatasync, growing file": _median_us(
                lambda: growing.write(record)
            ),
            "write of one record + fdatasync, zeroed file": _median_us(lambda: ahead.write(record)),
            "write of 500 records + fdatasync": _median_us(lambda: paged.write(page)),
            **_memory_bounds(folder / "raw-pages", len(page)),
        }
    finally:
        for disk in (growing, ahead, paged):
            disk.close()
        for name in ("raw-growing", "raw-ahead", "raw-pages"):
            (folder / name).unlink()


def _memory_bounds(path: Path, page_bytes: int) -> dict[str, float]:
    source = np.ones(page_bytes // 8)
    target = np.ones(page_bytes // 8)
    # Larger than what the allocator keeps for reuse, so that every page of the copy is a fault.
    large = np.ones(FRESH_BYTES // 8)
    records_in_large = FRESH_BYTES * ROWS_PER_PAGE / page_bytes
    fd = os.open(path, os.O_RDONLY)
    try:
        pread_us = _median_us(lambda: os.preadv(fd, [target.data], 0))
    finally:
        os.close(fd)
    copy_us = _median_us(lambda: np.copyto(target, source))
    return {
        "pread into warm memory, a record": pread_us / ROWS_PER_PAGE,
        "memcpy into warm memory, a record": copy_us / ROWS_PER_PAGE,
        "memcpy into fresh memory, a record": _median_us(large.copy) / records_in_large,
    }


def _median_us(action: Callable[[], object]) -> float:
    samples: list[float] = []
    for _ in range(TIMES):
        started = time.perf_counter()
        action()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples) * 1e6
