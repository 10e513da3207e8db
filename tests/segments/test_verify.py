"""`verify` names the event, and the record, whose byte was changed, and edits that fit together.

Goal: what was done to a store behind its back is named down to the event. Method: bytes are changed
in every payload; frames with right checksums are left out, repeated and put in another order by a
forger who knows the format; whole stores are rolled back or replaced, against a pinned head.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import msgspec
import pytest

from fmemory_segments import (
    Blob,
    Head,
    Log,
    LogReason,
    PosixFileSystem,
    Rows,
    StoredEvent,
    verify_store,
)
from fmemory_segments._batch import finish, payload_extent, prepare_stored
from fmemory_segments._frame import frame_bytes
from fmemory_segments._frames import read_metas
from fmemory_segments._header import SegmentHeader, pack_header
from fmemory_segments.errors import LogCorrupt
from fmemory_segments.finding import Finding
from fmemory_segments.pinned import Pinned
from tests.segments.event_strategies import SALT, chain_of
from tests.segments.log_tools import (
    FailingFileSystem,
    files_of,
    put,
    say,
    segments_of,
    small_store,
)


def findings(path: Path, pinned: Pinned = None) -> list[Finding]:
    return verify_store(PosixFileSystem(), path, pinned)


def events_of(path: Path) -> list[StoredEvent]:
    with Log.open(path, read_only=True) as log:
        head = log.refresh()
        return [
            StoredEvent(envelope, payload)
            for envelope, payload in zip(
                log.envelopes(0, head), log.payloads(range(1, head + 1)), strict=True
            )
        ]


def payload_places(path: Path) -> list[tuple[Path, int, int, StoredEvent]]:
    """Segment, offset and size of every payload, with its event."""
    found = []
    events = events_of(path)
    with Log.open(path, read_only=True) as log:
        for segment in log._core.segments:
            index = segment.index
            for number, batch in enumerate(
                read_metas(log._core, segment, range(index.frame_count))
            ):
                start = index.frame_offset(number) + batch.header.data_start
                for at, meta in enumerate(batch.events):
                    offset, size = payload_extent(meta)
                    event = events[batch.header.first_seq + at - 1]
                    found.append((segment.path, start + offset, size, event))
    return found


def test_healthy_store_has_no_findings(tmp_path: Path) -> None:
    small_store(tmp_path, events=8, segment_bytes_max=1_500)
    with Log.open(tmp_path) as log:
        assert log.verify(log.head()) == []
        assert log.verify(log.head(3)) == []
        assert log.verify(Head(0, bytes(32))) == []


@pytest.mark.parametrize("segment_bytes_max", [1_500, 1 << 20])
def test_every_changed_payload_byte_names_its_event_and_record(
    tmp_path: Path, segment_bytes_max: int
) -> None:
    small_store(tmp_path, events=6, segment_bytes_max=segment_bytes_max)
    for path, start, size, event in payload_places(tmp_path):
        content = path.read_bytes()
        for offset in range(start, start + size, 3):
            changed = bytearray(content)
            changed[offset] ^= 0x40
            path.write_bytes(changed)
            (finding, *_) = [one for one in findings(tmp_path) if one.damage]
            path.write_bytes(content)
            assert finding.file == path.name
            assert finding.reason in (LogReason.ROW_CHECKSUM, LogReason.DATA_CHECKSUM)
            if finding.first_seq == finding.last_seq:
                assert finding.first_seq == event.envelope.seq
            else:  # Zeros between payloads belong to no event.
                assert "zeros between" in finding.message
            if finding.reason is LogReason.ROW_CHECKSUM:
                assert finding.key == key_at(event, offset - start)


def key_at(event: StoredEvent, offset: int) -> str:
    """The record whose note or vector covers an offset of the payload."""
    rows = event.payload
    assert isinstance(rows, Rows)
    notes_start = 16 * len(rows)
    matrix = notes_start + len(rows.notes) + 7 & -8
    if offset >= matrix:
        row = (offset - matrix) // rows.vectors.strides[0]
    else:
        row = int(rows.note_offsets.searchsorted(offset - notes_start, "right")) - 1
    return event.envelope.keys[row]


def test_two_changed_bytes_are_two_findings(tmp_path: Path) -> None:
    small_store(tmp_path, events=8)
    places = payload_places(tmp_path)
    path = places[0][0]
    content = bytearray(path.read_bytes())
    for _, start, _, event in (places[1], places[4]):
        content[start + 3] ^= 1
        assert event
    path.write_bytes(content)
    seqs = [finding.first_seq for finding in findings(tmp_path) if finding.damage]
    assert seqs == [2, 5]


def test_unreadable_header_names_the_events_behind_it(tmp_path: Path) -> None:
    small_store(tmp_path, events=8)
    with Log.open(tmp_path, read_only=True) as log:
        offset = log._core.active.index.frame_offset(2)
        first, last = 4, 4
    path = segments_of(tmp_path)[0]
    content = bytearray(path.read_bytes())
    content[offset + 20] ^= 1
    path.write_bytes(content)
    (finding,) = [one for one in findings(tmp_path) if one.damage]
    assert finding.reason is LogReason.FRAME_CHECKSUM
    assert (finding.first_seq, finding.last_seq) == (first, last)


# A forger who knows the format


def forge(path: Path, events: list[StoredEvent], *, base_seq: int = 1) -> Path:
    """A store of one segment with these events in this order, with right checksums."""
    path.mkdir()
    (path / "LOCK").touch()
    header = SegmentHeader(bytes(16), 1, base_seq, 0, 0, bytes(32), SALT)
    frames = b""
    prev = 0
    offset = 128
    for event in events:
        finished = finish(
            prepare_stored([event]),
            first_seq=event.envelope.seq,
            recorded_at_ns=event.envelope.recorded_at_ns,
            synced_to=event.envelope.seq - 1,
            prev_frame_bytes=prev,
            salt=SALT,
            offset=offset,
        )
        frames += b"".join(finished.buffers)
        prev = frame_bytes(finished.frames[-1].batch.header)
        offset = finished.end
    (path / "seg-00000000000000000001-000000.log").write_bytes(pack_header(header) + frames)
    return path


@pytest.fixture
def events(tmp_path: Path) -> list[StoredEvent]:
    path = tmp_path / "source"
    with Log.open(path, clock=lambda: 7) as log:
        for number in range(6):
            say(log, b"word %d" % number)
    return events_of(path)


def chain(events: list[StoredEvent]) -> Head:
    return Head(len(events), chain_of(events))


def test_forged_copy_of_the_same_events_is_fine(tmp_path: Path, events: list[StoredEvent]) -> None:
    path = forge(tmp_path / "forged", events)
    assert findings(path, chain(events)) == []


@pytest.mark.parametrize(
    ("order", "first_seq", "last_seq"),
    [
        ([0, 1, 3, 4, 5], 3, 3),  # one is missing
        ([0, 1, 2, 1, 3, 4, 5], 2, 3),  # one is repeated
        ([0, 1, 3, 2, 4, 5], 3, 3),  # two have changed places
    ],
)
def test_missing_repeated_and_reordered_frames_are_named(
    tmp_path: Path, events: list[StoredEvent], order: list[int], first_seq: int, last_seq: int
) -> None:
    path = forge(tmp_path / "forged", [events[number] for number in order])
    (finding, *_) = findings(path, chain(events))
    assert finding.reason is LogReason.FRAME_ORDER
    assert (finding.first_seq, finding.last_seq) == (first_seq, last_seq)
    with pytest.raises(LogCorrupt) as caught:
        Log.open(path, read_only=True)
    assert caught.value.reason is LogReason.FRAME_ORDER


def test_edited_event_with_right_checksums_is_found_by_a_pinned_head(
    tmp_path: Path, events: list[StoredEvent]
) -> None:
    edited = list(events)
    edited[2] = StoredEvent(events[2].envelope, Blob(b"other", bytes(16)))
    path = forge(tmp_path / "forged", edited)
    assert findings(path) == []
    (finding,) = findings(path, chain(events))
    assert finding.reason is LogReason.PINNED_HEAD
    assert findings(path, chain(events[:2])) == []


def test_rolled_back_store_is_found_by_a_pinned_head(tmp_path: Path) -> None:
    path = tmp_path / "store"
    small_store(path)
    shutil.copytree(path, tmp_path / "old")
    with Log.open(path) as log:
        say(log, b"newer")
        pinned = log.head()
    with Log.open(tmp_path / "old", read_only=True) as log:
        before = log.head()
    assert findings(tmp_path / "old") == []
    (finding,) = findings(tmp_path / "old", pinned)
    assert finding.reason is LogReason.PINNED_HEAD
    assert (finding.first_seq, finding.last_seq) == (1, pinned.seq)
    (finding,) = findings(tmp_path / "old", [before, pinned])
    assert (finding.first_seq, finding.last_seq) == (pinned.seq, pinned.seq)


def test_segment_of_an_older_copy_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Log.open(path) as log:
        put(log, 1)
        old = segments_of(path)[0].read_bytes()
        put(log, 2)
    segments_of(path)[0].write_bytes(old)
    (finding,) = [one for one in findings(path) if one.damage]
    assert finding.reason is LogReason.ACKNOWLEDGED_LOSS
    assert (finding.first_seq, finding.last_seq) == (2, 2)


def test_edited_event_of_a_sealed_segment_is_found_by_the_chain(tmp_path: Path) -> None:
    """The forger gives an event new bytes and right CRCs, but the SEAL keeps the chain."""
    path = tmp_path / "store"
    with Log.open(path, segment_bytes_max=1_200) as log:
        for number in range(12):
            say(log, b"word %02d" % number)
    segment = segments_of(path)[0]
    with Log.open(path, read_only=True) as log:
        salt = log._core.segments[0].header.salt
        offset = log._core.segments[0].index.frame_offset(0)
        (batch,) = read_metas(log._core, log._core.segments[0], (0,))
        (payload,) = log.payloads([1])
        assert isinstance(payload, Blob)
    edited = StoredEvent(batch.envelope(0), Blob(b"WORD 00", payload.nonce))
    finished = finish(
        prepare_stored([edited]),
        first_seq=1,
        recorded_at_ns=batch.header.time_ns,
        synced_to=0,
        prev_frame_bytes=0,
        salt=salt,
        offset=offset,
    )
    frame = b"".join(finished.buffers)
    content = segment.read_bytes()
    segment.write_bytes(content[:offset] + frame + content[offset + len(frame) :])
    reasons = [finding.reason for finding in findings(path)]
    assert LogReason.CHAIN in reasons


# A store in use, and one that cannot be read


def test_verify_beside_a_writer_finds_nothing(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_bytes_max=20_000, durability="os") as log:
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                put(log, number, 3)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        found = [findings(tmp_path) for _ in range(15)]
        stop.set()
        writer.join()
        assert found == [[]] * 15
        assert log.verify(log.head()) == []


def test_verify_changes_nothing_and_needs_no_store_that_opens(tmp_path: Path) -> None:
    small_store(tmp_path, segment_bytes_max=1_500)
    segment = segments_of(tmp_path)[0]
    segment.write_bytes(b"x" + segment.read_bytes()[1:])
    files = files_of(tmp_path)
    found = findings(tmp_path)
    assert found[0].reason is LogReason.SEGMENT_HEADER
    assert files_of(tmp_path) == files


@pytest.mark.parametrize("path", ["missing", "empty"])
def test_verify_of_no_store_says_so(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    (finding,) = findings(tmp_path / path)
    assert finding.reason is LogReason.MISSING


def test_unreadable_bytes_are_a_finding(tmp_path: Path) -> None:
    small_store(tmp_path, events=8, segment_bytes_max=1_000)
    calls = FailingFileSystem()
    verify_store(calls, tmp_path)
    for number in range(4, calls.count):
        failing = FailingFileSystem(lambda _, count, number=number: count >= number)  # type: ignore[misc]
        try:
            found = verify_store(failing, tmp_path)
        except OSError as error:
            assert "read" in str(error)
            continue
        assert {finding.reason for finding in found} & {
            LogReason.READ_FAILED,
            LogReason.LOCK_TIMEOUT,
        }, number


def test_torn_tail_is_told_and_is_no_damage(tmp_path: Path) -> None:
    small_store(tmp_path)
    tip = (tmp_path / "TIP").read_bytes()
    with Log.open(tmp_path) as log:
        say(log, b"x" * 100, b"y" * 100)
        end = log._core.active.end
        head = log.refresh()
    (tmp_path / "TIP").write_bytes(tip)
    segment = segments_of(tmp_path)[0]
    segment.write_bytes(segment.read_bytes()[: end - 8])
    (finding,) = findings(tmp_path)
    assert (finding.reason, finding.damage) == (LogReason.TORN_TAIL, False)
    assert finding.first_seq == head - 1


def test_wrong_revision_with_right_checksums_is_named(
    tmp_path: Path, events: list[StoredEvent]
) -> None:
    edited = list(events)
    envelope = msgspec.structs.replace(events[3].envelope, revision=9)
    edited[3] = StoredEvent(envelope, events[3].payload)
    path = forge(tmp_path / "forged", edited)
    (finding, *_) = findings(path)
    assert (finding.reason, finding.first_seq) == (LogReason.FRAME_CONTENT, 4)
    with pytest.raises(LogCorrupt) as caught:
        Log.open(path, read_only=True)
    assert caught.value.reason is LogReason.FRAME_CONTENT
