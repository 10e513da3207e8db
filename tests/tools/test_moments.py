"""Asking about the past: sessions that had not begun, times to come, times of imported events."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import fmemory
from fmemory import Message, Role, SessionManifest
from tests.tools.helpers import Command, only_line


@pytest.fixture
def imported(store: Path) -> Path:
    """The store with a session of 2001 that was imported as events 12 and 13."""
    with fmemory.open(store) as memory, memory.batch() as batch:
        for hour in (10, 12):
            with fmemory.audit(occurred_at=datetime(2001, 2, 3, hour, tzinfo=UTC)):
                if hour == 10:
                    batch.save_manifest("old", SessionManifest("old", "main", "long ago"))
                else:
                    batch.append_transcript_messages("old", [Message(Role.USER, "hello")])
    return store


@pytest.mark.parametrize("arguments", [["state", "--at", 3], ["diff", 2, 3]], ids=str)
@pytest.mark.parametrize("name", ["old", "ol"])
def test_a_session_that_had_not_begun_is_said_to_begin_later(
    arguments: list[object], name: str, imported: Path, run: Command
) -> None:
    result = run(*arguments, "--session", name, "-s", imported)

    assert result.exit_code == 2
    told = only_line(result.stderr)
    assert "session old begins at event 12" in told
    assert "at event 3 there is nothing of it" in told
    assert "no session" not in told


def test_imported_times_are_told_apart_from_times_of_recording(
    imported: Path, run: Command
) -> None:
    result = run("state", "--at", "2001-02-03T11:00Z", "--session", "old", "--utc", "-s", imported)

    assert result.exit_code == 2
    assert "its own times, from 2001-02-03 10:00:00Z on" in only_line(result.stderr)


def test_before_the_only_session_began(store: Path, run: Command) -> None:
    result = run("state", "--at", 0, "-s", store)

    assert result.exit_code == 2
    assert "session login begins at event 1 " in only_line(result.stderr)


def test_a_session_that_never_was_is_told_with_the_moment(store: Path, run: Command) -> None:
    result = run("state", "--at", 3, "--session", "logout", "-s", store)

    assert result.exit_code == 2
    told = only_line(result.stderr)
    assert "no session 'logout' as of event 3; there are: login" in told


def test_a_session_that_was_deleted_is_said_to_be(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.delete_session("login")
        memory.save_manifest("login", SessionManifest("login", "main", "again"))

    result = run("state", "--at", 12, "--session", "login", "-s", store)

    assert result.exit_code == 2
    assert "is deleted as of event 12" in only_line(result.stderr)


def test_a_time_to_come_means_the_newest_event(store: Path, run: Command) -> None:
    result = run("state", "--at", "2200-01-01T00:00Z", "--utc", "-s", store)

    assert result.exit_code == 0
    assert "as of 2200-01-01 00:00:00Z (the newest event, 11)" in result.stdout


def test_the_moment_is_whole_however_narrow_the_terminal(
    store: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    result = run("state", "--at", "2200-01-01T00:00Z", "-s", store)

    assert "event, 11)" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 50


@pytest.mark.parametrize(
    "command",
    [
        "transcript A --at 3",
        "state --session A --at 3",
        "diff 0 3 --session A",
        "blame A --at 3",
        "fork A again --at 3",
        "bisect --session A --ok 0 --bad 3 --grep m1",
        "step A --at 3 --json",
    ],
)
def test_a_past_that_is_kept_is_shown_whatever_was_forgotten_of_others(
    command: str, tmp_path: Path, run: Command
) -> None:
    path = tmp_path / "forgotten"
    with fmemory.open(path) as memory:
        memory.session("other").append_transcript_messages([Message("user", "gone")])
        for number in range(3):
            memory.session("A").append_transcript_messages([Message("user", f"m{number}")])
        memory.delete_session("other")
        memory.session("A").append_transcript_messages([Message("user", "m3")])
        memory.compact(forget_before=memory.head().seq)

    result = run(*command.split(), "-s", path)

    assert result.exit_code == int(command.startswith("diff"))
    assert result.stderr == ""
    assert run("state", "--session", "other", "--at", 2, "-s", path).exit_code == 2


def test_a_session_without_a_manifest_is_known_by_its_last_deletion(
    tmp_path: Path, run: Command
) -> None:
    path = tmp_path / "lives"
    with fmemory.open(path) as memory:
        session = memory.session("A")
        for text in ("first", "second"):
            session.append_transcript_messages([Message("user", text)])
            session.delete()

    for seq, code in ((1, 0), (2, 2), (3, 0), (4, 2)):
        result = run("state", "--session", "A", "--at", seq, "-s", path)
        assert result.exit_code == code
        assert ("is deleted as of event" in result.stderr) == (code == 2)
