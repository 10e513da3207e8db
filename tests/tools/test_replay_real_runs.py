"""On real runs, `report` names the first failing tool call.

What is expected is read from the raw file here, by other means than the importer's and the
report's. SWE-agent marks no failure: the sentences are those that its files were read for by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fmemory
from fmemory import JournalBackend
from fmemory.replay import report, runs
from fmemory_tools.importers.apply import apply_sessions
from fmemory_tools.importers.claude_code import plan_claude_code
from fmemory_tools.importers.swe_agent import plan_swe_agent
from tests.tools.helpers import Command

CLAUDE_CODE = ["claude-code-short", "claude-code-subagent", "claude-code-tool-heavy"]
SWE_AGENT = ["swe-agent-ctf-katy", "swe-agent-marshmallow-1867"]
SENTENCES = ("Wrong flag!", "EXECUTION TIMED OUT")


@dataclass(frozen=True)
class Expected:
    """The first failure of a file, and how many there are."""

    tool: str
    arguments: str
    words: str
    count: int


def results_of(node: object) -> Iterator[dict[str, Any]]:
    """Everything in a line that looks like a call or a result, wherever it stands."""
    if isinstance(node, dict):
        if node.get("type") in ("tool_use", "tool_result"):
            yield node
            return
        for value in node.values():
            yield from results_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from results_of(value)


def claude_code_failure(file: Path) -> Expected | None:
    calls: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for line in file.read_text("utf-8").splitlines():
        for one in results_of(json.loads(line)):
            if one["type"] == "tool_use":
                calls[one["id"]] = one
            elif one.get("is_error"):
                failed[one["tool_use_id"]] = one["content"]
    if not failed:
        return None
    first = next(iter(failed))
    (argument, *_) = calls[first]["input"].values()
    return Expected(calls[first]["name"], str(argument), failed[first], len(failed))


def swe_agent_failure(file: Path) -> Expected | None:
    steps = json.loads(file.read_bytes())["trajectory"]
    failed = [step for step in steps if step["observation"].strip() in SENTENCES]
    if not failed:
        return None
    tool, _, arguments = failed[0]["action"].strip().partition(" ")
    return Expected(tool, arguments, failed[0]["observation"].strip(), len(failed))


def expected_of(file: Path) -> Expected | None:
    if file.suffix == ".traj":
        return swe_agent_failure(file)
    return claude_code_failure(file)


def load(memory: JournalBackend, file: Path) -> str:
    """Import a file; the id of its main session."""
    plan = plan_swe_agent if file.suffix == ".traj" else plan_claude_code
    apply_sessions(memory, plan(file))
    return min((one.session_id for one in memory.list_sessions().sessions), key=len)


@pytest.fixture(params=[f"{name}.jsonl" for name in CLAUDE_CODE] + [f"{n}.traj" for n in SWE_AGENT])
def file(request: pytest.FixtureRequest, data: Path) -> Path:
    return data / "runs" / str(request.param)


def test_the_first_failing_tool_call_is_that_of_the_file(file: Path) -> None:
    expected = expected_of(file)
    with fmemory.open(":memory:") as memory:
        found = report(memory, load(memory, file))

    error = found.first_error
    if expected is None:
        assert (error, found.around, found.tool_error_count) == (None, (), 0)
        return
    assert error is not None
    assert error.tool == expected.tool
    assert expected.arguments[:80] in error.arguments
    assert error.words == " ".join(expected.words[:300].split())
    assert found.tool_error_count == expected.count


def test_the_files_have_the_failures_that_were_read_by_hand(data: Path) -> None:
    folder = data / "runs"
    found = {path.stem: expected_of(path) for path in sorted(folder.iterdir())}

    assert {name: one and (one.tool, one.count) for name, one in found.items()} == {
        "claude-code-short": ("Bash", 2),
        "claude-code-subagent": ("Read", 3),
        "claude-code-tool-heavy": None,
        "swe-agent-ctf-katy": ("submit", 2),
        "swe-agent-marshmallow-1867": None,
    }


def test_calls_and_messages_are_those_of_the_file(file: Path) -> None:
    text = file.read_text("utf-8")
    if file.suffix == ".traj":
        calls = len(json.loads(text)["trajectory"])
    else:
        lines = [json.loads(line) for line in text.splitlines()]
        calls = len({one["id"] for one in results_of(lines) if one["type"] == "tool_use"})
    with fmemory.open(":memory:") as memory:
        load(memory, file)

        assert sum(one.tool_call_count for one in runs(memory)) == calls


def test_the_command_shows_the_failure_in_eighty_columns(
    data: Path, tmp_path: Path, run: Command
) -> None:
    store = tmp_path / "store"
    run("import", "claude-code", data / "runs" / "claude-code-subagent.jsonl", "-s", store)

    shown = run("report", "491e", "-s", store)

    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line for line in lines[: lines.index("next")] if len(line) > 80] == []
    assert "in sub-agent 491e126e-1e71-469c-ade2-fcc8af567c74.agent-afb92ff" in shown.stdout
    assert "Read /home/dev/projects/spotter\n" in shown.stdout
    assert "EISDIR: illegal operation on a directory, read" in shown.stdout
    at = lines.index("further errors: 2")
    assert [line.split()[0] for line in lines[at + 1 : at + 3]] == ["69", "70"]


def test_the_commands_shown_run(file: Path, run: Command) -> None:
    kind = "swe-agent" if file.suffix == ".traj" else "claude-code"
    assert run("import", kind, file, "-s", "store").exit_code == 0
    listed = run("sessions", "--json", "-s", "store").stdout.splitlines()
    session_id = min((json.loads(line)["session_id"] for line in listed), key=len)
    told = json.loads(run("report", session_id, "--json", "-s", "store").stdout)

    assert len(told["commands"]) == 3
    for command in told["commands"]:
        result = run(*command.split()[1:], "-s", "store")
        assert (result.exit_code in (0, 1), result.stderr) == (True, ""), command
        assert result.stdout, command


def test_how_long_a_run_took_is_told_where_the_file_tells_it(file: Path, run: Command) -> None:
    kind = "swe-agent" if file.suffix == ".traj" else "claude-code"
    assert run("import", kind, file, "-s", "store").exit_code == 0

    found = [json.loads(line) for line in run("runs", "--json", "-s", "store").stdout.splitlines()]
    shown = run("runs", "-s", "store").stdout
    for one in found:
        told = run("report", one["run_id"], "-s", "store").stdout
        began = next(line for line in told.splitlines() if f" by {one['actor']}" in line)
        assert (" for " in began) == (one["duration_s"] > 0)
    assert "0.0s" not in shown
    assert all(one["duration_s"] > 0 for one in found) == (kind == "claude-code")
