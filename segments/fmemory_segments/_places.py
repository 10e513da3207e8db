"""Where rows and payloads lie in a segment file, as the index of the segment answers it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from fmemory_segments.event import UInt32Array

Int64Array: TypeAlias = npt.NDArray[np.int64]


class RowPlace(msgspec.Struct, frozen=True, gc=False):
    """Where one row is. Offsets count from the start of the file.

    Attributes:
        frame: Number of its frame in the segment.
        note_offset: Of the note body.
        note_bytes: Its size.
        vector_offset: Of the vector, a multiple of its item size.
        dim: Its length.
        dtype: 1 float32, 2 float64.
        crc: `crc(note ‖ vector)`.
        embedding_id: As stored.
    """

    frame: int
    note_offset: int
    note_bytes: int
    vector_offset: int
    dim: int
    dtype: int
    crc: int
    embedding_id: str | None


class RowPlaces(NamedTuple):
    """Where rows are, column by column, in the order asked for. Offsets count as in `RowPlace`.

    Attributes:
        frames: uint32: number of the frame.
        note_offsets: int64.
        note_bytes: uint32.
        vector_offsets: int64.
        vector_bytes: int64.
        shapes: uint32: `dim << 2 | dtype`, so rows of equal shape can share a matrix.
        crcs: uint32.
        embeddings: uint32: number in the segment's `embedding_ids`.
    """

    frames: UInt32Array
    note_offsets: Int64Array
    note_bytes: UInt32Array
    vector_offsets: Int64Array
    vector_bytes: Int64Array
    shapes: UInt32Array
    crcs: UInt32Array
    embeddings: UInt32Array


class RunPlace(NamedTuple):
    """Where consecutive rows of one event are. Offsets count as in `RowPlace`.

    Attributes:
        frame: Number of their frame.
        note_offset: Of the first note body; the others follow.
        note_bytes: Of all of them.
        vector_offset: Of the first vector; the others follow.
        shape: `dim << 2 | dtype`.
        embeddings: uint32, one a row: number in the segment's `embedding_ids`.
    """

    frame: int
    note_offset: int
    note_bytes: int
    vector_offset: int
    shape: int
    embeddings: UInt32Array


class BlobAt(NamedTuple):
    """Where a payload of bytes is: the nonce at `offset` of the file, the bytes behind it."""

    offset: int
    length: int
    crc: int
