"""What `runs` and `report` print of times, damage and names that look like options."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fmemory
from fmemory import Message, RunCheckpoint
from tests.fmemory.replay_stores import answered, write_broken
from tests.tools.helpers import Command, change_one_byte


@pytest.fixture(params=["Asia/Tokyo", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken"
    with fmemory.open(path) as memory:
        write_broken(memory)
    return path


def test_times_at_the_ends_of_the_calendar_are_shown(
    zone: str, tmp_path: Path, run: Command
) -> None:
    path = tmp_path / "ends"
    ends = {
        "late": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        "early": datetime(1, 1, 1, tzinfo=UTC),
    }
    with fmemory.open(path) as memory:
        for name, started in ends.items():
            memory.record_run_checkpoint("s", RunCheckpoint(name, started))

    listed, report = run("runs", "-s", path), run("report", "s", "-s", path)

    # What is no local time stays UTC.
    shown = {
        "Asia/Tokyo": ("9999-12-31 23:59Z", "0001-01-01 09:18"),
        "America/New_York": ("9999-12-31 18:59", "0001-01-01 00:00Z"),
    }[zone]
    assert (listed.exit_code, report.exit_code) == (0, 0)
    assert all(one in listed.stdout for one in shown)
    assert all(one.removesuffix("Z") in report.stdout for one in shown)
    assert max(map(len, listed.stdout.splitlines())) <= 80


def test_runs_of_another_year_show_it(tmp_path: Path, run: Command) -> None:
    path = tmp_path / "years"
    starts = [datetime(2001, 2, 3, tzinfo=UTC), datetime.now(UTC)]
    with fmemory.open(path) as memory:
        for number, started in enumerate(starts):
            memory.record_run_checkpoint("s", RunCheckpoint(f"run-{number}", started))

    shown = run("runs", "-s", path, "--utc").stdout

    assert [f"{one:%Y-%m-%d %H:%M}" in shown for one in starts] == [True, True]


def test_runs_names_damage_and_ends_with_a_finding(broken: Path, run: Command) -> None:
    change_one_byte(broken, b"rm: no")

    text, plain = run("runs", "-s", broken), run("runs", "--json", "-s", broken)

    assert (text.exit_code, plain.exit_code) == (1, 1)
    assert "damaged" in text.stderr
    assert text.stderr == plain.stderr
    assert [json.loads(line)["run_id"] for line in plain.stdout.splitlines()] == ["run-1", "run-2"]
    assert "run-2" in text.stdout


def test_runs_names_what_is_erased_which_is_no_damage(broken: Path, run: Command) -> None:
    with fmemory.open(broken) as memory:
        memory.delete_session("login")
        memory.compact()

    result = run("runs", "-s", broken)

    assert result.exit_code == 0
    assert result.stderr.startswith("fmemory: not counted, as erased: event 1, ")


@pytest.mark.parametrize("session", ["--help", "-r y -- z", "plain"])
def test_the_commands_a_report_offers_run(session: str, tmp_path: Path, run: Command) -> None:
    path = tmp_path / "store of names"
    with fmemory.open(path) as memory, fmemory.audit(run_id="-x"):
        memory.append_transcript_messages(session, [Message("user", "asked")])
        memory.delete_session(session)
        memory.append_transcript_messages(session, [Message("user", "asked again")])
        memory.append_transcript_messages(session, answered("c", "no", is_error=True))
        memory.compact()

    for asked in (["--session", session], ["--", "-x"]):
        shown = run("report", "-s", path, *asked).stdout
        _, _, printed = shown.partition("next\n")
        offered = printed.splitlines()
        assert len(offered) == 3
        for line in offered:
            program, *arguments = shlex.split(line)
            result = run(*arguments)
            assert program == "fmemory"
            # A difference ends `diff` with 1 as well.
            assert (result.exit_code in (0, 1), result.stderr) == (True, "")
            assert "Usage:" not in result.stdout
