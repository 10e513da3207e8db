"""Events, messages and streams in a few words: what a list shows of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fmemory_tools._console import check_mark
from fmemory_tools._failure import Failure, one_line

if TYPE_CHECKING:
    from fmemory import Event
    from fmemory._json_values import JsonObject, JsonValue

TEXT_CHARACTERS_MAX = 300
FORGOTTEN_TYPE = "event_forgotten"


def show_stream(stream: Sequence[str]) -> str:
    """The labels joined by '/'; a '/' or backslash inside a label is escaped.

    >>> show_stream(("records", "a/b", ""))
    'records/a\\\\/b/'
    """
    return "/".join(label.replace("\\", "\\\\").replace("/", "\\/") for label in stream)


def parse_stream(text: str, option: str) -> tuple[str, ...]:
    """The labels of a stream or namespace as `show_stream` writes them.

    >>> parse_stream("records/a\\\\/b/", "--stream")
    ('records', 'a/b', '')
    """
    labels = [""]
    characters = iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, None)
            if following not in ("\\", "/"):
                raise Failure(f"{option}: expected '\\/' or '\\\\' after a backslash, got {text!r}")
            labels[-1] += following
        elif character == "/":
            labels.append("")
        else:
            labels[-1] += character
    return tuple(labels)


def parse_namespace(text: str | None) -> tuple[str, ...]:
    """The labels of a namespace; nothing is the root namespace.

    >>> parse_namespace("users/ada"), parse_namespace("")
    (('users', 'ada'), ())
    """
    return parse_stream(text, "--namespace") if text else ()


def short_stream(stream: Sequence[str]) -> str:
    """The labels without the first where that is one of ours: the event's type tells it.

    >>> short_stream(("session", "s1")), short_stream(("jobs", "7")), short_stream(("meta",))
    ('s1', 'jobs/7', 'meta')
    """
    own = stream[0] in ("session", "records", "meta") and len(stream) > 1
    return show_stream(stream[1:] if own else stream)


def describe(event: Event, *, with_reason: bool = True) -> str:
    """What happened, in one line, with the reason if there is one."""
    text = shorten(_happened(event))
    if event.reason is None or not with_reason:
        return text
    return f"{text} ({one_line(event.reason)})" if text else f"({one_line(event.reason)})"


def describe_message(message: JsonObject) -> str:
    """Text, tool calls and errors of one message as plain data, in one line, without the role."""
    from fmemory._message_parts import text_of_blocks

    blocks = _objects(message, "blocks")
    text = shorten(str(message.get("content", "")) or text_of_blocks(blocks))
    calls = [str(call.get("name")) for call in _objects(message, "tool_calls")]
    parts = ["error:"] if message.get("is_error") is True else []
    parts += [text] if text else []
    if calls:
        parts.append(f"[{', '.join(calls)}]")
    elif not text:
        kinds = [str(block.get("type", "block")) for block in blocks]
        parts += [f"[{', '.join(dict.fromkeys(kinds))}]"] if kinds else []
    return " ".join(parts)


def role_word(message: JsonObject) -> str:
    """Who speaks; a user message that carries a tool's answer is called a result."""
    kinds = [block.get("type") for block in _objects(message, "blocks")]
    role = str(message.get("role", ""))
    return "result" if role == "user" and "tool_result" in kinds else role


def describe_checkpoint(checkpoint: JsonObject) -> str:
    """Status and note of a run checkpoint as plain data, in one line."""
    note = checkpoint.get("note")
    return show_status(checkpoint) + (f": {note}" if note else "")


def show_status(checkpoint: JsonObject) -> str:
    """The status in words; a run that ended without a verdict is not called in progress."""
    status = str(checkpoint.get("status", ""))
    if status == "in_progress" and checkpoint.get("completed_at") is not None:
        return "ended, result unknown"
    return status.replace("_", " ")


def shorten(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """The beginning of a text, on one line.

    >>> shorten("one  two\\nthree", 8)
    'one two…'
    """
    line = one_line(text[: 4 * characters_max])
    if len(line) <= characters_max and len(text) <= 4 * characters_max:
        return line
    return line[: characters_max - 1].rstrip() + "…"


def _happened(event: Event) -> str:
    if event.type == FORGOTTEN_TYPE:
        return "(forgotten)"
    if event.erased:
        return "(lost)" if event.lost else "(erased)"
    if event.type == "records_put":
        return _describe_records(event)
    describe_own = _OWN.get(event.type)
    if describe_own is not None and isinstance(event.data, dict):
        return describe_own(event.data)
    return _describe_data(event.data)


def _describe_session(data: JsonObject) -> str:
    manifest = data.get("manifest")
    objective = _describe_manifest(manifest) if isinstance(manifest, dict) else ""
    origin = data.get("origin")
    return (
        objective if origin is None else f"from {origin} at {data.get('origin_seq')}; {objective}"
    )


def _describe_manifest(data: JsonObject) -> str:
    return str(data.get("current_objective", ""))


def _describe_features(data: JsonObject) -> str:
    features = _objects(data, "features")
    passing = sum(one.get("passes") is True for one in features)
    return f"{len(features)} feature{'' if len(features) == 1 else 's'}, {passing} passing"


def _describe_flip(data: JsonObject) -> str:
    passes = data.get("passes") is True
    return f"{check_mark(passes)} {data.get('feature_id')}"


def _describe_progress(data: JsonObject) -> str:
    return str(data.get("summary", ""))


def _describe_messages(data: JsonObject) -> str:
    messages = _objects(data, "messages")
    if not messages:
        return "no messages"
    last = messages[-1]
    count = f"{len(messages)} messages, last " if len(messages) > 1 else ""
    return f"{count}{role_word(last)}: {describe_message(last)}"


def _describe_meta(data: JsonObject) -> str:
    return f"{data.get('key')} = {_value(data.get('value'))}"


def _describe_deleted(data: JsonObject) -> str:
    ids = data.get("ids")
    names = [str(one) for one in ids] if isinstance(ids, list) else []
    return f"{len(names)} record{'' if len(names) == 1 else 's'}: {', '.join(names[:5])}"


def _describe_cleared(data: JsonObject) -> str:
    return f"{data.get('deleted')} records"


def _describe_truncated(data: JsonObject) -> str:
    return f"the first {data.get('keep')} messages kept"


_OWN: dict[str, Callable[[JsonObject], str]] = {
    "records_deleted": _describe_deleted,
    "records_cleared": _describe_cleared,
    "meta_set": _describe_meta,
    "session_initialized": _describe_session,
    "session_forked": _describe_session,
    "manifest_saved": _describe_manifest,
    "features_replaced": _describe_features,
    "feature_pass_updated": _describe_flip,
    "progress_appended": _describe_progress,
    "checkpoint_recorded": describe_checkpoint,
    "transcript_appended": _describe_messages,
    "transcript_truncated": _describe_truncated,
}


def _objects(data: JsonObject, key: str) -> list[JsonObject]:
    found = data.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _describe_records(event: Event) -> str:
    records = event.records
    if not records:
        return "no records"
    note = getattr(records[0], "note", None)
    gone = "(lost)" if getattr(records[0], "lost", False) else "(erased)"
    first = f"{records[0].id}: {gone if note is None else note.text}"
    return first if len(records) == 1 else f"{len(records)} records, first {first}"


def _describe_data(data: JsonValue | bytes) -> str:
    if data is None:
        return ""
    if isinstance(data, bytes):
        return f"{len(data)} bytes"
    if isinstance(data, dict):
        return _describe_imported(data) or ", ".join(
            f"{key}={_value(value)}" for key, value in data.items()
        )
    return _value(data)


def _describe_imported(data: JsonObject) -> str:
    """Words of a line or step that an importer kept whole under `value`; empty if it is not one."""
    kept, key = data.get("value"), data.get("key")
    if isinstance(key, str) and "value" in data:
        return f"{key}: {_telling(kept) if isinstance(kept, dict) else _value(kept)}"
    return _telling(kept) if isinstance(kept, dict) else ""


def _telling(kept: JsonObject) -> str:
    inner = kept.get("data")
    places = [kept, inner] if isinstance(inner, dict) else [kept]
    words = [place.get(name) for name in _TELLING for place in places]
    return " ".join(word for word in words if isinstance(word, str))


# Names under which agents' files say in words what a line is about, the most telling first.
_TELLING = (
    "hookName",
    "subtype",
    "operation",
    "action",
    "exit_status",
    "content",
    "command",
    "messageId",
)


def _value(value: JsonValue) -> str:
    if isinstance(value, str):
        return value[:TEXT_CHARACTERS_MAX]
    return json.dumps(value, ensure_ascii=False)[:TEXT_CHARACTERS_MAX]
