"""What a beginner does wrong gives one line that says what to do, and an exit code."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

import fmemory
from tests.tools.helpers import Command, only_line


def test_no_store_anywhere(run: Command) -> None:
    result = run("log")

    assert result.exit_code == 3
    assert "-s PATH" in only_line(result.stderr)
    assert "FMEMORY_STORE" in only_line(result.stderr)


def test_a_path_without_a_store(run: Command) -> None:
    result = run("log", "-s", "nowhere")

    assert result.exit_code == 3
    assert "no store at nowhere" in only_line(result.stderr)
    assert not Path("nowhere").exists()


def test_a_path_that_is_a_file(run: Command) -> None:
    Path("notes.jsonl").write_text("x")

    result = run("log", "-s", "notes.jsonl")

    assert result.exit_code == 3
    assert "notes.jsonl is a file" in only_line(result.stderr)


@pytest.mark.parametrize("command", ["verify", "stats", "sessions", "state"])
def test_a_folder_that_is_no_store(command: str, run: Command) -> None:
    Path("empty").mkdir()

    result = run(command, "-s", "empty")

    assert result.exit_code in (1, 3)
    assert "Traceback" not in result.output
    assert list(Path("empty").iterdir()) == []


@pytest.mark.parametrize("arguments", [["show", 99], ["state", "--at", 99], ["diff", 1, 99]])
def test_an_event_that_is_not_there(arguments: list[object], store: Path, run: Command) -> None:
    result = run(*arguments, "-s", store)

    assert result.exit_code == 2
    assert "there is no event 99; the log has events 1 to 11" in only_line(result.stderr)


def test_a_time_that_is_none(store: Path, run: Command) -> None:
    result = run("log", "--since", "yesterday", "-s", store)

    assert result.exit_code == 2
    assert "'10m ago'" in only_line(result.stderr)


def test_an_unknown_session_names_those_that_exist(store: Path, run: Command) -> None:
    result = run("state", "--session", "logout", "-s", store)

    assert result.exit_code == 2
    assert only_line(result.stderr).endswith("there are: login")


def test_several_sessions_must_be_chosen_from(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.fork_session("login", "login-2")

    result = run("state", "-s", store)

    assert result.exit_code == 2
    assert "login-2, login" in only_line(result.stderr)
    assert run("state", "--session", "login", "-s", store).exit_code == 0
    both = run("state", "--session", "logi", "-s", store)
    assert both.exit_code == 2
    assert "'logi' could be any of: login-2, login" in only_line(both.stderr)
    assert run("state", "--session", "login-", "-s", store).exit_code == 0


def test_an_unknown_record(store: Path, run: Command) -> None:
    result = run("history", "--record", "n2", "-s", store)

    assert result.exit_code == 2
    assert "--namespace" in only_line(result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "--session", "a", "--stream", "b"],
        ["history", "--session", "a", "--record", "b"],
        ["history", "--namespace", "a"],
        ["log", "--stream", "a\\b"],
        ["verify", "--head", "12"],
        ["log", "--no-such-option"],
        ["no-such-command"],
        ["load", "no-such-file"],
        ["show"],
        ["show", "eight"],
    ],
    ids=str,
)
def test_wrong_usage_exits_two(arguments: list[str], store: Path, run: Command) -> None:
    result = run(*arguments, "-s", store)

    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_memory_file_that_is_wrong_is_one_line(store: Path, run: Command) -> None:
    Path("bad.jsonl").write_text("{}\n")

    result = run("load", "bad.jsonl", "-s", store)

    assert result.exit_code == 2
    assert "bad.jsonl" in only_line(result.stderr)


def test_the_version_is_told_with_and_without_a_command(run: Command) -> None:
    for arguments in (["--version"], ["--version", "runs"]):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (0, f"fmemory {version('fmemory')}\n")


def test_a_store_as_an_argument_is_told_how_it_is_named(store: Path, run: Command) -> None:
    for command in ("runs", "log", "sessions"):
        told = only_line(run(command, store).stderr)
        assert "a store is named with -s" in told
    assert "named with" not in only_line(run("runs", "nothing-of-that-name").stderr)


def test_options_of_a_store_without_a_command_are_told(store: Path, run: Command) -> None:
    result = run("-s", store)

    assert result.exit_code == 2
    assert "expected a command" in only_line(result.stderr)


@pytest.mark.parametrize("command", ["runs", "log", "verify", "stats"])
def test_a_folder_of_other_things_is_no_store(command: str, tmp_path: Path, run: Command) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")

    result = run(command, "-s", tmp_path / "photos")

    assert (result.exit_code, result.stdout) == (3, "")
    assert "no store in " in only_line(result.stderr)


@pytest.mark.parametrize(("ok", "bad"), [(9, 2), (1, 1)])
def test_the_ends_of_a_bisection_are_named_as_options(
    ok: int, bad: int, store: Path, run: Command
) -> None:
    result = run("bisect", "--ok", ok, "--bad", bad, "--grep", "x", "-s", store)

    assert result.exit_code == 2
    assert only_line(result.stderr).startswith("fmemory: --bad: expected")


def test_the_newest_events_are_as_many_as_are_asked_for(store: Path, run: Command) -> None:
    for count in (1, 3, 10):
        told = run("tail", "--count", count, "--json", "-s", store).stdout.splitlines()
        assert [json.loads(line)["seq"] for line in told] == list(range(12 - count, 12))
