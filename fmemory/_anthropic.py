"""Messages as Anthropic's API has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fmemory._json_values import JsonObject, JsonValue, copy_json_object
from fmemory._message_parts import (
    arguments_object,
    checked_messages,
    plain_messages,
    restored,
    role_of,
    text_of_blocks,
    tool_call,
    with_rest,
)
from fmemory.session_models import Message, Role, ToolCall

__all__ = ["from_anthropic", "is_anthropic_block", "to_anthropic"]

_PROVIDER = "anthropic"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_BLOCK_TYPES = frozenset(
    {"document", "image", "redacted_thinking", "thinking", "tool_result", "tool_use"}
)


def from_anthropic(messages: Iterable[Mapping[str, object]]) -> tuple[Message, ...]:
    """One Message for each message of Anthropic's API; `to_anthropic` gives the originals back.

    Content blocks are kept verbatim in `blocks`: thinking with its signature, images, tool results
    with whatever is in them. `content` is their text, `tool_calls` the `tool_use` blocks. A user
    message stays one Message of role user, also with several tool results in it; `tool_call_id` and
    `is_error` are set if there is exactly one. Keys that a Message has no field for are kept in
    `metadata["anthropic"]`.

    Raises:
        ContractError: Not JSON, or another role; `where` is the path.

    >>> from_anthropic([{"role": "user", "content": "hello"}])[0].content
    'hello'
    """
    return tuple(
        _message(plain, f"messages[{index}]")
        for index, plain in enumerate(plain_messages(messages))
    )


def to_anthropic(messages: Iterable[Message]) -> list[JsonObject]:
    """Messages for Anthropic's API; those of `from_anthropic` come back as they were.

    Of others, tool calls become `tool_use` blocks, and consecutive messages of role tool one user
    message of `tool_result` blocks, as the API wants them. Arguments that are not a JSON object are
    wrapped into one, `{"arguments": text}`. Images in OpenAI's form are converted; other parts are
    passed on. System messages are passed on too: the API takes most of them as a parameter.

    Raises:
        ContractError: Not Messages.

    >>> to_anthropic([Message("tool", "4", tool_call_id="c1")])[0]["content"]
    [{'type': 'tool_result', 'tool_use_id': 'c1', 'content': '4'}]
    """
    result: list[JsonObject] = []
    open_results: list[JsonValue] | None = None
    for message in checked_messages(messages):
        if message.role is Role.TOOL:
            block = _result_block(message)
            if open_results is None:
                open_results = []
                result.append({"role": "user", "content": open_results})
            open_results.append(block)
        else:
            open_results = None
            result.extend(restored(message, _PROVIDER, _built(message)))
    return [copy_json_object(plain) for plain in result]


def is_anthropic_block(block: JsonValue) -> bool:
    """Whether only Anthropic's API has such a block."""
    return isinstance(block, dict) and block.get("type") in _BLOCK_TYPES


def _message(plain: JsonObject, where: str) -> Message:
    content = plain.get("content")
    blocks = content if isinstance(content, list) else []
    found = [block for block in blocks if isinstance(block, dict)]
    results = [block for block in found if block.get("type") == "tool_result"]
    answered = results[0].get("tool_use_id") if len(results) == 1 else None
    message_id = plain.get("id")
    message = Message(
        role_of(plain, _ROLES, where),
        content if isinstance(content, str) else text_of_blocks(blocks),
        blocks=tuple(blocks),
        tool_calls=_calls(found),
        tool_call_id=answered if isinstance(answered, str) else None,
        is_error=len(results) == 1 and results[0].get("is_error") is True,
        id=message_id if isinstance(message_id, str) else None,
    )
    return with_rest(message, plain, _PROVIDER, _built)


def _calls(blocks: Sequence[JsonObject]) -> tuple[ToolCall, ...]:
    calls = (
        tool_call(block.get("id"), block.get("name"), block.get("input"))
        for block in blocks
        if block.get("type") == "tool_use"
    )
    return tuple(call for call in calls if call is not None)


def _built(message: Message) -> list[JsonObject]:
    """The message from its fields alone."""
    blocks: list[JsonValue] = [_converted(block) for block in message.blocks]
    if message.content and not text_of_blocks(blocks):
        if not blocks and not message.tool_calls:
            return [{"role": message.role.value, "content": message.content}]
        blocks.append({"type": "text", "text": message.content})
    present = {block.get("id") for block in blocks if isinstance(block, dict)}
    blocks.extend(_use_block(call) for call in message.tool_calls if call.id not in present)
    return [{"role": message.role.value, "content": blocks or message.content}]


def _use_block(call: ToolCall) -> JsonObject:
    arguments = call.arguments
    if isinstance(arguments, str):
        arguments = arguments_object(arguments)
    if isinstance(arguments, str):
        arguments = {"arguments": arguments}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _result_block(message: Message) -> JsonObject:
    block: JsonObject = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id or "",
        "content": [_converted(part) for part in message.blocks] or message.content,
    }
    return {**block, "is_error": True} if message.is_error else block


def _converted(block: JsonValue) -> JsonValue:
    """The block, with an image in OpenAI's form in Anthropic's."""
    if not isinstance(block, dict) or block.get("type") != "image_url":
        return block
    place = block.get("image_url")
    url = place.get("url") if isinstance(place, dict) else None
    if not isinstance(url, str):
        return block
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        kind = head.removeprefix("data:").removesuffix(";base64")
        source: JsonObject = {"type": "base64", "media_type": kind, "data": data}
    else:
        source = {"type": "url", "url": url}
    return {"type": "image", "source": source}
