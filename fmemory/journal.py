"""Journals: where events are stored, and nothing else.

A journal keeps events in order and gives them back. It answers no queries, folds no state and knows
no rule of the contract: `fmemory.JournalBackend` does that once, over any journal. Whoever has a
database of their own implements `Journal`, runs `fmemory.testing.JournalSuite`, and has a memory.

What a journal must do well is small. A *plan* is a function without side effects that reads the
newest state and says what to append; the journal calls it under its own exclusion (a file lock,
`BEGIN IMMEDIATE`, a locked head row) after catching up, may call it again, and stores what it
returns whole or not at all. Every read takes `upto`, which pins it: the log only
grows, and a compaction takes data out of it without moving anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from fmemory_segments import (
    Blob,
    Commit,
    Compaction,
    Draft,
    Envelope,
    Erased,
    ErasedEvent,
    Erasure,
    Finding,
    Head,
    Payload,
    Pinned,
    PinnedHeads,
    RowPage,
    RowRun,
    Rows,
    StoredEvent,
    Stream,
    StreamInfo,
)
from fmemory_segments.event import UInt64Array, VectorArray

__all__ = [
    "Blob",
    "Capabilities",
    "Commit",
    "Compaction",
    "DataErased",
    "Draft",
    "Durability",
    "Envelope",
    "Erased",
    "ErasedEvent",
    "Erasure",
    "Finding",
    "Head",
    "Journal",
    "JournalHealth",
    "JournalSizes",
    "Payload",
    "Pinned",
    "PinnedHeads",
    "Plan",
    "Reader",
    "RowPage",
    "RowRun",
    "Rows",
    "StoredEvent",
    "Stream",
    "StreamInfo",
    "Txn",
    "Usage",
]

Durability: TypeAlias = Literal["fsync", "interval", "os"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a journal declares of itself; nothing is inferred.

    Attributes:
        kind: The journal's name: `segments`, `in_memory`, …
        persistent: Events outlive the process.
        multi_process: Several processes may write at once.
        reads_streams: One stream can be folded without reading the others, so the engine loads
            state stream by stream instead of wholly.
    """

    kind: str
    persistent: bool
    multi_process: bool
    reads_streams: bool = False


class DataErased(LookupError):  # noqa: N818 - as the errors of the contract
    """A row was asked for whose data a compaction took out. The engine never passes it on.

    Attributes:
        seq: Of the event that put the row.
    """

    def __init__(self, seq: int) -> None:
        super().__init__(f"row: expected its data, got a row of event {seq} that was erased")
        self.seq = seq


@dataclass(frozen=True, slots=True)
class Usage:
    """How much one kind of event of one stream holds."""

    stream: Stream
    type: str
    event_count: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """The state of a journal's handle, for monitoring.

    Attributes:
        state: `ok`, `full` (writes refused until there is space), `poisoned` (reopen) or `closed`.
        durable_seq: Everything up to here is known to be on disk.
        notices: Sentences about what a person should know: recovered tails, foreign files.
    """

    state: Literal["ok", "full", "poisoned", "closed"]
    durable_seq: int
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalSizes:
    """What a journal occupies; None where that cannot be told.

    Attributes:
        stored_bytes: Bytes on disk.
        segment_count: Files of events.
        fragment_count: How many of them a compaction would make into fewer.
    """

    stored_bytes: int | None = None
    segment_count: int | None = None
    fragment_count: int | None = None


class Reader(Protocol):
    """Events and rows of a log, read without blocking its writers."""

    @property
    def store_id(self) -> bytes:
        """16 bytes that name this log for ever; cursors are bound to them."""
        ...

    def refresh(self) -> int:
        """The newest visible seq, other processes' events included.

        Cost: about one system call when nothing is new.
        """
        ...

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """What an index of events `after < seq <= upto` is built from, without their payloads.

        Puts of records come as `RowRun`, all else as `Envelope`. The order is that of the log
        within each stream, and any order between streams.
        """
        ...

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """Envelopes with `after < seq <= upto`, by seq; no lock is held between items."""
        ...

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """The payloads of these events, checked, in the order asked for."""
        ...

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """The rows at these places, checked, in the order asked for, in memory of their own.

        Args:
            locs: uint64, shape (n,): `seq << 16 | row`, of rows that were put.

        Raises:
            DataErased: The data of one of them were taken out.
        """
        ...

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """One row, checked: its note body, its vector, the caller's to change, its embedding id.

        What `rows` gives for one loc, without the page: a point read is mostly overhead.

        Raises:
            DataErased: Its data were taken out.
        """
        ...

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        """Events `after < seq <= upto` of which data were taken out, by seq.

        Cost: small where nothing was.
        """
        ...

    def find(self, stream: Stream, event_id: str) -> int | None:
        """The seq of the event of this stream that carries this idempotency key."""
        ...

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams whose first labels are `prefix`, the most recently written first.

        Args:
            before: Only streams whose last seq is smaller: the place where a page ended.

        Cost: O(limit), not O(streams).
        """
        ...


class Txn(Reader, Protocol):
    """What a plan sees: the newest state, which nobody else can change while it runs."""

    @property
    def head_seq(self) -> int:
        """The newest seq; drafts become head_seq + 1, head_seq + 2, …"""
        ...

    @property
    def now_ns(self) -> int:
        """The time that the drafts will carry, Unix nanoseconds."""
        ...


Plan: TypeAlias = Callable[[Txn], Sequence[Draft] | None]


@runtime_checkable
class Journal(Reader, Protocol):
    """A log of events. Threads may share one."""

    @property
    def capabilities(self) -> Capabilities:
        """What this journal can do."""
        ...

    @property
    def read_only(self) -> bool:
        """Commits are refused."""
        ...

    def commit(
        self,
        plan: Plan,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what `plan` returns as one batch: all of it or nothing, also after a crash.

        Args:
            plan: Called under exclusion after catching up, perhaps by another thread that commits
                at the same time; may be called again. None or no drafts: nothing is written. What
                it raises is passed on, and nothing is written.
            durability: When the call returns; None = as the journal was opened.
            timeout_s: Longest wait for other writers; None = as opened.

        Returns:
            What was promised, or None where nothing was to be written.
        """
        ...

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        """Append events with the seq, revision, times and nonces that they carry, as one batch.

        The first must be the head's successor. The chain comes out as where they came from.
        """
        ...

    def compact(
        self, erasure: Erasure, *, timeout_s: float | None = None, exclusive: bool = False
    ) -> Compaction:
        """Take data out for good, and make what is left smaller and faster where that is due.

        Writers and readers of all processes go on. Seqs, envelopes, locs, digests and the chain
        stay as they are, and what else is stored reads as before.

        Events are forgotten in the order of their seqs or all at once, so nobody ever sees the stub
        of a deletion beside what it deleted.

        Args:
            erasure: What to take out. Nothing else of the log is changed.
            timeout_s: Longest wait for other writers; None = as opened.
            exclusive: Also do what keeps others out meanwhile, where the journal knows such a
                thing: give all free space back.

        Returns:
            What was done. Where `pending` is empty, no byte of what was to be taken out is left in
            any file or row of the log.
        """
        ...

    def head(self, upto: int | None = None) -> Head:
        """The newest event, or `upto`, with the chain value up to it."""
        ...

    def sync(self, upto: int | None = None) -> int:
        """Make everything up to `upto` (None = the head) durable; returns the durable seq."""
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from some thread when there may be new events; returns how to stop.

        A hint: it may come late, twice or not at all, so whoever waits also polls.
        """
        ...

    def check_place(self) -> None:
        """Check that the store is still where it was opened; asked by whoever waits for events.

        What was removed, or made anew under the same name, gets no more events of others.

        Raises:
            NotFound: It was moved, removed or made anew. A journal that cannot tell says nothing.

        Cost: one look at a name at most.
        """
        ...

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        """Check everything that is stored; what is wrong, by type; nothing is changed.

        Args:
            pinned: One head that was kept elsewhere, or several; `PinnedHeads` compares them with
                the chain values that a journal comes by, and makes the findings.
        """
        ...

    def usage(self) -> list[Usage]:
        """How many events and payload bytes each type of each stream holds."""
        ...

    def sizes(self) -> JournalSizes:
        """What is occupied on disk."""
        ...

    def health(self) -> JournalHealth:
        """The state of this handle."""
        ...

    def close(self) -> None:
        """Release files and threads; a second call does nothing."""
        ...
