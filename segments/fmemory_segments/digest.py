"""Digests: one canonical form of every event, and the chain over all of them.

docs/format.md section 10 owns the bytes. They are the same for every journal, so a log copied from
one to another keeps its chain value. An erased payload enters with the digest that was kept for it.
Nothing here is called while an event is appended: SHA-256 would be a quarter of that time.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct, pack

import numpy as np

from fmemory_segments._event_meta import DTYPE_CODES, matrix_bytes
from fmemory_segments._frame import Buffer
from fmemory_segments.event import (
    DIGEST_BYTES,
    FORGOTTEN,
    NONCE_BYTES,
    Blob,
    Envelope,
    Erased,
    Payload,
    Rows,
    UInt8Array,
)

EVENT_PREFIX = b"\x00"
CHAIN_PREFIX = b"\x02"
BLOB_PREFIX = b"\x03"
ROWS_PREFIX = b"\x04"
ROW_PREFIX = b"\x05"
NO_EMBEDDING_ID = 0xFFFF_FFFF

_FIXED = Struct("<QQqqqB")
_ROW = Struct("<IIBI")


def row_digests(rows: Rows) -> UInt8Array:
    """The digest of each row: uint8, shape (n, 32). Nonces must have been drawn.

    Raises:
        ValueError: The rows have no nonces.

    Cost: O(bytes) of SHA-256, about 2 µs for a row of 3 KB.
    """
    count = len(rows)
    if len(rows.nonces) != NONCE_BYTES * count:
        raise ValueError("row digests: expected one nonce a row; a draft has none yet")
    matrix = matrix_bytes(rows.vectors)
    dim = rows.vectors.shape[1]
    dtype = DTYPE_CODES[rows.vectors.dtype]
    width = dim * rows.vectors.itemsize
    offsets = rows.note_offsets.tolist()
    erased = rows.erased.tolist() if rows.erased is not None else None
    found = bytearray(DIGEST_BYTES * count)
    for row in range(count):
        at = DIGEST_BYTES * row
        if erased is not None and erased[row]:
            assert rows.digests is not None, "erased rows come with their digests"
            found[at : at + DIGEST_BYTES] = rows.digests[row].tobytes()
            continue
        found[at : at + DIGEST_BYTES] = row_digest(
            rows.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)],
            rows.notes[offsets[row] : offsets[row + 1]],
            rows.embedding_ids[row],
            dtype,
            dim,
            matrix[width * row : width * (row + 1)],
        )
    return np.frombuffer(found, np.uint8).reshape(count, DIGEST_BYTES)


def row_digest(
    nonce: Buffer, note: Buffer, embedding_id: str | None, dtype: int, dim: int, vector: Buffer
) -> bytes:
    """The digest of one row, 32 bytes, from its bytes as they are stored."""
    text = b"" if embedding_id is None else embedding_id.encode()
    size = NO_EMBEDDING_ID if embedding_id is None else len(text)
    fixed = _ROW.pack(len(note), size, dtype, dim)
    return sha256(b"".join((ROW_PREFIX, nonce, fixed, note, text, vector))).digest()


def rows_digest(count: int, timestamps: bytes, digests: bytes) -> bytes:
    """The digest of a payload of rows, from the digests of the rows."""
    return sha256(b"".join((ROWS_PREFIX, pack("<I", count), timestamps, digests))).digest()


def payload_digest(payload: Payload) -> bytes:
    """The digest of a payload, 32 bytes. Nonces must have been drawn.

    Raises:
        ValueError: The payload has no nonce.

    >>> payload_digest(Blob(b"saw it", nonce=bytes(16))).hex()[:16]
    '0eb8a20dbda32720'
    """
    if isinstance(payload, Erased):
        return payload.digest
    if isinstance(payload, Blob):
        if len(payload.nonce) != NONCE_BYTES:
            raise ValueError("blob digest: expected a nonce; a draft has none yet")
        return sha256(b"".join((BLOB_PREFIX, payload.nonce, payload.data))).digest()
    timestamps = payload.timestamps.astype("<f8", copy=False).tobytes()
    return rows_digest(len(payload), timestamps, row_digests(payload).tobytes())


def canonical_envelope(envelope: Envelope) -> bytes:
    """The one byte form of an envelope, equal for equal envelopes and different for different ones.

    Cost: O(keys), about 2 µs and 0.1 µs a key.
    """
    optional = (envelope.actor, envelope.run_id, envelope.reason, envelope.event_id)
    present = 1 if envelope.occurred_at_ns is not None else 0
    texts = [_text(envelope.type)]
    for bit, value in enumerate(optional, 1):
        if value is not None:
            present |= 1 << bit
            texts.append(_text(value))
    fixed = _FIXED.pack(
        envelope.seq,
        envelope.revision,
        envelope.recorded_at_ns,
        envelope.occurred_at_ns or 0,
        envelope.count,
        present,
    )
    return b"".join((fixed, *texts, _texts(envelope.stream), _texts(envelope.keys)))


def event_digest(envelope: Envelope, payload_digest: bytes) -> bytes:
    """The digest of an event, 32 bytes, from its envelope and the digest of its payload.

    Of an event that was forgotten, its own digest was kept in the place of its payload's.
    """
    if envelope.type == FORGOTTEN:
        return payload_digest
    return sha256(b"".join((EVENT_PREFIX, canonical_envelope(envelope), payload_digest))).digest()


def chain_step(previous: bytes, event_digest: bytes) -> bytes:
    """The chain value after an event, from the one before it (32 bytes; at seq 0 all zero)."""
    return sha256(b"".join((CHAIN_PREFIX, previous, event_digest))).digest()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return pack("<I", len(encoded)) + encoded


def _texts(values: tuple[str, ...]) -> bytes:
    encoded = [value.encode() for value in values]
    sizes = pack(f"<{len(encoded) + 1}I", len(encoded), *map(len, encoded))
    return b"".join((sizes, *encoded))
