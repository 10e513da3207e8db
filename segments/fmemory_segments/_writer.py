"""Writing with one handle: the order of lock, catch-up, plan, write and sync.

Seqs are given under the lock of the log, and the sync is outside it, shared by the threads that
wait. What a commit promises is decided here, and only after a sync has said so; TIP hears of it
before the caller does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fmemory_segments._append import finish_batch, write_batch
from fmemory_segments._batch import PreparedBatch
from fmemory_segments._core import Core, Durability, Segment
from fmemory_segments._load import apply_frames
from fmemory_segments._lock import FileLock
from fmemory_segments._roll import roll, settle
from fmemory_segments._sync import GroupSync, IntervalSync, SyncTarget
from fmemory_segments._tail import Tail
from fmemory_segments._turns import Appended, Prepare, Request, Turns
from fmemory_segments.errors import InvalidDraft, LogError, LogReason, StoreBusy
from fmemory_segments.event import Commit

DURABILITIES: Final[tuple[Durability, ...]] = ("fsync", "interval", "os")


class Writer:
    """Commits and syncs of one handle.

    Args:
        core: The open log.
        tail: Keeps it up to date.
        lock: The lock of the log; None if it is open for reading.
        durable_seq: Everything up to here is known to be on disk.
    """

    def __init__(self, core: Core, tail: Tail, lock: FileLock | None, durable_seq: int) -> None:
        self._core = core
        self._tail = tail
        self._lock = lock
        self._group = GroupSync(
            datasync=core.fs.datasync,
            target=self._target,
            synced=self._synced,
            failed=core.sync_failed,
            durable_seq=durable_seq,
        )
        self._turns = Turns(begin=self._begin, append=self._append, end=self._end, busy=self._busy)
        self._tip_seq = 0

    @property
    def durable_seq(self) -> int:
        """Everything up to here is known to be on disk."""
        return self._group.durable_seq

    def sync(self, upto: int) -> int:
        """Have events on disk; the durable seq, which is smaller only where doubt is left.

        Raises:
            LogPoisoned: A sync failed.
        """
        return self._group.sync(upto)

    def commit(
        self,
        prepare: Prepare,
        interval: IntervalSync,
        *,
        durability: Durability | None,
        timeout_s: float | None,
        time_ns: int | None = None,
    ) -> Commit | None:
        """Append what `prepare` makes of the newest state, and do what `durability` asks.

        Args:
            prepare: Gets the head and the time under the lock; what it raises is passed on.
            interval: Is told of what it must sync.
            durability: None = as the log was opened.
            timeout_s: Longest wait for the lock; None = as the log was opened.
            time_ns: Time of the first event, for imports; None = now.

        Raises:
            As `Log.commit`.
        """
        core, options = self._core, self._core.options
        core.check_writable()
        wanted = durability or options.durability
        if wanted not in DURABILITIES:
            raise InvalidDraft(
                f"durability: expected one of {DURABILITIES}, got {wanted!r}; nothing was written",
                reason=LogReason.INVALID_DRAFT,
            )
        sync = self._group.sync if wanted == "fsync" else None
        appended = self._turns.take(
            Request(prepare, time_ns),
            options.lock_timeout_s if timeout_s is None else timeout_s,
            sync,
        )
        if appended is None:
            return None
        first_seq, last_seq, recorded_at_ns = appended
        durable = sync is not None and sync(last_seq) >= last_seq
        if wanted == "interval":
            interval.touch()
        return Commit(first_seq, last_seq, recorded_at_ns, durable)

    @contextmanager
    def exclusive(self, timeout_s: float) -> Iterator[None]:
        """Hold the lock of the log for the length of a block, caught up.

        Raises:
            As `commit`.
        """
        self._begin(timeout_s)
        try:
            yield
        finally:
            self._end()

    def roll(self) -> None:
        """Seal the active segment and begin the next one. Under `exclusive`.

        Raises:
            StoreFull, LogWriteFailed: Nothing is lost; the next append tries again.
            LogPoisoned: A sync failed.
            LogCorrupt: An event of the segment is damaged.
        """
        core, segment = self._core, self._core.active
        roll(core, synced_to=max(self._tip_seq, self._group.durable_seq))
        self._group.covered(core.head_seq)
        self._tell_tip(core.head_seq, segment.base_seq, segment.frames_end)

    def _begin(self, timeout_s: float) -> None:
        """Take the lock and catch up."""
        core, lock = self._core, self._lock
        assert lock is not None
        try:
            lock.acquire(timeout_s)
        except LogError:
            core.check()  # Closed meanwhile: that is what to say.
            raise
        try:
            core.check()
            tip = self._tail.catch_up()
            if tip.suspect_from:
                tip = settle(core, self._tail, tip)
                self._group.covered(tip.synced_seq)
        except BaseException:
            lock.release()
            raise
        self._tip_seq = tip.synced_seq

    def _busy(self, timeout_s: float) -> StoreBusy:
        assert self._lock is not None
        return self._lock.busy(timeout_s)

    def _end(self) -> None:
        """Give the lock back."""
        assert self._lock is not None
        self._lock.release()

    def _append(self, prepare: Prepare, time_ns: int | None) -> Appended | None:
        """Ask the plan, write: first and last seq and the time. Under the lock, caught up."""
        core = self._core
        core.check()
        now_ns = max(core.options.clock(), core.time_ns)
        prepared = prepare(core.head_seq, now_ns)
        if prepared is None:
            return None
        synced_to = max(self._tip_seq, self._group.durable_seq)
        segment = self._segment_for(prepared)
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
            core.recent.appended()
        return first_seq, core.head_seq, recorded_at_ns

    def _segment_for(self, prepared: PreparedBatch) -> Segment:
        """The active segment, or a new one if the batch would make it too large."""
        core = self._core
        segment = core.active
        frame_count = segment.index.frame_count
        is_full = (
            segment.end + prepared.size_bytes > core.options.segment_bytes_max
            or frame_count + len(prepared.frames) > core.options.segment_frames_max
        )
        if segment.is_sealed or (is_full and frame_count):
            self.roll()
        return core.active

    def _target(self) -> SyncTarget:
        """What a sync that starts now covers."""
        core = self._core
        core.check()
        with core.tail_lock:
            segment = core.active
            return SyncTarget(core.file_of(segment), core.head_seq, segment.base_seq, segment.end)

    def _synced(self, target: SyncTarget) -> int:
        """What is durable after a sync that went well, in this process.

        The system tells a failed write to the descriptors that were open then, once. So a sync may
        go well beside another that failed: what that one left in doubt is written anew first.
        """
        core = self._core
        if core.tip is None:
            return target.seq
        if core.options.read_only:
            tip = core.tip.read()
            return target.seq if not 0 < tip.suspect_from <= target.seq else tip.synced_seq
        suspect_from = self._tell_tip(target.seq, target.segment_base, target.offset)
        if not 0 < suspect_from <= target.seq:
            return target.seq
        assert self._lock is not None
        with self._lock.held(core.options.lock_timeout_s):
            tip = self._tail.catch_up()
            if tip.suspect_from:
                tip = settle(core, self._tail, tip)
            return tip.synced_seq

    def _tell_tip(self, seq: int, segment_base: int, offset: int) -> int:
        """Advance TIP; its `suspect_from`. TIP is a witness: failing to write it costs nothing."""
        core = self._core
        assert core.tip is not None
        try:
            tip = core.tip.advance(synced_seq=seq, segment_base=segment_base, synced_offset=offset)
        except OSError as error:  # Also StoreBusy: a process was stopped while it held TIP.
            core.note(f"TIP could not be written: {error}")
            return 0
        return tip.suspect_from
