"""The log: events in order, on disk, shared by any number of threads and processes of one machine.

`Log` puts the parts together and holds no rule of its own: who may call, in which order locks are
taken (the lock of the log, then the tail lock, which is short and calls nobody), and what a call
promises. It must never tell a caller that something is durable before a sync said so. The rules are
written in docs/format.md and, for the promises P1 to P11, in ARCHITECTURE.md.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from fmemory_segments._append import prepare_drafts, prepare_import
from fmemory_segments._batch import PreparedBatch
from fmemory_segments._catalog import Vanished
from fmemory_segments._chain import ChainCache
from fmemory_segments._compact import Compactor
from fmemory_segments._core import Core, Durability, Options, State
from fmemory_segments._erased import erased_events
from fmemory_segments._events import count_usage, envelopes, fold, payloads, unknown_event
from fmemory_segments._open import OpenedFiles, open_files
from fmemory_segments._reports import LogHealth, LogStats, LogUsage, health_of, stats_of
from fmemory_segments._rows import read_row, read_rows
from fmemory_segments._sync import IntervalSync, sync_if_alive
from fmemory_segments._txn import LogTxn
from fmemory_segments._watch import Watcher
from fmemory_segments._writer import DURABILITIES, Writer
from fmemory_segments.compaction import Compaction, ErasedEvent, Erasure
from fmemory_segments.errors import LogCorrupt
from fmemory_segments.event import (
    Commit,
    Draft,
    Envelope,
    Head,
    Payload,
    RowPage,
    RowRun,
    StoredEvent,
    Stream,
    StreamInfo,
    UInt64Array,
    VectorArray,
)
from fmemory_segments.filesystem import FileSystem, PosixFileSystem, after_fork_in_child
from fmemory_segments.finding import Finding
from fmemory_segments.pinned import Pinned
from fmemory_segments.recovery import RecoveryReport
from fmemory_segments.verify import verify_store

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
SEGMENT_FRAMES_MAX = 16_384

Plan: TypeAlias = Callable[[LogTxn], Sequence[Draft] | None]


class Log:
    """An open log. Threads may share it; other processes may have the same log open."""

    def __init__(self, core: Core, files: OpenedFiles) -> None:
        """Use `Log.open`."""
        self._core = core
        self._files = files
        self._tail = files.tail
        self._chain = ChainCache()
        self._watcher = Watcher(core.path)
        self._writer = Writer(core, files.tail, files.lock, files.durable_seq)
        core.durable_seq = lambda: self._writer.durable_seq
        self._compactor = Compactor(core, files.tail, self._writer)
        self._interval = IntervalSync(sync_if_alive(weakref.ref(self)), core.options.interval_s)
        _OPEN_LOGS.add(self)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        fs: FileSystem | None = None,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        interval_s: float = 0.1,
        lock_timeout_s: float = 5.0,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        segment_frames_max: int = SEGMENT_FRAMES_MAX,
        allow_network: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> Log:
        """The log in a folder, made if there is none.

        Opened for writing, it waits for the lock, syncs what a crashed process may have left in
        memory, and sets a torn tail aside. Opened read-only it takes nothing and changes nothing.

        Args:
            path: Its folder; parents are made too.
            fs: The operating system; None = the real one.
            create: Make a log if there is none; else `LogNotFound`.
            read_only: Refuse writes; create and repair nothing.
            durability: When a commit returns: "fsync" = it is on disk; "interval" = within
                `interval_s` it will be; "os" = when the system likes. Each commit may choose.
            interval_s: Longest time that an interval commit waits for its sync.
            lock_timeout_s: Longest wait for other writers.
            segment_bytes_max: A new segment begins when a batch would go beyond it.
            segment_frames_max: Frames of a segment.
            allow_network: Do not refuse network file systems, whose locks and syncs may lie.
            clock: Unix nanoseconds.

        Raises:
            LogNotFound, NotALog: There is no log, or the path cannot hold one.
            UnsupportedPlatform, NetworkFileSystem, UnsupportedFormat: It must not be opened here.
            LogCorrupt: Damage, or acknowledged events are gone. No file was changed.
            StoreBusy: Others held the lock for longer than `lock_timeout_s`.
            StoreFull, LogReadFailed, LogWriteFailed: The system refused.
        """
        if durability not in DURABILITIES:
            raise ValueError(f"durability: expected one of {DURABILITIES}, got {durability!r}")
        options = Options(
            read_only=read_only,
            durability=durability,
            interval_s=interval_s,
            lock_timeout_s=lock_timeout_s,
            segment_bytes_max=segment_bytes_max,
            segment_frames_max=segment_frames_max,
            clock=clock,
        )
        core = Core(fs or PosixFileSystem(), Path(path).absolute(), options)
        files = open_files(core, create=create, allow_network=allow_network)
        return cls(core, files)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._core.path

    @property
    def store_id(self) -> bytes:
        """16 bytes that name this log for ever."""
        return self._core.store_id

    @property
    def read_only(self) -> bool:
        """Writes are refused."""
        return self._core.options.read_only

    @property
    def recovery(self) -> RecoveryReport:
        """The torn tail that was met last, by this handle; one of 0 bytes if there was none."""
        recoveries = self._core.recoveries
        return recoveries[-1] if recoveries else RecoveryReport()

    def refresh(self) -> int:
        """The newest visible seq, with what other processes appended.

        An event may be visible a moment before it is durable; `sync(seq)` waits for that.

        Raises:
            LogCorrupt, UnsupportedFormat, LogReadFailed: What stands at the end cannot be used.
            LogNotFound: The log was moved, removed or made anew, and this handle has met that.

        Cost: one pread of 8 bytes when nothing is new.
        """
        if self._core.state not in _USABLE:
            self._core.check()
        try:
            return self._tail.refresh()
        except LogCorrupt as error:
            # What was made anew under the name is not damaged.
            if (moved := self._core.moved()) is not None:
                raise moved from error
            raise

    def commit(
        self,
        plan: Plan,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what `plan` returns as one batch: all of it or nothing, also after a crash.

        Args:
            plan: Called under the lock, after catching up, perhaps by another thread that commits
                at the same time; must not write. What it raises is passed on, and nothing is
                written.
            durability: When this returns; None = as the log was opened.
            timeout_s: Longest wait for the lock; None = as the log was opened.

        Returns:
            What was promised; None where the plan returned nothing.

        Raises:
            StoreBusy: Others held the lock for too long. Nothing was written.
            InvalidDraft: A draft cannot be stored. Nothing was written.
            StoreFull, LogWriteFailed: The log is as it was.
            LogPoisoned: It is unknown whether the batch is on disk; reopen.

        Durability: on disk when this returns, under "fsync".
        Cost: about 60 µs and one fdatasync, which concurrent writers share.
        """

        def prepare(head_seq: int, now_ns: int) -> PreparedBatch | None:
            drafts = plan(LogTxn(self, head_seq, now_ns))
            return prepare_drafts(self._core, drafts) if drafts else None

        done = self._writer.commit(
            prepare, self._interval, durability=durability, timeout_s=timeout_s
        )
        if done is not None:
            self._watcher.notify()
        return done

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        """Append events with the seq, revision, times and nonces they carry, as one batch.

        Raises:
            InvalidDraft: The first is not the head's successor, or one cannot be stored. Nothing
                was written.
        """
        stored = list(events)
        if not stored:
            self._core.check_writable()
            return None
        time_ns = stored[0].envelope.recorded_at_ns

        def prepare(_head_seq: int, _now_ns: int) -> PreparedBatch:
            return prepare_import(self._core, stored)

        done = self._writer.commit(
            prepare, self._interval, durability=None, timeout_s=None, time_ns=time_ns
        )
        self._watcher.notify()
        return done

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """What an index of events `after < seq <= upto` is built from.

        Puts come as `RowRun`, all else as `Envelope`. The order is that of the log within each
        stream, and any order between streams.

        Raises:
            LogCorrupt, LogReadFailed: A frame is damaged or cannot be read.

        Cost: array steps for sealed segments; nothing is read for what was appended just now.
        """
        self._core.check()
        return fold(self._core, after, min(upto, self._core.head_seq), stream)

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """Envelopes with `after < seq <= upto`, by seq; no lock is held between items.

        Raises:
            LogCorrupt, LogReadFailed: A frame is damaged or cannot be read.
        """
        self._core.check()
        yield from envelopes(
            self._core,
            max(after, 0),
            min(upto, self._core.head_seq),
            stream=stream,
            backwards=backwards,
            limit=limit,
        )

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """The payloads of these events, checked, in the order asked for.

        Raises:
            UnknownEvent: There is no such event.
            LogCorrupt, LogReadFailed: One is damaged or cannot be read.
        """
        self._core.check()
        return self._tail.read(lambda: payloads(self._core, seqs))

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        """Events `after < seq <= upto` of which data were taken out, by seq; no payload is read.

        Cost: array steps over the rows; Python only by event that is given.
        """
        self._core.check()
        return erased_events(self._core, after, min(upto, self._core.head_seq), stream)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """The rows at these places, checked, in the order asked for, in memory of their own.

        Args:
            locs: uint64, shape (n,): `seq << 16 | row`.
            notes: Fill `RowPage.notes`.
            vectors: Fill `RowPage.blocks`.

        Raises:
            UnknownEvent: There is no row at a loc.
            RowErased: The row at a loc was erased.
            LogCorrupt, LogReadFailed: One is damaged or cannot be read.

        Cost: two reads for neighbours of one event; one span for near frames; no Python step a row
            for vectors, few for notes.
        """
        if self._core.state not in _USABLE:
            self._core.check()
        return self._tail.read(lambda: read_rows(self._core, locs, notes=notes, vectors=vectors))

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """One row, checked by its CRC: its note body, its vector and its embedding id.

        Raises:
            UnknownEvent: There is no row at the loc.
            RowErased: It was erased.
            LogCorrupt, LogReadFailed: It is damaged or cannot be read.

        Cost: one read or two, about 5 µs.
        """
        if self._core.state not in _USABLE:
            self._core.check()
        try:
            return read_row(self._core, loc)
        except (Vanished, LogCorrupt):
            return self._tail.read(lambda: read_row(self._core, loc))

    def find(self, stream: Stream, event_id: str) -> int | None:
        """The seq of the event of this stream that carries this idempotency key."""
        self._core.check()
        with self._core.tail_lock:
            return self._core.streams.find(stream, event_id)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams whose first labels are `prefix`, the most recently written first.

        Args:
            before: Only streams whose last seq is smaller.
            limit: At most so many.

        Cost: O(limit) once the prefix was asked for before.
        """
        self._core.check()
        with self._core.tail_lock:
            return self._core.streams.streams(prefix, before=before, limit=limit)

    def head(self, upto: int | None = None) -> Head:
        """The newest event, or `upto`, with the chain value up to it.

        Raises:
            UnknownEvent: `upto` is beyond the newest event.
            LogCorrupt, LogReadFailed: An event on the way is damaged or cannot be read.

        Cost: O(bytes) of SHA-256 over the events of a segment that were not hashed before.
        """
        self._core.check()
        newest = self._core.head_seq
        if upto is None or upto > newest:
            newest = self.refresh()
        seq = newest if upto is None else upto
        if not 0 <= seq <= newest:
            raise unknown_event(self._core, seq)
        return self._tail.read(lambda: self._chain.head(self._core, seq))

    def sync(self, upto: int | None = None) -> int:
        """Have everything up to `upto` (None = the head) on disk; the durable seq.

        Raises:
            LogPoisoned: A sync failed, so it is unknown what is on disk.
        """
        self._core.check()
        newest = self._core.head_seq
        if upto is None or upto > newest:
            newest = self.refresh()
        return self._writer.sync(newest if upto is None else min(upto, newest))

    def compact(self, erasure: Erasure, *, timeout_s: float | None = None) -> Compaction:
        """Take data out of the log and write what is left side by side; others go on meanwhile.

        Every event, seq, loc, digest and the chain stay what they are, for this handle and for all
        others. Sealed segments are rewritten, the active one is sealed first if it is concerned.

        Args:
            erasure: What is dead, as of some seq; what was taken out before may be named again.
            timeout_s: Longest wait for another compaction, and for each hold of the lock; None =
                as the log was opened.

        Returns:
            What was done. Unless `pending` says otherwise, no byte of the data is left in a file.

        Raises:
            ReadOnlyLog: The log is open for reading.
            UnknownEvent: The erasure names what is not there. Nothing was written.
            StoreBusy: Somebody else compacts, or held the lock. What was there holds.
            StoreFull: There is no room for what is left. What was there holds.
            LogWriteFailed, LogReadFailed: The system refused. What was there holds.
            LogCorrupt: A segment is damaged, so it stays as it is; the others were compacted.

        Durability: on disk when this returns.
        Cost: O(bytes) of the segments concerned, read twice and hashed twice; memory of the living
            data of one new segment, about 96 MiB.
        """
        return self._compactor.compact(erasure, timeout_s)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called when there may be new events; returns how to stop that.

        A hint, from any thread: it may come late, twice or not at all.
        """
        self._core.check()
        return self._watcher.subscribe(callback)

    def check_place(self) -> None:
        """Check that the log is still where it was opened. Cost: one stat.

        Whoever waits for events of others asks this: what was removed, or made anew under the same
        name, gets no more of them. A log without TIP that is open for reading cannot tell.

        Raises:
            LogNotFound: It was moved, removed or made anew; this handle reads what was there.
        """
        self._core.check()
        if (moved := self._core.moved()) is not None:
            raise moved

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        """What is wrong with the files of this log, down to the event; nothing is changed.

        Args:
            pinned: A head that was kept elsewhere, or several.

        Cost: O(bytes), SHA-256 over all of them.
        """
        self._core.check()
        return verify_store(self._core.fs, self._core.path, pinned)

    def usage(self) -> list[LogUsage]:
        """How much each type of event of each stream holds, by stream and type.

        Raises:
            LogCorrupt, LogReadFailed: A frame is damaged or cannot be read.

        Cost: O(events): the metas of all frames are read.
        """
        self._core.check()
        found = count_usage(self._core, self._core.head_seq)
        return [LogUsage(*names, *numbers) for names, numbers in sorted(found.items())]

    def stats(self) -> LogStats:
        """How large the log is, as far as this handle has read it."""
        self._core.check()
        return stats_of(self._core)

    def health(self) -> LogHealth:
        """The state of this handle. Never raises."""
        return health_of(self._core, self._writer.durable_seq)

    def close(self) -> None:
        """Sync what interval commits left, and release files and threads; twice is fine."""
        core = self._core
        if core.state == "closed":
            return
        self._interval.stop()
        try:
            if core.state in _USABLE and self._interval.is_dirty:
                self._writer.sync(core.head_seq)
        finally:
            is_forked = core.state == "forked"
            core.state = "closed"
            _OPEN_LOGS.discard(self)
            if not is_forked:
                self._watcher.close()
            self._files.close(wait=not is_forked)
            core.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r}, head={self._core.head_seq}, state={self._core.state!r})"


_USABLE: frozenset[State] = frozenset(("ok", "full"))
_OPEN_LOGS: weakref.WeakSet[Log] = weakref.WeakSet()


def _refuse_in_child() -> None:
    """Mark all handles of the parent and close their files, without releasing a lock.

    Closing does not release: the lock belongs to the open file, which the parent still has.
    """
    for log in list(_OPEN_LOGS):
        log._core.state = "forked"
        log._files.close(wait=False)


after_fork_in_child(_refuse_in_child)
