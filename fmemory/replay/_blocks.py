"""What the content blocks of a stored message hold: tool calls, and answers to them.

Blocks are decoded no further than that. They may hold anything else, which is passed over.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from fmemory._json_values import JsonValue
from fmemory._message_parts import TEXT_TYPES, text_of_blocks
from fmemory.replay._failures import Answer, failure_in

__all__ = [
    "WORDS_MAX",
    "Block",
    "Blocks",
    "Call",
    "answer_of",
    "answers_of",
    "text_in",
    "with_call",
]

WORDS_MAX = 300
"""Characters of a text that are kept as its first words."""
_decode = msgspec.msgpack.Decoder().decode


class Call(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A tool call: its id and name, and its arguments, undecoded: a msgpack object or text."""

    id: str
    name: str
    arguments: msgspec.Raw


class Block(msgspec.Struct, frozen=True, gc=False):
    """A content block that is an object; of one that calls no tool and answers none, its type."""

    type: object = None
    text: msgspec.Raw = msgspec.Raw(b"\xc0")
    id: object = None
    name: object = None
    input: msgspec.Raw = msgspec.Raw(b"\x80")
    tool_use_id: object = None
    content: JsonValue = None
    is_error: object = None


Blocks: TypeAlias = tuple[Block | str | int | float | bool | list[msgspec.Raw] | None, ...]
"""The content blocks of a message, which may be any values."""


def text_in(blocks: Blocks) -> str:
    """The text of blocks, as `text_of_blocks` has it of plain data."""
    found: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            found.append(block)
        elif type(block) is Block and isinstance(block.type, str):
            text: object = None
            if block.type in TEXT_TYPES:
                text = _decode(block.text)
            elif block.type == "tool_result":
                content = block.content
                text = text_of_blocks(content if isinstance(content, list) else [content]) or None
            if isinstance(text, str):
                found.append(text)
    return "\n".join(found)


def with_call(calls: tuple[Call, ...], block: Block) -> tuple[Call, ...]:
    """The calls of a message, with that of a block unless it is among them, as most are."""
    call_id = block.id if isinstance(block.id, str) else ""
    for one in calls if call_id else ():
        if one.id == call_id:
            return calls
    name = block.name if isinstance(block.name, str) else ""
    return (*calls, Call(call_id, name, block.input))


def answers_of(
    results: tuple[Block, ...], call_id: str | None, *, is_error: bool
) -> tuple[Answer, ...]:
    """What the blocks of a message answer.

    Args:
        results: Those of its blocks that hold results, at least one.
        call_id: The call that the message names, which is that of its only block without one.
        is_error: The message is marked as failed: that is its answers' mark where none has its own.
    """
    if is_error and any(one.is_error is True for one in results):
        is_error = False
    spare = call_id if call_id is not None and len(results) == 1 else ""
    answers: list[Answer] = []
    for one in results:
        answered, content = one.tool_use_id, one.content
        if not isinstance(content, str):
            content = text_of_blocks(content if isinstance(content, list) else [content])
        answers.append(
            answer_of(
                answered if isinstance(answered, str) else spare,
                content,
                is_error=is_error or one.is_error is True,
            )
        )
    return tuple(answers)


def answer_of(call_id: str, text: str, *, is_error: bool) -> Answer:
    """An answer of this text: its first words, and whether it tells of a failure."""
    return Answer(call_id, text[:WORDS_MAX], is_error, None if is_error else failure_in(text))
