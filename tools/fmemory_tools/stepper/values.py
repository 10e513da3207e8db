"""JSON values as lines of indented text, made one after the other: nobody waits for the last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fmemory_tools._console import FAINT
from fmemory_tools.stepper.lines import Line, line, text_lines

if TYPE_CHECKING:
    from fmemory._json_values import JsonValue

INLINE_CHARACTERS_MAX: Final = 60
DEPTH_MAX: Final = 24
"""Deeper values are shown as JSON on one line."""


def value_lines(value: JsonValue, *, indent: int, depth: int = 0) -> Iterator[Line]:
    """A value on lines of its own: objects as names and values, texts as they read."""
    if depth >= DEPTH_MAX and isinstance(value, dict | list):
        yield line(json.dumps(value, ensure_ascii=False), indent=indent)
        return
    match value:
        case dict():
            for name, inner in value.items():
                yield from _named(f"{name}:", inner, indent=indent, depth=depth)
        case list():
            for inner in value:
                yield from _named("-", inner, indent=indent, depth=depth)
        case str():
            yield from text_lines(value, indent=indent)
        case _:
            yield line(json.dumps(value), indent=indent)


def _named(name: str, value: JsonValue, *, indent: int, depth: int) -> Iterator[Line]:
    inline = _inline(value)
    if inline is not None:
        yield line((f"{name} ", FAINT), inline, indent=indent)
        return
    yield line((name, FAINT), indent=indent)
    yield from value_lines(value, indent=indent + 2, depth=depth + 1)


def _inline(value: JsonValue) -> str | None:
    """The value as it stands behind a name; None if it needs lines of its own."""
    match value:
        case str():
            fits = len(value) <= INLINE_CHARACTERS_MAX and "\n" not in value
            return (value or '""') if fits else None
        case dict() | list() if value:
            return None
        case _:
            return json.dumps(value)
