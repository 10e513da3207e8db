"""SEAL of a compacted segment (layout 2): built from LEDGER and BLOCK frames, and checked.

The columns come from the frames alone, so that `verify` can compare the bytes that it builds from
what it reads with those that are on disk. docs/format.md section 5 owns them; no I/O here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fmemory_segments._batch import BatchMeta
from fmemory_segments._block import BlockMeta
from fmemory_segments._columns import EVENT_COLUMN, SHAPE_BLOB, SHAPE_ERASED, SegmentIndex
from fmemory_segments._compacted_index import (
    NO_FRAME,
    PLACED_SLOT_COLUMN,
    PLACED_SLOT_FIELDS,
    CompactedIndex,
)
from fmemory_segments._event_meta import ITEM_BYTES, BlobPlace, BlockRows, EventMeta, unpack_bits
from fmemory_segments._frame import ALIGNMENT, FrameHeader, pad8
from fmemory_segments._places import Int64Array
from fmemory_segments._seal import SEAL_LAYOUT_COMPACTED, SealBuilder
from fmemory_segments.event import (
    LOC_ROW_BITS,
    NONCE_BYTES,
    BoolArray,
    Stream,
    UInt8Array,
    UInt32Array,
    UInt64Array,
)

_SLOT, _SHAPE, _SLOT_FRAME = 2, 4, 4
_NO_ROW, _ERASED, _WANTED, _PLACED = range(4)
_NOTHING: Final = PLACED_SLOT_COLUMN.pack(0, 0, 0, 0, NO_FRAME, 0)
DEFLATED_SHARE: Final = 4
"""Columns are deflated where at least every so many-th slot was erased."""
_NEXT: Final = np.uint64(1 << LOC_ROW_BITS)


class CompactedSealBuilder(SealBuilder):
    """Collects what the SEAL of a compacted segment says from its frames, in order.

    Args:
        base_seq: Seq of the first event.
        time_ns: When the event before was recorded.
    """

    layout = SEAL_LAYOUT_COMPACTED

    def __init__(self, base_seq: int, *, time_ns: int = 0) -> None:
        super().__init__(base_seq, time_ns=time_ns)
        self._columns = _Columns(base_seq)

    def add(self, offset: int, batch: BatchMeta) -> None:
        """Take in the LEDGER frame at this offset of the file; all of them before any BLOCK."""
        self._columns.add_ledger(offset, batch)
        self.note_events(batch)

    def add_block(self, offset: int, header: FrameHeader, block: BlockMeta) -> UInt64Array:
        """Take in the BLOCK frame at this offset of the file.

        Returns:
            The locs of rows that do not belong there: of no living row of this stream and shape,
            or there twice. Empty = all is well.
        """
        return self._columns.add_block(offset, header, block)

    def missing(self) -> UInt64Array:
        """The locs of living rows that were in no BLOCK so far, ascending."""
        return self._columns.missing()

    def deflates(self) -> bool:
        """True where so much was erased that small columns are worth a slower open."""
        erased = int((self.index.slots[:, _SLOT_FRAME] == NO_FRAME).sum())
        return DEFLATED_SHARE * erased >= self.index.slot_count

    def finish(self) -> CompactedIndex:
        """The index of the segment, once all frames were added; the builder's from then on."""
        index = self._columns.build()
        self.index: SegmentIndex = index
        return index


class _Columns:
    """The columns of a compacted segment in the making."""

    def __init__(self, base_seq: int) -> None:
        self._base_seq = base_seq
        self._frames: list[int] = []
        self._events = bytearray()
        self._slots = bytearray()
        self._states = bytearray()
        self._event_count = 0
        self._streams: dict[Stream, int] = {}
        self._embeddings: dict[str | None, int] = {}
        self._placed: tuple[UInt32Array, UInt32Array, UInt8Array] | None = None

    def add_ledger(self, offset: int, batch: BatchMeta) -> None:
        assert self._placed is None, "all LEDGER frames come before any BLOCK"
        assert batch.header.first_seq == self._base_seq + self._event_count, "in order, none twice"
        frame = len(self._frames)
        self._frames.append(offset // ALIGNMENT)
        for meta in batch.events:
            stream = self._streams.setdefault(meta.stream, len(self._streams))
            slot = len(self._states)
            shape = self._add_slots(frame, batch.header.data_start, meta)
            self._events += EVENT_COLUMN.pack(frame, stream, slot, 0, shape)
        self._event_count += len(batch.events)

    def add_block(self, offset: int, header: FrameHeader, block: BlockMeta) -> UInt64Array:
        events, slots, states = self._arrays()
        frame = len(self._frames)
        self._frames.append(offset // ALIGNMENT)
        numbers = [
            self._embeddings.setdefault(value, len(self._embeddings))
            for value in block.embedding_ids
        ]
        locs = block.row_locs
        found, is_known = self._slots_of(locs, self._streams.get(block.stream, -1), block, events)
        is_good = is_known & (states[found] == _WANTED)
        is_good[is_good] = _is_first(found[is_good])
        chosen = found[is_good]
        offsets = np.frombuffer(block.note_offsets, "<u4")
        notes_start = header.data_start + NONCE_BYTES * len(locs)
        matrix = pad8(notes_start + int(offsets[-1]))
        width = block.dim * ITEM_BYTES[block.dtype]
        filled = np.zeros((len(locs), len(PLACED_SLOT_FIELDS)), "<u4")
        filled[:, 0] = offsets[:-1] + np.uint32(notes_start)
        filled[:, 1] = offsets[1:] - offsets[:-1]
        filled[:, 2] = np.frombuffer(block.row_crcs, "<u4")
        filled[:, 3] = numbers[0]
        if block.embedding_numbers:
            which = np.frombuffer(block.embedding_numbers, "<u4")
            filled[:, 3] = np.array(numbers, "<u4")[which]
        filled[:, 4] = frame
        filled[:, 5] = matrix + width * np.arange(len(locs))
        slots[chosen] = filled[is_good]
        states[chosen] = _PLACED
        misplaced: UInt64Array = locs[~is_good]
        return misplaced

    def missing(self) -> UInt64Array:
        events, _, states = self._arrays()
        slots = np.flatnonzero(states == _WANTED)
        numbers = np.searchsorted(events[:, _SLOT], slots, "right") - 1
        rows = slots - events[numbers, _SLOT]
        first = numbers.astype(np.int64) + self._base_seq << LOC_ROW_BITS
        locs: UInt64Array = (first + rows).astype(np.uint64)
        return locs

    def build(self) -> CompactedIndex:
        events, slots, _ = self._arrays()
        return CompactedIndex.from_columns(
            self._base_seq,
            events=events,
            slots=slots,
            frames=np.array(self._frames, "<u4"),
            streams=list(self._streams),
            embedding_ids=list(self._embeddings),
        )

    def _add_slots(self, frame: int, data_start: int, meta: EventMeta) -> int:
        """Append the slots of one event; its shape."""
        place = meta.place
        if isinstance(place, BlockRows):
            count = len(meta.keys)
            self._slots += _NOTHING * count
            erased = unpack_bits(place.erased, count)
            if erased is None:
                self._states += bytes((_WANTED,)) * count
            else:
                self._states += np.where(erased, _ERASED, _WANTED).astype(np.uint8).tobytes()
            return place.dim << 2 | place.dtype
        self._states.append(_NO_ROW)
        if isinstance(place, BlobPlace):
            self._slots += PLACED_SLOT_COLUMN.pack(
                data_start + place.offset, place.length, place.crc, 0, frame, 0
            )
            return SHAPE_BLOB
        self._slots += _NOTHING
        return SHAPE_ERASED

    def _arrays(self) -> tuple[UInt32Array, UInt32Array, UInt8Array]:
        """Columns of events and slots, and the state of each slot."""
        if self._placed is None:
            self._placed = (
                np.frombuffer(self._events, "<u4").reshape(-1, EVENT_COLUMN.size // 4),
                np.frombuffer(self._slots, "<u4").reshape(-1, len(PLACED_SLOT_FIELDS)),
                np.frombuffer(self._states, np.uint8),
            )
        return self._placed

    def _slots_of(
        self, locs: UInt64Array, stream: int, block: BlockMeta, events: UInt32Array
    ) -> tuple[Int64Array, BoolArray]:
        """The slot of each loc, 0 where there is none; and whether there is one that fits."""
        numbers = (locs >> np.uint64(LOC_ROW_BITS)).astype(np.int64) - self._base_seq
        rows = (locs & (_NEXT - np.uint64(1))).astype(np.int64)
        fits = (numbers >= 0) & (numbers < len(events))
        numbers[~fits] = 0
        of_event = events[numbers]
        ends = np.append(events[1:, _SLOT], np.uint32(len(self._states)))[numbers]
        fits &= (of_event[:, 1] == stream) & (of_event[:, _SHAPE] == block.dim << 2 | block.dtype)
        found = of_event[:, _SLOT] + rows
        fits &= found < ends
        found[~fits] = 0
        return found, fits


def _is_first(numbers: Int64Array) -> BoolArray:
    """True for each number that was not there before."""
    flags = np.zeros(len(numbers), np.bool_)
    flags[np.unique(numbers, return_index=True)[1]] = True
    return flags
