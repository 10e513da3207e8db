"""How the suites start processes: failures are told, and nothing is left for the next jobs."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from fmemory.testing._processes import Job, ProcessError, Start, run_together


def processes(start: Start) -> list[int]:
    """Of a job, the process and the one that started it."""
    start()
    return [os.getpid(), os.getppid()]


def fail(start: Start) -> None:
    start()
    raise ValueError("as told")


def kill_server(start: Start) -> None:
    start()
    os.kill(os.getppid(), signal.SIGKILL)


def wait_for_ever(start: Start) -> None:
    start()
    threading.Event().wait()


def variable(start: Start) -> str | None:
    start()
    return os.environ.get("FMEMORY_TOLD")


def folder(start: Start) -> str:
    start()
    return str(Path.cwd())


def servers(*counts: int) -> set[object]:
    """The processes that started so many jobs, one time after another."""
    answers = [one for count in counts for one in run_together([Job(processes)] * count)]
    return {one[1] for one in answers if isinstance(one, list)}


def test_every_job_has_a_process_of_its_own_and_all_the_same_parent() -> None:
    answers = run_together([Job(processes)] * 3) + run_together([Job(processes)] * 2)
    pairs = [tuple(one) for one in answers if isinstance(one, list)]
    assert len(set(pairs)) == 5
    assert len({parent for _, parent in pairs}) == 1


def test_job_that_raises_is_told_and_the_next_ones_run() -> None:
    with pytest.raises(ProcessError, match="ValueError: as told"):
        run_together([Job(processes), Job(fail)])
    assert len(servers(2)) == 1


def test_job_that_never_ends_is_ended_and_the_next_ones_run() -> None:
    (before,) = servers(1)
    with pytest.raises(ProcessError, match="expected an end within"):
        run_together([Job(wait_for_ever)], timeout_s=1.0)
    assert servers(1) != {before}


def test_server_that_dies_is_told_and_the_next_jobs_have_another() -> None:
    (before,) = servers(1)
    with pytest.raises(ProcessError, match="exit code -9"):
        run_together([Job(kill_server)], timeout_s=5.0)
    assert servers(1) != {before}


def test_jobs_see_the_environment_and_the_folder_of_their_moment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run_together([Job(variable)]) == [None]
    monkeypatch.setenv("FMEMORY_TOLD", "now")
    monkeypatch.chdir(tmp_path)
    assert run_together([Job(variable), Job(folder)]) == ["now", str(tmp_path)]
