"""Which store is meant: -s before or after the command, the environment, a folder upwards."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmemory
from fmemory_tools._store import store_option
from tests.tools.helpers import Command


def make_store(path: Path, note: str) -> Path:
    with fmemory.open(path, durability="os") as memory:
        memory.add_note(note, id="n")
    return path


@pytest.mark.parametrize(
    "arguments",
    [["-s", "{}", "show", "1"], ["show", "1", "-s", "{}"], ["--store", "{}", "show", "1"]],
)
def test_the_option_is_taken_on_both_sides(
    arguments: list[str], tmp_path: Path, run: Command
) -> None:
    store = make_store(tmp_path / "one", "hello")

    result = run(*[one.format(store) for one in arguments])

    assert result.exit_code == 0 and "hello" in result.stdout


def test_the_option_before_a_command_reaches_the_importers(tmp_path: Path, run: Command) -> None:
    Path("notes.jsonl").write_text('{"id": "a", "text": "x", "timestamp": 1}')

    assert run("-s", tmp_path / "new", "import", "notes", "notes.jsonl").exit_code == 0
    assert (tmp_path / "new").is_dir()


def test_the_nearer_option_wins(tmp_path: Path, run: Command) -> None:
    one, two = make_store(tmp_path / "one", "first"), make_store(tmp_path / "two", "second")

    assert "second" in run("-s", one, "show", 1, "-s", two).stdout


def test_the_environment_is_next(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = make_store(tmp_path / "one", "first"), make_store(tmp_path / "two", "second")
    make_store(Path(".fmemory"), "third")
    monkeypatch.setenv("FMEMORY_STORE", str(two))

    assert "second" in run("show", 1).stdout
    assert "first" in run("-s", one, "show", 1).stdout


def test_the_nearest_folder_upwards_is_last(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(Path(".fmemory"), "upwards")
    below = Path("a", "b")
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    assert "upwards" in run("show", 1).stdout


def test_a_folder_that_holds_a_store_stands_for_it(tmp_path: Path, run: Command) -> None:
    make_store(tmp_path / "project" / ".fmemory", "inside")

    assert "inside" in run("show", 1, "-s", tmp_path / "project").stdout


@pytest.mark.parametrize(
    "target",
    ["postgresql://ada:HUNTER2@db/agents?log=app", "postgresql://db/agents?password=HUNTER2"],
)
def test_no_command_to_copy_has_a_password(target: str) -> None:
    assert "HUNTER2" not in store_option(target)
    assert "db/agents" in store_option(target)
