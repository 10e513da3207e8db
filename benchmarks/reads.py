"""Reads of a filled store: scans to record objects, pages of one, the matrix, single records."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice

import numpy as np

from benchmarks.bench import Bench, Outcome, Workload, require_equal
from benchmarks.dataset import Order, record_digest, vectors_fingerprint
from benchmarks.side import Side
from benchmarks.timing import Block, each, interleave, whole

PAGE_ROWS = 500
SMALL_PAGES = 2_000
GETS = 2_000


def _scan(bench: Bench, order: Order, batch_rows: int, *, compacted: bool = False) -> Outcome:
    sides = bench.filled(order, batch_rows, compacted=compacted)
    blocks = {name: _scan_block(side, PAGE_ROWS, bench.data.count) for name, side in sides.items()}
    return Outcome(interleave(blocks, bench.rounds), "record")


def _page_of_one(bench: Bench) -> Outcome:
    sides = bench.filled("ascending", PAGE_ROWS)
    pages = bench.part(min(SMALL_PAGES, bench.data.count))
    blocks = {name: _scan_block(side, 1, pages) for name, side in sides.items()}
    return Outcome(interleave(blocks, bench.rounds), "page")


def _vectors(bench: Bench) -> Outcome:
    sides = bench.filled("ascending", PAGE_ROWS)
    expected = bench.data.vectors_fingerprint()
    for name, side in sides.items():
        found = side.vectors()
        require_equal(
            name, vectors_fingerprint(found.ids, found.timestamps, found.matrix), expected
        )
    blocks = {name: _vectors_block(side) for name, side in sides.items()}
    return Outcome(interleave(blocks, bench.rounds), "record")


def _get(bench: Bench) -> Outcome:
    sides = bench.filled("ascending", PAGE_ROWS)
    picks = np.random.default_rng(bench.data.seed).integers(0, bench.data.count, size=GETS)
    wanted = _digests(bench, set(picks.tolist()))
    for name, side in sides.items():
        for record_id, digest in wanted.values():
            require_equal(name, record_digest(side.get(record_id)).hex(), digest.hex())
    ids = [wanted[pick][0] for pick in picks.tolist()[: bench.part(GETS)]]
    return Outcome(interleave(_get_blocks(sides, ids), bench.rounds), "record")


def _digests(bench: Bench, numbers: set[int]) -> dict[int, tuple[str, bytes]]:
    """Id and digest of the records of these numbers."""
    batches = bench.data.batches()
    return {
        number: (record.id, record_digest(record))
        for number, record in enumerate(chain.from_iterable(batches))
        if number in numbers
    }


def _scan_block(side: Side, limit: int, records_wanted: int) -> Block:
    def count() -> int:
        return sum(map(len, islice(side.pages(limit), -(-records_wanted // limit))))

    return lambda: whole(count)


def _vectors_block(side: Side) -> Block:
    return lambda: whole(lambda: len(side.vectors().matrix))


def _get_blocks(sides: Mapping[str, Side], ids: list[str]) -> dict[str, Block]:
    def block(side: Side) -> Block:
        return lambda: each(side.get, ids)

    return {name: block(side) for name, side in sides.items()}


WORKLOADS = (
    Workload(
        "scan-batches",
        "scan, put in 500s, pages of 500",
        lambda bench: _scan(bench, "ascending", PAGE_ROWS),
    ),
    Workload(
        "scan-singles",
        "scan, put one at a time, ascending times",
        lambda bench: _scan(bench, "ascending", 1),
    ),
    Workload(
        "scan-random",
        "scan, put one at a time, random times",
        lambda bench: _scan(bench, "random", 1),
    ),
    Workload(
        "scan-compacted",
        "scan, put one at a time, then compacted",
        lambda bench: _scan(bench, "ascending", 1, compacted=True),
    ),
    Workload("page-of-one", "pages of 1", _page_of_one),
    Workload("vectors", "vectors(): one matrix", _vectors),
    Workload("get", "get by id, random", _get),
)
