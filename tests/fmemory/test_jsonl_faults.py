"""The system fails, or the process ends, at any call; what was acknowledged is there afterwards.

Goal: no failure of the file system and no crash loses an acknowledged event, tears a batch, or
leaves a store that does not open. Method: pass 1 counts the calls of a piece of work, pass 2 stops
at each. What would have to break: an order of writes, a cut that is missing, a repair that cannot
be repeated.
"""

from __future__ import annotations

import errno
import random
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fmemory.errors import LogCorrupt, LogPoisoned, MemoryBackendError, StoreFull
from fmemory.journals import JsonlJournal
from fmemory.testing._journal_base import blob, commit, put
from fmemory_segments import Blob, Erasure, PosixFileSystem
from tests.fmemory.erasure_tools import (
    Before,
    Writer,
    check_erased,
    choose_some,
    erased_now,
    fill,
    remember,
    traces_of,
)
from tests.fmemory.jsonl_tools import (
    contents,
    damage,
    files_of,
    open_store,
    opened,
    small_store,
    snapshot,
)
from tests.segments.log_tools import Crash, FailingFileSystem, WatchedFileSystem, crash_at

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FILE_BYTES_MAX = 2_500
"""Small enough that the work below begins new files."""


def work(journal: JsonlJournal, acknowledged: list[int]) -> None:
    """Batches of one to three events; notes the head after each acknowledged one."""
    for number in range(4):
        made = commit(
            journal,
            *(blob(b"x" * 300, revision=5 + number * 2 + one) for one in range(2)),
            put(f"w{number}", revision=5 + number),
        )
        acknowledged.append(made.last_seq)


def check_after(path: Path, old: list[object], acknowledged: list[int]) -> None:
    """Everything acknowledged is there, batches are whole, and the store can be written again."""
    found = opened(path)
    assert isinstance(found, list), found
    assert found[: len(old)] == old
    assert len(found) >= max([len(old), *acknowledged])
    assert (len(found) - len(old)) % 3 == 0
    assert damage(path) == []
    journal = open_store(path)
    commit(journal, blob(stream=("after",)))
    assert contents(journal)[:-1] == found
    journal.close()
    assert damage(path) == []


def abandon(journal: JsonlJournal | None) -> None:
    """Forget a handle as the end of its process does: locks go, nothing else happens."""
    if journal is not None:
        journal._core.fs = PosixFileSystem()
        journal._log.refuse_in_child()


def count_calls(path: Path) -> int:
    fs = WatchedFileSystem()
    journal = open_store(path, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    work(journal, [])
    journal.close()
    return len(fs.calls)


def test_crash_at_every_call_loses_nothing_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = small_store(store, file_bytes_max=FILE_BYTES_MAX)
    shutil.copytree(store, tmp_path / "pass1")
    calls = count_calls(tmp_path / "pass1")
    assert len(files_of(tmp_path / "pass1")) > len(files_of(store))
    for number in range(1, calls + 1):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        acknowledged: list[int] = []
        journal = None
        try:
            journal = open_store(copy, fs=crash_at(number), file_bytes_max=FILE_BYTES_MAX)
            work(journal, acknowledged)
        except Crash:
            pass
        abandon(journal)
        check_after(copy, old, acknowledged)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("for_ever", [False, True])
def test_every_failing_call_is_a_typed_error_and_loses_nothing(
    tmp_path: Path, error: int, for_ever: bool
) -> None:
    store = tmp_path / "store"
    old = small_store(store, file_bytes_max=FILE_BYTES_MAX)
    shutil.copytree(store, tmp_path / "pass1")
    calls = count_calls(tmp_path / "pass1")
    for number in range(1, calls + 1, 2):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        fs = FailingFileSystem(
            lambda _, count, number=number: count == number,  # type: ignore[misc]
            lambda: OSError(error, "injected"),
            for_ever=for_ever,
        )
        acknowledged: list[int] = []
        journal = None
        try:
            journal = open_store(copy, fs=fs, file_bytes_max=FILE_BYTES_MAX)
            work(journal, acknowledged)
        except MemoryBackendError:
            pass
        abandon(journal)
        check_after(copy, old, acknowledged)


def test_crash_while_a_store_is_made_leaves_a_place_where_one_can_be_made(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    open_store(tmp_path / "pass1", fs=fs).close()
    for number in range(1, len(fs.calls) + 1):
        place = tmp_path / f"store{number}"
        with suppress(Crash):
            abandon(open_store(place, fs=crash_at(number)))
        assert opened(place) == []


def test_crash_while_a_torn_end_is_set_aside_can_be_repeated(tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = small_store(store)
    with files_of(store)[0].open("ab") as file:
        file.write(b'{"seq":9,"batch":[1,1')
    shutil.copytree(store, tmp_path / "pass1")
    fs = WatchedFileSystem()
    open_store(tmp_path / "pass1", fs=fs).close()
    for number in range(1, len(fs.calls) + 1):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        with suppress(Crash):
            abandon(open_store(copy, fs=crash_at(number)))
        assert opened(copy) == old


def test_full_disk_cuts_the_file_back_and_the_handle_goes_on(tmp_path: Path) -> None:
    is_full = [False]

    def fails(name: str, _count: int) -> bool:
        return name == "pwrite" and is_full[0]

    fs = FailingFileSystem(fails, lambda: OSError(errno.ENOSPC, "No space left on device"))
    journal = open_store(tmp_path / "store", fs=fs)
    commit(journal, blob())
    before = files_of(tmp_path / "store")[0].read_bytes()
    is_full[0] = True
    with pytest.raises(StoreFull):
        commit(journal, blob(revision=2))
    assert journal.health().state == "full"
    assert files_of(tmp_path / "store")[0].read_bytes() == before
    is_full[0] = False
    assert commit(journal, blob(revision=2)).last_seq == 2
    assert journal.health().state == "ok"
    journal.close()


def test_write_that_cannot_be_cut_back_poisons_the_handle(tmp_path: Path) -> None:
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name in ("pwrite", "truncate"))
    journal = open_store(tmp_path / "store", fs=fs)
    commit(journal, blob())
    fails[0] = True
    with pytest.raises(LogPoisoned):
        commit(journal, blob(revision=2))
    fails[0] = False
    for use in (journal.refresh, journal.head, lambda: journal.payloads([1])):
        with pytest.raises(LogPoisoned):
            use()
    assert journal.health().state == "poisoned"
    journal.close()
    assert isinstance(opened(tmp_path / "store"), list)


def poisoned_store(path: Path) -> list[object]:
    """A store in which the sync of the last two events failed; all of its events."""
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    journal = open_store(path, fs=fs)
    commit(journal, blob())
    fails[0] = True
    with pytest.raises(LogPoisoned):
        commit(journal, blob(revision=2), put("a"))
    with pytest.raises(LogPoisoned):
        commit(journal, blob(revision=3))
    assert journal.health().durable_seq == 1
    journal.close()
    found = opened(path, read_only=True)
    assert isinstance(found, list)
    assert len(found) == 3
    return found


def test_failed_sync_poisons_and_the_next_writer_writes_the_rest_anew(tmp_path: Path) -> None:
    found = poisoned_store(tmp_path / "store")
    (file,) = files_of(tmp_path / "store")
    before, inode = file.read_bytes(), file.stat().st_ino
    journal = open_store(tmp_path / "store")
    assert contents(journal) == found
    assert journal.health().durable_seq == 3
    assert (file.read_bytes(), file.stat().st_ino != inode) == (before, True)
    assert any("written anew" in one for one in journal.health().notices)
    journal.close()


def test_handle_that_was_open_goes_on_with_the_file_that_was_written_anew(tmp_path: Path) -> None:
    store = tmp_path / "store"
    open_store(store).close()
    reader, writer = open_store(store, read_only=True), open_store(store)
    found = poisoned_store(store)
    made = commit(writer, blob(revision=3))
    assert made.first_seq == 4
    assert contents(reader) == [*found, contents(writer)[-1]]
    reader.close()
    writer.close()


def test_crash_at_every_call_of_writing_anew_can_be_repeated(tmp_path: Path) -> None:
    store = tmp_path / "store"
    found = poisoned_store(store)
    shutil.copytree(store, tmp_path / "pass1")
    fs = WatchedFileSystem()
    open_store(tmp_path / "pass1", fs=fs).close()
    for number in range(1, len(fs.calls) + 1):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        with suppress(Crash):
            abandon(open_store(copy, fs=crash_at(number)))
        assert opened(copy) == found


def test_commit_into_a_file_that_was_put_back_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal = open_store(store)
    commit(journal, blob())
    (file,) = files_of(store)
    older = file.read_bytes()
    commit(journal, blob(revision=2))
    file.unlink()
    file.write_bytes(older)
    with pytest.raises(LogCorrupt):
        commit(journal, blob(revision=3))
    with pytest.raises(LogCorrupt):
        journal.refresh()
    assert file.read_bytes() == older
    journal.close()


def compactable_store(path: Path) -> tuple[Before, Erasure]:
    """A store of several files, what it holds, and what is to go of each of them."""
    journal = open_store(path, file_bytes_max=FILE_BYTES_MAX)
    choose = random.Random(4)
    fill(journal, Writer(choose), 6)
    before = remember(journal)
    journal.close()
    assert len(files_of(path)) > 2
    return before, choose_some(before, choose)


def count_compaction(path: Path, erasure: Erasure) -> tuple[int, int]:
    """The numbers of the first and the last system call of a compaction."""
    fs = WatchedFileSystem()
    journal = open_store(path, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    first = len(fs.calls) + 1
    journal.compact(erasure)
    return first, len(fs.calls)


def check_after_compaction(path: Path, before: Before, erasure: Erasure) -> None:
    """The store opens with the same content, some of it erased, and can be compacted again."""
    journal = open_store(path, file_bytes_max=FILE_BYTES_MAX)
    locs, seqs = set(erasure.locs.tolist()), set(erasure.seqs.tolist())
    found_locs, found_seqs = erased_now(journal)
    assert (found_locs <= locs, found_seqs <= seqs) == (True, True)
    check_erased(journal, before, found_locs, found_seqs)
    assert damage(path) == []
    done = journal.compact(erasure)
    assert done.erased_rows == len(locs - found_locs)
    assert (done.erased_events, done.pending) == (len(seqs - found_seqs), ())
    check_erased(journal, before, locs, seqs)
    journal.close()
    everything = b"".join(snapshot(path).values())
    gone, _ = traces_of(before, locs, seqs)
    assert [form for forms in gone for form in forms if form in everything] == []
    assert damage(path) == []


def test_crash_at_every_call_of_a_compaction_keeps_all_and_it_can_be_repeated(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    before, erasure = compactable_store(store)
    shutil.copytree(store, tmp_path / "pass1")
    first, last = count_compaction(tmp_path / "pass1", erasure)
    for number in range(first, last + 1):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        journal = open_store(copy, fs=crash_at(number), file_bytes_max=FILE_BYTES_MAX)
        with pytest.raises(Crash):
            journal.compact(erasure)
        abandon(journal)
        check_after_compaction(copy, before, erasure)
        shutil.rmtree(copy)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("for_ever", [False, True])
def test_every_failing_call_of_a_compaction_is_a_typed_error_and_keeps_all(
    tmp_path: Path, error: int, for_ever: bool
) -> None:
    store = tmp_path / "store"
    before, erasure = compactable_store(store)
    shutil.copytree(store, tmp_path / "pass1")
    first, last = count_compaction(tmp_path / "pass1", erasure)
    done = 0
    for number in range(first, last + 1):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        fs = FailingFileSystem(
            lambda _, count, number=number: count == number,  # type: ignore[misc]
            lambda: OSError(error, "injected"),
            for_ever=for_ever,
        )
        journal = open_store(copy, fs=fs, file_bytes_max=FILE_BYTES_MAX)
        try:
            journal.compact(erasure)
            done += 1
        except MemoryBackendError:
            pass
        if not for_ever and journal.health().state in ("ok", "full"):
            commit(journal, blob(stream=("after",)))
        abandon(journal)
        check_after_compaction(copy, before, erasure)
        shutil.rmtree(copy)
    assert done < (last - first) // 4


def test_failed_sync_of_the_folder_of_a_compaction_poisons_and_loses_nothing(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    is_renamed = [False]

    def fails(name: str, _count: int) -> bool:
        is_renamed[0] = is_renamed[0] or name == "rename"
        return is_renamed[0] and name == "sync"

    open_store(store).close()
    journal = open_store(store, fs=FailingFileSystem(fails))
    commit(journal, put("a"), put("b", revision=2))
    before = remember(journal)
    loc = 1 << 16
    with pytest.raises(LogPoisoned):
        journal.compact(Erasure(2, np.array([loc], np.uint64), np.array([], np.uint64)))
    with pytest.raises(LogPoisoned):
        commit(journal, blob())
    journal.close()
    again = open_store(store)
    check_erased(again, before, {loc}, set())
    again.close()


def test_new_file_that_reads_back_otherwise_is_not_taken(tmp_path: Path) -> None:
    class Lying(WatchedFileSystem):
        """Writes one wrong byte into every file of a compaction."""

        def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
            found = bytes(memoryview(data))
            if self.is_lying and len(found) > 500:
                found = found[:400] + bytes([found[400] ^ 1]) + found[401:]
            return super().pwrite(fd, found, offset)

        is_lying = False

    store = tmp_path / "store"
    before, erasure = compactable_store(store)
    files = {one: one.read_bytes() for one in files_of(store)}
    fs = Lying()
    journal = open_store(store, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    fs.is_lying = True
    with pytest.raises(MemoryBackendError, match="read back"):
        journal.compact(erasure)
    fs.is_lying = False
    assert {one: one.read_bytes() for one in files_of(store)} == files
    check_erased(journal, before, set(), set())
    assert journal.compact(erasure).erased_rows == len(erasure.locs)
    journal.close()


@pytest.mark.parametrize("is_reader", [False, True])
def test_interrupt_between_the_events_of_a_batch_poisons_the_handle_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reader: bool
) -> None:
    writer, reader = open_store(tmp_path / "log"), open_store(tmp_path / "log")
    commit(writer, blob(b"before", revision=1))
    assert reader.refresh() == 1
    struck = reader if is_reader else writer
    core, apply = struck._core, struck._core.apply

    def interrupt(file: Any, found: Any) -> None:
        if found.envelope.seq == 3:
            raise KeyboardInterrupt
        apply(file, found)

    drafts = [blob(b"%d" % revision, revision=revision) for revision in (2, 3, 4)]
    if is_reader:
        commit(writer, *drafts)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(core, "apply", interrupt)
        if is_reader:
            reader.refresh()
        else:
            commit(writer, *drafts)
    with pytest.raises(LogPoisoned, match="index: expected it to succeed"):
        commit(struck, blob(b"again", revision=5))
    other = writer if is_reader else reader
    assert other.refresh() == 4
    commit(other, blob(b"behind", revision=5))
    told = contents(other)
    for one in (writer, reader):
        one.close()
    assert (len(told), opened(tmp_path / "log"), damage(tmp_path / "log")) == (5, told, [])


@pytest.mark.parametrize("damaged", [1, 4, 8])
def test_a_damaged_line_among_neighbours_is_named_and_the_others_are_read(
    damaged: int, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with closing(open_store(path)) as journal:
        for number in range(8):
            commit(journal, blob(b"word %d" % number, revision=number + 1))
    (file,) = path.glob("events-*.jsonl")
    lines = file.read_bytes().split(b"\n")
    changed = lines[damaged].replace(b'"word.said"', b'"word.sAid"')
    assert changed != lines[damaged]
    with closing(open_store(path, read_only=True)) as journal:
        assert len(journal.payloads(range(1, 9))) == 8
        file.write_bytes(b"\n".join([*lines[:damaged], changed, *lines[damaged + 1 :]]))

        with pytest.raises(LogCorrupt) as caught:
            journal.payloads(range(1, 9))

        assert caught.value.seq == damaged
        others = [seq for seq in range(1, 9) if seq != damaged]
        assert [one.data for one in journal.payloads(others) if isinstance(one, Blob)] == [
            b"word %d" % (seq - 1) for seq in others
        ]
