"""Ids, keys and namespaces: which texts can name something."""

from __future__ import annotations

from typing import cast

from fmemory._checks import as_tuple
from fmemory._json_values import check_text
from fmemory.errors import ContractError, Reason

__all__ = [
    "ID_CHARACTERS_MAX",
    "NAMESPACE_LABELS_MAX",
    "check_name",
    "check_namespace",
    "is_plain_namespace",
]

ID_CHARACTERS_MAX = 4096
"""Longest id, key or namespace label."""
NAMESPACE_LABELS_MAX = 32

_KNOWN_MAX = 4096
_ONLY_TEXT = {str}
# Namespaces that were checked before: every request of a program names one of few.
_known: set[tuple[str, ...]] = set()


def check_name(value: object, where: str = "", *, empty: bool = False) -> str:
    """The value itself, when it is a str that can name something.

    Raises:
        ContractError: Not a str, empty unless allowed, too long, or not UTF-8.
    """
    name = check_text(value, where, empty=empty)
    if len(name) > ID_CHARACTERS_MAX:
        raise ContractError(
            f"expected at most {ID_CHARACTERS_MAX} characters, got {len(name)}",
            where=where,
            reason=Reason.TOO_LARGE,
        )
    return name


def check_namespace(value: object, where: str = "") -> tuple[str, ...]:
    """The labels as a tuple. The first is not empty, the others may be; () is the root.

    Raises:
        ContractError: Not a sequence of str, an empty first label, or too many or too long ones.
    """
    if value == ():
        return ()
    if type(value) is tuple and set(map(type, value)) == _ONLY_TEXT and value in _known:
        return value
    try:
        labels = as_tuple(value, "str labels")
        for index, label in enumerate(labels):
            check_name(label, f"[{index}]", empty=index > 0)
    except ContractError as error:
        raise error.within(where) from None
    if len(labels) > NAMESPACE_LABELS_MAX:
        raise ContractError(
            f"expected at most {NAMESPACE_LABELS_MAX} labels, got {len(labels)}",
            where=where,
            reason=Reason.TOO_LARGE,
        )
    namespace = cast("tuple[str, ...]", labels)
    if len(_known) < _KNOWN_MAX:
        _known.add(namespace)
    return namespace


def is_plain_namespace(value: object) -> bool:
    """Whether it is the root or one ASCII label, as most are: right without a closer look."""
    if type(value) is not tuple or len(value) > 1:
        return False
    if not value:
        return True
    label = value[0]
    return type(label) is str and label.isascii() and 0 < len(label) <= ID_CHARACTERS_MAX
