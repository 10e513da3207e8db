"""A batch may be as large as memory allows its records to be, and no other work needs as much.

Goal: loading a memory file takes little more than its records, in every kind of store, and a store
that was loaded so, or holds large messages, is opened, checked, copied, compacted and shown within
a few megabytes. Method: what Python has allocated at its highest, while the parts that are held are
made small. What would have to break: a second copy of a batch, text of all of it, a file read
whole, a page that is made before it is written.
"""

from __future__ import annotations

import errno
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fmemory
from fmemory import ContractError, LogBackend, MemoryRecord, Message, Note, PutRequest
from fmemory.copying import copy_log
from fmemory.errors import MemoryFileError, Reason
from fmemory.journal import Draft, Payload
from fmemory.replay import page
from fmemory.replay._page import page_pieces
from fmemory.testing._journal_base import blob, commit, put
from fmemory_segments.event_bytes import EventBytes, pack_event
from tests.fmemory.jsonl_tools import contents, damage, files_of, open_store, opened, small_store
from tests.segments.log_tools import Crash, FailingFileSystem, WatchedFileSystem, crash_at

MEGABYTE = 1 << 20
RECORDS, DIM = 2_000, 256
RECORD_BYTES = RECORDS * (8 * DIM + 200)
MESSAGES = 48
KINDS = ("segments", "sqlite", "jsonl")


def target_of(kind: str, folder: Path) -> str:
    """Where a store of a kind lies in a folder."""
    names = {"segments": "store", "sqlite": "sqlite:///{}/store.db", "jsonl": "jsonl:{}/store"}
    return names[kind].format(folder) if kind != "segments" else str(folder / "store")


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that were allocated at once beyond those of before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at once is small beside what the tests below write."""
    for name, size in (
        ("fmemory._engine.backend._LOAD_LINES_BYTES", MEGABYTE // 4),
        ("fmemory.journals._jsonl.file_bytes.PART_BYTES", MEGABYTE),
        ("fmemory.journals._jsonl.lines.KEPT_BYTES_MAX", MEGABYTE // 4),
        ("fmemory.journals._jsonl.read.KEPT_BYTES_MAX", MEGABYTE),
        ("fmemory.journals._jsonl.writer.GROUP_BYTES", MEGABYTE // 4),
        ("fmemory.journals._tables.reads.BATCH_BYTES_MAX", MEGABYTE),
        ("fmemory.replay._page_spool._MEMORY_BYTES_MAX", MEGABYTE),
        ("fmemory_segments._inspect.HELD_BYTES_MAX", MEGABYTE),
    ):
        monkeypatch.setattr(name, size)


def write_messages(memory: LogBackend) -> None:
    """One batch of messages of a megabyte each."""
    with memory.batch() as batch:
        for number in range(MESSAGES):
            batch.append_transcript_messages("s", [Message("user", f"{number:7} " * (1 << 17))])


@pytest.fixture
def memory_file(tmp_path: Path) -> Path:
    """A memory file with records of some megabytes."""
    rng = np.random.default_rng(7)
    path = tmp_path / "records.jsonl"
    with fmemory.open(":memory:") as memory:
        vectors = rng.standard_normal((RECORDS, DIM))
        memory.put(
            PutRequest(
                tuple(
                    MemoryRecord(Note(f"n{row}", "tea " * 45, float(row), {"row": row}), vector)
                    for row, vector in enumerate(vectors)
                )
            )
        )
        memory.dump(path)
    return path


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", KINDS)
def test_loading_takes_little_more_than_the_records(
    tmp_path: Path, memory_file: Path, kind: str
) -> None:
    with fmemory.open(target_of(kind, tmp_path), durability="os") as memory:
        peak = peak_of(lambda: memory.load(memory_file))
        same = tmp_path / "again.jsonl"
        memory.dump(same)

    assert same.read_bytes().split(b"\n")[1:] == memory_file.read_bytes().split(b"\n")[1:]
    assert RECORD_BYTES < peak < 2 * RECORD_BYTES


def opening(target: str) -> None:
    with fmemory.open(target, read_only=True) as memory:
        assert memory.health().head_seq == MESSAGES


def verifying(target: str) -> None:
    with fmemory.open(target, read_only=True) as memory:
        assert memory.verify() == ()


def copying(target: str) -> None:
    with fmemory.open(target, read_only=True) as memory:
        other = f"{target}-copy" if "db" not in target else target.replace(".db", "-copy.db")
        with fmemory.open(other, durability="os") as copied:
            assert copy_log(memory, copied).copied == MESSAGES


def compacting(target: str) -> None:
    with fmemory.open(target, durability="os") as memory:
        memory.delete_session("s")
        assert memory.compact().erased_events == MESSAGES


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("work", [opening, verifying, copying, compacting])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_of_one_large_batch_is_worked_on_in_parts(
    tmp_path: Path, kind: str, work: Callable[[str], None]
) -> None:
    target = target_of(kind, tmp_path)
    with fmemory.open(target, durability="os") as memory:
        write_messages(memory)

    peak = peak_of(lambda: work(target))

    assert peak < MESSAGES * MEGABYTE * 3 // 4


@pytest.mark.usefixtures("small_parts")
def test_a_large_torn_batch_is_set_aside_in_parts(tmp_path: Path) -> None:
    with fmemory.open(target_of("jsonl", tmp_path), durability="os") as memory:
        write_messages(memory)
    store = tmp_path / "store"
    (file,) = files_of(store)
    header, _, batch = file.read_bytes().partition(b"\n")
    torn = batch[: -MEGABYTE // 2]
    file.write_bytes(header + b"\n" + torn)

    peak = peak_of(lambda: fmemory.open(target_of("jsonl", tmp_path)).close())

    (kept,) = (store / "quarantine").iterdir()
    assert kept.read_bytes() == torn
    assert file.read_bytes() == header + b"\n"
    assert peak < MESSAGES * MEGABYTE // 4


@pytest.mark.usefixtures("small_parts")
def test_a_page_is_made_in_pieces_while_it_is_written(tmp_path: Path) -> None:
    with fmemory.open(tmp_path, durability="os") as memory:
        write_messages(memory)
        size = 0

        def write() -> None:
            nonlocal size
            for piece in page_pieces(memory, None, None):
                size += len(piece)

        peak = peak_of(write)
        whole = page(memory)

    assert size == len(whole.encode())
    assert size > MESSAGES * MEGABYTE
    assert peak < size  # four times that when it was made whole


@pytest.mark.parametrize(
    ("doing", "state"), [("write", "nothing was written"), ("read", "the page is not whole")]
)
def test_a_temporary_file_that_fails_ends_the_page_with_what_holds(
    monkeypatch: pytest.MonkeyPatch, doing: str, state: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tempfile.SpooledTemporaryFile()  # noqa: SIM115 - closed by the page
    monkeypatch.setattr(file, doing, fail)
    monkeypatch.setattr("tempfile.SpooledTemporaryFile", lambda **_: file)
    with fmemory.open(":memory:") as memory:
        memory.append_transcript_messages("s", [Message("user", "hello")])
        told = rf"\Apage: expected room .* No space left on device; {state}"
        with pytest.raises(MemoryFileError, match=told) as caught:
            page(memory)

    assert caught.value.reason is Reason.FILE_UNWRITABLE
    assert file.closed


def large_batch() -> list[Draft]:
    """Three events of which each is written with a call of its own, one of them of rows."""
    return [
        blob(b"y" * 700, stream=("other",)),
        put("v", "w", stream=("records", "other")),
        blob(b"z" * 700, stream=("other",), revision=2),
    ]


@pytest.fixture
def written_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmemory.journals._jsonl.lines.KEPT_BYTES_MAX", 1)
    monkeypatch.setattr("fmemory.journals._jsonl.writer.GROUP_BYTES", 1)


@pytest.mark.usefixtures("written_apart")
def test_a_batch_in_several_writes_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    store = tmp_path / "count"
    old = small_store(store)
    fs = WatchedFileSystem()
    journal = open_store(store, fs=fs)
    before = len(fs.calls)
    commit(journal, *large_batch())
    calls, new = range(before + 1, len(fs.calls) + 1), contents(journal)
    journal.close()
    counts = set()
    for number in calls:
        copy = tmp_path / f"copy{number}"
        small_store(copy)
        journal = open_store(copy, fs=crash_at(number))
        with pytest.raises(Crash):
            commit(journal, *large_batch())
        journal._core.fs = WatchedFileSystem()
        journal._log.refuse_in_child()
        found = opened(copy)
        assert isinstance(found, list)
        counts.add(len(found) - len(old))
        assert damage(copy) == []

    assert len(new) == len(old) + 3
    assert counts == {0, 3}


@pytest.mark.usefixtures("written_apart")
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_batch_whose_nth_write_fails_leaves_the_log_as_it_was(tmp_path: Path, nth: int) -> None:
    old = small_store(tmp_path)
    writes = 0

    def is_nth_write(name: str, count: int) -> bool:
        nonlocal writes
        del count
        writes += name == "pwrite"
        return name == "pwrite" and writes == nth

    journal = open_store(
        tmp_path, fs=FailingFileSystem(is_nth_write, lambda: OSError(errno.ENOSPC, "full"))
    )
    writes = 0
    with pytest.raises(fmemory.StoreFull):
        commit(journal, *large_batch())
    found = contents(journal)
    again = commit(journal, *large_batch())
    journal.close()

    assert found == old
    assert again.last_seq == len(old) + 3
    assert damage(tmp_path) == []


@pytest.mark.usefixtures("written_apart")
def test_a_batch_of_which_an_event_cannot_be_encoded_leaves_the_log_as_it_was(
    tmp_path: Path,
) -> None:
    old = small_store(tmp_path)
    files = {one: one.read_bytes() for one in files_of(tmp_path)}
    journal = open_store(tmp_path)
    bad = Draft(stream=("other",), revision=3, type="a.b", payload=blob().payload, actor="\ud800")
    with pytest.raises(ContractError):
        commit(journal, *large_batch(), bad)
    found = contents(journal)
    journal.close()

    assert found == old
    assert {one: one.read_bytes() for one in files} == files
    assert damage(tmp_path) == []


@pytest.fixture(params=["sqlite", "postgres"])
def table_memory(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LogBackend]:
    if request.param == "sqlite":
        target = target_of("sqlite", tmp_path)
    else:
        target = request.getfixturevalue("postgres_url")
        monkeypatch.setattr("fmemory.journals._postgres.commit.MESSAGE_BYTES", 1_000)
    with fmemory.open(target) as memory:
        yield memory


def say(memory: LogBackend, *lengths: int) -> None:
    with memory.batch() as batch:
        for length in lengths:
            batch.append_transcript_messages("s", [Message("user", "x" * length)])


@pytest.mark.parametrize(
    "lengths", [(10,), (2_000,), (2_000, 2_000), (10, 2_000, 10, 10), (10, 10)]
)
def test_a_batch_in_several_messages_to_the_server_is_there_whole(
    table_memory: LogBackend, lengths: tuple[int, ...]
) -> None:
    say(table_memory, 10)
    say(table_memory, *lengths)

    said = [len(one.content) for one in table_memory.load_transcript_messages("s")]
    assert said == [10, *lengths]
    assert table_memory.verify() == ()


def test_a_batch_of_which_a_later_event_cannot_be_packed_leaves_the_log_as_it_was(
    table_memory: LogBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(table_memory, 10)
    packed = 0

    def fail_at_third(source: Draft, payload: Payload, nonces: bytes) -> EventBytes:
        nonlocal packed
        packed += 1
        if packed == 3:
            raise ValueError("planted")
        return pack_event(source, payload, nonces)

    with monkeypatch.context() as patched:
        patched.setattr("fmemory.journals._tables.journal.pack_event", fail_at_third)
        with pytest.raises(ContractError, match="planted"):
            say(table_memory, 2_000, 2_000, 2_000)
    say(table_memory, 20)

    said = [len(one.content) for one in table_memory.load_transcript_messages("s")]
    assert (packed, said) == (3, [10, 20])
    assert table_memory.verify() == ()
