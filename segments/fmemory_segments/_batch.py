"""BATCH frames: events on their way to disk, and back.

Work that can be done without the lock is in `prepare`: nonces, checksums, meta and the split into
frames. `finish`, under the lock, adds what only its holder knows: seq, time, place in the file.
Vectors are never copied. docs/format.md section 4 owns the bytes; this module does no I/O.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from fmemory_segments._event_meta import (
    DIM_MAX,
    DTYPE_CODES,
    DTYPES,
    ITEM_BYTES,
    BlobPlace,
    BlockRows,
    ErasedPlace,
    EventMeta,
    Place,
    RowsPlace,
    bits_fit,
    matrix_bytes,
    pack_bits,
    pack_digests,
    unpack_bits,
    unpack_digests,
)
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    ZEROS,
    Buffer,
    FrameDamage,
    FrameFlag,
    FrameHeader,
    FrameKind,
    FrameTooLarge,
    frame_bytes,
    pack_frame,
    pad8,
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
    UInt32Array,
)

FRAME_BYTES_TARGET = 4 * 1024 * 1024
FRAME_EVENTS_MAX = 65_535
ARRAY_HEADER_BYTES_MAX = 5

_TWO = Struct("<II")
_ENCODE = msgspec.msgpack.Encoder().encode
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


@dataclass(frozen=True, slots=True)
class PreparedFrame:
    """A frame without what the lock's holder knows.

    Attributes:
        events: One entry an event.
        meta: Encoded, unpadded.
        parts: Buffers that make up data.
        data_bytes: Their size together, a multiple of 8.
        recorded_after_ns: Its first event was recorded this long after the batch's first.
    """

    events: list[EventMeta]
    meta: bytes
    parts: list[Buffer]
    data_bytes: int
    recorded_after_ns: int


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Events accepted together, ready to be given seqs.

    Attributes:
        frames: One or more.
        event_count: Of all frames.
        size_bytes: What the batch takes in a file, headers and padding included.
    """

    frames: list[PreparedFrame]
    event_count: int
    size_bytes: int


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
    needed = sum(_nonces_wanted(draft.payload) for draft in drafts)
    nonces = random(needed) if needed else b""
    packer = FramePacker()
    used = 0
    for draft in drafts:
        wanted = _nonces_wanted(draft.payload)
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
        if _nonces_wanted(event.payload):
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
            FrameKind.BATCH,
            FrameFlag.BATCH_END if number == last else 0,
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
    try:
        events = _DECODE(meta)
    except msgspec.MsgspecError as error:
        raise FrameDamage("content", f"meta: {error}") from error
    except UnicodeDecodeError as error:
        raise FrameDamage("content", f"meta: {error}") from error
    if len(events) != header.event_count:
        raise FrameDamage(
            "content", f"meta: expected {header.event_count} events, got {len(events)}"
        )
    rows_kind = RowsPlace if header.kind == FrameKind.BATCH else BlockRows
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
            fits = _rows_fit(place, count, offset)
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


class RowColumns(NamedTuple):
    """Rows packed for a frame: their checksums, and the buffers of their data."""

    nonces_crc: int
    row_crcs: bytes
    parts: list[Buffer]
    data_bytes: int


def pack_rows(rows: Rows, nonces: bytes) -> RowColumns:
    """Checksums and data of rows; the matrix is passed on uncopied.

    Cost: one CRC pass; about 1 µs a row.
    """
    count = len(rows)
    notes = rows.notes
    matrix = matrix_bytes(rows.vectors)
    used = NONCE_BYTES * count + len(notes)
    parts: list[Buffer] = [b"".join((nonces, notes, ZEROS[: -used & 7]))]
    if matrix:
        parts.append(matrix)
        if padding := -len(matrix) & 7:
            parts.append(ZEROS[:padding])
    if count == 1:
        row_crcs = crc32c(matrix, crc32c(notes)).to_bytes(4, "little")
    else:
        row_crcs = np.array(row_checksums(notes, rows.note_offsets, matrix), "<u4").tobytes()
    return RowColumns(crc32c(nonces), row_crcs, parts, pad8(used) + pad8(len(matrix)))


def row_checksums(notes: bytes, note_offsets: UInt32Array, matrix: memoryview) -> list[int]:
    """`crc(note ‖ vector)` of each row."""
    of_notes = [crc32c(notes[start:end]) for start, end in pairwise(note_offsets.tolist())]
    if not matrix:
        return of_notes
    width = len(matrix) // len(of_notes)
    of_rows = map(
        crc32c, (matrix[start : start + width] for start in range(0, len(matrix), width)), of_notes
    )
    return list(of_rows)


def code_embedding_ids(
    embedding_ids: Sequence[str | None], dtype: str
) -> tuple[tuple[str | None, ...], bytes]:
    """The different ids, and for each row which of them; the latter empty where there is only one.

    >>> code_embedding_ids(["a", None, "a"], "<u2")
    (('a', None), b'\\x00\\x00\\x01\\x00\\x00\\x00')
    >>> code_embedding_ids([None, None], "<u2")
    ((None,), b'')
    """
    numbers: dict[str | None, int] = {}
    coded = [numbers.setdefault(value, len(numbers)) for value in embedding_ids]
    if len(numbers) == 1:
        return (embedding_ids[0],), b""
    return tuple(numbers), np.array(coded, dtype).tobytes()


def check_rows(rows: Rows, keys: Sequence[str]) -> None:
    """Raise ValueError, saying how, if the columns of these rows contradict each other."""
    vectors = rows.vectors
    count = len(rows.timestamps)
    if not 1 <= count <= ROWS_MAX:
        raise ValueError(f"rows: expected 1 to {ROWS_MAX} rows, got {count}")
    if vectors.ndim != 2 or len(vectors) != count or not vectors.flags.c_contiguous:
        raise ValueError(
            f"rows: expected C-contiguous vectors of shape ({count}, dim), got {vectors.shape}"
        )
    if vectors.dtype not in DTYPE_CODES or vectors.shape[1] > DIM_MAX:
        raise ValueError(f"rows: expected little-endian f32 or f64, got {vectors.dtype}")
    if rows.timestamps.dtype != "<f8" or rows.note_offsets.dtype != "<u4":
        raise ValueError("rows: expected timestamps of dtype <f8 and note offsets of dtype <u4")
    offsets = rows.note_offsets
    if len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] != len(rows.notes):
        raise ValueError(f"rows: expected {count + 1} note offsets from 0 to {len(rows.notes)}")
    if count > 1 and (offsets[1:] < offsets[:-1]).any():
        raise ValueError("rows: note offsets decrease")
    if len(keys) != count or len(rows.embedding_ids) != count:
        raise ValueError(f"rows: expected {count} keys and embedding ids")
    if rows.nonces and len(rows.nonces) != NONCE_BYTES * count:
        raise ValueError(f"rows: expected {NONCE_BYTES} bytes of nonce a row")
    if rows.erased is not None and rows.erased.any() and rows.digests is None:
        raise ValueError("rows: expected digests of the erased rows")


class FramePacker:
    """Puts events into frames, opening a new one where the next event would not fit.

    Args:
        frame_bytes_target: A frame that would become larger is closed first.
    """

    def __init__(self, frame_bytes_target: int = FRAME_BYTES_TARGET) -> None:
        self._target = frame_bytes_target
        self._frames: list[PreparedFrame] = []
        self._size_bytes = 0
        self._open(0)

    def add(
        self,
        source: Draft | Envelope,
        place: Place,
        parts: list[Buffer],
        data_bytes: int,
        after_ns: int,
    ) -> None:
        """Append one event whose payload is these buffers.

        Args:
            place: As if the payload stood at the start of data.
            data_bytes: Size of the buffers together, a multiple of 8.
            after_ns: Recorded so long after the first event of all.
        """
        at = self._data_bytes
        event, encoded = self._entry(source, place, at, after_ns)
        if self._events and (
            self._meta_bytes + at + data_bytes + len(encoded) > self._target
            or len(self._events) == FRAME_EVENTS_MAX
        ):
            self._close()
            self._open(after_ns)
            event, encoded = self._entry(source, place, 0, after_ns)
        self._events.append(event)
        self._encoded.append(encoded)
        self._parts += parts
        self._meta_bytes += len(encoded)
        self._data_bytes += data_bytes

    def pack(self) -> PreparedBatch:
        """The batch.

        Raises:
            ValueError: No event was added.
            FrameTooLarge: An event does not fit a frame.
        """
        if not self._events:
            raise ValueError("batch: expected at least one event")
        self._close()
        frames = self._frames
        return PreparedBatch(frames, sum(len(frame.events) for frame in frames), self._size_bytes)

    def _open(self, after_ns: int) -> None:
        self._events: list[EventMeta] = []
        self._encoded: list[bytes] = []
        self._parts: list[Buffer] = []
        self._meta_bytes = 0
        self._data_bytes = 0
        self._start_ns = after_ns

    def _entry(
        self, source: Draft | Envelope, place: Place, at: int, after_ns: int
    ) -> tuple[EventMeta, bytes]:
        if at and isinstance(place, BlobPlace | RowsPlace):
            place = msgspec.structs.replace(place, offset=at)
        event = EventMeta(
            source.stream,
            source.revision,
            source.type,
            place,
            source.keys,
            source.count,
            after_ns - self._start_ns,
            source.occurred_at_ns,
            source.actor,
            source.run_id,
            source.reason,
            source.event_id,
        )
        return event, _ENCODE(event)

    def _close(self) -> None:
        meta = array_header(len(self._events)) + b"".join(self._encoded)
        size = FRAME_HEADER_BYTES + pad8(len(meta)) + self._data_bytes
        if size > FRAME_BYTES_MAX:
            raise FrameTooLarge(size, FRAME_BYTES_MAX)
        self._frames.append(
            PreparedFrame(self._events, meta, self._parts, self._data_bytes, self._start_ns)
        )
        self._size_bytes += size


def array_header(count: int) -> bytes:
    """The MessagePack head of an array of this many items.

    >>> array_header(1), array_header(500)
    (b'\\x91', b'\\xdc\\x01\\xf4')
    """
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def _nonces_wanted(payload: Payload) -> int:
    if isinstance(payload, Blob):
        return 0 if payload.nonce else NONCE_BYTES
    if isinstance(payload, Rows):
        return 0 if payload.nonces else NONCE_BYTES * len(payload.timestamps)
    return 0


def place_payload(
    source: Draft | Envelope, payload: Payload, nonces: bytes = b""
) -> tuple[Place, list[Buffer], int]:
    """The place of a payload at the start of data, its buffers, and their size.

    Raises:
        ValueError: The payload contradicts itself.
    """
    if isinstance(payload, Blob):
        nonce, data = payload.nonce or nonces, payload.data
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"blob: expected a nonce of {NONCE_BYTES} bytes, got {len(nonce)}")
        size = NONCE_BYTES + len(data)
        whole = b"".join((nonce, data, ZEROS[: -size & 7]))
        place = BlobPlace(0, len(data), crc32c(data, crc32c(nonce)))
        return place, [whole], len(whole)
    if isinstance(payload, Erased):
        if len(payload.digest) != DIGEST_BYTES:
            raise ValueError(f"erased: expected a digest of {DIGEST_BYTES} bytes")
        return ErasedPlace(payload.digest), [], 0
    check_rows(payload, source.keys)
    columns = pack_rows(payload, payload.nonces or nonces)
    embedding_ids, numbers = code_embedding_ids(payload.embedding_ids, "<u2")
    rows_place = RowsPlace(
        0,
        payload.vectors.shape[1],
        DTYPE_CODES[payload.vectors.dtype],
        columns.nonces_crc,
        payload.timestamps.tobytes(),
        payload.note_offsets.tobytes(),
        columns.row_crcs,
        embedding_ids,
        numbers,
        pack_bits(payload.erased),
        pack_digests(payload),
    )
    return rows_place, columns.parts, columns.data_bytes


def _rows_bytes(place: RowsPlace, count: int) -> int:
    notes = int.from_bytes(place.note_offsets[-4:], "little")
    matrix = count * place.dim * ITEM_BYTES[place.dtype]
    return (NONCE_BYTES * count + notes + 7 & -8) + (matrix + 7 & -8)


def _rows_fit(place: RowsPlace | BlockRows, count: int, offset: int) -> bool:
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


def offsets_fit(packed: bytes, count: int) -> bool:
    """True if these are count + 1 offsets that start at 0 and never decrease."""
    if len(packed) != 4 * (count + 1) or packed[:4] != b"\0\0\0\0":
        return False
    if count == 1:
        return True
    offsets = np.frombuffer(packed, "<u4")
    return bool((offsets[1:] >= offsets[:-1]).all())


def numbers_fit(packed: bytes, choices: int, count: int, dtype: str) -> bool:
    """True if these number one of so many choices for each row."""
    if choices <= 1:
        return choices == 1 and not packed
    numbers = np.frombuffer(packed, dtype) if len(packed) == int(dtype[-1]) * count else ()
    return len(numbers) == count and int(np.max(numbers)) < choices


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


def decode_embedding_ids(
    embedding_ids: tuple[str | None, ...], numbers: bytes, count: int, dtype: str
) -> tuple[str | None, ...]:
    """The embedding id of each row."""
    if not numbers:
        return embedding_ids * count
    return tuple(embedding_ids[number] for number in np.frombuffer(numbers, dtype).tolist())
