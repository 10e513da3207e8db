"""Strict reading of JSON: what a store could not give back exactly is refused, with its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import msgspec

from fmemory_tools.importers.plan import BadLine

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject, JsonValue


class Malformed(ValueError):  # noqa: N818 - a finding about a value
    """What is wrong with a value, in words that fit behind a line number."""


def read_whole(path: Path) -> tuple[bytes, str]:
    """The bytes of a file and their SHA-256 in hexadecimal."""
    content = path.read_bytes()
    return content, hashlib.sha256(content).hexdigest()


def split_unfinished(content: bytes) -> tuple[bytes, int | None]:
    """The content without a last line that is still being written, and that line's number.

    Such a line has no line end and is the beginning of a JSON object, not a whole one.

    >>> split_unfinished(b'{"a": 1}\\n{"b": ')
    (b'{"a": 1}\\n', 2)
    >>> split_unfinished(b'{"a": 1}')
    (b'{"a": 1}', None)
    """
    start = content.rfind(b"\n") + 1
    last = content[start:]
    if not last.lstrip().startswith(b"{"):
        return content, None
    try:
        json.loads(last.decode("utf-8", "replace"))
    except json.JSONDecodeError:
        return content[:start], content.count(b"\n") + 1
    except (RecursionError, ValueError):
        pass  # Whole, and told by `json_lines`.
    return content, None


def json_lines(
    content: bytes,
    bad: list[BadLine],
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[tuple[int, bytes, JsonObject]]:
    """Number, bytes and object of every line that holds a JSON object; the others go to `bad`.

    Lines of white space only are passed over.

    Args:
        advance: Told the number of bytes of each line read.
    """
    for number, line in enumerate(content.split(b"\n"), start=1):
        advance(len(line) + 1)
        if not line.strip():
            continue
        try:
            yield number, line, parse_object(line)
        except Malformed as problem:
            bad.append(BadLine(number, str(problem)))


def parse_object(text: bytes) -> JsonObject:
    """The JSON object that `text` is.

    Raises:
        Malformed: It is not JSON, not an object, or holds what a store refuses: a number that is
            not finite or needs more than 64 bits, or a lone surrogate.

    >>> parse_object(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    value = parse_json(text)
    if not isinstance(value, dict):
        raise Malformed(f"expected a JSON object, got {kind_of(value)}")
    return value


def parse_json(text: bytes) -> JsonValue:
    """The JSON value that `text` is.

    Raises:
        Malformed: As `parse_object`, any kind of value allowed.

    >>> parse_json(b'["a"]')
    ['a']
    """
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}"
        raise Malformed(f"not JSON: {error.msg} ({place})") from error
    except RecursionError as error:
        raise Malformed("nested too deeply") from error
    except ValueError as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed("an integer needs more than 64 bits") from error
    try:
        msgspec.msgpack.encode(value)
    except UnicodeEncodeError as error:
        raise Malformed("a string holds half of a surrogate pair") from error
    except OverflowError as error:
        raise Malformed("an integer needs more than 64 bits") from error
    except RecursionError as error:
        raise Malformed("nested too deeply") from error
    return cast("JsonValue", value)


def kind_of(value: JsonValue) -> str:
    """The JSON word for a value's type.

    >>> [kind_of(one) for one in (None, True, 1.5, "a", [], {})]
    ['null', 'a boolean', 'a number', 'a string', 'an array', 'an object']
    """
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def as_object(value: JsonValue, name: str) -> JsonObject:
    """`value`, which must be a JSON object."""
    if not isinstance(value, dict):
        raise Malformed(f"{name}: expected an object, got {kind_of(value)}")
    return value


def as_array(value: JsonValue, name: str) -> list[JsonValue]:
    """`value`, which must be a JSON array."""
    if not isinstance(value, list):
        raise Malformed(f"{name}: expected an array, got {kind_of(value)}")
    return value


def objects_in(value: JsonValue) -> list[JsonObject]:
    """The objects of a JSON array; none if it is something else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def as_count(value: JsonValue, name: str) -> int:
    """`value`, which must be a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{name}: expected a whole number, got {kind_of(value)}")
    return value


def as_text(value: JsonValue, name: str) -> str:
    """`value`, which must be a string."""
    if not isinstance(value, str):
        raise Malformed(f"{name}: expected a string, got {kind_of(value)}")
    return value


def optional_text(value: JsonValue) -> str | None:
    """`value` if it is a string with something in it, else None."""
    return value if isinstance(value, str) and value else None


def as_time(value: JsonValue, name: str) -> datetime:
    """The aware UTC time that an RFC 3339 string names.

    >>> as_time("2026-02-10T21:11:52.438Z", "timestamp").isoformat()
    '2026-02-10T21:11:52.438000+00:00'
    """
    try:
        time = datetime.fromisoformat(as_text(value, name))
    except ValueError as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed(f"{name}: expected an RFC 3339 time, got {value!r}") from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return time.astimezone(UTC)


def digest_key(prefix: str, position: int, *parts: bytes) -> str:
    """An idempotency key for what stands at one place of a file.

    >>> digest_key("claude-code", 4, b"{}")
    'claude-code:4:44136fa355b3678a'
    """
    whole = hashlib.sha256(b"\n".join(parts)).hexdigest()
    return f"{prefix}:{position}:{whole[:16]}"


def _no_constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise Malformed(f"the number {text} is out of range")
    return number
