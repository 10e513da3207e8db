"""Opening a store of sealed segments in a new process, and the memory its index takes.

The store is filled without waiting for the disk, in 500s or one by one, and closed; or compacted
before that. Each sample is
a new Python process, so that neither caches nor memory of an earlier open are counted.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from benchmarks.bench import OURS, Bench, Outcome, Workload
from benchmarks.fmemory_side import Fmemory, FmemorySide
from benchmarks.open_child import Opened
from benchmarks.timing import Samples

OPENS_MAX = 7
CHILD = Path(__file__).with_name("open_child.py")


def _open(bench: Bench, batch_rows: int, *, compacted: bool = False) -> Outcome:
    path = bench.folder / f"open-{batch_rows}"
    started = time.perf_counter()
    side = bench.open(Fmemory(), path, durable=False)
    for batch in bench.data.batches():
        for start in range(0, len(batch), batch_rows):
            side.put(batch[start : start + batch_rows])
    if compacted:
        assert isinstance(side, FmemorySide)
        side.compact()
    side.close()
    fill_s = time.perf_counter() - started
    bench.say(f"filled {bench.data.count:,} records, {batch_rows} a put, in {fill_s:.0f} s")
    opened = [_open_once(bench, path) for _ in range(min(bench.rounds, OPENS_MAX) + 1)][1:]
    shutil.rmtree(path)
    return Outcome(
        {OURS: Samples([[one.open_s] for one in opened])},
        "open",
        {
            "records": bench.data.count,
            "first get by id, s": statistics.median(one.first_get_s for one in opened),
            "resident bytes a record": statistics.median(one.resident_bytes for one in opened)
            / bench.data.count,
            "fill, µs a record": fill_s / bench.data.count * 1e6,
        },
    )


def _open_once(bench: Bench, path: Path) -> Opened:
    os.sync()  # the fill left dirty pages behind
    done = subprocess.run(
        [sys.executable, str(CHILD), str(path), str(bench.data.count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
    )
    return msgspec.json.decode(done.stdout, type=Opened)


WORKLOADS = (
    Workload("open-batches", "open, put in 500s", lambda bench: _open(bench, 500)),
    Workload("open-singles", "open, put one by one", lambda bench: _open(bench, 1)),
    Workload(
        "open-compacted",
        "open, put one by one, then compacted",
        lambda bench: _open(bench, 1, compacted=True),
    ),
)
