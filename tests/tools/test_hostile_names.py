"""What steers a terminal stays out of both streams, whichever stored name or text it is in."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import fmemory
from fmemory import FeatureRecord, Message, NewEvent, ProgressEntry, SessionManifest, ToolCall
from tests.tools.helpers import Command

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SIGNS = (
    "\x1b[31m\x07\x7f\x9b31m\xad\u061c\u200b\u200f\u2028\u2029\u202e\u2066\u2060\ufeff\U000e0041"
)
STEERING = frozenset(SIGNS) - frozenset("[31m") | {"\r"}
KEPT = "é漢🚀"
NAME = f"X{SIGNS}{KEPT}"
BEGINNINGS = ("X␛[31", r"X\u001b[31")
"""How the name begins as text and as JSON, however short it is cut."""

COMMANDS = [
    ["log"],
    ["log", "--namespace", "X"],
    ["log", "--namespace", NAME],
    ["log", "--stream", f"{NAME}/{NAME}"],
    ["sessions"],
    ["show", "5"],
    ["state"],
    ["state", "--session", "no"],
    ["transcript"],
    ["transcript", "--whole"],
    ["transcript", "--raw"],
    ["runs"],
    ["report"],
    ["report", "no"],
    ["records"],
    ["records", "--namespace", NAME],
    ["records", "--namespace", NAME, "--near", NAME],
    ["records", "--namespace", "no"],
    ["blame"],
    ["blame", "--all"],
    ["grep", "X"],
    ["diff", "1", "8"],
    ["diff", "no", "no"],
    ["history", "--session", "X"],
    ["history", "--record", NAME, "--namespace", NAME],
    ["stats"],
    ["tail", "--count", "3", "--from", "1"],
    ["verify"],
    ["step"],
    ["bisect", "--ok", "1", "--bad", "5", "--exec", r"""grep -Eq '"seq": 1\b'"""],
]
WITHOUT_NAMES = [["verify"], ["verify", "--json"], ["step"]]
"""Commands that show nothing stored: nothing is wrong, and there is no terminal to step in."""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "m"
    with fmemory.open(path) as memory, fmemory.audit(actor=NAME, run_id=NAME, reason=NAME):
        session = memory.session(NAME)
        session.initialize_session_if_missing(
            SessionManifest(NAME, NAME, NAME, metadata={NAME: NAME}),
            [FeatureRecord(NAME, NAME, NAME)],
        )
        session.update_feature_pass(NAME, True)
        call = ToolCall(NAME, NAME, {NAME: NAME})
        session.append_transcript_messages([Message("assistant", NAME, tool_calls=[call])])
        session.append_progress_entry(ProgressEntry(NAME, NAME))
        session.append_transcript_messages(
            [Message("tool", NAME, tool_call_id=NAME, is_error=True)]
        )
        memory.append((NAME, NAME), [NewEvent("a.b", {NAME: NAME})])
        memory.add_note(NAME, [1.0], id=NAME, namespace=(NAME,), timestamp=1.0)
        memory.append(("session", NAME), [NewEvent("a.b", {NAME: NAME})])
        memory.add_note(NAME, [0.5], id=f"{NAME}2", namespace=(NAME,), timestamp=2.0)
    return path


@pytest.mark.parametrize("json_too", [False, True])
def test_no_command_gives_a_terminal_what_steers_it(
    hostile: Path, run: Command, *, json_too: bool
) -> None:
    for words in COMMANDS:
        command = [*words, "--json"] if json_too else words
        result = run(*command, "-s", hostile)
        shows = any(one in result.output for one in BEGINNINGS)
        assert shows or command in WITHOUT_NAMES, command
        assert not STEERING & set(result.stdout), command
        assert not STEERING & set(result.stderr), command


def test_json_means_what_was_stored_and_keeps_other_scripts_readable(
    hostile: Path, run: Command
) -> None:
    shown = run("show", "6", "--json", "-s", hostile).stdout

    assert json.loads(shown)["data"] == {NAME: NAME}
    assert KEPT in shown
    assert r"\u007f\u009b31m\u00ad" in shown
    assert r"\udb40\udc41" in shown


def test_commands_write_to_stderr_in_one_way() -> None:
    raw = re.compile(r"\becho\(|sys\.stderr\.write|file=sys\.stderr")
    found = {
        f"{path.name}: {line.strip()}"
        for path in TOOLS.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if raw.search(line)
    }

    assert sorted(one.partition(":")[0] for one in found) == ["_failure.py", "cli.py", "imports.py"]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("name", ["a\nb", "a\x1b[1mb", "it's", "a\\b\tc", "\u202egnp", "é ü"])
def test_commands_to_go_on_with_name_what_was_asked_for(
    name: str, locale: str, tmp_path: Path, run: Command
) -> None:
    store = tmp_path / "store"
    with fmemory.open(store) as memory:
        for session_id in (name, " ".join(name.split()), "b"):
            session = memory.session(session_id)
            failed = Message("tool", f"no {session_id!r}", tool_call_id="c", is_error=True)
            session.append_transcript_messages([failed])

    result = run("report", name, "-s", store)

    commands = result.stdout.split("next\n")[1].splitlines()
    assert len(commands) == 3
    for command in commands:
        assert command.strip().isprintable()
        done = subprocess.run(
            ["bash", "-c", 'fmemory() { printf "%s\\0" "$@"; }; ' + command],
            capture_output=True,
            check=True,
            env=os.environ | {"LC_ALL": locale},
        )
        words = done.stdout.decode("utf-8").split("\0")[:-1]
        assert run(*words).exit_code in (0, 1)
        assert words[0] == "show" or name in words
