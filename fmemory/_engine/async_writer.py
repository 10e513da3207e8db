"""One thread that writes for all coroutines, and shares one sync among what has gathered.

A coroutine hands over a call and awaits its future. The thread runs the calls that wait, one after
the other, without syncing each; then it syncs once and only then answers. A call that was cancelled
before its turn is not run; one that has begun is finished whole.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fmemory.errors import ClosedStore

T = TypeVar("T")

_GROUP_CALLS_MAX = 512


@dataclass(slots=True)
class Deferral:
    """Commits of this thread that have not been synced yet."""

    seq: int = 0


class _ThreadState(threading.local):
    deferral: Deferral | None = None


_state = _ThreadState()


def current_deferral() -> Deferral | None:
    """Where a commit notes that it needs a sync, when this thread syncs later for many."""
    return _state.deferral


@contextmanager
def _deferring() -> Iterator[Deferral]:
    _state.deferral = deferral = Deferral()
    try:
        yield deferral
    finally:
        _state.deferral = None


@dataclass(slots=True)
class _Call:
    run: Callable[[], object]
    future: Future[Any] = field(default_factory=Future)


class AsyncWriter:
    """The queue and its thread; the thread starts with the first call."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        self._sync = sync
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False

    def submit(self, run: Callable[[], T]) -> Future[T]:
        """A future of what `run()` returns, durable as the store promises."""
        with self._lock:
            if self._closed:
                raise ClosedStore("the memory was closed; open it again")
            if self._thread is None or self._pid != os.getpid():
                # Threads do not survive a fork; the calls of the parent are the parent's.
                self._queue, self._pid = queue.SimpleQueue(), os.getpid()
                self._thread = threading.Thread(
                    target=self._loop, args=(self._queue,), name="fmemory-writer", daemon=True
                )
                self._thread.start()
            call = _Call(run)
            self._queue.put(call)
            return call.future

    def close(self) -> None:
        """Finish what was handed over, then end the thread."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is None or self._pid != os.getpid():
                return
            self._queue.put(None)
        if thread is not threading.current_thread():
            thread.join()

    def _loop(self, calls: queue.SimpleQueue[_Call | None]) -> None:
        while True:
            group, ended = _gather(calls)
            self._run_group(group)
            if ended:
                return

    def _run_group(self, group: list[_Call]) -> None:
        done: list[tuple[Future[Any], object]] = []
        with _deferring() as deferral:
            for call in group:
                if not call.future.set_running_or_notify_cancel():
                    continue
                try:
                    done.append((call.future, call.run()))
                except BaseException as error:  # the future carries it to whoever awaits
                    call.future.set_exception(error)
        try:
            if deferral.seq:
                self._sync(deferral.seq)
        except BaseException as error:  # nobody of the group was promised anything yet
            for future, _ in done:
                future.set_exception(error)
            return
        for future, result in done:
            future.set_result(result)


def _gather(calls: queue.SimpleQueue[_Call | None]) -> tuple[list[_Call], bool]:
    """At least one call, and what waits behind it; whether the queue was ended."""
    group: list[_Call] = []
    call = calls.get()
    while call is not None:
        group.append(call)
        if len(group) >= _GROUP_CALLS_MAX:
            return group, False
        try:
            call = calls.get_nowait()
        except queue.Empty:
            return group, False
    return group, True
