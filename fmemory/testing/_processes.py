"""Other processes for tests: they start together, and every wait is bounded.

A job is a function that can be found by its module's name, and arguments that can be pickled. It is
given `start`, which waits until all jobs are there, and returns a JSON value. One fresh interpreter
imports what is needed and starts a process for each job, so that none has anything open before.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from signal import SIGTERM
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

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
    paths = os.pathsep.join(path for path in sys.path if path)
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    work = base64.b64encode(pickle.dumps((list(jobs), timeout_s))).decode()
    try:
        output, errors = server.communicate(work, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"expected an end within {timeout_s} s, got none") from error
    finally:
        _end(server)
    if server.returncode:
        raise ProcessError(f"exit code {server.returncode}\n{output}\n{errors}")
    answers: list[dict[str, object]] = json.loads(output)
    failures = [one["failure"] for one in answers if "failure" in one]
    if failures:
        raise ProcessError("\n".join(map(str, failures)))
    return [one["result"] for one in answers]


def serve() -> None:
    """Entry of the fresh interpreter: jobs come on its input, answers go to its output."""
    jobs, timeout_s = pickle.loads(base64.b64decode(sys.stdin.read()))
    # Python warns of forking beside threads; here they are numpy's idle ones.
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
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
    sys.stdout.write(json.dumps(answers))


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


def _end(server: subprocess.Popen[str]) -> None:
    """Leave no process behind: the server leads a group of its own."""
    if server.poll() is None:
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(server.pid, SIGTERM)
        server.kill()
    server.communicate()
