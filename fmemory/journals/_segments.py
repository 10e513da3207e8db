"""Events in binary segment files: the default of `fmemory.open(path)`.

`fmemory_segments.Log` does the work; here its errors become those of the contract, chained.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from fmemory import errors
from fmemory._engine.backend import JournalBackend
from fmemory.journal import (
    Capabilities,
    Commit,
    Compaction,
    DataErased,
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
from fmemory.journals._options import check_options
from fmemory_segments import FileSystem, Log, LogError, LogReason, RecoveryReport
from fmemory_segments import errors as log_errors
from fmemory_segments.event import UInt64Array, VectorArray

Item = TypeVar("Item")

LOCK_TIMEOUT_S = 5.0
_NOT_A_STORE = frozenset({LogReason.NOT_A_FOLDER, LogReason.NOT_EMPTY})


class SegmentJournal:
    """A `Log` as a journal."""

    capabilities = Capabilities(kind="segments", persistent=True, multi_process=True)

    def __init__(self, log: Log) -> None:
        self._log = log
        self.store_id = log.store_id
        self.read_only = log.read_only

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self._log.path

    @property
    def recovery(self) -> RecoveryReport:
        """What opening had to repair."""
        return self._log.recovery

    # Reading

    def refresh(self) -> int:
        """The newest visible seq."""
        try:
            return self._log.refresh()
        except LogError as error:
            raise_translated(error)

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """What an index is built from."""
        try:
            events = self._log.fold(after, upto, stream)
        except LogError as error:
            raise_translated(error)
        return _translated(events)

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
        return _translated(
            self._log.envelopes(after, upto, stream=stream, backwards=backwards, limit=limit)
        )

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """Payloads, checked."""
        try:
            return self._log.payloads(seqs)
        except LogError as error:
            raise_translated(error)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """Rows, checked."""
        try:
            return self._log.rows(locs, notes=notes, vectors=vectors)
        except log_errors.RowErased as error:
            raise _erased(error) from error
        except LogError as error:
            raise_translated(error)

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """One row, checked."""
        try:
            return self._log.row(loc)
        except log_errors.RowErased as error:
            raise _erased(error) from error
        except LogError as error:
            raise_translated(error)

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        """Events of which data were taken out."""
        return _translated(self._log.erased(after, upto, stream))

    def find(self, stream: Stream, event_id: str) -> int | None:
        """Seq of an event by its idempotency key."""
        try:
            return self._log.find(stream, event_id)
        except LogError as error:
            raise_translated(error)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams, newest first."""
        try:
            return self._log.streams(prefix, before, limit)
        except LogError as error:
            raise_translated(error)

    def head(self, upto: int | None = None) -> Head:
        """The newest event with its chain value."""
        try:
            return self._log.head(upto)
        except LogError as error:
            raise_translated(error)

    # Writing

    def commit(
        self,
        plan: Plan,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what the plan returns."""
        try:
            return self._log.commit(plan, durability=durability, timeout_s=timeout_s)
        except LogError as error:
            raise_translated(error)

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        """Append events as they are."""
        try:
            return self._log.import_exact(events)
        except LogError as error:
            raise_translated(error)

    def compact(
        self, erasure: Erasure, *, timeout_s: float | None = None, exclusive: bool = False
    ) -> Compaction:
        """Take data out, and write what is left side by side; nobody is kept out."""
        del exclusive  # all space comes back anyway
        try:
            return self._log.compact(erasure, timeout_s=timeout_s)
        except LogError as error:
            raise_translated(error)

    def sync(self, upto: int | None = None) -> int:
        """Make events durable."""
        try:
            return self._log.sync(upto)
        except LogError as error:
            raise_translated(error)

    # Handle

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when there may be new events."""
        return self._log.watch(callback)

    def check_place(self) -> None:
        """Check that the folder is still where it was opened."""
        try:
            self._log.check_place()
        except LogError as error:
            raise_translated(error)

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        """Check every byte."""
        try:
            return self._log.verify(pinned)
        except LogError as error:
            raise_translated(error)

    def usage(self) -> list[Usage]:
        """Events and payload bytes by stream and type."""
        try:
            return [
                Usage(one.stream, one.type, one.event_count, one.payload_bytes)
                for one in self._log.usage()
            ]
        except LogError as error:
            raise_translated(error)

    def sizes(self) -> JournalSizes:
        """Segment files and their bytes."""
        try:
            stats = self._log.stats()
        except LogError as error:
            raise_translated(error)
        return JournalSizes(stats.stored_bytes, stats.segment_count, stats.fragment_count)

    def health(self) -> JournalHealth:
        """The state of the handle."""
        health = self._log.health()
        failure = health.compaction_failure
        failed = (f"the last compaction failed: {failure}",) if failure else ()
        return JournalHealth(health.state, health.durable_seq, (*health.notices, *failed))

    def close(self) -> None:
        """Release files and threads."""
        self._log.close()


class SegmentMemoryBackend(JournalBackend):
    """A memory in a folder of segment files, shared by any number of processes of one machine.

    Args:
        root: The folder.
        create: Create it if there is none.
        read_only: Never write, not even to repair; works on a folder one may not write to.
        durability: When writes are acknowledged: `fsync` on disk, `interval` and `os` before.
        lock_timeout_s: Longest wait for other writers, seconds.
        allow_network: Open a store on a network file system, whose locks may not hold.
        file_system: The system calls; for tests.
        clock: Unix nanoseconds; for tests.

    Raises:
        NotFound: There is no store and none was to be created.
        LogCorrupt: Stored events are damaged; no file was changed.
        StorageError: The folder cannot be used; the reason says why.

    Cost: O(events) once, 0.3 to 0.5 µs a record in sealed segments; about 200 bytes resident a
        record.
    """

    kind = "segments"

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        allow_network: bool = False,
        file_system: FileSystem | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        check_options(durability, lock_timeout_s)
        try:
            log = Log.open(
                Path(root),
                fs=file_system,
                create=create,
                read_only=read_only,
                durability=durability,
                lock_timeout_s=lock_timeout_s,
                allow_network=allow_network,
                clock=clock,
            )
        except LogError as error:
            raise_translated(error)
        self.recovery = log.recovery
        super().__init__(SegmentJournal(log), durability=durability, path=str(log.path))


def raise_translated(error: LogError) -> NoReturn:
    """Raise what the contract calls an error of the log, chained from it."""
    raise _contract_error(error) from error


def _erased(error: log_errors.RowErased) -> DataErased:
    assert error.first_seq is not None
    return DataErased(error.first_seq)


def _contract_error(error: LogError) -> errors.MemoryBackendError:
    message, path = str(error), None if error.path is None else str(error.path)
    match error:
        case log_errors.LogNotFound():
            return errors.NotFound(message, reason=errors.Reason.STORE_NOT_FOUND, key=path or "")
        case log_errors.LogCorrupt():
            return errors.LogCorrupt(
                message,
                path=path,
                offset=error.offset,
                seq=error.first_seq,
                last_seq=error.last_seq,
            )
        case log_errors.StoreBusy():
            return errors.StoreBusy(message, path=path)
        case log_errors.ReadOnlyLog():
            return errors.ReadOnlyStore(message, path=path)
        case log_errors.LogClosed():
            return errors.ClosedStore(message, path=path)
        case log_errors.InvalidDraft():
            return errors.ContractError(message)
        case log_errors.NetworkFileSystem():
            return errors.UnsupportedPlatform(
                message, path=path, reason=errors.Reason.NETWORK_FILE_SYSTEM
            )
    return _storage_error(error, message, path)


def _storage_error(error: LogError, message: str, path: str | None) -> errors.StorageError:
    leaf: type[errors.StorageError] = errors.StorageError
    reason: errors.Reason | None = None
    match error:
        case log_errors.StoreFull():
            leaf = errors.StoreFull
        case log_errors.LogPoisoned():
            leaf = errors.LogPoisoned
        case log_errors.ForkedStore():
            leaf = errors.ForkedStore
        case log_errors.UnsupportedPlatform():
            leaf = errors.UnsupportedPlatform
        case log_errors.UnsupportedFormat():
            reason = errors.Reason.UNKNOWN_FORMAT
        case log_errors.NotALog() if error.reason in _NOT_A_STORE:
            reason = errors.Reason.NOT_A_STORE
        case _:
            pass
    return leaf(message, path=path, offset=error.offset, seq=error.first_seq, reason=reason)


def _translated(items: Iterator[Item]) -> Iterator[Item]:
    try:
        yield from items
    except LogError as error:
        raise_translated(error)
