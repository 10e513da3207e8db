"""SEAL: the last frame of a finished segment, from which it opens without a walk over its frames.

It holds the columns of the segment's index as they are in memory, what a fold needs of record
events (ids, timestamps, revisions), the envelopes of the others, and the chain value at its end.
docs/format.md section 5 owns the bytes. Decoding costs a few array copies and one MessagePack call
for all ids; nothing is done row by row. This module does no I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from fmemory_segments._batch import BatchMeta
from fmemory_segments._columns import (
    EVENT_COLUMN,
    EVENT_FIELDS,
    SLOT_COLUMN,
    Int64Array,
    SegmentIndex,
)
from fmemory_segments._compacted_index import PLACED_SLOT_COLUMN, CompactedIndex
from fmemory_segments._deflate import deflate, inflate
from fmemory_segments._event_meta import BlockRows, Natural, RowsPlace
from fmemory_segments._frame import (
    REGION_BYTES_MAX,
    ZEROS,
    Buffer,
    FrameDamage,
    FrameFlag,
    FrameHeader,
    FrameKind,
    frame_bytes,
    pack_frame,
    pad8,
)
from fmemory_segments._runs import cut_runs, rows_flags
from fmemory_segments._seal_columns import check_batches, check_columns, check_placed, expect
from fmemory_segments.event import (
    DIGEST_BYTES,
    Envelope,
    Float64Array,
    RowRun,
    Stream,
    StreamInfo,
)

SEAL_LAYOUT: Final = 1
SEAL_LAYOUT_COMPACTED: Final = 2
TRAILER: Final = Struct("<Q8s")
TRAILER_MAGIC: Final = b"\x89FMSEAL\n"
TRAILER_BYTES: Final = 16
STREAM_COLUMN: Final = Struct("<QQQQq")

Decoded = TypeVar("Decoded")

_FRAME, _STREAM, _SLOT, _MATRIX, _SHAPE = range(5)
_EMBEDDING = 3
_SEQ = attrgetter("seq")
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE_IDS = msgspec.msgpack.Decoder(list[str]).decode
_DECODE_ENVELOPES = msgspec.msgpack.Decoder(list[Envelope]).decode
_DECODE_PAIRS = msgspec.msgpack.Decoder(list[int | str]).decode


class SealMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The meta of a SEAL frame: how long the sections of data are, and the small tables."""

    layout: Natural
    event_count: Natural
    frame_count: Natural
    slot_count: Natural
    row_count: Natural
    put_count: Natural
    streams: tuple[Stream, ...]
    embedding_ids: tuple[str | None, ...]
    ids_bytes: Natural
    envelopes_bytes: Natural
    event_ids_bytes: Natural
    chain: bytes

    @property
    def slot_bytes(self) -> int:
        """Size of a slot column of this layout."""
        return SLOT_COLUMN.size if self.layout == SEAL_LAYOUT else PLACED_SLOT_COLUMN.size

    def sections(self) -> list[int]:
        """Size of each section of data, unpadded, in order."""
        return [
            EVENT_COLUMN.size * self.event_count,
            4 * self.frame_count,
            self.slot_bytes * self.slot_count,
            STREAM_COLUMN.size * len(self.streams),
            8 * self.put_count,
            8 * self.row_count,
            self.ids_bytes,
            self.envelopes_bytes,
            self.event_ids_bytes,
        ]


_DECODE_META = msgspec.msgpack.Decoder(SealMeta).decode


class SealContent(NamedTuple):
    """Meta and data of a SEAL frame."""

    meta: bytes
    parts: list[Buffer]
    data_bytes: int

    def deflated(self) -> SealContent:
        """The same with data as one deflated stream."""
        packed = deflate(self.parts)
        return SealContent(self.meta, [packed], len(packed))

    def is_in(self, header: FrameHeader, body: Buffer) -> bool:
        """Whether a SEAL frame says this.

        Args:
            header: Of the frame.
            body: Meta and data with their padding; their CRCs must have been checked.
        """
        view, end = memoryview(body), pad8(header.meta_bytes)
        data: Buffer = view[end:]
        if view[:end] != self.meta + ZEROS[: -len(self.meta) & 7]:
            return False
        if header.is_deflated:
            if any(data[header.data_bytes :]):
                return False
            try:
                data = inflate(data[: header.data_bytes], self.data_bytes, "seal, data")
            except FrameDamage:
                return False
        return data == b"".join(self.parts)


class SealBuilder:
    """Collects what a SEAL says from the frames of its segment, in order.

    Attributes:
        index: The index of the frames so far; the segment's own once it is sealed.
        time_ns: When the last event was recorded; at first that of the segment before.
    """

    layout = SEAL_LAYOUT

    def __init__(self, base_seq: int, *, time_ns: int = 0) -> None:
        self.time_ns = time_ns
        self.index = SegmentIndex(base_seq)
        self._streams: dict[Stream, list[int]] = {}
        self._revisions: list[int] = []
        self._timestamps: list[bytes] = []
        self._ids: list[str] = []
        self._envelopes: list[Envelope] = []
        self._event_ids: list[int | str] = []

    def add(self, offset: int, batch: BatchMeta) -> None:
        """Take in the BATCH frame at this offset of the file."""
        self.index.append_frame(offset, batch)
        self.note_events(batch)

    def note_events(self, batch: BatchMeta) -> None:
        """Take in what does not depend on where the payloads of a frame lie."""
        time_ns = batch.header.time_ns
        for seq, event in enumerate(batch.events, batch.header.first_seq):
            place = event.place
            if isinstance(place, RowsPlace | BlockRows):
                self._revisions.append(event.revision)
                self._timestamps.append(place.timestamps)
                self._ids += event.keys
                if event.event_id is not None:
                    self._event_ids += (seq, event.event_id)
            else:
                self._envelopes.append(event.envelope(seq, time_ns))
            self.time_ns = time_ns + event.recorded_after_ns
            known = self._streams.get(event.stream)
            if known is None:
                self._streams[event.stream] = [seq, seq, 1, event.revision, self.time_ns]
            else:
                known[1:] = (seq, known[2] + 1, event.revision, self.time_ns)

    def deflates(self) -> bool:
        """Whether the columns are written as one deflated stream."""
        return False

    def pack(self, chain: bytes) -> SealContent:
        """The content of the SEAL frame; `chain` is the value after the last event."""
        index = self.index
        ids, envelopes, event_ids = map(_ENCODE, (self._ids, self._envelopes, self._event_ids))
        meta = SealMeta(
            self.layout,
            index.event_count,
            index.frame_count,
            index.slot_count,
            len(self._ids),
            len(self._revisions),
            tuple(index.streams),
            tuple(index.embedding_ids),
            len(ids),
            len(envelopes),
            len(event_ids),
            chain,
        )
        sections: list[Buffer] = [
            index.events.tobytes(),
            index.packed_frame_offsets.tobytes(),
            index.slots.tobytes(),
            b"".join(STREAM_COLUMN.pack(*self._streams[stream]) for stream in index.streams),
            np.array(self._revisions, "<u8").tobytes(),
            b"".join(self._timestamps),
            ids,
            envelopes,
            event_ids,
        ]
        parts: list[Buffer] = []
        for section in sections:
            parts.append(section)
            if padding := -len(section) & 7:
                parts.append(ZEROS[:padding])
        return SealContent(_ENCODE(meta), parts, sum(map(len, parts)))


def pack_seal(
    builder: SealBuilder,
    chain: bytes,
    *,
    synced_to: int,
    prev_frame_bytes: int,
    salt: int,
    offset: int,
) -> tuple[FrameHeader, list[Buffer]]:
    """The header of the SEAL, and SEAL and trailer as buffers that end the file.

    Args:
        builder: Has seen every frame of the segment.
        chain: Chain value after the last event.
        synced_to: Every event up to this seq is known to be on disk.
        prev_frame_bytes: Size of the last frame, 0 if there is none.
        salt: Of the segment.
        offset: Where the SEAL goes: the end of the last frame.

    Raises:
        FrameTooLarge: The columns take more than 4 GiB; the segment must stay unsealed.
    """
    content, flags = builder.pack(chain), FrameFlag.BATCH_END
    # What is too large for a SEAL stays so, however small it would come out deflated.
    if builder.deflates() and content.data_bytes <= REGION_BYTES_MAX:
        content, flags = content.deflated(), flags | FrameFlag.DEFLATED
    header, buffers = pack_frame(
        FrameKind.SEAL,
        flags,
        event_count=builder.index.event_count,
        prev_frame_bytes=prev_frame_bytes,
        first_seq=builder.index.base_seq,
        time_ns=builder.time_ns,
        synced_to=synced_to,
        batch_offset=0,
        meta=content.meta,
        data_parts=content.parts,
        data_bytes=content.data_bytes,
        salt=salt,
        offset=offset,
    )
    return header, [*buffers, TRAILER.pack(offset, TRAILER_MAGIC)]


def unpack_trailer(tail: Buffer, file_bytes: int) -> int | None:
    """Where the SEAL of a file starts, by the file's last 16 bytes; None if there is no trailer.

    The offset is a hint: the header there must have the right CRC and end where the trailer begins.

    >>> unpack_trailer(bytes(16), 4096) is None
    True
    """
    if len(tail) != TRAILER_BYTES:
        return None
    offset, magic = TRAILER.unpack(tail)
    if magic != TRAILER_MAGIC or offset % 8 or offset >= file_bytes - TRAILER_BYTES:
        return None
    return int(offset)


def seal_end(header: FrameHeader, offset: int) -> int:
    """Size of the file that ends with this SEAL at this offset, and its trailer."""
    return offset + frame_bytes(header) + TRAILER_BYTES


@dataclass(slots=True, eq=False)
class Seal:
    """A decoded SEAL. `index` and `chain` are to keep; the rest pins the frame's data.

    Attributes:
        index: Places of the segment's events.
        chain: Chain value after its last event.
        time_ns: When its last event was recorded.
        timestamps: float64, of all rows of record events in order.
    """

    index: SegmentIndex
    chain: bytes
    time_ns: int
    timestamps: Float64Array
    _streams: Int64Array
    _revisions: Int64Array
    _packed_ids: Buffer
    _packed_envelopes: Buffer
    _packed_event_ids: Buffer
    _ids: list[str] | None = field(default=None, init=False)
    _envelopes: list[Envelope] | None = field(default=None, init=False)

    def ids(self) -> list[str]:
        """Ids of all rows of record events, in order.

        Raises:
            FrameDamage: The section does not hold one id a row.
        """
        if self._ids is None:
            self._ids = _decode(_DECODE_IDS, self._packed_ids, "ids")
            expect(len(self._ids) == len(self.timestamps), "ids")
        return self._ids

    def envelopes(self) -> list[Envelope]:
        """Envelopes of all events that are not record events, in order.

        Raises:
            FrameDamage: The section does not hold one envelope for each of these events.
        """
        if self._envelopes is None:
            self._envelopes = _decode(_DECODE_ENVELOPES, self._packed_envelopes, "envelopes")
            seqs = [envelope.seq for envelope in self._envelopes]
            others = np.flatnonzero(~rows_flags(self.index)) + self.index.base_seq
            expect(seqs == others.tolist(), "envelopes")
        return self._envelopes

    def stream_infos(self) -> Iterator[StreamInfo]:
        """What is known of each stream of the segment; counts are of this segment alone."""
        for stream, row in zip(self.index.streams, self._streams.tolist(), strict=True):
            first_seq, last_seq, event_count, revision, recorded_at_ns = row
            yield StreamInfo(stream, revision, event_count, first_seq, last_seq, recorded_at_ns)

    def event_ids(self) -> Iterator[tuple[Stream, str, int]]:
        """Stream, event id and seq of every event that has one, in seq order within a stream."""
        found: list[tuple[int, str]] = [
            (envelope.seq, envelope.event_id)
            for envelope in self.envelopes()
            if envelope.event_id is not None
        ]
        pairs = _decode(_DECODE_PAIRS, self._packed_event_ids, "event ids")
        expect(len(pairs) % 2 == 0, "event ids")
        for seq, event_id in zip(pairs[::2], pairs[1::2], strict=True):
            expect(isinstance(seq, int) and isinstance(event_id, str), "event ids")
            expect(self.index.base_seq <= int(seq) <= self.index.last_seq, "event ids")
            found.append((int(seq), str(event_id)))
        found.sort()
        streams, numbers = self.index.streams, self.index.events[:, _STREAM]
        for seq, event_id in found:
            yield streams[numbers[seq - self.index.base_seq]], event_id, seq

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """The events with `after < seq <= upto`, in an order that is right within each stream.

        Record events come as runs of one stream, the others as envelopes.

        Args:
            stream: Only events of this stream; None = all.

        Cost: O(rows) array steps and one decode of the ids; Python only by run and envelope.
        """
        if not self.index.event_count or (stream is not None and not self.index.has_stream(stream)):
            return
        runs = cut_runs(
            self.index, self.ids(), self.timestamps, self._revisions, after, upto, stream
        )
        envelopes = self.envelopes()
        if stream is not None or after >= self.index.base_seq or upto < self.index.last_seq:
            envelopes = [
                envelope
                for envelope in envelopes
                if after < envelope.seq <= upto and (stream is None or envelope.stream == stream)
            ]
        at = 0
        for run in runs:
            end = bisect_left(envelopes, run.first_seq, at, key=_SEQ)
            yield from envelopes[at:end]
            at = end
            yield run
        yield from envelopes[at:]


def decode_seal(header: FrameHeader, meta: Buffer, data: Buffer) -> Seal:
    """The content of a SEAL frame; all of its CRCs must have been checked.

    Args:
        header: Of kind SEAL.
        meta: With or without padding.
        data: The whole data, with or without padding; kept until the result is dropped.

    Raises:
        FrameDamage: The CRCs were right, but the columns contradict each other.

    Cost: O(bytes), about 1 ms for 20,000 events of one row, ids not counted.
    """
    content = _decode(_DECODE_META, memoryview(meta)[: header.meta_bytes], "meta")
    expect(content.layout in (SEAL_LAYOUT, SEAL_LAYOUT_COMPACTED), "layout")
    expect(len(content.chain) == DIGEST_BYTES, "chain")
    expect(content.event_count == header.event_count, "event count")
    sizes = content.sections()
    size = sum(map(pad8, sizes))
    if header.is_deflated:
        expect(size <= REGION_BYTES_MAX, "sections")
        data = inflate(memoryview(data)[: header.data_bytes], size, "seal, data")
        expect(size == len(data), "sections")
    else:
        expect(size == header.data_bytes <= len(data), "sections")
    view = memoryview(data)
    sections: list[memoryview] = []
    at = 0
    for size in sizes:
        sections.append(view[at : at + size])
        at += pad8(size)
    events = np.frombuffer(sections[0], "<u4").reshape(-1, len(EVENT_FIELDS))
    frames = np.frombuffer(sections[1], "<u4").copy()
    slots = np.frombuffer(sections[2], "<u4").reshape(-1, content.slot_bytes // 4).copy()
    streams = np.frombuffer(sections[3], "<i8").reshape(-1, 5)
    check_columns(content, events, frames, slots, streams)
    is_compacted = content.layout == SEAL_LAYOUT_COMPACTED
    if is_compacted:
        check_placed(content, events, frames, slots)
    else:
        check_batches(content)
    index_class = CompactedIndex if is_compacted else SegmentIndex
    return Seal(
        index_class.from_columns(
            header.first_seq,
            events=events,
            slots=slots,
            frames=frames,
            streams=content.streams,
            embedding_ids=content.embedding_ids,
        ),
        content.chain,
        header.time_ns,
        np.frombuffer(sections[5], "<f8"),
        streams,
        np.frombuffer(sections[4], "<i8"),
        sections[6],
        sections[7],
        sections[8],
    )


def seal_chain(header: FrameHeader, meta: Buffer) -> bytes | None:
    """The chain value that a SEAL's meta says; None if it is not that of a SEAL.

    Args:
        meta: Its CRC must have been checked.
    """
    try:
        content = _DECODE_META(memoryview(meta)[: header.meta_bytes])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return content.chain if len(content.chain) == DIGEST_BYTES else None


def _decode(decode: Callable[[Buffer], Decoded], packed: Buffer, name: str) -> Decoded:
    try:
        return decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameDamage("content", f"seal, {name}: {error}") from error
