"""Log operations: events, the past, streams. Each sync one beside its async twin.

Only stores that keep a log have them: `JournalBackend` implements them over any journal. Iterators
hold no lock between items. A write that changes nothing records nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Self

from fmemory._json_values import JsonObject
from fmemory._receipt import Receipt
from fmemory._runner import Runner
from fmemory.log_models import Event, Health, NewEvent, Stats, StreamPage
from fmemory.record_models import (
    ClearRequest,
    DeleteRequest,
    MetaSetRequest,
    Note,
    PutRequest,
    VectorLike,
)
from fmemory.session_models import (
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
)
from fmemory.sessions import SessionListing

if TYPE_CHECKING:
    from fmemory.backend import LogView
    from fmemory_segments import Finding, Head

__all__ = ["Batch", "LogReads", "LogWrites"]


class LogReads(SessionListing):
    """Reading the log."""

    @abstractmethod
    def events(
        self,
        after: int = 0,
        *,
        stream: Sequence[str] | None = None,
        stream_prefix: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        actor: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[Event]:
        """Events by seq; all conditions given must hold.

        The log is read up to its newest event at the time of the call.

        Args:
            after: Only events of a greater seq, also when reading backwards.
            stream: Only of this stream.
            stream_prefix: Only of streams that begin with these labels.
            types: Only of these types.
            actor: Only written by this one.
            run_id: Only of this run.
            since: Only recorded then or later; an aware time.
            until: Only recorded before; an aware time.
            limit: At most so many, 1 or more.
            backwards: Newest first.

        Raises:
            ContractError: An argument breaks a rule; raised by the call, not by the first item.
            StorageError: The store failed, or an event is damaged. Nothing was changed.
        """

    def aevents(
        self,
        after: int = 0,
        *,
        stream: Sequence[str] | None = None,
        stream_prefix: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        actor: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """As `events`, without blocking the event loop."""
        return self._run_iterator(
            self.events,
            after,
            stream=stream,
            stream_prefix=stream_prefix,
            types=types,
            actor=actor,
            run_id=run_id,
            since=since,
            until=until,
            limit=limit,
            backwards=backwards,
        )

    @abstractmethod
    def event(self, seq: int) -> Event:
        """The event of this number.

        Raises:
            NotFound: There is none yet, or it is below 1.
            StorageError: The store failed, or the event is damaged. Nothing was changed.
        """

    async def aevent(self, seq: int) -> Event:
        """As `event`, without blocking the event loop."""
        return await self._run(self.event, seq)

    @abstractmethod
    def find_event(self, event_id: str, *, stream: Sequence[str] | None = None) -> Event | None:
        """The event with this idempotency key; None if there is none.

        Args:
            event_id: The key.
            stream: Look in this stream only, where the key is unique; None = the first anywhere.

        Raises:
            ContractError: An argument breaks a rule.
            StorageError: The store failed. Nothing was changed.

        Cost: O(1) in a stream, O(streams) without.
        """

    async def afind_event(
        self, event_id: str, *, stream: Sequence[str] | None = None
    ) -> Event | None:
        """As `find_event`, without blocking the event loop."""
        return await self._run(self.find_event, event_id, stream=stream)

    @abstractmethod
    def list_streams(
        self, prefix: Sequence[str] = (), limit: int = 50, cursor: str | None = None
    ) -> StreamPage:
        """Streams whose first labels are these, the most recently written first.

        Args:
            prefix: Labels; () = all streams.
            limit: 1 to `SCAN_LIMIT_MAX`.
            cursor: `next_cursor` of the page before; None = from the newest.

        Raises:
            ContractError: An argument breaks a rule.
            InvalidCursor: Malformed, or another store's.
            StorageError: The store failed. Nothing was changed.
        """

    async def alist_streams(
        self, prefix: Sequence[str] = (), limit: int = 50, cursor: str | None = None
    ) -> StreamPage:
        """As `list_streams`, without blocking the event loop."""
        return await self._run(self.list_streams, prefix, limit, cursor)

    @abstractmethod
    def history(
        self,
        *,
        session_id: str | None = None,
        record_id: str | None = None,
        namespace: Sequence[str] = (),
    ) -> Iterator[Event]:
        """What happened to one session or one record, oldest first.

        A record's history are its puts, deletes and the clears of its namespace; of a put of many
        records it shows this one.

        Args:
            session_id: The session; not together with `record_id`.
            record_id: The record.
            namespace: The record's namespace.

        Raises:
            ContractError: Neither or both ids; raised by the call, not by the first item.
            StorageError: The store failed, or an event is damaged. Nothing was changed.
        """

    def ahistory(
        self,
        *,
        session_id: str | None = None,
        record_id: str | None = None,
        namespace: Sequence[str] = (),
    ) -> AsyncGenerator[Event, None]:
        """As `history`, without blocking the event loop."""
        return self._run_iterator(
            self.history, session_id=session_id, record_id=record_id, namespace=namespace
        )

    @abstractmethod
    def follow(self, after: int, *, durable: bool = False) -> Iterator[Event]:
        """Events of a greater seq, and then each new one as it comes, for ever.

        Args:
            after: 0 or more; 0 = from the beginning.
            durable: Give an event only when it is on disk; without, it may come a moment before.

        Raises:
            ContractError: `after` is below 0; raised by the call, not by the first item.
            ClosedStore: The handle was closed while waiting.
            NotFound: The store was moved, removed or made anew while waiting.
            StorageError: The store failed, or an event is damaged. Nothing was changed.

        Cost: a hint of the file system wakes it, and a slow poll in case a hint is lost.
        """

    @abstractmethod
    def afollow(self, after: int, *, durable: bool = False) -> AsyncGenerator[Event, None]:
        """As `follow`, without blocking the event loop; waiting occupies no thread."""

    @abstractmethod
    def at(self, moment: int | datetime) -> LogView:
        """Everything as it was: after an event, or at a time (after the last event until then).

        Args:
            moment: A seq, 0 to the newest, or an aware time.

        Raises:
            ContractError: A negative seq, or a naive time.
            NotFound: The seq is not written yet.
            HistoryCompacted: That past is no longer kept; `floor` is the oldest that is.
            StorageError: The store failed. Nothing was changed.

        Cost: O(events that differ from an index at hand); the view keeps its own index.
        """

    async def aat(self, moment: int | datetime) -> LogView:
        """As `at`, without blocking the event loop."""
        return await self._run(self.at, moment)

    @abstractmethod
    def head(self) -> Head:
        """The newest event and the chain value up to it. Keep it elsewhere to find tampering.

        Raises:
            StorageError: The store failed, or an event is damaged. Nothing was changed.

        Cost: digests of the events since it was last asked for.
        """

    async def ahead(self) -> Head:
        """As `head`, without blocking the event loop."""
        return await self._run(self.head)

    @abstractmethod
    def verify(
        self, pinned: Head | str | Sequence[Head | str] | None = None
    ) -> tuple[Finding, ...]:
        """Read everything and check it; () = all is as it was written.

        Args:
            pinned: A head kept elsewhere, or its text, or several of them: also find edits,
                removals, replays and rollbacks that fit together. One head tells that something
                up to it differs; several tell between which two of them.

        Raises:
            ContractError: `pinned` is not a head, or holds none.
            StorageError: The store failed. Damage is a finding, not an error.

        Cost: O(bytes), and SHA-256 of them.
        """

    async def averify(
        self, pinned: Head | str | Sequence[Head | str] | None = None
    ) -> tuple[Finding, ...]:
        """As `verify`, without blocking the event loop."""
        return await self._run(self.verify, pinned)

    @abstractmethod
    def stats(self) -> Stats:
        """How much the store holds, by type and stream.

        Raises:
            StorageError: The store failed. Nothing was changed.
        """

    async def astats(self) -> Stats:
        """As `stats`, without blocking the event loop."""
        return await self._run(self.stats)

    @abstractmethod
    def health(self) -> Health:
        """The state of the handle; also for one that is closed or poisoned."""

    async def ahealth(self) -> Health:
        """As `health`, without blocking the event loop."""
        return await self._run(self.health)


class LogWrites(Runner, ABC):
    """Writing the log. Each call happens whole or not at all."""

    @abstractmethod
    def append(
        self,
        stream: Sequence[str],
        events: Sequence[NewEvent],
        *,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Append events of the caller's own as one batch; appending none writes nothing.

        Args:
            stream: Any stream but those of records and metadata; a session's is fine.
            events: At most `APPEND_EVENTS_MAX`; their types contain a dot.
            expected_revision: Revision the stream must have; None = any.

        Raises:
            ContractError: An argument breaks a rule. Nothing was written.
            Conflict: The expected revision is not the actual one, or an event id stands for
                something else. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as the store's policy has it; the receipt says which held.
        Cost: O(bytes); one write and one sync however many events.
        """

    async def aappend(
        self,
        stream: Sequence[str],
        events: Sequence[NewEvent],
        *,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `append`, without blocking the event loop; if cancelled, all is there or nothing."""
        return await self._run_write(
            self.append, stream, events, expected_revision=expected_revision
        )

    @abstractmethod
    def batch(self) -> AbstractContextManager[Batch]:
        """A block whose operations are written together when it ends, all or none.

        Nothing is written before the end, and reads inside the block do not see it. If the block
        raises, nothing is written.

        Raises:
            ContractError: At an operation, or at the end: a value breaks a rule. Nothing was
                written.
            DuplicateRecord: At the end. Nothing was written.
            NotFound: At the end. Nothing was written.
            Conflict: At the end. Nothing was written.
            StorageError: At the end: the store failed; the class says what holds.
        """

    @abstractmethod
    def abatch(self) -> AbstractAsyncContextManager[Batch]:
        """As `batch`, writing without blocking the event loop."""

    @abstractmethod
    def delete_stream(
        self,
        stream: Sequence[str],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Delete a stream of the caller's own: its data may be erased from then on.

        Its numbers go on, so a writer that still holds an older revision gets `Conflict`.

        Raises:
            ContractError: A stream of sessions, records or metadata, which have their own ways.
                Nothing was written.
            Conflict: The expected revision is not the actual one. Nothing was written.
            StorageError: The store failed; the class says what holds.
        """

    async def adelete_stream(
        self,
        stream: Sequence[str],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `delete_stream`, without blocking the event loop."""
        return await self._run_write(
            self.delete_stream, stream, event_id=event_id, expected_revision=expected_revision
        )

    @abstractmethod
    def truncate_transcript(
        self,
        session_id: str,
        *,
        keep: int,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Keep the oldest so many messages; keeping all that are there writes nothing.

        Args:
            session_id: The session.
            keep: 0 or more.
            event_id: Idempotency key.
            expected_revision: Revision the session must have; None = any.

        Raises:
            ContractError: An argument breaks a rule. Nothing was written.
            Conflict: The expected revision is not the actual one. Nothing was written.
            StorageError: The store failed; the class says what holds.
        """

    async def atruncate_transcript(
        self,
        session_id: str,
        *,
        keep: int,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `truncate_transcript`, without blocking the event loop."""
        return await self._run_write(
            self.truncate_transcript,
            session_id,
            keep=keep,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    @abstractmethod
    def delete_session(
        self,
        session_id: str,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Delete a session whole; deleting an unknown one writes nothing.

        A writer that still holds an older revision gets `Conflict`, so late writes do not bring it
        back; a write without expectation starts it afresh.

        Raises:
            ContractError: An argument breaks a rule. Nothing was written.
            Conflict: The expected revision is not the actual one. Nothing was written.
            StorageError: The store failed; the class says what holds.
        """

    async def adelete_session(
        self,
        session_id: str,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `delete_session`, without blocking the event loop."""
        return await self._run_write(
            self.delete_session,
            session_id,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    @abstractmethod
    def fork_session(
        self,
        source: str,
        target: str,
        *,
        at: int | datetime | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        """Begin a session as a copy of another, by value, naming its origin.

        Args:
            source: A session that exists.
            target: An id that no session has.
            at: The source as it was after this event or at this time; None = as it is.
            event_id: Idempotency key, in the target's stream.

        Raises:
            ContractError: An argument breaks a rule. Nothing was written.
            NotFound: The source does not exist (then). Nothing was written.
            Conflict: The target exists. Nothing was written.
            HistoryCompacted: That past is no longer kept. Nothing was written.
            StorageError: The store failed; the class says what holds.
        """

    async def afork_session(
        self,
        source: str,
        target: str,
        *,
        at: int | datetime | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        """As `fork_session`, without blocking the event loop."""
        return await self._run_write(self.fork_session, source, target, at=at, event_id=event_id)

    @abstractmethod
    def sync(self) -> int:
        """Make everything written so far durable, whatever the policy; gives the durable seq.

        Raises:
            StorageError: The store failed; the class says what holds.
        """

    async def async_(self) -> int:
        """As `sync`, without blocking the event loop. (Its plain name would be a keyword.)"""
        return await self._run(self.sync)

    @abstractmethod
    def bind(
        self, *, actor: str | None = None, run_id: str | None = None, reason: str | None = None
    ) -> Self:
        """The same backend, carrying audit values of its own, for threads `audit()` cannot reach.

        What is given here wins over an `audit()` around; what is not comes from it, or from the
        view this one is made of. The view shares everything with the backend and closes nothing.

        Raises:
            ContractError: A value is not a non-empty str.
        """


class Batch(ABC):
    """Operations gathered to be written together; made by `batch()`.

    Operations check their arguments at once, and the store's rules (duplicates, revisions) at the
    end, in order: a later operation sees what the earlier ones of the batch did.

    Attributes:
        receipt: Of the whole batch; None until it is written.
    """

    receipt: Receipt | None = None

    @abstractmethod
    def put(self, request: PutRequest) -> None:
        """As `MemoryBackend.put`."""

    @abstractmethod
    def add_note(
        self,
        text: str,
        vector: VectorLike = (),
        *,
        id: str | None = None,  # noqa: A002 - the note's field
        timestamp: float | None = None,
        metadata: JsonObject | None = None,
        namespace: Sequence[str] = (),
        embedding_id: str | None = None,
    ) -> Note:
        """As `MemoryBackend.add_note`; the note is given at once, and stored at the end."""

    @abstractmethod
    def delete(self, request: DeleteRequest) -> None:
        """As `MemoryBackend.delete`."""

    @abstractmethod
    def set_meta(self, request: MetaSetRequest) -> None:
        """As `MemoryBackend.set_meta`."""

    @abstractmethod
    def clear(self, request: ClearRequest) -> None:
        """As `MemoryBackend.clear`."""

    @abstractmethod
    def initialize_session_if_missing(
        self,
        session_id: str,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> None:
        """As `MemoryBackend.initialize_session_if_missing`, without saying whether it did it."""

    @abstractmethod
    def save_manifest(
        self,
        session_id: str,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `MemoryBackend.save_manifest`."""

    @abstractmethod
    def append_progress_entry(
        self,
        session_id: str,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `MemoryBackend.append_progress_entry`."""

    @abstractmethod
    def replace_feature_list(
        self,
        session_id: str,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `MemoryBackend.replace_feature_list`."""

    @abstractmethod
    def update_feature_pass(
        self,
        session_id: str,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `MemoryBackend.update_feature_pass`."""

    @abstractmethod
    def record_run_checkpoint(
        self,
        session_id: str,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `MemoryBackend.record_run_checkpoint`."""

    @abstractmethod
    def append_transcript_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `MemoryBackend.append_transcript_messages`."""

    @abstractmethod
    def truncate_transcript(
        self,
        session_id: str,
        *,
        keep: int,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `LogBackend.truncate_transcript`."""

    @abstractmethod
    def delete_session(
        self,
        session_id: str,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        """As `LogBackend.delete_session`."""

    @abstractmethod
    def append(
        self,
        stream: Sequence[str],
        events: Sequence[NewEvent],
        *,
        expected_revision: int | None = None,
    ) -> None:
        """As `LogWrites.append`."""
