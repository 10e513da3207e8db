"""Every command explains itself, in 80 columns, with examples that are real commands."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from fmemory_tools.cli import app
from tests.tools.helpers import Command

ROOT = get_command(app)


def paths(group: TyperGroup, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [above]
    for name, command in group.commands.items():
        here = (*above, name)
        found += paths(command, here) if isinstance(command, TyperGroup) else [here]
    return found


assert isinstance(ROOT, TyperGroup)
COMMANDS = paths(ROOT)


def test_the_commands_are_these() -> None:
    assert [" ".join(path) for path in COMMANDS] == [
        "",
        "demo",
        "log",
        "show",
        "sessions",
        "runs",
        "report",
        "html",
        "state",
        "diff",
        "history",
        "step",
        "tail",
        "transcript",
        "blame",
        "bisect",
        "grep",
        "records",
        "fork",
        "verify",
        "head",
        "keygen",
        "stats",
        "compact",
        "backup",
        "repair",
        "copy",
        "dump",
        "load",
        "import",
        "import notes",
        "import claude-code",
        "import swe-agent",
        "import fiddlesticks",
    ]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_fits_eighty_columns_and_is_not_cut(path: tuple[str, ...], run: Command) -> None:
    result = run(*path, "--help")

    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []
    assert "..." not in result.stdout.replace("[ARGS]...", "")
    assert result.stdout.startswith("Usage: fmemory")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_argument_is_a_plain_name_that_is_explained(
    path: tuple[str, ...], run: Command
) -> None:
    text = run(*path, "--help").stdout
    arguments = text.partition("Arguments:\n")[2].partition("\n\n")[0]

    assert "{" not in text.splitlines()[0]
    for line in arguments.splitlines():
        assert re.match(r"  (\[?[A-Z][A-Z|]*\]?)?   *[A-Z0-9a-z\[-]", line), line
        assert "<" not in line


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...], run: Command) -> None:
    text = run(*path, "--help").stdout
    options = text.partition("Options:")[2].partition("Examples:")[0].partition("Commands:")[0]

    for line in options.splitlines():
        if line.startswith("  -"):
            assert re.search(r"  \S", line.strip()) or line.rstrip().endswith(("PATH", "TIME")), (
                line
            )


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_examples_are_commands_that_parse(path: tuple[str, ...], run: Command) -> None:
    text = run(*path, "--help").stdout.partition("Examples:")[2]
    shown = [line.strip() for line in text.splitlines() if line.strip().startswith("fmemory ")]

    assert shown
    for line in shown:
        words = shlex.split(re.split(r"\s{3,}| \||&&|> |\\$", line)[0])
        assert isinstance(ROOT, TyperGroup)
        context = ROOT.make_context("fmemory", words[1:], resilient_parsing=True)
        name = next(word for word in words[1:] if not word.startswith("-"))
        assert ROOT.get_command(context, name) is not None
