"""Which commands end with a finding where an event is damaged: those that show something of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmemory
from fmemory import NewEvent
from tests.fmemory.replay_stores import answered, called
from tests.tools.helpers import Command, change_one_byte, only_line

PROGRESS, MESSAGE, FEATURES = "progress", "message", "features"
SEQS = {PROGRESS: 5, MESSAGE: 6, FEATURES: 1}
TEXTS = {PROGRESS: b"the form works", MESSAGE: b"the form works", FEATURES: b"make logging"}
EVERYWHERE = {
    "log": {PROGRESS, MESSAGE, FEATURES},
    "history": {PROGRESS, MESSAGE, FEATURES},
    "grep works": {PROGRESS, MESSAGE, FEATURES},
    "step --json": {PROGRESS, MESSAGE, FEATURES},
    "runs": {PROGRESS, MESSAGE, FEATURES},
    "report": {PROGRESS, MESSAGE, FEATURES},
    "report run-1": {PROGRESS, MESSAGE, FEATURES},
    "report run-2": {FEATURES},
    "report run-2 --html replay.html": {PROGRESS, MESSAGE, FEATURES},
    "html -o replay.html": {PROGRESS, MESSAGE, FEATURES},
    "html run-2 -o replay.html": {PROGRESS, MESSAGE, FEATURES},
    "diff run-1 run-2": {PROGRESS, MESSAGE, FEATURES},
    "diff 2 4": {FEATURES},
    "diff 2 9": {PROGRESS, MESSAGE, FEATURES},
    "state": {PROGRESS, MESSAGE, FEATURES},
    "state --at 4": {FEATURES},
    "sessions": {PROGRESS, FEATURES},
    "transcript": {MESSAGE},
    "transcript --at 4": set[str](),
    "blame": {FEATURES},
    "blame login form --all": {FEATURES},
    "records --namespace ui": set[str](),
}
"""What each command shows something of."""


def damage(store: Path, what: str) -> Path:
    """Change one byte of an event."""
    (segment,) = store.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    find = content.rindex if what == MESSAGE else content.index
    content[find(TEXTS[what])] ^= 1
    segment.write_bytes(content)
    return store


@pytest.mark.parametrize("what", [PROGRESS, MESSAGE, FEATURES])
@pytest.mark.parametrize("command", EVERYWHERE)
def test_damage_in_what_is_shown_is_a_finding_that_names_it(
    command: str, what: str, store: Path, run: Command
) -> None:
    result = run(*command.split(), "-s", damage(store, what))

    if what in EVERYWHERE[command]:
        assert result.exit_code == 1
        assert f"event {SEQS[what]} is damaged" in only_line(result.stderr)
    else:
        # Of two things that differ the code is 1 as well.
        assert result.exit_code == int(command.startswith("diff"))
        assert result.stderr == ""


def test_an_objective_that_is_damaged_is_not_called_none(store: Path, run: Command) -> None:
    path = damage(store, FEATURES)

    shown = run("report", "run-1", "-s", path).stdout
    told = json.loads(only_line(run("report", "run-1", "--json", "-s", path).stdout))

    assert "objective not known: what may hold it cannot be read\n" in shown
    assert [(one["seq"], one["state"]) for one in told["unreadable"]] == [(1, "damaged")]
    assert told["objective"] is None


def test_an_objective_that_a_repair_lost_is_not_called_none(
    store: Path, tmp_path: Path, run: Command
) -> None:
    assert run("repair", tmp_path / "new", "-s", damage(store, FEATURES)).exit_code == 1

    result = run("report", "run-1", "-s", tmp_path / "new")

    assert result.exit_code == 0
    assert "objective not known: what may hold it cannot be read\n" in result.stdout
    assert "  1  session_initialized  lost\n" in result.stdout


def test_what_a_deleted_session_held_is_none_of_the_report_of_a_later_run(
    store: Path, run: Command
) -> None:
    with fmemory.open(store) as memory:
        memory.delete_session("login")
        memory.compact()
        with memory.session("login").run("later"):
            pass

    shown = run("report", "later", "-s", store).stdout

    assert "objective none: the session has no manifest\n" in shown
    assert "not there" not in shown


def test_damage_behind_a_run_is_none_of_its_report(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.replace_feature_list("login", [fmemory.FeatureRecord("late", "ui", "came later")])
    change_one_byte(store, b"came later")

    assert run("report", "run-1", "-s", store).exit_code == 0
    assert run("report", "login", "-s", store).exit_code == 1


@pytest.mark.parametrize(
    "command", ["show 6", "fork login again", "bisect --ok 1 --bad 9 --grep x"]
)
def test_what_needs_the_damaged_event_cannot_be_read(
    command: str, store: Path, run: Command
) -> None:
    result = run(*command.split(), "-s", damage(store, MESSAGE))

    assert result.exit_code == 3
    assert "fmemory verify" in only_line(result.stderr)


def test_a_damaged_record_cannot_be_listed(store: Path, run: Command) -> None:
    change_one_byte(store, b"forms need a label")

    assert run("records", "--namespace", "ui", "-s", store).exit_code == 3


def test_the_page_of_a_damaged_session_is_written_and_told(store: Path, run: Command) -> None:
    result = run("html", "-o", "replay.html", "--json", "-s", damage(store, MESSAGE))

    size = Path("replay.html").stat().st_size
    assert json.loads(only_line(result.stdout)) == {"file": "replay.html", "bytes": size}


def test_the_state_before_a_damaged_message_is_shown(store: Path, run: Command) -> None:
    result = run("state", "--json", "-s", damage(store, MESSAGE))

    found = json.loads(only_line(result.stdout))
    assert (found["seq"], found["message_count"]) == (5, 1)
    assert [one["summary"] for one in found["recent_progress"]] == ["the form works"]


def test_many_damaged_events_are_named_once_and_as_ranges(tmp_path: Path, run: Command) -> None:
    path = tmp_path / "m"
    with fmemory.open(path) as memory:
        for number in range(1, 9):
            word = "good" if number in (3, 7) else "bad"
            memory.append(("jobs",), [NewEvent("job.done", f"{word} {number}")])
    for number in (1, 2, 4, 5, 6, 8):
        change_one_byte(path, f"bad {number}".encode())

    result = run("log", "-s", path)

    assert result.exit_code == 1
    assert "events 1 to 2, 4 to 6, 8 are damaged" in only_line(result.stderr)


def test_answers_that_cannot_be_read_are_not_called_missing_without_a_word(
    store: Path, run: Command
) -> None:
    with fmemory.open(store) as memory:
        memory.append_transcript_messages("login", called("c9", "pytest"))
        memory.append_transcript_messages("login", answered("c9", "all is well"))
    change_one_byte(store, b"all is well")

    shown = run("report", "login", "-s", store).stdout

    assert "unanswered tool calls: 1\n  12  Bash pytest\n" in shown
    assert "  answers may be in what cannot be read: event 13\n" in shown
