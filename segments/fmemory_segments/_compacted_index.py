"""The index of a compacted segment: events lie in LEDGER frames, their living rows in BLOCK frames.

The columns are those of `SegmentIndex`, but each slot also says which frame holds its row and where
in it the vector is, as neighbours in a BLOCK are seldom neighbours in the log. An erased row has a
slot that names no frame. docs/format.md section 5 owns the records; 44 bytes for an event of a row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from struct import Struct
from typing import Final

import numpy as np

from fmemory_segments._columns import (
    EVENT_COLUMN,
    SHAPE_BLOB,
    SHAPE_ERASED,
    SegmentIndex,
)
from fmemory_segments._event_meta import ITEM_BYTES
from fmemory_segments._frame import ALIGNMENT
from fmemory_segments._places import BlobAt, Int64Array, RowPlace, RowPlaces, RunPlace
from fmemory_segments.event import LOC_ROW_BITS, NONCE_BYTES, UInt32Array, UInt64Array

PLACED_SLOT_COLUMN: Final = Struct("<IIIIII")
PLACED_SLOT_FIELDS: Final = ("start", "length", "crc", "embedding", "frame", "vector")
NO_FRAME: Final = 0xFFFF_FFFF

_FRAME, _STREAM, _SLOT, _MATRIX, _SHAPE = range(5)
_START, _LENGTH, _CRC, _EMBEDDING, _SLOT_FRAME, _VECTOR = range(6)
_SLOT_BYTES = PLACED_SLOT_COLUMN.size
_ROW_MASK = (1 << LOC_ROW_BITS) - 1
_NEXT_EVENT = 1 << LOC_ROW_BITS


class CompactedIndex(SegmentIndex):
    """Places of the events and rows of a compacted segment, which never grows."""

    _counts: Int64Array | None = None
    _breaks: UInt32Array | None = None

    def place(self, loc: int) -> RowPlace:
        """Where the row at this loc is.

        Raises:
            KeyError: No row of this segment has this loc, or it was erased: see `slot_of`.
        """
        number = self.slot_of(loc)
        if number is None:
            raise KeyError(loc)
        shape = self._events.item((loc >> LOC_ROW_BITS) - self.base_seq, _SHAPE)
        start, length, crc, embedding, frame, vector = PLACED_SLOT_COLUMN.unpack_from(
            self._slot_bytes, _SLOT_BYTES * number
        )
        if not start:
            raise KeyError(loc)
        offset = ALIGNMENT * self._frames.item(frame)
        return RowPlace(
            frame,
            offset + start,
            length,
            offset + vector,
            shape >> 2,
            shape & 3,
            crc,
            self.embedding_ids[embedding],
        )

    def run(self, loc: int, count: int) -> RunPlace | None:
        """Where `count` rows from this loc on are; None if they are not neighbours in one BLOCK.

        Cost: as `runs`.
        """
        locs = np.arange(loc, loc + count, dtype=np.uint64)
        found = self.runs(locs, 1)
        return found[0][0] if found else None

    def runs(self, locs: UInt64Array, count_max: int) -> list[tuple[RunPlace, int, int]]:
        """Where rows of one shape are, as runs of neighbours in a BLOCK.

        Args:
            locs: uint64, shape (n,), at least one.
            count_max: The most runs that are wanted.

        Returns:
            Place, first and end in `locs` of each run; empty if there are more, if shapes differ,
            if vectors have no length, or if a loc has no living row in this segment.

        Cost: about 10 µs for 500 rows that are neighbours in the log, else 135. The first such page
            looks at every slot, about 0.01 µs each.
        """
        first = self._neighbours(locs)
        if first is None:
            return self._scattered_runs(locs, count_max)
        if self._breaks is None:
            self._breaks = self._find_breaks()
        breaks, count = self._breaks, len(locs)
        known = breaks.data
        low, high = bisect_right(known, first), bisect_left(known, first + count)
        if high - low >= count_max:
            return []
        shape = self._shape_of(locs.item(0))
        found = []
        for start, end in pairwise((first, *known[low:high], first + count)):
            place = self._run_of(start, self._slots[start:end], shape)
            if place is None or self._shape_of(locs.item(start - first)) != shape:
                return []
            found.append((place, start - first, end - first))
        return found

    def _neighbours(self, locs: UInt64Array) -> int | None:
        """The first slot of rows of which each has the slot behind the one before; else None.

        So are the rows of one event, and those of events of one row each that follow each other.
        Others may be as well, and are looked up row by row.
        """
        first, last, count = locs.item(0), locs.item(-1), len(locs)
        low, high = self.slot_of(first), self.slot_of(last)
        if low is None or high is None or high - low != count - 1:
            return None
        step = 1 if last - first == count - 1 else _NEXT_EVENT
        # Every event of records has a row: as many slots as events are one each, if all have rows.
        if last - first != (count - 1) * step or (step == _NEXT_EVENT and first & _ROW_MASK):
            return None
        # Bytes compare in a third of the time that differences take.
        expected = np.arange(first, last + 1, step, dtype=np.uint64)
        return low if locs.tobytes() == expected.tobytes() else None

    def _find_breaks(self) -> UInt32Array:
        """The slots that do not lie behind the one before them in the same BLOCK, ascending."""
        ends = self._events[: self.event_count + 1, _SLOT]
        shapes = np.repeat(self.events[:, _SHAPE], ends[1:] - ends[:-1])
        slots, widths = self.slots, (shapes >> 2) << (shapes & 3) + 1
        follows = slots[1:, _VECTOR] == slots[:-1, _VECTOR] + widths[:-1]
        follows &= slots[1:, _START] == slots[:-1, _START] + slots[:-1, _LENGTH]
        follows &= slots[1:, _SLOT_FRAME] == slots[:-1, _SLOT_FRAME]
        follows &= shapes[1:] == shapes[:-1]
        breaks: UInt32Array = (np.flatnonzero(~follows) + 1).astype(np.uint32)
        return breaks

    def _scattered_runs(self, locs: UInt64Array, count_max: int) -> list[tuple[RunPlace, int, int]]:
        """The same for rows that are no neighbours in the log, as of a namespace among others."""
        try:
            _, of_event, numbers = self._find(locs)
        except KeyError:
            return []
        shapes, slots = of_event[:, _SHAPE], self._slots.take(numbers, 0)
        shape = int(shapes[0])
        width = np.uint32((shape >> 2) * ITEM_BYTES[shape & 3])
        frames, vectors = slots[:, _SLOT_FRAME], slots[:, _VECTOR]
        if (shapes != shape).any() or not slots[:, _START].all():
            return []
        breaks = np.flatnonzero((vectors[1:] != vectors[:-1] + width) | (frames[1:] != frames[:-1]))
        if len(breaks) >= count_max:
            return []
        found = []
        for start, end in pairwise([0, *(breaks + 1).tolist(), len(locs)]):
            place = self._run_of(int(numbers[start]), slots[start:end], shape)
            if place is None:
                return []
            found.append((place, start, end))
        return found

    def _shape_of(self, loc: int) -> int:
        return self._events.item((loc >> LOC_ROW_BITS) - self.base_seq, _SHAPE)

    def _run_of(self, slot: int, slots: UInt32Array, shape: int) -> RunPlace | None:
        """The place of neighbours in a BLOCK, whose notes are neighbours too; None without vectors,
        or where they were erased.

        Args:
            slot: The number of the first.
            slots: Their columns.
            shape: Of all of them.
        """
        start, _, _, _, frame, vector = PLACED_SLOT_COLUMN.unpack_from(
            self._slot_bytes, _SLOT_BYTES * slot
        )
        if not start or not shape >> 2:
            return None
        offset = ALIGNMENT * self._frames.item(frame)
        note_bytes = slots.item(-1, _START) + slots.item(-1, _LENGTH) - start
        return RunPlace(
            frame, offset + start, note_bytes, offset + vector, shape, slots[:, _EMBEDDING]
        )

    def places(self, locs: UInt64Array) -> RowPlaces:
        """Where the rows at these locs are, in their order.

        Raises:
            KeyError: No row of this segment has one of these locs, or one was erased.

        Cost: about 30 µs and 0.03 µs a row, wherever the rows are.
        """
        _, of_event, slots = self._find(locs)
        shapes = of_event[:, _SHAPE]
        of_slot = self._slots.take(slots, 0)
        frames = of_slot[:, _SLOT_FRAME]
        if not of_slot[:, _START].all():
            raise KeyError("a loc whose row was erased")
        offsets = self._frames.take(frames).astype(np.int64) * ALIGNMENT
        return RowPlaces(
            frames=frames,
            note_offsets=offsets + of_slot[:, _START],
            note_bytes=of_slot[:, _LENGTH],
            vector_offsets=offsets + of_slot[:, _VECTOR],
            vector_bytes=(shapes >> 2).astype(np.int64) << (shapes & 3) + 1,
            shapes=shapes,
            crcs=of_slot[:, _CRC],
            embeddings=of_slot[:, _EMBEDDING],
        )

    def blob(self, seq: int) -> BlobAt | None:
        """Where the bytes of this event are; None for records and for what was erased.

        Raises:
            KeyError: The segment has no such event.
        """
        frame = self.frame_of(seq)
        _frame, _stream, slot, _matrix, shape = EVENT_COLUMN.unpack_from(
            self._event_bytes, EVENT_COLUMN.size * (seq - self.base_seq)
        )
        if shape & 3 != SHAPE_BLOB:
            return None
        start, length, crc, *_ = PLACED_SLOT_COLUMN.unpack_from(
            self._slot_bytes, _SLOT_BYTES * slot
        )
        return BlobAt(self.frame_offset(frame) + start, length, crc)

    @property
    def ledger_count(self) -> int:
        """How many of the frames are LEDGER frames; BLOCK frames follow them."""
        return int(self.events[-1, _FRAME]) + 1 if self.event_count else 0

    def slots_of(self, locs: UInt64Array) -> Int64Array:
        """The slots of the rows at these locs, erased or not.

        Raises:
            KeyError: No row of this segment has one of these locs.
        """
        return self._find(locs)[2]

    def seqs_of_frame(self, frame: int) -> tuple[int, int]:
        """First and last seq of the events of a LEDGER, or of the rows of a BLOCK."""
        if frame < self.ledger_count:
            return super().seqs_of_frame(frame)
        events = self._event_of_slots(np.flatnonzero(self.slots[:, _SLOT_FRAME] == frame))
        return self.base_seq + int(events[0]), self.base_seq + int(events[-1])

    def slot_counts(self, frames: UInt32Array) -> Int64Array:
        """How many rows and other payloads each of these frames has."""
        if self._counts is None:
            holders = self.slots[:, _SLOT_FRAME]
            self._counts = np.bincount(holders[holders != NO_FRAME], minlength=self.frame_count)
        return self._counts[frames]

    def payload_bytes(self, seq: int) -> int:
        """What the payload of this event takes: nonces, notes and vectors that are alive."""
        event = seq - self.base_seq
        shape = int(self._events[event, _SHAPE])
        first, end = self._events[event : event + 2, _SLOT].tolist()
        if shape & 3 == SHAPE_ERASED:
            return 0
        slots = self._slots[first:end]
        alive = slots[:, _SLOT_FRAME] != NO_FRAME
        width = NONCE_BYTES + (shape >> 2) * ITEM_BYTES[shape & 3]
        return int(slots[alive, _LENGTH].sum()) + width * int(alive.sum())

    def _event_of_slots(self, slots: Int64Array) -> Int64Array:
        """Number of the event of each of these slots."""
        found: Int64Array = np.searchsorted(self.events[:, _SLOT], slots, "right") - 1
        return found
