"""What each row has to reach; the one place that holds these numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Statistic: TypeAlias = Literal["median", "mean"]

OPEN_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True)
class RatioTarget:
    """The peer takes at least `at_least` times as long as fmemory."""

    workload: str
    side: str
    at_least: float
    statistic: Statistic = "median"


@dataclass(frozen=True, slots=True)
class FigureTarget:
    """A figure of fmemory is at most `at_most`, at a million records."""

    workload: str
    figure: str
    at_most: float


RATIOS = (
    RatioTarget("scan-batches", "SQLite", 4.0),
    RatioTarget("scan-batches", "SQLite tuned", 2.5),
    RatioTarget("scan-batches", "LMDB", 1.8),
    RatioTarget("scan-compacted", "SQLite", 4.0),
    RatioTarget("scan-compacted", "SQLite tuned", 2.5),
    RatioTarget("scan-compacted", "LMDB", 1.8),
    RatioTarget("scan-singles", "SQLite", 2.3),
    RatioTarget("scan-singles", "SQLite tuned", 1.5),
    RatioTarget("page-of-one", "SQLite", 0.4),
    RatioTarget("vectors", "SQLite", 4.0),
    RatioTarget("vectors", "SQLite tuned", 2.7),
    RatioTarget("get", "SQLite", 1.2),
    RatioTarget("put-one", "SQLite", 1.1),
    RatioTarget("put-one", "SQLite", 1.3, "mean"),
    RatioTarget("put-threads", "SQLite", 2.0),
    # Every other such put of SQLite carries a checkpoint, which a median would leave out.
    RatioTarget("put-500", "SQLite", 2.5, "mean"),
    RatioTarget("put-500", "SQLite tuned", 1.8, "mean"),
)
FIGURES = (
    FigureTarget("open-batches", "open, s", 1.2),
    FigureTarget("open-batches", "resident bytes a record", 250.0),
    FigureTarget("open-singles", "open, s", 1.5),
    FigureTarget("open-singles", "resident bytes a record", 250.0),
    FigureTarget("open-compacted", "open, s", 1.2),
    FigureTarget("open-compacted", "resident bytes a record", 250.0),
)


def ratio_targets(workload: str, side: str) -> list[RatioTarget]:
    """The targets of one row of the table."""
    return [target for target in RATIOS if (target.workload, target.side) == (workload, side)]


def figure_target(workload: str, figure: str) -> FigureTarget | None:
    """The target of one figure."""
    for target in FIGURES:
        if (target.workload, target.figure) == (workload, figure):
            return target
    return None
