"""`fmemory repair`: what is told, in how many columns, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import fmemory
from fmemory import Message, Role
from tests.tools.helpers import Command, bytes_of, change_one_byte, only_line


def test_a_sound_store_is_repaired_with_exit_code_0(
    store: Path, run: Command, tmp_path: Path
) -> None:
    before = bytes_of(store)

    result = run("repair", tmp_path / "new", "-s", store)

    assert result.exit_code == 0
    assert "11 events salvaged" in result.stdout
    assert "nothing was lost" in result.stdout
    assert bytes_of(store) == before
    with fmemory.open(tmp_path / "new") as memory, fmemory.open(store) as source:
        assert memory.head() == source.head()
        assert str(memory.head()) in result.stdout.replace("\n", "")


def test_damaged_content_is_named_with_exit_code_1(
    store: Path, run: Command, tmp_path: Path
) -> None:
    change_one_byte(store, b"tokens last an hour")

    result = run("repair", tmp_path / "new", "-s", store)

    assert result.exit_code == 1
    assert "1 record lost" in result.stdout
    assert "records n1" in result.stdout
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_lost_events_are_told_with_their_streams(store: Path, run: Command, tmp_path: Path) -> None:
    change_one_byte(store, b"transcript_appended")

    result = run("repair", tmp_path / "new", "-s", store)

    assert result.exit_code == 1
    assert "1 event lost" in result.stdout
    assert "session/login" in result.stdout
    assert "deletions among the lost events are undone" in " ".join(result.stdout.split())
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_json_has_all_of_the_result(store: Path, run: Command, tmp_path: Path) -> None:
    change_one_byte(store, b"tokens last an hour")

    result = run("repair", tmp_path / "new", "--json", "-s", store)

    found = json.loads(only_line(result.stdout))
    assert result.exit_code == 1
    assert (found["source"], found["target"]) == (str(store), str(tmp_path / "new"))
    assert (found["salvaged"], found["lost"]) == (11, [])
    assert [(one["seq"], one["keys"]) for one in found["damaged"]] == [(10, ["n1"])]


def test_a_target_that_is_not_empty_is_refused_with_exit_code_2(
    store: Path, run: Command, tmp_path: Path
) -> None:
    with fmemory.open(tmp_path / "used") as memory:
        memory.add_note("mine", id="n1")
    before = bytes_of(tmp_path / "used")

    for target in (tmp_path / "used", store, ":memory:", ""):
        assert run("repair", target, "-s", store).exit_code == 2

    assert bytes_of(tmp_path / "used") == before


def test_a_place_without_a_store_cannot_be_read_with_exit_code_3(
    run: Command, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", tmp_path / "nothing"):
        result = run("repair", tmp_path / "new", "-s", source)
        assert result.exit_code == 3
        assert "Traceback" not in result.output

    assert not (tmp_path / "new").exists()


def test_a_database_that_does_not_look_like_one_any_more_is_repaired(
    run: Command, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    with fmemory.open(f"sqlite:///{path}") as memory:
        memory.add_note("tokens last an hour", id="n1")
    data = bytearray(path.read_bytes())
    data[:16] = bytes(16)
    path.write_bytes(data)

    result = run("repair", tmp_path / "new", "-s", path)

    assert result.exit_code == 0
    with fmemory.open(tmp_path / "new") as memory:
        assert memory.count(memory.count_request()).count == 1


def test_a_session_that_lost_content_is_listed_as_before_the_repair(
    store: Path, run: Command, tmp_path: Path
) -> None:
    with fmemory.open(store) as memory:
        memory.session("other").append_transcript_messages([Message(Role.USER, "hello")])
    change_one_byte(store, b"the form works")
    fixed = tmp_path / "new"
    assert run("repair", fixed, "-s", store).exit_code == 1

    for arguments in (["sessions"], ["sessions", "--json"]):
        before, after = (run(*arguments, "-s", one) for one in (store, fixed))
        assert "other" in after.stdout and "login" in after.stdout
        assert (after.exit_code, after.stdout, after.stderr) == (1, before.stdout, before.stderr)
        assert "event 5 is damaged" in only_line(after.stderr)


def test_the_state_of_a_session_that_lost_content_is_that_before(
    store: Path, run: Command, tmp_path: Path
) -> None:
    change_one_byte(store, b"the form works")
    fixed = tmp_path / "new"
    run("repair", fixed, "-s", store)

    for arguments in (["state"], ["state", "--session", "login"], ["state", "--at", "11"]):
        before, after = (run(*arguments, "-s", one) for one in (store, fixed))
        assert (after.exit_code, after.stdout) == (1, before.stdout)
        told = only_line(after.stderr)
        assert "event 5: expected its data, got none: they were damaged before a repair" in told
        assert "shown is the state as of event 4" in told
    assert run("history", "--session", "login", "-s", fixed).exit_code == 0
    assert run("transcript", "login", "-s", fixed).exit_code == 0


def test_lost_events_are_told_beside_what_was_read_without_them(
    store: Path, run: Command, tmp_path: Path
) -> None:
    with fmemory.open(store) as memory:
        memory.session("other").append_transcript_messages([Message(Role.USER, "hello")])
    change_one_byte(store, b"transcript_appended")
    fixed = tmp_path / "new"
    run("repair", fixed, "-s", store)
    with fmemory.open(fixed) as memory:
        (lost,) = [one.seq for one in memory.events(types=("event_lost",))]

    for arguments in (["sessions"], ["sessions", "--json"]):
        result = run(*arguments, "-s", fixed)
        assert only_line(result.stderr) == f"fmemory: not in the sessions, as lost: event {lost}"
        assert result.exit_code == 0
    now = run("state", "--session", "login", "-s", fixed)
    assert only_line(now.stderr) == f"fmemory: not in the state, as lost: event {lost}"
    assert run("state", "--session", "login", "--at", lost - 1, "-s", fixed).stderr == ""
    assert run("state", "--session", "other", "-s", fixed).stderr == ""


def test_lost_events_of_no_stream_are_told_with_every_session(run: Command, tmp_path: Path) -> None:
    source, fixed = f"jsonl:{tmp_path / 'old'}", tmp_path / "new"
    with fmemory.open(source) as memory:
        for session in ("login", "other"):
            memory.session(session).append_transcript_messages([Message(Role.USER, "hello")])
        memory.session("other").append_transcript_messages([Message(Role.USER, "bye")])
    (log,) = (tmp_path / "old").rglob("*.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    run("repair", fixed, "-s", source)

    for session in ("login", "other"):
        now = run("state", "--session", session, "-s", fixed)
        assert only_line(now.stderr) == "fmemory: not in the state, as lost: event 3"
        assert run("state", "--session", session, "--at", 2, "-s", fixed).stderr == ""
