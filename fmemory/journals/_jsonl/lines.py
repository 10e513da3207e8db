"""Lines: events as JSON text, one a line, and back. No I/O; docs/jsonl.md owns the format.

An event is one line, or, if it puts many records, several of about 1 MB. Lines of one batch are
numbered, so that a reader knows whether all of it is there. Every line ends with a checksum of
itself that is salted with the store's id and the event's seq, so a line from elsewhere is no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from crc32c import crc32c
from msgspec import UNSET, UnsetType

from fmemory.journals._jsonl.values import (
    CRC_TAIL_BYTES,
    Row,
    blob_data,
    blob_fields,
    is_sealed,
    parse_time,
    row_of,
    row_texts,
    seal,
    time_text,
    with_escapes,
)
from fmemory_segments import (
    Blob,
    Envelope,
    Erased,
    Payload,
    Rows,
    StoredEvent,
    chain_step,
    event_digest,
    payload_digest,
)
from fmemory_segments.event import DIGEST_BYTES, NONCE_BYTES, BoolArray, Float64Array

FORMAT_NAME: Final = "fmemory-jsonl"
FORMAT_VERSION: Final = 1
LINE_BYTES_AIM: Final = 1 << 20
"""A line of records is ended once it is so long; one record is never divided."""
KEPT_BYTES_MAX: Final = 1 << 23
"""Text of a batch that is kept while its lines are counted."""

ABOUT: Final = (
    "fmemory event log, one event a line; read and copy it freely, but do not edit it: every line "
    "carries a checksum and a chain value (see README.txt)"
)
_HEADER_SALT: Final = crc32c(FORMAT_NAME.encode())
_DTYPES: Final[dict[str, np.dtype[np.floating]]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}


class HeaderFields(msgspec.Struct, omit_defaults=True, gc=False):
    """The first line of every file."""

    format: str
    version: int
    store_id: str
    first_seq: int
    prev_chain: str
    created: str
    about: str = ""


class LineFields(msgspec.Struct, omit_defaults=True, gc=False):
    """The fields of a line, in the order a person wants to read them."""

    seq: int
    batch: tuple[int, int]
    part: tuple[int, int] | UnsetType = UNSET
    synced: int = 0
    time: str = ""
    type: str | UnsetType = UNSET
    stream: tuple[str, ...] = ()
    revision: int = 0
    occurred: str = ""
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    event_id: str | None = None
    keys: tuple[str, ...] = ()
    count: int = 0
    data: msgspec.Raw | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    erased: str = ""
    nonce: str = ""
    dtype: str = ""
    dim: int = 0
    rows: msgspec.Raw | UnsetType = UNSET
    chain: str = ""


class _IndexRow(msgspec.Struct, gc=False):
    id: str
    timestamp: float = 0.0
    timestamp_hex: str = ""
    erased: str = ""


class IndexFields(msgspec.Struct, gc=False):
    """What an index needs of a line: all but notes, vectors and data."""

    seq: int
    batch: tuple[int, int]
    part: tuple[int, int] = (1, 1)
    synced: int = 0
    time: str = ""
    type: str = ""
    stream: tuple[str, ...] = ()
    revision: int = 0
    occurred: str = ""
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    event_id: str | None = None
    keys: tuple[str, ...] = ()
    count: int = 0
    erased: str = ""
    rows: list[_IndexRow] | UnsetType = UNSET
    chain: str = ""

    def envelope(self, ids: Sequence[str]) -> Envelope:
        """The envelope of an event whose first line this is.

        Raises:
            ValueError: A time is no time.
        """
        return Envelope(
            self.seq,
            self.stream,
            self.revision,
            self.type,
            parse_time(self.time),
            parse_time(self.occurred) if self.occurred else None,
            self.actor,
            self.run_id,
            self.reason,
            self.event_id,
            tuple(ids) if ids else self.keys,
            self.count,
        )

    def timestamps(self) -> list[float]:
        """The timestamps of the records in this line."""
        rows = self.rows if isinstance(self.rows, list) else []
        return [_float(one.timestamp_hex) if one.timestamp_hex else one.timestamp for one in rows]


class PayloadFields(msgspec.Struct, gc=False):
    """What a payload is made of, with records and data still as text."""

    data: msgspec.Raw | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    erased: str = ""
    nonce: str = ""
    dtype: str = ""
    dim: int = 0
    rows: list[msgspec.Raw] | UnsetType = UNSET

    @property
    def number_type(self) -> np.dtype[np.floating]:
        """The dtype of its vectors."""
        return _DTYPES[self.dtype]


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """An event as lines, without their newlines' places in a file.

    Attributes:
        stored: The event, with its nonces.
        lines: Each ends with a newline.
        first_rows: Number of the first record of each line; zeros for what is no put.
        chain: Chain value after the event.
    """

    stored: StoredEvent
    lines: list[bytes]
    first_rows: tuple[int, ...]
    chain: bytes


_to_json = msgspec.json.Encoder().encode
decode_index = msgspec.json.Decoder(IndexFields).decode
decode_payload = msgspec.json.Decoder(PayloadFields).decode
_decode_header = msgspec.json.Decoder(HeaderFields).decode
_CANNOT_DECODE: Final = (msgspec.MsgspecError, ValueError, KeyError, RecursionError)


def line_salt(store_id: bytes, seq: int) -> int:
    """What the checksums of an event's lines begin with."""
    return crc32c(store_id + seq.to_bytes(8, "little"))


def encode_header(header: HeaderFields) -> bytes:
    """The first line of a file."""
    return seal(_to_json(header), _HEADER_SALT) + b"\n"


def parse_header(line: bytes) -> HeaderFields | None:
    """The header of a first line, without its newline; None if it is none or was changed."""
    if len(line) <= CRC_TAIL_BYTES or not is_sealed(line, _HEADER_SALT):
        return None
    try:
        header = _decode_header(line)
        fits = len(bytes.fromhex(header.store_id)) == NONCE_BYTES
        fits = fits and len(bytes.fromhex(header.prev_chain)) == DIGEST_BYTES
    except _CANNOT_DECODE:
        return None
    return header if fits and header.format == FORMAT_NAME else None


def encode_batch(
    events: Sequence[StoredEvent], *, store_id: bytes, chain: bytes, synced: int
) -> Iterator[EncodedEvent]:
    """The lines of a batch, of one event at a time.

    Every line says how many there are. So records are encoded before the first is given; of a
    batch beyond `KEPT_BYTES_MAX` that is forgotten and done again, for text takes more than the
    records.

    Args:
        chain: Chain value before its first event.
        synced: Everything up to this seq was on disk when the batch was written.

    Raises:
        ValueError, TypeError, OverflowError: An event cannot be written as it is. Also what is
            given may raise them.

    Cost: about 40 µs a record of 384 numbers, twice that in a large batch: each is decoded again to
    see that it comes back.
    """
    texts: list[list[list[bytes]] | None] = []
    line_count = kept_bytes = 0
    for event in events:
        parts: list[list[bytes]] | None = []
        for part in _texts(event, line_salt(store_id, event.envelope.seq)):
            line_count += 1
            kept_bytes += sum(map(len, part))
            if kept_bytes > KEPT_BYTES_MAX:
                parts = None
            if parts is not None:
                parts.append(part)
        texts.append(parts)
    return _encoded(events, texts, line_count, store_id=store_id, chain=chain, synced=synced)


def _encoded(
    events: Sequence[StoredEvent],
    texts: Sequence[list[list[bytes]] | None],
    line_count: int,
    *,
    store_id: bytes,
    chain: bytes,
    synced: int,
) -> Iterator[EncodedEvent]:
    number = 0
    for event, kept in zip(events, texts, strict=True):
        salt = line_salt(store_id, event.envelope.seq)
        parts = list(_texts(event, salt)) if kept is None else kept
        digest = event_digest(event.envelope, payload_digest(event.payload))
        chain = chain_step(chain, digest)
        lines, first_rows, row = [], [], 0
        for place, rows in enumerate(parts, 1):
            number += 1
            fields = LineFields(event.envelope.seq, (number, line_count))
            if len(parts) > 1:
                fields.part = (place, len(parts))
            if place == 1:
                _describe(fields, event.envelope)
            if number == 1:
                fields.synced = synced
            if place == len(parts):
                fields.chain = chain.hex()
            _add_payload(fields, event.payload, rows)
            lines.append(seal(with_escapes(_to_json(fields)), salt) + b"\n")
            first_rows.append(row)
            row += len(rows)
        yield EncodedEvent(event, lines, tuple(first_rows), chain)


def parse_line(line: bytes | memoryview, salt: int) -> IndexFields | None:
    """What an index needs of a line without its newline; None if it is not as it was written."""
    if len(line) <= CRC_TAIL_BYTES or not is_sealed(line, salt):
        return None
    return parse_loosely(line)


def parse_loosely(line: bytes | memoryview) -> IndexFields | None:
    """The fields of a line whose checksum may be wrong; None if it is no line at all."""
    try:
        return decode_index(line)
    except _CANNOT_DECODE:
        return None


def payload_of(lines: Sequence[PayloadFields]) -> Payload:
    """The payload of an event from its lines.

    Raises:
        ValueError: They do not hold one.
    """
    first = lines[0]
    try:
        if first.erased:
            return Erased(bytes.fromhex(first.erased))
        if isinstance(first.rows, UnsetType):
            return Blob(blob_data(first.data, first.base64), bytes.fromhex(first.nonce))
        rows = [
            row_of(text, one.number_type, one.dim)
            for one in lines
            if not isinstance(one.rows, UnsetType)
            for text in one.rows
        ]
        return rows_payload(rows, first.number_type, first.dim)
    except (KeyError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"payload: expected one, got {error}") from error


def rows_payload(rows: Sequence[Row], dtype: np.dtype[np.floating], dim: int) -> Rows:
    """Records as one payload."""
    is_erased = [bool(row.digest) for row in rows]
    offsets = np.zeros(len(rows) + 1, "<u4")
    np.cumsum([len(row.body) for row in rows], out=offsets[1:])
    erased = np.array(is_erased) if any(is_erased) else None
    digests = None
    if erased is not None:
        joined = b"".join(row.digest or bytes(DIGEST_BYTES) for row in rows)
        digests = np.frombuffer(joined, np.uint8).reshape(len(rows), DIGEST_BYTES)
    return Rows(
        np.frombuffer(b"".join(row.timestamp for row in rows), "<f8"),
        b"".join(row.body for row in rows),
        offsets,
        np.frombuffer(b"".join(row.vector for row in rows), dtype).reshape(len(rows), dim).copy(),
        tuple(row.embedding_id for row in rows),
        b"".join(row.nonce for row in rows),
        erased,
        digests,
    )


def _texts(event: StoredEvent, salt: int) -> Iterator[list[bytes]]:
    """The records of each line that the event takes; one empty list for what is no put."""
    payload = event.payload
    part: list[bytes] = []
    size = 0
    if isinstance(payload, Rows):
        for text in row_texts(payload, event.envelope.keys, salt):
            if size and size + len(text) > LINE_BYTES_AIM:
                yield part
                part, size = [], 0
            part.append(text)
            size += len(text)
    yield part


def _describe(fields: LineFields, envelope: Envelope) -> None:
    """Put the envelope into the first line of an event."""
    fields.time = time_text(envelope.recorded_at_ns)
    fields.type = envelope.type
    fields.stream = envelope.stream
    fields.revision = envelope.revision
    if envelope.occurred_at_ns is not None:
        fields.occurred = time_text(envelope.occurred_at_ns)
    fields.actor, fields.run_id = envelope.actor, envelope.run_id
    fields.reason, fields.event_id = envelope.reason, envelope.event_id
    fields.keys, fields.count = envelope.keys, envelope.count


def _add_payload(fields: LineFields, payload: Payload, rows: list[bytes]) -> None:
    if isinstance(payload, Rows):
        fields.keys = ()  # They are the ids of the rows.
        fields.dtype = payload.vectors.dtype.name
        fields.dim = payload.vectors.shape[1]
        fields.rows = msgspec.Raw(b"[" + b",".join(rows) + b"]")
    elif isinstance(payload, Erased):
        fields.erased = payload.digest.hex()
    else:
        fields.nonce = payload.nonce.hex()
        fields.data, fields.base64 = blob_fields(payload)


def _float(digits: str) -> float:
    value: float = np.frombuffer(bytes.fromhex(digits), "<f8")[0].item()
    return value


def ids_of(lines: Sequence[IndexFields]) -> list[str]:
    """The record ids of the lines of one event."""
    return [row.id for line in lines if isinstance(line.rows, list) for row in line.rows]


def timestamps_of(lines: Sequence[IndexFields]) -> Float64Array | None:
    """The timestamps of a put; None for any other event."""
    if isinstance(lines[0].rows, UnsetType):
        return None
    return np.array([one for line in lines for one in line.timestamps()], np.float64)


def erased_of(lines: Sequence[IndexFields]) -> BoolArray | bool:
    """What was taken out of the event of these lines: which records, or whether the payload."""
    if isinstance(lines[0].rows, UnsetType):
        return bool(lines[0].erased)
    rows = [one for line in lines if isinstance(line.rows, list) for one in line.rows]
    erased = [bool(one.erased) for one in rows]
    return np.array(erased, np.bool_) if any(erased) else False


def erased_of_payload(payload: Payload) -> BoolArray | bool:
    """The same from a payload."""
    if isinstance(payload, Rows) and payload.erased is not None and payload.erased.any():
        return payload.erased.copy()
    return isinstance(payload, Erased)


def timestamps_of_payload(payload: Payload) -> Float64Array | None:
    """The same from a payload."""
    return payload.timestamps if isinstance(payload, Rows) else None
