"""Every operation has an async twin: its name with an `a`, its parameters, its result."""

from __future__ import annotations

import inspect
import re

import pytest

from fmemory.backend import LogBackend, LogView, MemoryBackend
from fmemory.conversation import MemoryConversationStore
from fmemory.session_handle import LogSession

CLASSES = [LogBackend, LogView, LogSession, MemoryConversationStore]
NO_OPERATIONS = {"bind", "session", "run"}
"""They read and write nothing, so they have no twin."""
ASYNC_NAMES = {"sync": "async_"}
"""`async` is a keyword."""
COUNTERPARTS = [
    (r"^Iterator\[(.*)\]$", r"AsyncGenerator[\1, None]"),
    (r"^AbstractContextManager\[(.*)\]$", r"AbstractAsyncContextManager[\1]"),
]


def operations(kind: type[object]) -> list[str]:
    return [
        name
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in NO_OPERATIONS and not is_twin(kind, name)
    ]


def is_twin(kind: type[object], name: str) -> bool:
    if name in ASYNC_NAMES.values():
        return True
    return name.startswith("a") and inspect.isfunction(getattr(kind, name[1:], None))


PAIRS = [(kind, name) for kind in CLASSES for name in operations(kind)]


@pytest.mark.parametrize(("kind", "name"), PAIRS, ids=lambda one: getattr(one, "__name__", one))
def test_an_operation_has_an_async_twin_with_its_signature(kind: type[object], name: str) -> None:
    one = inspect.signature(getattr(kind, name))
    twin_name = ASYNC_NAMES.get(name, f"a{name}")
    twin = inspect.signature(getattr(kind, twin_name))
    assert list(one.parameters.values()) == list(twin.parameters.values())
    expected = str(one.return_annotation)
    for pattern, replacement in COUNTERPARTS:
        expected = re.sub(pattern, replacement, expected)
    assert str(twin.return_annotation) == expected


@pytest.mark.parametrize(("kind", "name"), PAIRS, ids=lambda one: getattr(one, "__name__", one))
def test_both_twins_are_documented(kind: type[object], name: str) -> None:
    assert inspect.getdoc(getattr(kind, name))
    assert inspect.getdoc(getattr(kind, ASYNC_NAMES.get(name, f"a{name}")))


@pytest.mark.parametrize(("kind", "name"), PAIRS, ids=lambda one: getattr(one, "__name__", one))
def test_a_twin_is_awaited_or_iterated(kind: type[object], name: str) -> None:
    twin = getattr(kind, ASYNC_NAMES.get(name, f"a{name}"))
    result = str(inspect.signature(twin).return_annotation)
    assert inspect.iscoroutinefunction(twin) != result.startswith(("AsyncG", "AbstractAsync"))


def test_the_contract_asks_for_18_operations() -> None:
    assert len(MemoryBackend.__abstractmethods__) == 18


def test_a_handle_has_the_operations_of_its_session() -> None:
    operations_of = {
        name
        for name, member in inspect.getmembers(LogBackend, inspect.isfunction)
        if not name.startswith("_")
        and list(inspect.signature(member).parameters)[1:2] == ["session_id"]
    }
    shortened = {"delete_session": "delete", "adelete_session": "adelete", "session": "run"}
    for name in operations_of:
        assert hasattr(LogSession, shortened.get(name, name)), name


def test_the_list_of_operations_is_not_empty() -> None:
    assert len(PAIRS) > 60
