"""The columns of rows as frames hold them: checksums, embedding ids by number, note offsets.

BATCH and BLOCK frames pack rows alike (docs/format.md sections 4 and 6); what they have in common
is here. The matrix of the vectors is never copied. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from crc32c import crc32c

from fmemory_segments._event_meta import DIM_MAX, DTYPE_CODES, FLOAT64, matrix_bytes
from fmemory_segments._frame import ZEROS, Buffer, pad8
from fmemory_segments.event import NONCE_BYTES, ROWS_MAX, Rows, UInt32Array

_OFFSET = np.dtype("<u4")


class RowColumns(msgspec.Struct, frozen=True, gc=False):
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
    if len(embedding_ids) == 1 or len(set(embedding_ids)) == 1:
        return (embedding_ids[0],), b""
    numbers: dict[str | None, int] = {}
    coded = [numbers.setdefault(value, len(numbers)) for value in embedding_ids]
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
    offsets = rows.note_offsets
    if rows.timestamps.dtype != FLOAT64 or offsets.dtype != _OFFSET:
        raise ValueError("rows: expected timestamps of dtype <f8 and note offsets of dtype <u4")
    if len(offsets) != count + 1 or offsets.item(0) or offsets.item(-1) != len(rows.notes):
        raise ValueError(f"rows: expected {count + 1} note offsets from 0 to {len(rows.notes)}")
    if count > 1 and (offsets[1:] < offsets[:-1]).any():
        raise ValueError("rows: note offsets decrease")
    if len(keys) != count or len(rows.embedding_ids) != count:
        raise ValueError(f"rows: expected {count} keys and embedding ids")
    if rows.nonces and len(rows.nonces) != NONCE_BYTES * count:
        raise ValueError(f"rows: expected {NONCE_BYTES} bytes of nonce a row")
    if rows.erased is not None and rows.erased.any() and rows.digests is None:
        raise ValueError("rows: expected digests of the erased rows")


def decode_embedding_ids(
    embedding_ids: tuple[str | None, ...], numbers: bytes, count: int, dtype: str
) -> tuple[str | None, ...]:
    """The embedding id of each row."""
    if not numbers:
        return embedding_ids * count
    return tuple(embedding_ids[number] for number in np.frombuffer(numbers, dtype).tolist())


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
