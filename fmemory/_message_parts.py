"""What the converters of messages share: reading blocks, and keeping what a Message cannot say.

A converter reads what it understands into a Message, writes that back, and keeps under the
provider's name in `metadata` whatever then differs from the original. So going there and back gives
the original exactly, whatever it holds, without a list of special cases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import msgspec

from fmemory._json_values import JsonObject, JsonValue, copy_json_object, is_json_object, type_name
from fmemory.errors import ContractError, Reason, brief
from fmemory.session_models import Message, Role, ToolCall

__all__ = [
    "TEXT_TYPES",
    "arguments_object",
    "arguments_text",
    "checked_messages",
    "plain_messages",
    "restored",
    "role_of",
    "text_of_blocks",
    "tool_call",
    "with_rest",
]

TEXT_TYPES = ("text", "input_text", "output_text")


def plain_messages(messages: object) -> list[JsonObject]:
    """Copies of the provider's messages, checked to be JSON.

    Raises:
        ContractError: Not an iterable of dicts, or a value that is not JSON; `where` is its path.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise ContractError(
            f"expected a list of messages, got {type_name(messages)}",
            where="messages",
            reason=Reason.WRONG_TYPE,
        )
    return [
        copy_json_object(message, f"messages[{index}]") for index, message in enumerate(messages)
    ]


def checked_messages(messages: object) -> list[Message]:
    """The messages as a list.

    Raises:
        ContractError: Not an iterable of Message.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise ContractError(
            f"expected a list of Message, got {type_name(messages)}",
            where="messages",
            reason=Reason.WRONG_TYPE,
        )
    checked = list(messages)
    for index, message in enumerate(checked):
        if not isinstance(message, Message):
            raise ContractError(
                f"expected Message, got {type_name(message)}",
                where=f"messages[{index}]",
                reason=Reason.WRONG_TYPE,
            )
    return checked


def role_of(plain: JsonObject, roles: Mapping[str, Role], where: str) -> Role:
    """The role of a provider's message.

    Raises:
        ContractError: It has none, or one that is not known.
    """
    name = plain.get("role")
    if not isinstance(name, str) or name not in roles:
        raise ContractError(
            f"expected one of {', '.join(map(repr, roles))}, got {brief(name)}",
            where=f"{where}.role",
            reason=Reason.BAD_VALUE,
        )
    return roles[name]


def with_rest(
    message: Message,
    plain: JsonObject,
    provider: str,
    back: Callable[[Message], list[JsonObject]],
) -> Message:
    """The message, with what `back` would not give of the original kept in its metadata."""
    again = back(message)
    rebuilt = again[0] if len(again) == 1 else {}
    verbatim = {
        key: value for key, value in plain.items() if key not in rebuilt or rebuilt[key] != value
    }
    absent = [key for key in rebuilt if key not in plain]
    rest: JsonObject = {}
    if verbatim:
        rest["verbatim"] = verbatim
    if absent:
        rest["absent"] = cast("JsonValue", absent)
    if not rest:
        return message
    return msgspec.structs.replace(message, metadata={**message.metadata, provider: rest})


def restored(message: Message, provider: str, built: list[JsonObject]) -> list[JsonObject]:
    """What was built of the message, with what `with_rest` kept put back."""
    rest = message.metadata.get(provider)
    if not isinstance(rest, dict):
        return built
    verbatim, absent = rest.get("verbatim", {}), rest.get("absent", [])
    if not isinstance(verbatim, dict) or not isinstance(absent, list):
        return built
    first = built[0] if len(built) == 1 else {}
    kept = {key: value for key, value in first.items() if key not in absent}
    return [{**kept, **verbatim}]


def text_of_blocks(blocks: Iterable[JsonValue]) -> str:
    """The text of content blocks, those of tool results included, one a line."""
    found: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            found.append(block)
        if not isinstance(block, dict):
            continue
        text, content = block.get("text"), block.get("content")
        if block.get("type") in TEXT_TYPES and isinstance(text, str):
            found.append(text)
        elif block.get("type") == "tool_result":
            inner = text_of_blocks(content if isinstance(content, list) else [content])
            if inner:
                found.append(inner)
    return "\n".join(found)


def tool_call(call_id: JsonValue, name: JsonValue, arguments: JsonValue) -> ToolCall | None:
    """The call, or None if these values do not make one."""
    if not isinstance(arguments, (dict, str)):
        return None
    try:
        return ToolCall(cast("str", call_id), cast("str", name), arguments)
    except ContractError:
        return None  # the original stays in the blocks or the metadata


def arguments_text(arguments: JsonObject | str) -> str:
    """Arguments as JSON text; text stays as it is."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def arguments_object(text: str) -> JsonObject | str:
    """The dict that the text is in JSON; the text itself where it is not one, or not exactly."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if is_json_object(found) else text
