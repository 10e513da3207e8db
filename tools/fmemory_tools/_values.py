"""JSON values and records as indented text for people; `--json` is the exact form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fmemory_tools._console import FAINT, KIND, print_line, print_text
from fmemory_tools._times import show_time

if TYPE_CHECKING:
    from fmemory import MemoryRecord
    from fmemory._json_values import JsonObject, JsonValue

NUMBERS_SHOWN = 4
_INLINE_CHARACTERS_MAX = 60
_NOTHING: tuple[JsonValue, ...] = (None, "", [], {})


def print_value(value: JsonValue, *, indent: int) -> None:
    """A value on lines of its own: objects as names and values, texts as they read.

    Names without a value (null, or empty) are left out.
    """
    match value:
        case dict():
            for key, inner in value.items():
                if inner not in _NOTHING:
                    _print_named(key, inner, indent=indent)
        case list():
            for inner in value:
                _print_item(inner, indent=indent)
        case str():
            print_text(value, indent=indent)
        case _:
            print_line(json.dumps(value), indent=indent)


def print_record(record: MemoryRecord, *, indent: int, utc: bool) -> None:
    """A record with its note whole and its vector by size and first numbers."""
    from datetime import UTC, datetime

    note = record.note
    try:
        when = show_time(datetime.fromtimestamp(note.timestamp, UTC), utc=utc)
    except (OverflowError, OSError, ValueError):
        when = "no date"
    print_line((note.id, KIND), (f"  {when}  ({note.timestamp!r})", FAINT), indent=indent)
    print_text(note.text, indent=indent + 2)
    if note.metadata:
        print_value(note.metadata, indent=indent + 2)
    vector = record.vector
    if len(vector):
        shown = ", ".join(f"{number:.4g}" for number in vector[:NUMBERS_SHOWN].tolist())
        more = ", …" if len(vector) > NUMBERS_SHOWN else ""
        model = f" by {record.embedding_id}" if record.embedding_id else ""
        print_line(
            (f"vector of {len(vector)} {vector.dtype}{model}: {shown}{more}", FAINT),
            indent=indent + 2,
        )


def _print_named(key: str, value: JsonValue, *, indent: int) -> None:
    inline = _inline(value)
    if inline is not None:
        print_line((f"{key}: ", FAINT), inline, indent=indent)
        return
    print_line((f"{key}:", FAINT), indent=indent)
    print_value(value, indent=indent + 2)


def _print_item(value: JsonValue, *, indent: int) -> None:
    inline = _inline(value)
    if inline is not None:
        print_line(("- ", FAINT), inline, indent=indent)
        return
    if isinstance(value, dict) and any(one not in _NOTHING for one in value.values()):
        _print_first_named(value, indent=indent)
        return
    print_line(("-", FAINT), indent=indent)
    print_value(value, indent=indent + 2)


def _print_first_named(value: JsonObject, *, indent: int) -> None:
    """An object in a list: its first name stands behind the dash."""
    (key, first), *others = [item for item in value.items() if item[1] not in _NOTHING]
    inline = _inline(first)
    print_line(("- ", FAINT), (f"{key}: ", FAINT), inline or "", indent=indent)
    if inline is None:
        print_value(first, indent=indent + 4)
    for name, inner in others:
        _print_named(name, inner, indent=indent + 2)


def _inline(value: JsonValue) -> str | None:
    """The value as text that fits behind a name; None if it needs lines of its own."""
    if isinstance(value, str):
        fits = len(value) <= _INLINE_CHARACTERS_MAX and "\n" not in value
        return (value or '""') if fits else None
    if isinstance(value, dict | list) and value:
        text = json.dumps(value, ensure_ascii=False) if _is_flat(value) else ""
        return text if 0 < len(text) <= _INLINE_CHARACTERS_MAX else None
    return json.dumps(value)


def _is_flat(value: dict[str, JsonValue] | list[JsonValue]) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    return not any(isinstance(one, dict | list | str) and len(one) > 30 for one in inner) and not (
        any(isinstance(one, dict | list) for one in inner)
    )


def show_bytes(count: int) -> str:
    """A number of bytes in the unit that suits it.

    >>> [show_bytes(count) for count in (0, 999, 1536, 5_000_000)]
    ['0 B', '999 B', '1.5 KiB', '4.8 MiB']
    """
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1000 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
