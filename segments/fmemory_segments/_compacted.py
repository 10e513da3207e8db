"""LEDGER and BLOCK: what compaction makes of batches, and how the events are had back.

A LEDGER keeps the entry of every event, with digests in place of what was erased and payloads of
events without rows. A BLOCK holds living rows of one stream, dim and dtype, sorted by (timestamp,
loc), so that a scan reads them side by side. Seqs, locs, digests and the chain stay what they were.
docs/format.md section 6 owns the bytes. What is dead is for the caller to say; no I/O here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from fmemory_segments._batch import BatchMeta, decode_payload, payload_extent
from fmemory_segments._columns import Int64Array
from fmemory_segments._event_meta import (
    DIM_MAX,
    DTYPE_CODES,
    DTYPES,
    ITEM_BYTES,
    BlockRows,
    ErasedPlace,
    Natural,
    matrix_bytes,
    pack_bits,
    unpack_bits,
    unpack_digests,
)
from fmemory_segments._frame import (
    Buffer,
    FrameDamage,
    FrameFlag,
    FrameHeader,
    FrameKind,
    frame_bytes,
    pack_frame,
    pad8,
)
from fmemory_segments._packer import FRAME_BYTES_TARGET, FramePacker, place_payload
from fmemory_segments._row_columns import (
    check_rows,
    code_embedding_ids,
    decode_embedding_ids,
    numbers_fit,
    offsets_fit,
    pack_rows,
    row_checksums,
)
from fmemory_segments.digest import payload_digest, row_digests
from fmemory_segments.event import (
    LOC_ROW_BITS,
    NONCE_BYTES,
    BoolArray,
    Envelope,
    Float64Array,
    Rows,
    StoredEvent,
    Stream,
    UInt32Array,
    UInt64Array,
    VectorArray,
)

ROW_META_BYTES = 8 + 4 + 4 + 4

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


_DECODE = msgspec.msgpack.Decoder(BlockMeta).decode


@dataclass(frozen=True, slots=True)
class FrameContent:
    """A LEDGER or BLOCK frame before it has a place."""

    kind: FrameKind
    event_count: int
    first_seq: int
    time_ns: int
    meta: bytes
    parts: list[Buffer]
    data_bytes: int


class PlacedFrame(NamedTuple):
    """A packed frame and where in the file it goes."""

    offset: int
    header: FrameHeader


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


def fold_frames(
    events: Iterable[StoredEvent],
    *,
    erased_locs: UInt64Array,
    erased_seqs: Collection[int] = (),
    frame_bytes_target: int = FRAME_BYTES_TARGET,
) -> list[FrameContent]:
    """The LEDGER frames in seq order, then the BLOCK frames, that say what these events say.

    Args:
        events: Of consecutive seqs, at least one; some may have been erased before.
        erased_locs: uint64: rows whose note and vector are to be left out.
        erased_seqs: Events without rows whose payload is to be left out.
        frame_bytes_target: A frame gets larger only for one event or row that is larger alone.

    Raises:
        ValueError: A payload contradicts itself, or there is no event.
        FrameTooLarge: An event does not fit a frame.

    Cost: O(bytes); SHA-256 of what is erased; all living rows are in memory at once.
    """
    packer = FramePacker(frame_bytes_target)
    groups: dict[tuple[Stream, int, int], list[_LivingRows]] = {}
    first: Envelope | None = None
    for event in events:
        envelope, payload = event.envelope, event.payload
        first = first or envelope
        after_ns = envelope.recorded_at_ns - first.recorded_at_ns
        if isinstance(payload, Rows):
            place, living = _fold_rows(envelope, payload, erased_locs)
            packer.add(envelope, place, [], 0, after_ns)
            if living is not None:
                key = (envelope.stream, place.dim, place.dtype)
                groups.setdefault(key, []).append(living)
        elif envelope.seq in erased_seqs:
            packer.add(envelope, ErasedPlace(payload_digest(payload)), [], 0, after_ns)
        else:
            packer.add(envelope, *place_payload(envelope, payload), after_ns)
    prepared = packer.pack()
    assert first is not None
    contents: list[FrameContent] = []
    seq = first.seq
    for frame in prepared.frames:
        contents.append(
            FrameContent(
                FrameKind.LEDGER,
                len(frame.events),
                seq,
                first.recorded_at_ns + frame.recorded_after_ns,
                frame.meta,
                frame.parts,
                frame.data_bytes,
            )
        )
        seq += len(frame.events)
    for (stream, _dim, _dtype), parts in groups.items():
        contents += _fold_blocks(stream, parts, frame_bytes_target)
    return contents


def pack_contents(
    contents: Sequence[FrameContent],
    *,
    synced_to: int,
    prev_frame_bytes: int,
    salt: int,
    offset: int,
) -> tuple[list[PlacedFrame], list[Buffer]]:
    """The frames one behind the other from this offset of a file on, as buffers to write."""
    placed: list[PlacedFrame] = []
    buffers: list[Buffer] = []
    for content in contents:
        header, packed = pack_frame(
            content.kind,
            FrameFlag.BATCH_END,
            event_count=content.event_count,
            prev_frame_bytes=prev_frame_bytes,
            first_seq=content.first_seq,
            time_ns=content.time_ns,
            synced_to=synced_to,
            batch_offset=0,
            meta=content.meta,
            data_parts=content.parts,
            data_bytes=content.data_bytes,
            salt=salt,
            offset=offset,
        )
        placed.append(PlacedFrame(offset, header))
        buffers += packed
        prev_frame_bytes = frame_bytes(header)
        offset += prev_frame_bytes
    return placed, buffers


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
    try:
        content = _DECODE(memoryview(meta)[: header.meta_bytes])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameDamage("content", f"block: {error}") from error
    count = header.event_count
    if not _block_fits(content, header) or len(data) < header.data_bytes:
        raise FrameDamage("content", f"block: meta does not describe {count} rows and this data")
    offsets = np.frombuffer(content.note_offsets, "<u4")
    notes_start = NONCE_BYTES * count
    notes_end = notes_start + int(offsets[-1])
    view = memoryview(data)
    nonces = bytes(view[:notes_start])
    if crc32c(nonces) != content.nonces_crc:
        raise FrameDamage("data", "block: wrong checksum of nonces")
    vectors = np.frombuffer(
        view, DTYPES[content.dtype], count * content.dim, pad8(notes_end)
    ).reshape(count, content.dim)
    notes = bytes(view[notes_start:notes_end])
    found = np.array(row_checksums(notes, offsets, matrix_bytes(vectors)), "<u4")
    wrong = found != np.frombuffer(content.row_crcs, "<u4")
    if wrong.any():
        raise FrameDamage("row", f"block: wrong checksum of row {int(np.argmax(wrong))}")
    return Block(
        content.stream,
        np.frombuffer(content.locs, "<u8"),
        nonces,
        notes,
        offsets,
        vectors,
        decode_embedding_ids(content.embedding_ids, content.embedding_numbers, count, "<u4"),
    )


def unfold_frames(
    ledgers: Iterable[tuple[BatchMeta, Buffer]], blocks: Sequence[Block]
) -> Iterator[StoredEvent]:
    """The events of LEDGER frames, each with its data, and of the BLOCK frames that go with them.

    Raises:
        FrameDamage: A living row is in no block, a row is in a block that should not be, or in two.
    """
    rows_of = _BlockRows(blocks)
    for batch, data in ledgers:
        view = memoryview(data)
        for number, event in enumerate(batch.events):
            envelope = batch.envelope(number)
            if isinstance(event.place, BlockRows):
                yield StoredEvent(envelope, rows_of.gather(envelope, event.place))
                continue
            offset, size = payload_extent(event)
            yield StoredEvent(envelope, decode_payload(event, view[offset : offset + size]))
    rows_of.expect_none_left()


class _LivingRows(NamedTuple):
    """The rows of one event that go into blocks."""

    rows: Rows
    living: Int64Array
    locs: UInt64Array


def _fold_rows(
    envelope: Envelope, rows: Rows, erased_locs: UInt64Array
) -> tuple[BlockRows, _LivingRows | None]:
    """The ledger's place for a record event, and its rows that live."""
    check_rows(rows, envelope.keys)
    count = len(rows)
    erased = np.isin(_locs(envelope.seq, np.arange(count)), erased_locs)
    if rows.erased is not None:
        erased |= rows.erased
    digests = row_digests(rows)[erased].tobytes() if erased.any() else b""
    place = BlockRows(
        rows.vectors.shape[1],
        DTYPE_CODES[rows.vectors.dtype],
        rows.timestamps.tobytes(),
        pack_bits(erased),
        digests,
    )
    living = np.flatnonzero(~erased)
    if not len(living):
        return place, None
    return place, _LivingRows(rows, living, _locs(envelope.seq, living))


def _fold_blocks(
    stream: Stream, parts: Sequence[_LivingRows], frame_bytes_target: int
) -> Iterator[FrameContent]:
    """The rows of one stream, dim and dtype as BLOCK frames."""
    locs = np.concatenate([part.locs for part in parts])
    timestamps: Float64Array = np.concatenate([part.rows.timestamps[part.living] for part in parts])
    notes: list[bytes] = []
    nonces: list[bytes] = []
    embedding_ids: list[str | None] = []
    for part in parts:
        offsets = part.rows.note_offsets.tolist()
        for row in part.living.tolist():
            notes.append(part.rows.notes[offsets[row] : offsets[row + 1]])
            nonces.append(part.rows.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)])
            embedding_ids.append(part.rows.embedding_ids[row])
    vectors: VectorArray = np.concatenate([part.rows.vectors[part.living] for part in parts])
    order = np.lexsort((locs, timestamps))
    width = vectors.shape[1] * vectors.itemsize
    sizes = [
        NONCE_BYTES + len(notes[row]) + width + ROW_META_BYTES + len(embedding_ids[row] or "") * 4
        for row in order.tolist()
    ]
    for start, end in pairwise(_cuts(sizes, frame_bytes_target)):
        chosen = order[start:end].tolist()
        bodies = [notes[row] for row in chosen]
        rows = Rows(
            timestamps=timestamps[order[start:end]],
            notes=b"".join(bodies),
            note_offsets=np.cumsum([0, *map(len, bodies)]).astype("<u4"),
            vectors=vectors[order[start:end]],
            embedding_ids=tuple(embedding_ids[row] for row in chosen),
            nonces=b"".join([nonces[row] for row in chosen]),
        )
        yield _block(stream, rows, locs[order[start:end]])


def _block(stream: Stream, rows: Rows, locs: UInt64Array) -> FrameContent:
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
    return FrameContent(
        FrameKind.BLOCK,
        len(rows),
        int(locs.min()) >> LOC_ROW_BITS,
        0,
        _ENCODE(meta),
        columns.parts,
        columns.data_bytes,
    )


class _BlockRows:
    """Finds rows in blocks by loc, and remembers which were asked for."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        no_locs = [np.zeros(0, np.uint64)]
        locs = np.concatenate(no_locs + [block.locs for block in blocks])
        numbers = np.repeat(np.arange(len(blocks)), [len(block.locs) for block in blocks])
        within = np.concatenate(
            [np.zeros(0, np.int64)] + [np.arange(len(block.locs)) for block in blocks]
        )
        order = np.argsort(locs, kind="stable")
        self._locs, self._numbers, self._within = locs[order], numbers[order], within[order]
        if (self._locs[1:] == self._locs[:-1]).any():
            raise FrameDamage("content", "blocks: a row is in two of them")
        self._left = len(locs)

    def gather(self, envelope: Envelope, place: BlockRows) -> Rows:
        """The payload of a record event."""
        count = len(envelope.keys)
        erased = unpack_bits(place.erased, count)
        living = _living(erased, count)
        locs = _locs(envelope.seq, living)
        found = np.searchsorted(self._locs, locs)
        if (found >= len(self._locs)).any() or (self._locs[found] != locs).any():
            raise FrameDamage("content", f"blocks: a row of event {envelope.seq} is in none")
        self._left -= len(locs)
        notes = [b""] * count
        nonces = [bytes(NONCE_BYTES)] * count
        embedding_ids: list[str | None] = [None] * count
        vectors: VectorArray = np.zeros((count, place.dim), DTYPES[place.dtype])
        for row, number, at in zip(
            living.tolist(),
            self._numbers[found].tolist(),
            self._within[found].tolist(),
            strict=True,
        ):
            block = self._blocks[number]
            if block.stream != envelope.stream or not _alike(block.vectors, vectors):
                raise FrameDamage("content", f"blocks: a row of event {envelope.seq} is elsewhere")
            start, end = block.note_offsets[at : at + 2].tolist()
            notes[row] = block.notes[start:end]
            nonces[row] = block.nonces[NONCE_BYTES * at : NONCE_BYTES * (at + 1)]
            embedding_ids[row] = block.embedding_ids[at]
            vectors[row] = block.vectors[at]
        return Rows(
            timestamps=np.frombuffer(place.timestamps, "<f8"),
            notes=b"".join(notes),
            note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
            vectors=vectors,
            embedding_ids=tuple(embedding_ids),
            nonces=b"".join(nonces),
            erased=erased,
            digests=unpack_digests(place.digests, erased),
        )

    def expect_none_left(self) -> None:
        """Raise unless every row was asked for."""
        if self._left:
            raise FrameDamage("content", f"blocks: {self._left} rows belong to no living row")


def _block_fits(content: BlockMeta, header: FrameHeader) -> bool:
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
    notes = int.from_bytes(content.note_offsets[-4:], "little")
    matrix = count * content.dim * ITEM_BYTES[content.dtype]
    return pad8(NONCE_BYTES * count + notes) + pad8(matrix) == header.data_bytes


def _cuts(sizes: Sequence[int], target: int) -> list[int]:
    """Where to cut a sequence of sizes so that no part but a single one is above the target.

    >>> _cuts([3, 3, 9, 1], 6)
    [0, 2, 3, 4]
    """
    cuts, taken = [0], 0
    for number, size in enumerate(sizes):
        if taken and taken + size > target:
            cuts.append(number)
            taken = 0
        taken += size
    return [*cuts, len(sizes)]


def _alike(left: VectorArray, right: VectorArray) -> bool:
    return left.dtype == right.dtype and left.shape[1] == right.shape[1]


def _living(erased: BoolArray | None, count: int) -> Int64Array:
    return np.arange(count) if erased is None else np.flatnonzero(~erased)


def _locs(seq: int, rows: Int64Array) -> UInt64Array:
    return (rows + (seq << LOC_ROW_BITS)).astype(np.uint64)
