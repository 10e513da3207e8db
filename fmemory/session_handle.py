"""Handles of one session: its operations without their first argument, and `run()`.

Three classes, so that types say what can be done: `SessionView` reads (views of the past give it),
`Session` also writes (every backend), `LogSession` also does what only a log can.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fmemory._audit import Audit, audit
from fmemory._process import process_event_id
from fmemory._receipt import Receipt
from fmemory.errors import MemoryBackendError
from fmemory.session_models import (
    BootstrapState,
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
    check_session_id,
)

if TYPE_CHECKING:
    from fmemory.backend import LogBackend
    from fmemory.log_models import Event, NewEvent
    from fmemory.sessions import SessionReads, SessionWrites

__all__ = ["FAILURE_NOTE_CHARACTERS_MAX", "LogSession", "Run", "Session", "SessionView"]

FAILURE_NOTE_CHARACTERS_MAX = 1000


class SessionView:
    """One session to read: the memory's operations without their first argument.

    `MemoryView`'s operations of the same names say what they promise and raise.

    Attributes:
        id: The session's id.
    """

    def __init__(self, memory: SessionReads, session_id: str) -> None:
        self._reads = memory
        self.id = check_session_id(session_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def is_initialized(self) -> bool:
        """Whether the session has a manifest."""
        return self._reads.is_initialized(self.id)

    async def ais_initialized(self) -> bool:
        """As `is_initialized`, without blocking the event loop."""
        return await self._reads.ais_initialized(self.id)

    def load_bootstrap_state(self) -> BootstrapState:
        """Everything a harness needs to go on; empty for an unknown session."""
        return self._reads.load_bootstrap_state(self.id)

    async def aload_bootstrap_state(self) -> BootstrapState:
        """As `load_bootstrap_state`, without blocking the event loop."""
        return await self._reads.aload_bootstrap_state(self.id)

    def load_transcript_messages(
        self, *, last: int | None = None, after: int = 0, limit: int | None = None
    ) -> tuple[Message, ...]:
        """Messages of the transcript, oldest first."""
        return self._reads.load_transcript_messages(self.id, last=last, after=after, limit=limit)

    async def aload_transcript_messages(
        self, *, last: int | None = None, after: int = 0, limit: int | None = None
    ) -> tuple[Message, ...]:
        """As `load_transcript_messages`, without blocking the event loop."""
        return await self._reads.aload_transcript_messages(
            self.id, last=last, after=after, limit=limit
        )


class Session(SessionView):
    """One session to read and write: the memory's operations without their first argument.

    `MemoryBackend`'s operations of the same names say what they promise and raise.

    Attributes:
        id: The session's id.
    """

    def __init__(self, memory: SessionWrites, session_id: str) -> None:
        super().__init__(memory, session_id)
        self._writes = memory

    def initialize_session_if_missing(
        self,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> bool:
        """Give the session its first artifacts; true for the one caller that did it."""
        return self._writes.initialize_session_if_missing(
            self.id, manifest, feature_list, initial_progress_entry, initial_checkpoint
        )

    async def ainitialize_session_if_missing(
        self,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> bool:
        """As `initialize_session_if_missing`, without blocking the event loop."""
        return await self._writes.ainitialize_session_if_missing(
            self.id, manifest, feature_list, initial_progress_entry, initial_checkpoint
        )

    def save_manifest(
        self,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Replace the manifest."""
        return self._writes.save_manifest(
            self.id, manifest, event_id=event_id, expected_revision=expected_revision
        )

    async def asave_manifest(
        self,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `save_manifest`, without blocking the event loop."""
        return await self._writes.asave_manifest(
            self.id, manifest, event_id=event_id, expected_revision=expected_revision
        )

    def append_progress_entry(
        self,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Add an entry to the end of the progress log."""
        return self._writes.append_progress_entry(
            self.id, entry, event_id=event_id, expected_revision=expected_revision
        )

    async def aappend_progress_entry(
        self,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `append_progress_entry`, without blocking the event loop."""
        return await self._writes.aappend_progress_entry(
            self.id, entry, event_id=event_id, expected_revision=expected_revision
        )

    def replace_feature_list(
        self,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Replace the checklist."""
        return self._writes.replace_feature_list(
            self.id, feature_list, event_id=event_id, expected_revision=expected_revision
        )

    async def areplace_feature_list(
        self,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `replace_feature_list`, without blocking the event loop."""
        return await self._writes.areplace_feature_list(
            self.id, feature_list, event_id=event_id, expected_revision=expected_revision
        )

    def update_feature_pass(
        self,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Say of one feature whether it passes."""
        return self._writes.update_feature_pass(
            self.id, feature_id, passes, event_id=event_id, expected_revision=expected_revision
        )

    async def aupdate_feature_pass(
        self,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `update_feature_pass`, without blocking the event loop."""
        return await self._writes.aupdate_feature_pass(
            self.id, feature_id, passes, event_id=event_id, expected_revision=expected_revision
        )

    def record_run_checkpoint(
        self,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Add a run checkpoint to the end."""
        return self._writes.record_run_checkpoint(
            self.id, checkpoint, event_id=event_id, expected_revision=expected_revision
        )

    async def arecord_run_checkpoint(
        self,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `record_run_checkpoint`, without blocking the event loop."""
        return await self._writes.arecord_run_checkpoint(
            self.id, checkpoint, event_id=event_id, expected_revision=expected_revision
        )

    def append_transcript_messages(
        self,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Add messages to the end of the transcript, all or none."""
        return self._writes.append_transcript_messages(
            self.id, messages, event_id=event_id, expected_revision=expected_revision
        )

    async def aappend_transcript_messages(
        self,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `append_transcript_messages`, without blocking the event loop."""
        return await self._writes.aappend_transcript_messages(
            self.id, messages, event_id=event_id, expected_revision=expected_revision
        )

    def run(self, run_id: str, *, actor: str | None = None, reason: str | None = None) -> Run:
        """A block whose writes belong to one run, and whose outcome is recorded.

        Entering records a checkpoint "in progress", leaving one "succeeded", and an exception one
        "failed" with its type and message, before it goes on. Use `with` or `async with`. The id of
        the first event names this process, so that `replay.runs` can tell when it is gone.

        Args:
            run_id: The run; non-empty.
            actor: Who writes; None = as around.
            reason: Why; None = as around.

        Raises:
            ContractError: A value is not a non-empty str.
        """
        return Run(self, run_id, actor=actor, reason=reason)


class LogSession(Session):
    """One session of a store that keeps a log: also its events, its past and its copies.

    `LogBackend`'s operations of the same names say what they promise and raise; `delete` and `fork`
    are `delete_session` and `fork_session` there.

    Attributes:
        id: The session's id.
    """

    def __init__(self, memory: LogBackend, session_id: str) -> None:
        super().__init__(memory, session_id)
        self._log = memory

    @property
    def stream(self) -> tuple[str, ...]:
        """The stream of the session's events."""
        return ("session", self.id)

    def truncate_transcript(
        self, *, keep: int, event_id: str | None = None, expected_revision: int | None = None
    ) -> Receipt:
        """Keep the oldest so many messages."""
        return self._log.truncate_transcript(
            self.id, keep=keep, event_id=event_id, expected_revision=expected_revision
        )

    async def atruncate_transcript(
        self, *, keep: int, event_id: str | None = None, expected_revision: int | None = None
    ) -> Receipt:
        """As `truncate_transcript`, without blocking the event loop."""
        return await self._log.atruncate_transcript(
            self.id, keep=keep, event_id=event_id, expected_revision=expected_revision
        )

    def delete(
        self, *, event_id: str | None = None, expected_revision: int | None = None
    ) -> Receipt:
        """Delete the session: manifest, checklist, progress, checkpoints and transcript."""
        return self._log.delete_session(
            self.id, event_id=event_id, expected_revision=expected_revision
        )

    async def adelete(
        self, *, event_id: str | None = None, expected_revision: int | None = None
    ) -> Receipt:
        """As `delete`, without blocking the event loop."""
        return await self._log.adelete_session(
            self.id, event_id=event_id, expected_revision=expected_revision
        )

    def fork(self, target: str, *, at: int | datetime | None = None) -> LogSession:
        """A copy of the session under another id, as it is or as it was; gives its handle."""
        self._log.fork_session(self.id, target, at=at)
        return LogSession(self._log, target)

    async def afork(self, target: str, *, at: int | datetime | None = None) -> LogSession:
        """As `fork`, without blocking the event loop."""
        await self._log.afork_session(self.id, target, at=at)
        return LogSession(self._log, target)

    def history(self) -> Iterator[Event]:
        """What happened to the session, oldest first."""
        return self._log.history(session_id=self.id)

    def ahistory(self) -> AsyncGenerator[Event, None]:
        """As `history`, without blocking the event loop."""
        return self._log.ahistory(session_id=self.id)

    def events(
        self,
        after: int = 0,
        *,
        types: Sequence[str] | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[Event]:
        """Events of the session's stream; `LogReads.events` says more."""
        return self._log.events(
            after, stream=self.stream, types=types, limit=limit, backwards=backwards
        )

    def aevents(
        self,
        after: int = 0,
        *,
        types: Sequence[str] | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """As `events`, without blocking the event loop."""
        return self._log.aevents(
            after, stream=self.stream, types=types, limit=limit, backwards=backwards
        )

    def append(
        self, events: Sequence[NewEvent], *, expected_revision: int | None = None
    ) -> Receipt:
        """Add events of the caller's own types to the session's stream, all or none."""
        return self._log.append(self.stream, events, expected_revision=expected_revision)

    async def aappend(
        self, events: Sequence[NewEvent], *, expected_revision: int | None = None
    ) -> Receipt:
        """As `append`, without blocking the event loop."""
        return await self._log.aappend(self.stream, events, expected_revision=expected_revision)

    def at(self, moment: int | datetime) -> SessionView:
        """The session as it was after an event, or at a time."""
        return self._log.at(moment).session(self.id)

    async def aat(self, moment: int | datetime) -> SessionView:
        """As `at`, without blocking the event loop."""
        return (await self._log.aat(moment)).session(self.id)


class Run:
    """A run in progress; made by `Session.run`.

    Attributes:
        note: Text for the last checkpoint; the caller may set it. None = none.
    """

    def __init__(
        self, session: Session, run_id: str, *, actor: str | None, reason: str | None
    ) -> None:
        self._values = Audit(actor, run_id, reason)
        self._session = session
        self._started: RunCheckpoint | None = None
        self._audit: AbstractContextManager[Audit] | None = None
        self.run_id = run_id
        self.note: str | None = None

    def __enter__(self) -> Self:
        started = self._begin()
        try:
            self._session.record_run_checkpoint(started, event_id=self._event_id())
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._session.record_run_checkpoint(self._ended(error))
        except MemoryBackendError as failure:
            if error is None:
                raise
            error.add_note(_unrecorded(failure))
        finally:
            self._leave()

    async def __aenter__(self) -> Self:
        started = self._begin()
        try:
            await self._session.arecord_run_checkpoint(started, event_id=self._event_id())
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._session.arecord_run_checkpoint(self._ended(error))
        except MemoryBackendError as failure:
            if error is None:
                raise
            error.add_note(_unrecorded(failure))
        finally:
            self._leave()

    def _event_id(self) -> str | None:
        """An id that names this process, where the backend has ids of events."""
        return process_event_id() if isinstance(self._session, LogSession) else None

    def _begin(self) -> RunCheckpoint:
        if self._audit is not None:
            raise RuntimeError(f"run {self.run_id!r}: expected a new block, got one that is open")
        self._started = RunCheckpoint.started(self.run_id)
        values = self._values
        self._audit = audit(actor=values.actor, run_id=values.run_id, reason=values.reason)
        self._audit.__enter__()
        return self._started

    def _leave(self) -> None:
        inner, self._audit = self._audit, None
        if inner is not None:
            inner.__exit__(None, None, None)

    def _ended(self, error: BaseException | None) -> RunCheckpoint:
        assert self._started is not None, "a block is left after it was entered"
        if error is None:
            return self._started.succeeded(self.note)
        return self._started.failed(_failure_note(self.note, error))


def _failure_note(note: str | None, error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
    if len(text) > FAILURE_NOTE_CHARACTERS_MAX:
        text = text[: FAILURE_NOTE_CHARACTERS_MAX - 3] + "..."
    return text if note is None else f"{note}\n{text}"


def _unrecorded(failure: MemoryBackendError) -> str:
    return f"fmemory could not record that the run failed: {failure}"
