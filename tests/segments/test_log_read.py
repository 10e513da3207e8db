"""Reading takes few calls, holds no lock, and gives memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fmemory_segments import (
    Blob,
    Envelope,
    Erased,
    Erasure,
    Log,
    Payload,
    RowRun,
    Rows,
)
from fmemory_segments.errors import (
    UnknownEvent,
)
from tests.segments.log_tools import (
    RECORDS,
    SESSION,
    WatchedFileSystem,
    blob_draft,
    next_revision,
    put,
    say,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "store") as opened:
        yield opened


def test_refresh_reads_eight_bytes_when_nothing_is_new(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs) as log:
        put(log, 1)
        log.refresh()
        fs.calls.clear()
        assert log.refresh() == 1
        assert fs.calls == ["pread"]


def test_fold_after_a_commit_reads_nothing(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs) as log:
        for number in range(5):
            head = put(log, number).last_seq
            fs.calls.clear()
            (run,) = log.fold(head - 1, head)
            assert isinstance(run, RowRun) and run.ids == [f"r{number}-0"]
            assert fs.calls == []


def test_neighbouring_rows_come_in_two_reads(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs) as log:
        seq = put(log, 1, 600, dim=16).last_seq
        locs = (np.uint64(seq) << np.uint64(16)) + np.arange(20, 520, dtype=np.uint64)
        log.rows(locs)
        fs.calls.clear()
        log.rows(locs)
        assert len(fs.calls) == 2
        fs.calls.clear()
        log.rows(locs, notes=False)
        assert fs.calls == ["preadv"]


def test_near_rows_of_many_events_come_in_one_read(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs, durability="os") as log:
        for number in range(100):
            put(log, number, dim=16)
        locs = np.arange(1, 101, dtype=np.uint64) << np.uint64(16)
        first = log.rows(locs)
        fs.calls.clear()
        again = log.rows(locs)
        assert fs.calls == ["preadv"]
        assert first.notes == again.notes


def test_pages_are_memory_of_their_own(log: Log) -> None:
    for number in range(30):
        put(log, number, dim=8)
    locs = np.arange(1, 31, dtype=np.uint64) << np.uint64(16)
    for chosen in (locs, locs[:1], locs[::-1].copy()):
        first, again = log.rows(chosen), log.rows(chosen)
        first.blocks[0][:] = 7.0
        assert not (again.blocks[0] == 7.0).any()
        assert again.blocks[0].flags.writeable


def test_envelopes_hold_no_lock_between_items(log: Log) -> None:
    for number in range(4):
        put(log, number)
    events = log.envelopes(0, 4)
    assert next(events).seq == 1
    put(log, 9)
    assert [event.seq for event in events] == [2, 3, 4]


@pytest.mark.parametrize("backwards", [False, True])
def test_envelopes_of_a_stream_in_pages(tmp_path: Path, backwards: bool) -> None:
    with Log.open(tmp_path, segment_bytes_max=2_000) as log:
        for number in range(12):
            put(log, number)
            say(log, b"a", b"b")
        head = log.refresh()
        whole = [event for event in log.envelopes(0, head) if event.stream == SESSION]
        assert len(whole) == 24
        found: list[Envelope] = []
        after, upto = 0, head
        while page := list(
            log.envelopes(after, upto, stream=SESSION, backwards=backwards, limit=5)
        ):
            found += page
            after, upto = (after, page[-1].seq - 1) if backwards else (page[-1].seq, upto)
        assert found == (whole[::-1] if backwards else whole)


@pytest.mark.parametrize("loc", [0, 1 << 16, (2 << 16) + 1, 3 << 16, 99 << 16])
@pytest.mark.parametrize("count", [1, 20])
def test_loc_without_a_row_is_refused(log: Log, loc: int, count: int) -> None:
    say(log, b"no row at seq 1")
    put(log, 1)
    with pytest.raises(UnknownEvent):
        log.rows(np.array([2 << 16] * (count - 1) + [loc], np.uint64))


@pytest.mark.parametrize("seq", [0, 2, -1])
def test_seq_without_an_event_is_refused(log: Log, seq: int) -> None:
    say(log, b"one")
    with pytest.raises(UnknownEvent):
        log.payloads([seq])
    with pytest.raises(UnknownEvent):
        log.head(seq - 1 if seq < 1 else seq)


def test_events_are_found_by_their_id(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_bytes_max=1_500) as log:
        for number in range(10):
            log.commit(
                lambda txn, number=number: [  # type: ignore[misc]
                    blob_draft(next_revision(txn, SESSION), bytes(400), f"id{number}")
                ]
            )
        put(log, 1)
    with Log.open(tmp_path) as log:
        assert log.stats().segment_count > 2
        assert [log.find(SESSION, f"id{number}") for number in range(10)] == list(range(1, 11))
        assert log.find(SESSION, "id10") is None
        assert log.find(RECORDS, "id1") is None


def test_usage_counts_events_and_bytes(log: Log) -> None:
    put(log, 1, 4)
    say(log, b"x", b"y")
    found = {(one.stream, one.type): one for one in log.usage()}
    assert found[SESSION, "note.taken"].event_count == 2
    assert found[SESSION, "note.taken"].payload_bytes == 2 * 24
    assert found[RECORDS, "records_put"].event_count == 1


def test_near_payloads_come_in_one_read(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs, durability="os") as log:
        for number in range(50):
            say(log, b"word %d" % number)
        fs.calls.clear()
        found = log.payloads(range(1, 51))
        assert fs.calls == ["pread"]
    assert [payload.data for payload in found if isinstance(payload, Blob)] == [
        b"word %d" % number for number in range(50)
    ]


def plain(payload: Payload) -> object:
    """What a payload holds, to be compared."""
    if isinstance(payload, Rows):
        return payload.notes, payload.vectors.tobytes(), payload.nonces
    return payload


def test_many_payloads_of_all_kinds_are_those_of_one_by_one(log: Log) -> None:
    for number in range(30):
        if number % 3:
            say(log, b"word %d" % number * (1 + number * 40), durability="os")
        else:
            put(log, number, 2)
    log.compact(Erasure(30, np.array([], np.uint64), np.array([2, 14], np.uint64)))
    say(log, b"behind the compaction")
    seqs = [31, *range(30, 0, -1), 7, 7]

    many = log.payloads(seqs)

    assert [plain(one) for one in many] == [plain(log.payloads([seq])[0]) for seq in seqs]
    assert [one.data for one in many[:1] if isinstance(one, Blob)] == [b"behind the compaction"]
    erased = {seq for seq, one in zip(seqs, many, strict=True) if isinstance(one, Erased)}
    assert erased == {2, 14}


def test_envelopes_of_scattered_frames_share_reads(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs, durability="os") as log:
        for number in range(40):
            say(log, b"between")
            put(log, number)
        list(log.fold(0, 80))
        fs.calls.clear()

        found = list(log.envelopes(0, 80, stream=RECORDS))

    assert [one.seq for one in found] == list(range(2, 81, 2))
    assert fs.calls.count("pread") <= 2


def mixed_segments(log: Log) -> int:
    """Puts among session events, in several sealed segments; the head."""
    for number in range(24):
        if number % 3 == 1:
            put(log, number, 2)
        else:
            say(log, *[b"%d" % number] * (1 + number % 4), durability="os")
    assert sum(segment.is_sealed for segment in log._core.segments) >= 2
    return log.refresh()


def one_by_one(log: Log, head: int) -> list[Envelope]:
    """All envelopes, each read by itself from its frame."""
    return [event for seq in range(head) for event in log.envelopes(seq, seq + 1, limit=1)]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_envelopes_of_any_range_are_those_read_one_by_one(
    tmp_path: Path, is_compacted: bool
) -> None:
    with Log.open(tmp_path, segment_bytes_max=2_500) as log:
        head = mixed_segments(log)
        if is_compacted:
            log.compact(Erasure(head, np.array([2 << 16], np.uint64), np.array([1], np.uint64)))
            say(log, b"behind the compaction")
            head += 1
        known = one_by_one(log, head)
        assert [event.seq for event in known] == list(range(1, head + 1))
        for after in range(head):
            for upto in range(after + 1, head + 1):
                for stream in (None, SESSION, RECORDS):
                    wanted = [
                        event for event in known[after:upto] if stream in (None, event.stream)
                    ]
                    assert list(log.envelopes(after, upto, stream=stream)) == wanted


def test_a_damaged_seal_hides_no_envelope(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_bytes_max=2_500) as log:
        head = mixed_segments(log)
        known = one_by_one(log, head)
        for segment in log._core.segments:
            if segment.is_sealed:
                with segment.path.open("r+b") as file:
                    file.seek(segment.frames_end + 80)
                    file.write(b"\xff" * 40)
        assert list(log.envelopes(0, head)) == known
        assert list(log.envelopes(0, head, stream=SESSION)) == [
            event for event in known if event.stream == SESSION
        ]
        assert {finding.reason.value for finding in log.verify()} == {"seal"}


def test_envelopes_of_a_sealed_segment_read_its_seal_and_the_frames_of_records(
    tmp_path: Path,
) -> None:
    with Log.open(tmp_path, segment_frames_max=200, durability="os") as log:
        for _ in range(190):
            say(log, b"word" * 4_000)
        for number in range(20):
            put(log, number)
        head = log.refresh()
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs, read_only=True) as log:
        list(log.envelopes(0, 1))
        fs.calls.clear()
        found = list(log.envelopes(0, 200))
        assert [event.seq for event in found] == list(range(1, 201))
        assert fs.calls.count("pread") <= 8
        assert head == 210
