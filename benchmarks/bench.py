"""One benchmark run: its data, its folder, the stores it filled, and what a workload returns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from benchmarks.dataset import Dataset, Order, fingerprint
from benchmarks.fmemory_side import Fmemory, FmemorySide
from benchmarks.lmdb_side import Lmdb
from benchmarks.side import Side, SideKind
from benchmarks.sqlite_side import Sqlite, TunedSqlite
from benchmarks.timing import Samples

KINDS: tuple[SideKind, ...] = (Fmemory(), Sqlite(), TunedSqlite(), Lmdb())
OURS = "fmemory"
FILL_ROWS = 500
CHECK_PAGE_ROWS = 500


class UnequalError(RuntimeError):
    """Two sides returned different results, so their times cannot be compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a workload found.

    Attributes:
        samples: Side name to seconds an item, by rounds.
        item: What one sample is about: a record, a put, a page.
        figures: Further figures of fmemory alone, such as bytes a record.
    """

    samples: Mapping[str, Samples]
    item: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Bench:
    """The run: makes data, fills stores once and keeps them for every workload that reads them.

    Attributes:
        data: Records in ascending order of time; `ordered` gives the same run's random ones.
        folder: Where all stores lie; the caller removes it.
        rounds: Rounds of a workload.
        rest_s: Pause before a block that writes.
        share: Share of a block's single puts, gets and pages of one that is done and timed.
        say: Shows one line of progress.
        kinds: The sides, ours first.
    """

    data: Dataset
    folder: Path
    rounds: int
    rest_s: float
    say: Callable[[str], None]
    kinds: tuple[SideKind, ...] = KINDS
    share: float = 1.0
    _filled: dict[tuple[Order, int, bool], dict[str, Side]] = field(default_factory=dict)
    _numbered: int = 0

    def ordered(self, order: Order) -> Dataset:
        """The data of this run with its timestamps ascending or random."""
        data = self.data
        return Dataset(data.count, data.dim, data.dtype, data.seed, order)

    def part(self, count: int) -> int:
        """How many of so many items a block has in this run; at least one."""
        return max(1, round(count * self.share))

    def filled(self, order: Order, batch_rows: int, *, compacted: bool = False) -> dict[str, Side]:
        """One store of every kind with all records, reopened after filling and checked to be equal.

        Peers are filled in transactions of 500: their trees keep no trace of the batch size.

        Args:
            compacted: fmemory was compacted after it was filled.
        """
        key = (order, batch_rows, compacted)
        if key not in self._filled:
            self.say(f"filling stores: {self.data.count:,} records, {order}, {batch_rows} a put")
            data = self.ordered(order)
            expected = data.fingerprint()
            self._filled[key] = {
                kind.name: self._fill(kind, data, batch_rows, expected, compacted=compacted)
                for kind in self.kinds
            }
        return self._filled[key]

    def fresh(self, kind: SideKind) -> Side:
        """A new empty store with durable writes."""
        self._numbered += 1
        return self.open(kind, self.folder / f"{self._numbered:02}-{kind.name}", durable=True)

    def open(self, kind: SideKind, path: Path, *, durable: bool) -> Side:
        """A store with the run's shape of vectors."""
        return kind.open(path, dim=self.data.dim, dtype=self.data.dtype, durable=durable)

    def close(self) -> None:
        """Close the filled stores."""
        for sides in self._filled.values():
            for side in sides.values():
                side.close()
        self._filled.clear()

    def _fill(
        self, kind: SideKind, data: Dataset, batch_rows: int, expected: str, *, compacted: bool
    ) -> Side:
        suffix = "-compacted" if compacted else ""
        path = self.folder / f"{data.order}-{batch_rows}-{kind.name}{suffix}"
        shutil.rmtree(path, ignore_errors=True)
        side = self.open(kind, path, durable=False)
        for batch in data.batches(batch_rows if kind.name == OURS else FILL_ROWS):
            side.put(batch)
        if compacted and isinstance(side, FmemorySide):
            side.compact()
        if kind.persistent:
            side.close()
            side = self.open(kind, path, durable=True)
        require_equal(kind.name, fingerprint(side.pages(CHECK_PAGE_ROWS)), expected)
        return side


def require_equal(name: str, found: str, expected: str) -> None:
    """Refuse to time a side whose results differ.

    Raises:
        UnequalError: The fingerprints differ.
    """
    if found != expected:
        raise UnequalError(f"results of {name}: expected fingerprint {expected}, got {found}")


Work: TypeAlias = Callable[[Bench], Outcome]


@dataclass(frozen=True, slots=True)
class Workload:
    """A named piece of work that every side does."""

    name: str
    title: str
    work: Work
