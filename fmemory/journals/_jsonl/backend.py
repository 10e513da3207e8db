"""Events in JSON Lines files: a memory that a person can read, grep and put in git.

`JsonlLog` does the work; here its errors become those of the contract, chained. docs/jsonl.md owns
the format.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
from fmemory.journals._jsonl.log import JsonlLog
from fmemory.journals._jsonl.read import LineReader, fold, read_payloads, read_row, read_rows
from fmemory.journals._options import check_options
from fmemory.journals._segments import LOCK_TIMEOUT_S, raise_translated
from fmemory.journals._txn import JournalTxn
from fmemory_segments import FileSystem, LogError, RecoveryReport
from fmemory_segments.errors import RowErased
from fmemory_segments.event import UInt64Array, VectorArray


@contextmanager
def _translated() -> Iterator[None]:
    """What the log raises comes out as an error of the contract."""
    try:
        yield
    except RowErased as error:
        assert error.first_seq is not None
        raise DataErased(error.first_seq) from error
    except LogError as error:
        raise_translated(error)


class JsonlJournal:
    """A `JsonlLog` as a journal."""

    capabilities = Capabilities(
        kind="filesystem", persistent=True, multi_process=True, reads_streams=False
    )

    def __init__(self, log: JsonlLog) -> None:
        self._log = log
        self._core = log.core
        self._reader = LineReader(log.core)
        self.store_id = log.store_id
        self.read_only = log.core.options.read_only

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self._core.path

    @property
    def recovery(self) -> RecoveryReport:
        """What opening had to repair."""
        return self._log.recovery

    # Reading

    def refresh(self) -> int:
        """The newest visible seq."""
        with _translated():
            return self._log.refresh()

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """What an index is built from; it is in memory."""
        with _translated():
            self._core.check()
        return self._folded(after, upto, stream)

    def _folded(self, after: int, upto: int, stream: Stream | None) -> Iterator[Envelope | RowRun]:
        with _translated():
            yield from fold(self._core, after, upto, stream)

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """Envelopes by seq, from memory."""
        with _translated():
            yield from self._log.envelopes(
                after, upto, stream=stream, backwards=backwards, limit=limit
            )

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """Payloads, read from their lines and checked."""
        with _translated():
            self._core.check()
            return read_payloads(self._core, self._reader, seqs)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """Rows, read from their lines and checked. Cost: a line of up to 1 MB for a few of it."""
        with _translated():
            self._core.check()
            return read_rows(self._core, self._reader, locs, notes=notes, vectors=vectors)

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """One row, checked."""
        with _translated():
            self._core.check()
            return read_row(self._core, self._reader, loc)

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        """Events of which data were taken out, by seq, from memory."""
        with _translated():
            yield from self._log.erased(after, upto, stream)

    def find(self, stream: Stream, event_id: str) -> int | None:
        """Seq of an event by its idempotency key."""
        with _translated():
            return self._log.find(stream, event_id)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams, newest first."""
        with _translated():
            return self._log.streams(prefix, before, limit)

    def head(self, upto: int | None = None) -> Head:
        """The newest event with its chain value, which every line carries."""
        with _translated():
            return self._log.head(upto)

    # Writing

    def commit(
        self,
        plan: Plan,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what the plan returns."""
        with _translated():
            return self._log.commit(
                lambda head_seq, now_ns: plan(JournalTxn(self, head_seq, now_ns)),
                durability=durability,
                timeout_s=timeout_s,
            )

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        """Append events as they are."""
        with _translated():
            return self._log.import_exact(events)

    def sync(self, upto: int | None = None) -> int:
        """Make events durable."""
        with _translated():
            return self._log.sync(upto)

    def compact(
        self,
        erasure: Erasure,
        *,
        timeout_s: float | None = None,
        exclusive: bool = False,  # noqa: ARG002  nothing is left behind that this would remove
    ) -> Compaction:
        """Take data out: see `JsonlLog.compact`."""
        with _translated():
            done = self._log.compact(erasure, timeout_s=timeout_s)
        self._reader.forget()
        return done

    # Handle

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when there may be new events."""
        with _translated():
            return self._log.watch(callback)

    def check_place(self) -> None:
        """Check that the folder is still where it was opened."""
        with _translated():
            self._log.check_place()

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        """Check every line."""
        with _translated():
            return self._log.verify(pinned)

    def usage(self) -> list[Usage]:
        """Events and bytes of lines by stream and type."""
        with _translated():
            return self._log.usage()

    def sizes(self) -> JournalSizes:
        """Files of events and their bytes."""
        with _translated():
            return self._log.sizes()

    def health(self) -> JournalHealth:
        """The state of the handle."""
        return self._log.health()

    def close(self) -> None:
        """Release files and threads."""
        with _translated():
            self._log.close()
        self._reader.forget()


class FilesystemMemoryBackend(JournalBackend):
    """A memory in a folder of JSON Lines files, shared by any number of processes of one machine.

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
        LogCorrupt: A line is damaged or acknowledged events are gone; no file was changed.
        StorageError: The folder cannot be used, or holds something else; the reason says why.

    Cost: O(bytes of text) to open: every line is read and checked. In memory: envelopes, record
        ids, timestamps and places, never notes or vectors.
    """

    kind = "filesystem"

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
        with _translated():
            log = JsonlLog.open(
                Path(root),
                fs=file_system,
                create=create,
                read_only=read_only,
                durability=durability,
                lock_timeout_s=lock_timeout_s,
                allow_network=allow_network,
                clock=clock,
            )
        self.recovery = log.recovery
        super().__init__(JsonlJournal(log), durability=durability, path=str(log.core.path))
