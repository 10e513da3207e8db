"""The index of one segment: where every event and row lies, as columns.

An active segment's index grows with it; a sealed one's comes from its SEAL frame, whose column
records (docs/format.md section 5) are the records here, byte for byte. It knows places, not values:
record ids and payloads stay on disk. About 41 bytes for an event of one row.

Behind the newest event stands one record more, whose slot is where the next event's will begin.
A slot whose start is 0 is that of a row or payload that was erased.

One thread appends at a time. Lookups of what was appended before need no lock: growing replaces
the arrays by longer copies and never moves an entry, and counts are raised last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from fmemory_segments._batch import BatchMeta
from fmemory_segments._event_meta import (
    ITEM_BYTES,
    BlobPlace,
    ErasedPlace,
    EventMeta,
    RowsPlace,
    unpack_bits,
)
from fmemory_segments._frame import ALIGNMENT, pad8
from fmemory_segments._places import BlobAt, Int64Array, RowPlace, RowPlaces, RunPlace
from fmemory_segments.event import (
    LOC_ROW_BITS,
    NONCE_BYTES,
    Stream,
    UInt8Array,
    UInt32Array,
    UInt64Array,
)

__all__ = [
    "EVENT_COLUMN",
    "EVENT_FIELDS",
    "SLOT_COLUMN",
    "SLOT_FIELDS",
    "BlobAt",
    "Int64Array",
    "RowPlace",
    "RowPlaces",
    "RunPlace",
    "SegmentIndex",
]

Number = TypeVar("Number", bound=np.generic)

EVENT_COLUMN = Struct("<IIIII")
SLOT_COLUMN = Struct("<IIII")
EVENT_FIELDS = ("frame", "stream", "slot", "matrix", "shape")
SLOT_FIELDS = ("start", "length", "crc", "embedding")
SHAPE_BLOB = 0
SHAPE_ERASED = 3
CAPACITY_MIN = 64

_FRAME, _STREAM, _SLOT, _MATRIX, _SHAPE = range(5)
_START, _LENGTH, _CRC, _EMBEDDING = range(4)
_U32 = Struct("<I")
_EVENT_AND_END = Struct("<I4xIII8xI")  # without its stream; of the next event its slot
_ROW_MASK = (1 << LOC_ROW_BITS) - 1


class SegmentIndex:
    """Places of the events and rows of one segment.

    Attributes:
        base_seq: Seq of the first event.
        event_count: Events so far.
        slot_count: Rows so far, and one for each event without rows.
        frame_count: Frames so far.
        streams: Streams by number.
        embedding_ids: Embedding ids by number.
        checked: uint8, one a frame: 1 where this process has seen the data's CRC to be right.
    """

    def __init__(self, base_seq: int) -> None:
        self.base_seq = base_seq
        self.event_count = 0
        self.slot_count = 0
        self.frame_count = 0
        self.streams: list[Stream] = []
        self.embedding_ids: list[str | None] = []
        self.checked: UInt8Array = np.zeros(CAPACITY_MIN, np.uint8)
        self._frames: UInt32Array = np.zeros(CAPACITY_MIN, "<u4")
        self._stream_numbers: dict[Stream, int] = {}
        self._embedding_numbers: dict[str | None, int] = {}
        self._set_events(np.zeros((CAPACITY_MIN, len(EVENT_FIELDS)), "<u4"))
        self._set_slots(np.zeros((CAPACITY_MIN, len(SLOT_FIELDS)), "<u4"))

    @classmethod
    def from_columns(
        cls,
        base_seq: int,
        *,
        events: UInt32Array,
        slots: UInt32Array,
        frames: UInt32Array,
        streams: Sequence[Stream],
        embedding_ids: Sequence[str | None],
    ) -> Self:
        """The index with these columns; their content must have been checked.

        Slots and frames are kept as they are given, events are copied.
        """
        index = cls(base_seq)
        behind = np.array([[0, 0, len(slots), 0, 0]], "<u4")
        index._set_events(np.concatenate((events, behind)))
        index._set_slots(slots)
        index._frames = frames
        index.checked = np.zeros(len(frames), np.uint8)
        index.event_count, index.slot_count = len(events), len(slots)
        index.frame_count = len(frames)
        index.streams = list(streams)
        index.embedding_ids = list(embedding_ids)
        index._stream_numbers = {stream: number for number, stream in enumerate(streams)}
        index._embedding_numbers = {value: number for number, value in enumerate(embedding_ids)}
        return index

    @property
    def last_seq(self) -> int:
        """Seq of the newest event; `base_seq - 1` if there is none."""
        return self.base_seq + self.event_count - 1

    @property
    def size_bytes(self) -> int:
        """Memory of the columns."""
        return sum(
            column.nbytes for column in (self._events, self._slots, self._frames, self.checked)
        )

    @property
    def events(self) -> UInt32Array:
        """The event columns: shape (event_count, 5), in the order of `EVENT_FIELDS`."""
        return self._events[: self.event_count]

    @property
    def slots(self) -> UInt32Array:
        """The slot columns: shape (slot_count, 4), in the order of `SLOT_FIELDS`."""
        return self._slots[: self.slot_count]

    @property
    def living_slots(self) -> int:
        """How many slots hold data: those of what was erased say no place."""
        return int(np.count_nonzero(self.slots[:, _START]))

    @property
    def frame_offsets(self) -> Int64Array:
        """Offset of each frame in the file."""
        return self._frames[: self.frame_count].astype(np.int64) * ALIGNMENT

    @property
    def packed_frame_offsets(self) -> UInt32Array:
        """The same divided by 8, as the SEAL stores them."""
        return self._frames[: self.frame_count]

    def append_frame(self, offset: int, batch: BatchMeta) -> None:
        """Index one frame of kind BATCH.

        Args:
            offset: Of the frame in the file.
            batch: Its header and entries; must begin with the next seq.

        Cost: O(rows), about 3 µs for a frame of one row.
        """
        header, metas = batch
        assert header.first_seq == self.base_seq + self.event_count, "frames in order, none twice"
        frame, event, slot = self.frame_count, self.event_count, self.slot_count
        data_start = header.data_start
        self._reserve(event + len(metas) + 1, frame + 1)
        for meta in metas:
            stream = self._stream_numbers.get(meta.stream)
            if stream is None:
                stream = self._number_stream(meta.stream)
            matrix, shape, filled = self._append_slots(meta, slot, data_start)
            EVENT_COLUMN.pack_into(
                self._event_bytes, 20 * event, frame, stream, slot, matrix, shape
            )
            event += 1
            slot += filled
        self._events[event, _SLOT] = slot
        self._frames[frame] = offset // ALIGNMENT
        self.checked[frame] = 0
        self.slot_count = slot
        self.frame_count = frame + 1
        self.event_count = event

    def truncate(self, last_seq: int) -> None:
        """Forget the events after this one, which must end a frame."""
        kept = max(0, last_seq - self.base_seq + 1)
        if kept >= self.event_count:
            return
        self.slot_count = int(self._events[kept, _SLOT])
        self.frame_count = int(self._events[kept, _FRAME])
        self.event_count = kept

    def freeze(self) -> None:
        """Give back the memory kept for growth."""
        self._set_events(self._events[: self.event_count + 1].copy())
        self._set_slots(self.slots.copy())
        self.checked = self.checked[: self.frame_count].copy()
        self._frames = self._frames[: self.frame_count].copy()

    def place(self, loc: int) -> RowPlace:
        """Where the row at this loc is.

        Raises:
            KeyError: No row of this segment has this loc, or it was erased: see `slot_of`.

        Cost: about 1.5 µs.
        """
        event = (loc >> LOC_ROW_BITS) - self.base_seq
        row = loc & _ROW_MASK
        if not 0 <= event < self.event_count:
            raise KeyError(loc)
        frame, first, matrix, shape, end = _EVENT_AND_END.unpack_from(self._event_bytes, 20 * event)
        dtype = shape & 3
        if first + row >= end or not 1 <= dtype <= 2:
            raise KeyError(loc)
        start, length, crc, embedding = SLOT_COLUMN.unpack_from(
            self._slot_bytes, 16 * (first + row)
        )
        if not start:
            raise KeyError(loc)
        offset = ALIGNMENT * self._frames.item(frame)
        dim = shape >> 2
        vector_offset = offset + matrix + row * dim * ITEM_BYTES[dtype]
        return RowPlace(
            frame,
            offset + start,
            length,
            vector_offset,
            dim,
            dtype,
            crc,
            self.embedding_ids[embedding],
        )

    def run(self, loc: int, count: int) -> RunPlace | None:
        """Where `count` rows from this loc on are; None if they are not neighbours in one event.

        Cost: about 6 µs, however many rows.
        """
        event = (loc >> LOC_ROW_BITS) - self.base_seq
        row = loc & _ROW_MASK
        if not 0 <= event < self.event_count:
            return None
        frame, first, matrix, shape, end = _EVENT_AND_END.unpack_from(self._event_bytes, 20 * event)
        dtype = shape & 3
        if first + row + count > end or not 1 <= dtype <= 2:
            return None
        slots = self._slots[first + row : first + row + count]
        start, _, _, _ = SLOT_COLUMN.unpack_from(self._slot_bytes, 16 * (first + row))
        last, length, _, _ = SLOT_COLUMN.unpack_from(
            self._slot_bytes, 16 * (first + row + count - 1)
        )
        note_bytes = last + length - start
        if int(slots[:, _LENGTH].sum()) != note_bytes or not slots[:, _START].all():
            return None
        offset = ALIGNMENT * self._frames.item(frame)
        vector_offset = offset + matrix + row * (shape >> 2) * ITEM_BYTES[dtype]
        return RunPlace(
            frame, offset + start, note_bytes, vector_offset, shape, slots[:, _EMBEDDING]
        )

    def places(self, locs: UInt64Array) -> RowPlaces:
        """Where the rows at these locs are, in their order.

        Args:
            locs: uint64, shape (n,).

        Raises:
            KeyError: No row of this segment has one of these locs, or one was erased.

        Cost: about 30 µs and 0.03 µs a row, wherever the rows are.
        """
        rows, of_event, slots = self._find(locs)
        shapes = of_event[:, _SHAPE]
        of_slot = self._slots.take(slots, 0)
        if not of_slot[:, _START].all():
            raise KeyError("a loc whose row was erased")
        frames = of_event[:, _FRAME]
        offsets = self._frames.take(frames).astype(np.int64) * ALIGNMENT
        # dtype 1 has items of 4 bytes, dtype 2 of 8.
        vector_bytes = (shapes >> 2).astype(np.int64) << (shapes & 3) + 1
        return RowPlaces(
            frames=frames,
            note_offsets=offsets + of_slot[:, _START],
            note_bytes=of_slot[:, _LENGTH],
            vector_offsets=offsets + of_event[:, _MATRIX] + rows * vector_bytes,
            vector_bytes=vector_bytes,
            shapes=shapes,
            crcs=of_slot[:, _CRC],
            embeddings=of_slot[:, _EMBEDDING],
        )

    def _find(self, locs: UInt64Array) -> tuple[Int64Array, UInt32Array, Int64Array]:
        """Row in its event, event columns and slot of each of these locs.

        Raises:
            KeyError: No row of this segment has one of these locs.
        """
        event_count, events = self.event_count, self._events
        packed = locs.astype(np.int64)
        numbers = (packed >> LOC_ROW_BITS) - self.base_seq
        rows = packed & _ROW_MASK
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < event_count):
            raise KeyError("a loc of another segment")
        of_event = events.take(numbers, 0)
        slots = of_event[:, _SLOT] + rows
        is_behind = rows.any() and (slots >= events[numbers + 1, _SLOT]).any()
        if is_behind or not (of_event[:, _SHAPE] + 1 & 2).all():
            raise KeyError("a loc that has no row")
        return rows, of_event, slots

    def slot_of(self, loc: int) -> int | None:
        """Number of the slot of the row at a loc, erased or not; None if no row has it."""
        event = (loc >> LOC_ROW_BITS) - self.base_seq
        if not 0 <= event < self.event_count:
            return None
        _, first, _, shape, end = _EVENT_AND_END.unpack_from(self._event_bytes, 20 * event)
        number = int(first) + (loc & _ROW_MASK)
        return number if number < end and 1 <= shape & 3 <= 2 else None

    def slot_range(self, first_seq: int, last_seq: int) -> tuple[int, int]:
        """Number of the first slot of these events, and of the first one behind them."""
        events, base_seq = self._events, self.base_seq
        first, end = events[first_seq - base_seq, _SLOT], events[last_seq + 1 - base_seq, _SLOT]
        return int(first), int(end)

    def frame_of(self, seq: int) -> int:
        """Number of the frame that holds this event.

        Raises:
            KeyError: The segment has no such event.
        """
        event = seq - self.base_seq
        if not 0 <= event < self.event_count:
            raise KeyError(seq)
        return int(_U32.unpack_from(self._event_bytes, 20 * event)[0])

    def holds(self, frame: int, first_seq: int, last_seq: int) -> bool:
        """Whether a frame holds these events and no other."""
        first, last = first_seq - self.base_seq, last_seq - self.base_seq
        count, events, unpack = self.event_count, self._event_bytes, _U32.unpack_from
        return (
            0 <= first <= last < count
            and unpack(events, 20 * first)[0] == frame == unpack(events, 20 * last)[0]
            and (first == 0 or unpack(events, 20 * first - 20)[0] == frame - 1)
            and (last == count - 1 or unpack(events, 20 * last + 20)[0] == frame + 1)
        )

    def seqs_of_frame(self, frame: int) -> tuple[int, int]:
        """First and last seq of the events, or of the rows, in a frame. Cost: O(log events)."""
        seqs = range(self.base_seq, self.last_seq + 1)
        first = bisect_left(seqs, frame, key=self.frame_of)
        last = bisect_right(seqs, frame, lo=first, key=self.frame_of) - 1
        return self.base_seq + first, self.base_seq + last

    def slot_counts(self, frames: UInt32Array) -> Int64Array:
        """How many rows and other payloads each of these frames has. Cost: O(events)."""
        events, slot_count = self.events, self.slot_count
        ends = np.append(events[:, _SLOT].astype(np.int64), slot_count)
        of_event = np.ascontiguousarray(events[:, _FRAME])
        first = np.searchsorted(of_event, frames, "left")
        after = np.searchsorted(of_event, frames, "right")
        counts: Int64Array = ends[after] - ends[first]
        return counts

    def frame_offset(self, frame: int) -> int:
        """Offset in the file of the frame with this number."""
        return ALIGNMENT * self._frames.item(frame)

    def has_rows(self, seq: int) -> bool:
        """True for a record event."""
        self.frame_of(seq)
        return bool(1 <= self._events[seq - self.base_seq, _SHAPE] & 3 <= 2)

    def blob(self, seq: int) -> BlobAt | None:
        """Where the bytes of this event are; None for records and for what was erased.

        Raises:
            KeyError: The segment has no such event.
        """
        frame = self.frame_of(seq)
        _frame, _stream, slot, _matrix, shape = EVENT_COLUMN.unpack_from(
            self._event_bytes, 20 * (seq - self.base_seq)
        )
        if shape & 3 != SHAPE_BLOB:
            return None
        start, length, crc, _embedding = SLOT_COLUMN.unpack_from(self._slot_bytes, 16 * slot)
        return BlobAt(self.frame_offset(frame) + start, length, crc)

    def seqs_of(self, stream: Stream, first_seq: int, last_seq: int) -> Int64Array:
        """Seqs of the stream's events among these events of the segment, ascending.

        Cost: O(events looked at), about 1 ms a million.
        """
        number = self._stream_numbers.get(stream)
        if number is None:
            return np.zeros(0, np.int64)
        base_seq = self.base_seq
        numbers = self.events[first_seq - base_seq : last_seq + 1 - base_seq, _STREAM]
        return np.flatnonzero(numbers == number) + first_seq

    def has_stream(self, stream: Stream) -> bool:
        """True if the segment has an event of this stream."""
        return stream in self._stream_numbers

    def _append_slots(self, meta: EventMeta, slot: int, data_start: int) -> tuple[int, int, int]:
        """Fill the slots of one event; its matrix offset, its shape and how many were filled."""
        place = meta.place
        if isinstance(place, RowsPlace):
            return self._append_rows(place, len(meta.keys), slot, data_start)
        if slot >= len(self._slots):
            self._reserve_slots(slot + 1)
        if isinstance(place, BlobPlace):
            SLOT_COLUMN.pack_into(
                self._slot_bytes,
                16 * slot,
                data_start + place.offset,
                place.length,
                place.crc,
                0,
            )
            return 0, SHAPE_BLOB, 1
        assert isinstance(place, ErasedPlace), "rows in blocks belong to compacted segments"
        SLOT_COLUMN.pack_into(self._slot_bytes, 16 * slot, 0, 0, 0, 0)
        return 0, SHAPE_ERASED, 1

    def _append_rows(
        self, place: RowsPlace, count: int, slot: int, data_start: int
    ) -> tuple[int, int, int]:
        if slot + count > len(self._slots):
            self._reserve_slots(slot + count)
        notes_start = data_start + place.offset + NONCE_BYTES * count
        shape = place.dim << 2 | place.dtype
        if count == 1:
            length = _U32.unpack_from(place.note_offsets, 4)[0]
            crc = 0 if place.erased else _U32.unpack(place.row_crcs)[0]
            embedding_id = place.embedding_ids[0]
            embedding = self._embedding_numbers.get(embedding_id)
            if embedding is None:
                embedding = self._number_embedding(embedding_id)
            start = 0 if place.erased else notes_start
            SLOT_COLUMN.pack_into(self._slot_bytes, 16 * slot, start, length, crc, embedding)
            return pad8(notes_start + length), shape, 1
        offsets = np.frombuffer(place.note_offsets, "<u4")
        filled = self._slots[slot : slot + count]
        filled[:, _START] = offsets[:-1] + np.uint32(notes_start)
        filled[:, _LENGTH] = offsets[1:] - offsets[:-1]
        filled[:, _CRC] = np.frombuffer(place.row_crcs, "<u4")
        numbers = [
            self._embedding_numbers[value]
            if value in self._embedding_numbers
            else self._number_embedding(value)
            for value in place.embedding_ids
        ]
        if place.embedding_numbers:
            chosen = np.frombuffer(place.embedding_numbers, "<u2")
            filled[:, _EMBEDDING] = np.array(numbers, "<u4")[chosen]
        else:
            filled[:, _EMBEDDING] = numbers[0]
        if place.erased:
            filled[unpack_bits(place.erased, count)] = 0
        return pad8(notes_start + int(offsets[-1])), shape, count

    def _number_stream(self, stream: Stream) -> int:
        number = self._stream_numbers[stream] = len(self.streams)
        self.streams.append(stream)
        return number

    def _number_embedding(self, embedding_id: str | None) -> int:
        number = self._embedding_numbers[embedding_id] = len(self.embedding_ids)
        self.embedding_ids.append(embedding_id)
        return number

    def _reserve(self, event_count: int, frame_count: int) -> None:
        if event_count > len(self._events):
            self._set_events(_grown(self._events, event_count))
        if frame_count > len(self._frames):
            self._frames = _grown(self._frames, frame_count)
            self.checked = _grown(self.checked, frame_count)

    def _reserve_slots(self, slot_count: int) -> None:
        self._set_slots(_grown(self._slots, slot_count))

    def _set_events(self, events: UInt32Array) -> None:
        self._event_bytes = _bytes_of(events)
        self._events = events

    def _set_slots(self, slots: UInt32Array) -> None:
        self._slot_bytes = _bytes_of(slots)
        self._slots = slots


def _grown(column: npt.NDArray[Number], count: int) -> npt.NDArray[Number]:
    """A longer copy: at least twice as long, so that appending stays cheap on average."""
    longer = np.zeros((max(count, 2 * len(column), CAPACITY_MIN), *column.shape[1:]), column.dtype)
    longer[: len(column)] = column
    return longer


def _bytes_of(column: UInt32Array) -> memoryview:
    return column.data.cast("B") if column.size else memoryview(b"")
