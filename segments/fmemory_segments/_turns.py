"""Threads of one handle that append at the same time: one takes the lock and does the work of all.

Each system call hands the interpreter to another thread, so threads that each lock, look and unlock
spend their time waiting for each other. Instead, who has the turn takes the lock once and also runs
what was queued behind it; the others find their events written when the turn comes to them.
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
    """

    __slots__ = ("_appended", "_error", "is_done", "prepare", "time_ns")

    def __init__(self, prepare: Prepare, time_ns: int | None = None) -> None:
        self.prepare = prepare
        self.time_ns = time_ns
        self.is_done = False
        self._appended: Appended | None = None
        self._error: BaseException | None = None

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
        self._waiting: deque[Request] = deque()

    @property
    def waiting(self) -> int:
        """Requests of threads that wait for their turn."""
        return len(self._waiting)

    def take(self, request: Request, timeout_s: float) -> Appended | None:
        """Append a batch, in this thread or in the one that has the turn now.

        Raises:
            LogError: As `busy` and `begin`; nothing was written.
            BaseException: What the append raises.
        """
        if not self._turn.acquire(blocking=False):
            started = time.monotonic()
            self._wait(request, timeout_s)
            if request.is_done:
                self._turn.release()
                return request.result()
            self._withdraw(request)
            timeout_s -= time.monotonic() - started
        try:
            self._begin(timeout_s)
            try:
                appended = self._append(request.prepare, request.time_ns)
                if self._waiting:
                    self._append_waiting()
            finally:
                self._end()
        finally:
            self._turn.release()
        return appended

    def _wait(self, request: Request, timeout_s: float) -> None:
        """Queue a request and wait for the turn."""
        self._waiting.append(request)
        try:
            has_turn = self._turn.acquire(timeout=max(0.0, timeout_s))
        except BaseException:
            self._withdraw(request)
            raise
        if has_turn:
            return
        if self._withdraw(request):
            raise self._busy(timeout_s)
        self._turn.acquire()  # It is being appended, by one who has the lock already.

    def _withdraw(self, request: Request) -> bool:
        """Take a request out of the queue; False if another thread has taken it."""
        try:
            self._waiting.remove(request)
        except ValueError:
            return False
        return True

    def _append_waiting(self) -> None:
        """Append what was queued meanwhile; what is queued from now on takes the next turn."""
        if threading.current_thread() is threading.main_thread():
            return  # An interrupt strikes this thread, and must not strike another's batch.
        for _ in range(min(len(self._waiting), TAKEN_MAX)):
            try:
                request = self._waiting.popleft()
            except IndexError:
                return  # The last one was withdrawn.
            request.run(self._append)
