"""`fmemory demo` from end to end: real processes, a real kill, commands that can be pasted."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fmemory
from fmemory_tools import _demo_runs as runs
from fmemory_tools.cli import app
from fmemory_tools.commands.demo import DAMAGED
from tests.tools.helpers import Command, bytes_of, only_line

EVENTS_OF_RUN_1 = 7
EVENTS = 10


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which the demo ran once, and what it said; for tests that change nothing."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "80")
        result = CliRunner().invoke(app, ["demo", "story"])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


@pytest.fixture
def story(told: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> str:
    folder, text = told
    monkeypatch.chdir(folder)
    return text


def test_the_story_is_about_twenty_lines_of_eighty_columns(story: str) -> None:
    told = story.splitlines()

    assert 18 <= len(told) <= 26
    assert max(map(len, told)) <= 80


def test_the_story_says_what_happened(story: str) -> None:
    for text in (
        "2 tests passed",
        "SIGKILL",
        f"all {EVENTS} acknowledged events are there",
        "kept in quarantine/",
        "✗ → ✓",
        'bob, in run-2, because it "looks done"',
        "1 test run, failed",
        "event 5",
    ):
        assert text in story


def test_what_was_acknowledged_is_there_and_what_was_torn_is_set_aside(story: str) -> None:
    store = Path("story", ".fmemory")
    with fmemory.open(store, read_only=True) as memory:
        assert memory.health().head_seq == EVENTS
        state = memory.load_bootstrap_state(runs.SESSION)
        assert memory.verify() == ()

    assert [one.passes for one in state.feature_list] == [True, True]
    assert [one.status.value for one in state.checkpoints] == [
        "in_progress",
        "succeeded",
        "in_progress",
    ]
    (torn,) = (store / "quarantine").iterdir()
    assert torn.stat().st_size > 0
    assert "bytes" in story


def test_the_damage_is_in_the_copy_only(story: str, run: Command) -> None:
    assert run("verify", "-s", "story").exit_code == 0

    result = run("verify", "-s", Path("story", DAMAGED))

    assert result.exit_code == 1
    assert "event 5" in result.stdout and "event 5" in story


def test_the_commands_to_try_work_when_pasted(story: str, run: Command) -> None:
    commands = [line.strip() for line in story.splitlines() if line.strip().startswith("fmemory ")]

    assert len(commands) == 4
    codes = [run(*shlex.split(line)[1:]).exit_code for line in commands]
    assert codes == [0, 1, 0, 1]


def test_the_commands_to_try_begin_as_the_demo_was_begun(tmp_path: Path) -> None:
    script = tmp_path / ".venv" / "bin" / "fmemory"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"#!{sys.executable}\nfrom fmemory_tools.cli import main\nmain()\n", encoding="utf-8"
    )
    script.chmod(0o755)
    paths = os.pathsep.join(path for path in sys.path if path)
    # As after the README's first command: nothing is on the PATH.
    environment = {**os.environ, "PYTHONPATH": paths, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [".venv/bin/fmemory", "demo"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    commands = [line.strip() for line in done.stdout.splitlines()[-4:]]
    assert all(line.startswith(".venv/bin/fmemory ") for line in commands)
    shown = subprocess.run(
        commands[2], shell=True, cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert shown.returncode == 0


def test_a_path_that_is_there_is_left_alone(run: Command) -> None:
    Path("story").mkdir()
    Path("story", "mine.txt").write_text("mine")

    result = run("demo", "story")

    assert result.exit_code == 2
    assert "story is there already" in only_line(result.stderr)
    assert bytes_of(Path("story")) == {"mine.txt": b"mine"}


def test_commands_are_whole_however_long_the_path_is(run: Command) -> None:
    result = run("demo", f"a b/{'long ' * 20}c")

    assert result.exit_code == 0
    command = next(line for line in result.stdout.splitlines() if "fmemory log " in line)
    assert run(*shlex.split(command)[1:]).exit_code == 0


def test_the_first_run_ends_where_the_story_says(story: str, run: Command) -> None:
    assert f"events 1 to {EVENTS_OF_RUN_1}" in story
    result = run("state", "--at", EVENTS_OF_RUN_1, "-s", "story")
    assert "1 of 2 passing" in result.stdout
