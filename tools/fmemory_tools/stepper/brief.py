"""An event in a word and a line, as the list of `fmemory step` shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fmemory.replay._facts import STEP_TYPE
from fmemory.replay._failures import failure_in, step_of
from fmemory.replay._parts import Answer, parts_of
from fmemory_tools._console import BAD, FAINT, GOOD, KIND, STRONG
from fmemory_tools._summary import (
    FORGOTTEN_TYPE,
    describe,
    describe_message,
    role_word,
    shorten,
)

if TYPE_CHECKING:
    from fmemory import Event
    from fmemory._json_values import JsonObject, JsonValue

LOST_TYPE: Final = "event_lost"
_ARGUMENT_CHARACTERS_MAX: Final = 80

# Types in the words of a person, where that is shorter.
_KINDS: Final = {
    "session_initialized": "begins",
    "session_forked": "forked",
    "session_deleted": "deleted",
    "stream_deleted": "deleted",
    "manifest_saved": "manifest",
    "features_replaced": "features",
    "feature_pass_updated": "feature",
    "progress_appended": "progress",
    "checkpoint_recorded": "checkpoint",
    "transcript_appended": "messages",
    "transcript_truncated": "truncated",
    FORGOTTEN_TYPE: "forgotten",
    LOST_TYPE: "lost",
}
_STYLES: Final = {
    "begins": STRONG,
    "forked": STRONG,
    "deleted": BAD,
    "truncated": BAD,
    "lost": BAD,
    "forgotten": FAINT,
    "manifest": KIND,
    "features": KIND,
    "progress": KIND,
    "checkpoint": KIND,
}


def brief(event: Event) -> tuple[str, str, str]:
    """Kind, what happened, and the style of both: a word, a line, one of `lines.STYLES`."""
    kind = _KINDS.get(event.type, event.type)
    data = event.data if isinstance(event.data, dict) else {}
    if event.type == LOST_TYPE:
        return kind, "a repair found it lost; only its number is known", BAD
    if event.type == FORGOTTEN_TYPE:
        return kind, "a compaction forgot what it was", FAINT
    if event.lost:
        return kind, "(lost)", BAD
    if event.erased:
        return kind, "(erased)", FAINT
    if event.type == "transcript_appended":
        return _brief_messages(kind, data)
    if event.type == "feature_pass_updated":
        return kind, describe(event, with_reason=False), GOOD if data.get("passes") is True else BAD
    failed = event.type == "checkpoint_recorded" and data.get("status") == "failed"
    if failed or _fails_as_step(event):
        return kind, describe(event, with_reason=False), BAD
    return (
        kind,
        describe(event, with_reason=False),
        _STYLES.get(kind, "" if kind in _KINDS.values() else FAINT),
    )


def _brief_messages(kind: str, data: JsonObject) -> tuple[str, str, str]:
    messages = messages_of(data)
    if not messages:
        return kind, "no messages", FAINT
    style = BAD if any(map(is_error, messages)) else ""
    if len(messages) == 1:
        return role_word(messages[0]), brief_message(messages[0]), style
    told = shorten(f"last {role_word(messages[-1])}: {brief_message(messages[-1])}")
    return f"{len(messages)} messages", told, style


def brief_message(message: JsonObject) -> str:
    """Errors, text, and calls with the first of their arguments of a message, on one line."""
    calls = message.get("tool_calls")
    held = calls if isinstance(calls, list) else []
    named = [_brief_call(one) for one in held if isinstance(one, dict)]
    said = parts_of(message)
    text = shorten(said.text or next((one.text for one in said.answers if one.text), ""))
    if not text and not named:
        return describe_message(message)
    word = ["error:"] if says_error(message) else []
    return " ".join([*word, *([text] if text else []), *named])


def _brief_call(call: JsonObject) -> str:
    arguments = call.get("arguments")
    values = arguments.values() if isinstance(arguments, dict) else [arguments]
    first = next((one for one in values if isinstance(one, str) and one), "")
    return f"→ {call.get('name')} {shorten(first, _ARGUMENT_CHARACTERS_MAX)}".rstrip()


def messages_of(data: JsonObject) -> list[JsonObject]:
    """The messages that an event holds as plain data."""
    found = data.get("messages")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def answers_of(message: JsonObject) -> tuple[Answer, ...]:
    """Which calls a message answers, as `report` counts them.

    >>> [one.is_error for one in answers_of({"role": "tool", "content": "EXECUTION TIMED OUT"})]
    [True]
    """
    return parts_of(message).answers


def is_error(message: JsonObject) -> bool:
    """Whether a message is, or holds, the answer of a tool that failed, as `report` tells it."""
    return any(one.is_error for one in answers_of(message))


def says_error(message: JsonObject) -> bool:
    """Whether a message is called an error: `is_error`, or marked as one and no answer."""
    return is_error(message) or message.get("is_error") is True


def _fails_as_step(event: Event) -> bool:
    """Whether an event is a step of a harness that keeps actions beside messages, and failed."""
    if event.type != STEP_TYPE or isinstance(event.data, bytes):
        return False
    step = step_of(event.data)
    return step is not None and failure_in(step[1]) is not None


def matches(event: Event, pattern: re.Pattern[str]) -> bool:
    """Whether a pattern is found in anything that an event tells: its kind, who, why and data."""
    kind, what, _ = brief(event)
    own = (event.type, kind, what, event.actor, event.run_id, event.reason, event.event_id)
    if any(pattern.search(one) for one in own if one):
        return True
    if isinstance(event.data, bytes):
        return pattern.search(event.data.decode("utf-8", "replace")) is not None
    return any(pattern.search(one) for one in texts_of(event.data))


def texts_of(value: JsonValue) -> Iterator[str]:
    """Every text in a JSON value, and numbers as they are written; names of objects are not."""
    waiting: list[JsonValue] = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case dict() as inner:
                waiting += reversed(inner.values())
            case list() as inner:
                waiting += reversed(inner)
            case bool() | None:
                pass
            case number:
                yield str(number)
