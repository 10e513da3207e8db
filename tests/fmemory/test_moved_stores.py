"""Stores that are taken away from under an open handle: whoever waits for events is told.

Goal: `follow` ends with an error where nothing can come any more, and goes on where something can.
Method: a reader that has seen all there is, then the store is moved, removed or made anew under its
name. What would have to break: a wait that looks at nothing but the files it has open.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fmemory
from fmemory import NewEvent, NotFound, Reason

STREAM = ("tools", "x")
URLS = ["{}", "jsonl:{}", "sqlite:///{}"]


def write(target: str, name: str) -> None:
    """One event."""
    with fmemory.open(target) as memory:
        memory.append(STREAM, [NewEvent(f"test.{name}", {})])


def remove(path: Path) -> None:
    """A folder with all that is in it, or a file with what SQLite keeps beside it."""
    if path.is_dir():
        shutil.rmtree(path)
        return
    for one in path.parent.glob(path.name + "*"):
        one.unlink()


def moved(path: Path, _target: str) -> None:
    path.rename(path.with_name("elsewhere"))


def removed(path: Path, _target: str) -> None:
    remove(path)


def made_anew(path: Path, target: str) -> None:
    remove(path)
    write(target, "other")


TAKEN: list[Callable[[Path, str], None]] = [moved, removed, made_anew]


@pytest.mark.parametrize("take", TAKEN)
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("url", URLS)
def test_following_a_store_that_was_taken_away_ends(
    url: str, take: Callable[[Path, str], None], *, read_only: bool, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    target = url.format(path)
    write(target, "first")
    with fmemory.open(target, read_only=read_only) as memory:
        events = memory.follow(0)
        assert next(events).type == "test.first"
        take(path, target)

        with pytest.raises(NotFound, match="moved, removed or made anew") as caught:
            next(events)

        assert caught.value.reason is Reason.STORE_NOT_FOUND
        assert str(path) in str(caught.value)
        assert memory.health().state == "moved"


@pytest.mark.parametrize("url", URLS)
def test_coroutines_are_told_too(url: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    target = url.format(path)
    write(target, "first")

    async def follow() -> None:
        with fmemory.open(target, read_only=True) as memory:
            events = memory.afollow(0)
            assert (await anext(events)).type == "test.first"
            made_anew(path, target)
            with pytest.raises(NotFound, match="moved, removed or made anew"):
                await anext(events)

    asyncio.run(follow())


@pytest.mark.parametrize("url", URLS)
def test_compacting_takes_no_store_away(url: str, tmp_path: Path) -> None:
    target = url.format(tmp_path / "store")
    write(target, "first")
    with fmemory.open(target, read_only=True) as memory:
        events = memory.follow(0)
        assert next(events).type == "test.first"
        with fmemory.open(target) as writer:
            writer.delete_stream(STREAM)
            writer.compact()
            writer.append(STREAM, [NewEvent("test.later", {})])

        assert memory.health().state == "ok"
        assert [next(events).type for _ in range(2)] == ["stream_deleted", "test.later"]
