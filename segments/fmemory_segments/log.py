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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from fmemory_segments._append import finish_batch, prepare_drafts, prepare_import, write_batch
from fmemory_segments._batch import PreparedBatch
from fmemory_segments._catalog import reading
from fmemory_segments._chain import ChainCache
from fmemory_segments._core import Core, Durability, Options, Segment
from fmemory_segments._events import count_usage, envelopes, fold, payloads, unknown_event
from fmemory_segments._load import apply_frames
from fmemory_segments._lock import FileLock
from fmemory_segments._open import OpenedFiles, open_files
from fmemory_segments._roll import roll, settle
from fmemory_segments._rows import read_rows
from fmemory_segments._sync import GroupSync, IntervalSync, SyncTarget
from fmemory_segments._watch import Watcher
from fmemory_segments.errors import InvalidDraft, LogCorrupt, LogError, LogReason
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
)
from fmemory_segments.filesystem import FileSystem, PosixFileSystem, after_fork_in_child
from fmemory_segments.finding import Finding
from fmemory_segments.recovery import RecoveryReport
from fmemory_segments.verify import verify_store

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
SEGMENT_FRAMES_MAX = 65_536
DURABILITIES: tuple[Durability, ...] = ("fsync", "interval", "os")

Plan: TypeAlias = Callable[["LogTxn"], Sequence[Draft] | None]


@dataclass(frozen=True, slots=True)
class LogStats:
    """How large a log is.

    Attributes:
        event_count: Events ever appended.
        stream_count: Streams with at least one event.
        segment_count: Segment files.
        stored_bytes: Their size, zeros ahead included.
        index_bytes: Memory of the places of events and rows in this process.
    """

    event_count: int
    stream_count: int
    segment_count: int
    stored_bytes: int
    index_bytes: int


@dataclass(frozen=True, slots=True)
class LogUsage:
    """How much one type of event of one stream holds.

    Attributes:
        stream: The stream.
        type: Of the events.
        event_count: How many.
        payload_bytes: What their payloads take, nonces and padding included.
    """

    stream: Stream
    type: str
    event_count: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class LogHealth:
    """The state of a handle.

    Attributes:
        state: `ok`, `full` (appends are refused until there is room), `poisoned` (reopen),
            or `closed` (also for a handle that was carried over a fork).
        head_seq: Newest event seen.
        durable_seq: Everything up to here is known to be on disk.
        recoveries: Torn tails that this handle cut off, or saw.
        notices: Sentences about what a person should know.
    """

    state: Literal["ok", "full", "poisoned", "closed"]
    head_seq: int
    durable_seq: int
    recoveries: tuple[RecoveryReport, ...]
    notices: tuple[str, ...]


class Log:
    """An open log. Threads may share it; other processes may have the same log open."""

    def __init__(self, core: Core, files: OpenedFiles, lock: FileLock | None) -> None:
        """Use `Log.open`."""
        self._core = core
        self._files = files
        self._lock = lock
        self._tail = files.tail
        self._chain = ChainCache()
        self._watcher = Watcher(core.path)
        self._sync = GroupSync(
            datasync=core.fs.datasync,
            target=self._sync_target,
            synced=self._synced,
            failed=core.sync_failed,
            durable_seq=files.durable_seq,
        )
        core.durable_seq = lambda: self._sync.durable_seq
        self._interval = IntervalSync(_sync_if_alive(weakref.ref(self)), core.options.interval_s)
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
        return cls(core, files, files.lock)

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

        Cost: one pread of 8 bytes when nothing is new.
        """
        if self._core.state not in _USABLE:
            self._core.check()
        return self._tail.refresh()

    def commit(
        self,
        plan: Plan,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what `plan` returns as one batch: all of it or nothing, also after a crash.

        Args:
            plan: Called under the lock, after catching up; must not write. What it raises is passed
                on and nothing is written.
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

        def planned(txn: LogTxn) -> PreparedBatch | None:
            drafts = plan(txn)
            return prepare_drafts(self._core, drafts) if drafts else None

        return self._commit(planned, durability, timeout_s)

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

        def planned(_: LogTxn) -> PreparedBatch:
            return prepare_import(self._core, stored)

        return self._commit(planned, None, None, time_ns=time_ns)

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
        yield from fold(self._core, after, min(upto, self._core.head_seq), stream)

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
        segments = self._core.segments
        try:
            return payloads(self._core, seqs)
        except LogCorrupt:
            self._tail.look_closer()
            if self._core.segments is segments:
                raise
        return payloads(self._core, seqs)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """The rows at these places, checked, in the order asked for, in memory of their own.

        Args:
            locs: uint64, shape (n,): `seq << 16 | row`.
            notes: Fill `RowPage.notes`.
            vectors: Fill `RowPage.blocks`.

        Raises:
            UnknownEvent: There is no row at a loc.
            LogCorrupt, LogReadFailed: One is damaged or cannot be read.

        Cost: two reads for neighbours of one event; one span for near frames; no Python step a row
            for vectors, few for notes.
        """
        if self._core.state not in _USABLE:
            self._core.check()
        segments = self._core.segments
        try:
            return read_rows(self._core, locs, notes=notes, vectors=vectors)
        except LogCorrupt:
            self._tail.look_closer()
            if self._core.segments is segments:
                raise
        return read_rows(self._core, locs, notes=notes, vectors=vectors)

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
        return self._chain.head(self._core, seq)

    def sync(self, upto: int | None = None) -> int:
        """Have everything up to `upto` (None = the head) on disk; the durable seq.

        Raises:
            LogPoisoned: A sync failed, so it is unknown what is on disk.
        """
        self._core.check()
        newest = self._core.head_seq
        if upto is None or upto > newest:
            newest = self.refresh()
        return self._sync.sync(newest if upto is None else min(upto, newest))

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called when there may be new events; returns how to stop that.

        A hint, from any thread: it may come late, twice or not at all.
        """
        self._core.check()
        return self._watcher.subscribe(callback)

    def verify(self, pinned: Head | None = None) -> list[Finding]:
        """What is wrong with the files of this log, down to the event; nothing is changed.

        Args:
            pinned: A head that was kept elsewhere.

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
        core = self._core
        core.check()
        segments = core.segments
        with reading(core.path):
            stored_bytes = sum(
                segment.end if segment.is_sealed else core.fs.size(segment.fd)
                for segment in segments
            )
        return LogStats(
            event_count=core.head_seq,
            stream_count=len(core.streams),
            segment_count=len(segments),
            stored_bytes=stored_bytes,
            index_bytes=sum(segment.index.size_bytes for segment in segments),
        )

    def health(self) -> LogHealth:
        """The state of this handle. Never raises."""
        core = self._core
        return LogHealth(
            "closed" if core.state == "forked" else core.state,
            core.head_seq,
            self._sync.durable_seq,
            tuple(core.recoveries),
            tuple(core.notices),
        )

    def close(self) -> None:
        """Sync what interval commits left, and release files and threads; twice is fine."""
        core = self._core
        if core.state == "closed":
            return
        self._interval.stop()
        try:
            if core.state in _USABLE and self._interval.is_dirty:
                self._sync.sync(core.head_seq)
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

    def _commit(
        self,
        planned: Callable[[LogTxn], PreparedBatch | None],
        durability: Durability | None,
        timeout_s: float | None,
        *,
        time_ns: int | None = None,
    ) -> Commit | None:
        core = self._core
        core.check_writable()
        wanted = durability or core.options.durability
        if wanted not in DURABILITIES:
            raise InvalidDraft(
                f"durability: expected one of {DURABILITIES}, got {wanted!r}; nothing was written",
                reason=LogReason.INVALID_DRAFT,
            )
        assert self._lock is not None
        try:
            self._lock.acquire(core.options.lock_timeout_s if timeout_s is None else timeout_s)
        except LogError:
            core.check()  # Closed meanwhile: that is what to say.
            raise
        try:
            core.check()
            found = self._append(planned, time_ns)
        finally:
            self._lock.release()
        if found is None:
            return None
        first_seq, last_seq, recorded_at_ns = found
        if wanted == "fsync":
            self._sync.sync(last_seq)
        elif wanted == "interval":
            self._interval.touch()
        self._watcher.notify()
        return Commit(first_seq, last_seq, recorded_at_ns, wanted == "fsync")

    def _append(
        self, planned: Callable[[LogTxn], PreparedBatch | None], time_ns: int | None
    ) -> tuple[int, int, int] | None:
        """Catch up, ask the plan, write. Under the lock."""
        core = self._core
        tip = self._tail.catch_up()
        if tip.suspect_from:
            tip = settle(core, self._tail, tip)
            self._sync.covered(tip.synced_seq)
        now_ns = max(core.options.clock(), core.time_ns)
        txn = LogTxn(self, core.head_seq, now_ns)
        prepared = planned(txn)
        if prepared is None:
            return None
        synced_to = max(tip.synced_seq, self._sync.durable_seq)
        segment = self._segment_for(prepared, synced_to)
        recorded_at_ns = now_ns if time_ns is None else time_ns
        finished = finish_batch(
            core, segment, prepared, time_ns=recorded_at_ns, synced_to=synced_to
        )
        first_seq = core.head_seq + 1
        # A reader of this process must not find the frames before they are in the index: it would
        # take them in, and they would be there twice.
        with core.tail_lock:
            write_batch(core, segment, finished)
            apply_frames(segment, finished.frames, core.streams, core.recent, core)
        return first_seq, core.head_seq, recorded_at_ns

    def _segment_for(self, prepared: PreparedBatch, synced_to: int) -> Segment:
        """The active segment, or a new one if the batch would make it too large."""
        core = self._core
        segment = core.active
        frame_count = segment.index.frame_count
        is_full = (
            segment.end + prepared.size_bytes > core.options.segment_bytes_max
            or frame_count + len(prepared.frames) > core.options.segment_frames_max
        )
        if segment.is_sealed or (is_full and frame_count):
            roll(core, synced_to=synced_to)
            self._sync.covered(core.head_seq)
            self._witness(core.head_seq, segment, segment.frames_end)
        return core.active

    def _sync_target(self) -> SyncTarget:
        core = self._core
        core.check()
        with core.tail_lock:
            segment = core.active
            return SyncTarget(core.file_of(segment), core.head_seq, segment.base_seq, segment.end)

    def _synced(self, target: SyncTarget) -> int:
        """Tell TIP of a sync; the seq that is durable, after settling what another sync doubts."""
        if self._core.tip is None:
            return target.seq
        suspect_from = self._witness_target(target)
        if not 0 < suspect_from <= target.seq:
            return target.seq
        return self._settle_now()

    def _settle_now(self) -> int:
        """Another process failed to sync what this one has synced well: write it anew."""
        core = self._core
        assert self._lock is not None
        with self._lock.held(core.options.lock_timeout_s):
            tip = self._tail.catch_up()
            if tip.suspect_from:
                tip = settle(core, self._tail, tip)
            return tip.synced_seq

    def _witness_target(self, target: SyncTarget) -> int:
        return self._witness_at(target.seq, target.segment_base, target.offset)

    def _witness(self, seq: int, segment: Segment, offset: int) -> int:
        return self._witness_at(seq, segment.base_seq, offset)

    def _witness_at(self, seq: int, segment_base: int, offset: int) -> int:
        """Advance TIP; its `suspect_from`. TIP is a witness: failing to write it costs nothing."""
        core = self._core
        assert core.tip is not None
        try:
            tip = core.tip.advance(synced_seq=seq, segment_base=segment_base, synced_offset=offset)
        except (OSError, LogError) as error:
            core.note(f"TIP could not be written: {error}")
            return 0
        return tip.suspect_from


class LogTxn:
    """What a plan sees: the newest state of the log, which nobody else can change meanwhile."""

    __slots__ = ("_log", "head_seq", "now_ns")

    def __init__(self, log: Log, head_seq: int, now_ns: int) -> None:
        self._log = log
        self.head_seq = head_seq
        self.now_ns = now_ns

    @property
    def store_id(self) -> bytes:
        """16 bytes that name the log."""
        return self._log.store_id

    def refresh(self) -> int:
        """The newest seq; it does not change while the plan runs."""
        return self.head_seq

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """As `Log.fold`."""
        return self._log.fold(after, upto, stream)

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """As `Log.envelopes`."""
        return self._log.envelopes(after, upto, stream=stream, backwards=backwards, limit=limit)

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """As `Log.payloads`."""
        return self._log.payloads(seqs)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """As `Log.rows`."""
        return self._log.rows(locs, notes=notes, vectors=vectors)

    def find(self, stream: Stream, event_id: str) -> int | None:
        """As `Log.find`."""
        return self._log.find(stream, event_id)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """As `Log.streams`."""
        return self._log.streams(prefix, before, limit)


_USABLE: frozenset[Literal["ok", "full"]] = frozenset(("ok", "full"))
_OPEN_LOGS: weakref.WeakSet[Log] = weakref.WeakSet()


def _sync_if_alive(reference: weakref.ref[Log]) -> Callable[[], bool]:
    """Sync the log, unless it is gone; False if it is."""

    def sync() -> bool:
        log = reference()
        if log is None:
            return False
        log.sync()
        return True

    return sync


def _refuse_in_child() -> None:
    """Mark all handles of the parent and close their files, without releasing a lock.

    Closing does not release: the lock belongs to the open file, which the parent still has.
    """
    for log in list(_OPEN_LOGS):
        log._core.state = "forked"
        log._files.close(wait=False)


after_fork_in_child(_refuse_in_child)
