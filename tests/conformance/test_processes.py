"""How the suites start processes: failures are told, and nothing is left for the next jobs."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from fmemory.testing._processes import Job, ProcessError, Start, _Server, run_together

WAIT_S = 20.0


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


def refuse_to_end(start: Start, told: str) -> None:
    """Tell its process, and end when a test that waits for it has failed already."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(told).write_text(str(os.getpid()))
    start()
    threading.Event().wait(2 * WAIT_S)


def print_answers(start: Start) -> str:
    start()
    print(json.dumps([{"result": "printed"}]), flush=True)
    os.write(1, b"words\n")
    return "returned"


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


def test_job_that_refuses_to_end_is_ended_all_the_same(tmp_path: Path) -> None:
    servers(1)  # So that the time is that of the job, not of a server that starts.
    told = tmp_path / "process"
    began = time.monotonic()
    with pytest.raises(ProcessError, match="expected an end within"):
        run_together([Job(refuse_to_end, (str(told),))], timeout_s=2.0)

    assert time.monotonic() - began < WAIT_S
    process, deadline = int(told.read_text()), time.monotonic() + WAIT_S
    while is_running(process):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def is_running(process: int) -> bool:
    """False for one that is gone, or that only its parent has still to ask about."""
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return told.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_what_a_job_prints_is_no_answer() -> None:
    assert run_together([Job(print_answers)]) == ["returned"]
    assert run_together([Job(folder)]) == [str(Path.cwd())]


def test_answers_of_another_count_are_not_those_of_these_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (before,) = servers(1)
    with monkeypatch.context() as patch:
        patch.setattr(_Server, "ask", lambda *_: "[]\n")
        with pytest.raises(ProcessError, match="expected 1 answers, got 0"):
            run_together([Job(folder)])
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
