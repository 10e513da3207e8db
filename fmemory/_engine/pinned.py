"""Heads that a caller kept elsewhere, checked before a log is compared with them."""

from __future__ import annotations

from collections.abc import Sequence

from fmemory._json_values import type_name
from fmemory.errors import ContractError, Reason
from fmemory.journal import Head, Pinned


def check_pinned(pinned: object) -> Pinned:
    """One head, or several, from heads or their texts; None stays None.

    Raises:
        ContractError: It is neither, or a sequence of none.

    >>> check_pinned(["0:" + "00" * 32]) == [Head(0, bytes(32))]
    True
    """
    if pinned is None:
        return None
    if isinstance(pinned, (Head, str)) or not isinstance(pinned, Sequence):
        return _parsed(pinned, "pinned")
    if not pinned:
        raise ContractError(
            "expected at least one head, got none; None verifies without a pinned head",
            where="pinned",
            reason=Reason.EMPTY,
        )
    return [_parsed(one, f"pinned[{number}]") for number, one in enumerate(pinned)]


def check_head(value: object, where: str) -> Head:
    """The head itself, when a log can have it.

    Raises:
        ContractError: It is none.
    """
    if not isinstance(value, Head):
        raise _wrong_type("a head", value, where)
    return _parsed(value, where)


def _parsed(value: object, where: str) -> Head:
    text = value
    if isinstance(value, Head):
        try:
            text = str(value)
        except AttributeError:
            text = None
    if not isinstance(text, str):
        raise _wrong_type("a head or its text", value, where)
    try:
        return Head.parse(text)
    except ValueError as error:
        raise ContractError(str(error), where=where, reason=Reason.BAD_VALUE) from error


def _wrong_type(expected: str, value: object, where: str) -> ContractError:
    return ContractError(
        f"expected {expected}, got {type_name(value)}", where=where, reason=Reason.WRONG_TYPE
    )
