"""What the content blocks of a stored message hold: tool calls, and answers to them.

Blocks are decoded no further than that. They may hold anything else, which is passed over.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from fmemory._json_values import JsonValue
from fmemory._message_parts import text_of_blocks
from fmemory.replay._failures import Answer, failure_in

__all__ = ["WORDS_MAX", "Call", "answer_of", "answers_in", "calls_in"]

WORDS_MAX = 300
"""Characters of a text that are kept as its first words."""
CALL = b"\xa8tool_use"
"""How the type of a block that calls a tool is stored."""
ANSWER = b"\xabtool_result"
"""How the type of a block that answers one is stored."""


class Call(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A tool call: its id and name, and its arguments, undecoded: a msgpack object or text."""

    id: str
    name: str
    arguments: msgspec.Raw


class _CallBlock(msgspec.Struct, frozen=True, gc=False):
    type: object = None
    id: object = None
    name: object = None
    input: msgspec.Raw = msgspec.Raw(b"\x80")


class _AnswerBlock(msgspec.Struct, frozen=True, gc=False):
    type: object = None
    tool_use_id: object = None
    content: JsonValue = None
    is_error: object = None


def calls_in(blocks: bytes, named: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls that a message names, and those that stand in its blocks only."""
    if CALL not in blocks:
        return named
    seen = {call.id for call in named}
    found = named
    for block in _call_blocks.decode(blocks):
        if block.type != "tool_use":
            continue
        call_id = block.id if isinstance(block.id, str) else ""
        if call_id in seen:
            # Most stand in both.
            continue
        if call_id:
            seen.add(call_id)
        name = block.name if isinstance(block.name, str) else ""
        found = (*found, Call(call_id, name, block.input))
    return found


def answers_in(blocks: bytes, call_id: str | None, *, is_error: bool) -> tuple[Answer, ...]:
    """What the blocks of a message answer.

    Args:
        call_id: The call that the message names, which is that of its only block without one.
        is_error: The message is marked as failed: that is its answers' mark where none has its own.
    """
    if ANSWER not in blocks:
        return ()
    found = [one for one in _answer_blocks.decode(blocks) if one.type == "tool_result"]
    if is_error and any(one.is_error is True for one in found):
        is_error = False
    spare = call_id if call_id is not None and len(found) == 1 else ""
    answers = []
    for one in found:
        answered = one.tool_use_id if isinstance(one.tool_use_id, str) else spare
        failed = is_error or one.is_error is True
        content = one.content if isinstance(one.content, list) else [one.content]
        answers.append(answer_of(answered, text_of_blocks(content), is_error=failed))
    return tuple(answers)


def answer_of(call_id: str, text: str, *, is_error: bool) -> Answer:
    """An answer of this text: its first words, and whether it tells of a failure."""
    return Answer(call_id, text[:WORDS_MAX], is_error, None if is_error else failure_in(text))


Block = TypeVar("Block", bound=msgspec.Struct)


class _Decoder(Generic[Block]):
    """Decodes the blocks that are objects."""

    def __init__(self, kind: type[Block]) -> None:
        self._all = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
        self._one = msgspec.msgpack.Decoder(kind)

    def decode(self, blocks: bytes) -> list[Block]:
        try:
            return self._all.decode(blocks)
        except msgspec.ValidationError:
            pass  # something else among them than objects
        found: list[Block] = []
        for one in _each.decode(blocks):
            with suppress(msgspec.ValidationError):
                found.append(self._one.decode(one))
        return found


_each = msgspec.msgpack.Decoder(list[msgspec.Raw])
_call_blocks = _Decoder(_CallBlock)
_answer_blocks = _Decoder(_AnswerBlock)
