"""`fmemory transcript --raw`: what is stored of each message, and nothing of it left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import fmemory
from fmemory import JsonObject, Message, ToolCall, messages
from tests.tools.helpers import Command

CALL = ToolCall("c1", "Bash", {"command": "ls", "path": "a b"})
CALL_PLAIN = {"id": "c1", "name": "Bash", "arguments": {"command": "ls", "path": "a b"}}
TEXT: JsonObject = {"type": "text", "text": "looking"}


def raw_of(run: Command, store: Path, *arguments: object) -> list[object]:
    """The JSON values that are printed, in order."""
    result = run("transcript", "s", *arguments, "--raw", "-s", store)
    assert result.exit_code == 0, result.output
    lines = [line[3:] for line in result.stdout.splitlines() if line.startswith("   ")]
    text, values = "\n".join(lines), []
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        values.append(value)
        text = text[end:].lstrip()
    return values


def written(folder: Path, *batches: Sequence[Message]) -> Path:
    with fmemory.open(folder / "m") as memory:
        for batch in batches:
            memory.append_transcript_messages("s", batch)
    return folder / "m"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            Message("assistant", "", tool_calls=[CALL]),
            [{"role": "assistant", "tool_calls": [CALL_PLAIN]}],
        ),
        (
            Message("tool", "no", tool_call_id="c1", is_error=True, name="Bash"),
            [
                {
                    "role": "tool",
                    "content": "no",
                    "name": "Bash",
                    "tool_call_id": "c1",
                    "is_error": True,
                }
            ],
        ),
        (
            Message("assistant", "looking", blocks=[TEXT], tool_calls=[CALL]),
            [TEXT, {"tool_calls": [CALL_PLAIN]}],
        ),
        (
            Message("tool", "looking", blocks=[TEXT], tool_call_id="c1", is_error=True),
            [TEXT, {"tool_call_id": "c1", "is_error": True}],
        ),
        (
            Message("user", "hi", metadata={"kept": [1]}),
            [{"role": "user", "content": "hi", "metadata": {"kept": [1]}}],
        ),
    ],
    ids=["call", "result", "call beside blocks", "result beside blocks", "metadata"],
)
def test_raw_prints_fields_that_no_block_tells(
    message: Message, told: list[object], tmp_path: Path, run: Command
) -> None:
    assert raw_of(run, written(tmp_path, [message])) == told


def test_raw_prints_the_blocks_of_a_provider_once(tmp_path: Path, run: Command) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}
    said = messages.from_anthropic(
        [{"role": "assistant", "content": [TEXT, use]}, {"role": "user", "content": [answer]}]
    )

    assert raw_of(run, written(tmp_path, said)) == [TEXT, use, answer]


def test_raw_prints_the_messages_that_are_shown(tmp_path: Path, run: Command) -> None:
    store = written(
        tmp_path,
        [Message("user", "one"), Message("user", "two"), Message("user", "cut off")],
        [Message("user", "cut off too")],
    )
    with fmemory.open(store) as memory:
        memory.truncate_transcript("s", keep=2)
        memory.append_transcript_messages("s", [Message("user", "three"), Message("user", "four")])

    shown = [{"role": "user", "content": text} for text in ("one", "two", "three", "four")]
    assert raw_of(run, store) == shown
    assert raw_of(run, store, "--last", 3) == shown[1:]
    assert raw_of(run, store, "--last", 1) == shown[3:]
