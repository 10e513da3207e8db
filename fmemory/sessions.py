"""Session operations: bootstrap artifacts and transcripts. Each sync one beside its async twin.

Three reads and seven writes are abstract. A session comes into being with the first write to it,
with a manifest or without. `memory.session(id)` is a handle with the same operations without their
first argument, and with `run()`, which records how a run went and who made its writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from fmemory._json_values import type_name
from fmemory._model import check_int
from fmemory._receipt import Receipt
from fmemory._runner import Runner
from fmemory.errors import ContractError, Reason
from fmemory.session_handle import Session, SessionView
from fmemory.session_models import (
    BootstrapState,
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
    SessionPage,
)

__all__ = [
    "TRANSCRIPT_APPEND_MAX",
    "SessionListing",
    "SessionReads",
    "SessionWrites",
    "check_manifest",
    "check_messages",
    "transcript_window",
]

TRANSCRIPT_APPEND_MAX = 65_535
"""Most messages in one append."""


def check_manifest(session_id: str, manifest: object) -> SessionManifest:
    """The manifest itself, when it is that of the session.

    Raises:
        ContractError: It is not a SessionManifest, or another session's.
    """
    if not isinstance(manifest, SessionManifest):
        raise ContractError(
            f"expected SessionManifest, got {type_name(manifest)}",
            where="manifest",
            reason=Reason.WRONG_TYPE,
        )
    if manifest.session_id != session_id:
        raise ContractError(
            f"expected the manifest of session {session_id!r}, got that of"
            f" {manifest.session_id!r}; nothing was written",
            where="manifest.session_id",
            reason=Reason.MISMATCH,
        )
    return manifest


def check_messages(messages: object) -> tuple[Message, ...]:
    """The messages as a tuple.

    Raises:
        ContractError: Not a sequence of Messages, or more than `TRANSCRIPT_APPEND_MAX`.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise ContractError(
            f"expected a sequence of Message, got {type_name(messages)}"
            + ("; put one into a list" if isinstance(messages, Message) else ""),
            where="messages",
            reason=Reason.WRONG_TYPE,
        )
    if len(messages) > TRANSCRIPT_APPEND_MAX:
        raise ContractError(
            f"expected at most {TRANSCRIPT_APPEND_MAX} messages in one call, got {len(messages)}",
            where="messages",
            reason=Reason.TOO_LARGE,
        )
    for index, message in enumerate(messages):
        if not isinstance(message, Message):
            raise ContractError(
                f"expected Message, got {type_name(message)}; fmemory.messages converts those of"
                " providers",
                where=f"messages[{index}]",
                reason=Reason.WRONG_TYPE,
            )
    return tuple(messages)


def transcript_window(count: int, last: int | None, after: int, limit: int | None) -> range:
    """Which of `count` messages a read asks for, as positions from 0.

    Args:
        count: Length of the transcript, 0 or more.
        last: Only the newest so many of those behind `after`; None = all.
        after: Leave out so many from the beginning.
        limit: At most so many, from the oldest; not together with `last`. None = all.

    Raises:
        ContractError: `last` or `limit` below 1, `after` below 0, or both `last` and `limit`.

    >>> transcript_window(10, 3, 0, None)
    range(7, 10)
    >>> transcript_window(10, None, 4, 2)
    range(4, 6)
    """
    for name, value, least in (("last", last, 1), ("after", after, 0), ("limit", limit, 1)):
        if value is None:
            continue
        try:
            number = check_int(value)
        except ContractError as error:
            raise error.within(name) from None
        if number < least:
            raise ContractError(
                f"expected {least} or more, got {number}", where=name, reason=Reason.OUT_OF_RANGE
            )
    if last is not None and limit is not None:
        raise ContractError(
            "expected last (the newest) or limit (the oldest), got both",
            where="limit",
            reason=Reason.UNSUPPORTED,
        )
    start = min(after, count)
    if last is not None:
        return range(max(start, count - last), count)
    return range(start, count if limit is None else min(count, start + limit))


class SessionReads(Runner, ABC):
    """Reading sessions."""

    @abstractmethod
    def is_initialized(self, session_id: str) -> bool:
        """Whether the session has a manifest.

        Raises:
            ContractError: Not a non-empty str.
            StorageError: The store failed. Nothing was changed.
        """

    async def ais_initialized(self, session_id: str) -> bool:
        """As `is_initialized`, without blocking the event loop."""
        return await self._run(self.is_initialized, session_id)

    @abstractmethod
    def load_bootstrap_state(self, session_id: str) -> BootstrapState:
        """Everything a harness needs to go on; empty for an unknown session.

        Progress and checkpoints are complete and in the order written.

        Raises:
            ContractError: Not a non-empty str.
            StorageError: The store failed. Nothing was changed.
        """

    async def aload_bootstrap_state(self, session_id: str) -> BootstrapState:
        """As `load_bootstrap_state`, without blocking the event loop."""
        return await self._run(self.load_bootstrap_state, session_id)

    @abstractmethod
    def load_transcript_messages(
        self,
        session_id: str,
        *,
        last: int | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[Message, ...]:
        """Messages of the transcript, oldest first; () for an unknown session.

        Args:
            session_id: The session.
            last: Only the newest so many, 1 or more.
            after: Leave out so many from the beginning, 0 or more.
            limit: At most so many, from the oldest, 1 or more; not together with `last`.

        Raises:
            ContractError: An argument breaks a rule (`transcript_window` checks them).
            StorageError: The store failed. Nothing was changed.

        Cost: O(messages returned).
        """

    async def aload_transcript_messages(
        self,
        session_id: str,
        *,
        last: int | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[Message, ...]:
        """As `load_transcript_messages`, without blocking the event loop."""
        return await self._run(
            self.load_transcript_messages, session_id, last=last, after=after, limit=limit
        )

    def session(self, session_id: str) -> SessionView:
        """A handle of one session, known or not. Nothing is read or written by making it.

        Raises:
            ContractError: Not a non-empty str.
        """
        return SessionView(self, session_id)


class SessionWrites(SessionReads):
    """Writing sessions. Each call happens whole or not at all."""

    @abstractmethod
    def initialize_session_if_missing(
        self,
        session_id: str,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> bool:
        """Give a session its first artifacts, unless it has a manifest.

        True for the one caller that did it, among any number of racing processes. False for all
        others: then nothing was written.

        Raises:
            ContractError: A manifest of another session, or a repeated feature id. Nothing was
                written.
            StorageError: The store failed; the class says what holds.

        Durability: as the store's policy has it; on disk when this returns, by default.
        """

    async def ainitialize_session_if_missing(
        self,
        session_id: str,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> bool:
        """As `initialize_session_if_missing`, without blocking the event loop."""
        return await self._run_write(
            self.initialize_session_if_missing,
            session_id,
            manifest,
            feature_list,
            initial_progress_entry,
            initial_checkpoint,
        )

    @abstractmethod
    def save_manifest(
        self,
        session_id: str,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Replace the manifest; a session that did not exist comes into being.

        Args:
            session_id: The session.
            manifest: Its new manifest.
            event_id: Idempotency key: a second write with it gives the first one's receipt.
            expected_revision: Revision the session must have; None = any.

        Raises:
            ContractError: A manifest of another session. Nothing was written.
            Conflict: The expected revision is not the actual one, or the event id stands for
                something else. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as the store's policy has it; the receipt says which held.
        """

    async def asave_manifest(
        self,
        session_id: str,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `save_manifest`, without blocking the event loop."""
        return await self._run_write(
            self.save_manifest,
            session_id,
            manifest,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    @abstractmethod
    def append_progress_entry(
        self,
        session_id: str,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Add an entry to the end of the progress log.

        Args and errors: as `save_manifest`.
        """

    async def aappend_progress_entry(
        self,
        session_id: str,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `append_progress_entry`, without blocking the event loop."""
        return await self._run_write(
            self.append_progress_entry,
            session_id,
            entry,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    @abstractmethod
    def replace_feature_list(
        self,
        session_id: str,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Replace the checklist; ids are unique in it.

        Args and errors: as `save_manifest`.
        """

    async def areplace_feature_list(
        self,
        session_id: str,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `replace_feature_list`, without blocking the event loop."""
        return await self._run_write(
            self.replace_feature_list,
            session_id,
            feature_list,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    @abstractmethod
    def update_feature_pass(
        self,
        session_id: str,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Say of one feature whether it passes. Saying what already holds writes nothing.

        Args and errors: as `save_manifest`, and

        Raises:
            NotFound: The session has no such feature. Nothing was written.
        """

    async def aupdate_feature_pass(
        self,
        session_id: str,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `update_feature_pass`, without blocking the event loop."""
        return await self._run_write(
            self.update_feature_pass,
            session_id,
            feature_id,
            passes,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    @abstractmethod
    def record_run_checkpoint(
        self,
        session_id: str,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Add a run checkpoint to the end; none is replaced.

        Args and errors: as `save_manifest`.
        """

    async def arecord_run_checkpoint(
        self,
        session_id: str,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `record_run_checkpoint`, without blocking the event loop."""
        return await self._run_write(
            self.record_run_checkpoint,
            session_id,
            checkpoint,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    @abstractmethod
    def append_transcript_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """Add messages to the end of the transcript, all or none; adding none writes nothing.

        Args and errors: as `save_manifest`.
        """

    async def aappend_transcript_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        """As `append_transcript_messages`, without blocking the event loop."""
        return await self._run_write(
            self.append_transcript_messages,
            session_id,
            messages,
            event_id=event_id,
            expected_revision=expected_revision,
        )

    def session(self, session_id: str) -> Session:
        """A handle of one session, known or not. Nothing is read or written by making it.

        Raises:
            ContractError: Not a non-empty str.
        """
        return Session(self, session_id)


class SessionListing(Runner, ABC):
    """Finding sessions; for stores and views that keep them in order of recency."""

    @abstractmethod
    def list_sessions(self, limit: int = 50, cursor: str | None = None) -> SessionPage:
        """Sessions, the most recently written first.

        Args:
            limit: 1 to `SCAN_LIMIT_MAX`.
            cursor: `next_cursor` of the page before; None = from the newest.

        Raises:
            ContractError: `limit` is out of range.
            InvalidCursor: Malformed, or another store's.
            StorageError: The store failed. Nothing was changed.

        Cost: O(limit), whatever the number of sessions.
        """

    async def alist_sessions(self, limit: int = 50, cursor: str | None = None) -> SessionPage:
        """As `list_sessions`, without blocking the event loop."""
        return await self._run(self.list_sessions, limit, cursor)
