"""`help(memory)` says what the contract says: no shorter text of an implementation hides it."""

from __future__ import annotations

import inspect

import pytest

import fmemory
from fmemory._engine.backend import JournalBackend, JournalView
from fmemory.backend import LogBackend, LogView
from fmemory.log import LogReads

FULLER = {"dump", "load", "ensure_embedding_id"}
"""They promise more than the contract does, and say so in full."""
OWN = {"auto_compact"}
"""No part of the contract: `fmemory.open` calls it for backends over a journal."""


def contract_doc(name: str, *bases: type[object]) -> str | None:
    for base in bases:
        if hasattr(base, name):
            return inspect.getdoc(getattr(base, name))
    return None


def public_names(kind: type[object]) -> list[str]:
    return [
        name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
    ]


@pytest.mark.parametrize("name", sorted(set(public_names(JournalBackend)) - OWN))
def test_an_operation_of_a_backend_has_the_text_of_the_contract(name: str) -> None:
    expected = contract_doc(name, LogBackend)
    with fmemory.open(":memory:") as memory:
        texts = {inspect.getdoc(getattr(memory, name)), inspect.getdoc(getattr(type(memory), name))}
    assert expected
    if name in FULLER:
        (text,) = texts
        assert text
        assert "Raises:" in text
        assert len(text) >= len(expected) - 100
    else:
        assert texts == {expected}


@pytest.mark.parametrize("name", sorted(set(public_names(JournalView)) - {"at"}))
def test_an_operation_of_a_view_has_the_text_of_the_contract(name: str) -> None:
    with fmemory.open(":memory:") as memory:
        assert inspect.getdoc(getattr(memory.at(0), name)) == contract_doc(name, LogView, LogReads)


@pytest.mark.parametrize("kind", [JournalBackend, JournalView])
def test_an_operation_that_can_fail_says_how(kind: type[object]) -> None:
    for name in public_names(kind):
        text = inspect.getdoc(getattr(kind, name)) or ""
        elsewhere = text.startswith("As `") or "errors: as `" in text
        assert elsewhere or "Raises:" in text or name in {"close", "health"}, name
