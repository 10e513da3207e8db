"""One event as two strings of bytes: for journals that keep events in rows of a database.

The bytes are those of a BATCH frame of one event (docs/format.md section 4): *meta* says who, when
and why and where in *data* each row lies, *data* holds nonces, notes and vectors and may be erased.
So a row of a batch can be read without the rest, and every journal checks the same checksums.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from fmemory_segments._batch import decode_payload, nonces_wanted, payload_extent, rows_fit
from fmemory_segments._event_meta import (
    DTYPES,
    ITEM_BYTES,
    BlobPlace,
    ErasedPlace,
    EventMeta,
    RowsPlace,
)
from fmemory_segments._frame import FrameDamage, pad8
from fmemory_segments._packer import place_payload
from fmemory_segments._row_columns import decode_embedding_ids
from fmemory_segments.event import (
    NONCE_BYTES,
    Draft,
    Envelope,
    Float64Array,
    Payload,
    UInt32Array,
    VectorArray,
)

_CHECKED = Struct("<Qq")
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(EventMeta).decode


class BytesDamage(ValueError):  # noqa: N818 - names what was found, as LogCorrupt does
    """Bytes of an event that are not what was stored."""


class EventBytes(NamedTuple):
    """An event ready to be stored.

    Attributes:
        meta: Everything but seq, time and payload.
        data: The payload, nonces included; its size is a multiple of 8.
    """

    meta: bytes
    data: bytes


def nonce_bytes(payload: Payload) -> int:
    """How many random bytes `pack_event` wants for a payload."""
    return nonces_wanted(payload)


def pack_event(source: Draft | Envelope, payload: Payload, nonces: bytes = b"") -> EventBytes:
    """An event as bytes.

    Args:
        nonces: As many as `nonce_bytes` wants.

    Raises:
        ValueError, TypeError, OverflowError: The payload contradicts itself, or a value does not
            fit; the message says how.

    Cost: O(bytes), one CRC pass; about 10 µs for one row.
    """
    place, parts, _ = place_payload(source, payload, nonces)
    event = EventMeta(
        source.stream,
        source.revision,
        source.type,
        place,
        source.keys,
        source.count,
        0,
        source.occurred_at_ns,
        source.actor,
        source.run_id,
        source.reason,
        source.event_id,
    )
    return EventBytes(_ENCODE(event), b"".join(parts))


def meta_check(seq: int, recorded_at_ns: int, meta: bytes) -> int:
    """CRC32C over seq, time and meta, to be stored beside them."""
    return crc32c(meta, crc32c(_CHECKED.pack(seq, recorded_at_ns)))


class StoredMeta:
    """The meta of one stored event, checked: its envelope, and where its rows lie in its data.

    Args:
        seq: Of the event.
        recorded_at_ns: Unix nanoseconds.
        meta: As `pack_event` made it.
        check: As `meta_check` made it.

    Raises:
        BytesDamage: The check is wrong, or meta does not describe an event.
    """

    __slots__ = ("_offsets", "event", "recorded_at_ns", "seq")

    def __init__(self, seq: int, recorded_at_ns: int, meta: bytes, check: int) -> None:
        if not isinstance(meta, bytes) or meta_check(seq, recorded_at_ns, meta) != check:
            raise BytesDamage("meta: wrong checksum")
        try:
            event = _DECODE(meta)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BytesDamage(f"meta: {error}") from error
        if not isinstance(event.place, BlobPlace | RowsPlace | ErasedPlace):
            raise BytesDamage("meta: rows of compacted segments do not belong here")
        if isinstance(event.place, RowsPlace) and not rows_fit(event.place, len(event.keys), 0):
            raise BytesDamage("meta: columns of another length than the rows want")
        self.seq = seq
        self.recorded_at_ns = recorded_at_ns
        self.event = event
        self._offsets: UInt32Array | None = None

    @property
    def envelope(self) -> Envelope:
        """The event without its payload."""
        return self.event.envelope(self.seq, self.recorded_at_ns)

    @property
    def has_rows(self) -> bool:
        """True for a record event whose payload was not erased as a whole."""
        return isinstance(self.event.place, RowsPlace)

    @property
    def row_count(self) -> int:
        """Rows of a record event."""
        return len(self.event.keys)

    @property
    def data_bytes(self) -> int:
        """Size of the data that belongs to this meta."""
        return payload_extent(self.event)[1]

    @property
    def payload_bytes(self) -> int:
        """Bytes of content: notes and vectors, or the blob."""
        place = self.event.place
        if isinstance(place, BlobPlace):
            return place.length
        if isinstance(place, RowsPlace):
            return int(self.note_offsets[-1]) + self.row_count * self.vector_bytes
        return 0

    @property
    def _rows(self) -> RowsPlace:
        place = self.event.place
        assert isinstance(place, RowsPlace)
        return place

    @property
    def note_offsets(self) -> UInt32Array:
        """uint32, shape (n + 1,): where each note starts behind the nonces, and the end."""
        if self._offsets is None:
            self._offsets = np.frombuffer(self._rows.note_offsets, "<u4")
        return self._offsets

    @property
    def timestamps(self) -> Float64Array:
        """float64, shape (n,)."""
        return np.frombuffer(self._rows.timestamps, "<f8")

    @property
    def vector_bytes(self) -> int:
        """Bytes of one vector."""
        place = self._rows
        return place.dim * ITEM_BYTES[place.dtype]

    def embedding_ids(self, first: int, stop: int) -> list[str | None]:
        """Those of rows `first` to `stop - 1`."""
        place = self._rows
        numbers = place.embedding_numbers[2 * first : 2 * stop]
        return list(decode_embedding_ids(place.embedding_ids, numbers, stop - first, "<u2"))

    def notes_extent(self, first: int, stop: int) -> tuple[int, int]:
        """Where in data the notes of rows `first` to `stop - 1` are: offset and size."""
        offsets, start = self.note_offsets, NONCE_BYTES * self.row_count
        low = int(offsets[first])
        return start + low, int(offsets[stop]) - low

    def vectors_extent(self, first: int, stop: int) -> tuple[int, int]:
        """Where in data the vectors of rows `first` to `stop - 1` are: offset and size."""
        start = pad8(NONCE_BYTES * self.row_count + int(self.note_offsets[-1]))
        width = self.vector_bytes
        return start + first * width, (stop - first) * width

    def vectors(self, data: bytes | memoryview) -> VectorArray:
        """The bytes of vectors as a matrix: shape (k, dim), read-only."""
        place = self._rows
        count = len(data) // self.vector_bytes if self.vector_bytes else 0
        flat = np.frombuffer(data, DTYPES[place.dtype], count * place.dim)
        return flat.reshape(count, place.dim)

    def empty_vectors(self, count: int) -> VectorArray:
        """The matrix of rows without vectors, or for none at all: shape (count, dim)."""
        return np.empty((count, self._rows.dim), DTYPES[self._rows.dtype])

    def check_rows(self, first: int, stop: int, notes: memoryview, vectors: memoryview) -> None:
        """Check notes and vectors of rows `first` to `stop - 1` by their checksums.

        Raises:
            BytesDamage: A row is not what was stored; `args[1]` is its number.
        """
        crcs = np.frombuffer(self._rows.row_crcs, "<u4")[first:stop].tolist()
        bounds = self.note_offsets[first : stop + 1].tolist()
        base, width = bounds[0], self.vector_bytes
        for number, crc in enumerate(crcs):
            note = notes[bounds[number] - base : bounds[number + 1] - base]
            vector = vectors[number * width : (number + 1) * width]
            if crc32c(vector, crc32c(note)) != crc:
                raise BytesDamage("row: wrong checksum", first + number)

    def payload(self, data: bytes) -> Payload:
        """The whole payload, checked; vectors are a view of the data.

        Raises:
            BytesDamage: It is not what was stored.
        """
        if not isinstance(data, bytes) or len(data) != self.data_bytes:
            raise BytesDamage(f"data: expected {self.data_bytes} bytes, got {len(data)}")
        try:
            return decode_payload(self.event, data)
        except FrameDamage as damage:
            raise BytesDamage(str(damage)) from damage
