"""Whether a tool call failed: what its answer is marked with, else what its text says of itself.

Providers mark failed tool results. SWE-agent's files mark nothing: there the harness's own
sentences tell, with which the text begins. Output that merely mentions an error is no failure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from fmemory._json_values import JsonValue

__all__ = ["WORDS_MAX", "Answer", "answer_of", "answers_in", "failure_in", "step_of"]

WORDS_MAX = 300
"""Characters of a text that are kept as its first words."""

_SENTENCES = re.compile(
    r"\A\s*(?:OBSERVATION:\s*)?("
    r"EXECUTION TIMED OUT"
    r"|COMMAND FAILED TO EXECUTE"
    r"|Wrong flag!"
    r"|Invalid command"
    r"|Your proposed edit has introduced new syntax error"
    r"|Your edit was not applied"
    r"|Your command was blocked"
    r"|Operation '[^'\n]*' is not supported by this environment"
    r"|The command '[^\n]*' was cancelled because it took more than"
    r"|(?:/bin/)?(?:ba)?sh: [^\n]*: (?:command not found|No such file or directory)"
    r")"
)
_LOOKED_AT = 4096


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer to a tool call.

    Attributes:
        call_id: The call; empty where the harness names none.
        words: The first characters of its text.
        is_error: It is marked as failed.
        failure: What its text says of a failure, where it is not marked.
    """

    call_id: str
    words: str
    is_error: bool = False
    failure: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the call failed, marked or by its own words."""
        return self.is_error or self.failure is not None


class _Block(msgspec.Struct, frozen=True, gc=False):
    """What a content block says if it answers a tool call; a block may hold anything else."""

    type: object = None
    tool_use_id: object = None
    content: object = None
    is_error: object = None


def answers_in(blocks: bytes) -> tuple[Answer, ...]:
    """What the `tool_result` blocks of a message answer."""
    found: Sequence[_Block]
    try:
        found = _blocks_decoder.decode(blocks)
    except msgspec.ValidationError:  # something else among them than objects
        values = _values_decoder.decode(blocks)
        found = [msgspec.convert(one, _Block) for one in values if isinstance(one, dict)]
    answers = []
    for block in found:
        if block.type == "tool_result":
            call_id = block.tool_use_id if isinstance(block.tool_use_id, str) else ""
            text = _text_of(block.content)
            answers.append(answer_of(call_id, text, is_error=block.is_error is True))
    return tuple(answers)


def answer_of(call_id: str, text: str, *, is_error: bool) -> Answer:
    """An answer of this text: its first words, and whether it tells of a failure."""
    return Answer(call_id, text[:WORDS_MAX], is_error, None if is_error else failure_in(text))


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join([text for text in texts if isinstance(text, str)])


_blocks_decoder = msgspec.msgpack.Decoder(list[_Block])
_values_decoder = msgspec.msgpack.Decoder(list[JsonValue])


def failure_in(text: str) -> str | None:
    """The sentence with which a harness says that the call failed; None if it does not.

    >>> failure_in("\\nEXECUTION TIMED OUT\\n(Open file: n/a)")
    'EXECUTION TIMED OUT'
    """
    found = _SENTENCES.match(text, 0, _LOOKED_AT)
    return None if found is None else found.group(1)


def step_of(data: JsonValue) -> tuple[str, str] | None:
    """Action and observation of a step of SWE-agent's trajectory, as the import keeps it."""
    value = data.get("value") if isinstance(data, dict) else None
    if not isinstance(value, dict):
        return None
    action, observation = value.get("action"), value.get("observation")
    if not isinstance(action, str) or not isinstance(observation, str):
        return None
    return action.strip(), observation
