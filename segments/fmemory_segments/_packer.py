"""Putting events into frames, as far as that goes without knowing their seqs and places.

One packer serves BATCH and LEDGER frames: it encodes the entry of each event, gives each payload
its offset and opens a new frame where the next event would not fit. docs/format.md section 4 owns
the bytes. This module does no I/O and needs no lock.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from fmemory_segments._event_meta import (
    DTYPE_CODES,
    BlobPlace,
    ErasedPlace,
    EventMeta,
    Place,
    RowsPlace,
    pack_bits,
    pack_digests,
)
from fmemory_segments._frame import FRAME_HEADER_BYTES, ZEROS, Buffer, FrameTooLarge, pad8
from fmemory_segments._row_columns import check_rows, code_embedding_ids, pack_rows
from fmemory_segments.event import (
    DIGEST_BYTES,
    FRAME_BYTES_MAX,
    NONCE_BYTES,
    Blob,
    Draft,
    Envelope,
    Erased,
    Payload,
)

FRAME_BYTES_TARGET = 4 * 1024 * 1024
FRAME_EVENTS_MAX = 65_535

_ENCODE = msgspec.msgpack.Encoder().encode


class PreparedFrame(msgspec.Struct, frozen=True, gc=False):
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


class PreparedBatch(msgspec.Struct, frozen=True, gc=False):
    """Events accepted together, ready to be given seqs.

    Attributes:
        frames: One or more.
        event_count: Of all frames.
        size_bytes: What the batch takes in a file, headers and padding included.
    """

    frames: list[PreparedFrame]
    event_count: int
    size_bytes: int


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

    def take(self) -> list[PreparedFrame]:
        """The frames that are full by now; neither this nor `pack` gives them again."""
        frames, self._frames = self._frames, []
        self._size_bytes = 0
        return frames

    def pack(self) -> PreparedBatch:
        """The batch, or what is left of it.

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
        event = _event_meta(source, place, after_ns - self._start_ns)
        return event, _ENCODE(event)

    def _close(self) -> None:
        meta = array_header(len(self._events)) + b"".join(self._encoded)
        self._size_bytes += _frame_size(meta, self._data_bytes)
        self._frames.append(
            PreparedFrame(self._events, meta, self._parts, self._data_bytes, self._start_ns)
        )


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


def pack_one(draft: Draft, nonces: bytes) -> PreparedBatch:
    """A batch of one event, the usual one, without the ceremony of many.

    Raises:
        ValueError: The payload contradicts itself.
        FrameTooLarge: The event does not fit a frame.
    """
    place, parts, data_bytes = place_payload(draft, draft.payload, nonces)
    event = _event_meta(draft, place, 0)
    meta = b"\x91" + _ENCODE(event)
    frame = PreparedFrame([event], meta, parts, data_bytes, 0)
    return PreparedBatch([frame], 1, _frame_size(meta, data_bytes))


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


def _event_meta(source: Draft | Envelope, place: Place, recorded_after_ns: int) -> EventMeta:
    return EventMeta(
        source.stream,
        source.revision,
        source.type,
        place,
        source.keys,
        source.count,
        recorded_after_ns,
        source.occurred_at_ns,
        source.actor,
        source.run_id,
        source.reason,
        source.event_id,
    )


def _frame_size(meta: bytes, data_bytes: int) -> int:
    """Size of a frame with this meta and data; raises FrameTooLarge if it is above the limit."""
    size = FRAME_HEADER_BYTES + pad8(len(meta)) + data_bytes
    if size > FRAME_BYTES_MAX:
        raise FrameTooLarge(size, FRAME_BYTES_MAX)
    return size
