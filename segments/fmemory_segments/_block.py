"""BLOCK frames: living rows of one stream, dim and dtype, side by side as a scan reads them.

Their meta names the loc of each row, its note and its CRC; their data are nonces, notes and one
matrix, as those of a record event are. docs/format.md section 6 owns the bytes; no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from fmemory_segments._event_meta import (
    DIM_MAX,
    DTYPE_CODES,
    DTYPES,
    ITEM_BYTES,
    Natural,
    matrix_bytes,
)
from fmemory_segments._frame import Buffer, FrameDamage, FrameHeader, pad8
from fmemory_segments._row_columns import (
    code_embedding_ids,
    decode_embedding_ids,
    numbers_fit,
    offsets_fit,
    pack_rows,
    row_checksums,
)
from fmemory_segments.event import (
    LOC_ROW_BITS,
    NONCE_BYTES,
    BoolArray,
    Rows,
    Stream,
    UInt32Array,
    UInt64Array,
    VectorArray,
)

_ENCODE = msgspec.msgpack.Encoder().encode


class BlockMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The meta of a BLOCK frame."""

    stream: Stream
    dim: Natural
    dtype: Natural
    nonces_crc: Natural
    locs: bytes
    note_offsets: bytes
    row_crcs: bytes
    embedding_ids: tuple[str | None, ...]
    embedding_numbers: bytes = b""

    @property
    def notes_bytes(self) -> int:
        """Size of all note bodies."""
        return int.from_bytes(self.note_offsets[-4:], "little")

    @property
    def row_locs(self) -> UInt64Array:
        """uint64, shape (n,): the loc of each row."""
        return np.frombuffer(self.locs, "<u8")


_DECODE = msgspec.msgpack.Decoder(BlockMeta).decode


class PackedBlock(NamedTuple):
    """A BLOCK before it is a frame.

    Attributes:
        meta: What it says of its rows.
        encoded: The same as bytes.
        parts: Buffers that make up data.
        data_bytes: Their size together.
        first_seq: Smallest seq of its rows.
    """

    meta: BlockMeta
    encoded: bytes
    parts: list[Buffer]
    data_bytes: int
    first_seq: int


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A decoded BLOCK: rows by (timestamp, loc), all of one stream, dim and dtype.

    Attributes:
        stream: Their stream.
        locs: uint64, shape (n,).
        nonces: 16 bytes a row.
        notes: Bodies back to back.
        note_offsets: uint32, shape (n + 1,).
        vectors: Shape (n, dim), a view of the frame's data.
        embedding_ids: One a row.
    """

    stream: Stream
    locs: UInt64Array
    nonces: bytes
    notes: bytes
    note_offsets: UInt32Array
    vectors: VectorArray
    embedding_ids: tuple[str | None, ...]


def pack_block(stream: Stream, rows: Rows, locs: UInt64Array) -> PackedBlock:
    """Rows, in the order of a scan, as a BLOCK; the matrix is passed on uncopied.

    Cost: one CRC pass; about 1 µs a row.
    """
    columns = pack_rows(rows, rows.nonces)
    embedding_ids, numbers = code_embedding_ids(rows.embedding_ids, "<u4")
    meta = BlockMeta(
        stream,
        rows.vectors.shape[1],
        DTYPE_CODES[rows.vectors.dtype],
        columns.nonces_crc,
        locs.astype("<u8").tobytes(),
        rows.note_offsets.tobytes(),
        columns.row_crcs,
        embedding_ids,
        numbers,
    )
    first_seq = int(locs.min()) >> LOC_ROW_BITS
    return PackedBlock(meta, _ENCODE(meta), columns.parts, columns.data_bytes, first_seq)


def decode_block_meta(header: FrameHeader, meta: Buffer) -> BlockMeta:
    """What a BLOCK frame says of its rows; the CRC of meta must have been checked.

    Args:
        header: Of kind BLOCK.
        meta: With or without padding.

    Raises:
        FrameDamage: The CRC was right, but meta does not describe these rows and this data.
    """
    try:
        content = _DECODE(memoryview(meta)[: header.meta_bytes])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameDamage("content", f"block: {error}") from error
    count = header.event_count
    if not _fits(content, header):
        raise FrameDamage("content", f"block: meta does not describe {count} rows and this data")
    return content


def decode_block(header: FrameHeader, meta: Buffer, data: Buffer) -> Block:
    """The rows of a BLOCK frame, each checked against its own CRC.

    Args:
        header: Of kind BLOCK.
        meta: With or without padding; its CRC must have been checked.
        data: The whole data, with or without padding.

    Raises:
        FrameDamage: Part "content": meta does not describe this data; "data" or "row": a CRC is
            wrong.
    """
    content = decode_block_meta(header, meta)
    block = view_block(content, data)
    if crc32c(block.nonces) != content.nonces_crc:
        raise FrameDamage("data", "block: wrong checksum of nonces")
    wrong = damaged_block_rows(content, block)
    if wrong.any():
        raise FrameDamage("row", f"block: wrong checksum of row {int(np.argmax(wrong))}")
    return block


def view_block(content: BlockMeta, data: Buffer) -> Block:
    """The rows of a BLOCK, unchecked.

    Raises:
        FrameDamage: Part "content": there are fewer bytes than meta says.
    """
    offsets = np.frombuffer(content.note_offsets, "<u4")
    count = len(offsets) - 1
    notes_start = NONCE_BYTES * count
    notes_end = notes_start + int(offsets[-1])
    width = content.dim * ITEM_BYTES[content.dtype]
    if len(data) < pad8(notes_end) + count * width:
        raise FrameDamage("content", f"block: meta does not describe {count} rows and this data")
    view = memoryview(data)
    vectors = np.frombuffer(
        view, DTYPES[content.dtype], count * content.dim, pad8(notes_end)
    ).reshape(count, content.dim)
    return Block(
        content.stream,
        content.row_locs,
        bytes(view[:notes_start]),
        bytes(view[notes_start:notes_end]),
        offsets,
        vectors,
        decode_embedding_ids(content.embedding_ids, content.embedding_numbers, count, "<u4"),
    )


def damaged_block_rows(content: BlockMeta, block: Block) -> BoolArray:
    """Which rows are not as written, by their CRCs: bool, shape (n,)."""
    found = row_checksums(block.notes, block.note_offsets, matrix_bytes(block.vectors))
    wrong: BoolArray = np.array(found, "<u4") != np.frombuffer(content.row_crcs, "<u4")
    return wrong


def _fits(content: BlockMeta, header: FrameHeader) -> bool:
    """True if the columns are as long as the header's number of rows wants, and so is data."""
    count = header.event_count
    if (
        count < 1
        or not 1 <= content.dtype <= 2
        or content.dim > DIM_MAX
        or len(content.locs) != 8 * count
        or len(content.row_crcs) != 4 * count
        or not offsets_fit(content.note_offsets, count)
        or not numbers_fit(content.embedding_numbers, len(content.embedding_ids), count, "<u4")
    ):
        return False
    matrix = count * content.dim * ITEM_BYTES[content.dtype]
    data_bytes = pad8(NONCE_BYTES * count + content.notes_bytes) + pad8(matrix)
    return data_bytes == header.data_bytes
