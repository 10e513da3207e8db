"""Writing compacted segments: what goes in, what must not, and how they are opened and read."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import (
    Envelope,
    Erased,
    Log,
    PosixFileSystem,
    RowRun,
    StoredEvent,
    verify_store,
)
from fmemory_segments._compacted_file import write_compacted
from fmemory_segments._header import SegmentFlag, SegmentHeader, pack_header, unpack_header
from fmemory_segments.compaction import Erasure
from fmemory_segments.errors import LogReason, RowErased, UnknownEvent, UnsupportedFormat
from fmemory_segments.event import UInt64Array
from tests.segments.compacted_tools import (
    NOTHING,
    STORE_ID,
    blob,
    compact_events,
    compacted_store,
    erase_rows,
    erased,
    erasure_of,
    events_of,
    list_segments,
)
from tests.segments.compaction_tools import plain_bytes
from tests.segments.event_strategies import (
    SALT,
    STREAMS,
    History,
    chain_of,
    histories,
    make_rows,
    same_payload,
)
from tests.segments.log_tools import (
    RECORDS,
    SESSION,
    FailingFileSystem,
    WatchedFileSystem,
    put,
    say,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

targets = st.sampled_from([1, 300, 4 << 20])
PUT = "records_put"


@given(histories(), st.data())
def test_what_was_erased_before_is_not_counted_again(history: History, data: st.DataObject) -> None:
    early = sorted(data.draw(st.sets(st.sampled_from(history.erased_locs or [0]))))
    first = erased(
        history.events, erasure_of(dataclasses.replace(history, erased_locs=early, erased_seqs=[]))
    )
    with tempfile.TemporaryDirectory() as folder:
        _, once = compact_events(Path(folder), history.events, erasure_of(history))
    with tempfile.TemporaryDirectory() as folder:
        _, twice = compact_events(Path(folder), first, erasure_of(history))
    assert once.chain == twice.chain == chain_of(history.events)
    assert once.erased_rows == len(set(history.erased_locs))
    assert once.erased_events == len(set(history.erased_seqs))
    assert twice.erased_rows == len(set(history.erased_locs) - set(early))


@given(histories(), targets)
def test_equal_events_make_equal_files(history: History, target: int) -> None:
    found = []
    for events in (history.events, erased(history.events, erasure_of(history))):
        with tempfile.TemporaryDirectory() as folder:
            file, written = compact_events(
                Path(folder),
                events,
                erasure_of(history),
                ledger_bytes_target=target,
                block_bytes_target=target,
            )
            found.append(file.read_bytes())
            assert written.size_bytes == len(found[-1])
    assert found[0] == found[1]


def test_no_byte_of_what_was_erased_is_in_the_file(tmp_path: Path) -> None:
    notes = [b"note-%04d-%s" % (row, b"secret" if row % 2 else b"public") for row in range(200)]
    rows = msgspec.structs.replace(
        make_rows(1, 200),
        notes=b"".join(notes),
        note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
        embedding_ids=tuple("hidden" if row % 2 else "shown" for row in range(200)),
    )
    keys = tuple(f"k{row}" for row in range(200))
    events = [
        StoredEvent(Envelope(1, STREAMS[0], 1, PUT, 5, keys=keys), rows),
        StoredEvent(Envelope(2, STREAMS[3], 1, "note.taken", 6), blob(2, b"whispered")),
    ]
    odd = np.array([1 << 16 | row for row in range(1, 200, 2)], np.uint64)
    file, _ = compact_events(tmp_path, events, Erasure(2, odd, np.array([2], np.uint64)))
    content = plain_bytes(file)
    assert b"public" in content and b"shown" in content and content.count(b"k199") == 2
    for gone in (b"secret", b"hidden", b"whispered"):
        assert gone not in content
    for row in range(1, 200, 2):
        assert rows.vectors[row].tobytes() not in content
        assert rows.nonces[16 * row : 16 * row + 16] not in content


def test_later_events_are_left_alone(tmp_path: Path) -> None:
    events = [
        StoredEvent(Envelope(seq, STREAMS[0], seq, PUT, seq, keys=("a", "b")), make_rows(seq, 2))
        for seq in (1, 2)
    ]
    everything = np.array([1 << 16, 1 << 16 | 1, 2 << 16, 2 << 16 | 1], np.uint64)
    (written,) = compacted_store(tmp_path, events, Erasure(1, everything, NOTHING.seqs))
    assert written.erased_rows == 2
    with Log.open(tmp_path, read_only=True) as log:
        assert log.row(2 << 16)[1].tolist() == events[1].payload.vectors[0].tolist()  # type: ignore[union-attr]


def test_a_log_goes_on_behind_compacted_segments(tmp_path: Path) -> None:
    events = [
        StoredEvent(Envelope(1, RECORDS, 1, PUT, 5, keys=("a", "b")), make_rows(1, 2)),
        StoredEvent(
            Envelope(2, ("session", "s1"), 1, "note.taken", 6, event_id="x"), blob(2, b"y")
        ),
    ]
    compacted_store(tmp_path, events, NOTHING)
    with Log.open(tmp_path) as log:
        put(log, 7, 3)
        say(log, b"more")
        assert [info.revision for info in log.streams()] == [2, 2]
        page = log.rows(np.array([1 << 16 | 1, 3 << 16, 3 << 16 | 2], np.uint64))
        assert len(page.embedding_ids) == 3
        head = log.head()
    with Log.open(tmp_path, read_only=True) as log:
        assert log.head() == head
        assert log.find(SESSION, "x") == 2
        assert log.verify(head) == []


# Batches that hold what was erased elsewhere


def imported(path: Path) -> list[StoredEvent]:
    """A log of batches with a row and a payload that were erased before they were imported."""
    rows = erase_rows(make_rows(1, 3), [False, True, False])
    one = erase_rows(make_rows(2, 1), [True])
    events = [
        StoredEvent(Envelope(1, STREAMS[0], 1, PUT, 5, keys=("a", "b", "c")), rows),
        StoredEvent(Envelope(2, STREAMS[3], 1, "note.taken", 6), Erased(bytes(range(32)))),
        StoredEvent(Envelope(3, STREAMS[0], 2, PUT, 7, keys=("d",)), one),
        StoredEvent(Envelope(4, STREAMS[0], 3, PUT, 8, keys=("e", "f")), make_rows(3, 2)),
    ]
    with Log.open(path) as log:
        log.import_exact(events)
    return events


@pytest.mark.parametrize("is_sealed", [False, True])
def test_erased_rows_of_batches_are_refused_and_named(tmp_path: Path, is_sealed: bool) -> None:
    imported(tmp_path)
    with Log.open(tmp_path, segment_bytes_max=1 if is_sealed else 1 << 20) as log:
        say(log, b"behind")
    with Log.open(tmp_path, read_only=True) as log:
        assert log._core.segments[0].is_sealed == is_sealed
        found = [
            (one.seq, None if one.rows is None else one.rows.tolist()) for one in log.erased(0, 9)
        ]
        assert found == [(1, [False, True, False]), (2, None), (3, [True])]
        assert [one.seq for one in log.erased(1, 2)] == [2]
        assert [one.seq for one in log.erased(0, 9, STREAMS[0])] == [1, 3]
        for loc in (1 << 16 | 1, 3 << 16):
            with pytest.raises(RowErased):
                log.row(loc)
            with pytest.raises(RowErased):
                log.rows(np.array([1 << 16, 1 << 16 | 2, 4 << 16, loc] * 5, np.uint64))
        with pytest.raises(RowErased):
            log.rows(np.array([1 << 16, 1 << 16 | 1, 1 << 16 | 2] * 11, np.uint64))
        assert len(log.rows(np.array([1 << 16, 4 << 16] * 9, np.uint64)).embedding_ids) == 18
        assert log.verify(log.head()) == []


def test_erased_events_of_batches_stay_erased_when_compacted(tmp_path: Path) -> None:
    events = imported(tmp_path / "batches")
    (written,) = compacted_store(tmp_path / "compacted", events, NOTHING)
    assert (written.erased_rows, written.erased_events) == (0, 0)
    with Log.open(tmp_path / "compacted", read_only=True) as log:
        assert [one.seq for one in log.erased(0, 9)] == [1, 2, 3]
        for found, wanted in zip(events_of(log), events, strict=True):
            assert same_payload(found.payload, wanted.payload)


def test_naming_erased_events_reads_nothing(tmp_path: Path) -> None:
    imported(tmp_path)
    fs = WatchedFileSystem()
    with Log.open(tmp_path, read_only=True, fs=fs) as log:
        fs.calls.clear()
        assert len(list(log.erased(0, 9))) == 3
        assert fs.calls == []


# What must not be written or opened


def events(count: int = 2) -> list[StoredEvent]:
    return [
        StoredEvent(Envelope(seq, STREAMS[3], seq, "note.taken", 10 * seq), blob(seq, b"word"))
        for seq in range(1, count + 1)
    ]


def changed(number: int, **fields: object) -> list[StoredEvent]:
    found = events()
    envelope = msgspec.structs.replace(found[number].envelope, **fields)
    found[number] = StoredEvent(envelope, found[number].payload)
    return found


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        changed(0, seq=2),
        changed(1, seq=3),
        changed(1, recorded_at_ns=9),
        changed(0, recorded_at_ns=4),
    ],
)
def test_events_that_do_not_follow_are_refused(tmp_path: Path, wrong: list[StoredEvent]) -> None:
    header = SegmentHeader(STORE_ID, 1, 1, 1, 0, bytes(32), SALT, SegmentFlag.COMPACTED)
    fs = PosixFileSystem()
    fd = fs.create_file(tmp_path / "file")
    with pytest.raises(ValueError, match="expected"):
        write_compacted(fs, fd, header, wrong, NOTHING, synced_to=0, time_ns=5)
    fs.close(fd)


@pytest.mark.parametrize(("generation", "flags"), [(0, 2), (1, 0), (1, 1)])
def test_a_header_of_another_kind_is_refused(tmp_path: Path, generation: int, flags: int) -> None:
    header = SegmentHeader(STORE_ID, 1, 1, generation, 0, bytes(32), SALT, flags)
    fs = PosixFileSystem()
    fd = fs.create_file(tmp_path / "file")
    with pytest.raises(ValueError, match="COMPACTED"):
        write_compacted(fs, fd, header, events(), NOTHING, synced_to=0, time_ns=0)
    assert fs.size(fd) == 0
    fs.close(fd)


def test_an_erasure_that_names_rows_as_a_payload_is_refused(tmp_path: Path) -> None:
    put = [StoredEvent(Envelope(1, STREAMS[0], 1, PUT, 5, keys=("a",)), make_rows(1, 1))]
    with pytest.raises(ValueError, match="without rows"):
        compact_events(tmp_path, put, Erasure(1, NOTHING.locs, np.array([1], np.uint64)))


def test_a_generation_without_a_reason_is_refused(tmp_path: Path) -> None:
    compacted_store(tmp_path, events(), NOTHING)
    (file,) = tmp_path.glob("seg-*.log")
    content = file.read_bytes()
    header = unpack_header(content)
    assert header is not None
    file.write_bytes(pack_header(header._replace(flags=0)) + content[128:])
    with pytest.raises(UnsupportedFormat) as raised:
        Log.open(tmp_path, read_only=True)
    assert raised.value.reason is LogReason.COMPACTED_STORE


@pytest.mark.parametrize("loc", [0, 1 << 16 | 2, 2 << 16, 3 << 16, 1 << 63])
def test_a_loc_without_row_is_unknown(tmp_path: Path, loc: int) -> None:
    found = [
        StoredEvent(Envelope(1, STREAMS[0], 1, PUT, 5, keys=("a", "b")), make_rows(1, 2)),
        StoredEvent(Envelope(2, STREAMS[3], 1, "note.taken", 6), blob(2, b"")),
    ]
    compacted_store(tmp_path, found, NOTHING)
    with Log.open(tmp_path, read_only=True) as log:
        for ask in (lambda: log.row(loc), lambda: log.rows(np.array([loc] * 20, np.uint64))):
            with pytest.raises(UnknownEvent):
                ask()


def puts_in_random_order(
    count: int, rows: int, dim: int = 3, *, ascending: bool = False
) -> list[StoredEvent]:
    """Puts of so many records each, in random order of time or in that of the log."""
    order = range(count * rows) if ascending else np.random.default_rng(1).permutation(count * rows)
    times = np.array(order, "<f8").reshape(count, rows)
    return [
        StoredEvent(
            Envelope(seq, STREAMS[0], seq, PUT, seq, keys=("r",) * rows),
            msgspec.structs.replace(make_rows(seq, rows, dim), timestamps=times[seq - 1]),
        )
        for seq in range(1, count + 1)
    ]


def scan_order(log: Log, erasure: Erasure) -> UInt64Array:
    """Locs of the rows that are alive, by time."""
    runs = [run for run in log.fold(0, 1 << 40) if isinstance(run, RowRun)]
    locs = np.concatenate([run.locs for run in runs])
    locs = locs[np.argsort(np.concatenate([run.timestamps for run in runs]))]
    return locs[~np.isin(locs, erasure.locs)]


def test_a_page_of_one_block_is_read_as_one_batch(tmp_path: Path) -> None:
    """Puts of one record each: neighbours in the block, not in the log."""
    compacted_store(tmp_path, puts_in_random_order(600, 1), NOTHING)
    fs = WatchedFileSystem()
    with Log.open(tmp_path, read_only=True, fs=fs) as log:
        locs = scan_order(log, NOTHING)
        log.rows(locs[:500])
        fs.calls.clear()
        log.rows(locs[50:550])
        assert fs.calls == ["preadv", "preadv"]  # vectors, notes


@pytest.mark.parametrize("dim", [0, 3])
@pytest.mark.parametrize("block_bytes_target", [1 << 12, 1 << 20])
@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("cuts", [[], [20, 50]])
@pytest.mark.parametrize("ascending", [False, True])
def test_pages_of_a_scan_are_the_rows_one_by_one(
    tmp_path: Path, ascending: bool, rows: int, cuts: list[int], block_bytes_target: int, dim: int
) -> None:
    events = puts_in_random_order(700 // rows, rows, dim, ascending=ascending)
    erased_locs = [event.envelope.seq << 16 for event in events[::9]]
    erasure = Erasure(len(events), np.array(erased_locs, np.uint64), NOTHING.seqs)
    cuts = [cut for cut in cuts if cut <= len(events)]
    compacted_store(tmp_path, events, erasure, cuts, block_bytes_target=block_bytes_target)
    with Log.open(tmp_path, read_only=True) as log:
        in_time, in_log = scan_order(log, erasure), np.sort(scan_order(log, erasure))
        single = {loc: log.row(loc) for loc in in_log.tolist()}
        for locs in (in_time, in_log, in_time):
            for start in range(0, len(locs), 90):
                part = locs[start : start + 90]
                page = log.rows(part)
                wanted = [single[loc] for loc in part.tolist()]
                assert bytes(page.notes).endswith(b"".join([note for note, _, _ in wanted]))
                assert page.embedding_ids == [name for _, _, name in wanted]
                vectors = np.concatenate(page.blocks)
                assert np.array_equal(vectors, np.array([vector for _, vector, _ in wanted]))


@pytest.mark.parametrize("rows", [1, 120])
def test_a_page_with_the_ends_of_neighbours_and_another_middle(tmp_path: Path, rows: int) -> None:
    compacted_store(tmp_path, puts_in_random_order(120 // rows, rows, ascending=True), NOTHING)
    with Log.open(tmp_path, read_only=True) as log:
        locs = scan_order(log, NOTHING)
        notes = {loc: log.row(loc)[0] for loc in locs.tolist()}
        log.rows(locs)  # Its frames are known to be right from now on.
        twice, swapped = locs.copy(), locs.copy()
        twice[60] = twice[61]
        swapped[60], swapped[61] = locs[61], locs[60]
        for page in (twice, swapped):
            wanted = b"".join([notes[loc] for loc in page.tolist()])
            assert bytes(log.rows(page).notes).endswith(wanted)


@pytest.mark.parametrize("odd", ["none", "no rows", "two rows", "erased", "longer", "no vector"])
def test_a_page_of_neighbours_with_an_odd_one_among_them(tmp_path: Path, odd: str) -> None:
    """Of events of one row each, a page is looked up by its ends: the middle counts as well."""
    # As many as a page may have that is read in three runs.
    events, count, at = puts_in_random_order(300, 1, ascending=True), 120, 150
    erasure = NOTHING
    if odd == "no rows":
        events[at - 1] = StoredEvent(Envelope(at, STREAMS[0], at, "note.taken", at), blob(at, b"x"))
    elif odd == "two rows":
        envelope = msgspec.structs.replace(events[at - 1].envelope, keys=("r", "r"))
        times = np.array([at - 1, at - 0.5])
        payload = msgspec.structs.replace(make_rows(at, 2), timestamps=times)
        events[at - 1] = StoredEvent(envelope, payload)
    elif odd == "erased":
        erasure = Erasure(300, np.array([at << 16], np.uint64), NOTHING.seqs)
    elif odd in ("longer", "no vector"):
        times = np.array([at - 1.0])
        payload = make_rows(at, 1, 4 if odd == "longer" else 0)
        payload = msgspec.structs.replace(payload, timestamps=times)
        events[at - 1] = StoredEvent(events[at - 1].envelope, payload)
    compacted_store(tmp_path, events, erasure)
    with Log.open(tmp_path, read_only=True) as log:
        lost = {"no rows": UnknownEvent, "erased": RowErased}.get(odd)
        single = {}
        for seq in range(1, 301):
            if seq != at or lost is None:
                single[seq << 16] = log.row(seq << 16)
        for _ in range(2):  # The second time all frames are known to be right.
            for start in range(1, 300 - count, 7):
                locs = [seq << 16 for seq in range(start, start + count)]
                if lost is not None and at << 16 in locs:
                    with pytest.raises(lost):
                        log.rows(np.array(locs, np.uint64))
                    continue
                page = log.rows(np.array(locs, np.uint64))
                wanted = [single[loc] for loc in locs]
                assert bytes(page.notes).endswith(b"".join([note for note, _, _ in wanted]))
                vectors = [row.tolist() for block in page.blocks for row in block]
                assert vectors == [vector.tolist() for _, vector, _ in wanted]


class Short(PosixFileSystem):
    """Writes at most so many bytes at once."""

    def pwritev(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int, /) -> int:  # type: ignore[override]
        return super().pwrite(fd, b"".join(map(bytes, buffers))[:1000], offset)

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        return super().pwrite(fd, bytes(data)[:1000], offset)


def test_short_writes_are_continued(tmp_path: Path) -> None:
    events = puts_in_random_order(100, 3)
    whole, _ = compact_events(tmp_path, events, NOTHING)
    (tmp_path / "short").mkdir()
    pieces, _ = compact_events(tmp_path / "short", events, NOTHING, fs=Short())
    assert pieces.read_bytes() == whole.read_bytes()


def test_a_disk_that_is_full_is_passed_on(tmp_path: Path) -> None:
    events = puts_in_random_order(100, 3)
    counting = FailingFileSystem()
    compact_events(tmp_path, events, NOTHING, fs=counting)
    writes = [name for name in counting.calls if name.startswith("pwrite")]
    assert len(writes) > 3
    for number in range(1, counting.count + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        failing = FailingFileSystem(lambda _, count, number=number: count == number)  # type: ignore[misc]
        with pytest.raises(OSError, match="error"):
            compact_events(folder, events, NOTHING, fs=failing)


def test_opening_reads_the_seal_alone(tmp_path: Path) -> None:
    found = [
        StoredEvent(
            Envelope(seq, STREAMS[0], seq, PUT, seq, keys=(f"r{seq}",)), make_rows(seq, 1, 512)
        )
        for seq in range(1, 101)
    ]
    file, written = compact_events(tmp_path, found, NOTHING)
    list_segments(tmp_path, [0], [written])
    read: list[int] = []

    class Counting(WatchedFileSystem):
        def pread(self, fd: int, size: int, offset: int, /) -> bytes:
            data = super().pread(fd, size, offset)
            read.append(len(data))
            return data

    with Log.open(tmp_path, read_only=True, fs=Counting()):
        assert sum(read) < file.stat().st_size / 20


def test_verify_of_a_healthy_compacted_store_finds_nothing(tmp_path: Path) -> None:
    compacted_store(tmp_path, events(6), NOTHING, [3, 5])
    assert verify_store(PosixFileSystem(), tmp_path) == []
    with Log.open(tmp_path, read_only=True) as log:
        assert [envelope.seq for envelope in log.envelopes(0, 9)] == [1, 2, 3, 4, 5, 6]
