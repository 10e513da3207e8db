"""Threads of one handle that append at the same time: one takes the lock and does the work of all.

Each system call hands the interpreter to another thread, so threads that each lock, look, unlock
and sync spend their time waiting for each other. Instead, who has the turn takes the lock once,
runs what was queued behind him, gives the turn to the first that came too late, syncs for all he
has written for and wakes them: a thread sleeps once a write, and is woken when it is done.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from fmemory_segments._batch import PreparedBatch
from fmemory_segments.errors import LogError

Prepare: TypeAlias = Callable[[int, int], PreparedBatch | None]
Appended: TypeAlias = tuple[int, int, int]
"""First and last seq and the time of a batch."""

Append: TypeAlias = Callable[[Prepare, int | None], Appended | None]

TAKEN_MAX: Final = 64
"""Most batches appended for other threads in one hold: other processes wait meanwhile."""


class Request:
    """A batch that one thread wants to append, and what became of it.

    Args:
        prepare: Makes the batch of the newest state, under the lock.
        time_ns: Time of its first event; None = now.

    Attributes:
        is_done: Another thread has run it.
        has_turn: Another thread has given the turn to the one that waits here.
    """

    __slots__ = ("_appended", "_error", "_woken", "has_turn", "is_done", "prepare", "time_ns")

    def __init__(self, prepare: Prepare, time_ns: int | None = None) -> None:
        self.prepare = prepare
        self.time_ns = time_ns
        self.is_done = False
        self.has_turn = False
        self._appended: Appended | None = None
        self._error: BaseException | None = None
        self._woken: threading.Lock | None = None

    def run(self, append: Append) -> None:
        """Append it for the thread that waits, and keep what that raises for it."""
        try:
            self._appended = append(self.prepare, self.time_ns)
        except BaseException as error:
            self._error = error
        self.is_done = True

    def result(self) -> Appended | None:
        """What the append returned, in the thread that asked for it; or raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._appended

    @property
    def last_seq(self) -> int:
        """The last seq it was given; 0 if nothing was appended."""
        return 0 if self._appended is None else self._appended[1]

    def fall_asleep(self) -> None:
        """From now on `wait` waits for `wake`."""
        self._woken = threading.Lock()
        self._woken.acquire()

    def wait(self, timeout_s: float) -> bool:
        """Sleep until `wake`, or for so long; negative = however long. Whether it was woken."""
        assert self._woken is not None
        return self._woken.acquire(timeout=timeout_s)

    def wake(self) -> None:
        """End the wait, once."""
        assert self._woken is not None
        self._woken.release()


class Turns:
    """Runs requests one after the other, many within one hold of the lock.

    Args:
        begin: Takes the lock within a number of seconds, and catches up.
        append: Appends one batch, under the lock.
        end: Gives the lock back.
        busy: The error of a thread that waited that many seconds in vain.
    """

    def __init__(
        self,
        *,
        begin: Callable[[float], None],
        append: Append,
        end: Callable[[], None],
        busy: Callable[[float], LogError],
    ) -> None:
        self._begin = begin
        self._append = append
        self._end = end
        self._busy = busy
        self._turn = threading.Lock()
        self._guard = threading.Lock()  # Who queues up must not miss that the turn is given back.
        self._waiting: deque[Request] = deque()

    @property
    def waiting(self) -> int:
        """Requests of threads that wait for their turn."""
        return len(self._waiting)

    def take(
        self, request: Request, timeout_s: float, sync: Callable[[int], object] | None = None
    ) -> Appended | None:
        """Append a batch, in this thread or in the one that has the turn now.

        Args:
            sync: Has events up to a seq on disk; called without the turn, before those are woken
                for whom this thread has appended. None = they are woken at once.

        Raises:
            LogError: As `busy` and `begin`; nothing was written. Or as `sync`.
            BaseException: What the append raises.
        """
        if not self._turn.acquire(blocking=False):
            started = time.monotonic()
            if self._is_served(request, timeout_s):
                return request.result()
            timeout_s -= time.monotonic() - started
        served: list[Request] = []
        try:
            try:
                self._begin(timeout_s)
                try:
                    appended = self._append(request.prepare, request.time_ns)
                    if self._waiting:
                        self._serve(served)
                finally:
                    self._end()
            finally:
                self._pass_on()
            if served and sync is not None:
                sync(max(other.last_seq for other in served))
        finally:
            for other in served:
                other.wake()
        return appended

    def _is_served(self, request: Request, timeout_s: float) -> bool:
        """Queue a request: whether another thread has run it. If not, this thread has the turn."""
        request.fall_asleep()
        with self._guard:
            if self._turn.acquire(blocking=False):
                return False
            self._waiting.append(request)
        try:
            if not request.wait(max(0.0, timeout_s)):
                if self._withdraw(request):
                    raise self._busy(timeout_s)
                request.wait(-1)  # It is being appended, by one who has the lock already.
        except BaseException:
            if not self._withdraw(request) and request.has_turn:
                self._pass_on()
            raise
        return request.is_done

    def _withdraw(self, request: Request) -> bool:
        """Take a request out of the queue; False if another thread has taken it."""
        with self._guard:
            try:
                self._waiting.remove(request)
            except ValueError:
                return False
            return True

    def _serve(self, served: list[Request]) -> None:
        """Append what was queued meanwhile; what is queued from now on takes the next turn."""
        if threading.current_thread() is threading.main_thread():
            return  # An interrupt strikes this thread, and must not strike another's batch.
        for _ in range(min(len(self._waiting), TAKEN_MAX)):
            try:
                other = self._waiting.popleft()
            except IndexError:
                return  # The last one was withdrawn.
            served.append(other)
            other.run(self._append)

    def _pass_on(self) -> None:
        """Give the turn to who has waited longest, or back."""
        with self._guard:
            if self._waiting:
                following = self._waiting.popleft()
                following.has_turn = True
                following.wake()
            else:
                self._turn.release()
