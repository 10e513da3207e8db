"""Failures that other logs and stores have had in public, each with the small input that shows it.

Goal: what went wrong elsewhere does not go wrong here. Method: the state that their users found is
made, and what must hold is asserted. Most such states are among those that the other files of this
folder list; here are the ones that are not.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pytest

from fmemory_segments import Erasure, Log, LogError, LogReason, PosixFileSystem, verify_store
from fmemory_segments._header import SEGMENT_HEADER_BYTES
from fmemory_segments._walk import WINDOW_BYTES
from fmemory_segments.errors import LogCorrupt, LogWriteFailed, StoreFull
from tests.crash.disk import QuickFileSystem
from tests.crash.faults import FailingDisk, Fault
from tests.crash.programs import Ledger, Runner, facts_of, judge
from tests.segments.log_tools import (
    Crash,
    contents,
    damage_findings,
    events_only,
    files_of,
    opens,
    put,
    say,
    segments_of,
    small_store,
)


def torn_store(path: Path, kept_bytes: int) -> list[object]:
    """A store whose last batch was cut by a crash before anybody was told; what it held before."""
    small_store(path, events=4)
    before = opens(path, read_only=True)
    assert isinstance(before, list)
    tip = (path / "TIP").read_bytes()
    with Log.open(path) as log:
        start = log._core.active.end
        say(log, b"the last", b"batch")
    (path / "TIP").write_bytes(tip)
    segment = segments_of(path)[-1]
    segment.write_bytes(segment.read_bytes()[: start + kept_bytes])
    return before


@pytest.mark.parametrize("kept_bytes", [1, 8, 63, 64, 65, 150, 200])
def test_append_after_a_stub_joins_nothing_to_it(tmp_path: Path, kept_bytes: int) -> None:
    before = torn_store(tmp_path, kept_bytes)
    with Log.open(tmp_path) as log:
        seq = say(log, b"after the stub").last_seq
    found = opens(tmp_path)
    assert isinstance(found, list) and isinstance(before[1], int)
    assert (found[1], seq) == (before[1] + 1, before[1] + 1)
    assert events_only(found, before[1]) == events_only(before, before[1])
    assert not damage_findings(tmp_path)


@pytest.mark.parametrize("kept_bytes", [1, 65, 150])
def test_zeros_a_broken_witness_and_left_locks_together_hide_nothing(
    tmp_path: Path, kept_bytes: int
) -> None:
    before = torn_store(tmp_path, kept_bytes)
    segment = segments_of(tmp_path)[-1]
    segment.write_bytes(segment.read_bytes() + bytes(1_206))
    (tmp_path / "TIP").write_bytes(bytes(100))
    (tmp_path / "COMPACT.LOCK").touch()
    (tmp_path / "tmp" / f"new-{'0' * 16}").write_bytes(b"half")
    assert opens(tmp_path, read_only=True) == before
    assert opens(tmp_path) == before


def spoil_nothing(_: Path) -> None:
    """The store as it is."""


def put_tail(path: Path, tail: bytes) -> None:
    """Bytes in place of what the writer filled ahead."""
    with Log.open(path, read_only=True) as log:
        end = log._core.active.end
    segment = segments_of(path)[-1]
    segment.write_bytes(segment.read_bytes()[:end] + tail)


def tear(path: Path) -> None:
    """An append that a crash cut short."""
    put_tail(path, b"half of a frame")


def damage(path: Path) -> None:
    """One bit of what was acknowledged."""
    segment = segments_of(path)[0]
    content = bytearray(segment.read_bytes())
    content[300] ^= 4
    segment.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "is_damage"), [(spoil_nothing, False), (tear, False), (damage, True)]
)
def test_reader_writer_and_verify_have_one_verdict(
    tmp_path: Path, spoil: Callable[[Path], None], is_damage: bool
) -> None:
    store = tmp_path / "store"
    small_store(store, events=4)
    spoil(store)
    verdicts = [bool(damage_findings(store))]
    for read_only in (True, False):
        shutil.copytree(store, tmp_path / str(read_only))
        verdicts.append(isinstance(opens(tmp_path / str(read_only), read_only=read_only), LogError))
    assert verdicts == [is_damage] * 3


@pytest.mark.parametrize("size", [1, 7, 8, 511, 512, 513, 4_096, 8_192, 300_000])
@pytest.mark.parametrize("filler", ["zeros", "garbage"])
def test_tail_of_any_size_is_cut_and_hides_nothing(tmp_path: Path, size: int, filler: str) -> None:
    small_store(tmp_path, events=4)
    before = opens(tmp_path)
    put_tail(tmp_path, bytes(size) if filler == "zeros" else Random(size).randbytes(size))
    (tmp_path / "TIP").unlink()
    assert opens(tmp_path) == before


def test_verify_names_the_file_whichever_segment_it_is(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_bytes_max=900) as log:
        for number in range(12):
            put(log, number, 2)
    segments = segments_of(tmp_path)
    assert len(segments) >= 4
    for segment in segments:
        content = segment.read_bytes()
        spoiled = bytearray(content)
        spoiled[SEGMENT_HEADER_BYTES + 150] ^= 1
        segment.write_bytes(spoiled)
        found = [one for one in verify_store(PosixFileSystem(), tmp_path) if one.damage]
        assert {one.file for one in found} == {segment.name}
        segment.write_bytes(content)


def test_seqs_go_on_after_everything_was_deleted_compacted_and_killed(tmp_path: Path) -> None:
    run = Runner(tmp_path, PosixFileSystem())
    for name in ("put", "put", "roll", "delete", "delete", "delete", "compact"):
        run.run(name)
    head = run.open().refresh()
    run.forget()
    with Log.open(tmp_path) as log:
        assert log.refresh() == head
        assert say(log, b"next").first_seq == head + 1


def full_disk(path: Path, call: int) -> tuple[set[str], bool]:
    """Names of files that a compaction on a disk that is full from a call on took away."""
    fs = FailingDisk()
    run = Runner(path, fs)
    for name in ("batch", "roll", "delete"):
        run.run(name)
    before = set(files_of(path))
    fs.count, fs.fault = 0, Fault("ENOSPC", call, for_ever=True)
    failed = isinstance(run.try_run("compact"), (StoreFull, LogWriteFailed))
    fs.fault = None
    gone = before - set(files_of(path)) if failed else set()
    run.forget()
    return gone, failed


def test_compaction_that_finds_no_room_removes_no_file(tmp_path: Path) -> None:
    failures = 0
    for call in range(1, 90, 3):
        gone, failed = full_disk(tmp_path / str(call), call)
        assert gone == set(), f"call {call}"
        failures += failed
    assert failures > 10


def test_segment_that_lost_its_header_is_no_new_log(tmp_path: Path) -> None:
    """A last segment of a header alone is a clean end; one of no bytes at all is none of ours."""
    with Log.open(tmp_path, segment_bytes_max=900) as log:
        for number in range(6):
            put(log, number, 2)
        expected = contents(log)
        starts = log._core.active.base_seq
    content = segments_of(tmp_path)[-1].read_bytes()
    (tmp_path / "TIP").unlink()
    segments_of(tmp_path)[-1].write_bytes(content[:SEGMENT_HEADER_BYTES])
    found = opens(tmp_path)
    assert isinstance(found, list)
    assert events_only(found, starts - 1) == events_only(expected, starts - 1)
    segments_of(tmp_path)[-1].write_bytes(b"")
    files = files_of(tmp_path)
    with pytest.raises(LogCorrupt) as caught:
        Log.open(tmp_path)
    assert caught.value.reason is LogReason.SEGMENT_HEADER
    assert files_of(tmp_path) == files


@pytest.mark.parametrize("call", range(1, 100, 9))
def test_compaction_that_ended_half_way_is_resumed_with_what_came_since(
    tmp_path: Path, call: int
) -> None:
    fs = FailingDisk()
    run = Runner(tmp_path, fs)
    for name in ("batch", "roll", "batch", "delete"):
        run.run(name)
    fs.count, fs.fault = 0, Fault("crash", call, for_ever=True)
    with suppress(Crash):
        run.run("compact")
    fs.fault = None
    run.forget()
    for name in ("put", "delete", "delete", "compact", "put"):
        run.run(name)
    run.close()
    with Log.open(tmp_path) as log:
        assert judge(run.ledger, facts_of(log)) == ""
    assert len(run.ledger.erased) == 3


@pytest.mark.parametrize("off", [-16, -8, 0, 8])
@pytest.mark.parametrize("windows", [1, 2])
def test_frames_that_end_at_a_border_of_the_reading_window_are_all_there(
    tmp_path: Path, windows: int, off: int
) -> None:
    with Log.open(tmp_path) as log:
        empty = say(log, b"").last_seq
        at = log._core.active.end
        say(log, b"")
        frame = log._core.active.end - at
        wanted = windows * WINDOW_BYTES + SEGMENT_HEADER_BYTES + off
        say(log, bytes(wanted - log._core.active.end - frame))
        assert abs(log._core.active.end - wanted) <= 16
        for number in range(3):
            say(log, b"%d" % number)
        expected = contents(log)
    assert opens(tmp_path, read_only=True) == opens(tmp_path) == expected
    assert empty == 1


def test_segment_that_shrinks_under_a_reader_is_an_error_with_a_name(tmp_path: Path) -> None:
    """Nothing is mapped, so there is no signal that ends the process."""
    small_store(tmp_path)
    with Log.open(tmp_path, read_only=True) as log:
        head = log.refresh()
        os.truncate(segments_of(tmp_path)[-1], SEGMENT_HEADER_BYTES + 8)
        with pytest.raises(LogError):
            log.payloads(range(1, head + 1))


def test_follower_whose_watcher_hears_nothing_gets_everything_by_looking(tmp_path: Path) -> None:
    with (
        Log.open(tmp_path) as log,
        Log.open(tmp_path, read_only=True) as reader,
        mock.patch.object(reader._watcher, "subscribe", lambda _: lambda: None),
    ):
        reader.watch(lambda: None)
        seen = 0
        for number in range(20):
            say(log, b"%d" % number)
            head = reader.refresh()
            assert [one.seq for one in reader.envelopes(seen, head)] == [number + 1]
            seen = head


def test_reader_of_a_log_that_appears_byte_by_byte_sees_whole_batches_only(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with Log.open(source) as log:
        say(log, b"one", b"two")
        put(log, 1, 2)
        ends = {0, 2, 3}
        expected = facts_of(log)
        end = log._core.active.end
    content = segments_of(source)[-1].read_bytes()[:end]
    target.mkdir()
    file = target / segments_of(source)[-1].name
    file.write_bytes(content[:SEGMENT_HEADER_BYTES])
    with Log.open(target, fs=QuickFileSystem(), read_only=True) as reader:
        heads = set()
        for size in range(SEGMENT_HEADER_BYTES, end + 1, 3):
            file.write_bytes(content[:size])
            heads.add(reader.refresh())
        file.write_bytes(content)
        heads.add(reader.refresh())
        assert heads == ends
        assert facts_of(reader) == expected


def test_error_at_a_write_is_not_forgotten_by_a_clean_close(tmp_path: Path) -> None:
    """What a failed sync left in doubt is settled by the next one who opens, whoever closed."""
    fs = FailingDisk()
    run = Runner(tmp_path, fs)
    run.run("put")
    log = run.open()
    fs.hook = lambda name, _: fail(name)
    with pytest.raises(LogError):
        say(log, b"in doubt")
    fs.hook = lambda *_: None
    log.close()
    with Log.open(tmp_path) as again:
        assert "written anew" in " ".join(again.health().notices)


def fail(name: str) -> None:
    """As a hook: every fdatasync fails."""
    if name == "datasync":
        raise OSError(errno.EIO, "Input/output error")


def test_erasure_that_names_what_came_later_is_refused(tmp_path: Path) -> None:
    """A choice rests on one frozen seq: rows that came since are not its business."""
    with Log.open(tmp_path) as log:
        put(log, 1)
        put(log, 2)
        facts = facts_of(log)
        with pytest.raises(LogError):
            log.compact(Erasure(1, np.array([2 << 16], np.uint64), np.array([], np.uint64)))
        assert log.refresh() == 2
        assert judge(Ledger(tuple(facts)), facts_of(log), lost=False) == ""
