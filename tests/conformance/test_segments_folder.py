"""What may lie at a path: files, foreign files, read-only folders, full disks, held locks.

Goal: every such place is answered by a typed error that says what to do, or by a store that works,
and nothing that was acknowledged or is not ours is changed. Method: real folders and system limits.
What would have to break: an open that repairs, creates or overwrites what it should leave alone.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Literal

import pytest

import fmemory
from fmemory import (
    JournalBackend,
    MemoryBackendError,
    NewEvent,
    NotFound,
    Reason,
    StorageError,
    StoreBusy,
    StoreFull,
)
from fmemory.journal import Txn
from fmemory.journals import SegmentJournal
from fmemory_segments import Log

NOBODY = 65_534


def put(memory: JournalBackend, record_id: str, text: str = "tea") -> None:
    memory.add_note(text, [1.0, 2.0], id=record_id, timestamp=1.0)


def ids(memory: JournalBackend) -> list[str]:
    return [one.id for one in memory.iter_all()]


def filled(path: Path) -> Path:
    """A store with three records at the path."""
    with fmemory.open(path) as memory:
        for record_id in "abc":
            put(memory, record_id)
    return path


def contents(path: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    return {
        str(one.relative_to(path)): one.read_bytes() if one.is_file() else None
        for one in sorted(path.rglob("*"))
    }


@contextmanager
def as_nobody() -> Iterator[None]:
    """Permissions count for this block, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def read_only_store() -> Iterator[Path]:
    """A filled store that one may read and not write, in a folder that anybody may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    store = filled(folder / "store")
    for one in [store, *store.rglob("*")]:
        one.chmod(0o555 if one.is_dir() else 0o444)
    yield store
    for one in [store, *store.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    shutil.rmtree(folder)


def test_path_that_is_a_file_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(StorageError) as caught:
        fmemory.open(path)
    assert (caught.value.reason, path.read_text()) == (Reason.NOT_A_STORE, "mine")


def test_path_below_a_file_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MemoryBackendError):
        fmemory.open(tmp_path / "notes.txt" / "store")


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
def test_missing_store_that_may_not_be_created_is_not_found(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    with pytest.raises(NotFound) as caught:
        fmemory.open(tmp_path / "store", **options)  # type: ignore[arg-type]
    assert (caught.value.reason, contents(tmp_path)) == (Reason.STORE_NOT_FOUND, {})


def test_missing_parents_are_created(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "a" / "b" / "store") as memory:
        put(memory, "a")
        assert ids(memory) == ["a"]


def test_files_of_a_store_are_for_their_owner_only(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    modes = {one.stat().st_mode & 0o777 for one in store.rglob("*") if one.is_file()}
    assert modes == {0o600}


def test_read_only_folder_opens_for_reading(read_only_store: Path) -> None:
    with as_nobody(), fmemory.open(read_only_store, read_only=True) as memory:
        assert ids(memory) == ["a", "b", "c"]


def test_read_only_folder_is_refused_for_writing(read_only_store: Path) -> None:
    with as_nobody(), pytest.raises(MemoryBackendError):
        fmemory.open(read_only_store)
    with fmemory.open(read_only_store, read_only=True) as memory:
        assert ids(memory) == ["a", "b", "c"]


def test_reading_changes_no_file(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    before = contents(store)
    with fmemory.open(store, read_only=True) as memory:
        assert ids(memory) == ["a", "b", "c"]
        assert memory.verify(memory.head()) == ()
        list(memory.events())
        memory.stats()
        memory.at(1).dump(tmp_path / "out.jsonl")
    assert contents(store) == before


def test_opening_and_closing_changes_no_event(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    with fmemory.open(store) as memory:
        before = memory.head()
    with fmemory.open(store) as memory:
        assert memory.head() == before


def test_foreign_files_are_left_alone_and_told_of(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    foreign = {"README.txt": b"mine", ".DS_Store": b"\x00\x01", "seg-copy.log.bak": b"x" * 99}
    for name, data in foreign.items():
        (store / name).write_bytes(data)
    with fmemory.open(store) as memory:
        put(memory, "d")
        assert ids(memory) == ["a", "b", "c", "d"]
        assert memory.health().notices != ()
    assert {name: (store / name).read_bytes() for name in foreign} == foreign


def test_folder_that_looks_like_a_segment_is_a_typed_error_or_left_alone(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    segment = next(one for one in store.iterdir() if one.name.startswith("seg-"))
    (store / (segment.name + ".d")).mkdir()
    with fmemory.open(store) as memory:
        assert ids(memory) == ["a", "b", "c"]


def test_moved_store_opens_at_its_new_place(tmp_path: Path) -> None:
    filled(tmp_path / "store").rename(tmp_path / "moved")
    with fmemory.open(tmp_path / "moved") as memory:
        put(memory, "d")
        assert ids(memory) == ["a", "b", "c", "d"]


def test_copied_store_has_the_head_of_its_source(tmp_path: Path) -> None:
    shutil.copytree(filled(tmp_path / "store"), tmp_path / "copy")
    with fmemory.open(tmp_path / "store") as one, fmemory.open(tmp_path / "copy") as two:
        assert two.head() == one.head()


@contextmanager
def files_no_larger_than(limit: int) -> Iterator[None]:
    """Writes beyond this offset of any file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_is_a_clean_error_that_loses_nothing(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        put(memory, "a")
        before = memory.head()
        with files_no_larger_than(600_000), pytest.raises(StoreFull) as caught:
            put(memory, "big", "x" * 2_000_000)
        assert caught.value.reason is Reason.STORE_FULL
        assert (memory.head(), ids(memory)) == (before, ["a"])


def test_handle_works_again_when_there_is_space(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        put(memory, "a")
        with files_no_larger_than(600_000), pytest.raises(StoreFull):
            put(memory, "big", "x" * 2_000_000)
        put(memory, "b", "x" * 2_000_000)
        assert ids(memory) == ["a", "b"]
    with fmemory.open(tmp_path / "store") as memory:
        assert (ids(memory), memory.verify()) == (["a", "b"], ())


@contextmanager
def lock_held(path: Path) -> Iterator[None]:
    """Another handle is in the middle of a commit."""
    entered, leave = Event(), Event()
    holder = SegmentJournal(Log.open(path))

    def plan(_txn: Txn) -> None:
        entered.set()
        leave.wait(60)

    thread = Thread(target=holder.commit, args=(plan,), daemon=True)
    thread.start()
    assert entered.wait(60)
    try:
        yield
    finally:
        leave.set()
        thread.join(60)
        holder.close()


def test_lock_held_for_long_is_store_busy_after_the_timeout(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    with fmemory.open(tmp_path / "store", lock_timeout_s=0.1) as memory:
        with lock_held(tmp_path / "store"):
            began = time.monotonic()
            with pytest.raises(StoreBusy) as caught:
                put(memory, "d")
            waited = time.monotonic() - began
        assert (caught.value.reason, waited >= 0.1) == (Reason.STORE_BUSY, True)
        assert isinstance(caught.value, TimeoutError)


def test_store_that_was_busy_works_when_the_lock_is_free(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    with fmemory.open(tmp_path / "store", lock_timeout_s=0.05) as memory:
        with lock_held(tmp_path / "store"), pytest.raises(StoreBusy):
            put(memory, "d")
        put(memory, "d")
        assert ids(memory) == ["a", "b", "c", "d"]


def test_reading_does_not_wait_for_a_held_lock(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    memory = fmemory.open(tmp_path / "store", lock_timeout_s=0.05)
    with memory, lock_held(tmp_path / "store"):
        assert ids(memory) == ["a", "b", "c"]
        assert memory.head().seq == 3


@pytest.mark.parametrize(("durability", "durable"), [("fsync", True), ("os", False)])
def test_sync_and_async_receipts_tell_the_policy(
    tmp_path: Path, durability: Literal["fsync", "os"], durable: bool
) -> None:
    with fmemory.open(tmp_path / "store", durability=durability) as memory:
        event = (NewEvent("tool.finished", 1),)
        receipts = [memory.append(("a",), event), asyncio.run(memory.aappend(("a",), event))]
    assert [one.durable for one in receipts] == [durable, durable]
