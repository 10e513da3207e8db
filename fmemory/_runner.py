"""Async calls run in threads that the backend owns, under any number of event loops.

The caller's context goes along, so `audit()` reaches the call. A cancelled call that has not begun
never begins; one that has begun is finished by its thread, so a write happens whole or not at all.
asyncio is imported by those calls, here and elsewhere: a command starts quicker without it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import ParamSpec, TypeVar

from fmemory._fork_lock import ForkLock
from fmemory.errors import ClosedStore

__all__ = ["ITERATOR_PAGE_ITEMS", "WORKERS_MAX", "Runner"]

P = ParamSpec("P")
T = TypeVar("T")

ITERATOR_PAGE_ITEMS = 200
"""Items that an async iterator takes from its sync twin at a time."""
WORKERS_MAX = min(32, (os.cpu_count() or 1) + 4)

_creation = ForkLock()


class Runner:
    """Base of all backends and views: runs their sync operations for the async twins."""

    _executor: ThreadPoolExecutor | None = None
    _executor_pid = 0
    _runner_closed = False

    async def _run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What the call returns, without blocking the event loop. Used for reads."""
        import asyncio

        work = functools.partial(copy_context().run, call, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads(), work)

    async def _run_write(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What the call returns, without blocking the event loop. Used for writes.

        Backends with a better way to write override this one.
        """
        return await self._run(call, *args, **kwargs)

    async def _run_iterator(
        self, call: Callable[P, Iterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        """The items of the iterator that the call returns, taken page by page in a thread."""
        iterator = await self._run(call, *args, **kwargs)
        while True:
            page = await self._run(_page, iterator)
            for item in page:
                yield item
            if len(page) < ITERATOR_PAGE_ITEMS:
                return

    def _threads(self) -> ThreadPoolExecutor:
        executor = self._executor
        if executor is not None and self._executor_pid == os.getpid():
            return executor
        with _creation:
            if self._runner_closed:
                raise ClosedStore(
                    "async call: expected an open backend, got a closed one; open it again"
                )
            # Threads do not survive a fork, so a child starts its own.
            if self._executor is None or self._executor_pid != os.getpid():
                self._executor = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="fmemory")
                self._executor_pid = os.getpid()
            return self._executor

    def _close_threads(self) -> None:
        """Waits for calls that have begun and refuses new ones. May be called again."""
        with _creation:
            self._runner_closed = True
            executor, self._executor = self._executor, None
            own = self._executor_pid == os.getpid()
        if executor is not None and own:
            executor.shutdown(wait=True, cancel_futures=True)


def _page(iterator: Iterator[T]) -> list[T]:
    return list(islice(iterator, ITERATOR_PAGE_ITEMS))
