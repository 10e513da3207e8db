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
        return _head(pinned, "pinned")
    if not pinned:
        raise ContractError(
            "expected at least one head, got none; None verifies without a pinned head",
            where="pinned",
            reason=Reason.EMPTY,
        )
    return [_head(one, f"pinned[{number}]") for number, one in enumerate(pinned)]


def _head(value: object, where: str) -> Head:
    text = value
    if isinstance(value, Head):
        try:
            text = str(value)
        except AttributeError:
            text = None
    if not isinstance(text, str):
        raise ContractError(
            f"expected a head or its text, got {type_name(value)}",
            where=where,
            reason=Reason.WRONG_TYPE,
        )
    try:
        return Head.parse(text)
    except ValueError as error:
        raise ContractError(str(error), where=where, reason=Reason.BAD_VALUE) from error
