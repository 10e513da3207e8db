"""Record events of a compacted segment read as events again: payloads and their digests.

The LEDGER says what an event's rows are about and which of them were erased; nonces, notes and
vectors of the others are gathered from the BLOCKs that hold them. Every byte that is returned was
checked. docs/format.md section 6 owns the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
from crc32c import crc32c

from fmemory_segments._block import Block, decode_block_meta, view_block
from fmemory_segments._compacted_index import NO_FRAME, CompactedIndex
from fmemory_segments._core import Core, Segment
from fmemory_segments._event_meta import (
    DTYPE_CODES,
    DTYPES,
    BlockRows,
    EventMeta,
    matrix_bytes,
    unpack_bits,
    unpack_digests,
)
from fmemory_segments._frame import FrameDamage
from fmemory_segments._frames import (
    event_damage,
    frame_damage,
    read_block,
    read_block_front,
    row_damage,
)
from fmemory_segments._places import Int64Array, RowPlaces
from fmemory_segments._spans import gather_extents, row_parts
from fmemory_segments.digest import row_digest, rows_digest
from fmemory_segments.errors import LogCorrupt, LogReason
from fmemory_segments.event import (
    DIGEST_BYTES,
    LOC_ROW_BITS,
    NONCE_BYTES,
    Rows,
    UInt8Array,
    UInt64Array,
)

Value = TypeVar("Value")


def read_row_payloads(
    core: Core, segment: Segment, events: Sequence[tuple[int, EventMeta]]
) -> dict[int, Rows]:
    """The payloads of record events of a compacted segment, by seq.

    Args:
        events: Seq and LEDGER entry of each.

    Raises:
        LogCorrupt: A row is not what was written.
        LogReadFailed: The system could not read.

    Cost: O(bytes) of their rows, and of locs and nonces of the blocks that hold them.
    """
    living = [_living_rows(event) for _, event in events]
    locs = np.array(
        [
            seq << LOC_ROW_BITS | row
            for (seq, _), rows in zip(events, living, strict=True)
            for row in rows
        ],
        np.uint64,
    )
    gathered = _gather(core, segment, locs) if len(locs) else _Gathered([], [], b"", [])
    found, at = {}, 0
    for (seq, event), rows in zip(events, living, strict=True):
        found[seq] = _rows_of(event, rows, gathered, at)
        at += len(rows)
    return found


class RowDigests:
    """The digests of the living rows of a compacted segment.

    Args:
        after, upto: Rows of events `after < seq <= upto` are wanted.

    Raises:
        LogCorrupt, LogReadFailed: A BLOCK is damaged or cannot be read.

    Cost: O(bytes) of SHA-256 over these rows; 33 bytes of memory for each row of the segment.
    """

    def __init__(self, core: Core, segment: Segment, after: int, upto: int) -> None:
        index = segment.index
        assert isinstance(index, CompactedIndex)
        self._index = index
        self._segment = segment
        self._table: UInt8Array = np.zeros((index.slot_count, DIGEST_BYTES), np.uint8)
        self._is_known = np.zeros(index.slot_count, np.bool_)
        for number in _blocks_of(index, after, upto):
            self._add_block(core, number, after, upto)

    def payload_digest(self, seq: int, event: EventMeta) -> bytes:
        """The digest of the payload of a record event in the range.

        Raises:
            LogCorrupt: A row that is alive is in no BLOCK.
        """
        place, count = event.place, len(event.keys)
        assert isinstance(place, BlockRows)
        first, end = self._index.slot_range(seq, seq)
        if end - first != count:
            raise self._not_placed(seq, f"{count} rows of event {seq}, {end - first} in the SEAL")
        digests = self._table[first : first + count]
        erased = unpack_bits(place.erased, count)
        known = self._is_known[first : first + count]
        if erased is not None:
            digests = digests.copy()
            digests[erased] = np.frombuffer(place.digests, np.uint8).reshape(-1, DIGEST_BYTES)
            known = known ^ erased
        if not known.all():
            row = int(np.argmin(known))
            raise self._not_placed(seq, f"row {row} of event {seq} in neither")
        return rows_digest(count, place.timestamps, digests.tobytes())

    def _not_placed(self, seq: int, got: str) -> LogCorrupt:
        expected = "each row to be erased or in one BLOCK"
        return event_damage(self._segment, seq, LogReason.FRAME_CONTENT, expected, got)

    def _add_block(self, core: Core, number: int, after: int, upto: int) -> None:
        header, meta, data = read_block(core, self._segment, number)
        try:
            content = decode_block_meta(header, meta)
            block = view_block(content, data)
            slots = self._index.slots_of(block.locs)
        except (FrameDamage, KeyError) as error:
            raise frame_damage(
                self._segment, number, LogReason.FRAME_CONTENT, "rows of this segment", str(error)
            ) from error
        seqs = (block.locs >> np.uint64(LOC_ROW_BITS)).astype(np.int64)
        chosen = np.flatnonzero((seqs > after) & (seqs <= upto))
        packed = np.frombuffer(digests_of_block(block, chosen), np.uint8)
        self._table[slots[chosen]] = packed.reshape(-1, DIGEST_BYTES)
        self._is_known[slots[chosen]] = True


def digests_of_block(block: Block, chosen: Int64Array) -> bytes:
    """The digests of these rows of a BLOCK, back to back.

    Cost: O(bytes) of SHA-256, about 2 µs for a row of 3 KB.
    """
    matrix = matrix_bytes(block.vectors)
    dim, dtype = block.vectors.shape[1], DTYPE_CODES[block.vectors.dtype]
    width = dim * block.vectors.itemsize
    offsets = block.note_offsets.tolist()
    notes, nonces = memoryview(block.notes), block.nonces
    return b"".join(
        [
            row_digest(
                nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)],
                notes[offsets[row] : offsets[row + 1]],
                block.embedding_ids[row],
                dtype,
                dim,
                matrix[width * row : width * (row + 1)],
            )
            for row in chosen.tolist()
        ]
    )


class _Gathered(NamedTuple):
    """Rows wherever they lay, in the order asked for."""

    notes: list[bytes]
    vectors: list[bytes]
    nonces: bytes
    embedding_ids: list[str | None]


def _living_rows(event: EventMeta) -> Sequence[int]:
    """Numbers of the rows of a record event that are alive."""
    assert isinstance(event.place, BlockRows)
    count = len(event.keys)
    erased = unpack_bits(event.place.erased, count)
    return range(count) if erased is None else np.flatnonzero(~erased).tolist()


def _blocks_of(index: CompactedIndex, after: int, upto: int) -> Iterator[int]:
    """Numbers of the BLOCK frames that hold rows of these events."""
    low, high = index.slot_range(max(after + 1, index.base_seq), min(upto, index.last_seq))
    numbers = np.unique(index.slots[low:high, 4])
    for number in numbers[numbers != NO_FRAME].tolist():
        if number >= index.ledger_count:
            yield number


def _gather(core: Core, segment: Segment, locs: UInt64Array) -> _Gathered:
    """Nonces, notes and vectors of rows of a compacted segment, each checked."""
    try:
        places = segment.index.places(locs)
    except KeyError as error:
        raise _without_place(segment, locs) from error
    notes: list[bytes] = []
    vectors: list[bytes] = []
    for part in row_parts(places.note_bytes + places.vector_bytes):
        _read_part(core, segment, places, part, locs, notes, vectors)
    table = segment.index.embedding_ids
    embedding_ids = [table[number] for number in places.embeddings.tolist()]
    return _Gathered(notes, vectors, _read_nonces(core, segment, places, locs), embedding_ids)


def _without_place(segment: Segment, locs: UInt64Array) -> LogCorrupt:
    """The error for rows that live by the LEDGER, and of which the SEAL knows no place."""
    index = segment.index
    slots = ((loc, index.slot_of(loc)) for loc in locs.tolist())
    loc = next(loc for loc, slot in slots if slot is None or not index.slots[slot, 0])
    seq = loc >> LOC_ROW_BITS
    expected = "a place for every row that is alive"
    got = f"none for one of event {seq} in the SEAL"
    return event_damage(segment, seq, LogReason.FRAME_CONTENT, expected, got)


def _read_part(
    core: Core,
    segment: Segment,
    places: RowPlaces,
    part: slice,
    locs: UInt64Array,
    notes: list[bytes],
    vectors: list[bytes],
) -> None:
    starts = np.concatenate((places.note_offsets[part], places.vector_offsets[part]))
    sizes = np.concatenate((places.note_bytes[part].astype(np.int64), places.vector_bytes[part]))
    scratch, at = gather_extents(core, segment, starts, sizes)
    view = scratch.data
    pieces = [
        bytes(view[low:high]) for low, high in zip(at.tolist(), (at + sizes).tolist(), strict=True)
    ]
    count = len(pieces) // 2
    for row, crc in enumerate(places.crcs[part].tolist()):
        note, vector = pieces[row], pieces[count + row]
        if crc32c(vector, crc32c(note)) != crc:
            raise row_damage(segment, int(starts[row]), int(locs[part][row]))
    notes += pieces[:count]
    vectors += pieces[count:]


def _read_nonces(core: Core, segment: Segment, places: RowPlaces, locs: UInt64Array) -> bytes:
    """The nonces of rows, which only the BLOCKs know the places of."""
    table = np.empty((len(locs), NONCE_BYTES), np.uint8)
    for number in np.unique(places.frames).tolist():
        header, meta, nonces = read_block_front(core, segment, number)
        try:
            content = decode_block_meta(header, meta)
        except FrameDamage as damage:
            raise frame_damage(
                segment, number, LogReason.FRAME_CONTENT, "meta of these rows", str(damage)
            ) from damage
        if crc32c(nonces) != content.nonces_crc:
            raise frame_damage(
                segment, number, LogReason.DATA_CHECKSUM, "nonces with their checksum"
            )
        chosen = np.flatnonzero(places.frames == number)
        order = np.argsort(content.row_locs)
        known = content.row_locs[order]
        at = np.minimum(np.searchsorted(known, locs[chosen]), len(known) - 1)
        if (known[at] != locs[chosen]).any():
            raise frame_damage(
                segment, number, LogReason.FRAME_CONTENT, "the rows that the SEAL says", "others"
            )
        table[chosen] = np.frombuffer(nonces, np.uint8).reshape(-1, NONCE_BYTES)[order[at]]
    return table.tobytes()


def _rows_of(event: EventMeta, living: Sequence[int], gathered: _Gathered, at: int) -> Rows:
    """The payload of one record event, whose living rows begin at a number of those gathered."""
    place, count = event.place, len(event.keys)
    assert isinstance(place, BlockRows)
    dtype = DTYPES[place.dtype]
    end = at + len(living)
    notes, vectors = gathered.notes[at:end], gathered.vectors[at:end]
    embedding_ids = gathered.embedding_ids[at:end]
    nonces = gathered.nonces[NONCE_BYTES * at : NONCE_BYTES * end]
    erased = unpack_bits(place.erased, count)
    if erased is not None:
        nothing = bytes(place.dim * dtype.itemsize)
        notes = _spread(notes, living, count, b"")
        vectors = _spread(vectors, living, count, nothing)
        embedding_ids = _spread(embedding_ids, living, count, None)
        single = [nonces[low : low + NONCE_BYTES] for low in range(0, len(nonces), NONCE_BYTES)]
        nonces = b"".join(_spread(single, living, count, bytes(NONCE_BYTES)))
    return Rows(
        timestamps=np.frombuffer(place.timestamps, "<f8"),
        notes=b"".join(notes),
        note_offsets=np.array([0, *accumulate(map(len, notes))], "<u4"),
        vectors=np.frombuffer(b"".join(vectors), dtype).reshape(count, place.dim),
        embedding_ids=tuple(embedding_ids),
        nonces=nonces,
        erased=erased,
        digests=unpack_digests(place.digests, erased),
    )


def _spread(
    values: Sequence[Value], living: Sequence[int], count: int, nothing: Value
) -> list[Value]:
    """Values of living rows among so many rows, with nothing at the others."""
    spread = [nothing] * count
    for row, value in zip(living, values, strict=True):
        spread[row] = value
    return spread
