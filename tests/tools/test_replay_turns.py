"""Commands that look for a turn, compare runs, go on from one, or wait: output and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fmemory
from fmemory import Message
from tests.tools.helpers import Command, only_line


def objects(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def damaged(store: Path) -> Path:
    """The store with a changed byte in the first answer of run-1, event 6."""
    (segment,) = store.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.rindex(b"the form works")] ^= 1
    segment.write_bytes(content)
    return store


# bisect


def bisected(run: Command, store: Path, *arguments: object) -> dict[str, object]:
    result = run("bisect", *arguments, "--json", "-s", store)
    assert result.exit_code == 0, result.output
    (found,) = objects(result.stdout)
    return found


def test_bisect_finds_a_lost_feature(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory, fmemory.audit(actor="eve"):
        memory.update_feature_pass("login", "form", False)
        memory.append_transcript_messages("login", [Message("user", "hm")])

    found = bisected(run, store, "--ok", 4, "--bad", 13, "--feature", "form")

    assert (found["bad"], found["ok"], found["actor"]) == (12, 9, "eve")


def test_bisect_asks_a_command_with_the_state_on_standard_input(store: Path, run: Command) -> None:
    command = (
        """python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["message_count"] > 1)'"""
    )

    found = bisected(run, store, "--ok", 1, "--bad", 9, "--exec", command)

    assert (found["bad"], found["event_count"]) == (6, 8)


def test_bisect_takes_125_for_a_state_to_skip(store: Path, run: Command) -> None:
    command = "seq=$(sed 's/.*\"seq\": \\([0-9]*\\).*/\\1/'); case $seq in"
    skips = f"{command} [1-4]) exit 0;; 9) exit 1;; *) exit 125;; esac"

    result = run("bisect", "--ok", "1", "--bad", "9", "--exec", skips, "-s", store)

    assert result.exit_code == 1, result.output
    *_, named, why, command = result.stdout.splitlines()
    assert named == "turned bad by one of these 5 events: 5 to 9"
    assert why == "the states between were skipped"
    assert command == f"  fmemory diff 4 9 --session login -s {store}"


def test_bisect_names_all_events_that_others_stand_between(tmp_path: Path, run: Command) -> None:
    path = tmp_path / "m"
    with fmemory.open(path) as memory, fmemory.audit(actor="mallory", reason="a slip"):
        for number in range(1, 31):
            said = [Message("user", f"number {number}")]
            memory.append_transcript_messages("other" if number % 3 == 0 else "s", said)
    told = "case $(cat) in *'\"seq\": 1,'*) exit 0;; *'\"seq\": 29,'*) exit 1;; *) exit 125;; esac"

    result = run("bisect", "--session", "s", "--ok", 1, "--bad", 29, "--exec", told, "-s", path)

    assert result.exit_code == 1, result.output
    _, _, named = result.stdout.partition("turned bad by one of these 19 events: ")
    ranges, _, _ = named.partition("the states between")
    pairs = ", ".join(f"{seq} to {seq + 1}" for seq in range(4, 29, 3))
    assert " ".join(ranges.split()) == f"2, {pairs}"
    assert "mallory" not in result.stdout
    assert "slip" not in result.stdout


@pytest.mark.parametrize(
    ("command", "how"),
    [("exit 126", "126"), ("no-such-command-here", "127"), ("kill -9 $$", "a signal")],
)
def test_bisect_ends_where_the_command_cannot_tell(
    command: str, how: str, store: Path, run: Command
) -> None:
    result = run("bisect", "--ok", "1", "--bad", "9", "--exec", command, "-s", store)

    assert result.exit_code == 2
    assert f"got exit code {how}" in result.stderr or f"got {how}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ok", "1", "--bad", "9"], "one of --feature, --grep and --exec"),
        (["--ok", "1", "--bad", "9", "--grep", "a", "--feature", "form"], "one of --feature"),
        (["--ok", "1", "--bad", "9", "--grep", ""], "got an empty text"),
        (["--ok", "9", "--bad", "1", "--grep", "a"], "exchange the two"),
        (["--ok", "1", "--bad", "99", "--grep", "a"], "--bad: there is no event 99"),
        (["--ok", "4", "--bad", "9", "--feature", "form"], "event 9 to be bad, got ok"),
        (["--ok", "1", "--bad", "4", "--feature", "form"], "event 1 to be ok, got bad"),
        (["--ok", "9", "--bad", "11", "--feature", "form"], "nothing of it changed"),
        (["--ok", "x", "--bad", "9", "--grep", "a"], "whole number for --ok"),
        (["--bad", "9", "--grep", "a"], "--ok is missing"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_bisect_refuses_ends_and_checks_that_are_none(
    arguments: list[str], words: str, store: Path, run: Command
) -> None:
    result = run("bisect", *arguments, "-s", store)

    assert result.exit_code == 2
    assert words in only_line(result.stderr)


# diff of runs


def test_diff_of_two_runs_tells_where_they_part(store: Path, run: Command) -> None:
    result = run("diff", "run-1", "run-2", "-s", store)

    assert result.exit_code == 1
    assert "they part at message 1: the role differs" in result.stdout
    (found,) = objects(run("diff", "run-1", "run-2", "--json", "-s", store).stdout)
    assert found["is_same"] is False
    assert found["features"] == [
        {"feature_id": "token", "a": False, "b": True, "a_seq": 1, "b_seq": 8}
    ]


def test_diff_of_runs_that_are_the_same_exits_with_0(tmp_path: Path, run: Command) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        for name in ("a", "b"):
            with memory.session(name).run(name):
                memory.append_transcript_messages(name, [Message("user", "hi")])

    result = run("diff", "a", "b", "-s", tmp_path / "m")

    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "no difference")


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """Runs 1 and 2, of two events each."""
    with fmemory.open(tmp_path / "numbered") as memory:
        for name in ("1", "2"):
            with fmemory.audit(run_id=name):
                memory.append_transcript_messages("s", [Message("user", name)])
                memory.append_transcript_messages("s", [Message("user", "more")])
    return tmp_path / "numbered"


def test_numbers_that_are_events_and_runs_need_to_be_told_apart(
    numbered: Path, run: Command
) -> None:
    result = run("diff", "1", "2", "-s", numbered)

    assert result.exit_code == 2
    line = only_line(result.stderr)
    assert "events 1 and 2, or the runs of these ids" in line
    assert "--places" in line
    assert "--runs" in line


def test_numbers_are_read_as_told(numbered: Path, run: Command) -> None:
    places = run("diff", "1", "2", "--places", "--json", "-s", numbered)
    runs = run("diff", "1", "2", "--runs", "--json", "-s", numbered)

    assert [one["part"] for one in objects(places.stdout)] == ["message"]
    assert [one["shared_messages"] for one in objects(runs.stdout)] == [0]


def test_numbers_of_which_one_is_no_run_are_events(numbered: Path, run: Command) -> None:
    result = run("diff", "1", "4", "--json", "-s", numbered)

    assert (result.exit_code, [one["part"] for one in objects(result.stdout)]) == (
        1,
        ["message"] * 3,
    )


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("3", "run-1", "A, 3, is a place in the log and B a run"),
        ("run-1", "1h ago", "B, 1h ago, is a place in the log and A a run"),
        ("run-1", "nobody", "B: expected a sequence number, a time or a run, got 'nobody'"),
        ("run-1", "run", "B: run 'run' could be any of: run-1, run-2"),
        ("run-1", "run-1", "are the same run"),
    ],
)
def test_words_that_do_not_fit_together_are_refused(
    a: str, b: str, words: str, store: Path, run: Command
) -> None:
    result = run("diff", a, b, "-s", store)

    assert result.exit_code == 2
    assert words in only_line(result.stderr)


def test_a_run_that_two_sessions_have_is_told_by_its_session(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory, fmemory.audit(run_id="run-1"):
        memory.append_transcript_messages("other", [Message("user", "hi")])

    result = run("diff", "run-1", "run-2", "-s", store)

    assert result.exit_code == 2
    assert "could be any of: login/run-1, other/run-1; name it as" in only_line(result.stderr)
    assert run("diff", "run-1", "run-2", "--session", "login", "-s", store).exit_code == 1


# fork


def test_fork_goes_on_from_a_past_point_and_names_its_origin(store: Path, run: Command) -> None:
    result = run("fork", "login", "--at", "4", "again", "--json", "-s", store)

    assert result.exit_code == 0
    (told,) = objects(result.stdout)
    assert (told["session_id"], told["origin"], told["origin_seq"]) == ("again", "login", 4)
    with fmemory.open(store, read_only=True) as memory:
        first = next(memory.events(stream=("session", "again")))
        assert isinstance(first.data, dict)
        assert (first.seq, first.type, first.data["origin"], first.data["origin_seq"]) == (
            12,
            "session_forked",
            "login",
            4,
        )
        assert (first.actor, first.reason) == ("tester", "fork of login")
        past = memory.at(4).load_bootstrap_state("login")
        copy = memory.load_bootstrap_state("again")
        assert copy.feature_list == past.feature_list
        assert len(memory.load_transcript_messages("again")) == 1


def test_fork_changes_nothing_of_the_session_it_comes_from(store: Path, run: Command) -> None:
    with fmemory.open(store, read_only=True) as memory:
        before = list(memory.events(stream=("session", "login")))

    assert run("fork", "login", "again", "-s", store).exit_code == 0

    with fmemory.open(store, read_only=True) as memory:
        assert list(memory.events(stream=("session", "login"))) == before
        assert memory.load_transcript_messages("again") == memory.load_transcript_messages("login")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody", "again"], "no session 'nobody'"),
        (["login", "login"], "expected another id than the source's"),
        (["login", "other"], "expected a new session id"),
        (["login", "again", "--at", "99"], "--at: there is no event 99"),
        (["login", "again", "--at", "0"], "begins at event 1"),
        (["login", ""], "target"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_a_fork_that_cannot_be_writes_nothing(
    arguments: list[str], words: str, store: Path, run: Command
) -> None:
    with fmemory.open(store) as memory:
        memory.append_transcript_messages("other", [Message("user", "hi")])

    result = run("fork", *arguments, "-s", store)

    assert result.exit_code == 2
    assert words in only_line(result.stderr)
    with fmemory.open(store, read_only=True) as memory:
        assert memory.health().head_seq == 12


def test_fork_of_a_store_that_is_not_there_makes_none(tmp_path: Path, run: Command) -> None:
    assert run("fork", "a", "b", "-s", tmp_path / "nothing").exit_code == 3
    assert not (tmp_path / "nothing").exists()


# tail


def test_tail_ends_with_1_at_the_awaited_event(store: Path, run: Command) -> None:
    result = run("tail", "--from", "2", "--until", "progress_appended", "--json", "-s", store)

    assert result.exit_code == 1
    assert [one["seq"] for one in objects(result.stdout)] == [2, 3, 4, 5]


def test_tail_ends_with_the_command_that_shows_what_was_awaited(store: Path, run: Command) -> None:
    result = run("tail", "--from", 1, "--until", "feature_pass_updated", "-s", store)

    seq = result.stdout.splitlines()[-2].split()[0]
    assert result.stdout.splitlines()[-1] == f"  fmemory show {seq} -s {store}"
    assert run("show", seq, "-s", store).exit_code == 0


def test_tail_awaits_an_error(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        failed = Message("tool", "no", tool_call_id="c", is_error=True)
        memory.append_transcript_messages("login", [failed])
        memory.append_transcript_messages("login", [Message("user", "on")])

    result = run("tail", "--from", "1", "--until", "error", "--json", "-s", store)

    assert result.exit_code == 1
    assert [one["seq"] for one in objects(result.stdout)][-1] == 12


def test_tail_waits_for_what_another_process_writes(store: Path) -> None:
    code = "from fmemory_tools.cli import main; main()"
    command = [sys.executable, "-c", code, "tail", "--from", "11", "--until", "error", "--json"]
    failed = Message("tool", "no", tool_call_id="c", is_error=True)
    command += ["-s", str(store)]
    # Each line must come at once, also where the environment does not ask for it.
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as waiting,
        ended_after(60, waiting) as lines,
        fmemory.open(store) as memory,
    ):
        # What follows is written when the event before it was shown: the command waits for it.
        shown = [next(lines)]
        memory.append_transcript_messages("login", [Message("user", "on")])
        shown.append(next(lines))
        memory.append_transcript_messages("login", [failed])
        shown += lines

    assert waiting.returncode == 1
    assert [one["seq"] for one in objects("".join(shown))] == [11, 12, 13]


def test_tail_ends_where_the_store_is_taken_away(store: Path) -> None:
    code = "from fmemory_tools.cli import main; main()"
    command = [sys.executable, "-c", code, "tail", "--from", "11", "--until", "error", "--json"]
    command += ["-s", str(store)]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as waiting,
        ended_after(60, waiting) as lines,
    ):
        next(lines)
        store.rename(store.with_name("elsewhere"))
        assert list(lines) == []
        assert waiting.stderr is not None
        told = waiting.stderr.read()

    assert waiting.returncode == 3
    assert "moved, removed or made anew" in told
    assert "Traceback" not in told


@contextmanager
def ended_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[Iterator[str]]:
    """The lines that a process writes; it is killed when it takes too long, or in the end."""
    assert process.stdout is not None
    killer = threading.Timer(seconds, process.kill)
    killer.start()
    try:
        yield iter(process.stdout)
        process.wait()
    finally:
        killer.cancel()
        process.kill()


def test_tail_does_not_count_what_was_there_before_it_looked(store: Path, run: Command) -> None:
    result = run("tail", "--until", "records_put", "--count", "10", "-s", store)

    assert result.exit_code == 0


def test_tail_refuses_a_type_that_no_event_has(store: Path, run: Command) -> None:
    result = run("tail", "--until", "errors", "-s", store)

    assert result.exit_code == 2
    assert "got 'errors'" in only_line(result.stderr)


def test_a_bisection_whose_state_is_damaged_cannot_be_read(damaged: Path, run: Command) -> None:
    result = run("bisect", "--ok", "1", "--bad", "9", "--grep", "done", "-s", damaged)

    assert result.exit_code == 3
    assert "fmemory verify" in only_line(result.stderr)
