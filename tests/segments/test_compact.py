"""A compaction changes what is on disk and nothing that anyone reads.

Goal: P9. Method: random histories of puts, words and deletes, compacted at random moments, are
compared event by event, fold by fold and row by row with what they were, with the dead data left
out: in the handle that compacts, in handles opened before, in another process, after reopening, and
by iterators that stand in the middle. What would have to break: a file removed that somebody needs,
a generation that is not noticed, an event that is skipped or told twice where files change.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmemory_segments import FORGOTTEN, Blob, Draft, Erased, Log, LogReason, Rows
from fmemory_segments import _choose as choose_module
from fmemory_segments._catalog import list_store
from fmemory_segments._choose import Share, choose, outputs_of
from fmemory_segments.errors import (
    InvalidDraft,
    LogCorrupt,
    ReadOnlyLog,
    RowErased,
    StoreFull,
    UnknownEvent,
)
from tests.segments.compaction_tools import (
    Story,
    erasure_at,
    everything,
    holds_bytes,
    open_log,
)
from tests.segments.log_tools import (
    ROUNDS,
    WatchedFileSystem,
    damage_findings,
    files_of,
    put,
    say,
    segments_of,
)

SEEDS = range(int(os.environ.get("FMEMORY_TEST_SEED", "1")), 4 * ROUNDS + 1)


@pytest.fixture
def small_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits at which a short history becomes several new segments."""
    monkeypatch.setattr(choose_module, "OUTPUT_BYTES", 6_000)
    monkeypatch.setattr(choose_module, "FRAGMENT_BYTES", 1_500)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("small_outputs")
def test_random_histories_are_the_same_before_and_after(tmp_path: Path, seed: int) -> None:
    """Digest of a full scan before = after, as a deleted range once came back elsewhere."""
    story = Story(seed)
    writer = open_log(tmp_path)
    early, reader = open_log(tmp_path), open_log(tmp_path, read_only=True)
    for round_ in range(4):
        story.go_on(writer if round_ % 2 else early, 12)
        reader.refresh()
        head = writer.refresh()
        erasure = story.erasure(head)
        expected = everything(writer, erasure)
        compactor = early if round_ % 2 else writer
        done = compactor.compact(erasure)
        assert done.pending == ()
        for log in (writer, early, reader):
            assert everything(log) == expected
        with open_log(tmp_path, read_only=bool(round_ % 2)) as again:
            assert everything(again) == expected
        assert not damage_findings(tmp_path)
    assert writer.stats().manifest_no == 4
    for log in (writer, early, reader):
        log.close()


def test_compaction_of_nothing_writes_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        done = log.compact(erasure_at(0))
        assert (done.erased_rows, done.erased_events, done.notices) == (0, 0, ())
        assert log.stats().manifest_no == 0
        assert [file.name for file in segments_of(tmp_path)] == [
            "seg-00000000000000000001-000000.log"
        ]


def test_events_behind_the_choice_are_left_where_they_are(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(20):
            say(log, b"word %d " % number * 30)
        sealed = segments_of(tmp_path)
        log.compact(erasure_at(0))
        assert segments_of(tmp_path) == sealed
        log.compact(erasure_at(1))
        assert segments_of(tmp_path)[1:] == sealed[1:]


def test_the_second_compaction_finds_nothing_to_do(tmp_path: Path) -> None:
    story = Story(3)
    with open_log(tmp_path) as log:
        story.go_on(log, 20)
        erasure = story.erasure(log.refresh())
        first = log.compact(erasure)
        files = files_of(tmp_path)
        second = log.compact(erasure)
        assert (first.erased_rows, first.erased_events) == (
            len(story.dead_locs),
            len(story.dead_seqs),
        )
        assert (second.erased_rows, second.erased_events) == (0, 0)
        assert second.bytes_before == second.bytes_after == first.bytes_after
        assert files_of(tmp_path) == files


def test_what_is_dead_is_in_no_file_and_the_rest_is(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        say(log, b"the secret word" * 4)
        for number in range(40):
            say(log, b"word %d of many others" % number)
        say(log, b"the open word")
        done = log.compact(erasure_at(log.refresh(), seqs=[1]))
        assert done.pending == ()
        assert done.erased_events == 1
        assert holds_bytes(tmp_path, b"the secret word") == []
        assert len(holds_bytes(tmp_path, b"the open word")) == 1
        [payload] = log.payloads([1])
        assert isinstance(payload, Erased)


def test_dead_rows_are_told_by_name_and_the_others_of_their_event_are_read(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        put(log, 1, 3)
        before = log.payloads([1])[0]
        log.compact(erasure_at(1, locs=[(1 << 16) | 1]))
        with pytest.raises(RowErased):
            log.row((1 << 16) | 1)
        with pytest.raises(RowErased):
            log.rows(np.array([1 << 16, (1 << 16) | 1], np.uint64))
        after = log.payloads([1])[0]
        assert isinstance(before, Rows) and isinstance(after, Rows)
        assert after.erased is not None
        assert after.erased.tolist() == [False, True, False]
        assert after.vectors[[0, 2]].tobytes() == before.vectors[[0, 2]].tobytes()
        [event] = log.erased(0, 1)
        assert event.rows is not None
        assert event.rows.tolist() == [False, True, False]


def test_quarantine_goes_with_what_was_erased_and_not_without(tmp_path: Path) -> None:
    quarantine = tmp_path / "quarantine"
    with open_log(tmp_path) as log:
        say(log, b"kept", b"gone")
        quarantine.mkdir()
        name = "seg-00000000000000000001-000000-000000000128-0a1b2c3d.tail"
        (quarantine / name).write_bytes(b"gone")
        (quarantine / "notes.txt").write_text("mine")
        log.compact(erasure_at(2))
        assert (quarantine / name).exists()
        done = log.compact(erasure_at(2, seqs=[2]))
        assert f"quarantine/{name} was removed" in done.notices
        assert [file.name for file in quarantine.iterdir()] == ["notes.txt"]


def test_a_deleted_key_stays_deleted_when_only_the_delete_is_compacted(tmp_path: Path) -> None:
    """A merge once dropped a tombstone whose record lay in a file that was not merged."""
    with open_log(tmp_path) as log:
        put(log, 1)
        log.compact(erasure_at(1))
        log.commit(
            lambda _: [
                Draft(("records",), 2, "records_deleted", Blob(b""), keys=("r1-0",), count=1)
            ]
        )
        expected = everything(log)
        log.compact(erasure_at(2))
        assert everything(log) == expected
    with open_log(tmp_path) as log:
        types = [envelope.type for envelope in log.envelopes(0, 2)]
        assert types == ["records_put", "records_deleted"]


def test_what_was_appended_after_the_choice_is_kept_whole(tmp_path: Path) -> None:
    """A resumed compaction with a newer watermark once lost rows: the choice is frozen here."""
    story = Story(11)
    with open_log(tmp_path) as log:
        story.go_on(log, 15)
        frozen = story.erasure(log.refresh())
        story.go_on(log, 15)
        expected = everything(log, frozen)
        log.compact(frozen)
        assert everything(log) == expected
        newer = story.erasure(log.refresh())
        expected = everything(log, newer)
        log.compact(newer)
        assert everything(log) == expected


# What is refused, and what is told


def test_compaction_of_a_log_open_for_reading_is_refused(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        say(log, b"one")
    with open_log(tmp_path, read_only=True) as log, pytest.raises(ReadOnlyLog):
        log.compact(erasure_at(1))


@pytest.mark.parametrize(
    ("erasure", "error"),
    [
        (erasure_at(9), UnknownEvent),
        (erasure_at(4, locs=[(1 << 16) | 3]), UnknownEvent),
        (erasure_at(4, locs=[2 << 16]), UnknownEvent),
        (erasure_at(4, locs=[0]), UnknownEvent),
        (erasure_at(4, seqs=[1]), UnknownEvent),
        (erasure_at(4, seqs=[0]), UnknownEvent),
        (erasure_at(1, seqs=[2]), InvalidDraft),
        (erasure_at(0, locs=[1 << 16]), InvalidDraft),
    ],
)
def test_an_erasure_of_what_is_not_there_is_refused_and_nothing_written(
    tmp_path: Path, erasure: object, error: type[Exception]
) -> None:
    with open_log(tmp_path) as log:
        put(log, 1, 3)
        say(log, b"two")
        put(log, 3)
        say(log, b"four")
        segments = {file.name: file.read_bytes() for file in segments_of(tmp_path)}
        with pytest.raises(error):
            log.compact(erasure)  # type: ignore[arg-type]
        assert {file.name: file.read_bytes() for file in segments_of(tmp_path)} == segments
        assert error.__name__ in log.health().compaction_failure


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    class Full(WatchedFileSystem):
        def free_bytes(self, path: Path) -> int:
            super().free_bytes(path)
            return 1_000

    fs = Full()
    with open_log(tmp_path, fs=fs) as log:
        for number in range(20):
            put(log, number, 2)
        segments = {file.name: file.read_bytes() for file in segments_of(tmp_path)}
        with pytest.raises(StoreFull) as caught:
            log.compact(erasure_at(20))
        assert caught.value.reason is LogReason.NO_SPACE
        assert {file.name: file.read_bytes() for file in segments_of(tmp_path)} == segments
        assert "StoreFull" in log.health().compaction_failure
        put(log, 21)


def test_room_is_asked_for_what_lives_and_not_for_what_is_dead(tmp_path: Path) -> None:
    """A nearly full disk is where compaction is needed most."""
    with open_log(tmp_path) as log:
        for _ in range(4):
            say(log, bytes(2 << 20))
        say(log, b"alive")
        free = 3 << 20

        class Tight(WatchedFileSystem):
            def free_bytes(self, path: Path) -> int:
                super().free_bytes(path)
                return free

        log._core.fs = Tight()
        with pytest.raises(StoreFull):
            log.compact(erasure_at(5))
        done = log.compact(erasure_at(5, seqs=[1, 2, 3, 4]))
        assert done.erased_events == 4


def test_one_segment_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    """A cleaner once died at one bad file, and nobody noticed until the disk was full."""
    with open_log(tmp_path) as log:
        for number in range(30):
            say(log, b"word %02d " % number * 20)
        damaged = segments_of(tmp_path)[1]
        content = bytearray(damaged.read_bytes())
        content[content.index(b"word") + 1] ^= 1
        damaged.write_bytes(content)
        with pytest.raises(LogCorrupt) as caught:
            log.compact(erasure_at(30, seqs=[1, 30]))
        assert caught.value.path == damaged
        assert "LogCorrupt" in log.health().compaction_failure
        assert damaged.name in log.health().compaction_failure
        assert damaged.exists()
        assert isinstance(log.payloads([1])[0], Erased)
        assert isinstance(log.payloads([30])[0], Erased)
        assert [name.generation for name in list_store(log._core.fs, tmp_path).segments] == [
            1,
            0,
            1,
            0,
        ]
        assert log.stats().manifest_no == 1
        say(log, b"writes go on")
    with open_log(tmp_path) as log:
        assert log.refresh() == 31


def test_nothing_is_forgotten_where_a_segment_cannot_be_read(tmp_path: Path) -> None:
    """A deletion that is forgotten while what it deleted stays would bring that back."""
    with open_log(tmp_path) as log:
        for number in range(30):
            say(log, b"word %02d " % number * 20)
        damaged = segments_of(tmp_path)[1]
        content = bytearray(damaged.read_bytes())
        content[content.index(b"word") + 1] ^= 1
        damaged.write_bytes(content)
        taken = erasure_at(30, seqs=[1, 29])
        every = np.arange(1, 31, dtype=np.uint64)
        with pytest.raises(LogCorrupt):
            log.compact(replace(taken, forget=every, ends=np.full(30, 30, np.uint64)))
        assert FORGOTTEN not in {one.type for one in log.envelopes(0, 30)}
        assert [type(one) for one in log.payloads([1, 2, 29])] == [Erased, Blob, Erased]


def test_health_and_stats_know_of_the_last_compaction(tmp_path: Path) -> None:
    with open_log(tmp_path, clock=lambda: 77) as log:
        say(log, b"one")
        assert log.health().compaction_tried_ns is None
        assert log.stats().compacted_at_ns is None
        log.compact(erasure_at(1))
        assert (log.health().compaction_tried_ns, log.health().compaction_failure) == (77, "")
        assert (log.stats().compacted_at_ns, log.stats().manifest_no) == (77, 1)


# What is rewritten


def test_compacted_segments_without_new_dead_data_are_not_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_module, "OUTPUT_BYTES", 6_000)
    monkeypatch.setattr(choose_module, "FRAGMENT_BYTES", 100)
    with open_log(tmp_path) as log:
        for number in range(60):
            say(log, b"word %02d " % number * 20)
        log.compact(erasure_at(60))
        before = [file.name for file in segments_of(tmp_path)][:-1]
        assert len(before) >= 3
        say(log, b"more")
        log.compact(erasure_at(61, seqs=[1]))
        after = [file.name for file in segments_of(tmp_path)]
        assert before[1:] == after[1 : len(before)]
        assert before[0] != after[0]


def test_small_fragments_become_one(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(9):
            say(log, b"word %d" % number)
            log.compact(erasure_at(number + 1))
        assert len(segments_of(tmp_path)) == 2
        assert log.stats().segment_count == 2


@pytest.mark.usefixtures("small_outputs")
def test_an_output_holds_no_more_than_its_limit_unless_one_event_does(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        for number in range(30):
            say(log, bytes(20_000 if number == 9 else 500))
        log.compact(erasure_at(30))
        listed = list_store(log._core.fs, tmp_path).manifest
        assert listed is not None
        sizes = {one.base_seq: one.last_seq - one.base_seq + 1 for one in listed.segments}
        assert sizes[10] == 1
        assert all(count <= 12 for count in sizes.values())


def _share(base_seq: int, weights: list[int], *, compacted: bool = True, dead: int = 0) -> Share:
    from fmemory_segments._core import Segment
    from fmemory_segments._files import OpenFile
    from fmemory_segments._header import SegmentFlag, SegmentHeader

    flags = SegmentFlag.COMPACTED if compacted else 0
    header = SegmentHeader(bytes(16), 1, base_seq, 1, 0, bytes(32), 0, flags)
    segment = Segment.begin(Path(f"{base_seq}"), header, OpenFile(-1, lambda _: None), 0)
    return Share(segment, np.array(weights, np.int64), len(weights), 0, dead, 0)


SMALL, LARGE = [1_000], [20_000_000]


@pytest.mark.parametrize(
    ("shares", "groups"),
    [
        ([(LARGE, True, 0), (LARGE, True, 0)], []),
        ([(LARGE, True, 0), (LARGE, True, 1), (LARGE, True, 0)], [[1]]),
        ([(LARGE, True, 0), (SMALL, True, 0), (LARGE, False, 0)], [[1, 2]]),
        ([(LARGE, False, 0), (SMALL, True, 0), (SMALL, True, 0)], [[0, 1, 2]]),
        ([(SMALL, True, 0)] * 3, []),
        ([(LARGE, True, 0)] + [(SMALL, True, 0)] * 4, [[1, 2, 3, 4]]),
        ([(LARGE, False, 0), (LARGE, True, 0), (LARGE, False, 0)], [[0], [2]]),
        ([([], False, 0), (LARGE, True, 0)], []),
        ([(LARGE, True, 0), ([], False, 0), (LARGE, False, 0)], [[1, 2]]),
    ],
)
def test_what_goes_together(
    shares: list[tuple[list[int], bool, int]], groups: list[list[int]]
) -> None:
    made = [
        _share(number + 1, weights, compacted=compacted, dead=dead)
        for number, (weights, compacted, dead) in enumerate(shares)
    ]
    numbers = {id(share): number for number, share in enumerate(made)}
    assert [[numbers[id(share)] for share in group] for group in choose(made)] == groups


def test_outputs_are_cut_between_events_at_the_limit() -> None:
    limit = choose_module.OUTPUT_BYTES
    group = [_share(1, [limit // 2, limit // 2, limit // 2]), _share(4, [2 * limit, 1, 1])]
    assert list(outputs_of(group)) == [(1, 2), (3, 3), (4, 4), (5, 6)]


def test_stats_count_what_was_never_compacted(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_frames_max=2) as log:
        for _ in range(7):
            say(log, b"word")
        assert (log.stats().segment_count, log.stats().fragment_count) == (4, 3)
        log.compact(erasure_at(7))
        assert log.stats().fragment_count == 0
