"""One event as two strings of bytes: for journals that keep events in rows of a database.

The bytes are those of a BATCH frame of one event (docs/format.md section 4): *meta* says who, when
and why and where in *data* each row lies, *data* holds nonces, notes and vectors and may be erased.
So a row of a batch can be read without the rest, and every journal checks the same checksums.

Two things differ. Of erased rows data hold nothing, not even zeros: the others stand there as if
they were all. And data may end in zeros: room for what erasure adds to meta, so that an event that
is stored anew never needs more bytes than before.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c
from msgspec.structs import replace

from fmemory_segments._batch import decode_payload, nonces_wanted, payload_extent, rows_fit
from fmemory_segments._erase import (
    BLOB_ROOM_BYTES,
    blanked,
    expand_living,
    living_bytes,
    pack_living,
    room_bytes,
    without_rows,
)
from fmemory_segments._event_meta import (
    DTYPES,
    ITEM_BYTES,
    BlobPlace,
    ErasedPlace,
    EventMeta,
    Place,
    RowsPlace,
    unpack_bits,
)
from fmemory_segments._frame import FrameDamage, pad8
from fmemory_segments._packer import place_payload
from fmemory_segments._row_columns import decode_embedding_ids
from fmemory_segments.compaction import forgotten
from fmemory_segments.digest import payload_digest
from fmemory_segments.event import (
    NONCE_BYTES,
    BoolArray,
    Draft,
    Envelope,
    Erased,
    Float64Array,
    Payload,
    Rows,
    StoredEvent,
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
        data: The payload, nonces included, and room.
        is_erased: The payload was erased, or any row of it.
    """

    meta: bytes
    data: bytes
    is_erased: bool


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
    place, data = _placed(source, payload, nonces)
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
    is_erased = isinstance(place, ErasedPlace) or (isinstance(place, RowsPlace) and place.erased)
    return EventBytes(_ENCODE(event), data, bool(is_erased))


def erase(stored: StoredMeta, data: bytes, rows: BoolArray | None) -> EventBytes:
    """A stored event without some of its rows, or without its payload: what to store instead.

    Envelope, timestamps and digests stay, so its digest does; what was erased before stays erased.

    Args:
        data: Its data.
        rows: bool, shape (n,): which rows go; None for an event without rows.

    Raises:
        BytesDamage: The data are not what was stored. Nothing is erased whose digest is unsure.

    Cost: a copy, CRC of what stays, SHA-256 of what goes.
    """
    payload = stored.payload(data)
    if rows is None:
        return pack_event(stored.envelope, Erased(payload_digest(payload)))
    if not isinstance(payload, Rows):
        raise ValueError(f"event {stored.seq}: expected rows, got a payload without")
    return pack_event(stored.envelope, without_rows(payload, rows))


def forget(stored: StoredMeta, data: bytes, end: int) -> EventBytes:
    """The stub of a stored event: what to store instead.

    Args:
        data: Its data.
        end: The event that deleted it.

    Raises:
        BytesDamage: The data are not what was stored. Nothing is erased whose digest is unsure.
    """
    stub = forgotten(StoredEvent(stored.envelope, stored.payload(data)), end)
    return pack_event(stub.envelope, stub.payload)


def meta_check(seq: int, recorded_at_ns: int, meta: bytes) -> int:
    """CRC32C over seq, time and meta, to be stored beside them."""
    return crc32c(meta, crc32c(_CHECKED.pack(seq, recorded_at_ns)))


class StoredMeta:
    """The meta of one stored event, checked: its envelope, and where its rows lie in its data.

    Args:
        seq: Of the event.
        recorded_at_ns: Unix nanoseconds.
        meta: As `pack_event` made it.
        check: As `meta_check` made it. An event that was stored anew has another.

    Raises:
        BytesDamage: The check is wrong, or meta does not describe an event.

    Attributes:
        erased_rows: bool, shape (n,): rows that were erased; None where none was.
    """

    __slots__ = ("_living", "_offsets", "check", "erased_rows", "event", "recorded_at_ns", "seq")

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
        self.check = check
        self.event = event
        self.erased_rows: BoolArray | None = None
        if isinstance(event.place, RowsPlace) and event.place.erased:
            self.erased_rows = unpack_bits(event.place.erased, len(event.keys))
        self._living: list[int] | None = None
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
    def is_erased(self) -> bool:
        """True if the payload was erased, or any row of it."""
        return self.erased_rows is not None or isinstance(self.event.place, ErasedPlace)

    @property
    def data_bytes(self) -> int:
        """Size of the data that belongs to this meta, without room."""
        if self.erased_rows is None:
            return payload_extent(self.event)[1]
        kept = self._living_before(self.row_count)
        return living_bytes(kept, int(self.note_offsets[-1]), self.vector_bytes)

    @property
    def payload_bytes(self) -> int:
        """Bytes of content: notes and vectors, or the blob."""
        place = self.event.place
        if isinstance(place, BlobPlace):
            return place.length
        if isinstance(place, RowsPlace):
            kept = self._living_before(self.row_count)
            return int(self.note_offsets[-1]) + kept * self.vector_bytes
        return 0

    def holds_erased(self, first: int, stop: int) -> bool:
        """True if one of rows `first` to `stop - 1` was erased."""
        return self.erased_rows is not None and bool(self.erased_rows[first:stop].any())

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
        offsets, start = self.note_offsets, NONCE_BYTES * self._living_before(self.row_count)
        low = int(offsets[first])
        return start + low, int(offsets[stop]) - low

    def vectors_extent(self, first: int, stop: int) -> tuple[int, int]:
        """Where in data the vectors of rows `first` to `stop - 1` are: offset and size."""
        kept = self._living_before(self.row_count)
        start = pad8(NONCE_BYTES * kept + int(self.note_offsets[-1]))
        width, low = self.vector_bytes, self._living_before(first)
        return start + low * width, (self._living_before(stop) - low) * width

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
        size = self.data_bytes
        if not isinstance(data, bytes) or len(data) < size:
            raise BytesDamage(f"data: expected {size} bytes, got {len(data)}")
        if len(data) != size and data.count(0, size) != len(data) - size:
            raise BytesDamage(f"data: expected zeros behind {size} bytes, got others")
        try:
            if self.erased_rows is None:
                return decode_payload(self.event, data)
            return self._rows_left(data)
        except FrameDamage as damage:
            raise BytesDamage(str(damage)) from damage

    def region(self, data: bytes) -> bytes:
        """Data as a BATCH frame would have them: without room, and with zeros for erased rows.

        Nothing is checked. Of rows of which some were erased, what is missing is zeros.
        """
        size = self.data_bytes
        if self.erased_rows is None:
            return data[:size]
        whole = data[:size].ljust(size, b"\0")
        notes_bytes = int(self.note_offsets[-1])
        return expand_living(~self.erased_rows, notes_bytes, self.vector_bytes, whole)

    def _rows_left(self, data: bytes) -> Rows:
        erased = self.erased_rows
        assert erased is not None
        rows = decode_payload(self.event, self.region(data))
        assert isinstance(rows, Rows)
        # Meta names none for them that a living row does not have.
        embedding_ids = tuple(
            None if gone else value
            for value, gone in zip(rows.embedding_ids, erased.tolist(), strict=True)
        )
        return replace(rows, embedding_ids=embedding_ids)

    def _living_before(self, row: int) -> int:
        """How many rows before this one were not erased."""
        if self.erased_rows is None:
            return row
        if self._living is None:
            self._living = [0, *np.cumsum(~self.erased_rows).tolist()]
        return self._living[row]


def _placed(source: Draft | Envelope, payload: Payload, nonces: bytes) -> tuple[Place, bytes]:
    """The place of a payload, and its data with room."""
    if isinstance(payload, Rows):
        return _placed_rows(source, payload, nonces)
    place, parts, _ = place_payload(source, payload, nonces)
    data = b"".join(parts)
    return place, data.ljust(BLOB_ROOM_BYTES, b"\0") if data else data


def _placed_rows(source: Draft | Envelope, rows: Rows, nonces: bytes) -> tuple[Place, bytes]:
    if rows.erased is None or not rows.erased.any():
        place, parts, size = place_payload(source, rows, nonces)
        room = max(0, room_bytes(rows) - size)
        return place, b"".join((*parts, bytes(room)))
    rows = blanked(rows)
    assert rows.erased is not None
    pairs = list(zip(rows.embedding_ids, rows.erased.tolist(), strict=True))
    # One of those in use: a further one would let meta grow.
    of_living = next((value for value, gone in pairs if not gone), None)
    named = tuple(of_living if gone else value for value, gone in pairs)
    place, _, _ = place_payload(source, replace(rows, embedding_ids=named))
    data = pack_living(rows)
    return place, data.ljust(room_bytes(rows), b"\0")
