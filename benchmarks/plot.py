"""One picture of a run: ratios with their targets, and how long the slowest puts take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Report, Row
from benchmarks.targets import ratio_targets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"fmemory": "#1b6ca8", "SQLite": "#d1495b", "SQLite tuned": "#edae49", "LMDB": "#66a182"}
OTHER_COLOUR = "#8d99ae"
INCHES_PER_BAR = 0.28


def write_plot(path: Path, report: Report) -> None:
    """Draw the report into a PNG file.

    Raises:
        RuntimeError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise RuntimeError(
            "benchmark plot: matplotlib is not installed; run `pip install 'fmemory[bench]'`"
        ) from missing
    peers = [row for row in report.rows if row.ratio is not None]
    puts = [row for row in report.rows if row.workload == "put-one"]
    height = max(3.0, INCHES_PER_BAR * len(peers) + 1.5)
    figure = Figure(figsize=(15 if puts else 9, height), layout="constrained")
    panels = figure.subplots(1, 2 if puts else 1, squeeze=False)[0]
    _draw_ratios(panels[0], peers)
    if puts:
        _draw_latencies(panels[1], puts)
    run = report.run
    figure.suptitle(f"{run['records']:,} records, {run['dim']} × {run['dtype']}")
    figure.savefig(path, dpi=110)


def _draw_ratios(axes: Axes, rows: Sequence[Row]) -> None:
    labels: list[str] = []
    for place, row in enumerate(reversed(rows)):
        ratio = row.ratio or 0.0
        axes.barh(place, ratio, color=COLOURS.get(row.side, OTHER_COLOUR), height=0.8)
        axes.text(ratio, place, f" {ratio:.2f}", va="center", fontsize=8)
        for target in ratio_targets(row.workload, row.side):
            if target.statistic == "median":
                ends = (place - 0.4, place + 0.4)
                axes.vlines(target.at_least, *ends, color="black", linewidth=2)
        labels.append(f"{row.title} · {row.side}")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.margins(x=0.1, y=0.01)
    axes.set_xlabel("time taken as a multiple of fmemory's; black mark: target")


def _draw_latencies(axes: Axes, rows: Sequence[Row]) -> None:
    for row in rows:
        samples = sorted(sample for block in row.rounds for sample in block)
        slower = [1 - place / len(samples) for place in range(len(samples))]
        micros = [sample * 1e6 for sample in samples]
        axes.plot(micros, slower, label=row.side, color=COLOURS.get(row.side, OTHER_COLOUR))
    axes.set(xscale="log", yscale="log", xlabel="durable put of one record, µs")
    axes.set_ylabel("share of puts that took at least as long")
    axes.grid(visible=True, which="both", linewidth=0.3)
    axes.legend()
