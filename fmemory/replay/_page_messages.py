"""A stored message as the page shows it: a list of parts, each text once.

Providers say the same thing twice: Anthropic's blocks beside `content`, tool calls beside blocks.
What the page shows is one list of parts in the order in which they were said, so that a page is
smaller than the data it shows. What answers a call, and whether it failed, `_parts.py` tells, as it
does for the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from fmemory._json_values import JsonObject, JsonValue
from fmemory._message_parts import text_of_blocks
from fmemory.replay._parts import Answer, Call
from fmemory.replay._parts import parts_of as read_parts

__all__ = ["EXACT_INTEGER_MAX", "exact", "parts_of"]

EXACT_INTEGER_MAX = 2**53 - 1
"""Greatest integer that a browser's numbers hold exactly."""
_SEPARATORS = ("", "\n", "\n\n")


def parts_of(message: JsonObject) -> list[JsonValue]:
    """The parts of a message as `Message.to_dict` gives it, in order.

    Returns:
        Lists that begin with a word: `["text", text]`, `["think", text]`,
        `["call", id, tool, arguments]`, `["result", call id, text, whether it failed]`,
        `["media", type, bytes]` for what is no text, `["other", block]` for the rest.

    >>> parts_of({"role": "tool", "content": "4", "tool_call_id": "c1"})
    [['result', 'c1', '4', False]]
    """
    blocks = _list(message.get("blocks"))
    said = read_parts(message)
    answers, calls = said.answers, _Calls(message, said.calls)
    found = list(_parts_of_blocks(blocks, iter(answers), calls))
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    is_said = _is_said(text, blocks, found)
    if answers and not any(part[0] == "result" for part in found):
        # The message as a whole is the answer: its text blocks are the answer's text.
        if is_said or not text:
            found = [part for part in found if part[0] != "text"]
        found.insert(0, _answer(answers[0], text or text_of_blocks(blocks)))
    elif text and not is_said:
        found.insert(0, ["text", text])
    found += calls.left()
    if len(found) > 1:
        found = [part for part in found if part[0] not in _TEXTS or str(part[1]).strip()]
    return cast("list[JsonValue]", found)


def exact(value: JsonValue) -> JsonValue:
    """The value with integers that a browser would round as text.

    >>> exact({"id": 12345678901234567890, "count": 3})
    {'id': '12345678901234567890', 'count': 3}
    """
    if isinstance(value, dict):
        return {key: exact(one) for key, one in value.items()}
    if isinstance(value, list):
        return [exact(one) for one in value]
    if type(value) is int and abs(value) > EXACT_INTEGER_MAX:
        return str(value)
    return value


class _Calls:
    """The calls of a message, each to be shown once: where a block makes it, or else at the end."""

    def __init__(self, message: JsonObject, calls: Sequence[Call]) -> None:
        blocks = _list(message.get("blocks"))
        named = _list(message.get("tool_calls")) or any(map(_is_call, blocks))
        # Without such, a call is an action beside the message, which the page shows as a step.
        self._calls = list(calls) if named else []

    def of(self, block: JsonObject) -> list[JsonValue] | None:
        """The part of a block that makes a call; None if another made it before."""
        call_id = _id(block.get("id")) or ""
        for number, call in enumerate(self._calls):
            if call.id == call_id:
                del self._calls[number]
                return _call(call)
        return None

    def left(self) -> list[list[JsonValue]]:
        """The parts of all that no block makes."""
        return list(map(_call, self._calls))


def _is_call(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_use"


def _call(call: Call) -> list[JsonValue]:
    return ["call", call.id or None, call.name, exact(call.arguments)]


def _parts_of_blocks(
    blocks: Sequence[JsonValue], answers: Iterator[Answer], calls: _Calls
) -> Iterator[list[JsonValue]]:
    """The parts of blocks; the answers are those of the blocks that hold a result, in order.

    What an assistant says answers nothing: there such a block is shown as any other.
    """
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_use":
            call = calls.of(block)
            if call is not None:
                yield call
            if call is None or not isinstance(block.get("name"), str):
                yield ["other", exact(block)]  # what of it is no call is shown as well
            continue
        if isinstance(block, dict) and block.get("type") == "tool_result":
            answer = next(answers, None)
            if answer is not None:
                yield _answer(answer, answer.text)
                yield from _beside_text(block.get("content"))
                continue
        yield from _block(block)


def _answer(answer: Answer, text: str) -> list[JsonValue]:
    return ["result", answer.call_id, text, answer.is_error]


def _beside_text(content: JsonValue) -> Iterator[list[JsonValue]]:
    """What a result holds that is no text."""
    if isinstance(content, list):
        yield from (part for one in content for part in _block(one) if part[0] != "text")
    elif content is not None and not isinstance(content, str):
        yield ["other", exact(content)]


def _block(block: JsonValue) -> Iterator[list[JsonValue]]:
    if not isinstance(block, dict):
        yield ["text", block] if isinstance(block, str) else ["other", exact(block)]
        return
    text = block.get("text")
    match block.get("type"):
        case "text" | "input_text" | "output_text" if isinstance(text, str):
            yield ["text", text]
        case "thinking" if isinstance(block.get("thinking"), str):
            yield ["think", block["thinking"]]
        case "image" | "document" | "image_url" | "input_image" | "input_audio" | "file" as kind:
            yield ["media", _media_type(block) or kind, len(msgspec.json.encode(block))]
        case "redacted_thinking":
            yield ["media", "redacted thinking", len(msgspec.json.encode(block))]
        case _:
            yield ["other", exact(block)]


def _id(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _media_type(block: JsonObject) -> str | None:
    source = block.get("source")
    found = source.get("media_type") if isinstance(source, dict) else None
    return found if isinstance(found, str) else None


def _is_said(text: str, blocks: Sequence[JsonValue], parts: Sequence[Sequence[JsonValue]]) -> bool:
    """Whether a message's content only repeats what its parts say."""
    said = [part[2] if part[0] == "result" else part[1] for part in parts if part[0] in _SAID]
    pieces = [one for one in said if isinstance(one, str) and one]
    joined = [separator.join(pieces) for separator in _SEPARATORS]
    return text in joined or text == text_of_blocks(blocks)


_SAID = frozenset({"text", "result"})
_TEXTS = frozenset({"text", "think"})


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
