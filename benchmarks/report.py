"""The results as rows: a table for people, JSON with every raw sample for everything else."""

from __future__ import annotations

import platform
import sqlite3
import statistics
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.bench import OURS, Bench, Outcome, Workload
from benchmarks.targets import OPEN_RECORDS, figure_target, ratio_targets
from benchmarks.timing import Samples, mean_ratio, median_ratio

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
_COLUMNS = {
    "side": 13,
    "median": 9,
    "mean": 9,
    "ratio": 6,
    "half": 11,
    "means": 6,
    "target": 10,
    "": 4,
}
PACKAGES = ("fmemory", "numpy", "msgspec", "crc32c", "sortedcontainers", "lmdb")


class Check(msgspec.Struct, frozen=True):
    """One target and what was found."""

    wanted: str
    found: float
    passed: bool


class Row(msgspec.Struct, frozen=True):
    """One side of one workload; times in seconds an item.

    Attributes:
        ratio: How many times as long as fmemory, median over rounds; None for fmemory itself.
        ratio_quartiles: The middle half of the rounds' ratios lies between these.
        mean_ratio: The same of the total times.
        rounds: Every sample, by round.
    """

    workload: str
    title: str
    side: str
    item: str
    median_s: float
    mean_s: float
    percentiles_s: dict[str, float]
    ratio: float | None
    ratio_quartiles: tuple[float, float] | None
    mean_ratio: float | None
    checks: list[Check]
    rounds: list[list[float]]


class Figure(msgspec.Struct, frozen=True):
    """One further figure of fmemory."""

    workload: str
    title: str
    name: str
    value: float
    check: Check | None


class Report(msgspec.Struct):
    """All that one run found, with what it was run on."""

    machine: dict[str, str]
    versions: dict[str, str]
    run: dict[str, str | int | float]
    settings: dict[str, str]
    bounds_us: dict[str, float]
    rows: list[Row] = []
    figures: list[Figure] = []

    def checks(self) -> list[Check]:
        """Every target that applied to this run."""
        found = [check for row in self.rows for check in row.checks]
        return found + [figure.check for figure in self.figures if figure.check is not None]


def rows_of(workload: Workload, outcome: Outcome) -> Iterator[Row]:
    """The rows of one workload, fmemory first."""
    ours = outcome.samples[OURS]
    for side, samples in outcome.samples.items():
        alone = side == OURS
        ratios = _round_ratios(samples, ours)
        yield Row(
            workload.name,
            workload.title,
            side,
            outcome.item,
            samples.median,
            samples.mean,
            {f"{percent:g}": samples.percentile(percent) for percent in PERCENTILES},
            None if alone else median_ratio(samples, ours),
            None if alone else (_quantile(ratios, 0.25), _quantile(ratios, 0.75)),
            None if alone else mean_ratio(samples, ours),
            list(_ratio_checks(workload.name, side, samples, ours)),
            samples.rounds,
        )


def figures_of(workload: Workload, outcome: Outcome) -> Iterator[Figure]:
    """The further figures of one workload; targets apply at a million records only."""
    figures = dict(outcome.figures)
    if outcome.item == "open":
        figures = {"open, s": outcome.samples[OURS].median, **figures}
    for name, value in figures.items():
        target = figure_target(workload.name, name)
        check = None
        if target is not None and outcome.figures.get("records") == OPEN_RECORDS:
            check = Check(f"≤ {target.at_most:g}", value, value <= target.at_most)
        yield Figure(workload.name, workload.title, name, value, check)


def machine() -> dict[str, str]:
    """Processor, memory, system."""
    return {
        "processor": _first_value(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "memory": _first_value(Path("/proc/meminfo"), "MemTotal") or "unknown",
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Versions of everything that takes part."""
    found = {name: version(name) for name in PACKAGES}
    return {"python": sys.version.split()[0], "sqlite": sqlite3.sqlite_version, **found}


def file_system(folder: Path) -> str:
    """Type and device of the mount that holds `folder`."""
    best = ("", "unknown")
    place = str(folder.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        device, mount, kind, options, *_ = line.split()
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, f"{kind} on {device} ({options})")
    return best[1]


def run_facts(bench: Bench) -> dict[str, str | int | float]:
    """What this run was asked to do."""
    data = bench.data
    return {
        "records": data.count,
        "dim": data.dim,
        "dtype": data.dtype,
        "seed": data.seed,
        "rounds": bench.rounds,
        "rest_s": bench.rest_s,
        "share": bench.share,
        "file system": file_system(bench.folder),
    }


def print_facts(console: Console, report: Report) -> None:
    """Machine, versions, settings of the sides and raw bounds."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for part in (report.machine, report.run):
        for name, value in part.items():
            table.add_row(name, str(value))
    table.add_row(
        "versions", ", ".join(f"{name} {found}" for name, found in report.versions.items())
    )
    for side, settings in report.settings.items():
        table.add_row(f"{side} settings", settings)
    for name, bound in report.bounds_us.items():
        table.add_row("raw bound", f"{name}: {_duration(bound / 1e6)}")
    console.print(table)


def print_results(console: Console, report: Report) -> None:
    """One line a side: times, ratios to fmemory, targets with pass or miss."""
    console.print(
        "\nratio: how many times as long as fmemory, median of rounds; half: the middle half of the"
        " rounds; means: ratio of the total times"
    )
    for table in _results_tables(report.rows):
        console.print()
        console.print(table)
    if puts := [row for row in report.rows if row.workload == "put-one"]:
        console.print()
        console.print(_latency_table(puts))
    if report.figures:
        console.print()
        console.print(_figures_table(report.figures))
    checks = report.checks()
    missed = sum(not check.passed for check in checks)
    console.print(f"\n{len(checks)} targets, {len(checks) - missed} met, {missed} missed")


def write_json(path: Path, report: Report) -> None:
    """The whole report, every sample included."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))


def _results_tables(rows: Sequence[Row]) -> Iterator[Table]:
    for _, group in groupby(rows, key=lambda row: row.workload):
        sides = list(group)
        title = f"{sides[0].title}, a {sides[0].item}"
        table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
        for name, width in _COLUMNS.items():
            table.add_column(name, justify="left" if name == "side" else "right", width=width)
        for row in sides:
            table.add_row(*_cells(row))
        yield table


def _cells(row: Row) -> Iterator[str]:
    middle = row.ratio_quartiles
    yield row.side
    yield _duration(row.median_s)
    yield _duration(row.mean_s)
    yield "" if row.ratio is None else f"{row.ratio:.2f}"
    yield "" if middle is None else f"{middle[0]:.2f}–{middle[1]:.2f}"
    yield "" if row.mean_ratio is None else f"{row.mean_ratio:.2f}"
    yield "\n".join(check.wanted for check in row.checks)
    yield "\n".join(map(_verdict, row.checks))


def _latency_table(rows: Sequence[Row]) -> Table:
    table = Table(title="Latency of a durable put of one record", title_justify="left", box=None)
    table.add_column("side")
    for percent in PERCENTILES:
        table.add_column("max" if percent == 100.0 else f"p{percent:g}", justify="right")
    for row in rows:
        table.add_row(row.side, *map(_duration, row.percentiles_s.values()))
    return table


def _figures_table(figures: Sequence[Figure]) -> Table:
    table = Table(title=f"fmemory alone; targets hold at {OPEN_RECORDS:,} records", box=None)
    for name in ("work", "figure"):
        table.add_column(name)
    for name in ("value", "target", ""):
        table.add_column(name, justify="right")
    for figure in figures:
        check = figure.check
        table.add_row(
            figure.title,
            figure.name,
            f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.3g}",
            check.wanted if check else "",
            _verdict(check) if check else "",
        )
    return table


def _ratio_checks(workload: str, side: str, samples: Samples, ours: Samples) -> Iterator[Check]:
    for target in ratio_targets(workload, side):
        ratio = mean_ratio if target.statistic == "mean" else median_ratio
        unit = " mean" if target.statistic == "mean" else ""
        found = ratio(samples, ours)
        yield Check(f"≥ {target.at_least:g}{unit}", found, found >= target.at_least)


def _round_ratios(peer: Samples, ours: Samples) -> list[float]:
    pairs = zip(peer.rounds, ours.rounds, strict=True)
    return [statistics.median(theirs) / statistics.median(mine) for theirs, mine in pairs]


def _quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[round(part * (len(ordered) - 1))]


def _verdict(check: Check) -> str:
    return "[green]pass[/green]" if check.passed else "[red]miss[/red]"


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def _first_value(path: Path, name: str) -> str | None:
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None
