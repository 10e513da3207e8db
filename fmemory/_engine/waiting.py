"""Waiting for new events: a hint from the journal wakes, a slow poll stands behind it.

Used by `follow` from a thread and by `afollow` from a coroutine, which occupies no thread.
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from fmemory._engine.state import State
from fmemory.journal import Journal
from fmemory.log_models import Event

POLL_S = 0.25
PAGE_EVENTS = 128


class _Waker(ABC):
    """Registers for hints while it is entered."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @abstractmethod
    def wake(self) -> None:
        """Called from any thread."""

    def __enter__(self) -> Self:
        self._stop = self._journal.watch(self.wake)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()


class _ThreadWaker(_Waker):
    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait(self) -> None:
        self._event.wait(POLL_S)
        self._event.clear()


class _LoopWaker(_Waker):
    def __init__(self, journal: Journal) -> None:
        import asyncio

        super().__init__(journal)
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        with suppress(RuntimeError):  # The loop was closed: nobody waits in it any more.
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        import asyncio

        try:
            async with asyncio.timeout(POLL_S):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()


def follow(state: State, journal: Journal, after: int, *, durable: bool) -> Iterator[Event]:
    """Events after a seq, then each new one, until the memory is closed or its store is gone."""
    with _ThreadWaker(journal) as waker:
        while True:
            seen, upto = after, _visible(state, journal, durable=durable)
            for event in state.events(after, upto):
                after = event.seq
                yield event
            if after == seen:
                journal.check_place()
                waker.wait()


async def afollow(
    state: State,
    journal: Journal,
    after: int,
    *,
    durable: bool,
    run: Callable[[Callable[[], list[Event]]], Awaitable[list[Event]]],
) -> AsyncGenerator[Event, None]:
    """As `follow`; `run` reads a page off the event loop, waiting occupies no thread."""
    with _LoopWaker(journal) as waker:
        while True:
            page = await run(functools.partial(_page, state, journal, after, durable=durable))
            for event in page:
                after = event.seq
                yield event
            if not page:
                await waker.wait()


def _page(state: State, journal: Journal, after: int, *, durable: bool) -> list[Event]:
    upto = _visible(state, journal, durable=durable)
    found = list(state.events(after, upto, limit=PAGE_EVENTS))
    if not found:
        journal.check_place()
    return found


def _visible(state: State, journal: Journal, *, durable: bool) -> int:
    """The newest event that may be given away."""
    upto = state.upto()
    if not durable:
        return upto
    # Whose sync it is does not matter: one of this process covers everybody's events.
    return min(upto, journal.sync(upto))
