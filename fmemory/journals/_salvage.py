"""Salvaging any journal that opens: what it can read, event by event where it cannot read more.

The journals of this package salvage their own bytes, which tells more; this serves those of others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from fmemory.errors import LogCorrupt, MemoryBackendError, StorageError
from fmemory.journal import (
    DataErased,
    Envelope,
    Erased,
    Journal,
    Payload,
    RowRun,
    Rows,
    StoredEvent,
)
from fmemory_segments import LOC_ROW_BITS, NONCE_BYTES
from fmemory_segments._salvage_payload import LOST_DIGEST, without_rows
from fmemory_segments.event import VectorArray
from fmemory_segments.salvage import Found, Harm, Salvaged, Trouble, Witness

GROUP_EVENTS: Final = 64
GROUP_ROWS_MAX: Final = 4096


class JournalSalvage:
    """What an open journal can read of its events."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def found(self, *, payloads: bool = True) -> Iterator[Found]:
        """Its events by seq, and between them what it cannot read.

        Raises:
            StorageError: It cannot even tell how many there are.
        """
        head_seq = self._journal.refresh()
        yield Witness(head_seq, None)
        if payloads:
            with suppress(MemoryBackendError):  # A damaged event, which is told where it stands.
                yield Witness(head_seq, self._journal.head(head_seq).chain, is_head=True)
        group: list[Envelope] = []
        for one in self._envelopes(head_seq):
            if isinstance(one, Envelope) and not payloads:
                yield Salvaged(StoredEvent(one, Erased(LOST_DIGEST)))
                continue
            if isinstance(one, Envelope):
                group.append(one)
                rows = sum(envelope.count for envelope in group)
                if len(group) < GROUP_EVENTS and rows < GROUP_ROWS_MAX:
                    continue
            yield from self._with_payloads(group)
            group = []
            if isinstance(one, Trouble):
                yield one
        yield from self._with_payloads(group)

    def _envelopes(self, head_seq: int) -> Iterator[Envelope | Trouble]:
        after, upto = 0, head_seq
        while after < head_seq:
            try:
                for envelope in self._journal.envelopes(after, upto):
                    yield envelope
                    after = envelope.seq
                after, upto = max(after, upto), head_seq
            except (LogCorrupt, StorageError) as error:
                if upto > after + 1:
                    upto = after + 1  # Is it the next one?
                    continue
                after, upto = upto, head_seq
                yield Trouble(str(error), first_seq=after, last_seq=after)

    def _with_payloads(self, group: Sequence[Envelope]) -> Iterator[Salvaged]:
        if not group:
            return
        try:
            payloads = self._journal.payloads([one.seq for one in group])
        except (LogCorrupt, StorageError) as error:
            if len(group) > 1:
                for envelope in group:
                    yield from self._with_payloads([envelope])
            else:
                yield self._harmed(group[0], str(error))
            return
        for envelope, payload in zip(group, payloads, strict=True):
            yield Salvaged(StoredEvent(envelope, payload))

    def _harmed(self, envelope: Envelope, problem: str) -> Salvaged:
        """An event whose payload cannot be read as a whole."""
        try:
            items = list(self._journal.fold(envelope.seq - 1, envelope.seq, envelope.stream))
        except (LogCorrupt, StorageError):
            items = []
        run = next((one for one in items if isinstance(one, RowRun)), None)
        if run is None:
            payload: Payload = Erased(LOST_DIGEST)
            return Salvaged(StoredEvent(envelope, payload), harm=(Harm(problem, (), True),))
        rows, lost = self._rows(envelope, run)
        keys = tuple(envelope.keys[row] for row in lost)
        return Salvaged(StoredEvent(envelope, rows), harm=(Harm(problem, keys),))

    def _rows(self, envelope: Envelope, run: RowRun) -> tuple[Rows, list[int]]:
        """The rows that can be read one by one, with new nonces, as nobody tells the old ones."""
        found: list[tuple[bytes, VectorArray, str | None] | None] = []
        for row in range(len(run.ids)):
            try:
                found.append(self._journal.row(envelope.seq << LOC_ROW_BITS | row))
            except (LogCorrupt, StorageError, DataErased):
                found.append(None)
        count = len(found)
        lost = [row for row, one in enumerate(found) if one is None]
        good = next((one[1] for one in found if one is not None), np.zeros(0))
        nothing = (b"", np.zeros_like(good), None)
        whole = [nothing if one is None else one for one in found]
        rows = Rows(
            timestamps=run.timestamps.astype("<f8"),
            notes=b"".join(one[0] for one in whole),
            note_offsets=np.cumsum([0, *(len(one[0]) for one in whole)]).astype("<u4"),
            vectors=np.stack([one[1] for one in whole]),
            embedding_ids=tuple(one[2] for one in whole),
            nonces=os.urandom(NONCE_BYTES * count),
        )
        return without_rows(rows, lost), lost
