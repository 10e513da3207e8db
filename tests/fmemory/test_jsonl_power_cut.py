"""After a power cut at any moment, what was acknowledged is there and nothing else is believed.

Goal: an event whose commit said "durable" survives, batches are whole, and the store opens. Method:
the disk of the segments' power-cut test records every write, cut, sync and name; after each call
disks are built from it that kept all, none, a prefix or some sectors of what was not synced, the
others absent or zeros. What would have to break: an acknowledgement before its sync, a name before
its content, a verdict that takes torn bytes for damage or the other way round.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pytest

from fmemory.errors import LogCorrupt
from fmemory.journals import JsonlJournal
from fmemory.journals._jsonl.rewrite import read_back
from fmemory.testing._journal_base import blob, commit, put
from fmemory_segments import Erasure
from tests.crash.disk import Disk, Moment, RecordingFileSystem
from tests.crash.settings import SAMPLES, SEED
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
from tests.fmemory.jsonl_tools import contents, damage, open_store, opened, snapshot
from tests.segments.log_tools import Crash

FILE_BYTES_MAX = 3_000
Item = TypeVar("Item")


class NoGarbage(random.Random):
    """Chooses anything but sectors of random bytes, which docs/jsonl.md does not assume."""

    def choice(self, seq: Sequence[Item]) -> Item:  # type: ignore[override]
        return super().choice([one for one in seq if one != "garbage"])


def work(journal: JsonlJournal, durable: list[int]) -> None:
    """Batches of all durabilities, over several files; notes what was promised."""
    for number in range(6):
        durability = ("fsync", "os", "fsync")[number % 3]
        made = commit(
            journal,
            blob(b"x" * 700, revision=2 * number + 1),
            put(f"r{number}", f"s{number}", revision=number + 1),
            blob(b"y" * 10, revision=2 * number + 2),
            durability=durability,  # type: ignore[arg-type]
        )
        if made.durable:
            durable[0] = made.last_seq


def record(path: Path) -> tuple[list[Moment], list[object]]:
    """Every moment of the work on a new store, and what it holds in the end."""
    moments: list[Moment] = []
    durable = [0]

    def after() -> None:
        moments.append(Moment(fs.disk.copy(), durable[0]))

    fs = RecordingFileSystem(after)
    journal = open_store(path, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    work(journal, durable)
    after()
    found = contents(journal)
    journal.close()
    return moments, found


def build(files: dict[Path, bytes], source: Path, target: Path) -> Path:
    """The store that a disk holds, in another place."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path, data in files.items():
        if path.is_relative_to(source):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return target


def test_power_cut_at_every_moment_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    moments, whole = record(store)
    choose = NoGarbage(SEED)
    print(f"seed {SEED}, {len(moments)} moments")
    kept_counts = set()
    for moment in moments:
        for _ in range(SAMPLES):
            place = build(moment.disk.cut(choose), store, tmp_path / "cut")
            found = opened(place)
            assert isinstance(found, list), found
            assert found == whole[: len(found)]
            assert (len(found) >= moment.durable, len(found) % 3) == (True, 0)
            assert damage(place) == []
            kept_counts.add(len(found))
    assert len(kept_counts) == 7


def test_power_cut_that_leaves_other_bytes_loses_nothing_in_silence(tmp_path: Path) -> None:
    store = tmp_path / "store"
    moments, whole = record(store)
    choose = random.Random(SEED)
    print(f"seed {SEED}")
    for moment in moments[::2]:
        place = build(moment.disk.cut(choose), store, tmp_path / "cut")
        found = opened(place)
        if isinstance(found, list):
            assert found == whole[: len(found)]
            assert len(found) >= moment.durable
        else:
            assert isinstance(found, LogCorrupt)


class Compacted(NamedTuple):
    """A moment of a compaction: the disk, the events acknowledged, whether it had returned."""

    disk: Disk
    durable: int
    is_done: bool


def record_compaction(path: Path) -> tuple[list[Compacted], Before, Erasure]:
    """Every moment of a compaction and of writing on after it."""
    moments: list[Compacted] = []
    state = [0, False]

    def after() -> None:
        if state[0]:
            moments.append(Compacted(fs.disk.copy(), int(state[0]), bool(state[1])))

    fs = RecordingFileSystem(after)
    journal = open_store(path, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    choose = random.Random(SEED)
    writer = Writer(choose)
    fill(journal, writer, 8)
    before = remember(journal)
    erasure = choose_some(before, choose)
    state[0] = journal.refresh()
    journal.compact(erasure)
    state[1] = True
    for _ in range(4):
        fill(journal, writer, 1)
        state[0] = journal.refresh()
    journal.close()
    return moments, before, erasure


def test_power_cut_at_every_moment_of_a_compaction_keeps_all_and_brings_nothing_back(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    moments, before, erasure = record_compaction(store)
    locs, seqs = set(erasure.locs.tolist()), set(erasure.seqs.tolist())
    gone, _ = traces_of(before, locs, seqs)
    choose = NoGarbage(SEED)
    print(f"seed {SEED}, {len(moments)} moments")
    erased_counts = set()
    for moment in moments:
        for _ in range(SAMPLES):
            place = build(moment.disk.cut(choose), store, tmp_path / "cut")
            journal = open_store(place)
            assert journal.refresh() >= moment.durable
            found_locs, found_seqs = erased_now(journal)
            assert (found_locs <= locs, found_seqs <= seqs) == (True, True)
            check_erased(journal, before, found_locs, found_seqs)
            journal.close()
            assert damage(place) == []
            erased_counts.add(len(found_locs) + len(found_seqs))
            if moment.is_done:
                assert (found_locs, found_seqs) == (locs, seqs)
                everything = b"".join(snapshot(place).values())
                assert [form for forms in gone for form in forms if form in everything] == []
    assert {0, len(locs) + len(seqs)} < erased_counts


@pytest.mark.parametrize("is_opened_before", [True, False])
def test_what_another_handle_appends_after_a_compactor_ended_at_its_rename_is_kept(
    tmp_path: Path, is_opened_before: bool
) -> None:
    def end(name: str, _subject: object) -> None:
        if "rename" in fs.calls and name == "sync":
            raise Crash

    store = tmp_path / "store"
    fs = RecordingFileSystem(lambda: None)
    journal = open_store(store, fs=fs)
    commit(journal, put("a", "b"), blob())
    other = open_store(store, fs=fs) if is_opened_before else None
    fs.calls.clear()
    fs.hook = end
    with pytest.raises(Crash):
        journal.compact(Erasure(2, np.array([1 << 16], np.uint64), np.array([], np.uint64)))
    fs.hook = lambda _, __: None
    journal._log.refuse_in_child()
    other = other or open_store(store, fs=fs)
    assert commit(other, blob(b"after", revision=2)).durable
    choose = NoGarbage(SEED)
    for _ in range(20):
        place = build(fs.disk.cut(choose), store, tmp_path / "cut")
        found = opened(place)
        assert isinstance(found, list), found
        assert len(found) == 3
    other.close()


def test_what_was_appended_durably_while_a_file_was_compacted_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    fs = RecordingFileSystem(lambda: None)
    journal = open_store(store, fs=fs)
    commit(journal, put("a", "b"), blob())
    other = open_store(store, fs=fs)

    def append_first(*arguments: object) -> None:
        assert commit(other, blob(b"after", revision=2)).durable
        read_back(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("fmemory.journals._jsonl.compact.read_back", append_first)
    journal.compact(Erasure(2, np.array([1 << 16], np.uint64), np.array([], np.uint64)))
    choose = NoGarbage(SEED)
    for _ in range(20):
        found = opened(build(fs.disk.cut(choose), store, tmp_path / "cut"))
        assert isinstance(found, list), found
        assert len(found) == 3
    other.close()
    journal.close()


def test_second_compaction_has_on_disk_what_the_first_one_left_in_memory(tmp_path: Path) -> None:
    def end(name: str, _subject: object) -> None:
        if "rename" in fs.calls and name == "sync":
            raise Crash

    store = tmp_path / "store"
    fs = RecordingFileSystem(lambda: None)
    journal = open_store(store, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    fill(journal, Writer(random.Random(SEED)), 8)
    before = remember(journal)
    locs = {before.locs[0]}
    erasure = Erasure(1 << 20, np.array([*locs], np.uint64), np.array([], np.uint64))
    other = open_store(store, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    fs.calls.clear()
    fs.hook = end
    with pytest.raises(Crash):
        journal.compact(erasure)
    fs.hook = lambda _, __: None
    journal._log.refuse_in_child()
    assert other.compact(erasure).erased_rows == 0
    ((word, _),), _ = traces_of(before, locs, set())
    choose = NoGarbage(SEED)
    for _ in range(20):
        place = build(fs.disk.cut(choose), store, tmp_path / "cut")
        assert [name for name, data in snapshot(place).items() if word in data] == []
    other.close()
