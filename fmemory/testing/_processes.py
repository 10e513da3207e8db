"""Other processes for tests: they start together, and every wait is bounded.

A job is a function that can be found by its module's name, and arguments that can be pickled. It is
given `start`, which waits until all jobs are there, and returns a JSON value. A fresh interpreter
imports what is needed and forks a process for each job, so that none has anything open before. It
opens nothing itself and is kept for the next jobs: its imports take longer than most tests.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext  # not all on every system

__all__ = ["Composed", "Job", "ProcessError", "Start", "run_together"]

TIMEOUT_S = 90.0

Inner = TypeVar("Inner")
Outer = TypeVar("Outer")
Start: TypeAlias = Callable[[], None]

_SERVER = "from fmemory.testing._processes import serve; serve()"


@dataclass(frozen=True, slots=True)
class Job:
    """Work for one process: `function(start, *arguments)`, which returns a JSON value."""

    function: Callable[..., object]
    arguments: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Composed(Generic[Inner, Outer]):
    """`outer(inner())` as something that can be pickled, for `spawn_target`."""

    outer: Callable[[Inner], Outer]
    inner: Callable[[], Inner]

    def __call__(self) -> Outer:
        return self.outer(self.inner())


class ProcessError(AssertionError):
    """A process raised, died or took too long; the message holds what it wrote."""


def run_together(jobs: Sequence[Job], *, timeout_s: float = TIMEOUT_S) -> list[object]:
    """Run each job in a process of its own; all pass their `start` together.

    Returns:
        What each job returned, in the order of `jobs`.

    Raises:
        ProcessError: One raised, died, or not all had ended after `timeout_s`.
    """
    work = base64.b64encode(pickle.dumps((list(jobs), timeout_s))).decode()
    answers: list[dict[str, object]] = json.loads(_Server.running().ask(work, timeout_s))
    if len(answers) != len(jobs):
        _Server.end_kept()
        raise ProcessError(f"expected {len(jobs)} answers, got {len(answers)}")
    failures = [one["failure"] for one in answers if "failure" in one]
    if failures:
        raise ProcessError("\n".join(map(str, failures)))
    return [one["result"] for one in answers]


class _Server:
    """The fresh interpreter: a line of work on its input, a line of answers on its output."""

    _kept: _Server | None = None

    def __init__(self, surroundings: object, environment: dict[str, str]) -> None:
        self.surroundings = surroundings
        # A pipe that nobody reads would hold up who writes much to it.
        self._errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - kept
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            start_new_session=True,
        )

    @classmethod
    def running(cls) -> _Server:
        """The server of this process; a new one where folder, paths or environment are others."""
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths}
        environment.pop("PYTEST_CURRENT_TEST", None)
        surroundings = (os.getcwd(), environment)  # noqa: PTH109 - only compared
        if cls._kept is not None and cls._kept.surroundings != surroundings:
            cls.end_kept()
        if cls._kept is None:
            cls._kept = cls(surroundings, environment)
        return cls._kept

    @classmethod
    def end_kept(cls) -> None:
        """End the server that is kept, if one is."""
        kept, cls._kept = cls._kept, None
        if kept is not None:
            kept._end()

    def ask(self, work: str, timeout_s: float) -> str:
        """The line that answers this one; a server that gives none is ended."""
        lines: SimpleQueue[str] = SimpleQueue()
        asking = Thread(target=self._ask, args=(work, lines), daemon=True)
        asking.start()
        try:
            line = lines.get(timeout=timeout_s)
            asking.join()
        except Empty as error:
            self.end_kept()
            raise ProcessError(f"expected an end within {timeout_s} s, got none") from error
        if not line.endswith("\n"):
            self._process.wait(timeout_s)
            self._errors.seek(0)
            told = f"exit code {self._process.returncode}\n{line}\n{self._errors.read()}"
            self.end_kept()
            raise ProcessError(told)
        return line

    def _ask(self, work: str, lines: SimpleQueue[str]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has died, so there is no answer to read
            self._process.stdin.write(work + "\n")
            self._process.stdin.flush()
        lines.put(self._process.stdout.readline())

    def _end(self) -> None:
        """Leave no process behind: the server leads a group of its own."""
        if os.getpid() != self._owner:
            return  # a fork of the process whose server it is
        if self._process.returncode is None:  # not waited for, so its number is no one else's
            if hasattr(os, "killpg"):
                # Nothing that a job may ignore: whoever lives holds the pipe that is closed below.
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            with suppress(BrokenPipeError):  # work that it died before reading
                stream.close()


atexit.register(_Server.end_kept)


def serve() -> None:
    """Entry of the fresh interpreter: jobs come on its input, answers go to its output."""
    # Python warns of forking beside threads; here they are numpy's idle ones.
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    # What a job prints goes where its errors go: among the answers it would be taken for one.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        for line in sys.stdin:
            jobs, timeout_s = pickle.loads(base64.b64decode(line))
            output.write(json.dumps(_answers(jobs, timeout_s)) + "\n")
            output.flush()


def _answers(jobs: Sequence[Job], timeout_s: float) -> list[dict[str, object]]:
    context: ForkContext | SpawnContext = (
        get_context("fork") if hasattr(os, "fork") else get_context("spawn")
    )
    barrier = context.Barrier(len(jobs), timeout=timeout_s)
    pipes: list[Connection] = []
    processes = []
    for job in jobs:
        reading, writing = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(job, barrier, writing))
        process.start()
        writing.close()
        pipes.append(reading)
        processes.append(process)
    answers = [_answer(pipe) for pipe in pipes]
    for process in processes:
        process.join()
    return answers


def _work(job: Job, barrier: Barrier, pipe: Connection) -> None:
    started = False

    def start() -> None:
        nonlocal started
        barrier.wait()
        started = True

    try:
        answer: dict[str, object] = {"result": job.function(start, *job.arguments)}
    except BaseException:
        if not started:
            barrier.abort()  # nobody needs to wait for this one
        answer = {"failure": traceback.format_exc()}
    pipe.send(answer)
    pipe.close()


def _answer(pipe: Connection) -> dict[str, object]:
    try:
        answer: dict[str, object] = pipe.recv()
    except EOFError:
        return {"failure": "a process died without an answer"}
    return answer
