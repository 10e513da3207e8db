"""A journal over a table of events: SQLite and PostgreSQL, and whatever has rows and transactions.

A commit is one transaction of the table: the plan runs inside it, reading what is committed, and
its drafts become rows. Reads are short queries by seq, each pinned by the seqs it names; metas that
rows were read from are kept, data never is. A compaction stores events anew, without what was to be
erased, some hundred in a transaction; each of them leaves a whole log. docs/sqlite.md and
docs/postgres.md have the columns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from fmemory.errors import ContractError, NotFound, ReadOnlyStore, Reason
from fmemory.journal import (
    Commit,
    Compaction,
    Draft,
    Durability,
    Envelope,
    ErasedEvent,
    Erasure,
    Finding,
    Head,
    JournalHealth,
    JournalSizes,
    Payload,
    Pinned,
    Plan,
    RowPage,
    RowRun,
    StoredEvent,
    Stream,
    StreamInfo,
    Usage,
)
from fmemory.journals._pages import check_draft
from fmemory.journals._tables.check import check_table
from fmemory.journals._tables.erase import erase
from fmemory.journals._tables.event_table import EventRow, EventTable, TableTransaction, stream_key
from fmemory.journals._tables.reads import TableReads
from fmemory.journals._txn import JournalTxn
from fmemory_segments._watch import call_all
from fmemory_segments.event import UInt64Array, VectorArray
from fmemory_segments.event_bytes import EventBytes, meta_check, nonce_bytes, pack_event


class TableJournal:
    """Events in a table.

    Args:
        table: Closed with the journal.
        clock: Unix nanoseconds.
    """

    def __init__(self, table: EventTable, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._table = table
        self._clock = clock
        self._reads = TableReads(table)
        self._callbacks: list[Callable[[], None]] = []
        self.capabilities = table.capabilities
        self.store_id = table.store_id
        self.read_only = table.read_only

    @property
    def table(self) -> EventTable:
        """The table underneath."""
        return self._table

    # Reading

    def refresh(self) -> int:
        """The newest seq. Cost: one query."""
        self._table.check_open()
        return self._table.head_seq()

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """Index items; puts of one stream that follow each other come as one run."""
        self._table.check_open()
        return self._reads.fold(after, upto, stream)

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """Envelopes by seq, read some at a time; no query is open between items."""
        self._table.check_open()
        for stored in self._reads.metas(after, upto, stream, backwards=backwards, limit=limit):
            yield stored.envelope

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """Payloads, checked."""
        self._table.check_open()
        return self._reads.payloads(seqs)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """Rows, checked; of a large event only what is asked for is read."""
        self._table.check_open()
        return self._reads.rows(locs, notes=notes, vectors=vectors)

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """One row, checked."""
        self._table.check_open()
        return self._reads.row(loc)

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        """Events of which data were taken out, by seq, read some at a time.

        Cost: O(erased events), by an index; reads no payload.
        """
        self._table.check_open()
        return self._reads.erased(after, upto, stream)

    def find(self, stream: Stream, event_id: str) -> int | None:
        """Seq of an event by its idempotency key."""
        self._table.check_open()
        return self._table.find(stream_key(stream), event_id)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams, newest first."""
        self._table.check_open()
        return self._table.streams(prefix, before, limit)

    def head(self, upto: int | None = None) -> Head:
        """The newest event with its chain value, hashed up to here when asked for."""
        have = self.refresh()
        seq = have if upto is None else upto
        if not 0 <= seq <= have:
            raise NotFound(
                f"event: expected a seq from 0 to {have}, got {seq}",
                reason=Reason.EVENT_NOT_FOUND,
                key=str(seq),
            )
        return self._reads.head(seq)

    # Writing

    def commit(
        self,
        plan: Plan,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what the plan returns, in one transaction.

        Raises:
            StoreBusy: Others were writing all the time. Nothing was written.
            ContractError: A draft cannot be stored. Nothing was written.
            StorageError: The database failed; the class says what holds.
        """
        self._check_writable()
        with self._table.transaction(durability, timeout_s) as transaction:
            head = transaction.head_seq
            now = max(self._clock(), transaction.head_ns)
            drafts = plan(JournalTxn(self, head, now))
            if not drafts:
                return None
            for draft in drafts:
                check_draft(draft)
            packed = (_packed(draft, draft.payload) for draft in drafts)
            self._append(transaction, drafts, [now] * len(drafts), packed)
        self._notify()
        last = head + len(drafts)
        return Commit(head + 1, last, now, durable=self._table.is_durable(last))

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        """Append events as they are, in one transaction.

        Raises:
            ContractError: They do not follow the head, or one cannot be stored. Nothing was
                written.
        """
        self._check_writable()
        taken = list(events)
        if not taken:
            return None
        for stored in taken:
            if nonce_bytes(stored.payload):
                raise ContractError(
                    f"import: expected event {stored.envelope.seq} with nonces, got none; nothing"
                    " was written",
                    reason=Reason.BAD_VALUE,
                )
        envelopes = [stored.envelope for stored in taken]
        packed = [_packed(stored.envelope, stored.payload) for stored in taken]
        with self._table.transaction(None, None) as transaction:
            _check_follows(transaction, envelopes)
            times = [envelope.recorded_at_ns for envelope in envelopes]
            self._append(transaction, envelopes, times, packed)
        self._notify()
        last = envelopes[-1]
        durable = self._table.is_durable(last.seq)
        return Commit(envelopes[0].seq, last.seq, envelopes[0].recorded_at_ns, durable=durable)

    def compact(
        self, erasure: Erasure, *, timeout_s: float | None = None, exclusive: bool = False
    ) -> Compaction:
        """Take data out of events, in transactions of some hundred, then scrub where they lay.

        If it ends midway, what was taken out is gone and the rest is whole; call it again.

        Args:
            erasure: What goes. Of an event, all rows or some; of one without rows, the payload.
            timeout_s: Longest wait for other writers, each time; None = as opened.
            exclusive: Also rebuild the tables, which keeps others out meanwhile and gives space
                back to the file system.

        Raises:
            ReadOnlyStore: The handle is read-only.
            ContractError: The erasure names rows of an event without, or the other way round, or a
                row or an event that is not there. Nothing was erased.
            LogCorrupt: An event is damaged, so its digest cannot be kept; it was left alone.
            StoreBusy: Others were writing all the time.
            StorageError: The database failed; the class says what holds.

        Cost: the metas of all that is named, and the data of what was not erased before. A
            transaction holds at most 256 events, or 8 MiB, or one event.
        """
        self._check_writable("compact")
        before = self._table.stored_bytes()
        done = erase(self._table, self._reads, erasure, timeout_s)
        pending = self._table.scrub(exclusive=exclusive, timeout_s=timeout_s)
        after = self._table.stored_bytes()
        return Compaction(
            erasure.upto,
            done.rows,
            done.events,
            before,
            after,
            pending,
            forgotten_events=done.stubs,
        )

    def sync(self, upto: int | None = None) -> int:
        """Make events durable."""
        self._table.check_open()
        return self._table.sync(self._table.head_seq() if upto is None else upto)

    # Handle

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after commits of this handle, and of others if the database tells of them."""
        self._callbacks.append(callback)
        stop_table = self._table.watch(callback)

        def stop() -> None:
            stop_table()
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return stop

    def check_place(self) -> None:
        """Check that the database is still where it was opened."""
        self._table.check_open()
        self._table.check_place()

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        """Check every event and stream, and compare pinned heads."""
        return check_table(self._table, self.refresh(), pinned)

    def usage(self) -> list[Usage]:
        """Events and payload bytes by stream and type. Cost: O(events), reads no payload."""
        counts: dict[tuple[Stream, str], tuple[int, int]] = {}
        for stored in self._reads.metas(0, self.refresh(), None):
            key = (stored.event.stream, stored.event.type)
            events, size = counts.get(key, (0, 0))
            counts[key] = (events + 1, size + stored.payload_bytes)
        return [Usage(*key, *value) for key, value in counts.items()]

    def sizes(self) -> JournalSizes:
        """Bytes of the database."""
        self._table.check_open()
        return JournalSizes(self._table.stored_bytes())

    def health(self) -> JournalHealth:
        """The state of the handle."""
        return self._table.health()

    def close(self) -> None:
        """Give back connections and threads."""
        self._table.close()
        self._notify()

    # Private

    def _append(
        self,
        transaction: TableTransaction,
        sources: Sequence[Draft | Envelope],
        times: Sequence[int],
        events: Iterable[EventBytes],
    ) -> None:
        known: dict[Stream, StreamInfo] = {}
        for seq, (source, time_ns) in enumerate(
            zip(sources, times, strict=True), transaction.head_seq + 1
        ):
            before = known.get(source.stream) or self._table.stream(stream_key(source.stream))
            known[source.stream] = _continued(before, source, seq, time_ns)
        rows = _rows(sources, times, events, transaction.head_seq)
        transaction.append(rows, list(known.values()))

    def _check_writable(self, doing: str = "append") -> None:
        self._table.check_open()
        if self.read_only:
            raise ReadOnlyStore(
                f"{doing}: expected a store opened for writing, got read_only=True"
                f" ({self._table.path}); nothing was written; open it without read_only",
                path=self._table.path,
            )

    def _notify(self) -> None:
        call_all(list(self._callbacks))


def _packed(source: Draft | Envelope, payload: Payload) -> EventBytes:
    wanted = nonce_bytes(payload)
    try:
        return pack_event(source, payload, os.urandom(wanted) if wanted else b"")
    except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise ContractError(
            f"event: {error}; nothing was written; correct the event", reason=Reason.BAD_VALUE
        ) from error


def _rows(
    sources: Sequence[Draft | Envelope],
    times: Sequence[int],
    events: Iterable[EventBytes],
    head_seq: int,
) -> Iterator[EventRow]:
    """Events as rows, each packed when it is taken: of a large batch there is no second copy."""
    for seq, (source, time_ns, packed) in enumerate(
        zip(sources, times, events, strict=True), head_seq + 1
    ):
        yield EventRow(
            seq,
            stream_key(source.stream),
            source.revision,
            source.type,
            source.event_id,
            time_ns,
            packed.meta,
            meta_check(seq, time_ns, packed.meta),
            packed.data,
            packed.is_erased,
        )


def _continued(
    before: StreamInfo | None, source: Draft | Envelope, seq: int, time_ns: int
) -> StreamInfo:
    """What is known of a stream after one more event of it."""
    revision = 1 if before is None else before.revision + 1
    if source.revision != revision:
        raise ContractError(
            f"event {seq}: expected revision {revision} of stream {source.stream}, got"
            f" {source.revision}; nothing was written",
            reason=Reason.BAD_VALUE,
        )
    first_seq = seq if before is None else before.first_seq
    return StreamInfo(source.stream, revision, revision, first_seq, seq, time_ns)


def _check_follows(transaction: TableTransaction, envelopes: Sequence[Envelope]) -> None:
    seq, time_ns = transaction.head_seq, transaction.head_ns
    for envelope in envelopes:
        seq += 1
        if envelope.seq != seq or envelope.recorded_at_ns < time_ns:
            raise ContractError(
                f"import: expected event {seq} next, recorded from {time_ns} on, got"
                f" {envelope.seq}, recorded at {envelope.recorded_at_ns}; nothing was written",
                reason=Reason.BAD_VALUE,
            )
        time_ns = envelope.recorded_at_ns
