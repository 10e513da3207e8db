"""A damaged event: what can be read is shown, the event is named, and the exit code is 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmemory
from fmemory import NewEvent
from tests.tools.helpers import Command, change_one_byte, only_line

DAMAGED = 5


@pytest.fixture
def damaged(store: Path) -> Path:
    """The store with a changed byte in the progress entry, which is event 5."""
    change_one_byte(store, b"the form works")
    return store


@pytest.mark.parametrize(
    ("arguments", "seqs"),
    [
        (["log"], range(1, 12)),
        (["log", "--all"], range(1, 12)),
        (["log", "--session", "login"], range(1, 10)),
        (["log", "--type", "progress_appended"], [5]),
        (["log", "--actor", "ada", "--after", "3"], [4, 5, 6, 7, 10, 11]),
        (["history"], range(1, 10)),
    ],
    ids=str,
)
def test_events_are_listed_with_the_damaged_one_marked(
    arguments: list[str], seqs: list[int], damaged: Path, run: Command
) -> None:
    result = run(*arguments, "--json", "-s", damaged)

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["seq"] for one in found] == list(seqs)
    assert [one["seq"] for one in found if "damaged" in one] == [DAMAGED]
    assert result.exit_code == 1
    assert "event 5 is damaged" in only_line(result.stderr)
    assert "event 5 is damaged: " in run(*arguments, "-s", damaged).stdout


def test_what_does_not_touch_the_damage_is_fine(damaged: Path, run: Command) -> None:
    assert run("log", "--namespace", "ui", "-s", damaged).exit_code == 0
    assert run("history", "--record", "n1", "-s", damaged).exit_code == 0


def test_the_other_events_of_a_damaged_batch_are_shown(tmp_path: Path, run: Command) -> None:
    path = tmp_path / "batch"
    with fmemory.open(path) as memory:
        memory.append(("jobs",), [NewEvent("job.done", f"number {n}") for n in range(4)])
        memory.append(("jobs",), [NewEvent("job.done", "last")])
    change_one_byte(path, b"number 2")

    result = run("log", "--json", "-s", path)

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["seq"] for one in found] == [1, 2, 3, 4, 5]
    assert [one["seq"] for one in found if "damaged" in one] == [3]


def test_history_of_a_record_whose_put_is_damaged(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.delete(memory.delete_request(ids=("n1",)))
    change_one_byte(store, b"tokens last an hour")

    result = run("history", "--record", "n1", "--json", "-s", store)

    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [10, 12]
    assert result.exit_code == 1


def test_state_is_that_before_the_damage(damaged: Path, run: Command) -> None:
    result = run("state", "-s", damaged)

    assert result.exit_code == 1
    assert "as of event 4, before the damage" in result.stdout
    assert "features: 1 of 2 passing" in result.stdout
    assert "event 5 is damaged" in only_line(result.stderr)
    assert json.loads(run("state", "--json", "-s", damaged).stdout)["seq"] == 4


def test_state_at_a_moment_before_the_damage_is_fine(damaged: Path, run: Command) -> None:
    assert run("state", "--at", 4, "-s", damaged).exit_code == 0


def test_sessions_are_listed(damaged: Path, run: Command) -> None:
    result = run("sessions", "-s", damaged)

    assert result.exit_code == 1
    assert "login" in result.stdout


def test_stats_print_what_they_can(damaged: Path, run: Command) -> None:
    result, plain = run("stats", "-s", damaged), run("stats", "--json", "-s", damaged)

    assert (result.exit_code, plain.exit_code) == (1, 1)
    assert "head      unknown" in result.stdout and "progress_appended" in result.stdout
    found = json.loads(plain.stdout)
    assert (found["head_seq"], found["head"]) == (11, None)
    assert "event 5 is damaged" in only_line(result.stderr)


def test_tail_goes_on_behind_the_damage(damaged: Path, run: Command) -> None:
    result = run("tail", "--from", 4, "--count", 3, "--json", "-s", damaged)

    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [4, 5, 6]


def test_diff_compares_up_to_the_damage(damaged: Path, run: Command) -> None:
    result = run("diff", 1, 9, "-s", damaged)

    assert result.exit_code == 1
    assert "event 1 to event 4, before the damage" in result.stdout
    assert "form" in result.stdout and "token" not in result.stdout
    assert "event 5 is damaged" in only_line(result.stderr)


@pytest.mark.parametrize("words", [b"FML", b"the form works"])
def test_verify_names_the_way_to_what_is_intact(words: bytes, store: Path, run: Command) -> None:
    path = store.rename(store.with_name("with space"))
    change_one_byte(path, words)

    result = run("verify", "-s", path)

    assert result.stdout.splitlines()[-1].strip() == f"fmemory repair NEW -s '{path}'"
    assert result.exit_code == 1


def test_verify_of_a_repaired_store_sends_nobody_to_another_repair(
    damaged: Path, tmp_path: Path, run: Command
) -> None:
    run("repair", tmp_path / "new", "-s", damaged)

    result = run("verify", "-s", tmp_path / "new")

    assert result.exit_code == 1
    assert "fmemory repair" not in result.stdout


def test_verify_says_that_a_folder_holds_no_store(tmp_path: Path, run: Command) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")

    result = run("verify", "-s", tmp_path / "photos")

    assert (result.exit_code, result.stdout) == (3, "")
    assert "no store in" in only_line(result.stderr)


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("form", ["sqlite:///{}", "{}"])
def test_a_damaged_database_names_the_way_to_what_is_intact(
    form: str, start: int, tmp_path: Path, run: Command
) -> None:
    path = tmp_path / "memory.db"
    with fmemory.open(f"sqlite:///{path}") as memory:
        memory.add_note("one")
    content = bytearray(path.read_bytes())
    content[start : start + 100] = bytes(100)
    path.write_bytes(content)
    for beside in tmp_path.glob("memory.db-*"):
        beside.unlink()

    for command in ("log", "verify", "runs"):
        result = run(command, "-s", form.format(path))
        assert result.exit_code == 3
        assert "fmemory repair" in only_line(result.stderr)
