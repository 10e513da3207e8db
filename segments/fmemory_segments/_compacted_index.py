"""The index of a compacted segment: events lie in LEDGER frames, their living rows in BLOCK frames.

The columns are those of `SegmentIndex`, but each slot also says which frame holds its row and where
in it the vector is, as neighbours in a BLOCK are seldom neighbours in the log. An erased row has a
slot that names no frame. docs/format.md section 5 owns the records; 44 bytes for an event of a row.
"""

from __future__ import annotations

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
_NEXT_EVENT = np.uint64(1 << LOC_ROW_BITS)


class CompactedIndex(SegmentIndex):
    """Places of the events and rows of a compacted segment, which never grows."""

    _counts: Int64Array | None = None

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
        """Where `count` rows from this loc on are; None if they are not neighbours in one BLOCK."""
        first = self.slot_of(loc)
        if first is None or self.slot_of(loc + count - 1) != first + count - 1:
            return None
        event = self._events[(loc >> LOC_ROW_BITS) - self.base_seq]
        shape = int(event[_SHAPE])
        slots = self._slots[first : first + count]
        frame = int(slots[0, _SLOT_FRAME])
        if frame == NO_FRAME or (slots[:, _SLOT_FRAME] != frame).any():
            return None
        width = (shape >> 2) * ITEM_BYTES[shape & 3]
        ends = slots[:-1, _START] + slots[:-1, _LENGTH]
        if (slots[1:, _START] != ends).any() or (
            slots[1:, _VECTOR] != slots[:-1, _VECTOR] + np.uint32(width)
        ).any():
            return None
        return self._run_of(slots, shape)

    def runs(self, locs: UInt64Array, count_max: int) -> list[tuple[RunPlace, int, int]]:
        """Where rows of one shape are, as runs of neighbours in a BLOCK.

        Args:
            locs: uint64, shape (n,), at least one.
            count_max: The most runs that are wanted.

        Returns:
            Place, first and end in `locs` of each run; empty if there are more, if shapes differ,
            if vectors have no length, or if a loc has no living row in this segment.

        Cost: about 20 µs where the rows are all there are of neighbouring events, else 50; and
            0.02 or 0.05 µs a row.
        """
        found = self._all_of_neighbours(locs)
        if found is None:
            try:
                _, of_event, numbers = self._find(locs)
            except KeyError:
                return []
            found = of_event[:, _SHAPE], self._slots.take(numbers, 0)
        shapes, slots = found
        shape = int(shapes[0])
        width = (shape >> 2) * ITEM_BYTES[shape & 3]
        frames, vectors = slots[:, _SLOT_FRAME], slots[:, _VECTOR]
        if not width or (shapes != shape).any() or not slots[:, _START].all():
            return []
        breaks = np.flatnonzero(
            (vectors[1:] != vectors[:-1] + np.uint32(width)) | (frames[1:] != frames[:-1])
        )
        if len(breaks) >= count_max:
            return []
        cuts = [0, *(breaks + 1).tolist(), len(locs)]
        return [(self._run_of(slots[low:high], shape), low, high) for low, high in pairwise(cuts)]

    def _all_of_neighbours(self, locs: UInt64Array) -> tuple[UInt32Array, UInt32Array] | None:
        """Shapes and slots of rows that are the only ones of events one behind the other, or None.

        Where that is so, nothing has to be looked up row by row.
        """
        count, first = len(locs), int(locs[0])
        low = (first >> LOC_ROW_BITS) - self.base_seq
        high = low + count
        if first & _ROW_MASK or low < 0 or high > self.event_count:
            return None
        if (locs[1:] - locs[:-1] != _NEXT_EVENT).any():
            return None
        events = self._events[low : high + 1]
        slot = int(events[0, _SLOT])
        shapes = events[:-1, _SHAPE]
        # Every event of records has a row: as many slots as events are one each.
        if int(events[-1, _SLOT]) - slot != count or shapes[0] + 1 & 2 != 2:
            return None
        return shapes, self._slots[slot : slot + count]

    def _run_of(self, slots: UInt32Array, shape: int) -> RunPlace:
        """The place of neighbours in a BLOCK, whose notes are neighbours then too."""
        frame, start = int(slots[0, _SLOT_FRAME]), int(slots[0, _START])
        offset = ALIGNMENT * self._frames.item(frame)
        note_bytes = int(slots[-1, _START]) + int(slots[-1, _LENGTH]) - start
        vector = offset + int(slots[0, _VECTOR])
        return RunPlace(frame, offset + start, note_bytes, vector, shape, slots[:, _EMBEDDING])

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
