"""Rows of a compacted segment as far as they are intact, wherever in its BLOCKs they lie.

A LEDGER says which rows an event has, BLOCKs hold them. A row that no readable BLOCK holds is
lost; a row whose checksum is wrong too; its neighbours live.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from fmemory_segments._block import Block, BlockMeta, decode_block_meta, view_block
from fmemory_segments._event_meta import DTYPES, BlockRows, EventMeta, unpack_bits, unpack_digests
from fmemory_segments._frame import FrameDamage, FrameHeader, pad8
from fmemory_segments._salvage_payload import SalvagedPayload, without_rows
from fmemory_segments.event import LOC_ROW_BITS, NONCE_BYTES, Rows, UInt64Array

BLOCKS_KEPT_BYTES_MAX: Final = 16 << 20


class _Known(NamedTuple):
    """A BLOCK frame whose meta is intact."""

    data_offset: int
    header: FrameHeader
    content: BlockMeta


class _Row(NamedTuple):
    """A row that is intact."""

    note: bytes
    vector: bytes
    nonce: bytes
    embedding_id: str | None
    is_nonce_sure: bool


class Blocks:
    """The BLOCKs of one file.

    Args:
        read: Reads so many bytes at an offset, fewer at the end of the file.
    """

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._known: list[_Known] = []
        self._places: tuple[UInt64Array, UInt64Array] | None = None
        self._kept: OrderedDict[int, tuple[Block, bool]] = OrderedDict()
        self._kept_bytes = 0

    def add(self, offset: int, header: FrameHeader, meta: bytes) -> None:
        """Take in a BLOCK whose meta's checksum is right."""
        try:
            content = decode_block_meta(header, meta)
        except FrameDamage:
            return  # Its rows will be missed, and named by their events.
        self._known.append(_Known(offset + header.data_start, header, content))
        self._places = None

    def payload(self, seq: int, meta: EventMeta) -> SalvagedPayload:
        """What is left of the rows of an event."""
        place, count = meta.place, len(meta.keys)
        assert isinstance(place, BlockRows)
        erased = unpack_bits(place.erased, count)
        dtype = DTYPES[place.dtype]
        nothing = _Row(b"", bytes(place.dim * dtype.itemsize), bytes(NONCE_BYTES), None, True)
        rows: list[_Row] = []
        lost: list[int] = []
        for number in range(count):
            row = None
            if erased is None or not erased[number]:
                row = self._row(seq << LOC_ROW_BITS | number, len(nothing.vector))
                if row is None:
                    lost.append(number)
            rows.append(nothing if row is None else row)
        payload = Rows(
            timestamps=np.frombuffer(place.timestamps, "<f8"),
            notes=b"".join(row.note for row in rows),
            note_offsets=np.cumsum([0, *(len(row.note) for row in rows)]).astype("<u4"),
            vectors=np.frombuffer(b"".join(row.vector for row in rows), dtype).reshape(
                count, place.dim
            ),
            embedding_ids=tuple(row.embedding_id for row in rows),
            nonces=b"".join(row.nonce for row in rows),
            erased=erased,
            digests=unpack_digests(place.digests, erased),
        )
        problems = [f"{len(lost)} of {count} rows"] if lost else []
        if not all(row.is_nonce_sure for row in rows):
            problems.append("its nonces")
        return SalvagedPayload(without_rows(payload, lost), tuple(lost), " and ".join(problems))

    def _row(self, loc: int, vector_bytes: int) -> _Row | None:
        """The row at a loc; None if no BLOCK has it as it was written."""
        locs, places = self._sorted()
        at = int(np.searchsorted(locs, np.uint64(loc)))
        if at == len(locs) or int(locs[at]) != loc:
            return None
        number, row = divmod(int(places[at]), 1 << 32)
        block, is_nonce_sure = self._block(number)
        offsets = block.note_offsets
        note = block.notes[int(offsets[row]) : int(offsets[row + 1])]
        vector = block.vectors[row].tobytes()
        crc = np.frombuffer(self._known[number].content.row_crcs, "<u4")[row]
        if len(vector) != vector_bytes or crc32c(vector, crc32c(note)) != crc:
            return None
        nonce = block.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)]
        return _Row(note, vector, nonce, block.embedding_ids[row], is_nonce_sure)

    def _block(self, number: int) -> tuple[Block, bool]:
        """A BLOCK's rows, unchecked, and whether its nonces are right; the newest few are kept."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        known = self._known[number]
        size = pad8(known.header.data_bytes)
        data = self._read(size, known.data_offset).ljust(size, b"\0")
        block = view_block(known.content, data)
        self._kept[number] = block, crc32c(block.nonces) == known.content.nonces_crc
        self._kept_bytes += size
        while self._kept_bytes > BLOCKS_KEPT_BYTES_MAX and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            self._kept_bytes -= pad8(self._known[oldest].header.data_bytes)
        return self._kept[number]

    def _sorted(self) -> tuple[UInt64Array, UInt64Array]:
        """Locs, ascending, and of each the number of its BLOCK, shifted, and its row."""
        if self._places is None:
            locs = [np.zeros(0, np.uint64)]
            places = [np.zeros(0, np.uint64)]
            for number, known in enumerate(self._known):
                found = known.content.row_locs
                locs.append(found)
                places.append(np.arange(len(found), dtype=np.uint64) + np.uint64(number << 32))
            joined = np.concatenate(locs)
            order = np.argsort(joined, kind="stable")
            self._places = joined[order], np.concatenate(places)[order]
        return self._places
