"""Events in process memory: the journal for tests, for scratch work and for reading the protocol.

Everything a durable journal does but disks happens here in the plainest way: a list of events under
one lock. It is the reference that the others are compared with.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fmemory._engine.backend import JournalBackend
from fmemory._engine.work import payload_bytes
from fmemory.errors import (
    ClosedStore,
    NotFound,
    Reason,
    StorageError,
    StoreBusy,
)
from fmemory.journal import (
    Blob,
    Capabilities,
    Commit,
    Compaction,
    DataErased,
    Draft,
    Durability,
    Envelope,
    Erased,
    ErasedEvent,
    Erasure,
    Finding,
    Head,
    JournalHealth,
    JournalSizes,
    Payload,
    Pinned,
    PinnedHeads,
    Plan,
    RowPage,
    RowRun,
    Rows,
    StoredEvent,
    Stream,
    StreamInfo,
    Usage,
)
from fmemory.journals._erasure import end_of, erase, erased_of, living_of, named_seqs
from fmemory.journals._pages import ROW_MASK, check_draft, merged, row_spans
from fmemory.journals._txn import JournalTxn
from fmemory_segments import (
    FORGOTTEN,
    StreamIndex,
    chain_step,
    event_digest,
    forgotten,
    payload_digest,
)
from fmemory_segments._watch import call_all
from fmemory_segments.event import (
    LOC_ROW_BITS,
    NONCE_BYTES,
    ZERO_CHAIN,
    UInt64Array,
    VectorArray,
)


class MemoryJournal:
    """A log in a list. Nothing is durable; every receipt says so."""

    capabilities = Capabilities(kind="in_memory", persistent=False, multi_process=False)
    read_only = False

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.store_id = os.urandom(16)
        self._clock = clock
        # Plans run under the first; the second is short and never calls out.
        self._commit_lock = threading.RLock()
        self._lock = threading.Lock()
        self._events: list[StoredEvent] = []
        self._streams = StreamIndex()
        self._chain = [ZERO_CHAIN]
        self._callbacks: list[Callable[[], None]] = []
        self._closed = False

    # Reading

    def refresh(self) -> int:
        """The newest seq."""
        self._check_open()
        return len(self._events)

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """Index items, one an event."""
        for stored in self._slice(after, upto):
            event, payload = stored.envelope, stored.payload
            if stream is not None and event.stream != stream:
                continue
            if isinstance(payload, Rows):
                first = event.seq << LOC_ROW_BITS
                locs = np.arange(first, first + len(payload), dtype=np.uint64)
                yield RowRun(
                    event.stream,
                    event.revision,
                    1,
                    event.seq,
                    event.seq,
                    list(event.keys),
                    payload.timestamps,
                    locs,
                )
            else:
                yield event

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """Envelopes by seq."""
        events = self._slice(after, upto)
        left = len(events) if limit is None else limit
        for stored in reversed(events) if backwards else events:
            if left <= 0:
                return
            if stream is None or stored.envelope.stream == stream:
                left -= 1
                yield stored.envelope

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """Payloads as they were stored."""
        self._check_open()
        for seq in seqs:
            self._check_seq(seq, least=1)
        return [self._events[seq - 1].payload for seq in seqs]

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """Copies of rows."""
        self._check_open()
        bodies = bytearray(b"\xdd" + (3 * len(locs)).to_bytes(4, "big")) if notes else bytearray()
        blocks: list[VectorArray] = []
        embedding_ids: list[str | None] = []
        for seq, first, stop in row_spans(locs):
            rows = self._rows_of(seq, first, stop)
            embedding_ids += rows.embedding_ids[first:stop]
            if notes:
                bodies += rows.notes[rows.note_offsets[first] : rows.note_offsets[stop]]
            if vectors:
                blocks.append(rows.vectors[first:stop])
        return RowPage(bodies, merged(blocks), embedding_ids)

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """A copy of one row."""
        self._check_open()
        number = loc & ROW_MASK
        rows = self._rows_of(loc >> LOC_ROW_BITS, number, number + 1)
        body = bytes(rows.notes[rows.note_offsets[number] : rows.note_offsets[number + 1]])
        return body, rows.vectors[number].copy(), rows.embedding_ids[number]

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        """Events of which data were taken out, by seq."""
        for stored in self._slice(after, upto):
            if stream is not None and stored.envelope.stream != stream:
                continue
            found = erased_of(stored.envelope.seq, stored.payload)
            if found is not None:
                yield found

    def find(self, stream: Stream, event_id: str) -> int | None:
        """Seq of an event by its idempotency key."""
        with self._lock:
            return self._streams.find(stream, event_id)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams, newest first."""
        self._check_open()
        with self._lock:
            return self._streams.streams(prefix, before=before, limit=limit)

    def head(self, upto: int | None = None) -> Head:
        """The newest event with its chain value, hashed up to here when asked for."""
        seq = self.refresh() if upto is None else upto
        self._check_seq(seq, least=0)
        with self._lock:
            for stored in self._events[len(self._chain) - 1 : seq]:
                digest = event_digest(stored.envelope, payload_digest(stored.payload))
                self._chain.append(chain_step(self._chain[-1], digest))
            return Head(seq, self._chain[seq])

    # Writing

    def commit(
        self,
        plan: Plan,
        *,
        durability: Durability | None = None,  # noqa: ARG002  memory has one durability: none
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what the plan returns."""
        self._begin("commit", timeout_s)
        try:
            self._check_open()
            head = len(self._events)
            now = max(self._clock(), self._last_ns())
            drafts = plan(JournalTxn(self, head, now))
            if not drafts:
                return None
            for draft in drafts:
                check_draft(draft)
            self._extend(
                _stored(draft, head + number, now) for number, draft in enumerate(drafts, 1)
            )
        finally:
            self._commit_lock.release()
        self._notify()
        return Commit(head + 1, head + len(drafts), now, durable=False)

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        """Append events as they are."""
        with self._commit_lock:
            self._check_open()
            head = len(self._events)
            taken = list(events)
            for number, stored in enumerate(taken, head + 1):
                if stored.envelope.seq != number:
                    raise StorageError(
                        f"import: expected event {number} next, got {stored.envelope.seq};"
                        " nothing was written",
                        seq=stored.envelope.seq,
                    )
            if not taken:
                return None
            self._extend(taken)
            now = self._last_ns()
        self._notify()
        return Commit(head + 1, head + len(taken), now, durable=False)

    def compact(
        self,
        erasure: Erasure,
        *,
        timeout_s: float | None = None,
        exclusive: bool = False,  # noqa: ARG002  nothing is left behind that this would remove
    ) -> Compaction:
        """Take data out, event by event. Pages that callers hold keep what was copied."""
        rows = events = stubs = 0
        self._begin("compact", timeout_s)
        try:
            self._check_open()
            for seq in named_seqs(erasure).tolist():
                if not 1 <= seq <= len(self._events):
                    break
                stored = self._events[seq - 1]
                end = end_of(erasure, seq)
                if end is not None and stored.envelope.type != FORGOTTEN:
                    gone = living_of(stored.payload)
                    left = forgotten(stored, end)
                    stubs += 1
                elif (taken := erase(seq, stored.payload, erasure)) is not None:
                    gone = taken.erased_rows, taken.erased_events
                    left = StoredEvent(stored.envelope, taken.payload)
                else:
                    continue
                with self._lock:  # The chain is hashed under it.
                    self._events[seq - 1] = left
                rows += gone[0]
                events += gone[1]
        finally:
            self._commit_lock.release()
        return Compaction(erasure.upto, rows, events, forgotten_events=stubs)

    def sync(self, upto: int | None = None) -> int:
        """Nothing is ever durable here."""
        self._check_open()
        del upto
        return 0

    # Handle

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after every commit."""
        self._callbacks.append(callback)

        def stop() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return stop

    def check_place(self) -> None:
        """It is where it was for as long as it is there."""
        self._check_open()

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        """Compare pinned heads with the chain of what is here."""
        self._check_open()
        have = self.refresh()
        pins = PinnedHeads(pinned)
        for seq in pins.seqs:
            if seq <= have:
                pins.see(seq, self.head(seq).chain)
        return pins.findings(have)

    def usage(self) -> list[Usage]:
        """Events and payload bytes by stream and type."""
        counts: dict[tuple[Stream, str], tuple[int, int]] = {}
        for stored in self._slice(0, self.refresh()):
            key = (stored.envelope.stream, stored.envelope.type)
            events, size = counts.get(key, (0, 0))
            counts[key] = (events + 1, size + payload_bytes(stored.payload))
        return [Usage(*key, *value) for key, value in counts.items()]

    def sizes(self) -> JournalSizes:
        """There are no files."""
        return JournalSizes()

    def health(self) -> JournalHealth:
        """Ok until it is closed."""
        return JournalHealth("closed" if self._closed else "ok", durable_seq=0)

    def close(self) -> None:
        """Forget nothing, refuse everything."""
        self._closed = True
        self._notify()

    # Private

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedStore("the memory was closed, and what it held is gone; open a new one")

    def _begin(self, what: str, timeout_s: float | None) -> None:
        """Keep other writers out."""
        if not self._commit_lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise StoreBusy(
                f"{what}: expected the log in memory free within {timeout_s} s, got another writer;"
                " nothing was written; try again",
                timeout_s=timeout_s,
            )

    def _rows_of(self, seq: int, first: int, stop: int) -> Rows:
        """The rows of an event, if none of those from `first` to before `stop` was erased."""
        rows = self._events[seq - 1].payload
        if isinstance(rows, Erased):
            raise DataErased(seq)
        assert isinstance(rows, Rows)
        if rows.erased is not None and rows.erased[first:stop].any():
            raise DataErased(seq)
        return rows

    def _check_seq(self, seq: int, *, least: int) -> None:
        if not least <= seq <= len(self._events):
            raise NotFound(
                f"event: expected a seq from {least} to {len(self._events)}, got {seq}",
                reason=Reason.EVENT_NOT_FOUND,
                key=str(seq),
            )

    def _slice(self, after: int, upto: int) -> list[StoredEvent]:
        self._check_open()
        return self._events[after:upto]

    def _last_ns(self) -> int:
        return self._events[-1].envelope.recorded_at_ns if self._events else 0

    def _extend(self, events: Iterable[StoredEvent]) -> None:
        taken = list(events)
        with self._lock:
            for stored in taken:
                self._streams.apply_envelope(stored.envelope)
            self._events += taken

    def _notify(self) -> None:
        call_all(list(self._callbacks))


class InMemoryMemoryBackend(JournalBackend):
    """A memory that lives as long as its process. Durability: none.

    >>> memory = InMemoryMemoryBackend()
    >>> memory.add_note("the parser rejects empty input", id="n1").id
    'n1'
    >>> memory.close()
    """

    kind = "in_memory"

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        super().__init__(MemoryJournal(clock=clock))


def _stored(draft: Draft, seq: int, now_ns: int) -> StoredEvent:
    payload = draft.payload
    if isinstance(payload, Blob):
        payload = Blob(payload.data, payload.nonce or os.urandom(NONCE_BYTES))
    elif not payload.nonces:
        payload = Rows(
            payload.timestamps,
            payload.notes,
            payload.note_offsets,
            payload.vectors,
            payload.embedding_ids,
            os.urandom(NONCE_BYTES * len(payload)),
        )
    return StoredEvent(draft.envelope(seq, now_ns), payload)
