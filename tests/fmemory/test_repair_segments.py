"""Repairs of stores of many segment files, compacted ones too: what each file's loss costs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fmemory
from fmemory._engine.erasure import erasure_at
from fmemory.journal import StoredEvent
from fmemory_segments import Erasure, Log, PosixFileSystem
from fmemory_segments.salvage import Salvaged, SegmentSalvage, Trouble
from tests.fmemory.copy_tools import plain
from tests.fmemory.repair_tools import Events, changed, events_of, fill, salvaged, small_store
from tests.segments.compacted_tools import compacted_store, erased

ROUNDS = int(os.environ.get("FMEMORY_TEST_ROUNDS", "1"))


@pytest.fixture
def events() -> Events:
    """Some events of all kinds."""
    with fmemory.open(":memory:") as memory:
        fill(memory, rounds=8)
        return events_of(memory)


@pytest.fixture
def store(tmp_path: Path, events: Events) -> Path:
    """A store of several sealed segments and an active one."""
    path = tmp_path / "source"
    with Log.open(path, segment_bytes_max=1500) as log:
        for event in events:
            log.import_exact([StoredEvent(*event)])
    assert len(segments(path)) > 4
    return path


@pytest.fixture
def compacted(tmp_path: Path, events: Events) -> tuple[Path, Events]:
    """Two compacted segments of many small frames, from which deleted records were erased."""
    path = tmp_path / "source"
    with fmemory.open(":memory:") as memory:
        memory.journal.import_exact([StoredEvent(*one) for one in events])
        memory.delete(memory.delete_request(["n2-1", "n4-0"]))
        erasure = erasure_at(memory.journal, memory.journal.refresh())
        stored = [StoredEvent(*one) for one in events_of(memory)]
    compacted_store(path, stored, erasure, [12], block_bytes_target=400, ledger_bytes_target=600)
    return path, [(one.envelope, one.payload) for one in erased(stored, erasure)]


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("seg-*"))


def base_of(path: Path) -> int:
    return int(path.name[4:24])


def test_a_sound_store_of_many_files_comes_back_with_its_head(store: Path, events: Events) -> None:
    result = salvaged(str(store), events)

    assert (result.salvaged, result.notices, result.head_matches) == (len(events), (), True)


def test_a_missing_file_costs_its_events_and_no_other(store: Path, events: Events) -> None:
    files = segments(store)
    bases = [*map(base_of, files), len(events) + 1]
    for number, path in enumerate(files[:-1]):
        content = path.read_bytes()
        path.unlink()
        result = salvaged(str(store), events)
        (gap,) = result.lost
        assert (gap.first_seq, gap.last_seq) == (bases[number], bases[number + 1] - 1)
        path.write_bytes(content)


def test_a_missing_last_file_costs_what_the_witness_knows_of(store: Path, events: Events) -> None:
    base = base_of(segments(store)[-1])
    segments(store)[-1].unlink()

    (gap,) = salvaged(str(store), events).lost

    assert (gap.first_seq, gap.last_seq) == (base, len(events))


@pytest.mark.parametrize("size", [0, 64, 128, 1000])
def test_files_that_begin_with_zeros_are_read_where_frames_are_left(
    store: Path, events: Events, size: int
) -> None:
    for path in segments(store):
        changed(path, lambda data: data.__setitem__(slice(size), bytes(size)))

    result = salvaged(str(store), events)

    assert result.salvaged + result.lost_events == len(events)
    assert result.lost_events == 0 or size > 128


def test_files_that_swapped_their_names_are_read(store: Path, events: Events) -> None:
    first, second = segments(store)[1:3]
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])

    assert salvaged(str(store), events).salvaged == len(events)


def test_a_file_that_stands_there_twice_is_taken_once(store: Path, events: Events) -> None:
    first, second = segments(store)[1:3]
    second.write_bytes(first.read_bytes())

    result = salvaged(str(store), events)

    assert result.lost_events == base_of(segments(store)[3]) - base_of(second)


def test_a_file_of_another_store_is_left_out(store: Path, events: Events, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    small_store("segments", tmp_path / "other")
    foreign = segments(tmp_path / "other" / "source")[0].read_bytes()
    segments(store)[2].write_bytes(foreign)

    result = salvaged(str(store), events)

    (gap,) = result.lost
    assert gap.first_seq == base_of(segments(store)[2])
    assert "another store" in gap.reason


def test_a_bad_sector_costs_what_lies_in_it(store: Path, events: Events) -> None:
    """The system reports an error where it cannot read, which is not the end of the file."""
    bad = segments(store)[1]

    class BadSector(PosixFileSystem):
        """Cannot read the second part of one file."""

        def open_file(self, path: Path, *, write: bool, create: bool) -> int:
            fd = super().open_file(path, write=write, create=create)
            if path == bad:
                self.fd = fd
            return fd

        def pread(self, fd: int, size: int, offset: int, /) -> bytes:
            if fd == getattr(self, "fd", -1) and offset + size > 4096 > offset:
                raise OSError(errno.EIO, "Input/output error")
            return super().pread(fd, size, offset)

    changed(bad, lambda data: data.extend(bytes(8192)))
    found = list(SegmentSalvage(BadSector(), store).found())

    assert [one.seq for one in found if isinstance(one, Salvaged)] == list(
        range(1, len(events) + 1)
    )


def test_what_is_not_of_the_log_is_told_and_left_alone(store: Path, events: Events) -> None:
    segments(store)[2].rename(store / "seg-old.bak")

    result = salvaged(str(store), events)

    assert result.lost_events > 0
    assert any("seg-old.bak" in one for one in result.notices)


def test_a_compacted_store_comes_back_with_what_was_erased_erased(
    compacted: tuple[Path, Events],
) -> None:
    path, events = compacted

    result = salvaged(str(path), events)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())
    assert result.notices == ()


@pytest.fixture
def generations(tmp_path: Path, events: Events) -> tuple[Path, Events, dict[str, bytes]]:
    """A store that was compacted and written since, its events, and the files that it replaced."""
    path = tmp_path / "source"
    with fmemory.open(":memory:") as memory:
        memory.journal.import_exact([StoredEvent(*one) for one in events])
        erasure = erasure_at(memory.journal, memory.journal.refresh())
    stored = [StoredEvent(*one) for one in events]
    with Log.open(path, segment_bytes_max=1500) as log:
        for event in stored[:-2]:
            log.import_exact([event])
        replaced = {one.name: one.read_bytes() for one in segments(path)}
        log.compact(erasure_up_to(erasure, len(stored) - 2))
        for event in stored[-2:]:
            log.import_exact([event])
        replaced = {name: data for name, data in replaced.items() if not (path / name).exists()}
        kept = [
            (one, payload)
            for one, payload in zip(
                log.envelopes(0, len(stored)), log.payloads(range(1, len(stored) + 1)), strict=True
            )
        ]
    assert list(path.glob("manifest-*"))
    return path, kept, replaced


def erasure_up_to(erasure: Erasure, upto: int) -> Erasure:
    """What an erasure names of the events up to a seq."""
    locs, seqs = erasure.locs, erasure.seqs
    return Erasure(upto, locs[locs >> np.uint64(16) <= upto], seqs[seqs <= upto])


def test_a_compacted_store_with_its_manifest_comes_back_with_its_head(
    generations: tuple[Path, Events, dict[str, bytes]],
) -> None:
    path, events, _ = generations

    result = salvaged(str(path), events)

    assert (result.salvaged, result.notices, result.head_matches) == (len(events), (), True)


@pytest.mark.parametrize("damage", ["cut", "changed", "removed"])
def test_a_damaged_manifest_costs_no_event(
    generations: tuple[Path, Events, dict[str, bytes]], damage: str
) -> None:
    path, events, _ = generations
    (manifest,) = path.glob("manifest-*")
    match damage:
        case "cut":
            manifest.write_bytes(manifest.read_bytes()[:100])
        case "changed":
            changed(manifest, _bit(60))
        case _:
            manifest.unlink()

    result = salvaged(str(path), events)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())
    assert any("manifest" in one for one in result.notices) == (damage != "removed")


def test_replaced_files_that_are_still_there_bring_nothing_erased_back(
    generations: tuple[Path, Events, dict[str, bytes]],
) -> None:
    path, events, replaced = generations
    for name, data in replaced.items():
        (path / name).write_bytes(data)

    result = salvaged(str(path), events)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())


def test_replaced_files_complete_what_is_damaged_since(
    generations: tuple[Path, Events, dict[str, bytes]],
) -> None:
    """Rows that only the newer file had erased stay erased."""
    path, events, replaced = generations
    for name, data in replaced.items():
        (path / name).write_bytes(data)
    compacted_file = next(one for one in segments(path) if one.name.endswith("-000001.log"))
    text = compacted_file.read_bytes().index(b"text 1")
    changed(compacted_file, lambda data: data.__setitem__(slice(text, text + 6), b"broken"))

    result = salvaged(str(path), events)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())


def _bit(at: int) -> Callable[[bytearray], object]:
    return lambda data: data.__setitem__(at, data[at] ^ 1 << at % 8)


def test_a_flipped_bit_of_a_compacted_file_costs_no_event_and_few_rows(
    compacted: tuple[Path, Events],
) -> None:
    path, events = compacted
    for file in segments(path):
        whole = file.read_bytes()
        for at in range(0, len(whole), max(1, 97 // ROUNDS)):
            changed(file, _bit(at))
            result = salvaged(str(path), events)
            assert result.salvaged + result.lost_events == len(events), at
            assert result.lost == (), at
            file.write_bytes(whole)


def test_zeroed_sectors_of_a_compacted_file_leave_the_rest(
    compacted: tuple[Path, Events],
) -> None:
    path, events = compacted
    for file in segments(path):
        whole = file.read_bytes()
        for at in range(0, len(whole), 512):
            changed(file, lambda data, at=at: data.__setitem__(slice(at, at + 512), bytes(512)))  # type: ignore[misc]
            result = salvaged(str(path), events)
            known = result.salvaged + result.lost_events == len(events)
            assert known or not result.is_end_known, at
            file.write_bytes(whole[: len(whole)])


def test_an_older_file_of_the_same_events_completes_a_damaged_compacted_one(
    tmp_path: Path, events: Events
) -> None:
    path = tmp_path / "source"
    stored = [StoredEvent(*one) for one in events]
    with fmemory.open(":memory:") as memory:
        nothing = erasure_at(memory.journal, 0)
    compacted_store(path, stored, nothing)
    with Log.open(tmp_path / "old") as log:
        for event in stored:
            log.import_exact([event])
    (old,) = segments(tmp_path / "old")
    (compacted_file,) = segments(path)
    data = bytearray(old.read_bytes())
    (path / old.name).write_bytes(data)
    store_id = compacted_file.read_bytes()[16:32]
    changed(path / old.name, lambda data: data.__setitem__(slice(16, 32), store_id))
    changed(path / old.name, lambda data: data.__setitem__(slice(124, 128), bytes(4)))
    size = compacted_file.stat().st_size
    changed(compacted_file, lambda data: data.__setitem__(slice(200, size), bytes(size - 200)))

    result = salvaged(str(path), events)

    assert result.salvaged == len(events)


def test_a_damaged_store_is_read_alike_each_time(store: Path) -> None:
    changed(segments(store)[1], lambda data: data.__setitem__(slice(700, 900), bytes(200)))
    salvage = SegmentSalvage(PosixFileSystem(), store)

    once, again = list(salvage.found()), list(salvage.found())

    assert [type(one) for one in once] == [type(one) for one in again]
    for one, other in zip(once, again, strict=True):
        if isinstance(one, Salvaged):
            assert isinstance(other, Salvaged)
            assert one.event.envelope == other.event.envelope
            assert plain(one.event.payload) == plain(other.event.payload)
        else:
            assert one == other
    assert any(isinstance(one, Trouble) for one in once)
