"""What a stored message says, part by part: words, thinking, tool calls, results.

Providers put the same things in different places: Anthropic in content blocks, OpenAI in fields of
the message. Here both are read, from a message as plain data, and nothing is read twice. Blocks of
other kinds are named, so that a reader knows that there is more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from fmemory._json_values import JsonObject, JsonValue
from fmemory._message_parts import text_of_blocks
from fmemory.replay._failures import failure_in

__all__ = ["NOTHING", "Answer", "Call", "Parts", "as_answer", "parts_of"]

_READ = frozenset({"text", "input_text", "output_text", "thinking", "tool_use", "tool_result"})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the assistant wants called."""

    id: str
    name: str
    arguments: JsonObject | str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answered: the call it answers, if that is named, and its text."""

    call_id: str | None
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """A message taken apart; `others` are the types of blocks that are none of these."""

    role: str
    text: str
    thinking: str
    calls: tuple[Call, ...]
    answers: tuple[Answer, ...]
    others: tuple[str, ...]
    is_error: bool


NOTHING = Parts("", "", "", (), (), (), False)


def as_answer(parts: Parts) -> Parts:
    """The parts of a message that is the answer to a call without an id."""
    if parts.answers:
        return parts
    failed = parts.is_error or failure_in(parts.text) is not None
    answer = Answer(None, parts.text, failed)
    return replace(parts, text="", answers=(answer,), is_error=failed)


def parts_of(message: JsonObject) -> Parts:
    """The parts of a message as `Message.to_dict` gives it.

    >>> parts_of({"role": "tool", "content": "4", "tool_call_id": "c1"}).answers
    (Answer(call_id='c1', text='4', is_error=False),)
    """
    role = str(message.get("role") or "")
    blocks = _list(message.get("blocks"))
    is_error = message.get("is_error") is True
    answered = message.get("tool_call_id")
    answers: tuple[Answer, ...] = ()
    # A message made by hand may say what it says in its blocks only.
    text = str(message.get("content") or "") or text_of_blocks(blocks)
    # Whatever an assistant repeats of results: it calls tools, and answers no call.
    if role != "assistant":
        if found := tuple(_answers_of(blocks, answered, is_error=is_error)):
            answers = found
            text = text_of_blocks([one for one in blocks if _kind(one) != "tool_result"])
        elif role == "tool" or isinstance(answered, str):
            call_id = answered if isinstance(answered, str) else None
            answers, text = (_answer(call_id, text, is_error=is_error),), ""
    return Parts(
        role=role,
        text=text,
        thinking="\n".join(_thinking_of(blocks)),
        calls=tuple(_calls_of(message, blocks)),
        answers=answers,
        others=tuple(_others_of(blocks, _READ if answers else _READ - {"tool_result"})),
        is_error=is_error or any(one.is_error for one in answers),
    )


def _calls_of(message: JsonObject, blocks: Sequence[JsonValue]) -> list[Call]:
    named = _list(message.get("tool_calls"))
    found = [_call(call, "arguments") for call in named if isinstance(call, dict)]
    seen = {call.id for call in found}
    # A message made by hand may name its calls in its blocks only.
    for block in blocks:
        if not isinstance(block, dict) or block.get("type") != "tool_use":
            continue
        call = _call(block, "input")
        if not call.id or call.id not in seen:
            seen.add(call.id)
            found.append(call)
    return found or list(_nameless_call(message))


def _nameless_call(message: JsonObject) -> Iterator[Call]:
    """The action that SWE-agent notes beside a message where the model calls no tools."""
    kept = _dict(_dict(message.get("metadata")).get("openai"))
    action = _dict(kept.get("verbatim")).get("action")
    if message.get("role") == "assistant" and isinstance(action, str) and action.strip():
        program, *arguments = action.strip().split(None, 1)
        yield Call("", program, "".join(arguments))


def _call(plain: JsonObject, key: str) -> Call:
    call_id, name, arguments = plain.get("id"), plain.get("name"), plain.get(key)
    return Call(
        call_id if isinstance(call_id, str) else "",
        name if isinstance(name, str) else "",
        arguments if isinstance(arguments, dict | str) else {},
    )


def _answers_of(
    blocks: Sequence[JsonValue], answered: JsonValue, *, is_error: bool
) -> Iterator[Answer]:
    found = [_dict(block) for block in blocks if _kind(block) == "tool_result"]
    # The message's own mark and call are those of a result that has none itself.
    is_error = is_error and not any(block.get("is_error") is True for block in found)
    spare = answered if len(found) == 1 else None
    for block in found:
        call_id = block.get("tool_use_id")
        call_id = call_id if isinstance(call_id, str) else spare
        yield _answer(
            call_id if isinstance(call_id, str) else None,
            text_of_blocks([block]),
            is_error=is_error or block.get("is_error") is True,
        )


def _answer(call_id: str | None, text: str, *, is_error: bool) -> Answer:
    return Answer(call_id, text, is_error or failure_in(text) is not None)


def _thinking_of(blocks: Sequence[JsonValue]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "thinking":
            thought = block.get("thinking")
            if isinstance(thought, str) and thought:
                yield thought


def _others_of(blocks: Sequence[JsonValue], read: Set[str]) -> Iterator[str]:
    for block in blocks:
        kind = _kind(block)
        if kind == "tool_result" and kind in read and isinstance(block, dict):
            yield from _others_of(_list(block.get("content")), read)
        elif kind not in read and not isinstance(block, str):
            yield kind


def _kind(block: JsonValue) -> str:
    return str(block.get("type") or "block") if isinstance(block, dict) else ""


def _dict(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
