"""Payloads as JSON that a person can read, and back to the same bytes.

A payload has a digest, so what comes back must be equal to the last bit. Whatever JSON cannot carry
exactly is written as base64 or hexadecimal digits instead; this is decided by trying: what was
encoded is decoded again before it is written. docs/jsonl.md owns the fields.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import datetime, timedelta
from struct import pack, unpack
from typing import Final, NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c
from msgspec import UNSET, UnsetType

from fmemory_segments import Blob, Rows
from fmemory_segments._event_meta import DTYPE_CODES
from fmemory_segments.digest import row_digest
from fmemory_segments.event import DIGEST_BYTES, NONCE_BYTES, VectorArray

CRC_FIELD: Final = b',"crc":"'
CRC_TAIL_BYTES: Final = len(CRC_FIELD) + 8 + len(b'"}')
_CRC_END: Final = b'"}'
_EPOCH: Final = datetime(1970, 1, 1)
_SECOND_NS: Final = 1_000_000_000
_ARRAY_OF_3: Final = b"\x93"
_SHORT_DECIMALS: Final = (7, 10)
_NUMBERS_MAX: Final = 1 << 15
# Readers that split text at more than "\n" would break a line here; inside JSON these bytes can
# only stand in strings.
_ESCAPES: Final = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)

_to_json = msgspec.json.Encoder().encode
_to_msgpack = msgspec.msgpack.Encoder().encode
_from_json = msgspec.json.Decoder().decode
_from_msgpack = msgspec.msgpack.Decoder().decode

# What msgspec raises for values and bytes that one of the two formats cannot hold.
_CANNOT: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


class RowFields(msgspec.Struct, omit_defaults=True, gc=False):
    """One record of a put, as it stands in a line."""

    id: str
    timestamp: float | UnsetType = UNSET
    text: str | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    embedding_id: str | None = None
    vector: list[float] | UnsetType = UNSET
    timestamp_hex: str = ""
    note_base64: str = ""
    vector_base64: str = ""
    erased: str = ""
    nonce: str = ""


class Row(NamedTuple):
    """One record as a journal gives it back."""

    id: str
    timestamp: bytes
    body: bytes
    vector: bytes
    embedding_id: str | None
    nonce: bytes
    digest: bytes


_row_decode = msgspec.json.Decoder(RowFields).decode


def with_escapes(text: bytes) -> bytes:
    """JSON text in which nothing but "\\n" can be taken for the end of a line.

    >>> with_escapes('"a\\u2028b"'.encode())
    b'"a\\\\u2028b"'
    """
    for plain, escaped in _ESCAPES:
        text = text.replace(plain, escaped)
    return text


def seal(text: bytes, salt: int) -> bytes:
    """A JSON object with its checksum as the last field.

    >>> seal(b'{"a":1}', 0)
    b'{"a":1,"crc":"149cdbb2"}'
    """
    body = text[:-1]
    return body + CRC_FIELD + b"%08x" % crc32c(body, salt) + _CRC_END


def is_sealed(text: bytes | memoryview, salt: int) -> bool:
    """Whether an object's last field is the checksum of what stands before it."""
    body, tail = text[:-CRC_TAIL_BYTES], bytes(text[-CRC_TAIL_BYTES:])
    return tail == CRC_FIELD + b"%08x" % crc32c(body, salt) + _CRC_END


def time_text(nanoseconds: int) -> str:
    """Unix nanoseconds as RFC 3339 with nine decimals.

    >>> time_text(1_000_000_007)
    '1970-01-01T00:00:01.000000007Z'
    """
    seconds, rest = divmod(nanoseconds, _SECOND_NS)
    return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}.{rest:09d}Z"


def parse_time(text: str) -> int:
    """Unix nanoseconds of what `time_text` wrote.

    Raises:
        ValueError: It wrote something else.

    >>> parse_time("1970-01-01T00:00:01.000000007Z")
    1000000007
    """
    if len(text) != 30 or text[19] != "." or text[29] != "Z" or not text[20:29].isdecimal():
        raise ValueError(f"time: expected YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ, got {text!r}")
    since = datetime.fromisoformat(text[:19]) - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND_NS + int(text[20:29])


def blob_fields(blob: Blob) -> tuple[msgspec.Raw | UnsetType, str | UnsetType]:
    """The fields `data` and `base64` of a payload of bytes: at most one is set.

    `data` where the bytes are one msgpack value that JSON carries exactly; neither where there are
    no bytes.
    """
    if not blob.data:
        return UNSET, UNSET
    try:
        text = with_escapes(_to_json(_from_msgpack(blob.data)))
        if _to_msgpack(_from_json(text)) == blob.data:
            return msgspec.Raw(text), UNSET
    except _CANNOT:
        pass
    return UNSET, b64encode(blob.data).decode()


def blob_data(data: msgspec.Raw | UnsetType, base64: str | UnsetType) -> bytes:
    """The bytes of a payload from its fields.

    Raises:
        ValueError: They hold something else.
    """
    if not isinstance(data, UnsetType):
        return _to_msgpack(_from_json(data))
    return b64decode(base64, validate=True) if isinstance(base64, str) else b""


def row_texts(rows: Rows, ids: tuple[str, ...], salt: int) -> Iterator[bytes]:
    """Each row as a JSON object with its checksum.

    Raises:
        ValueError: Something that has no place in a line; nothing was written.
    """
    vectors = np.ascontiguousarray(rows.vectors)
    numbers = _numbers(vectors)
    offsets = rows.note_offsets.tolist()
    times = rows.timestamps.astype("<f8", copy=False).tobytes()
    for number, (record_id, vector) in enumerate(zip(ids, numbers, strict=True)):
        is_erased = rows.erased is not None and bool(rows.erased[number])
        row = Row(
            record_id,
            times[8 * number : 8 * number + 8],
            bytes(rows.notes[offsets[number] : offsets[number + 1]]),
            vectors[number].tobytes(),
            rows.embedding_ids[number],
            rows.nonces[NONCE_BYTES * number : NONCE_BYTES * (number + 1)],
            rows.digests[number].tobytes() if is_erased and rows.digests is not None else b"",
        )
        yield seal(_row_text(row, vector, vectors.dtype), salt)


def erased_row_text(text: bytes, dtype: np.dtype[np.floating], dim: int, salt: int) -> bytes:
    """A row without its note, vector, embedding id and nonce: its digest stands for them.

    Raises:
        ValueError: The text is no row.
    """
    row = row_of(text, dtype, dim)
    digest = row.digest or row_digest(
        row.nonce, row.body, row.embedding_id, DTYPE_CODES[dtype], dim, row.vector
    )
    left = Row(row.id, row.timestamp, b"", bytes(len(row.vector)), None, bytes(NONCE_BYTES), digest)
    return seal(_row_text(left, None, dtype), salt)


def row_of(text: bytes | msgspec.Raw, dtype: np.dtype[np.floating], dim: int) -> Row:
    """The row of a JSON object.

    Raises:
        ValueError: It is none, or of another dim.
    """
    return _row(_row_decode(text), dtype, dim)


def vector_of(row: Row, dtype: np.dtype[np.floating]) -> VectorArray:
    """The vector of a row, shape (dim,), the caller's to change."""
    return np.frombuffer(row.vector, dtype).copy()


def _row_text(row: Row, vector: list[float] | None, dtype: np.dtype[np.floating]) -> bytes:
    """The row in the most readable form that comes back exactly."""
    dim = len(row.vector) // dtype.itemsize
    fields = RowFields(row.id, embedding_id=row.embedding_id, nonce=row.nonce.hex())
    fields.erased = row.digest.hex()
    fields.timestamp = unpack("<d", row.timestamp)[0]
    if note := _note(row):
        fields.text, fields.metadata = note
    elif row.body:
        fields.note_base64 = b64encode(row.body).decode()
    has_numbers = bool(row.vector.strip(b"\0"))
    if vector is not None and (not row.digest or has_numbers):
        fields.vector = vector
    elif has_numbers:
        fields.vector_base64 = b64encode(row.vector).decode()
    text = _comes_back(fields, row, dtype, dim)
    if text is None:
        fields.text = fields.metadata = fields.vector = fields.timestamp = UNSET
        fields.timestamp_hex = row.timestamp.hex()
        fields.note_base64 = b64encode(row.body).decode()
        fields.vector_base64 = b64encode(row.vector).decode()
        text = _comes_back(fields, row, dtype, dim)
    if text is None:
        raise ValueError(f"record {row.id!r}: expected one that JSON can carry, got another")
    return text


def _comes_back(
    fields: RowFields, row: Row, dtype: np.dtype[np.floating], dim: int
) -> bytes | None:
    """The text of the fields if it decodes to the same row."""
    try:
        text = with_escapes(_to_json(fields))
        return text if row_of(text, dtype, dim) == row else None
    except UnicodeEncodeError:
        raise
    except _CANNOT:
        return None


def _note(row: Row) -> tuple[str, dict[str, object]] | None:
    """Text and metadata of a note body that is of this record; None if it is something else."""
    try:
        record_id, text, metadata = _from_msgpack(_ARRAY_OF_3 + row.body)
    except _CANNOT:
        return None
    if record_id != row.id or not isinstance(text, str) or not isinstance(metadata, dict):
        return None
    return text, metadata


def _row(fields: RowFields, dtype: np.dtype[np.floating], dim: int) -> Row:
    body = b64decode(fields.note_base64, validate=True)
    if fields.text is not UNSET and fields.metadata is not UNSET:
        body = b"".join(map(_to_msgpack, (fields.id, fields.text, fields.metadata)))
    if isinstance(fields.vector, list):
        vector = np.array(fields.vector, dtype).tobytes()
    else:
        vector = b64decode(fields.vector_base64, validate=True) or bytes(dim * dtype.itemsize)
    if len(vector) != dim * dtype.itemsize:
        raise ValueError(f"vector: expected {dim} numbers, got {len(vector) // dtype.itemsize}")
    time = fields.timestamp
    digest = bytes.fromhex(fields.erased)
    if digest and len(digest) != DIGEST_BYTES:
        raise ValueError(f"erased: expected {DIGEST_BYTES} bytes, got {len(digest)}")
    return Row(
        fields.id,
        pack("<d", time) if isinstance(time, float) else bytes.fromhex(fields.timestamp_hex),
        body,
        vector,
        fields.embedding_id,
        bytes.fromhex(fields.nonce),
        digest,
    )


def _numbers(vectors: VectorArray) -> Iterator[list[float] | None]:
    """Each vector as numbers, None where one is not finite; some at a time, for they take much."""
    step = max(1, _NUMBERS_MAX // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), step):
        some = vectors[start : start + step]
        is_finite: list[bool] = np.all(np.isfinite(some), axis=1).tolist()
        for numbers, finite in zip(_short(some), is_finite, strict=True):
            yield numbers if finite else None


def _short(vectors: VectorArray) -> list[list[float]]:
    """Numbers with few digits that are the vectors' own once they are rounded to their dtype.

    A float32 written as the double it equals has 17 digits, most of them noise. What is not finite
    comes out as 0: its row is not written as numbers.
    """
    vectors = np.where(np.isfinite(vectors), vectors, np.zeros(1, vectors.dtype))
    exact = vectors.astype(np.float64)
    if vectors.dtype.itemsize == 8:
        found: list[list[float]] = exact.tolist()
        return found
    shortest = exact.copy()
    bits = vectors.view(np.uint32)
    for decimals in reversed(_SHORT_DECIMALS):
        rounded = np.round(exact, decimals)
        same = rounded.astype(vectors.dtype).view(np.uint32) == bits
        shortest[same] = rounded[same]
    listed: list[list[float]] = shortest.tolist()
    return listed
