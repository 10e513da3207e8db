"""`fmemory log`: what is left out is said, and times are those that are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fmemory
from fmemory import NewEvent
from tests.tools.helpers import Command, only_line

MANY = 60


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many"
    with fmemory.open(path, durability="os") as memory, memory.batch() as batch:
        for number in range(MANY):
            batch.append(("jobs",), [NewEvent("job.done", {"number": number})])
        batch.append(("other",), [NewEvent("other.done")])
    return path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "11 earlier events; --all shows them"),
        (["--after", "10"], "1 earlier event; --all shows them"),
        (["--stream", "jobs"], "10 earlier events; --all shows them"),
        (["--type", "job.done"], "earlier events; --all shows them"),
        (["--since", "1h ago"], "earlier events; --all shows them"),
    ],
    ids=str,
)
def test_a_cut_list_says_so(arguments: list[str], told: str, many: Path, run: Command) -> None:
    result = run("log", *arguments, "-s", many)
    plain = run("log", *arguments, "--json", "-s", many)

    assert result.stdout.splitlines()[0] == told
    assert only_line(plain.stderr) == f"fmemory: {told}"
    assert len(plain.stdout.splitlines()) == 50


@pytest.mark.parametrize(
    "arguments", [["--all"], ["--after", "11"], ["--stream", "other"]], ids=str
)
def test_a_list_that_is_not_cut_says_nothing(
    arguments: list[str], many: Path, run: Command
) -> None:
    assert "earlier" not in run("log", *arguments, "-s", many).output


@pytest.mark.parametrize("count", [1, 10, 61, 500])
def test_as_many_of_the_last_are_shown_as_asked_for(count: int, many: Path, run: Command) -> None:
    result = run("log", "--last", count, "--json", "-s", many)

    seqs = [json.loads(line)["seq"] for line in result.stdout.splitlines()]
    assert seqs == list(range(1, MANY + 2))[-count:]
    assert ("earlier event" in result.stderr) == (count < MANY + 1)
    assert "exclude each other" in run("log", "--last", count, "--all", "-s", many).stderr


@pytest.mark.parametrize("form", [[], ["--all"]], ids=str)
@pytest.mark.parametrize(
    ("arguments", "seqs"),
    [
        (["--since", "2001-02-03T00:00Z", "--until", "2001-02-04T00:00Z"], [12]),
        (["--until", "2001-02-04T00:00Z"], [12]),
        (["--since", "2002-01-01T00:00Z"], [*range(1, 12), 13]),
        (["--since", "2001-02-03T10:00Z", "--until", "2001-02-03T10:00Z"], []),
    ],
    ids=str,
)
def test_times_are_compared_as_they_are_shown(
    arguments: list[str], seqs: list[int], form: list[str], store: Path, run: Command
) -> None:
    happened = datetime(2001, 2, 3, 10, tzinfo=UTC)
    with fmemory.open(store) as memory:
        memory.append(("jobs",), [NewEvent("job.done", occurred_at=happened)])
        memory.append(("jobs",), [NewEvent("job.done")])

    result = run("log", *arguments, *form, "--json", "-s", store)

    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == seqs


def test_an_empty_namespace_names_those_that_begin_so(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        for label in ("ada", "bob"):
            memory.add_note("x", namespace=("users", label))

    result = run("log", "--namespace", "users", "-s", store)

    assert result.exit_code == 0
    assert only_line(result.stderr).endswith("these begin so: users/ada, users/bob")
    assert run("log", "--namespace", "users/ada", "-s", store).stderr == ""


@pytest.mark.parametrize("form", [[], ["--all"], ["--json"]], ids=str)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--run", "nowhere"], "no run 'nowhere'; there is none"),
        (["--type", "jobdone"], "--type: expected a type with a dot, or one of "),
    ],
    ids=str,
)
def test_what_can_be_nowhere_is_a_mistake(
    form: list[str], arguments: list[str], told: str, many: Path, run: Command
) -> None:
    result = run("log", *form, *arguments, "-s", many)

    assert (result.exit_code, result.stdout) == (2, "")
    assert told in only_line(result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [["--type", "session_deleted"], ["--type", "job.failed"], ["--actor", "nobody"]],
    ids=str,
)
def test_what_could_be_there_and_is_not_is_none(
    arguments: list[str], many: Path, run: Command
) -> None:
    result = run("log", *arguments, "-s", many)

    assert (result.exit_code, result.stdout) == (0, "no events\n")


def test_a_run_of_which_nothing_fits_is_none(tmp_path: Path, run: Command) -> None:
    path = tmp_path / "one"
    with fmemory.open(path) as memory, fmemory.audit(run_id="r"):
        memory.append(("jobs",), [NewEvent("job.done")])

    result = run("log", "--run", "r", "--until", "1h ago", "-s", path)

    assert (result.exit_code, result.stdout) == (0, "no events\n")
