"""Messages as OpenAI's chat completions API has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fmemory._anthropic import is_anthropic_block
from fmemory._json_values import JsonObject, JsonValue, copy_json_object
from fmemory._message_parts import (
    arguments_object,
    arguments_text,
    checked_messages,
    plain_messages,
    restored,
    role_of,
    text_of_blocks,
    tool_call,
    with_rest,
)
from fmemory.session_models import Message, Role, ToolCall

__all__ = ["from_openai", "to_openai"]

_PROVIDER = "openai"
_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_DROPPED_TYPES = ("thinking", "redacted_thinking", "tool_use", "tool_result")


def from_openai(messages: Iterable[Mapping[str, object]]) -> tuple[Message, ...]:
    """One Message for each message of OpenAI's API; `to_openai` gives the originals back.

    Content parts are kept verbatim in `blocks`, and `content` is their text. Arguments of tool
    calls become dicts where their text is a JSON object, and stay text where it is not. The role
    `developer` becomes system, `function` becomes tool. What a Message has no field for is kept in
    `metadata["openai"]`: unknown keys, refusals, `content` that is null or missing, arguments that
    are spaced in another way.

    Raises:
        ContractError: Not JSON, or another role; `where` is the path.

    >>> from_openai([{"role": "developer", "content": "be brief"}])[0].role
    <Role.SYSTEM: 'system'>
    """
    return tuple(
        _message(plain, f"messages[{index}]")
        for index, plain in enumerate(plain_messages(messages))
    )


def to_openai(messages: Iterable[Message]) -> list[JsonObject]:
    """Messages for OpenAI's API; those of `from_openai` come back as they were.

    Of messages in Anthropic's form, tool results become messages of role tool, images are
    converted, and thinking is left out, because the API has no place for it.

    Raises:
        ContractError: Not Messages.

    >>> to_openai([Message("user", "hello")])
    [{'role': 'user', 'content': 'hello'}]
    """
    result: list[JsonObject] = []
    for message in checked_messages(messages):
        result.extend(restored(message, _PROVIDER, _built(message)))
    return [copy_json_object(plain) for plain in result]


def _message(plain: JsonObject, where: str) -> Message:
    content, name, answered = plain.get("content"), plain.get("name"), plain.get("tool_call_id")
    parts = content if isinstance(content, list) else []
    message = Message(
        role_of(plain, _ROLES, where),
        content if isinstance(content, str) else text_of_blocks(parts),
        blocks=tuple(parts),
        name=name if isinstance(name, str) else None,
        tool_calls=_calls(plain.get("tool_calls")),
        tool_call_id=answered if isinstance(answered, str) else None,
    )
    return with_rest(message, plain, _PROVIDER, _built)


def _calls(calls: JsonValue) -> tuple[ToolCall, ...]:
    found: list[ToolCall] = []
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, dict):
            continue
        function, custom = call.get("function"), call.get("custom")
        if isinstance(function, dict):
            arguments = function.get("arguments")
            if isinstance(arguments, str):
                arguments = arguments_object(arguments)
            one = tool_call(call.get("id"), function.get("name"), arguments)
        elif isinstance(custom, dict):
            one = tool_call(call.get("id"), custom.get("name"), custom.get("input"))
        else:
            one = None
        if one is not None:
            found.append(one)
    return tuple(found)


def _built(message: Message) -> list[JsonObject]:
    """The message from its fields alone; several if it holds several tool results."""
    if any(map(is_anthropic_block, message.blocks)):
        return _built_of_anthropic(message)
    content: JsonValue = list(message.blocks) or message.content
    return [_one(message, content)]


def _built_of_anthropic(message: Message) -> list[JsonObject]:
    results: list[JsonObject] = []
    parts: list[JsonValue] = []
    for block in message.blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, dict) and kind == "tool_result":
            results.append(
                {
                    "role": "tool",
                    "tool_call_id": block.get("tool_use_id"),
                    "content": text_of_blocks([block]),
                }
            )
            images = block.get("content")
            for inner in images if isinstance(images, list) else []:
                if isinstance(inner, dict) and inner.get("type") == "image":
                    parts.append(_converted(inner))
        elif kind not in _DROPPED_TYPES:
            parts.append(_converted(block))
    if not parts and results:
        return results
    if message.role is Role.ASSISTANT or not any(map(_is_more_than_text, parts)):
        return [*results, _one(message, text_of_blocks(parts))]
    return [*results, _one(message, parts)]


def _one(message: Message, content: JsonValue) -> JsonObject:
    built: JsonObject = {"role": message.role.value, "content": content}
    if message.name is not None:
        built["name"] = message.name
    if message.tool_calls:
        built["content"] = content or None
        built["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.role is Role.TOOL and message.tool_call_id is not None:
        built["tool_call_id"] = message.tool_call_id
    return built


def _call(call: ToolCall) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": arguments_text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _is_more_than_text(part: JsonValue) -> bool:
    return not isinstance(part, dict) or part.get("type") != "text"


def _converted(block: JsonValue) -> JsonValue:
    """The block, with an image in Anthropic's form in OpenAI's."""
    if not isinstance(block, dict) or block.get("type") != "image":
        return block
    source = block.get("source")
    if not isinstance(source, dict):
        return block
    url, media_type, data = source.get("url"), source.get("media_type"), source.get("data")
    if isinstance(media_type, str) and isinstance(data, str):
        url = f"data:{media_type};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else block
