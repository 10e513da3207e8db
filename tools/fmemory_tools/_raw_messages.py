"""Messages of a transcript as they are stored: the provider's blocks, and what only fields tell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fmemory._message_parts import text_of_blocks
from fmemory_tools._console import BAD, print_line, print_text

if TYPE_CHECKING:
    from fmemory import LogBackend
    from fmemory._json_values import JsonObject, JsonValue
    from fmemory.replay import TranscriptEntry

StoredMessages: TypeAlias = "Mapping[tuple[int, int], JsonObject]"
"""Plain messages by their event and their place in it."""

_TOLD = frozenset({"blocks", "content", "created_at", "id", "metadata", "role", "tool_calls"})
"""Blocks and what they may repeat, what a message's head shows, and what importers keep beside."""


def stored_messages(memory: LogBackend, entries: Iterable[TranscriptEntry]) -> StoredMessages:
    """The messages of these entries as they are stored; each event is read once.

    Raises:
        StorageError: The store failed, or was damaged since the entries were read.
    """
    found: dict[tuple[int, int], JsonObject] = {}
    for seq in dict.fromkeys(one.seq for one in entries if one.gap is None):
        data = memory.event(seq).data
        messages = data.get("messages") if isinstance(data, dict) else None
        for place, message in enumerate(messages if isinstance(messages, list) else ()):
            if isinstance(message, dict):
                found[seq, place] = message
    return found


def print_raw(entry: TranscriptEntry, stored: StoredMessages, *, indent: int) -> None:
    """Print the blocks of a message and the fields they do not tell; without blocks, all fields."""
    message = stored.get((entry.seq, entry.place or 0))
    if message is None:
        print_line(("erased since it was looked up", BAD), indent=indent)
        return
    for one in _raw(message):
        print_text(json.dumps(one, ensure_ascii=False, indent=2), indent=indent)


def _raw(message: JsonObject) -> list[JsonValue]:
    """What is printed of a message: fields that say nothing are left out.

    >>> _raw({"role": "tool", "content": "4", "blocks": [], "tool_call_id": "c", "name": None})
    [{'role': 'tool', 'content': '4', 'tool_call_id': 'c'}]
    >>> _raw({"role": "user", "content": "hi", "blocks": [{"type": "text", "text": "hi"}]})
    [{'type': 'text', 'text': 'hi'}]
    >>> _raw({"role": "user", "content": "ho", "blocks": [{"type": "text", "text": "hi"}]})
    [{'type': 'text', 'text': 'hi'}, {'content': 'ho'}]
    """
    fields = {name: value for name, value in message.items() if value not in _NOTHING}
    blocks = _objects(message, "blocks")
    if not blocks:
        return [fields]
    return [*blocks, *_untold(fields, [one for one in blocks if isinstance(one, dict)])]


def _untold(fields: JsonObject, blocks: Sequence[JsonObject]) -> list[JsonObject]:
    """The fields of a message that its blocks do not tell, as one object; none if they tell all."""
    rest = {name: value for name, value in fields.items() if name not in _TOLD}
    content = fields.get("content")
    if isinstance(content, str) and content.strip() not in text_of_blocks(blocks):
        rest = {"content": content, **rest}
    told = {one for block in blocks for one in map(block.get, _IDS) if isinstance(one, str)}
    calls = _objects(fields, "tool_calls")
    untold = [one for one in calls if not isinstance(one, dict) or one.get("id") not in told]
    rest = {**rest, "tool_calls": untold} if untold else rest
    if fields.get("tool_call_id") in told:
        del rest["tool_call_id"]
    if any(block.get("is_error") is True for block in blocks):
        rest.pop("is_error", None)
    return [rest] if rest else []


def _objects(fields: JsonObject, name: str) -> list[JsonValue]:
    found = fields.get(name)
    return found if isinstance(found, list) else []


_NOTHING: tuple[object, ...] = (None, False, "", [], {})
_IDS = ("id", "tool_use_id")
"""Where a block names the call that it makes or answers."""
