"""Wrong usage is one line in plain words, with the command whose help says more."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import typer

from fmemory_tools._failure import reported
from tests.tools.helpers import Command, only_line

FOREIGN = ("Usage:", "Error:", "Try ", "Invalid value", "Input should", "valid integer", "pars")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("show x", "show: expected a whole number for SEQ, got 'x'; see fmemory show --help"),
        ("show 1.5", "show: expected a whole number for SEQ, got '1.5'; see fmemory show --help"),
        ("show 0", "show: expected 1 or more for SEQ, got 0; see fmemory show --help"),
        ("show", "show: SEQ is missing; see fmemory show --help"),
        ("show 1 2", "show: expected fewer arguments: 2 is too much; see fmemory show --help"),
        ("log --nope", "log: there is no option --nope; see fmemory log --help"),
        (
            "log --sinc",
            "log: there is no option --sinc (did you mean --since?); see fmemory log --help",
        ),
        ("log --since", "log: --since needs a value; see fmemory log --help"),
        ("log --json=3", "log: --json takes no value; see fmemory log --help"),
        ("log --after -1", "log: expected 0 or more for --after, got -1; see fmemory log --help"),
        (
            "state --last x",
            "state: expected a whole number for --last, got 'x'; see fmemory state --help",
        ),
        ("tail --from x", "tail: expected a whole number for --from, got 'x'"),
        ("load nofile", "load: there is no file nofile; see fmemory load --help"),
        ("load .", "load: expected a file for FILE, and . is a folder; see fmemory load --help"),
        ("dump", "dump: FILE is missing; see fmemory dump --help"),
        ("import notes", "import notes: FILE is missing; see fmemory import notes --help"),
        ("import notes a --vectors b", "import notes: there is no file b"),
        ("import nope", "import: there is no command 'nope' (did you mean 'notes'?)"),
        ("nope", ": there is no command 'nope'; see fmemory --help"),
        ("--nope", ": there is no option --nope; see fmemory --help"),
        ("--store", ": --store needs a value; see fmemory --help"),
    ],
)
def test_wrong_usage_is_one_line_in_our_words(line: str, told: str, run: Command) -> None:
    Path("a").write_text("{}")

    result = run(*line.split())

    assert result.exit_code == 2
    said = only_line(result.stderr)
    assert said.startswith("fmemory" + (told if told.startswith(":") else f" {told}"))
    assert not [word for word in FOREIGN if word in said]
    assert result.stdout == ""


@pytest.mark.parametrize("store", ["there", "x" * 5_000, "no/where", "\udcff"])
def test_one_argument_too_many_is_wrong_usage_whatever_it_is(store: str, run: Command) -> None:
    Path("there").mkdir()

    result = run("runs", store)

    assert result.exit_code == 2
    said = only_line(result.stderr)
    assert said.startswith("fmemory runs: expected fewer arguments: ")
    assert ("a store is named with -s" in said) is (store == "there")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left"), "fmemory: standard output: No space left"),
        (OSError(errno.ENOSPC, "No space left", "a"), "fmemory: a: No space left"),
        (OSError(errno.EMFILE, "Too many open files"), "fmemory: Too many open files"),
    ],
)
def test_an_error_of_the_system_names_the_file_only_where_it_is_known(
    error: OSError, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, reported():
        raise error

    assert ended.value.exit_code == 3
    assert only_line(capsys.readouterr().err) == told
