"""Runs of record events, cut out of the columns of a sealed segment.

A run is what an index is built from: ids, timestamps and locs of consecutive record events of one
stream. Nothing is done row by row, so a million events of one row fold like a few large ones.
"""

from __future__ import annotations

import numpy as np

from fmemory_segments._columns import Int64Array, SegmentIndex
from fmemory_segments.event import LOC_ROW_BITS, BoolArray, Float64Array, RowRun, Stream

_STREAM, _SLOT, _SHAPE = 1, 2, 4


def rows_flags(index: SegmentIndex) -> BoolArray:
    """Which events of the segment are record events: bool, shape (event_count,)."""
    # Kinds 1 and 2 of 0 to 3.
    return (index.events[:, _SHAPE] + 1 & 2).astype(np.bool_)


def cut_runs(
    index: SegmentIndex,
    ids: list[str],
    timestamps: Float64Array,
    revisions: Int64Array,
    after: int,
    upto: int,
    stream: Stream | None,
) -> list[RowRun]:
    """The record events with `after < seq <= upto` as runs, by first seq.

    Args:
        ids: Of all rows of record events, in order.
        timestamps: float64, of the same rows.
        revisions: int64, of all record events, in order.
        stream: Only events of this stream, which the segment must have; None = all.

    Cost: O(events + rows) array steps; Python only by run.
    """
    puts = np.flatnonzero(rows_flags(index))
    if not len(puts):
        return []
    events = index.events
    ends = np.append(events[1:, _SLOT], np.uint32(index.slot_count)).astype(np.int64)
    counts = ends[puts] - events[puts, _SLOT]
    starts = np.cumsum(counts) - counts
    seqs = puts + index.base_seq
    numbers = events[puts, _STREAM].astype(np.int64)
    chosen = (seqs > after) & (seqs <= upto)
    if stream is not None:
        chosen &= numbers == index.streams.index(stream)
    order = np.flatnonzero(chosen)
    if not len(order):
        return []
    order = order[np.argsort(numbers[order], kind="stable")]
    seqs, numbers, revisions = seqs[order], numbers[order], revisions[order]
    counts = counts[order]
    rows, within = _rows_of(starts[order], counts)
    ids, timestamps = _gather(ids, timestamps, rows)
    locs = ((np.repeat(seqs, counts) << LOC_ROW_BITS) + within).astype(np.uint64)
    offsets = np.append(0, np.cumsum(counts)).tolist()
    runs = []
    for first, last in _spans(numbers, revisions):
        start, end = offsets[first], offsets[last + 1]
        runs.append(
            RowRun(
                index.streams[int(numbers[first])],
                int(revisions[first]),
                last - first + 1,
                int(seqs[first]),
                int(seqs[last]),
                ids[start:end],
                timestamps[start:end],
                locs[start:end],
            )
        )
    runs.sort(key=lambda run: run.first_seq)
    return runs


def _rows_of(starts: Int64Array, counts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Numbers of all rows of events that begin at these rows, and of each row in its event."""
    offsets = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(offsets, counts)
    return within + np.repeat(starts, counts), within


def _gather(
    ids: list[str], timestamps: Float64Array, rows: Int64Array
) -> tuple[list[str], Float64Array]:
    """Ids and timestamps of these rows, in memory of their own."""
    if len(rows) == len(ids) and bool((np.diff(rows) == 1).all()):
        return ids, timestamps.copy()
    table = np.empty(len(ids), object)
    table[:] = ids
    return table[rows].tolist(), timestamps[rows]


def _spans(numbers: Int64Array, revisions: Int64Array) -> list[tuple[int, int]]:
    """First and last of each group of one stream whose revisions follow each other."""
    broken = (numbers[1:] != numbers[:-1]) | (revisions[1:] != revisions[:-1] + 1)
    breaks = np.flatnonzero(broken)
    firsts = [0, *(breaks + 1).tolist()]
    lasts = [*breaks.tolist(), len(numbers) - 1]
    return list(zip(firsts, lasts, strict=True))
