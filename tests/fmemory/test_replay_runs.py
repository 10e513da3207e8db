"""Runs: what carries the id, how it ended on what evidence, and how runs are chosen and sorted."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import fmemory
from fmemory import (
    ContractError,
    FeatureRecord,
    JournalBackend,
    LogBackend,
    Message,
    NotFound,
    ProgressEntry,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
)
from fmemory._process import is_alive, process_event_id, process_of
from fmemory.replay import RunState, RunSummary, UnreadableEvent, report, runs
from tests.fmemory.copy_tools import KINDS, opened_memories
from tests.fmemory.replay_stores import Plain, answered, at, called, write_broken


@pytest.fixture
def memory() -> Iterator[JournalBackend]:
    with fmemory.open(":memory:") as memory:
        yield memory


def only(memory: LogBackend) -> RunSummary:
    (run,) = runs(memory)
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_runs_are_told_alike_in_every_journal(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened_memories(request, tmp_path) as opened:
        memory = opened(kind, "m")
        write_broken(memory)

        first, second = runs(memory)

    assert (first.run_id, first.session_id, first.actor) == ("run-1", "login", "ada")
    assert (first.reason, first.status, first.evidence) == ("first try", "succeeded", None)
    assert (first.started_at, first.ended_at, first.duration_s) == (at(0), at(5), 300.0)
    assert (first.first_seq, first.last_seq, first.event_count) == (2, 8, 7)
    assert (first.message_count, first.tool_call_count, first.tool_error_count) == (3, 1, 0)
    assert (first.features_gained, first.features_lost) == (("form",), ())
    assert first.last_words == "the form works"
    assert (second.run_id, second.status, second.ended_at) == ("run-2", "open", None)
    assert (second.first_seq, second.last_seq, second.event_count) == (9, 16, 8)
    assert (second.tool_call_count, second.tool_error_count) == (2, 1)
    assert (second.unanswered_count, second.note_count) == (1, 1)
    assert (second.features_gained, second.features_lost) == ((), ("form",))
    assert second.last_words == "rm: no"


def test_a_backend_of_others_is_read_through_what_is_public(memory: JournalBackend) -> None:
    write_broken(memory)

    assert runs(cast("LogBackend", Plain(memory))) == runs(memory)


def test_a_view_of_the_past_has_the_runs_of_then(memory: JournalBackend) -> None:
    write_broken(memory)

    assert [one.run_id for one in runs(cast("LogBackend", memory.at(7)))] == ["run-1"]


def test_a_run_without_checkpoints_begins_with_its_first_event(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="r"):
        memory.append_transcript_messages("s", [Message("user", "hello")])

    run = only(memory)
    assert (run.status, run.first_seq, run.last_words) == (RunState.OPEN, 1, "hello")
    assert run.started_at == memory.event(1).recorded_at


def test_a_run_that_only_a_checkpoint_or_progress_names_is_a_run(memory: JournalBackend) -> None:
    memory.record_run_checkpoint("s", RunCheckpoint("one", at(0), at(1), status=RunStatus.FAILED))
    memory.append_progress_entry("s", ProgressEntry("two", "went on"))

    found = {one.run_id: (one.status, one.last_words) for one in runs(memory)}
    assert found == {"one": (RunState.FAILED, ""), "two": (RunState.OPEN, "went on")}


def test_checkpoints_that_a_session_begins_with_are_runs(memory: JournalBackend) -> None:
    memory.initialize_session_if_missing(
        "s",
        SessionManifest("s", "main", "do it"),
        [],
        initial_checkpoint=RunCheckpoint("zero", at(0), at(2), status=RunStatus.SUCCEEDED),
    )

    assert (only(memory).run_id, only(memory).status) == ("zero", RunState.SUCCEEDED)


def test_a_run_died_if_a_later_one_began_in_its_session(memory: JournalBackend) -> None:
    for run_id in ("one", "two"):
        memory.record_run_checkpoint(
            "s", RunCheckpoint(run_id, at(0), status=RunStatus.IN_PROGRESS)
        )

    one, two = runs(memory)
    assert (one.status, one.evidence) == (RunState.DIED, "run two began after its last event")
    assert (two.status, two.evidence) == (RunState.OPEN, None)


def test_a_run_of_which_the_end_was_erased_is_not_called_dead(memory: JournalBackend) -> None:
    for run_id in ("one", "two"):
        with fmemory.audit(run_id=run_id, actor=f"ada@{socket.gethostname()}:1"):
            memory.record_run_checkpoint("s", RunCheckpoint.started(run_id))
            memory.record_run_checkpoint("s", RunCheckpoint(run_id, at(0), at(1)))
    memory.delete_session("s")
    memory.compact()

    one, two = runs(memory)
    told = "event {} may have closed it, and cannot be read"
    assert (one.status, one.evidence) == (RunState.OPEN, told.format(2))
    assert (two.status, two.evidence) == (RunState.OPEN, told.format(4))


def test_a_run_taken_up_again_behind_what_was_erased_may_have_died(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="one"):
        memory.record_run_checkpoint("s", RunCheckpoint("one", at(0), at(1)))
        memory.delete_session("s")
        memory.record_run_checkpoint("s", RunCheckpoint.started("one"))
    with fmemory.audit(run_id="two"):
        memory.record_run_checkpoint("s", RunCheckpoint.started("two"))
    memory.compact()

    one, _ = runs(memory)
    assert (one.status, one.evidence) == (RunState.DIED, "run two began after its last event")


def test_a_lost_event_that_could_be_of_any_run_is_told(tmp_path: Path) -> None:
    with fmemory.open(f"jsonl:{tmp_path / 'was'}") as memory, fmemory.audit(run_id="r"):
        for session_id in ("a", "a", "b"):
            memory.append_progress_entry(session_id, ProgressEntry("r", "on it", at(0)))
    (events,) = (tmp_path / "was").glob("events-*.jsonl")
    lines = events.read_bytes().splitlines(keepends=True)
    (number,) = [at for at, line in enumerate(lines) if b'"seq":2,' in line]
    events.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
    fmemory.repair(f"jsonl:{tmp_path / 'was'}", f"jsonl:{tmp_path / 'now'}")

    told: list[UnreadableEvent] = []
    with fmemory.open(f"jsonl:{tmp_path / 'now'}") as memory:
        runs(memory, session_id="b", on_unreadable=told.append)
    assert [(one.seq, one.state) for one in told] == [(2, "lost")]


def test_a_run_whose_process_is_gone_died(memory: JournalBackend) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    actor = f"ada@{socket.gethostname()}:{child.pid}"
    with fmemory.audit(actor=actor, run_id="r"):
        memory.record_run_checkpoint("s", RunCheckpoint.started("r"))

    assert only(memory).status is RunState.DIED
    assert only(memory).evidence == f"its process {child.pid} on {socket.gethostname()} is gone"


def test_a_run_whose_process_was_killed_died_and_one_that_goes_on_is_open(tmp_path: Path) -> None:
    path = tmp_path / "store"
    program = (
        "import fmemory, os, sys\n"
        "memory = fmemory.open(sys.argv[1])\n"
        "with fmemory.audit(actor='ada'), memory.session('s').run('killed'):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path)])
    assert child.wait() == -signal.SIGKILL

    with fmemory.open(path) as memory:
        told = f"its process {child.pid} on {socket.gethostname()} is gone"
        assert (only(memory).status, only(memory).evidence) == (RunState.DIED, told)
        with memory.session("other").run("alive"):
            assert runs(memory, session_id="other")[0].status is RunState.OPEN

        async def run() -> RunState:
            async with memory.session("third").run("alive"):
                return runs(memory, session_id="third")[0].status

        assert asyncio.run(run()) is RunState.OPEN


def test_a_copy_of_a_log_elsewhere_says_nothing_of_processes(memory: JournalBackend) -> None:
    memory.record_run_checkpoint(
        "s", RunCheckpoint.started("r"), event_id=f"process:elsewhere:1::{0:016x}"
    )

    assert only(memory).status is RunState.OPEN


def test_a_number_that_another_process_has_now_is_not_the_process() -> None:
    mine = process_of(process_event_id())
    assert mine is not None and is_alive(mine) is True
    boot, namespace, ticks = mine.birth.split("-")

    def told(birth: str) -> bool | None:
        event_id = f"process:{mine.host}:{mine.pid}:{birth}:{0:016x}"
        named = process_of(event_id)
        return is_alive(named) if named is not None else None

    assert told(f"{boot}-{namespace}-{int(ticks) + 1}") is False
    assert told(f"{int(boot, 16) ^ 1:08x}-{namespace}-{ticks}") is False
    assert told(f"{boot}-{int(namespace) + 1}-{ticks}") is None
    assert told("") is True


def test_a_killed_process_that_nobody_waited_for_is_gone() -> None:
    program = "from fmemory._process import process_event_id as p; print(p(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        named = process_of(child.stdout.readline().strip())
        assert named is not None and is_alive(named) is True
        child.kill()
        child.stdout.read()  # Its end is known when its files are closed.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(named) is False


def test_a_run_that_its_living_process_left_open_is_open(memory: JournalBackend) -> None:
    session = memory.session("s")
    # What holds in a thread ends with it, the run does not.
    leaving = threading.Thread(target=session.run("left").__enter__)
    leaving.start()
    leaving.join()
    with session.run("later"):
        pass

    assert [(one.run_id, one.status) for one in runs(memory)] == [
        ("left", RunState.OPEN), ("later", RunState.SUCCEEDED),
    ]  # fmt: skip


def test_a_run_that_is_begun_again_says_so(memory: JournalBackend) -> None:
    session = memory.session("s")
    for told in (None, "begun again by event 3, after it had ended"):
        with session.run("r"):
            assert only(memory).evidence == told
            assert only(memory).status is RunState.OPEN

    found = only(memory)
    assert (found.status, found.event_count) == (RunState.SUCCEEDED, 4)
    assert found.evidence == told
    session.record_run_checkpoint(RunCheckpoint.started("more"))
    session.record_run_checkpoint(RunCheckpoint.started("more"))
    assert runs(memory)[-1].evidence is None


def test_a_run_that_came_to_its_session_late_began_when_it_came(memory: JournalBackend) -> None:
    session = memory.session("s")
    with fmemory.audit(run_id="b"):
        memory.add_note("what b noted before it came")
    for run_id in ("a", "b"):
        with fmemory.audit(run_id=run_id):
            session.append_transcript_messages([Message("user", "hi")])

    told = {one.run_id: (one.status, one.evidence) for one in runs(memory)}
    assert told["a"] == (RunState.DIED, "run b began after its last event")
    for found in (report(memory, "a").runs, report(memory, session_id="s").runs):
        assert (found[0].status, found[0].evidence) == told["a"]


@pytest.mark.parametrize("a_writes_last", [False, True])
def test_features_gained_pass_after_the_run_whoever_flipped_them(
    memory: JournalBackend, a_writes_last: bool
) -> None:
    session = memory.session("s")
    session.replace_feature_list([FeatureRecord("f", "ui", "form"), FeatureRecord("g", "ui", "x")])
    with fmemory.audit(run_id="a"):
        session.update_feature_pass("f", True)
        session.update_feature_pass("g", True)
    with fmemory.audit(run_id="b"):
        session.update_feature_pass("f", False)
    if a_writes_last:
        with fmemory.audit(run_id="a"):
            session.append_transcript_messages([Message("user", "done")])

    told = {one.run_id: (one.features_gained, one.features_lost) for one in runs(memory)}
    assert told["a"] == ((("g",), ("f",)) if a_writes_last else (("f", "g"), ()))
    assert told["b"] == ((), ("f",))
    one = report(memory, "a").runs[0]
    assert (one.features_gained, one.features_lost) == told["a"]


def test_what_a_run_wrote_to_no_session_can_be_reported(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="r"):
        memory.add_note("found the cause", id="n1")
        for session_id in ("A", "B"):
            memory.append_transcript_messages(session_id, [Message("user", "x")])

    assert [(one.session_id, one.note_count) for one in runs(memory)] == [
        (None, 1), ("A", 0), ("B", 0),
    ]  # fmt: skip
    with pytest.raises(ContractError, match="before it came to any"):
        report(memory, "r")
    found = report(memory, "r", session_id="")
    assert (found.session_id, [one.ids for one in found.notes]) == (None, [("n1",)])
    with pytest.raises(NotFound, match="there are: r"):
        report(memory, "q", session_id="")


def test_a_process_of_another_machine_is_not_said_to_be_gone(memory: JournalBackend) -> None:
    with fmemory.audit(actor="ada@elsewhere.example:1", run_id="r"):
        memory.record_run_checkpoint("s", RunCheckpoint.started("r"))

    assert only(memory).status is RunState.OPEN


def test_an_end_without_a_verdict_is_neither_success_nor_failure(memory: JournalBackend) -> None:
    memory.record_run_checkpoint(
        "s", RunCheckpoint("r", at(0), at(1), status=RunStatus.IN_PROGRESS)
    )

    assert only(memory).status is RunState.ENDED


def test_a_run_that_is_taken_up_again_is_open(memory: JournalBackend) -> None:
    memory.record_run_checkpoint("s", RunCheckpoint("r", at(0), status=RunStatus.IN_PROGRESS))
    memory.record_run_checkpoint("s", RunCheckpoint("r", at(0), at(1), status=RunStatus.FAILED))
    memory.record_run_checkpoint("s", RunCheckpoint("r", at(2), status=RunStatus.IN_PROGRESS))

    run = only(memory)
    assert (run.status, run.started_at, run.ended_at) == (RunState.OPEN, at(0), None)


def test_last_words_are_those_of_the_newest_checkpoint(memory: JournalBackend) -> None:
    words = ["so far", "farther", "at the end", "once more"]
    ends = [None, None, at(1), None]
    told = []
    for note, ended in zip(words, ends, strict=True):
        memory.record_run_checkpoint("s", RunCheckpoint("r", at(0), ended, note=note))
        told.append(only(memory).last_words)

    assert told == words


def test_a_later_run_may_answer_what_one_left_open(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="one"):
        memory.append_transcript_messages("s", called("c", "ls"))
    with fmemory.audit(run_id="two"):
        memory.append_transcript_messages("s", answered("c", "a b"))

    assert [one.unanswered_count for one in runs(memory)] == [0, 0]


def test_notes_from_before_a_run_came_to_its_session_are_its_own(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="r", actor="ada"):
        memory.add_note("first of all")
        memory.append_transcript_messages("s", [Message("user", "hello")])

    run = only(memory)
    assert (run.session_id, run.note_count, run.first_seq, run.last_seq) == ("s", 1, 1, 2)


def test_a_run_that_wrote_records_only_has_no_session(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="r"):
        memory.add_note("alone")

    assert (only(memory).session_id, only(memory).note_count) == (None, 1)


def test_what_a_fork_copies_is_not_done_again(memory: JournalBackend) -> None:
    write_broken(memory)
    with fmemory.audit(run_id="fork"):
        memory.fork_session("login", "again")

    (fork,) = runs(memory, session_id="again")
    assert (fork.run_id, fork.message_count, fork.tool_call_count) == ("fork", 0, 0)


def test_runs_are_chosen_by_session_actor_status_and_time(memory: JournalBackend) -> None:
    write_broken(memory)

    def ids(**chosen: object) -> list[str]:
        return [one.run_id for one in runs(memory, **chosen)]  # type: ignore[arg-type]

    assert ids(actor="bob") == ids(status="open") == ids(since=at(10)) == ["run-2"]
    assert ids(until=at(10)) == ids(status=RunState.SUCCEEDED) == ["run-1"]
    assert ids(session_id="other") == []
    assert ids(session_id="login") == ["run-1", "run-2"]


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("started", "run-1"),
        ("duration", "run-1"),
        ("events", "run-2"),
        ("messages", "run-1"),
        ("calls", "run-2"),
        ("errors", "run-2"),
    ],
)
def test_runs_are_sorted_by_what_is_asked_for(
    sort: str, first: str, memory: JournalBackend
) -> None:
    write_broken(memory)

    assert runs(memory, sort=sort)[0].run_id == first


@pytest.mark.parametrize("wrong", [{"sort": "size"}, {"status": "fine"}])
def test_an_unknown_word_is_refused(wrong: dict[str, str], memory: JournalBackend) -> None:
    with pytest.raises(ContractError) as caught:
        runs(memory, **wrong)  # type: ignore[arg-type]

    (name,) = wrong
    assert str(caught.value).startswith(f"{name}: expected one of ")


def test_runs_and_reports_agree_on_what_a_run_wrote_outside_of_its_sessions() -> None:
    with fmemory.open(":memory:") as memory:
        with fmemory.audit(run_id="r"):
            memory.session("a").append_transcript_messages([Message("user", "x")])
        with fmemory.audit(run_id="q"):
            memory.session("b").append_progress_entry(ProgressEntry("r", "did"))
        with fmemory.audit(run_id="r"):
            memory.add_note("n", [1.0])
            memory.session("a").append_transcript_messages([Message("user", "y")])
            memory.add_note("m", [1.0])

        told = {
            one.session_id: (one.event_count, one.note_count)
            for one in runs(memory)
            if one.run_id == "r"
        }
        reported = {name: report(memory, "r", session_id=name).runs[0] for name in ("a", "b")}

    assert told == {"a": (3, 1), "b": (2, 1)}
    assert {name: (one.event_count, one.note_count) for name, one in reported.items()} == told
