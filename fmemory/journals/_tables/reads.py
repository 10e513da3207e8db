"""Reads of a table of events: metas in pages, rows of large events in pieces, the chain.

What was read of metas is kept, a bounded number of them: a page of records of one batch asks for
the same meta again and again. Data is read for each call. Everything that is returned was checked.

Another handle may take data out of an event meanwhile. Data is asked for with the check of the meta
that says what lies where; where there is none by that check, metas are read anew.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NoReturn, TypeVar

import numpy as np

from fmemory.errors import LogCorrupt, NotFound, Reason
from fmemory.journal import (
    DataErased,
    Envelope,
    ErasedEvent,
    Head,
    Payload,
    RowPage,
    RowRun,
    Stream,
)
from fmemory.journals._pages import merged, row_spans
from fmemory.journals._tables.event_table import EventTable, MetaRow, Part, stream_key
from fmemory_segments import FORGOTTEN, chain_step, event_digest, payload_digest
from fmemory_segments.event import (
    LOC_ROW_BITS,
    ZERO_CHAIN,
    Float64Array,
    UInt64Array,
    VectorArray,
)
from fmemory_segments.event_bytes import BytesDamage, StoredMeta

PAGE_EVENTS: Final = 512
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
WHOLE_BYTES_MAX: Final = 64 * 1024
"""Data of at most this size is read whole, even for one row."""
KEPT_META_BYTES_MAX: Final = 16 * 1024 * 1024
CHAIN_STEP: Final = 4096

_Span = tuple[StoredMeta, int, int]
_Result = TypeVar("_Result")


class _MetasChangedError(Exception):
    """Metas that a read went by are not those of the table any more."""


class TableReads:
    """The reading half of a `TableJournal`. Threads may share one."""

    def __init__(self, table: EventTable) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, StoredMeta] = OrderedDict()
        self._kept_bytes = 0
        self._page: dict[int, StoredMeta] = {}
        """Metas of the newest page, without those of rows, which may be large: whoever goes
        through a log asks for their data next."""
        self._chain_seqs = [0]
        self._chains = [ZERO_CHAIN]

    def metas(
        self,
        after: int,
        upto: int,
        stream: Stream | None,
        *,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredMeta]:
        """Metas with `after < seq <= upto` by seq; each page is a query of its own.

        Raises:
            LogCorrupt: One is damaged, or one that stood between these is gone.
        """
        before: StoredMeta | None = None
        for stored in self._pages(after, upto, stream, backwards=backwards, limit=limit):
            if not backwards:
                self._check_next(before, stored, after, stream)
            elif before is not None:
                self._check_next(stored, before, after, stream)
            yield stored
            before = stored

    def _pages(
        self,
        after: int,
        upto: int,
        stream: Stream | None,
        *,
        backwards: bool,
        limit: int | None,
    ) -> Iterator[StoredMeta]:
        key = None if stream is None else stream_key(stream)
        left = limit
        while after < upto and (left is None or left > 0):
            count = PAGE_EVENTS if left is None else min(left, PAGE_EVENTS)
            rows = self._table.metas(after, upto, stream=key, backwards=backwards, limit=count)
            page: dict[int, StoredMeta] = {}
            self._page = page
            for row in rows:
                stored = self.checked(row)
                if not stored.has_rows:
                    page[row.seq] = stored
                yield stored
            if len(rows) < count:
                return
            if backwards:
                upto = rows[-1].seq - 1
            else:
                after = rows[-1].seq
            left = None if left is None else left - len(rows)

    def fold(self, after: int, upto: int, stream: Stream | None) -> Iterator[Envelope | RowRun]:
        """Index items; puts of one stream that stand together come as one run."""
        gathered: list[StoredMeta] = []
        for stored in self.metas(after, upto, stream):
            if gathered and (
                not stored.has_rows
                or stored.event.stream != gathered[0].event.stream
                or len(gathered) == PAGE_EVENTS
            ):
                yield _run_of(gathered)
                gathered = []
            if stored.has_rows:
                gathered.append(stored)
            else:
                yield stored.envelope
        if gathered:
            yield _run_of(gathered)

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """Payloads, checked, in the order asked for."""
        return self._by_metas(seqs, lambda: self._payloads_now(seqs))

    def erased(self, after: int, upto: int, stream: Stream | None) -> Iterator[ErasedEvent]:
        """Events of which data were taken out, by seq; each page is a query of its own."""
        key = None if stream is None else stream_key(stream)
        while after < upto:
            rows = self._table.erased(after, upto, stream=key, limit=PAGE_EVENTS)
            for row in rows:
                yield ErasedEvent(row.seq, self.checked(row).erased_rows)
            if len(rows) < PAGE_EVENTS:
                return
            after = rows[-1].seq

    def events(self, after: int, upto: int) -> Iterator[tuple[StoredMeta, Payload]]:
        """Events with their payloads, checked, by seq."""
        for group in _groups(self.metas(after, upto, None)):
            data = self._table.data_of({stored.seq: stored.check for stored in group})
            for stored in group:
                try:
                    yield stored, self._payload(stored, data)
                except _MetasChangedError:
                    self.forget([stored.seq])
                    yield stored, self.payloads([stored.seq])[0]

    def rows(self, locs: UInt64Array, *, notes: bool, vectors: bool) -> RowPage:
        """Rows, checked, in the order asked for.

        Raises:
            DataErased: One of them was erased.
        """
        seqs = np.unique(locs >> np.uint64(LOC_ROW_BITS)).tolist()
        return self._by_metas(seqs, lambda: self._rows_now(locs, notes=notes, vectors=vectors))

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """One row, checked.

        Raises:
            DataErased: It was erased.
        """
        return self._by_metas([loc >> LOC_ROW_BITS], lambda: self._row_now(loc))

    def forget(self, seqs: Iterable[int]) -> None:
        """Read the metas of these events anew when they are asked for next."""
        with self._lock:
            self._page = {}
            for seq in seqs:
                self._kept.pop(seq, None)

    def head(self, seq: int) -> Head:
        """The chain value after an event that is there. Cost: O(bytes) since a value is known."""
        with self._lock:
            at = bisect_right(self._chain_seqs, seq) - 1
            known, chain = self._chain_seqs[at], self._chains[at]
        for stored, payload in self.events(known, seq):
            chain = chain_step(chain, event_digest(stored.envelope, payload_digest(payload)))
            known = stored.seq
            if known % CHAIN_STEP == 0 or known == seq:
                self._keep_chain(known, chain)
        if known != seq:
            raise LogCorrupt(
                f"event {known + 1}: expected events up to {seq}, got none behind {known}"
                f" ({self._table.path}): events were removed; nothing was changed; run `fmemory"
                " verify` on the store",
                path=self._table.path,
                seq=known + 1,
                last_seq=seq,
            )
        return Head(seq, chain)

    def checked(self, row: MetaRow) -> StoredMeta:
        """A meta whose checksum is right.

        Raises:
            LogCorrupt: It is not what was stored.
        """
        try:
            return StoredMeta(*row)
        except BytesDamage as damage:
            self._corrupt(row.seq, damage)

    # Private

    def _by_metas(self, seqs: Sequence[int], read: Callable[[], _Result]) -> _Result:
        """What a read gives; again with new metas, as often as they changed meanwhile."""
        while True:
            try:
                return read()
            except _MetasChangedError:
                self.forget(seqs)

    def _payloads_now(self, seqs: Sequence[int]) -> list[Payload]:
        found: list[Payload] = []
        metas = self._metas_of(seqs)
        for group in _groups([metas[seq] for seq in seqs]):
            data = self._table.data_of({stored.seq: stored.check for stored in group})
            found += [self._payload(stored, data) for stored in group]
        return found

    def _rows_now(self, locs: UInt64Array, *, notes: bool, vectors: bool) -> RowPage:
        bodies = bytearray(b"\xdd" + (3 * len(locs)).to_bytes(4, "big")) if notes else bytearray()
        blocks: list[VectorArray] = []
        embedding_ids: list[str | None] = []
        spans = self._spans(locs)
        for span, (note_bytes, vector_bytes) in zip(spans, self._pieces(spans), strict=True):
            stored, first, stop = span
            self._check_rows(span, note_bytes, vector_bytes)
            embedding_ids += stored.embedding_ids(first, stop)
            if notes:
                bodies += note_bytes
            if vectors:
                blocks.append(_matrix(stored, stop - first, vector_bytes))
        return RowPage(bodies, merged(blocks), embedding_ids)

    def _row_now(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        (span,) = self._spans(np.array([loc], np.uint64))
        ((note_bytes, vector_bytes),) = self._pieces([span])
        self._check_rows(span, note_bytes, vector_bytes)
        stored, first, stop = span
        vector = _matrix(stored, 1, vector_bytes)[0].copy()
        (embedding_id,) = stored.embedding_ids(first, stop)
        return bytes(note_bytes), vector, embedding_id

    def _check_next(
        self, before: StoredMeta | None, stored: StoredMeta, after: int, stream: Stream | None
    ) -> None:
        """Refuse a gap: seqs have none in the log, revisions have none in a stream."""
        if stream is None:
            found, expected = stored.seq, (after if before is None else before.seq) + 1
        elif before is not None or after == 0:
            found = stored.event.revision
            expected = 1 if before is None else before.event.revision + 1
        else:
            return
        if found == expected:
            return
        what = "event" if stream is None else f"stream {stream}: revision"
        raise LogCorrupt(
            f"{what} {expected}: expected it before {found}, got none ({self._table.path}): events"
            " were removed; nothing was changed; run `fmemory verify` on the store",
            path=self._table.path,
            seq=expected if stream is None else None,
            last_seq=stored.seq - 1,
        )

    def _payload(self, stored: StoredMeta, data: dict[int, bytes]) -> Payload:
        try:
            return stored.payload(data.get(stored.seq, b""))
        except BytesDamage as damage:
            self._changed_or_corrupt(stored, damage)

    def _metas_of(self, seqs: Iterable[int]) -> dict[int, StoredMeta]:
        wanted = dict.fromkeys(seqs)
        found: dict[int, StoredMeta] = {}
        with self._lock:
            page = self._page
            for seq in wanted:
                if seq in page:
                    found[seq] = page[seq]
                    continue
                kept = self._kept.get(seq)
                if kept is not None:
                    self._kept.move_to_end(seq)
                    found[seq] = kept
        missing = [seq for seq in wanted if seq not in found]
        for start in range(0, len(missing), PAGE_EVENTS):
            for row in self._table.metas_of(missing[start : start + PAGE_EVENTS]):
                found[row.seq] = self.checked(row)
                self._keep(found[row.seq], len(row.meta))
        for seq in wanted:
            if seq not in found:
                raise NotFound(
                    f"event: expected one with seq {seq}, got none ({self._table.path})",
                    reason=Reason.EVENT_NOT_FOUND,
                    key=str(seq),
                )
        return found

    def _keep(self, stored: StoredMeta, size: int) -> None:
        with self._lock:
            self._kept[stored.seq] = stored
            self._kept_bytes += size
            if self._kept_bytes > KEPT_META_BYTES_MAX:
                # Sizes are not kept: drop the older half.
                for _ in range((len(self._kept) + 1) // 2):
                    self._kept.popitem(last=False)
                self._kept_bytes //= 2

    def _keep_chain(self, seq: int, chain: bytes) -> None:
        with self._lock:
            if seq > self._chain_seqs[-1]:
                if len(self._chain_seqs) > 1 and self._chain_seqs[-1] % CHAIN_STEP:
                    self._chain_seqs.pop()
                    self._chains.pop()
                self._chain_seqs.append(seq)
                self._chains.append(chain)

    def _spans(self, locs: UInt64Array) -> list[_Span]:
        """Neighbouring rows of one event, with its meta."""
        spans = list(row_spans(locs))
        metas = self._metas_of(seq for seq, _, _ in spans)
        for seq, first, stop in spans:
            stored = metas[seq]
            if stored.event.type == FORGOTTEN:  # How many rows it had is not kept.
                raise DataErased(seq)
            if not stored.has_rows or stop > stored.row_count:
                raise NotFound(
                    f"row: expected row {stop - 1} of event {seq}, got an event with"
                    f" {stored.row_count if stored.has_rows else 0} ({self._table.path})",
                    reason=Reason.EVENT_NOT_FOUND,
                    key=f"{seq}:{first}",
                )
            if stored.holds_erased(first, stop):
                raise DataErased(seq)
        return [(metas[seq], first, stop) for seq, first, stop in spans]

    def _pieces(self, spans: Sequence[_Span]) -> Iterator[tuple[memoryview, memoryview]]:
        """Notes and vectors of each span: of small events from the whole, else only the piece."""
        start = 0
        while start < len(spans):
            size, stop = 0, start
            while stop < len(spans) and (stop == start or size < BATCH_BYTES_MAX):
                size += _read_bytes(spans[stop])
                stop += 1
            yield from self._pieces_of(spans[start:stop])
            start = stop

    def _pieces_of(self, spans: Sequence[_Span]) -> Iterator[tuple[memoryview, memoryview]]:
        whole = {stored.seq: stored.check for stored, _, _ in spans if _is_whole(stored)}
        data = self._table.data_of(whole) if whole else {}
        wanted = [
            Part(stored.seq, stored.check, *extent)
            for stored, first, stop in spans
            if stored.seq not in whole
            for extent in (stored.notes_extent(first, stop), stored.vectors_extent(first, stop))
        ]
        parts = iter(self._table.parts(wanted) if wanted else [])
        for stored, first, stop in spans:
            if stored.seq not in whole:
                yield memoryview(next(parts)), memoryview(next(parts))
                continue
            view = memoryview(data.get(stored.seq, b""))
            notes, vectors = stored.notes_extent(first, stop), stored.vectors_extent(first, stop)
            yield (
                view[notes[0] : notes[0] + notes[1]],
                view[vectors[0] : vectors[0] + vectors[1]],
            )

    def _check_rows(self, span: _Span, notes: memoryview, vectors: memoryview) -> None:
        stored, first, stop = span
        try:
            stored.check_rows(first, stop, notes, vectors)
        except BytesDamage as damage:
            self._changed_or_corrupt(stored, damage)

    def _changed_or_corrupt(self, stored: StoredMeta, damage: BytesDamage) -> NoReturn:
        """Data do not fit a meta: because data were taken out since it was read, or by damage."""
        now = self._table.metas_of([stored.seq])
        if now and now[0].check != stored.check:
            raise _MetasChangedError
        self._corrupt(stored.seq, damage)

    def _corrupt(self, seq: int, damage: BytesDamage) -> NoReturn:
        row = f", row {damage.args[1]}" if len(damage.args) > 1 else ""
        raise LogCorrupt(
            f"event {seq}{row}: {damage.args[0]} ({self._table.path}); other events are intact and"
            " nothing was changed; run `fmemory verify` on the store",
            path=self._table.path,
            seq=seq,
            last_seq=seq,
        ) from damage


def _run_of(gathered: Sequence[StoredMeta]) -> RowRun:
    first, last = gathered[0], gathered[-1]
    ids: list[str] = []
    for stored in gathered:
        ids += stored.event.keys
    timestamps: Float64Array = np.concatenate([stored.timestamps for stored in gathered])
    locs = np.concatenate(
        [
            np.arange(stored.row_count, dtype=np.uint64) + np.uint64(stored.seq << LOC_ROW_BITS)
            for stored in gathered
        ]
    )
    return RowRun(
        first.event.stream,
        first.event.revision,
        len(gathered),
        first.seq,
        last.seq,
        ids,
        timestamps,
        locs,
    )


def _groups(metas: Iterable[StoredMeta]) -> Iterator[list[StoredMeta]]:
    """Events whose data may be read together."""
    group: list[StoredMeta] = []
    size = 0
    for stored in metas:
        if group and (size + stored.data_bytes > BATCH_BYTES_MAX or len(group) == PAGE_EVENTS):
            yield group
            group, size = [], 0
        group.append(stored)
        size += stored.data_bytes
    if group:
        yield group


def _is_whole(stored: StoredMeta) -> bool:
    return stored.data_bytes <= WHOLE_BYTES_MAX


def _read_bytes(span: _Span) -> int:
    stored, first, stop = span
    if _is_whole(stored):
        return stored.data_bytes
    return stored.notes_extent(first, stop)[1] + stored.vectors_extent(first, stop)[1]


def _matrix(stored: StoredMeta, count: int, vectors: memoryview) -> VectorArray:
    if not stored.vector_bytes:
        return stored.empty_vectors(count)
    return stored.vectors(vectors)
