"""fmemory beside SQLite and LMDB: the same data, the same run, equal results, then the times.

    python benchmarks/run.py --records 50000 --dim 384
    python benchmarks/run.py --records 1000000 --only open-batches open-singles
    python benchmarks/run.py --records 5000 --journals

It is a harness, not a test: a missed target is shown and does not fail the run. Times of one
machine are worth little elsewhere; the ratios are taken within one run and hold up better.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

# A script finds its own folder on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console

from benchmarks import opens, plot, raw_bounds, reads, report, writes
from benchmarks.bench import KINDS, Bench, Workload
from benchmarks.dataset import Dataset
from benchmarks.fmemory_side import FmemoryOn, other_journals

WORKLOADS: tuple[Workload, ...] = (*reads.WORKLOADS, *writes.WORKLOADS, *opens.WORKLOADS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workloads asked for, print the results and write what was asked to be written."""
    options = _parse(arguments)
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="fmemory-bench-", dir=options.folder) as folder,
        _journals(wanted=options.journals) as journals,
    ):
        bench = Bench(
            data=Dataset(options.records, options.dim, options.dtype, options.seed),
            folder=Path(folder),
            rounds=options.rounds,
            rest_s=options.rest,
            say=lambda text: console.print(text, style="dim"),
            kinds=(*KINDS, *journals),
            share=options.share,
        )
        found = _measure(bench, options.only)
        bench.close()
    report.print_results(Console(), found)
    if options.json is not None:
        report.write_json(options.json, found)
    if options.plot is not None:
        plot.write_plot(options.plot, found)
    return 0


def _measure(bench: Bench, only: Sequence[str]) -> report.Report:
    row_bytes = bench.data.dim * (8 if bench.data.dtype == "float64" else 4)
    found = report.Report(
        machine=report.machine(),
        versions=report.versions(),
        run=report.run_facts(bench),
        settings=_settings(bench),
        bounds_us=raw_bounds.measure_bounds(bench.folder, row_bytes=row_bytes),
    )
    report.print_facts(Console(), found)
    for workload in WORKLOADS:
        if workload.name in only:
            bench.say(workload.title)
            outcome = workload.work(bench)
            found.rows += report.rows_of(workload, outcome)
            found.figures += report.figures_of(workload, outcome)
    return found


def _journals(*, wanted: bool) -> AbstractContextManager[tuple[FmemoryOn, ...]]:
    """The further sides of `--journals`."""
    return other_journals() if wanted else nullcontext(())


def _settings(bench: Bench) -> dict[str, str]:
    """What every side reports of a store opened for durable writes."""
    found: dict[str, str] = {}
    for kind in bench.kinds:
        side = bench.fresh(kind)
        found[kind.name] = side.settings()
        side.close()
    return found


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [workload.name for workload in WORKLOADS]
    add = parser.add_argument
    add("--records", type=_positive, default=50_000, help="records in a store (default 50000)")
    add("--dim", type=_positive, default=384, help="length of a vector (default 384)")
    add("--dtype", choices=("float64", "float32"), default="float64", help="type of a vector")
    add("--rounds", type=_positive, default=15, help="rounds of each workload (default 15)")
    add("--rest", type=float, default=0.2, help="seconds of rest before writes (default 0.2)")
    add("--share", type=_share, default=1.0, help="share of a block's single items (default 1)")
    add("--seed", type=int, default=1, help="seed of the synthetic data (default 1)")
    add("--folder", type=Path, help="where the stores go (default: the temporary folder)")
    add("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    add("--plot", type=Path, metavar="FILE", help="draw the ratios into the PNG file FILE")
    add(
        "--journals",
        action="store_true",
        help="add fmemory on SQLite, JSON Lines, PostgreSQL and in memory as sides",
    )
    add("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text}")
    return number


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most 1, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
