"""`fmemory compact` and `fmemory backup`: what a person sees, and what is left of deleted data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmemory
from fmemory_tools.commands.compact import print_result
from tests.tools.helpers import Command, bytes_of

SECRET = "the-secret-of-ada"


@pytest.fixture
def deleted(store: Path) -> Path:
    """The store with a note that was deleted, and its session deleted and begun again."""
    with fmemory.open(store) as memory, fmemory.audit(actor="ada", reason="a mistake"):
        memory.add_note(SECRET, [1.5], id="n3")
        memory.delete(memory.delete_request(["n3"]))
        memory.delete_session("login")
    return store


def test_deleted_data_leave_the_store_and_the_person_is_told(deleted: Path, run: Command) -> None:
    assert any(SECRET.encode() in data for data in bytes_of(deleted).values())

    result = run("compact", "-s", deleted)

    assert result.exit_code == 0, result.output
    assert "erased the data of 1 record and 9 other events" in result.stdout
    assert " before, " in result.stdout
    assert not any(SECRET.encode() in data for data in bytes_of(deleted).values())
    assert run("verify", "-s", deleted).exit_code == 0


def test_second_compaction_says_that_there_is_nothing(deleted: Path, run: Command) -> None:
    run("compact", "-s", deleted)

    result = run("compact", "-s", deleted)

    assert "no data were erased" in result.stdout


def test_json_has_the_whole_report(deleted: Path, run: Command) -> None:
    plain = json.loads(run("compact", "-s", deleted, "--json").stdout)

    assert (plain["erased_records"], plain["erased_events"], plain["forgotten_events"]) == (1, 9, 0)
    assert plain["pending"] == []
    assert plain["freed_bytes"] == plain["bytes_before"] - plain["bytes_after"]


def test_log_still_tells_who_put_and_who_deleted(deleted: Path, run: Command) -> None:
    run("compact", "-s", deleted)

    result = run("history", "--record", "n3", "-s", deleted)

    assert result.exit_code == 0, result.output
    assert "by ada" in result.stdout
    assert "n3: (erased)" in result.stdout
    assert "records_deleted" in result.stdout
    assert SECRET not in result.stdout


def test_forgotten_events_are_told_and_gone(deleted: Path, run: Command) -> None:
    result = run("compact", "--forget-before", "14", "-s", deleted)

    assert result.exit_code == 0, result.output
    assert "forgot who and why of " in result.stdout
    assert "n3" not in run("log", "-s", deleted, "--json").stdout
    verified = run("verify", "-s", deleted)
    assert (verified.exit_code, "were forgotten" in verified.stdout.replace("\n", " ")) == (0, True)


@pytest.mark.parametrize("moment", ["soon", "-3", "0"])
def test_moment_that_is_none_is_refused(deleted: Path, run: Command, moment: str) -> None:
    before = bytes_of(deleted)

    result = run("compact", f"--forget-before={moment}", "-s", deleted)

    assert result.exit_code == 2
    assert "forget" in result.stderr
    assert bytes_of(deleted) == before


def test_store_that_is_not_there_is_not_made(tmp_path: Path, run: Command) -> None:
    result = run("compact", "-s", tmp_path / "none")

    assert result.exit_code == 3
    assert not (tmp_path / "none").exists()


def test_past_that_was_erased_is_told_in_one_sentence(deleted: Path, run: Command) -> None:
    run("compact", "-s", deleted)

    result = run("state", "--session", "login", "--at", "7", "-s", deleted)

    assert result.exit_code != 0
    assert "Traceback" not in result.output
    assert "has been erased" in result.output.replace("\n", " ")


def test_backup_brings_what_came_since(store: Path, tmp_path: Path, run: Command) -> None:
    assert run("backup", tmp_path / "copy", "-s", store).exit_code == 0
    with fmemory.open(store) as memory:
        memory.add_note("later", id="later")

    result = run("backup", tmp_path / "copy", "-s", store)

    assert (result.exit_code, "1 event copied" in result.stdout) == (0, True)
    with fmemory.open(tmp_path / "copy", read_only=True) as memory:
        assert memory.get(memory.get_request(["later"])).missing == ()


def test_backup_of_a_compacted_store_has_its_head(deleted: Path, run: Command) -> None:
    run("compact", "-s", deleted)

    result = run("backup", "sqlite:///copy.db", "-s", deleted, "--json")

    with fmemory.open(deleted, read_only=True) as memory:
        assert json.loads(result.stdout)["head"] == str(memory.head())


def test_forgotten_event_is_not_called_an_erased_one(deleted: Path, run: Command) -> None:
    run("compact", "--forget-before", "14", "-s", deleted)
    log = [json.loads(line) for line in run("log", "-s", deleted, "--json").stdout.splitlines()]
    seq = next(one["seq"] for one in log if one["type"] == "event_forgotten")

    assert "(forgotten)" in run("log", "-s", deleted).stdout
    assert "forgot who and what it was" in run("show", seq, "-s", deleted).stdout


@pytest.mark.parametrize("command", ["copy", "backup"])
@pytest.mark.parametrize("target", [":memory:", "INSIDE", "jsonl:INSIDE", "sqlite:///INSIDE.db"])
def test_target_that_would_be_lost_is_refused(
    store: Path, run: Command, command: str, target: str
) -> None:
    before = bytes_of(store)

    result = run(command, target.replace("INSIDE", f"{store}/inside"), "-s", store)

    assert result.exit_code == 2
    assert "TARGET: expected" in result.stderr
    assert "copy --help" not in result.stderr
    assert bytes_of(store) == before


def test_what_is_pending_names_the_option_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentence = "VACUUM: erased data may still be there; compact with exclusive=True"

    print_result(fmemory.CompactResult(1, 1, 0, pending=(sentence,)))

    assert "compact with --exclusive" in " ".join(capsys.readouterr().out.split())
