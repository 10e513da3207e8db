"""`fmemory runs` and `fmemory report`: what they show, choose and refuse, as text and JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fmemory
from fmemory import FeatureRecord, Message, RunCheckpoint, RunStatus, SessionManifest
from tests.fmemory.replay_stores import answered, called, write_broken
from tests.tools.helpers import Command, bytes_of, only_line

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A store with a run that succeeded and one that broke something."""
    path = tmp_path / "broken"
    with fmemory.open(path) as memory:
        write_broken(memory)
    return path


def test_runs_are_a_line_each(broken: Path, run: Command) -> None:
    head, first, second = run("runs", "-s", broken, "--utc").stdout.splitlines()

    assert head.split() == [
        *("run", "by", "status", "started", "for", "msgs", "calls", "errs", "feats", "last"),
        "words",
    ]
    assert first.split()[:3] == ["run-1", "ada", "succeeded"]
    day, time = first.split()[3:5]
    assert (day.removeprefix("2026-"), time) == ("03-01", "12:00")
    assert second.split()[:3] == ["run-2", "bob", "open"]
    assert "-1" in second


def test_last_words_have_room_beside_all_other_columns(tmp_path: Path, run: Command) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        for session in ("login", "signup"):
            memory.replace_feature_list(session, [FeatureRecord("form", "ui", "a form")])
            for number in range(9, 11):
                run_id = f"run-{number}"
                with fmemory.audit(actor="ada", run_id=run_id):
                    memory.append_transcript_messages(
                        session,
                        called(run_id, "ls") + answered(run_id, "no", is_error=True),
                    )
                    memory.update_feature_pass(session, "form", number % 2 == 1)
                    memory.append_transcript_messages(session, [Message("user", "all is done")])
                    memory.record_run_checkpoint(
                        session, RunCheckpoint(run_id, NOW, NOW, RunStatus.SUCCEEDED)
                    )

    lines = run("runs", "-s", tmp_path / "m", "--utc").stdout.splitlines()

    assert lines[0].split()[-2:] == ["last", "words"]
    assert [line for line in lines[1:] if "all is" not in line] == []
    assert max(map(len, lines)) <= 80


def test_runs_as_json_have_their_duration(broken: Path, run: Command) -> None:
    told = [json.loads(line) for line in run("runs", "--json", "-s", broken).stdout.splitlines()]

    assert [(one["run_id"], one["status"]) for one in told] == [
        ("run-1", "succeeded"),
        ("run-2", "open"),
    ]
    assert told[0]["duration_s"] == 300.0


@pytest.mark.parametrize(
    "chosen",
    [
        ["--status", "open", "--status", "died"],
        ["--actor", "bob"],
        ["--since", "2026-03-01T12:05:00Z"],
    ],
    ids=" ".join,
)
def test_runs_are_chosen(chosen: list[str], broken: Path, run: Command) -> None:
    shown = run("runs", *chosen, "--json", "-s", broken).stdout

    assert json.loads(only_line(shown))["run_id"] == "run-2"


@pytest.mark.parametrize("wrong", [["--sort", "size"], ["--status", "fine"], ["--since", "soon"]])
def test_a_wrong_word_is_usage_in_one_line(wrong: list[str], broken: Path, run: Command) -> None:
    result = run("runs", *wrong, "-s", broken)

    assert result.exit_code == 2
    assert wrong[0] in only_line(result.stderr)


def test_a_store_without_runs_says_so(tmp_path: Path, run: Command) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        memory.add_note("nothing ran")

    assert run("runs", "-s", tmp_path / "m").stdout == "no runs\n"


def test_a_report_names_error_loss_and_who(broken: Path, run: Command) -> None:
    shown = run("report", "login", "-s", broken).stdout

    assert "events    16 (1 to 16)\n" in shown
    assert "error     event 11\n" in shown
    assert "event 10: Bash rm -r form" in shown
    assert "  form  passed since event 6, lost by event 12" in shown
    assert "bob in run-2  it was in the way" in shown
    assert "  15  Bash sleep 99" in shown
    assert "forms need labels" in shown
    assert f"fmemory show 11 -s {broken}" in shown


def test_a_report_of_a_beginning_of_a_name_is_given(broken: Path, run: Command) -> None:
    told = json.loads(only_line(run("report", "log", "--json", "-s", broken).stdout))

    assert told["session_id"] == "login"
    assert told["first_error"]["seq"] == 11


def test_a_beginning_of_several_is_refused(broken: Path, run: Command) -> None:
    result = run("report", "run", "-s", broken)

    assert result.exit_code == 2
    assert "run-1, run-2" in only_line(result.stderr)


def test_runs_of_one_id_in_two_sessions_are_compared_by_session_and_run(
    tmp_path: Path, run: Command
) -> None:
    path = tmp_path / "m"
    with fmemory.open(path) as memory, fmemory.audit(run_id="r1"):
        for session in ("alpha", "a/b"):
            memory.append_transcript_messages(session, [Message("user", f"hello {session}")])

    for command in (["diff", "alpha/r1", "a/b/r1"], ["diff", "al/r", "a/b/r"]):
        told = json.loads(only_line(run(*command, "--json", "-s", path).stdout))
        assert [told[one]["session_id"] for one in "ab"] == ["alpha", "a/b"]
        assert told["message"]["what"] == "text"
    for command, advice in (
        (["r1", "r1"], "A: run 'r1' could be any of: alpha/r1, a/b/r1; name it as SESSION/RUN"),
        (["alpha/r1", "r1"], "B: run 'r1' could be any of: alpha/r1, a/b/r1"),
        (["r1", "r1", "--session", "alpha"], "the same run, alpha/r1: expected two"),
        (["alpha/r1", "alpha/r2"], "B: expected a sequence number, a time or a run"),
    ):
        result = run("diff", *command, "-s", path)
        assert result.exit_code == 2
        assert advice in only_line(result.stderr)
    for command in (["report", "r1"], ["html", "r", "-o", "-"]):
        result = run(*command, "-s", path)
        assert result.exit_code == 2
        assert "a run of session alpha or a run of session a/b" in only_line(result.stderr)
        assert "give --session as well" in result.stderr


@pytest.mark.parametrize("what", ["objective", "status"])
def test_whatever_makes_two_runs_differ_is_named(what: str, tmp_path: Path, run: Command) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        for name, status in (("a", RunStatus.SUCCEEDED), ("b", RunStatus.FAILED)):
            objective = f"objective of {name}" if what == "objective" else "the same"
            session = f"s{name}"
            memory.save_manifest(session, SessionManifest(session, "main", objective))
            ended = status if what == "status" else RunStatus.SUCCEEDED
            memory.record_run_checkpoint(session, RunCheckpoint(name, NOW, NOW, ended))

    found = run("diff", "a", "b", "-s", tmp_path / "m")
    assert found.exit_code == 1
    assert [line for line in found.stdout.splitlines() if "differs" in line] == [
        f"the {what} differs"
    ]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["report", "log"], "login, login-2"),
        (["report", "run-"], "run-1, run-10"),
        (["html", "log", "-o", "-"], "login, login-2"),
        (["html", "run-", "-o", "-"], "run-1, run-10"),
        (["diff", "run-", "run-10"], "run-1, run-10"),
        (["transcript", "log"], "login, login-2"),
        (["blame", "log"], "login, login-2"),
        (["state", "--session", "log"], "login, login-2"),
        (["report", "--session", "log"], "login, login-2"),
    ],
)
def test_a_beginning_of_several_is_refused_though_one_begins_with_another(
    command: list[str], named: str, tmp_path: Path, run: Command
) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        for session, run_id in (("login", "run-1"), ("login-2", "run-10")):
            with fmemory.audit(run_id=run_id):
                memory.append_transcript_messages(session, [Message("user", f"hello {session}")])

    result = run(*command, "-s", tmp_path / "m")
    assert result.exit_code == 2
    for name in named.split(", "):
        assert name in only_line(result.stderr)
    in_full = run("report", "login", "--json", "-s", tmp_path / "m").stdout
    assert json.loads(in_full)["session_id"] == "login"


def test_an_unknown_name_is_refused(broken: Path, run: Command) -> None:
    result = run("report", "nobody", "-s", broken)

    assert result.exit_code == 2
    assert "there are: login, run-1, run-2" in only_line(result.stderr)


def test_control_characters_never_reach_the_terminal(tmp_path: Path, run: Command) -> None:
    path = tmp_path / "m"
    with fmemory.open(path) as memory, fmemory.audit(actor="a\x1b[2Jda", run_id="r\x07un"):
        hostile = Message("tool", "\x1b]0;boo\x07\x1b[31m[bold]no", is_error=True)
        memory.append_transcript_messages("s\x1b[1m", [hostile])

    for command in (["runs"], ["report"]):
        shown = run(*command, "-s", path).stdout
        assert not {"\x1b", "\x07"} & set(shown)
    assert "[bold]no" in run("report", "-s", path).stdout


@pytest.mark.parametrize("command", [["runs"], ["report"], ["report", "run-2", "--json"]])
def test_looking_changes_no_byte(command: list[str], broken: Path, run: Command) -> None:
    before = bytes_of(broken)

    assert run(*command, "-s", broken).exit_code == 0
    assert bytes_of(broken) == before
