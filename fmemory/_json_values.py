"""JSON values, strictly: what goes in comes out equal and of the same types, or is refused.

Allowed are None, bool, int (64 bit), finite float, str without lone surrogates, list, and dict with
str keys: exactly these types, no subclasses. Everything else is refused with the path of the bad
value, before anything is written, because msgpack and JSON would change it in silence (tuples,
sets, Decimal, datetime, bytes, NaN, int keys). Encoding is msgpack; no decoder here builds anything
but the types above. This module never looks at meaning: limits of ids and the like are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from fmemory.errors import ContractError, Reason, brief

__all__ = [
    "INT_MAX",
    "INT_MIN",
    "JSON_DEPTH_MAX",
    "JsonObject",
    "JsonValue",
    "check_json",
    "check_json_object",
    "check_text",
    "copy_json",
    "copy_json_object",
    "decode_json",
    "encode_json",
    "is_encodable",
    "is_json_object",
    "type_name",
]

if TYPE_CHECKING:
    JsonValue: TypeAlias = (
        str | int | float | bool | list["JsonValue"] | dict[str, "JsonValue"] | None
    )
    JsonObject: TypeAlias = dict[str, JsonValue]
else:  # msgspec and typing do not resolve recursive aliases; the walk below is the real check
    JsonValue = Any
    JsonObject = dict[str, Any]

JSON_DEPTH_MAX = 100
"""Lists and dicts inside one another. A cycle is found by this limit."""
INT_MIN = -(2**63)
INT_MAX = 2**64 - 1

_INFINITY = float("inf")

encode_json: Callable[[JsonValue], bytes] = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def decode_json(data: bytes | bytearray | memoryview) -> JsonValue:
    """The value that `encode_json` encoded, in new objects.

    >>> decode_json(encode_json({"a": [1, 1.0, None]}))
    {'a': [1, 1.0, None]}
    """
    return cast("JsonValue", _decode(data))


def check_json(value: object, where: str = "") -> JsonValue:
    """The value itself, when it is JSON all through.

    Args:
        value: Anything.
        where: Path put before the path of a bad value.

    Raises:
        ContractError: It is not; `where` is the path of the first bad value.

    Cost: about 0.1 µs a key.

    >>> check_json({"a": (1, 2)}, "metadata")
    Traceback (most recent call last):
    fmemory.errors.ContractError: metadata["a"]: expected a JSON value, got tuple: use a list
    """
    if not _is_json(value, JSON_DEPTH_MAX):
        _refuse(value, where, 0)
    return cast("JsonValue", value)


def check_json_object(value: object, where: str = "") -> JsonObject:
    """The value itself, when it is a dict that is JSON all through.

    Raises:
        ContractError: It is not; `where` is the path of the first bad value.
    """
    if not is_json_object(value):
        if type(value) is not dict:
            raise ContractError(
                f"expected a dict with str keys, got {type_name(value)}{_object_hint(value)}",
                where=where,
                reason=Reason.WRONG_TYPE,
            )
        _refuse(value, where, 0)
    return cast("JsonObject", value)


def is_json_object(value: object) -> bool:
    """Whether the value is a dict that is JSON all through: `check_json_object` without a path."""
    return type(value) is dict and (not value or _is_json(value, JSON_DEPTH_MAX))


def copy_json(value: object, where: str = "") -> JsonValue:
    """A checked deep copy: nothing of it is shared with the caller.

    Raises:
        ContractError: The value is not JSON; `where` is the path of the first bad value.
    """
    return decode_json(encode_json(check_json(value, where)))


def copy_json_object(value: object, where: str = "") -> JsonObject:
    """A checked deep copy of a dict: nothing of it is shared with the caller.

    Raises:
        ContractError: The value is not a JSON object; `where` is the path of the first bad value.
    """
    checked = check_json_object(value, where)
    return cast("JsonObject", decode_json(encode_json(checked))) if checked else {}


def check_text(value: object, where: str = "", *, empty: bool = False) -> str:
    """The value itself, when it is a str that UTF-8 can carry; NUL is fine.

    Args:
        value: Anything.
        where: Path for the error.
        empty: Whether the empty string is allowed.

    Raises:
        ContractError: It is not such a str.
    """
    if type(value) is not str:
        hint = ": call str() on it" if isinstance(value, str) else ""
        raise ContractError(
            f"expected str, got {type_name(value)}{hint}", where=where, reason=Reason.WRONG_TYPE
        )
    if not value and not empty:
        raise ContractError("expected a non-empty str, got ''", where=where, reason=Reason.EMPTY)
    if not value.isascii():
        _check_surrogates(value, where)
    return value


def type_name(value: object) -> str:
    """The name of a value's type, with its module unless builtin."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can carry the text: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_json(value: Any, depth: int) -> bool:
    """Whether the value is JSON with at most `depth` containers inside one another.

    Written out for dicts and lists, because it runs once for every record that is put.
    """
    kind = type(value)
    if kind is dict:
        if not depth:
            return False
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or is_encodable(key)):
                return False
            kind = type(item)
            if kind is str:
                if not (item.isascii() or is_encodable(item)):
                    return False
            elif kind is int:
                if not INT_MIN <= item <= INT_MAX:
                    return False
            elif kind is float:
                if not -_INFINITY < item < _INFINITY:
                    return False
            elif kind is list or kind is dict:
                if not _is_json(item, depth - 1):
                    return False
            elif kind is not bool and item is not None:
                return False
        return True
    if kind is list:
        if not depth:
            return False
        for item in value:
            kind = type(item)
            if kind is str:
                if not (item.isascii() or is_encodable(item)):
                    return False
            elif kind is int:
                if not INT_MIN <= item <= INT_MAX:
                    return False
            elif kind is float:
                if not -_INFINITY < item < _INFINITY:
                    return False
            elif kind is list or kind is dict:
                if not _is_json(item, depth - 1):
                    return False
            elif kind is not bool and item is not None:
                return False
        return True
    return _is_json([value], 1)


def _check_surrogates(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ContractError(
            f"expected text that UTF-8 can carry, got a lone surrogate at character {error.start};"
            " replace it, for example text.encode('utf-8', 'replace').decode()",
            where=where,
            reason=Reason.LONE_SURROGATE,
        ) from None


def _refuse(value: object, where: str, depth: int) -> None:
    """Raises for the first bad value of the walk; returns if there is none."""
    if isinstance(value, (dict, list)) and depth >= JSON_DEPTH_MAX:
        raise ContractError(
            f"expected at most {JSON_DEPTH_MAX} lists and dicts inside one another, got more"
            " (a value that contains itself has no end)",
            where=where,
            reason=Reason.TOO_DEEP,
        )
    kind = type(value)
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise ContractError(
                    f"expected str keys, got {brief(key)} ({type_name(key)}): use str(key)",
                    where=where,
                    reason=Reason.NOT_JSON,
                )
            _check_surrogates(key, where)
            _refuse(item, f'{where}["{_shown_key(key)}"]', depth + 1)
    elif kind is list:
        for index, item in enumerate(cast("list[object]", value)):
            _refuse(item, f"{where}[{index}]", depth + 1)
    elif kind is str:
        _check_surrogates(cast("str", value), where)
    elif kind is int:
        if not INT_MIN <= cast("int", value) <= INT_MAX:
            raise ContractError(
                f"expected an int from -2**63 to 2**64 - 1, got {brief(value)}; store it as str",
                where=where,
                reason=Reason.OUT_OF_RANGE,
            )
    elif kind is float:
        if not -_INFINITY < cast("float", value) < _INFINITY:
            raise ContractError(
                f"expected a finite number, got {value}; use None for a missing value",
                where=where,
                reason=Reason.NOT_FINITE,
            )
    elif kind is not bool and value is not None:
        raise ContractError(
            f"expected a JSON value, got {type_name(value)}{_json_hint(value)}",
            where=where,
            reason=Reason.NOT_JSON,
        )


def _shown_key(key: str) -> str:
    text = key if len(key) <= 40 else key[:37] + "..."
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _object_hint(value: object) -> str:
    if value is None:
        return ": use {} for none"
    return ": call dict() on it" if isinstance(value, Mapping) else ""


def _json_hint(value: object) -> str:
    if isinstance(value, (tuple, set, frozenset)):
        return ": use a list"
    if isinstance(value, bytes):
        return ": decode it, or store it as base64 text"
    if type(value).__module__ == "numpy":
        return ": call .item() or .tolist() on it"
    for kind in (str, int, float, dict, list):
        if isinstance(value, kind):
            return f": use a plain {kind.__name__}"
    if hasattr(value, "isoformat"):
        return ": store it as text, for example value.isoformat()"
    return ""
