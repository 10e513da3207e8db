"""Salvaging a table of events: each row by its own checksums, whatever its neighbours are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fmemory.errors import MemoryBackendError, StorageError
from fmemory.journals._tables.event_table import EventTable, MetaRow
from fmemory.journals._tables.journal import TableJournal
from fmemory_segments import Erased, StoredEvent
from fmemory_segments._salvage_file import harm_of
from fmemory_segments._salvage_payload import LOST_DIGEST, salvage_payload
from fmemory_segments.event_bytes import BytesDamage, StoredMeta
from fmemory_segments.salvage import Found, Salvaged, Trouble, Witness

PAGE_EVENTS: Final = 64


class TableSalvage:
    """What can be read of a table.

    Args:
        table: Read only; closed by whoever opened it.
    """

    def __init__(self, table: EventTable) -> None:
        self._table = table

    def found(self, *, payloads: bool = True) -> Iterator[Found]:
        """Its events by seq, and between them what cannot be read.

        Raises:
            StorageError: It cannot even tell how many there are.
        """
        head_seq = self._table.head_seq()
        yield Witness(head_seq, None)
        for row in self._rows(head_seq):
            if isinstance(row, Trouble):
                yield row
                continue
            try:
                stored = StoredMeta(*row)
            except BytesDamage as damage:
                yield Trouble(f"its row is damaged: {damage.args[0]}", None, None, row.seq, row.seq)
                continue
            yield self._event(stored, payloads=payloads)
        if payloads:
            try:
                head = TableJournal(self._table).head(head_seq)
            except MemoryBackendError:
                return  # A damaged event before it; that was told.
            yield Witness(head.seq, head.chain, is_head=True)

    def _rows(self, head_seq: int) -> Iterator[MetaRow | Trouble]:
        after, size = 0, PAGE_EVENTS
        while after < head_seq:
            upto = head_seq if size > 1 else after + 1
            try:
                rows = self._table.metas(after, upto, stream=None, backwards=False, limit=size)
            except StorageError as error:
                if size > 1:
                    size = max(1, size // 8)
                    continue
                after += 1
                yield Trouble(f"its row cannot be read: {error}", None, None, after, after)
                continue
            yield from rows
            if size > 1:
                after = rows[-1].seq if rows else head_seq
            else:
                after, size = upto, PAGE_EVENTS

    def _event(self, stored: StoredMeta, *, payloads: bool) -> Salvaged:
        if not payloads:
            return Salvaged(StoredEvent(stored.envelope, Erased(LOST_DIGEST)))
        try:
            data = self._table.data_of({stored.seq: stored.check}).get(stored.seq, b"")
        except StorageError:
            data = b""
        region = stored.region(data if isinstance(data, bytes) else b"")
        left = salvage_payload(stored.event, region)
        return Salvaged(
            StoredEvent(stored.envelope, left.payload), harm=harm_of(left, stored.event.keys)
        )
