"""Taking rows out of a payload, and the bytes of what is left of one event.

An erased row keeps its timestamp and its digest; its nonce, note, vector and embedding id go. In a
BATCH frame zeros stand in their place (docs/format.md section 4). `event_bytes` keeps no room for
them: its data hold the rows that live, one behind the other, and are expanded when they are read.
This module does no I/O.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fmemory_segments._event_meta import DTYPE_CODES, matrix_bytes
from fmemory_segments._frame import ZEROS, pad8
from fmemory_segments.digest import row_digest, row_digests
from fmemory_segments.event import DIGEST_BYTES, NONCE_BYTES, BoolArray, Rows, VectorArray

BLOB_ROOM_BYTES: Final = 40
"""An erased payload of bytes adds at most 31 to meta, as `ErasedPlace` is to `BlobPlace`."""
_PADDING: Final = 14
_TABLE_ROOM: Final = 8
"""What a database itself may want more for a row: a mark, a longer number of another checksum."""


def without_rows(rows: Rows, gone: BoolArray) -> Rows:
    """Rows of which these are erased too; what was erased before stays so.

    Args:
        rows: Checked, with nonces.
        gone: bool, shape (n,).

    Cost: SHA-256 over the rows that go, a copy of those that stay.
    """
    before = rows.erased if rows.erased is not None else np.zeros(len(rows), np.bool_)
    digests = np.zeros((len(rows), DIGEST_BYTES), np.uint8)
    if rows.digests is not None:
        digests[before] = rows.digests[before]
    for row in np.flatnonzero(gone & ~before).tolist():
        digests[row] = np.frombuffer(_digest_of(rows, row), np.uint8)
    return _blank(rows, gone | before, digests)


def blanked(rows: Rows) -> Rows:
    """The same rows with nothing where rows were erased, whatever stood there."""
    if rows.erased is None or not rows.erased.any():
        return rows
    return _blank(rows, rows.erased, row_digests(rows))


def pack_living(rows: Rows) -> bytes:
    """Data of rows without those of the erased ones: nonces, notes, zeros to 8, vectors."""
    living = _living(rows)
    nonces = np.frombuffer(rows.nonces, np.uint8).reshape(len(rows), NONCE_BYTES)[living].tobytes()
    vectors = bytes(matrix_bytes(np.ascontiguousarray(rows.vectors[living])))
    head = nonces + rows.notes
    return b"".join(
        (head, ZEROS[: -len(head) & 7], vectors, ZEROS[: -len(vectors) & 7]),
    )


def living_bytes(count: int, notes: int, vector_bytes: int) -> int:
    """Size of what `pack_living` gives for so many living rows."""
    return pad8(NONCE_BYTES * count + notes) + pad8(count * vector_bytes)


def expand_living(living: BoolArray, notes_bytes: int, vector_bytes: int, data: bytes) -> bytes:
    """What `pack_living` packed as a BATCH frame would have it, with zeros for erased rows."""
    count, kept = len(living), int(living.sum())
    nonces = np.zeros((count, NONCE_BYTES), np.uint8)
    nonces[living] = np.frombuffer(data, np.uint8, NONCE_BYTES * kept).reshape(kept, NONCE_BYTES)
    notes_start = NONCE_BYTES * kept
    notes = data[notes_start : notes_start + notes_bytes]
    vectors = np.zeros((count, vector_bytes), np.uint8)
    start = pad8(notes_start + notes_bytes)
    flat = np.frombuffer(data, np.uint8, kept * vector_bytes, start)
    vectors[living] = flat.reshape(kept, vector_bytes)
    head = nonces.tobytes() + notes
    matrix = vectors.tobytes()
    return b"".join((head, ZEROS[: -len(head) & 7], matrix, ZEROS[: -len(matrix) & 7]))


def room_bytes(rows: Rows) -> int:
    """How large the data of rows must be so that erasing any of them makes no event larger.

    For each row that goes, meta gets a digest, and once a bitmap; data lose nonce, note and vector,
    which may be less. What is missing is added to data as zeros at their end.
    """
    living = _living(rows)
    kept = int(living.sum())
    if not kept:
        return 0
    width = rows.vectors.shape[1] * rows.vectors.itemsize
    sizes = np.diff(rows.note_offsets.astype(np.int64))[living] + (NONCE_BYTES + width)
    missing = int(np.maximum(DIGEST_BYTES - sizes, 0).sum())
    count = len(rows)
    heads = _bin_head(DIGEST_BYTES * count) - _bin_head(DIGEST_BYTES * (count - kept))
    once = 0
    if kept == count:
        bitmap = (count + 7) // 8
        once = bitmap + _bin_head(bitmap) - _bin_head(0) + _TABLE_ROOM
    return int(sizes.sum()) + missing + heads + once + _PADDING


def _bin_head(size: int) -> int:
    """What MessagePack writes before so many bytes."""
    return 2 if size < 1 << 8 else 3 if size < 1 << 16 else 5


def _living(rows: Rows) -> BoolArray:
    return ~rows.erased if rows.erased is not None else np.ones(len(rows), np.bool_)


def _digest_of(rows: Rows, row: int) -> bytes:
    vector = np.ascontiguousarray(rows.vectors[row])
    return row_digest(
        rows.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)],
        rows.notes[rows.note_offsets[row] : rows.note_offsets[row + 1]],
        rows.embedding_ids[row],
        DTYPE_CODES[rows.vectors.dtype],
        rows.vectors.shape[1],
        matrix_bytes(vector),
    )


def _blank(
    rows: Rows, erased: BoolArray, digests: np.ndarray[tuple[int, int], np.dtype[np.uint8]]
) -> Rows:
    bounds = rows.note_offsets.tolist()
    flags = erased.tolist()
    notes = [
        b"" if gone else rows.notes[bounds[row] : bounds[row + 1]] for row, gone in enumerate(flags)
    ]
    nonces = np.frombuffer(rows.nonces, np.uint8).reshape(len(rows), NONCE_BYTES).copy()
    nonces[erased] = 0
    vectors: VectorArray = rows.vectors.copy()
    vectors[erased] = 0
    kept = digests.copy()
    kept[~erased] = 0
    return Rows(
        rows.timestamps,
        b"".join(notes),
        np.cumsum([0, *map(len, notes)]).astype("<u4"),
        vectors,
        tuple(
            None if gone else value for value, gone in zip(rows.embedding_ids, flags, strict=True)
        ),
        nonces.tobytes(),
        erased,
        kept,
    )
