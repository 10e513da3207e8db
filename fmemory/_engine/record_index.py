"""The index of one namespace: which records live, in which order, and where they lie.

Rows are numbered in write order. Per row there are numpy columns (timestamp, loc, alive) and the
id; a dict finds the row of a live id. The order by (timestamp, write order) is one sorted immutable
numpy run plus a sorted list for what came since. Both are made when they are first asked for: a put
only appends to the columns, so opening a log to scan it looks up no id, and replaying one to look
up ids sorts nothing. No note and no vector is held here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedList

from fmemory_segments.event import Float64Array, UInt64Array

Scalar = TypeVar("Scalar", bound=np.generic)
RowArray = npt.NDArray[np.int64] | npt.NDArray[np.int32]

_FRESH_ROWS_MIN = 1024
_EMPTY_ROWS: RowArray = np.empty(0, np.int64)


class Column(Generic[Scalar]):
    """A numpy array that grows at its end; a view taken before stays valid and keeps its values.

    Attributes:
        array: Where the values are, with room for more.
        size: How many there are.
    """

    __slots__ = ("array", "size")

    def __init__(self, dtype: type[Scalar]) -> None:
        self.array: npt.NDArray[Scalar] = np.empty(0, dtype)
        self.size = 0

    @property
    def view(self) -> npt.NDArray[Scalar]:
        """The values so far, without a copy."""
        return self.array[: self.size]

    @property
    def memory(self) -> memoryview:
        """The whole array as a memoryview, whose single items cost half of what numpy's do."""
        return self.array.data

    def item(self, number: int) -> Any:
        """One value as a Python number."""
        return self.array.item(number)

    def extend(self, values: npt.NDArray[Scalar] | Scalar, count: int) -> None:
        """Append `count` values: an array of them, or one value for all."""
        size = self.size
        if size + count > len(self.array):
            self._grow(count)
        self.array[size : size + count] = values
        self.size = size + count

    def append(self, value: float | bool) -> None:
        """Append one value, in a third of the time that `extend` takes for it."""
        size = self.size
        if size == len(self.array):
            self._grow(1)
        self.array[size] = value
        self.size = size + 1

    def _grow(self, count: int) -> None:
        size = self.size
        grown = np.empty(max(size + count, size + (size >> 2) + 16), self.array.dtype)
        grown[:size] = self.array[:size]
        self.array = grown


class OrderedRows(NamedTuple):
    """A page of places in scan order.

    Attributes:
        rows: int32 or int64, shape (n,): row numbers of the index it came from.
        locs: uint64, shape (n,).
        timestamps: float64, shape (n,).
        more: Whether live records follow within the range asked for.
    """

    rows: RowArray
    locs: UInt64Array
    timestamps: Float64Array
    more: bool


class RecordIndex:
    """Folded state of one records stream.

    >>> index = RecordIndex()
    >>> index.put(["a", "b"], np.array([2.0, 1.0]), np.array([65536, 65537], np.uint64))
    >>> [index.ids[row] for row in index.page(None, None, None, 10).rows]
    ['b', 'a']
    """

    __slots__ = (
        "_alive",
        "_fresh",
        "_live",
        "_locs",
        "_looked_up",
        "_ordered_rows",
        "_page_end",
        "_row_of",
        "_run",
        "_run_ascends",
        "_run_holes",
        "_timestamps",
        "ids",
    )

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self._looked_up = 0
        self._live = 0
        self._timestamps: Column[np.float64] = Column(np.float64)
        self._locs: Column[np.uint64] = Column(np.uint64)
        self._alive: Column[np.bool_] = Column(np.bool_)
        self._run: Column[np.int32] = Column(np.int32)
        # The order by timestamp is the write order.
        self._run_ascends = True
        self._run_holes = 0
        self._fresh: SortedList[tuple[float, int]] = SortedList()
        self._ordered_rows = 0
        # Loc, row and end in the run of the page read last: the next one mostly begins there.
        self._page_end = (-1, -1, 0)

    def __len__(self) -> int:
        return self._live

    @property
    def row_of(self) -> dict[str, int]:
        """Row of each live id. Cost: O(rows put since it was last asked for)."""
        known, count = self._looked_up, len(self.ids)
        if known + 1 == count:
            self._row_of[self.ids[known]] = known
        elif known < count:
            ids = self.ids[known:] if known else self.ids
            self._row_of.update(zip(ids, range(known, count), strict=True))
        self._looked_up = count
        return self._row_of

    # Writing

    def put(self, ids: Sequence[str], timestamps: Float64Array, locs: UInt64Array) -> None:
        """Add live rows, whose locs are larger than any before. Cost: O(rows)."""
        count = len(ids)
        if count == 1:
            self.put_one(ids[0], timestamps.item(), locs.item())
            return
        self._live += count
        self.ids.extend(ids)
        self._timestamps.extend(timestamps, count)
        self._locs.extend(locs, count)
        self._alive.extend(np.True_, count)

    def put_one(self, record_id: str, timestamp: float, loc: int) -> None:
        """The same for one row."""
        self._live += 1
        self.ids.append(record_id)
        self._timestamps.append(timestamp)
        self._locs.append(loc)
        self._alive.append(True)

    def delete(self, ids: Iterable[str]) -> None:
        """Make holes of these rows; unknown ids are passed over."""
        row_of = self.row_of
        for record_id in ids:
            row = row_of.pop(record_id, None)
            if row is None:
                continue
            self._live -= 1
            self._alive.view[row] = False
            if row < self._ordered_rows:
                key = (float(self._timestamps.view[row]), row)
                if key in self._fresh:
                    self._fresh.remove(key)
                else:
                    self._run_holes += 1
        if self._run_holes > max(_FRESH_ROWS_MIN, self._run.size >> 1):
            self._rebuild_run()

    # Reading by id

    def place_of(self, row: int) -> tuple[int, float]:
        """Loc and timestamp of one row."""
        return self._locs.array.item(row), self._timestamps.array.item(row)

    def locs_of(self, rows: Sequence[int] | RowArray) -> UInt64Array:
        """uint64, shape (n,): the places of these rows."""
        return self._locs.view[rows] if len(rows) else np.empty(0, np.uint64)

    def live_locs(self) -> UInt64Array:
        """uint64: the places of all live rows, in write order."""
        return self._locs.view[self._alive.view]

    # Reading in order

    def count(self, start: float | None, end: float | None) -> int:
        """Live records with start <= timestamp < end. Cost: O(log n), O(range) with holes in it."""
        if start is None and end is None:
            return self._live
        self._settle()
        low, high = self._run_range(start, end)
        total = high - low
        if self._run_holes:
            total = int(np.count_nonzero(self._alive.view[self._run.view[low:high]]))
        if self._fresh:
            fresh_low = 0 if start is None else self._fresh.bisect_left((start, -1))
            fresh_high = len(self._fresh) if end is None else self._fresh.bisect_left((end, -1))
            total += max(0, fresh_high - fresh_low)
        return total

    def page(
        self,
        start: float | None,
        end: float | None,
        after: tuple[float, int] | None,
        limit: int,
    ) -> OrderedRows:
        """Up to `limit` live rows in scan order.

        Args:
            start: Smallest timestamp; None = no bound.
            end: First timestamp that is too large; None = no bound.
            after: (timestamp, loc) of the last record of the page before.
            limit: At least 1.

        Cost: O(log n + limit).
        """
        if self._ordered_rows != self._timestamps.size:
            self._settle()
        lower = None if start is None else (start, -1)
        low = 0 if lower is None else self._run_position(lower)
        if after is not None:
            resume, position = self._resume(*after)
            if lower is None or lower < resume:
                lower, low = resume, position
        high = self._run.size if end is None else max(low, self._run_position((end, -1)))
        rows, run_more = self._run_rows(low, high, limit)
        if self._fresh:
            return self._merged_page(rows, run_more, lower, end, limit)
        page = self._neighbours(rows, run_more) or self._ordered(rows, run_more)
        if run_more and not self._run_holes:
            self._page_end = (page.locs.item(-1), rows.item(-1), low + len(rows))
        return page

    def select(self, start: float | None, end: float | None) -> RowArray:
        """All live rows of a range in scan order: int64, shape (n,)."""
        self._settle(merge=True)
        low, high = self._run_range(start, end)
        rows = self._run.view[low:high].astype(np.int64)
        return rows[self._alive.view[rows]] if self._run_holes else rows

    def timestamps_of(self, rows: Sequence[int] | RowArray) -> Float64Array:
        """float64, shape (n,)."""
        return self._timestamps.view[rows] if len(rows) else np.empty(0)

    # Private

    def _run_key(self, row: np.int32) -> tuple[float, int]:
        return (float(self._timestamps.view[row]), int(row))

    def _resume(self, timestamp: float, loc: int) -> tuple[tuple[float, int], int]:
        """The key behind the row at this loc, and where in the run it would stand."""
        end_loc, end_row, position = self._page_end
        if (
            loc == end_loc
            and position <= self._run.size
            and self._run.item(position - 1) == end_row
        ):
            return (timestamp, end_row + 1), position
        # Rows are numbered in loc order, so the rows up to this loc are a prefix.
        key = (timestamp, bisect_right(self._locs.memory, loc, 0, self._locs.size))
        return key, self._run_position(key)

    def _run_position(self, key: tuple[float, int]) -> int:
        timestamp, row = key
        run, size = self._run.memory, self._run.size
        timestamp_of = self._timestamps.memory.__getitem__
        low = bisect_left(run, timestamp, 0, size, key=timestamp_of)
        if row <= 0 or low == size or timestamp_of(run[low]) != timestamp:
            return low
        # Rows of equal timestamps are in write order.
        high = bisect_right(run, timestamp, low, size, key=timestamp_of)
        return bisect_left(run, row, low, high)

    def _run_range(self, start: float | None, end: float | None) -> tuple[int, int]:
        low = 0 if start is None else self._run_position((start, -1))
        high = self._run.size if end is None else self._run_position((end, -1))
        return low, max(low, high)

    def _run_rows(self, low: int, high: int, limit: int) -> tuple[RowArray, bool]:
        run = self._run.view
        if not self._run_holes:
            stop = min(high, low + limit)
            return run[low:stop], stop < high
        alive = self._alive.view
        parts: list[npt.NDArray[np.int32]] = []
        missing = limit + 1
        step = missing
        while missing > 0 and low < high:
            chunk = run[low : min(high, low + step)]
            part = chunk[alive[chunk]][:missing]
            parts.append(part)
            missing -= len(part)
            low += step
            step *= 2
        rows: RowArray = np.concatenate(parts).astype(np.int64) if parts else _EMPTY_ROWS
        return rows[:limit], len(rows) > limit

    def _merged_page(
        self,
        run_rows: RowArray,
        run_more: bool,
        lower: tuple[float, int] | None,
        end: float | None,
        limit: int,
    ) -> OrderedRows:
        upper = None if end is None else (end, -1)
        fresh: list[tuple[float, int]] = []
        if lower is None or upper is None or lower < upper:
            for key in self._fresh.irange(lower, upper, (True, False)):
                fresh.append(key)
                if len(fresh) > limit:
                    break
        if not fresh:
            return self._ordered(run_rows, run_more)
        rows = np.concatenate([run_rows, np.array([row for _, row in fresh], np.int64)])
        rows = rows[np.lexsort((rows, self._timestamps.view[rows]))]
        return self._ordered(rows[:limit], run_more or len(rows) > limit)

    def _ordered(self, rows: RowArray, more: bool) -> OrderedRows:
        locs, timestamps = self._locs.view, self._timestamps.view
        return OrderedRows(rows, locs.take(rows), timestamps.take(rows), more)

    def _neighbours(self, rows: RowArray, more: bool) -> OrderedRows | None:
        """The same for rows of the run where they are neighbours in write order, without a copy."""
        if not self._run_ascends or not len(rows):
            return None
        first, end = rows.item(0), rows.item(-1) + 1
        if end - first != len(rows):
            return None
        locs, timestamps = self._locs.array, self._timestamps.array
        return OrderedRows(rows, locs[first:end], timestamps[first:end], more)

    def _settle(self, *, merge: bool = False) -> None:
        """Bring rows written since into the order."""
        size = self._timestamps.size
        first = self._ordered_rows
        if first == size:
            if merge and self._fresh:
                self._rebuild_run()
            return
        if not self._fresh and self._continues_run(first):
            rows = np.arange(first, size, dtype=np.int32)
            self._run.extend(rows, size - first)
            self._run_holes += (size - first) - int(np.count_nonzero(self._alive.view[first:]))
            self._ordered_rows = size
            return
        waiting = len(self._fresh) + size - first
        if merge or waiting > max(_FRESH_ROWS_MIN, self._run.size >> 3):
            self._rebuild_run()
            return
        alive, timestamps = self._alive.view, self._timestamps.view
        self._fresh.update(
            (float(timestamps[row]), row) for row in range(first, size) if alive[row]
        )
        self._ordered_rows = size

    def _continues_run(self, first: int) -> bool:
        timestamps = self._timestamps.view[first:]
        if self._run.size and timestamps[0] < self._timestamps.view[self._run.view[-1]]:
            return False
        return len(timestamps) == 1 or bool(np.all(timestamps[1:] >= timestamps[:-1]))

    def _rebuild_run(self) -> None:
        alive = np.nonzero(self._alive.view)[0]
        order = np.argsort(self._timestamps.view[alive], kind="stable")
        run: Column[np.int32] = Column(np.int32)
        run.extend(alive[order].astype(np.int32), len(order))
        self._run, self._run_holes = run, 0
        self._run_ascends = bool((order[1:] > order[:-1]).all())
        self._fresh.clear()
        self._ordered_rows = self._timestamps.size

    def check(self) -> None:
        """Assert every invariant of the index; for tests. Cost: O(n log n)."""
        self._settle()
        alive = self._alive.view
        assert len(self.ids) == len(alive) == self._locs.size == self._timestamps.size
        assert set(self.row_of.values()) == set(np.nonzero(alive)[0].tolist())
        assert all(self.ids[row] == record_id for record_id, row in self.row_of.items())
        run = self._run.view
        assert self._run_holes == len(run) - int(np.count_nonzero(alive[run]))
        keys = [self._run_key(row) for row in run]
        assert keys == sorted(keys)
        assert not self._run_ascends or bool((run[1:] > run[:-1]).all())
        live = [int(row) for row in run if alive[row]] + [row for _, row in self._fresh]
        assert sorted(live) == sorted(self.row_of.values())
        locs = self._locs.view
        assert bool(np.all(locs[1:] > locs[:-1])) if len(locs) > 1 else True
