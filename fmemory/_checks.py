"""Checks of single values, shared by all models. Each returns the value as it is kept."""

from __future__ import annotations

import base64
import inspect
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from numbers import Integral
from typing import cast

from fmemory._json_values import INT_MAX, INT_MIN, type_name
from fmemory.errors import ContractError, Reason, brief

__all__ = [
    "as_tuple",
    "build_bytes",
    "check_float",
    "check_int",
    "check_keys",
    "check_time",
    "wrong_type",
]


def check_int(value: object) -> int:
    """The value, when it is an int of 64 bit; bool is not a number.

    Raises:
        ContractError: It is not.
    """
    if type(value) is not int:
        hint = ": call int() on it" if isinstance(value, (float, str, Integral)) else ""
        raise wrong_type("int", value, "" if isinstance(value, bool) else hint)
    if not INT_MIN <= value <= INT_MAX:
        raise ContractError(
            f"expected an int from -2**63 to 2**64 - 1, got {brief(value)}",
            reason=Reason.OUT_OF_RANGE,
        )
    return value


def check_float(value: object) -> float:
    """The value as float, when it is a finite number that float64 holds exactly.

    Raises:
        ContractError: It is not; bool is not a number.
    """
    if isinstance(value, float):
        number = float(value)
    elif type(value) is int:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if number != value:
            raise ContractError(
                f"expected a number that float64 holds exactly, got {brief(value)}",
                reason=Reason.NOT_EXACT,
            )
    else:
        raise wrong_type("a number", value, _number_hint(value))
    if not math.isfinite(number):
        raise ContractError(f"expected a finite number, got {number}", reason=Reason.NOT_FINITE)
    return number


def check_time(value: object) -> datetime:
    """The time in UTC, when it knows its offset.

    Raises:
        ContractError: Not a datetime, a naive one, or beyond the years 1 to 9999 in UTC.
    """
    if type(value) is not datetime:
        raise wrong_type("datetime", value, _time_hint(value))
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise ContractError(
            f"expected a time with its offset, got the naive {value.isoformat()}: use"
            " datetime.now(UTC), or value.replace(tzinfo=UTC) if it is UTC",
            reason=Reason.NAIVE_TIME,
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ContractError(
            f"expected a time of the years 1 to 9999 in UTC, got {value.isoformat()}",
            reason=Reason.OUT_OF_RANGE,
        ) from None


def as_tuple(value: object, of: str) -> tuple[object, ...]:
    """The items of a sequence; text, bytes, sets and iterators are none.

    Raises:
        ContractError: It is not one.
    """
    if type(value) is tuple:
        return value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        return tuple(value)
    raise ContractError(
        f"expected a sequence of {of}, got {type_name(value)}{_sequence_hint(value, of)}",
        reason=Reason.WRONG_TYPE,
    )


def check_keys(
    data: object, names: Iterable[str], optional: Iterable[str] = (), *, owner: str = ""
) -> dict[str, object]:
    """The dict itself, when its keys are the named ones; the optional ones may be absent.

    Raises:
        ContractError: Not a dict, an unknown key, or one that is missing.
    """
    if type(data) is not dict:
        raise ContractError(
            f"expected a dict, got {type_name(data)}", reason=Reason.WRONG_TYPE, owner=owner
        )
    known = tuple(names)
    for key in data:
        if key not in known:
            raise ContractError(
                f"expected only {', '.join(known)}, got the key {brief(key)}",
                reason=Reason.UNKNOWN_FIELD,
                owner=owner,
            )
    for name in known:
        if name not in data and name not in optional:
            raise ContractError(
                "expected a value, got none", where=name, reason=Reason.MISSING_FIELD, owner=owner
            )
    return cast("dict[str, object]", data)


def build_bytes(value: object) -> bytes:
    """The bytes of base64 text; bytes are taken as they are.

    Raises:
        ContractError: Neither.
    """
    if isinstance(value, bytes):
        return value
    if type(value) is not str:
        raise wrong_type("base64 text", value)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ContractError(f"expected base64 text: {error}", reason=Reason.BAD_VALUE) from None


def wrong_type(expected: str, value: object, hint: str = "") -> ContractError:
    """The error for a value of another type than expected; the hint says what to do."""
    return ContractError(
        f"expected {expected}, got {type_name(value)}{hint}", reason=Reason.WRONG_TYPE
    )


def _number_hint(value: object) -> str:
    if isinstance(value, datetime):
        return ": use value.timestamp(), which are Unix seconds"
    if type(value) is not bool and hasattr(value, "__float__"):
        return ": call float() on it"
    return ": call float() on it if it is a number" if isinstance(value, str) else ""


def _time_hint(value: object) -> str:
    if isinstance(value, datetime):
        return ": use a plain datetime"
    if isinstance(value, str):
        return ": use datetime.fromisoformat(value)"
    if isinstance(value, (int, float)) and type(value) is not bool:
        return ": use datetime.fromtimestamp(value, UTC)"
    return ""


def _sequence_hint(value: object, of: str) -> str:
    if value is None:
        return ": use () for none"
    if isinstance(value, str):
        return ": put it into a tuple"
    if type(value).__name__ == of:
        return ": put it into a list"
    if isinstance(value, (set, frozenset)) or inspect.isgenerator(value):
        return ": use a list or tuple, which have an order and a length"
    if hasattr(value, "tolist"):
        return ": call .tolist() on it"
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, memoryview, dict)):
        return ": call list() on it"
    return ""
