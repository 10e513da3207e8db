"""Making events durable: one fdatasync for all the writers that wait, and none of them in the lock.

The first writer that needs a sync becomes the leader and syncs everything that is written by then;
the others wait for it, and whoever it did not cover leads the next one. A failed fdatasync is never
tried again: the kernel marks the pages clean and a second call would succeed without having written
them. So the failure is recorded in TIP and the handle is poisoned for good.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from fmemory_segments._files import OpenFile
from fmemory_segments.errors import ForkedStore, LogClosed, LogError, LogPoisoned

JOIN_TIMEOUT_S: Final = 10.0


class SyncTarget(NamedTuple):
    """What one fdatasync will cover: the end of the active segment, all before it is on disk."""

    file: OpenFile
    seq: int
    segment_base: int
    offset: int


class GroupSync:
    """The shared fdatasync of one handle.

    Args:
        target: What a sync that starts now covers.
        synced: Told of each success, in the leader, before anyone is released; returns the seq up
            to which events are durable, which is less where an earlier failure left doubt.
        failed: Told of a failure, in the leader; must return the error that everyone gets.
    """

    def __init__(
        self,
        *,
        datasync: Callable[[int], None],
        target: Callable[[], SyncTarget],
        synced: Callable[[SyncTarget], int],
        failed: Callable[[OSError], LogError],
        durable_seq: int,
    ) -> None:
        self._datasync = datasync
        self._target = target
        self._synced = synced
        self._failed = failed
        self._turn = threading.Condition(threading.Lock())
        self._is_syncing = False
        self._waiting = 0
        self._error: LogError | None = None
        self.durable_seq = durable_seq

    def sync(self, upto: int) -> int:
        """Return when every event up to `upto` is on disk; the durable seq.

        It is smaller only if another process left doubt that this one may not settle.

        Raises:
            LogPoisoned: A sync failed, this one or an earlier one.
        """
        if self.durable_seq >= upto and self._error is None:
            return self.durable_seq
        self._lead_or_wait(upto)
        return self.durable_seq

    def covered(self, seq: int) -> None:
        """Note that events up to `seq` are on disk by other means: a roll or another process."""
        with self._turn:
            self.durable_seq = max(self.durable_seq, seq)

    def _lead_or_wait(self, upto: int) -> None:
        with self._turn:
            while True:
                if self._error is not None:
                    raise copy.copy(self._error)  # Threads must not share a traceback.
                if self.durable_seq >= upto:
                    return
                if not self._is_syncing:
                    self._is_syncing = True
                    break
                self._waiting += 1
                try:
                    self._turn.wait()
                finally:
                    self._waiting -= 1
        durable, error = 0, None
        try:
            target = self._target()
            try:
                self._datasync(target.file.fd)
            except OSError as cause:
                error = self._failed(cause)
                raise error from cause
            durable = self._synced(target)
        finally:
            with self._turn:
                if durable > self.durable_seq:
                    self.durable_seq = durable
                self._error = self._error or error
                self._is_syncing = False
                if self._waiting:
                    self._turn.notify_all()


class Syncable(Protocol):
    """What can be synced."""

    def sync(self) -> int:
        """Have what was written on disk."""
        ...


def sync_if_alive(reference: Callable[[], Syncable | None]) -> Callable[[], bool]:
    """Sync what a weak reference names, unless it is gone; False if it is."""

    def sync() -> bool:
        alive = reference()
        if alive is None:
            return False
        alive.sync()
        return True

    return sync


class IntervalSync:
    """A thread that syncs at most `interval_s` after the first write that asked for it.

    It starts with the first such write and holds no handle open: `sync` is called without arguments
    and returns False when there is nothing left to care for.
    """

    def __init__(self, sync: Callable[[], bool], interval_s: float) -> None:
        self._sync = sync
        self._interval_s = interval_s
        self._dirty = threading.Event()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None

    def touch(self) -> None:
        """There is something to sync, soon."""
        self._dirty.set()
        self._wake.set()
        if self._thread is None:
            with self._start:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._watch, name="fmemory-sync", daemon=True
                    )
                    self._thread.start()

    @property
    def is_dirty(self) -> bool:
        """Something was written that no sync was asked for yet."""
        return self._dirty.is_set()

    def stop(self) -> None:
        """End the thread; what is dirty is left to the caller."""
        self._stopped.set()
        if self._thread is None:
            return
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_TIMEOUT_S)

    def _watch(self) -> None:
        while self._wake.wait() and not self._stopped.wait(self._interval_s):
            self._wake.clear()
            self._dirty.clear()
            try:
                if not self._sync():
                    return
            except (ForkedStore, LogClosed, LogPoisoned):
                return  # Every later call of the handle says so.
            except LogError:
                self.touch()  # Busy, or failed for this once: what is dirty stays dirty.
