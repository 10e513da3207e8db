"""Opens one store in a process of its own and writes time and memory to standard output as JSON."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

import fmemory
from fmemory import CountRequest, GetRequest, ScanRequest

NAMESPACE = ("bench",)


class Opened(msgspec.Struct, frozen=True):
    """What one open took.

    Attributes:
        open_s: From the call of `fmemory.open` until the records of the namespace are counted and
            the first page is read.
        first_get_s: The first read by id after that, which makes the table of ids.
        resident_bytes: Growth of the resident set over that of a process with an empty store open.
    """

    open_s: float
    first_get_s: float
    resident_bytes: int


def open_once(path: Path, count: int) -> Opened:
    """Open the store at `path`, which holds `count` records, with the index of scans and of ids.

    Raises:
        RuntimeError: The store holds other records.
    """
    with tempfile.TemporaryDirectory() as folder, fmemory.open(Path(folder) / "empty") as memory:
        memory.scan(ScanRequest(namespace=NAMESPACE))
    before = _resident_bytes()
    started = time.perf_counter()
    memory = fmemory.open(path)
    found = memory.count(CountRequest(namespace=NAMESPACE)).count
    page = memory.scan(ScanRequest(namespace=NAMESPACE, limit=1))
    open_s = time.perf_counter() - started
    (record,) = page.records
    started = time.perf_counter()
    again = memory.get(GetRequest((record.id,), namespace=NAMESPACE))
    first_get_s = time.perf_counter() - started
    after = _resident_bytes()
    memory.close()
    if found != count:
        raise RuntimeError(f"records in {path}: expected {count}, got {found}")
    if [one.id for one in again.records] != [record.id]:
        raise RuntimeError(f"get {record.id}: got {again}")
    return Opened(open_s, first_get_s, after - before)


def _resident_bytes() -> int:
    # Free memory that the allocator only keeps for later is not the index's.
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(open_once(Path(sys.argv[1]), int(sys.argv[2]))))
