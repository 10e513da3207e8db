"""Taking data out of a table of events: what is left to do, and some hundred events at a time.

Metas are read first, without keeping anybody out: what is named wrongly is refused before anything
is erased, and what was erased before is left alone. Then each group of events is read and stored
anew within one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from fmemory.errors import ContractError, LogCorrupt, Reason
from fmemory.journal import Erasure
from fmemory.journals._erasure import end_of
from fmemory.journals._pages import ROW_MASK
from fmemory.journals._tables.event_table import ErasedRow, EventTable
from fmemory.journals._tables.reads import TableReads
from fmemory_segments import FORGOTTEN, event_bytes
from fmemory_segments.event import LOC_ROW_BITS, BoolArray, UInt64Array
from fmemory_segments.event_bytes import BytesDamage, StoredMeta, meta_check

PAGE_EVENTS: Final = 512
GROUP_EVENTS_MAX: Final = 256
GROUP_BYTES_MAX: Final = 8 * 1024 * 1024


class Done(NamedTuple):
    """What was taken out."""

    rows: int
    events: int
    stubs: int


class _Piece(NamedTuple):
    """What goes of one event.

    Attributes:
        rows: bool, shape (n,); None = the payload of an event without rows.
        end: The event that deleted it, if it is forgotten whole; None = it is not.
    """

    stored: StoredMeta
    rows: BoolArray | None
    end: int | None = None

    @property
    def row_count(self) -> int:
        """Rows whose data go."""
        return 0 if self.rows is None else int(self.rows.sum())

    @property
    def event_count(self) -> int:
        """1 where the payload of an event without rows goes."""
        return int(self.rows is None and not self.stored.is_erased)


def erase(table: EventTable, reads: TableReads, erasure: Erasure, timeout_s: float | None) -> Done:
    """Take out what is named and still there; see `TableJournal.compact`."""
    wanted = _Wanted(table, erasure)
    rows, events, stubs = 0, 0, 0
    for seqs in list(_groups(wanted)):
        with table.transaction("fsync", timeout_s) as transaction:
            # Others may have been quicker: only what is there now counts.
            pieces = wanted.pieces(reads, seqs)
            if pieces:
                transaction.replace(_without(table, pieces))
        reads.forget(seqs)
        rows += sum(piece.row_count for piece in pieces)
        events += sum(piece.event_count for piece in pieces)
        stubs += sum(piece.end is not None for piece in pieces)
    return Done(rows, events, stubs)


class _Wanted:
    """An erasure, looked up event by event.

    Attributes:
        seqs: uint64, ascending: events of which something goes.
    """

    def __init__(self, table: EventTable, erasure: Erasure) -> None:
        self._table = table
        limit = np.uint64(erasure.upto)
        locs = np.unique(np.asarray(erasure.locs, np.uint64))
        self._locs: UInt64Array = locs[locs >> np.uint64(LOC_ROW_BITS) <= limit]
        self._loc_seqs = self._locs >> np.uint64(LOC_ROW_BITS)
        whole = np.unique(np.asarray(erasure.seqs, np.uint64))
        self._whole = whole[whole <= limit]
        self._erasure = erasure
        forget = erasure.forget[erasure.forget <= limit]
        self.seqs: UInt64Array = np.union1d(np.union1d(self._loc_seqs, self._whole), forget)

    def pieces(self, reads: TableReads, seqs: Sequence[int]) -> list[_Piece]:
        """What is still to be taken out of these events, by metas as they are now."""
        metas = {row.seq: reads.checked(row) for row in self._table.metas_of(seqs)}
        found = []
        for seq in seqs:
            if seq not in metas:
                raise self._refused(seq, "an event that is there", "none")
            piece = self._piece(metas[seq])
            if piece is not None:
                found.append(piece)
        return found

    def _piece(self, stored: StoredMeta) -> _Piece | None:
        if stored.event.type == FORGOTTEN:
            return None
        end = end_of(self._erasure, stored.seq)
        if end is not None:
            rows = np.ones(stored.row_count, np.bool_) if stored.has_rows else None
            if rows is not None and stored.erased_rows is not None:
                rows &= ~stored.erased_rows
            return _Piece(stored, rows, end)
        low, high = np.searchsorted(self._loc_seqs, [stored.seq, stored.seq + 1]).tolist()
        at = int(np.searchsorted(self._whole, stored.seq))
        is_whole = at < len(self._whole) and int(self._whole[at]) == stored.seq
        if not stored.has_rows:
            if high > low:
                raise self._refused(stored.seq, "an event with rows", "one without")
            return None if stored.is_erased else _Piece(stored, None)
        if is_whole:
            raise self._refused(stored.seq, "an event without rows", f"{stored.row_count} rows")
        rows = (self._locs[low:high] & np.uint64(ROW_MASK)).astype(np.int64)
        if rows[-1] >= stored.row_count:
            count = f"an event with {stored.row_count}"
            raise self._refused(stored.seq, f"row {rows[-1]}", count)
        gone = np.zeros(stored.row_count, np.bool_)
        gone[rows] = True
        if stored.erased_rows is not None:
            gone &= ~stored.erased_rows
        return _Piece(stored, gone) if gone.any() else None

    def _refused(self, seq: int, expected: str, got: str) -> ContractError:
        return ContractError(
            f"erasure: expected {expected} at seq {seq}, got {got} ({self._table.path}); nothing"
            " was erased; choose by folding this log",
            reason=Reason.MISMATCH,
        )

    def unfinished(self) -> Iterator[tuple[int, int]]:
        """Seqs of events of which something is still there, with the size of their data."""
        reads = TableReads(self._table)
        for start in range(0, len(self.seqs), PAGE_EVENTS):
            page = self.seqs[start : start + PAGE_EVENTS].tolist()
            for piece in self.pieces(reads, page):
                yield piece.stored.seq, piece.stored.data_bytes


def _groups(wanted: _Wanted) -> Iterator[list[int]]:
    """Events to be stored anew in one transaction each."""
    group: list[int] = []
    size = 0
    for seq, data_bytes in wanted.unfinished():
        if group and (size + data_bytes > GROUP_BYTES_MAX or len(group) == GROUP_EVENTS_MAX):
            yield group
            group, size = [], 0
        group.append(seq)
        size += data_bytes
    if group:
        yield group


def _without(table: EventTable, pieces: Sequence[_Piece]) -> list[ErasedRow]:
    data = table.data_of({piece.stored.seq: piece.stored.check for piece in pieces})
    rows = []
    for stored, gone, end in pieces:
        had = data.get(stored.seq, b"")
        try:
            packed = (
                event_bytes.erase(stored, had, gone)
                if end is None
                else event_bytes.forget(stored, had, end)
            )
        except BytesDamage as damage:
            raise LogCorrupt(
                f"event {stored.seq}: {damage.args[0]} ({table.path}); its digest cannot be kept,"
                " so nothing was taken out of it and the events beside it; run `fmemory verify` on"
                " the store",
                path=table.path,
                seq=stored.seq,
                last_seq=stored.seq,
            ) from damage
        check = meta_check(stored.seq, stored.recorded_at_ns, packed.meta)
        rows.append(ErasedRow(stored.seq, packed.meta, check, packed.data, end is not None))
    return rows
