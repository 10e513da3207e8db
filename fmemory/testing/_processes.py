"""Other processes for tests: fresh interpreters that start together, with bounded waits.

A job is a function that can be found by its module's name, and arguments that can be pickled. It is
given `start`, which says that it is ready and waits until all are, and returns a JSON value. No
sleep anywhere: what must not be waited for longer is killed by a timer, and then the test fails.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Timer
from typing import Generic, TypeAlias, TypeVar

__all__ = ["Composed", "Job", "ProcessError", "Start", "run_together"]

TIMEOUT_S = 90.0

Inner = TypeVar("Inner")
Outer = TypeVar("Outer")
Start: TypeAlias = Callable[[], None]

_CHILD = "from fmemory.testing._processes import child_main; child_main()"


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
        ProcessError: One raised, died or was killed after `timeout_s`.
    """
    processes = [_spawn(job) for job in jobs]
    timer = Timer(timeout_s, _kill, [processes])
    timer.start()
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write("go\n")
                process.stdin.flush()
        return [_result(process) for process in processes]
    finally:
        timer.cancel()
        _kill(processes)


def child_main() -> None:
    """Entry of the child: one pickled job on the first line, `go` on the second."""
    function, arguments = pickle.loads(base64.b64decode(sys.stdin.readline()))

    def start() -> None:
        _say("ready")
        sys.stdin.readline()

    try:
        answer: dict[str, object] = {"result": function(start, *arguments)}
    except BaseException:
        answer = {"failure": traceback.format_exc()}
    _say(json.dumps(answer))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _spawn(job: Job) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdin is not None
    line = base64.b64encode(pickle.dumps((job.function, job.arguments))).decode()
    with suppress(BrokenPipeError):
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process


def _result(process: subprocess.Popen[str]) -> object:
    output, errors = process.communicate()
    lines = output.splitlines()
    answer: object = None
    with suppress(ValueError):
        answer = json.loads(lines[-1]) if lines else None
    if process.returncode or not isinstance(answer, dict) or "result" not in answer:
        failure = answer.get("failure") if isinstance(answer, dict) else output
        raise ProcessError(f"exit code {process.returncode}\n{failure}\n{errors}")
    return answer["result"]


def _kill(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                with suppress(BrokenPipeError):
                    stream.close()
