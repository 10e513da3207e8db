"""`fmemory dump` and `load`: what is not written is said, and a bad file leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmemory
from tests.tools.helpers import Command, only_line


@pytest.mark.parametrize("target", ["notes.jsonl", "-"])
def test_records_of_other_namespaces_are_counted(target: str, store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.add_note("x", namespace=("users", "ada"))
        memory.add_note("y", namespace=("users", "ada"))

    result = run("dump", target, "-s", store)

    assert result.exit_code == 0
    told = only_line(result.stderr)
    assert told.startswith("fmemory: 3 records of namespaces ui (1), users/ada (2) not dumped")


def test_nothing_is_said_where_the_namespace_was_named(store: Path, run: Command) -> None:
    result = run("dump", "notes.jsonl", "--namespace", "ui", "-s", store)

    assert (result.exit_code, result.stderr) == (0, "")
    assert run("dump", "root.jsonl", "--namespace", "", "-s", store).stderr == ""


def test_a_namespace_that_is_not_there_writes_no_file(store: Path, run: Command) -> None:
    result = run("dump", "notes.jsonl", "--namespace", "u", "-s", store)

    assert result.exit_code == 1
    assert only_line(result.stderr).endswith("nothing was written; there are: ui")
    assert not Path("notes.jsonl").exists()


def test_a_namespace_that_is_empty_now_is_a_file_without_records(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.delete(memory.delete_request(ids=("n2",), namespace=("ui",)))

    assert run("dump", "notes.jsonl", "--namespace", "ui", "-s", store).exit_code == 0
    assert len(Path("notes.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("content", ["", "{}\n", "nonsense"])
def test_a_bad_file_makes_no_store(content: str, run: Command) -> None:
    Path("bad.jsonl").write_text(content)
    Path("empty").mkdir()

    for folder in ("new", "empty"):
        result = run("load", "bad.jsonl", "-s", folder)

        assert result.exit_code == 2
        assert "bad.jsonl" in only_line(result.stderr)
    assert not Path("new").exists()
    assert list(Path("empty").iterdir()) == []


@pytest.mark.parametrize("command", ["log", "stats", "verify", "state"])
def test_an_empty_folder_says_how_to_make_a_store(command: str, run: Command) -> None:
    Path("empty").mkdir()

    result = run(command, "-s", "empty")

    assert result.exit_code == 3
    told = only_line(result.stderr)
    assert told.startswith("fmemory: no store in empty; create one with `fmemory import")
