"""The benchmark at toy size: every workload runs, results are equal, JSON and picture are written.

No time is tested. What would have to break: a side that returns other records than the rest, a
workload that no longer fits the library, a report that loses a row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"
if not RUN.exists():
    pytest.skip("benchmarks/ is not part of the wheel", allow_module_level=True)
pytest.importorskip("lmdb", reason="the extra `bench` is not installed")

from benchmarks.bench import Bench, UnequalError, require_equal  # noqa: E402
from benchmarks.dataset import Dataset, fingerprint, record_digest  # noqa: E402
from benchmarks.run import WORKLOADS  # noqa: E402
from benchmarks.sqlite_side import Sqlite, TunedSqlite  # noqa: E402
from benchmarks.timing import Samples, mean_ratio, median_ratio  # noqa: E402

SIDES = {"fmemory", "SQLite", "SQLite tuned", "LMDB"}
JOURNALS = {"fm sqlite", "fm jsonl", "fm postgres", "fm in memory"}
TOY = ("--records=600", "--dim=8", "--rounds=1", "--rest=0", "--share=0.05", "--journals")


@dataclass(frozen=True)
class ToyRun:
    """What one run of the script left behind."""

    table: str
    rows: list[dict[str, object]]
    plot: bytes


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyRun]:
    folder = tmp_path_factory.mktemp("toy")
    files = ("--folder", folder, "--json", folder / "run.json", "--plot", folder / "run.png")
    command = [sys.executable, str(RUN), *TOY, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((folder / "run.json").read_text())["rows"]
    yield ToyRun(done.stdout, rows, (folder / "run.png").read_bytes())


def test_every_workload_is_measured(toy: ToyRun) -> None:
    assert {row["workload"] for row in toy.rows} == {workload.name for workload in WORKLOADS}


def test_every_side_takes_part_in_every_comparison(toy: ToyRun) -> None:
    compared = {name for name in (row["workload"] for row in toy.rows) if "open" not in str(name)}
    for name in compared:
        assert {row["side"] for row in toy.rows if row["workload"] == name} >= SIDES | JOURNALS


def test_every_row_has_its_samples(toy: ToyRun) -> None:
    assert all(row["rounds"] and row["median_s"] for row in toy.rows)


def test_targets_are_in_the_table(toy: ToyRun) -> None:
    assert "≥ 1.3 mean" in toy.table


def test_picture_is_a_png(toy: ToyRun) -> None:
    assert toy.plot.startswith(b"\x89PNG\r\n\x1a\n")


def test_other_results_are_not_timed() -> None:
    data = Dataset(3, 4)
    missing_one = fingerprint([data.records(0, 2)])
    with pytest.raises(UnequalError):
        require_equal("peer", missing_one, data.fingerprint())


def test_random_times_come_back_in_scan_order(tmp_path: Path) -> None:
    bench = Bench(Dataset(40, 4), tmp_path, 1, 0.0, lambda _: None)
    data = bench.ordered("random")
    for kind in (Sqlite(), TunedSqlite()):
        side = bench.open(kind, tmp_path / kind.name, durable=False)
        side.put(data.records(0, 40))
        assert fingerprint(side.pages(7)) == data.fingerprint()
        side.close()


def test_records_do_not_depend_on_where_reading_starts() -> None:
    data = Dataset(1_200, 4)
    whole = [record_digest(record) for record in data.records(0, 1_200)]
    assert [record_digest(record) for record in data.records(490, 1_010)] == whole[490:1_010]


def test_ratio_is_taken_within_each_round() -> None:
    ours, peer = Samples([[1.0], [10.0], [100.0]]), Samples([[2.0], [20.0], [900.0]])
    assert median_ratio(peer, ours) == 2.0


def test_mean_ratio_counts_pauses_with_all_their_length() -> None:
    assert mean_ratio(Samples([[1.0, 7.0]]), Samples([[2.0, 2.0]])) == 2.0
