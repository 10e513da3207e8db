"""Backends and views show what they are, and a view of the past says that it cannot be written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import fmemory
from fmemory.errors import MemoryErrorKind, ReadOnlyStore, Reason


def test_a_memory_shows_its_class_and_place(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        assert repr(memory) == f"<SegmentMemoryBackend {str(tmp_path / 'm')!r}>"
        assert repr(memory.bind(actor="ada")) == repr(memory)
        assert repr(memory.at(0)) == f"<JournalView {str(tmp_path / 'm')!r} at 0>"
    assert repr(memory) == f"<SegmentMemoryBackend {str(tmp_path / 'm')!r}>"


def test_a_memory_without_place_shows_its_class() -> None:
    with fmemory.open(":memory:") as memory:
        memory.add_note("tea")
        assert repr(memory) == "<InMemoryMemoryBackend>"
        assert repr(memory.at(1)) == "<JournalView at 1>"


@pytest.mark.parametrize(
    "name",
    [
        "put",
        "aput",
        "put_request",
        "add_note",
        "delete",
        "set_meta",
        "clear",
        "save_manifest",
        "append",
        "batch",
        "delete_session",
        "fork_session",
        "load",
        "aload",
        "sync",
        "bind",
    ],
)
def test_a_write_on_a_view_is_refused_by_name(name: str) -> None:
    with fmemory.open(":memory:") as memory:
        view: Any = memory.at(0)
        assert not hasattr(view, name)
        with pytest.raises(ReadOnlyStore) as caught:
            getattr(view, name)
    assert (caught.value.kind, caught.value.reason) == (
        MemoryErrorKind.INVALID_REQUEST,
        Reason.READ_ONLY,
    )
    assert str(caught.value).startswith(f"{name}: ")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_an_unknown_name_on_a_view_is_a_plain_mistake() -> None:
    with fmemory.open(":memory:") as memory:
        view: Any = memory.at(0)
        with pytest.raises(AttributeError) as caught:
            view.putt()
    assert not isinstance(caught.value, ReadOnlyStore)
