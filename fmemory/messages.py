"""Messages of providers, to and from a transcript's; without their packages.

`to_anthropic(from_anthropic(messages)) == messages`, exactly, for whatever JSON the messages hold,
and the same for OpenAI. `blocks` and what is kept in `metadata` under the provider's name win over
the other fields on the way back: to change such a message, build a new one. Between providers what
both have is carried over: text, images, tool calls and their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fmemory._anthropic import from_anthropic, to_anthropic
from fmemory._json_values import JsonValue
from fmemory._message_parts import checked_messages, tool_call
from fmemory._openai import from_openai, to_openai
from fmemory.session_models import Message, Role, ToolCall

__all__ = [
    "from_anthropic",
    "from_openai",
    "to_anthropic",
    "to_openai",
    "unanswered_tool_calls",
]


def unanswered_tool_calls(messages: Iterable[Message]) -> tuple[ToolCall, ...]:
    """Tool calls that no later message answers, in the order they were made.

    Providers refuse a transcript that has some: after a crash between call and result, answer these
    before going on. Both forms of answers count: a message of role tool (or any with
    `tool_call_id`), and `tool_result` blocks.

    Raises:
        ContractError: Not Messages.

    >>> call = ToolCall("c1", "add", {"a": 1})
    >>> unanswered_tool_calls([Message("assistant", tool_calls=[call])])
    (ToolCall(id='c1', name='add', arguments={'a': 1}),)
    >>> answer = Message("tool", "2", tool_call_id="c1")
    >>> unanswered_tool_calls([Message("assistant", tool_calls=[call]), answer])
    ()
    """
    waiting: dict[str, ToolCall] = {}
    for message in checked_messages(messages):
        if message.role is not Role.ASSISTANT:
            for call_id in _answers(message):
                waiting.pop(call_id, None)
        for call in _calls(message):
            waiting[call.id] = call
    return tuple(waiting.values())


def _calls(message: Message) -> Iterator[ToolCall]:
    yield from message.tool_calls
    for block in message.blocks:
        if isinstance(block, dict) and block.get("type") == "tool_use":
            call = tool_call(block.get("id"), block.get("name"), block.get("input"))
            if call is not None:
                yield call


def _answers(message: Message) -> Iterator[str]:
    if message.tool_call_id is not None:
        yield message.tool_call_id
    for block in message.blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            answered: JsonValue = block.get("tool_use_id")
            if isinstance(answered, str):
                yield answered
