"""Repairs bring back every intact event, and claim nothing else.

Goal: whatever happens to the bytes of a store, what a repair gives back was written, under the
number it had, and what is missing is named. Method: small stores of each kind are damaged in every
class of ways (flipped bits, zeroed sectors, cuts, files that are gone), repaired, and compared with
what they held; `repair_tools.check_memory` has all that must hold. To break it, a repair would
have to believe bytes that nothing proves, or to drop something in silence.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

import fmemory
from fmemory import Conflict, ContractError, JournalBackend, LogCorrupt, NewEvent, NotFound
from fmemory.journal import Erased
from fmemory_segments import LogReason
from tests.fmemory.repair_tools import (
    KINDS,
    LOST,
    bytes_at,
    changed,
    events_of,
    file_of,
    fill,
    repaired,
    salvaged,
    small_store,
    target_of,
)

ROUNDS = int(os.environ.get("FMEMORY_TEST_ROUNDS", "1"))
STEP = max(1, 61 // ROUNDS)
SECTOR = 512


def used_bytes(path: Path) -> int:
    """The size of a file without the zeros at its end."""
    return len(path.read_bytes().rstrip(b"\0"))


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_store_of_any_kind_comes_back_whole_into_any_kind(
    kind: str, target: str, tmp_path: Path
) -> None:
    source, events = small_store(kind, tmp_path)

    result = repaired(source, tmp_path, events, kind=target)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())
    assert result.notices == ()
    assert result.is_whole
    assert result.head_matches is not False


@pytest.mark.parametrize("kind", ["segments", "filesystem"])
def test_a_source_that_names_its_head_is_compared_with_it(kind: str, tmp_path: Path) -> None:
    source, events = small_store(kind, tmp_path)

    assert salvaged(source, events).head_matches is True


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_anywhere_costs_at_most_what_its_checksum_covers(
    kind: str, tmp_path: Path
) -> None:
    source, events = small_store(kind, tmp_path, rounds=1)
    path = file_of(kind, tmp_path)
    whole = path.read_bytes()

    step = STEP * (6 if kind == "sqlite" else 1)
    for at in range(0, used_bytes(path), step):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        result = salvaged(source, events)
        assert result.lost_events + len(result.damaged) <= 1, at
        assert result.is_end_known, at


@pytest.mark.parametrize("kind", KINDS)
def test_zeroed_sectors_leave_what_lies_beside_them(kind: str, tmp_path: Path) -> None:
    source, events = small_store(kind, tmp_path)
    path = file_of(kind, tmp_path)
    whole = path.read_bytes()

    for at in range(0, used_bytes(path), SECTOR):
        path.write_bytes(whole[:at] + bytes(min(SECTOR, len(whole) - at)) + whole[at + SECTOR :])
        result = salvaged(source, events)
        assert result.salvaged + result.lost_events == len(events), at


@pytest.mark.parametrize("kind", ["segments", "filesystem"])
def test_a_file_cut_anywhere_loses_what_was_behind_the_cut_and_counts_it(
    kind: str, tmp_path: Path
) -> None:
    source, events = small_store(kind, tmp_path)
    path = file_of(kind, tmp_path)
    whole = path.read_bytes()

    for size in range(0, used_bytes(path), STEP):
        path.write_bytes(whole[:size])
        if size == 0 and kind == "filesystem":
            continue  # An empty file is none of the store: it never had its name.
        result = salvaged(source, events)
        assert result.salvaged + result.lost_events == len(events), size


def test_a_database_cut_anywhere_says_so_where_nothing_tells_how_many_are_lost(
    tmp_path: Path,
) -> None:
    source, events = small_store("sqlite", tmp_path)
    path = file_of("sqlite", tmp_path)
    whole = path.read_bytes()

    for size in range(4096, len(whole), 2048):
        path.write_bytes(whole[:size])
        result = salvaged(source, events)
        is_counted = result.salvaged + result.lost_events == len(events)
        assert is_counted or not result.is_end_known, size
        assert is_counted or not result.is_whole, size


@pytest.mark.parametrize("kind", ["segments", "filesystem"])
def test_garbage_anywhere_is_never_taken_for_an_event(kind: str, tmp_path: Path) -> None:
    source, events = small_store(kind, tmp_path, rounds=4)
    path = file_of(kind, tmp_path)
    whole = path.read_bytes()
    seed = 7
    print(f"seed {seed}")
    random = Random(seed)
    for _ in range(60 * ROUNDS):
        data = bytearray(whole)
        for _ in range(random.choice((1, 3, 20))):
            at, size = random.randrange(used_bytes(path)), random.choice((1, 2, 8, 64))
            data[at : at + size] = random.randbytes(size)
        path.write_bytes(data[: len(whole)])
        result = salvaged(source, events)
        assert result.salvaged + result.lost_events == len(events) or not result.is_end_known
        path.write_bytes(whole)


def test_the_header_of_a_segment_is_not_needed_to_read_it(tmp_path: Path) -> None:
    source, events = small_store("segments", tmp_path)
    changed(file_of("segments", tmp_path), lambda data: data.__setitem__(slice(128), bytes(128)))

    result = salvaged(source, events)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())


def test_the_header_of_a_file_of_lines_is_not_needed_to_read_it(tmp_path: Path) -> None:
    source, events = small_store("filesystem", tmp_path)
    (tmp_path / "source" / "README.txt").unlink()
    changed(file_of("filesystem", tmp_path), lambda data: data.__setitem__(slice(90), b"x" * 90))

    result = salvaged(source, events)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())


def test_neither_header_nor_schema_of_a_database_is_needed_to_read_it(tmp_path: Path) -> None:
    source, events = small_store("sqlite", tmp_path)
    changed(file_of("sqlite", tmp_path), lambda data: data.__setitem__(slice(4096), bytes(4096)))

    result = salvaged(source, events)

    assert (result.salvaged, result.lost, result.damaged) == (len(events), (), ())


def test_a_record_whose_bytes_are_damaged_is_lost_alone(tmp_path: Path) -> None:
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        source, events = small_store(kind, folder)
        path = file_of(kind, folder)
        place = path.read_bytes().index(b"text 1")
        changed(path, lambda data, at=place: data.__setitem__(slice(at, at + 4), b"abcd"))  # type: ignore[misc]

        result = salvaged(source, events)

        assert result.lost == ()
        key = "lost-6-1" if kind == "filesystem" else "n1-1"
        assert [one.keys for one in result.damaged] == [(key,)], kind
        assert not result.is_whole


def test_a_message_whose_bytes_are_damaged_keeps_its_envelope(tmp_path: Path) -> None:
    for kind in ("segments", "sqlite"):
        folder = tmp_path / kind
        folder.mkdir()
        source, events = small_store(kind, folder)
        path = file_of(kind, folder)
        place = path.read_bytes().index(b"word 1")
        changed(path, lambda data, at=place: data.__setitem__(slice(at, at + 4), b"abcd"))  # type: ignore[misc]

        result = salvaged(source, events)

        assert result.lost == ()
        assert [(one.keys, one.is_payload_lost) for one in result.damaged] == [((), True)], kind


def test_lost_events_take_the_streams_and_revisions_that_are_missing(tmp_path: Path) -> None:
    source, events = small_store("filesystem", tmp_path, rounds=4)
    path = file_of("filesystem", tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[4:7]  # Events 4 to 6: one of each stream.
    path.write_bytes(b"".join(lines))

    result = repaired(source, tmp_path, events)

    (gap,) = result.lost
    assert (gap.first_seq, gap.last_seq) == (4, 6)
    with fmemory.open(tmp_path / "repaired") as memory:
        lost = [one for one, _ in events_of(memory) if one.type == "event_lost"]
    assert sorted((one.stream, one.revision) for one in lost) == sorted(
        (one.stream, one.revision) for one, _ in events[3:6]
    )
    assert sorted(gap.streams) == sorted({one.stream for one, _ in events[3:6]})


def test_lost_events_that_no_stream_misses_go_to_a_stream_of_their_own(tmp_path: Path) -> None:
    source, events = small_store("filesystem", tmp_path)
    path = file_of("filesystem", tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))

    result = repaired(source, tmp_path, events)

    assert result.lost_events == 2
    with fmemory.open(tmp_path / "repaired") as memory:
        placeholders = events_of(memory)[len(events) - 2 : len(events)]
    assert [(one.stream, one.revision, payload) for one, payload in placeholders] == [
        (("lost",), 1, Erased(LOST)),
        (("lost",), 2, Erased(LOST)),
    ]


def test_the_stream_of_lost_events_is_never_one_that_was_used(tmp_path: Path) -> None:
    target = target_of("filesystem", tmp_path, "source")
    with fmemory.open(target) as memory:
        for number in range(3):
            memory.append(("lost",), [NewEvent("mine.said", number)])
        events = events_of(memory)
    path = file_of("filesystem", tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))

    repaired(target, tmp_path, events)

    with fmemory.open(tmp_path / "repaired") as memory:
        assert events_of(memory)[2][0].stream == ("lost", "2")


def test_verify_of_the_new_store_names_exactly_what_was_lost(tmp_path: Path) -> None:
    source, events = small_store("filesystem", tmp_path)
    path = file_of("filesystem", tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    with fmemory.open(":memory:") as memory:
        result = fmemory.repair(source, memory)

        findings = memory.verify()

    assert [(one.first_seq, one.last_seq) for one in result.lost] == [(3, 3)]
    assert [(one.reason, one.first_seq) for one in findings] == [(LogReason.NOT_DELETED, 3)]
    assert "lost" in findings[0].message
    assert len(events) == result.salvaged + 1


def test_deletions_among_the_lost_are_warned_of(tmp_path: Path) -> None:
    source, events = small_store("filesystem", tmp_path)
    path = file_of("filesystem", tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))

    with fmemory.open(":memory:") as memory:
        result = fmemory.repair(source, memory)
        found = memory.get(memory.get_request(["n0-0"]))

    assert found.missing == (), "its deletion was the last event"
    assert any("deletions" in one for one in result.notices)
    assert len(events) == result.salvaged + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_may_not_be_written_to_is_enough(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    source, events = small_store(kind, folder)
    places = [folder, *folder.rglob("*")]
    for place in places:
        place.chmod(0o500 if place.is_dir() else 0o400)
    try:
        result = salvaged(source, events)
    finally:
        for place in places:
            place.chmod(0o700 if place.is_dir() else 0o600)

    assert result.salvaged == len(events)


def test_a_target_that_holds_anything_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    source, _ = small_store("segments", tmp_path)
    for kind in KINDS:
        target = target_of(kind, tmp_path, f"used-{kind}")
        with fmemory.open(target) as memory:
            fill(memory)
        before = bytes_at(target)
        with pytest.raises(Conflict):
            fmemory.repair(source, target)
        assert bytes_at(target) == before

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(Conflict):
        fmemory.repair(source, tmp_path / "other")


def test_a_target_beside_the_events_of_the_source_is_refused(tmp_path: Path) -> None:
    source, _ = small_store("segments", tmp_path)
    before = bytes_at(source)

    for target in (source, f"{source}/new", f"sqlite:///{source}/new.db", str(tmp_path)):
        with pytest.raises((ContractError, Conflict)):
            fmemory.repair(source, target)

    assert bytes_at(source) == before


def test_a_place_without_a_store_is_refused_and_no_target_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", tmp_path / "nothing", f"sqlite:///{tmp_path}/no.db"):
        with pytest.raises(NotFound):
            fmemory.repair(source, tmp_path / "new")

    with pytest.raises(ContractError):
        fmemory.repair(":memory:", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_repaired_store_that_is_damaged_again_is_repaired_again(tmp_path: Path) -> None:
    source, events = small_store("filesystem", tmp_path, rounds=3)
    path = file_of("filesystem", tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    repaired(source, tmp_path, events, kind="filesystem", name="once")
    once = tmp_path / "once"
    with fmemory.open(once) as memory:
        events = events_of(memory)
    path = next(once.glob("events-*"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))

    result = repaired(f"jsonl:{once}", tmp_path, events, name="twice")

    assert [(one.first_seq, one.last_seq) for one in result.lost] == [(2, 2)]


@pytest.mark.parametrize("kind", ["segments", "filesystem"])
def test_what_a_crash_cut_short_is_told_and_is_no_loss(kind: str, tmp_path: Path) -> None:
    source, events = small_store(kind, tmp_path)
    path = file_of(kind, tmp_path)
    if kind == "segments":
        end = used_bytes(path) + 64
        changed(path, lambda data: data.__setitem__(slice(end, None), b"torn" * 10))
    else:
        changed(path, lambda data: data.extend(b'{"seq":9,"batch":[1,2],"time":"20'))

    result = salvaged(source, events)

    assert result.is_whole
    assert any("cut short" in one for one in result.notices)


def test_a_store_without_its_witness_is_repaired(tmp_path: Path) -> None:
    source, events = small_store("segments", tmp_path)
    (tmp_path / "source" / "TIP").unlink()

    assert salvaged(source, events).is_whole


def test_what_was_lost_ends_to_be_a_finding_when_it_is_deleted(tmp_path: Path) -> None:
    source, events = small_store("segments", tmp_path)
    path = file_of("segments", tmp_path)
    place = path.read_bytes().index(b"text 1")
    changed(path, lambda data: data.__setitem__(place, 0))

    with fmemory.open(":memory:") as memory:
        fmemory.repair(source, memory)
        with pytest.raises(LogCorrupt):
            memory.get(memory.get_request(["n1-1"]))
        others = memory.get(memory.get_request(["n1-0"])).records
        findings = memory.verify()
        memory.delete(memory.delete_request(["n1-1"]))
        after = memory.verify()

    assert [one.note.text for one in others] == ["text 0"]
    assert [one.reason for one in findings] == [LogReason.NOT_DELETED]
    assert after == ()
    assert len(events) == 8


def test_a_file_that_never_held_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a store at all " * 1000)
    with closing(sqlite3.connect(tmp_path / "other.db")) as database, database:
        database.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")

    for name in ("notes.txt", "other.db"):
        with pytest.raises(NotFound):
            fmemory.repair(tmp_path / name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_past_of_what_was_salvaged_can_be_looked_at(tmp_path: Path) -> None:
    source, events = small_store("filesystem", tmp_path, rounds=3)
    path = file_of("filesystem", tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[6]  # Event 6, a put of two records.
    path.write_bytes(b"".join(lines))

    with fmemory.open(":memory:") as memory:
        result = fmemory.repair(source, memory)
        counts = [
            memory.at(seq).count(memory.count_request()).count for seq in range(1, len(events))
        ]

    assert [(one.first_seq, one.streams) for one in result.lost] == [(6, (("records",),))]
    assert counts == [0, 0, 1, 1, 1, 1, 1, 1, 4, 4]


def test_progress_counts_every_event(tmp_path: Path) -> None:
    source, events = small_store("segments", tmp_path)
    told: list[int] = []

    with fmemory.open(":memory:") as memory:
        fmemory.repair(source, memory, progress=told.append)

    assert sum(told) == len(events)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_bounded_by_a_batch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fmemory import repairing

    monkeypatch.setattr(repairing, "BATCH_EVENTS_MAX", 3)
    source, events = small_store(kind, tmp_path, rounds=4)
    sizes: list[int] = []

    with fmemory.open(":memory:") as memory:
        result = fmemory.repair(source, memory, progress=sizes.append)

    assert max(sizes) == 3
    assert result.salvaged == len(events)


def test_an_open_memory_is_a_source_too() -> None:
    with fmemory.open(":memory:") as source, fmemory.open(":memory:") as target:
        fill(source)
        result = fmemory.repair(source, target)
        assert events_same(source, target)

    assert result.head_matches is True


def events_same(one: JournalBackend, other: JournalBackend) -> bool:
    """Whether two memories have the same head."""
    return one.head() == other.head()


def test_the_result_is_plain_data(tmp_path: Path) -> None:
    source, _ = small_store("filesystem", tmp_path)
    shutil.copytree(tmp_path / "source", tmp_path / "copy")
    path = file_of("filesystem", tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with fmemory.open(":memory:") as memory:
        result = fmemory.repair(source, memory)

    assert fmemory.RepairResult.from_dict(result.to_dict()) == result
    lost = result.to_dict()["lost"]
    assert isinstance(lost, list) and len(lost) == 1
