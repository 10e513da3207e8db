"""Durable writes into new stores: one record, one record from 8 threads, 500 records.

Every side syncs, the system is flushed before each block and the disk rests, so that no side pays
for another's dirty pages or burst credit. The raw disk takes its turn like a side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from benchmarks.bench import Bench, Outcome, Workload, require_equal
from benchmarks.dataset import fingerprint, unordered_fingerprint
from benchmarks.raw_bounds import NOTE_BYTES, RawDisk
from benchmarks.side import Side
from benchmarks.sqlite_side import Sqlite
from benchmarks.timing import Block, each, interleave
from fmemory import MemoryRecord

RAW = "raw disk"
PUTS_A_BLOCK = 100
BATCH_ROWS = 500
THREADS = 8
PUTS_A_THREAD = 25
CHECK_PAGE_ROWS = 500


def _put_one(bench: Bench) -> Outcome:
    return _put(bench, batch_rows=1, puts=bench.part(PUTS_A_BLOCK))


def _put_batch(bench: Bench) -> Outcome:
    return _put(bench, batch_rows=BATCH_ROWS, puts=1)


def _put(bench: Bench, *, batch_rows: int, puts: int) -> Outcome:
    sides = {kind.name: bench.fresh(kind) for kind in bench.kinds}
    blocks = {name: _put_block(bench, side, batch_rows, puts) for name, side in sides.items()}
    for name, block in blocks.items():
        block()
        _require_first(bench, name, sides[name], batch_rows * puts)
    row_bytes = bench.data.dim * (8 if bench.data.dtype == "float64" else 4) + NOTE_BYTES
    # One record at a time goes into zeroed space, as a preallocating store would have it.
    zeros = 0 if batch_rows > 1 else row_bytes * puts * (bench.rounds + 1)
    raw = RawDisk(bench.folder / f"raw-{batch_rows}", zeros_ahead_bytes=zeros)
    blocks[RAW] = _raw_block(raw, bytes(range(256)) * (row_bytes * batch_rows // 256 + 1), puts)
    samples = interleave(blocks, bench.rounds, rest_s=bench.rest_s, sync=True)
    for name, side in sides.items():
        _require_first(bench, name, side, batch_rows * puts * (bench.rounds + 2))
        side.close()
    raw.close()
    return Outcome(samples, "put")


def _put_threads(bench: Bench) -> Outcome:
    puts = THREADS * bench.part(PUTS_A_THREAD)
    shared = {kind.name: [bench.fresh(kind)] * THREADS for kind in bench.kinds}
    shared["SQLite × 8"] = _connections(bench, bench.folder / "sqlite-connections")
    blocks: dict[str, Block] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for name, sides in shared.items():
            blocks[name] = _thread_block(bench, sides, pool, puts)
            blocks[name]()
            _require_set(bench, name, sides[0], puts)
        samples = interleave(blocks, bench.rounds, rest_s=bench.rest_s, sync=True)
    for name, sides in shared.items():
        _require_set(bench, name, sides[0], puts * (bench.rounds + 2))
        for side in dict.fromkeys(sides):
            side.close()
    return Outcome(samples, "put")


def _connections(bench: Bench, path: Path) -> list[Side]:
    return [bench.open(Sqlite(), path, durable=True) for _ in range(THREADS)]


def _put_block(bench: Bench, side: Side, batch_rows: int, puts: int) -> Block:
    batches = _batches(bench, batch_rows, puts)

    def block() -> list[float]:
        work = next(batches)
        return each(side.put, work)

    return block


def _batches(bench: Bench, batch_rows: int, puts: int) -> Iterator[list[list[MemoryRecord]]]:
    """Work for one block after another: `puts` lists of `batch_rows` new records."""
    for start in count(0, batch_rows * puts):
        records = bench.data.records(start, start + batch_rows * puts)
        yield [records[at : at + batch_rows] for at in range(0, len(records), batch_rows)]


def _thread_block(
    bench: Bench, sides: Sequence[Side], pool: ThreadPoolExecutor, puts: int
) -> Block:
    batches = _batches(bench, 1, puts)

    def put_all(side: Side, work: Sequence[list[MemoryRecord]]) -> None:
        for records in work:
            side.put(records)

    def block() -> list[float]:
        work = next(batches)
        started = time.perf_counter()
        list(pool.map(put_all, sides, [work[thread::THREADS] for thread in range(THREADS)]))
        return [(time.perf_counter() - started) / len(work)]

    return block


def _raw_block(raw: RawDisk, data: bytes, puts: int) -> Block:
    return lambda: each(raw.write, [data] * puts)


def _require_first(bench: Bench, name: str, side: Side, stored: int) -> None:
    _require(bench, name, side, stored, lambda pages: fingerprint(pages))


def _require_set(bench: Bench, name: str, side: Side, stored: int) -> None:
    _require(bench, name, side, stored, lambda pages: unordered_fingerprint(pages))


def _require(
    bench: Bench,
    name: str,
    side: Side,
    stored: int,
    value: Callable[[Iterator[Sequence[MemoryRecord]]], str],
) -> None:
    expected = value(iter([bench.data.records(0, stored)]))
    require_equal(name, value(side.pages(CHECK_PAGE_ROWS)), expected)


WORKLOADS = (
    Workload("put-one", "durable put of one record", _put_one),
    Workload("put-threads", "durable put from 8 threads", _put_threads),
    Workload("put-500", "durable put of 500 records", _put_batch),
)
