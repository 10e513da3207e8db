"""Actors that take turns at every call to the file system, in an order that follows from a seed.

Each actor is a thread with a log handle of its own, as a process would have; only one runs at a
time, and at each of its calls the scheduler decides who goes on. Time is virtual: it moves with
every step and with every sleep, so waiting for a lock is a step like any other. The same seed gives
the same run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest import mock

from fmemory_segments import _lock, _tail, _turns
from tests.segments.log_tools import Crash, WatchedFileSystem

STEP_S = 1e-4
STEPS_MAX = 200_000
WAIT_S = 60.0
STICKINESS = (0.0, 0.5, 0.9, 0.98)
"""How likely the same actor goes on: from a switch at every call to long stretches."""


class Stuck(AssertionError):  # noqa: N818 - names what was found
    """The actors went on for longer than they can need, or one waits for another for ever."""


class Actor:
    """One thread of a scheduled run.

    Attributes:
        name: To be told in errors.
        error: What ended it, if something did.
    """

    def __init__(self, name: str, scheduler: Scheduler, work: Callable[[], None]) -> None:
        self.name = name
        self.is_done = False
        self.error: BaseException | None = None
        self.dies_at: int | None = None
        self._work = work
        self._scheduler = scheduler
        self._go = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def resume(self) -> None:
        """Let it run to its next call."""
        self._go.release()

    def pause(self) -> None:
        """Wait for its next turn; called in its thread."""
        self._go.acquire()

    def join(self) -> None:
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        self.pause()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self._scheduler.give_back()


class Scheduler:
    """Runs actors step by step.

    Args:
        choose: Decides who goes on.
    """

    def __init__(self, choose: Random) -> None:
        self._choose = choose
        self._stickiness = choose.choice(STICKINESS)
        self._actors: list[Actor] = []
        self._turn = threading.Semaphore(0)
        self._current: Actor | None = None
        self.steps = 0
        self.now = 1000.0

    def add(self, name: str, work: Callable[[], None]) -> Actor:
        """An actor that does some work."""
        actor = Actor(name, self, work)
        self._actors.append(actor)
        return actor

    def run(self) -> None:
        """Run all actors to their ends.

        Raises:
            Stuck: They do not end.
        """
        with self._virtual_time():
            for actor in self._actors:
                actor.start()
            while waiting := [actor for actor in self._actors if not actor.is_done]:
                self._advance(waiting)
            for actor in self._actors:
                actor.join()

    def _advance(self, waiting: list[Actor]) -> None:
        actor = self._current
        if actor not in waiting or self._choose.random() >= self._stickiness:
            actor = self._choose.choice(waiting)
        assert actor is not None
        self._current = actor
        self.steps += 1
        self.now += STEP_S
        if self.steps > STEPS_MAX:
            raise Stuck(f"{self.steps} steps, {[one.name for one in waiting]} not done")
        actor.resume()
        if not self._turn.acquire(timeout=WAIT_S):
            raise Stuck(f"{actor.name} waits for something that is no call")

    def step(self) -> None:
        """Give the turn back and wait for the next one; called by the actor that has it.

        Raises:
            Crash: The actor's process ends here.
        """
        actor = self._current
        assert actor is not None
        self.give_back()
        actor.pause()
        if actor.dies_at is not None and self.steps >= actor.dies_at:
            raise Crash

    def give_back(self) -> None:
        """Have the scheduler decide."""
        self._turn.release()

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Virtual waiting."""
        self.now += seconds
        self.step()

    @contextmanager
    def _virtual_time(self) -> Iterator[None]:
        with (
            mock.patch.object(_lock, "time", self),
            mock.patch.object(_tail, "time", self),
            mock.patch.object(_turns, "time", self),
        ):
            yield


class SteppedFileSystem(WatchedFileSystem):
    """The real file system; every call to it is a step."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(lambda *_: scheduler.step())
        self._scheduler = scheduler

    def mount_type(self, path: Path) -> str:
        self._enter("mount_type", path)
        return "ext4"

    def unlock(self, fd: int) -> None:
        self._scheduler.step()
        super().unlock(fd)
