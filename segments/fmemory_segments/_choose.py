"""What a compaction rewrites: how much of each segment lives, and which segments go together.

Decided from the columns alone, before anything is read or written. A segment is rewritten when it
was never compacted or holds data that are dead now; small neighbours go with it, so that segments
do not become many. Compacted ones that have nothing new to take out stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fmemory_segments._columns import SHAPE_ERASED, Int64Array, SegmentIndex
from fmemory_segments._core import Core, Segment
from fmemory_segments._event_meta import ITEM_BYTES
from fmemory_segments._events import unknown_event
from fmemory_segments.compaction import Erasure
from fmemory_segments.errors import InvalidDraft, LogReason, UnknownEvent
from fmemory_segments.event import LOC_ROW_BITS, NONCE_BYTES, BoolArray, UInt64Array

OUTPUT_BYTES: Final = 96 * 1024 * 1024
FRAGMENT_BYTES: Final = 8 * 1024 * 1024
FRAGMENTS_MIN: Final = 4
EVENT_WEIGHT: Final = 128
SLOT_WEIGHT: Final = 48
ROOM_SPARE: Final = 1024 * 1024

_SLOT, _SHAPE = 2, 4
_START, _LENGTH = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What of a segment lives, and what of it a compaction would take out.

    Attributes:
        segment: A sealed segment, or one of nothing but a header.
        weights: int64, one an event: bytes that live, with what their places take.
        living_rows: Rows that live when the dead ones are out.
        living_events: Events without rows whose payload lives then.
        dead_rows: Rows that are taken out now.
        dead_events: Payloads of events without rows that are taken out now.
        stubs: Events that are named to be forgotten.
    """

    segment: Segment
    weights: Int64Array
    living_rows: int
    living_events: int
    dead_rows: int
    dead_events: int
    stubs: int = 0

    @property
    def weight(self) -> int:
        """Of all that lives."""
        return int(self.weights.sum())

    @property
    def is_empty(self) -> bool:
        """A bare header, whose successor took over all of its events."""
        return not len(self.weights)

    @property
    def is_needed(self) -> bool:
        """True if it must be rewritten."""
        return bool(
            self.dead_rows
            or self.dead_events
            or self.stubs
            or not (self.segment.header.is_compacted or self.is_empty)
        )


def check_erasure(core: Core, erasure: Erasure) -> None:
    """Raise unless the parts of an erasure fit each other and the log.

    Raises:
        InvalidDraft: Locs or seqs do not ascend, or name events above `upto`.
        UnknownEvent: `upto` is beyond the newest event, or the first seq named is 0.
    """
    last = [int(erasure.locs[-1]) >> LOC_ROW_BITS] if len(erasure.locs) else []
    last += [int(seqs[-1]) for seqs in (erasure.seqs, erasure.forget) if len(seqs)]
    columns = (erasure.locs, erasure.seqs, erasure.forget)
    if (
        not all(map(_ascends, columns))
        or len(erasure.ends) != len(erasure.forget)
        or max(last, default=0) > max(erasure.upto, 0)
    ):
        raise InvalidDraft(
            f"erasure: expected locs and seqs that ascend and end at seq {erasure.upto}, got others"
            f" up to {max(last, default=0)} ({core.path}); nothing was written",
            reason=LogReason.INVALID_DRAFT,
            path=core.path,
        )
    if not 0 <= erasure.upto <= core.head_seq:
        raise unknown_event(core, erasure.upto)
    if any(len(seqs) and not seqs[0] for seqs in (erasure.seqs, erasure.forget)) or (
        len(erasure.locs) and not int(erasure.locs[0]) >> LOC_ROW_BITS
    ):
        raise unknown_event(core, 0)


def survey(core: Core, segments: Sequence[Segment], erasure: Erasure) -> list[Share]:
    """The share of each segment that begins at `erasure.upto` or before.

    Raises:
        UnknownEvent: The erasure names a row or an event without rows that is not there.

    Cost: array steps; about 20 ms a million rows.
    """
    return [
        _share(core, segment, erasure) for segment in segments if segment.base_seq <= erasure.upto
    ]


def choose(shares: Sequence[Share]) -> list[list[Share]]:
    """Groups of neighbours that are rewritten together, in order."""
    chosen = [share.is_needed for share in shares]
    small = [not share.is_empty and share.weight < FRAGMENT_BYTES for share in shares]
    _choose_fragments(chosen, small)
    numbers = range(len(shares))
    for order in (numbers, reversed(numbers)):
        before = False
        for number in order:
            chosen[number] = chosen[number] or (before and small[number])
            before = chosen[number]
    for number in reversed(numbers[:-1]):
        if shares[number].is_empty:  # It belongs to the one that took over its events.
            chosen[number] = chosen[number + 1]
    groups: list[list[Share]] = []
    for number in numbers:
        if chosen[number]:
            if not number or not chosen[number - 1]:
                groups.append([])
            groups[-1].append(shares[number])
    return groups


def outputs_of(group: Sequence[Share]) -> Iterator[tuple[int, int]]:
    """First and last seq of each new segment of a group: no more living data in one than fits."""
    weights = np.concatenate([share.weights for share in group])
    if not len(weights):
        return
    first_seq = group[0].segment.base_seq
    ends = np.cumsum(weights)
    start, taken = 0, 0
    while start < len(weights):
        stop = max(int(np.searchsorted(ends, taken + OUTPUT_BYTES, "right")), start + 1)
        yield first_seq + start, first_seq + stop - 1
        start, taken = stop, int(ends[stop - 1])


def room_needed(groups: Sequence[Sequence[Share]]) -> int:
    """Bytes that the new segments take at most, while the old ones are still there."""
    return sum(_room_of(share) for group in groups for share in group) + ROOM_SPARE


def weights_of(segment: Segment) -> Int64Array:
    """Bytes that live in each event of a segment now, with what their places take."""
    return _weights(segment.index, _living(segment))


def _choose_fragments(chosen: list[bool], small: list[bool]) -> None:
    """Choose small neighbours that have become many."""
    start = 0
    for number in range(len(small) + 1):
        if number < len(small) and small[number]:
            continue
        if number - start >= FRAGMENTS_MIN:
            chosen[start:number] = [True] * (number - start)
        start = number + 1


def _room_of(share: Share) -> int:
    """What a segment takes once more: all of it but what is taken out, and its longer columns."""
    segment = share.segment
    before = int(weights_of(segment).sum())
    return segment.end - (before - share.weight) + 8 * segment.index.slot_count


def _share(core: Core, segment: Segment, erasure: Erasure) -> Share:
    index = segment.index
    living = _living(segment)
    rows = _named_rows(core, segment, erasure.locs)
    others = _named_events(core, segment, erasure.seqs)
    dead_rows, dead_events = int(living[rows].sum()), int(living[others].sum())
    living[rows] = living[others] = False
    low, high = np.searchsorted(
        erasure.forget, np.array([segment.base_seq, segment.next_seq], np.uint64)
    )
    counts = _slot_counts(index)
    has_rows = (index.events[:, _SHAPE] + 1 & 2).astype(np.bool_)
    of_rows = np.repeat(has_rows, counts)
    return Share(
        segment,
        _weights(index, living),
        int((living & of_rows).sum()),
        int((living & ~of_rows).sum()),
        dead_rows,
        dead_events,
        int(high - low),
    )


def _living(segment: Segment) -> BoolArray:
    """Which slots of a segment hold data: those of what was erased say no place."""
    living: BoolArray = segment.index.slots[:, _START] != 0
    return living


def _weights(index: SegmentIndex, living: BoolArray) -> Int64Array:
    """Bytes that live in each event, with what their places take."""
    if not index.event_count:
        return np.zeros(0, np.int64)
    events = index.events
    shapes = events[:, _SHAPE].astype(np.int64)
    width = (shapes >> 2) * np.array([0, ITEM_BYTES[1], ITEM_BYTES[2], 0])[shapes & 3]
    counts = _slot_counts(index)
    bytes_of_slot = (
        index.slots[:, _LENGTH].astype(np.int64) + NONCE_BYTES + np.repeat(width, counts)
    )
    totals = np.append(0, np.cumsum(bytes_of_slot * living))
    starts = events[:, _SLOT].astype(np.int64)
    weights: Int64Array = totals[starts + counts] - totals[starts]
    return weights + counts * SLOT_WEIGHT + EVENT_WEIGHT


def _slot_counts(index: SegmentIndex) -> Int64Array:
    starts = index.events[:, _SLOT].astype(np.int64)
    return np.append(starts[1:], index.slot_count) - starts


def _named_rows(core: Core, segment: Segment, locs: UInt64Array) -> Int64Array:
    """Slots of the rows that an erasure names in a segment."""
    index = segment.index
    low, high = np.searchsorted(
        locs,
        np.array([segment.base_seq << LOC_ROW_BITS, segment.next_seq << LOC_ROW_BITS], np.uint64),
    )
    packed = locs[low:high].astype(np.int64)
    numbers = (packed >> LOC_ROW_BITS) - segment.base_seq
    # A put that was forgotten since has no rows any more.
    packed = packed[index.events[numbers, _SHAPE] & 3 != SHAPE_ERASED]
    numbers = (packed >> LOC_ROW_BITS) - segment.base_seq
    rows = packed & (1 << LOC_ROW_BITS) - 1
    wrong = (rows >= _slot_counts(index)[numbers]) | ((index.events[numbers, _SHAPE] + 1 & 2) == 0)
    if wrong.any():
        loc = int(packed[np.flatnonzero(wrong)[0]])
        raise UnknownEvent(
            f"erasure: expected rows, got seq {loc >> LOC_ROW_BITS}, row "
            f"{loc & (1 << LOC_ROW_BITS) - 1}, which is none ({core.path}); nothing was written",
            reason=LogReason.UNKNOWN_EVENT,
            path=core.path,
            first_seq=loc >> LOC_ROW_BITS,
            last_seq=loc >> LOC_ROW_BITS,
        )
    slots: Int64Array = index.events[numbers, _SLOT].astype(np.int64) + rows
    return slots


def _named_events(core: Core, segment: Segment, seqs: UInt64Array) -> Int64Array:
    """Slots of the events without rows that an erasure names in a segment."""
    index = segment.index
    low, high = np.searchsorted(seqs, np.array([segment.base_seq, segment.next_seq], np.uint64))
    numbers = seqs[low:high].astype(np.int64) - segment.base_seq
    has_rows = (index.events[numbers, _SHAPE] + 1 & 2) != 0
    if has_rows.any():
        seq = int(seqs[low + int(np.flatnonzero(has_rows)[0])])
        raise UnknownEvent(
            f"erasure: expected an event without rows, got {seq}, which has some ({core.path}); "
            "nothing was written; name its rows",
            reason=LogReason.UNKNOWN_EVENT,
            path=core.path,
            first_seq=seq,
            last_seq=seq,
        )
    slots: Int64Array = index.events[numbers, _SLOT].astype(np.int64)
    return slots


def _ascends(column: UInt64Array) -> bool:
    return bool((column[1:] > column[:-1]).all())
