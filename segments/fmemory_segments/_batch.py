"""BATCH frames: events on their way to disk, and back.

Work that can be done without the lock is in `prepare`: nonces, checksums, meta and the split into
frames. `finish`, under the lock, adds what only its holder knows: seq, time, place in the file.
Vectors are never copied. docs/format.md section 4 owns the bytes; this module does no I/O.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from fmemory_segments._deflate import inflate
from fmemory_segments._event_meta import (
    DIM_MAX,
    DTYPES,
    ITEM_BYTES,
    BlobPlace,
    BlockRows,
    ErasedPlace,
    EventMeta,
    RowsPlace,
    bits_fit,
    matrix_bytes,
    unpack_bits,
    unpack_digests,
)
from fmemory_segments._frame import (
    Buffer,
    FrameDamage,
    FrameFlag,
    FrameHeader,
    FrameKind,
    frame_bytes,
    pack_frame,
    pad8,
)
from fmemory_segments._packer import (
    FramePacker,
    PreparedBatch,
    array_header,
    pack_one,
    place_payload,
)
from fmemory_segments._row_columns import (
    decode_embedding_ids,
    numbers_fit,
    offsets_fit,
    row_checksums,
)
from fmemory_segments.event import (
    DIGEST_BYTES,
    FRAME_BYTES_MAX,
    NONCE_BYTES,
    ROWS_MAX,
    Blob,
    Draft,
    Envelope,
    Erased,
    Payload,
    Rows,
    StoredEvent,
)

__all__ = [
    "BatchMeta",
    "FinishedBatch",
    "PreparedBatch",
    "WrittenFrame",
    "array_header",
    "decode_meta",
    "decode_payload",
    "finish",
    "nonces_wanted",
    "payload_extent",
    "prepare",
    "prepare_stored",
    "rows_fit",
]

_BATCH = int(FrameKind.BATCH)
_BATCH_END = int(FrameFlag.BATCH_END)
_DECODE = msgspec.msgpack.Decoder(list[EventMeta]).decode


class BatchMeta(NamedTuple):
    """What a BATCH or LEDGER frame says of its events."""

    header: FrameHeader
    events: list[EventMeta]

    def envelope(self, number: int) -> Envelope:
        """The envelope of the event with this number in the frame, from 0."""
        header = self.header
        return self.events[number].envelope(header.first_seq + number, header.time_ns)

    def envelopes(self) -> Iterator[Envelope]:
        """All envelopes, in order."""
        time_ns = self.header.time_ns
        for seq, event in enumerate(self.events, self.header.first_seq):
            yield event.envelope(seq, time_ns)


class WrittenFrame(NamedTuple):
    """A frame of a finished batch and where in the file it goes."""

    offset: int
    batch: BatchMeta


class FinishedBatch(NamedTuple):
    """A batch ready for one `writev`: the buffers, and what an index needs of each frame."""

    buffers: list[Buffer]
    frames: list[WrittenFrame]

    @property
    def end(self) -> int:
        """Offset in the file behind the batch."""
        last = self.frames[-1]
        return last.offset + frame_bytes(last.batch.header)


def prepare(
    drafts: Sequence[Draft], *, random: Callable[[int], bytes] = os.urandom
) -> PreparedBatch:
    """The drafts as frames that lack seq, time and place.

    The arrays of the drafts must not change until the batch is written.

    Args:
        drafts: At least one; payloads without nonces get them here.
        random: Gives that many random bytes; called once.

    Raises:
        ValueError: A payload contradicts itself; the message says how.
        FrameTooLarge: An event does not fit a frame.
        UnicodeEncodeError, OverflowError: A string or number that MessagePack cannot carry.

    Cost: O(bytes), one CRC pass; about 10 µs for one row, 1 µs for each further one.
    """
    if len(drafts) == 1:
        wanted = nonces_wanted(drafts[0].payload)
        return pack_one(drafts[0], random(wanted) if wanted else b"")
    needed = sum(nonces_wanted(draft.payload) for draft in drafts)
    nonces = random(needed) if needed else b""
    packer = FramePacker()
    used = 0
    for draft in drafts:
        wanted = nonces_wanted(draft.payload)
        packer.add(draft, *place_payload(draft, draft.payload, nonces[used : used + wanted]), 0)
        used += wanted
    return packer.pack()


def prepare_stored(events: Sequence[StoredEvent]) -> PreparedBatch:
    """Stored events of another journal as frames that will keep their times and nonces.

    Args:
        events: At least one, with consecutive seqs; erased ones are taken as they are.

    Raises:
        ValueError: A payload contradicts itself, has no nonce, or times decrease.
        FrameTooLarge: An event does not fit a frame.
    """
    packer = FramePacker()
    start_ns = events[0].envelope.recorded_at_ns
    before_ns = 0
    for event in events:
        if nonces_wanted(event.payload):
            raise ValueError(f"event {event.envelope.seq}: expected a payload with nonces")
        after_ns = event.envelope.recorded_at_ns - start_ns
        if after_ns < before_ns:
            raise ValueError(f"event {event.envelope.seq}: expected times that never decrease")
        before_ns = after_ns
        packer.add(event.envelope, *place_payload(event.envelope, event.payload), after_ns)
    return packer.pack()


def finish(
    prepared: PreparedBatch,
    *,
    first_seq: int,
    recorded_at_ns: int,
    synced_to: int,
    prev_frame_bytes: int,
    salt: int,
    offset: int,
) -> FinishedBatch:
    """The batch with seqs, time and place: buffers to write, frames to index.

    Args:
        first_seq: Seq of the first event.
        recorded_at_ns: When the first event was recorded, not before the event before it.
        synced_to: Every event up to this seq is known to be on disk; smaller than `first_seq`.
        prev_frame_bytes: Size of the frame before `offset`, 0 for the first of a file.
        salt: Of the segment.
        offset: Where in the file the batch starts, a multiple of 8.

    Cost: one CRC pass over the bytes; about 3 µs for a small frame.
    """
    buffers: list[Buffer] = []
    frames: list[WrittenFrame] = []
    seq = first_seq
    last = len(prepared.frames) - 1
    for number, frame in enumerate(prepared.frames):
        event_count = len(frame.events)
        header, packed = pack_frame(
            _BATCH,
            _BATCH_END if number == last else 0,
            event_count=event_count,
            prev_frame_bytes=prev_frame_bytes,
            first_seq=seq,
            time_ns=recorded_at_ns + frame.recorded_after_ns,
            synced_to=synced_to,
            batch_offset=seq - first_seq,
            meta=frame.meta,
            data_parts=frame.parts,
            data_bytes=frame.data_bytes,
            salt=salt,
            offset=offset,
        )
        buffers += packed
        frames.append(WrittenFrame(offset, BatchMeta(header, frame.events)))
        prev_frame_bytes = frame_bytes(header)
        offset += prev_frame_bytes
        seq += event_count
    return FinishedBatch(buffers, frames)


def decode_meta(meta: Buffer, header: FrameHeader) -> BatchMeta:
    """What the frame says of its events; the CRC of meta must have been checked.

    Args:
        meta: The frame's meta, with or without padding.
        header: Its header, of kind BATCH or LEDGER.

    Raises:
        FrameDamage: The CRC was right, but meta does not describe these events and this data.

    Cost: about 3 µs for a frame of one row.
    """
    if len(meta) != header.meta_bytes:
        meta = memoryview(meta)[: header.meta_bytes]
    if header.is_deflated:
        meta = inflate(meta, FRAME_BYTES_MAX, "meta")
    try:
        events = _DECODE(meta)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameDamage("content", f"meta: {error}") from error
    if len(events) != header.event_count:
        raise FrameDamage(
            "content", f"meta: expected {header.event_count} events, got {len(events)}"
        )
    rows_kind = RowsPlace if header.kind == _BATCH else BlockRows
    offset = 0
    for number, event in enumerate(events):
        place = event.place
        if type(place) is BlobPlace:
            size = place.length + (NONCE_BYTES + 7) & -8
            fits = place.offset == offset
        elif type(place) is ErasedPlace:
            size = 0
            fits = len(place.digest) == DIGEST_BYTES
        elif type(place) is rows_kind:
            count = len(event.keys)
            fits = rows_fit(place, count, offset)
            size = _rows_bytes(place, count) if fits and type(place) is RowsPlace else 0
        else:
            fits = False
            size = 0
        if not fits:
            raise FrameDamage("content", f"meta: place of event {number} does not fit the frame")
        offset += size
    if offset != header.data_bytes:
        raise FrameDamage(
            "content", f"data: expected {offset} bytes after meta, got {header.data_bytes}"
        )
    return BatchMeta(header, events)


def payload_extent(event: EventMeta) -> tuple[int, int]:
    """Where in the frame's data the payload is: offset and size, both multiples of 8."""
    place = event.place
    if isinstance(place, BlobPlace):
        return place.offset, pad8(NONCE_BYTES + place.length)
    if isinstance(place, RowsPlace):
        return place.offset, _rows_bytes(place, len(event.keys))
    return 0, 0


def decode_payload(event: EventMeta, region: Buffer) -> Payload:
    """The payload, checked against its own CRCs.

    Args:
        event: An entry that `decode_meta` gave, of a BATCH, or not of records.
        region: The bytes at its `payload_extent`; vectors will be a view of them.

    Raises:
        FrameDamage: Part "row" or "data": a CRC is wrong.
    """
    place = event.place
    if isinstance(place, ErasedPlace):
        return Erased(place.digest)
    if len(region) < payload_extent(event)[1]:
        raise FrameDamage("data", "payload: fewer bytes than its place says")
    if isinstance(place, BlobPlace):
        whole = memoryview(region)[: NONCE_BYTES + place.length]
        if crc32c(whole) != place.crc:
            raise FrameDamage("data", "payload: wrong checksum of bytes")
        return Blob(bytes(whole[NONCE_BYTES:]), bytes(whole[:NONCE_BYTES]))
    if isinstance(place, BlockRows):
        raise ValueError("payload: rows of a compacted segment lie in BLOCK frames")
    return _decode_rows(place, len(event.keys), memoryview(region))


def nonces_wanted(payload: Payload) -> int:
    """How many random bytes a payload still needs."""
    if isinstance(payload, Blob):
        return 0 if payload.nonce else NONCE_BYTES
    if isinstance(payload, Rows):
        return 0 if payload.nonces else NONCE_BYTES * len(payload.timestamps)
    return 0


def _rows_bytes(place: RowsPlace, count: int) -> int:
    notes = int.from_bytes(place.note_offsets[-4:], "little")
    matrix = count * place.dim * ITEM_BYTES[place.dtype]
    return (NONCE_BYTES * count + notes + 7 & -8) + (matrix + 7 & -8)


def rows_fit(place: RowsPlace | BlockRows, count: int, offset: int) -> bool:
    """True if the columns are as long as this number of rows wants, and hold what they may."""
    if (
        not 1 <= count <= ROWS_MAX
        or not 1 <= place.dtype <= 2
        or place.dim > DIM_MAX
        or len(place.timestamps) != 8 * count
        or not bits_fit(place.erased, place.digests, count)
    ):
        return False
    if isinstance(place, BlockRows):
        return True
    return (
        place.offset == offset
        and len(place.row_crcs) == 4 * count
        and offsets_fit(place.note_offsets, count)
        and numbers_fit(place.embedding_numbers, len(place.embedding_ids), count, "<u2")
    )


def _decode_rows(place: RowsPlace, count: int, region: memoryview) -> Rows:
    offsets = np.frombuffer(place.note_offsets, "<u4")
    notes_start = NONCE_BYTES * count
    notes_end = notes_start + int(offsets[-1])
    nonces = bytes(region[:notes_start])
    if crc32c(nonces) != place.nonces_crc:
        raise FrameDamage("data", "payload: wrong checksum of nonces")
    vectors = np.frombuffer(
        region, DTYPES[place.dtype], count * place.dim, pad8(notes_end)
    ).reshape(count, place.dim)
    erased = unpack_bits(place.erased, count)
    rows = Rows(
        timestamps=np.frombuffer(place.timestamps, "<f8"),
        notes=bytes(region[notes_start:notes_end]),
        note_offsets=offsets,
        vectors=vectors,
        embedding_ids=decode_embedding_ids(
            place.embedding_ids, place.embedding_numbers, count, "<u2"
        ),
        nonces=nonces,
        erased=erased,
        digests=unpack_digests(place.digests, erased),
    )
    found = np.array(row_checksums(rows.notes, offsets, matrix_bytes(vectors)), "<u4").tobytes()
    if found != place.row_crcs:
        wrong = np.frombuffer(found, "<u4") != np.frombuffer(place.row_crcs, "<u4")
        raise FrameDamage("row", f"payload: wrong checksum of row {int(np.argmax(wrong))}")
    return rows
