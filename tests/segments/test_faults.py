"""The system fails, or the process ends, at any call; what was acknowledged is there afterwards.

Goal: no failure of the file system and no crash loses an acknowledged event, tears a batch, or
leaves a store that does not open. Method: pass 1 counts the calls of a piece of work, pass 2 stops
at each; short programs of all operations are for tests/crash/test_failing_calls.py. What would have
to break: an order of writes, a truncate that is missing, a repair that is not repeatable.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fmemory_segments import Log, LogReason, Rows
from fmemory_segments.errors import LogPoisoned, StoreFull
from tests.segments.log_tools import (
    Crash,
    FailingFileSystem,
    WatchedFileSystem,
    contents,
    crash_at,
    damage_findings,
    events_only,
    files_of,
    opens,
    put,
    say,
    segments_of,
    small_store,
)

SEGMENT_BYTES_MAX = 1_500
Work = Callable[[Log], list[int]]


def append_large(log: Log) -> list[int]:
    """A batch of several frames."""
    return [say(log, bytes(3 << 20), bytes(3 << 20), b"last").last_seq]


def count_calls(store: Path, work: Work, **options: int) -> int:
    """How many calls opening the store and doing the work takes."""
    fs = WatchedFileSystem()
    with Log.open(store, fs=fs, **options) as log:  # type: ignore[arg-type]
        work(log)
    return len(fs.calls)


def check_after(path: Path, old: list[object], acknowledged: int) -> None:
    """Everything acknowledged is there, batches are whole, and the store can be written again."""
    found = opens(path)
    assert isinstance(found, list), found
    head, old_head = found[1], old[1]
    assert isinstance(head, int) and isinstance(old_head, int)
    assert head >= max(acknowledged, old_head)
    assert events_only(found, old_head) == events_only(old, old_head)
    assert not damage_findings(path)
    with Log.open(path) as log:
        put(log, 999)
        assert contents(log)[1] == head + 1
    assert not damage_findings(path)


def test_crash_at_every_call_of_a_large_batch_loses_nothing_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    small_store(store, events=4)
    old = opens(store)
    assert isinstance(old, list)
    shutil.copytree(store, tmp_path / "pass1")
    calls = count_calls(tmp_path / "pass1", append_large)
    for number in range(1, calls + 1):
        copy = tmp_path / "copy"
        shutil.copytree(store, copy)
        acknowledged = 0
        log = None
        try:
            log = Log.open(copy, fs=crash_at(number))
            acknowledged = append_large(log)[-1]
        except Crash:
            pass
        abandon(log)
        check_after(copy, old, acknowledged)
        shutil.rmtree(copy)


def abandon(log: Log | None) -> None:
    """Forget a handle as the end of its process does: locks go, nothing else happens."""
    if log is not None:
        log._core.fs = WatchedFileSystem()
        log._files.close()


def test_append_goes_on_in_the_same_handle_after_a_full_disk(tmp_path: Path) -> None:
    fs = FailingFileSystem(
        lambda name, _: name == "pwritev" and is_full[0],
        lambda: OSError(errno.ENOSPC, "No space left on device"),
    )
    is_full = [False]
    with Log.open(tmp_path, fs=fs) as log:
        put(log, 1)
        before = contents(log)
        is_full[0] = True
        with pytest.raises(StoreFull) as caught:
            put(log, 2)
        assert caught.value.reason is LogReason.NO_SPACE
        assert log.health().state == "full"
        assert contents(log) == before
        is_full[0] = False
        put(log, 2)
        assert log.health().state == "ok"
    assert not damage_findings(tmp_path)


def test_append_is_poisoned_where_it_cannot_be_cut_back(tmp_path: Path) -> None:
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name in ("pwritev", "truncate"))
    log = Log.open(tmp_path, fs=fs)
    put(log, 1)
    fails[0] = True
    with pytest.raises(LogPoisoned) as caught:
        put(log, 2)
    assert caught.value.reason is LogReason.TRUNCATE_FAILED
    fails[0] = False
    for use in (log.refresh, log.head, lambda: put(log, 3), lambda: log.payloads([1])):
        with pytest.raises(LogPoisoned):
            use()
    assert log.health().state == "poisoned"
    log.close()
    assert isinstance(opens(tmp_path), list)


def test_crash_while_a_torn_tail_is_set_aside_can_be_repeated(tmp_path: Path) -> None:
    store = tmp_path / "store"
    small_store(store, events=4)
    old = opens(store)
    assert isinstance(old, list)
    tip = (store / "TIP").read_bytes()
    with Log.open(store) as log:
        say(log, b"x" * 300, b"y" * 300)
        end = log._core.active.end
    (store / "TIP").write_bytes(tip)
    segment = segments_of(store)[-1]
    segment.write_bytes(segment.read_bytes()[: end - 100])
    shutil.copytree(store, tmp_path / "pass1")
    calls = count_calls(tmp_path / "pass1", lambda _: [])
    for number in range(1, calls + 1):
        copy = tmp_path / "copy"
        shutil.copytree(store, copy)
        try:
            log = Log.open(copy, fs=crash_at(number))
            abandon(log)
        except Crash:
            pass
        found = opens(copy)
        assert found == old, number
        quarantined = list((copy / "quarantine").iterdir())
        assert any(file.stat().st_size > 300 for file in quarantined)
        shutil.rmtree(copy)


# A failed sync


def fail_sync(path: Path) -> Path:
    """A store whose last event was written, but whose sync failed; its handle is closed."""
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    log = Log.open(path, fs=fs, segment_bytes_max=SEGMENT_BYTES_MAX)
    put(log, 1, 2)
    say(log, b"safe")
    fails[0] = True
    with pytest.raises(LogPoisoned) as caught:
        say(log, b"in doubt", b"this too")
    assert caught.value.reason is LogReason.SYNC_FAILED
    assert (caught.value.first_seq, caught.value.last_seq) == (3, 4)
    fails[0] = False
    with pytest.raises(LogPoisoned):
        log.sync()
    with pytest.raises(LogPoisoned):
        say(log, b"no more")
    log.close()
    return path


def test_failed_sync_leaves_what_is_in_doubt_to_the_next_writer(tmp_path: Path) -> None:
    store = fail_sync(tmp_path / "store")
    seen = opens(store, read_only=True)
    assert isinstance(seen, list) and seen[1] == 4
    with Log.open(store) as log:
        assert contents(log) == seen
        assert [segment.name for segment in segments_of(store)] == [
            "seg-00000000000000000001-000000.log",
            "seg-00000000000000000003-000000.log",
        ]
        assert log._core.active.header.took_tail
        say(log, b"after")
    assert opens(store, read_only=True)[1] == 5  # type: ignore[index]
    assert not damage_findings(store)


def test_crash_at_every_call_of_a_move_loses_nothing(tmp_path: Path) -> None:
    store = fail_sync(tmp_path / "store")
    seen = opens(store, read_only=True)
    assert isinstance(seen, list)
    shutil.copytree(store, tmp_path / "pass1")
    calls = count_calls(tmp_path / "pass1", lambda log: [say(log, b"next").last_seq])
    for number in range(1, calls + 1):
        copy = tmp_path / "copy"
        shutil.copytree(store, copy)
        log = None
        acknowledged = 0
        try:
            log = Log.open(copy, fs=crash_at(number))
            acknowledged = say(log, b"next").last_seq
        except Crash:
            pass
        abandon(log)
        reader = opens(copy, read_only=True)
        assert isinstance(reader, list), (number, reader)
        assert events_only(reader, 4) == events_only(seen, 4), number
        check_after(copy, seen, acknowledged)
        shutil.rmtree(copy)


def test_failed_sync_of_the_first_event_moves_the_whole_segment(tmp_path: Path) -> None:
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    log = Log.open(tmp_path, fs=fs)
    fails[0] = True
    with pytest.raises(LogPoisoned):
        say(log, b"in doubt")
    log.close()
    seen = opens(tmp_path, read_only=True)
    with Log.open(tmp_path) as again:
        assert contents(again) == seen
        say(again, b"more")
    for read_only in (True, False):
        found = opens(tmp_path, read_only=read_only)
        assert isinstance(found, list) and found[1] == 2
    assert not damage_findings(tmp_path)


def test_other_handles_follow_a_moved_tail(tmp_path: Path) -> None:
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    bad = Log.open(tmp_path, fs=fs)
    say(bad, b"safe")
    other, reader = Log.open(tmp_path), Log.open(tmp_path, read_only=True)
    fails[0] = True
    with pytest.raises(LogPoisoned):
        say(bad, b"in doubt")
    assert (other.refresh(), reader.refresh()) == (2, 2)
    say(other, b"the mover")
    reader._tail._look_again_at = 0.0
    assert reader.refresh() == 3
    third = Log.open(tmp_path)
    say(third, b"one more")
    assert (other.refresh(), reader.refresh()) == (4, 4)
    assert contents(other) == contents(reader) == contents(third)
    for log in (bad, other, reader, third):
        log.close()
    assert not damage_findings(tmp_path)


def test_sync_that_succeeds_beside_a_failed_one_writes_the_tail_anew(tmp_path: Path) -> None:
    """Another descriptor got the error: what this one acknowledges must still be on disk."""
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    bad, good = Log.open(tmp_path, fs=fs), Log.open(tmp_path)
    say(bad, b"safe")
    say(good, b"written, not synced", durability="os")
    fails[0] = True
    with pytest.raises(LogPoisoned):
        bad.sync()
    assert good.sync(2) == 2
    assert good._core.active.header.took_tail
    bad.close()
    good.close()
    assert opens(tmp_path)[1] == 2  # type: ignore[index]


def test_interval_sync_that_fails_poisons_the_handle(tmp_path: Path) -> None:
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    log = Log.open(tmp_path, fs=fs, durability="interval", interval_s=0.001)
    fails[0] = True
    say(log, b"in doubt")
    log._interval._thread.join(10)  # type: ignore[union-attr]
    with pytest.raises(LogPoisoned):
        log.refresh()
    log.close()


def test_reading_calls_no_writing_function(tmp_path: Path) -> None:
    small_store(tmp_path, segment_bytes_max=SEGMENT_BYTES_MAX)
    expected = opens(tmp_path)
    files = files_of(tmp_path)

    def refuse(name: str, _: object) -> None:
        assert name not in WatchedFileSystem.WRITES, name

    with Log.open(tmp_path, fs=WatchedFileSystem(refuse), read_only=True) as log:
        assert contents(log) == expected
        assert not log.verify()
        log.stats()
    assert files_of(tmp_path) == files


def test_sync_that_fails_while_sealing_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    """The SEAL is there, and counts events whose sync failed."""
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    bad = Log.open(tmp_path, fs=fs, durability="os", segment_frames_max=3)
    reader = Log.open(tmp_path, read_only=True)
    say(bad, b"safe", durability="fsync")
    say(bad, b"in doubt")
    say(bad, b"this too")
    fails[0] = True
    with pytest.raises(LogPoisoned):
        say(bad, b"of the next segment")
    bad.close()
    seen = contents(reader)
    assert seen[1] == 3
    shutil.copytree(tmp_path, tmp_path / "copy")
    with Log.open(tmp_path) as log:
        assert contents(log) == seen
        say(log, b"after")
        reader._tail._look_again_at = 0.0
        assert reader.refresh() == 4
        assert contents(reader) == contents(log)
    reader.close()
    assert not damage_findings(tmp_path)


def test_rows_of_a_moved_tail_are_read_by_handles_that_did_not_see_the_move(tmp_path: Path) -> None:
    fails = [False]
    fs = FailingFileSystem(lambda name, _: fails[0] and name == "datasync")
    bad, reader = Log.open(tmp_path, fs=fs), Log.open(tmp_path, read_only=True)
    put(bad, 1, 2)
    fails[0] = True
    with pytest.raises(LogPoisoned):
        put(bad, 2, 20)
    bad.close()
    reader.refresh()
    locs = (2 << 16) + np.arange(20, dtype=np.uint64)
    with Log.open(tmp_path) as mover:
        expected = mover.rows(locs)
        assert reader.rows(locs).notes == expected.notes
        assert [_nonces(one) for one in reader.payloads([2])] == [
            _nonces(one) for one in mover.payloads([2])
        ]
    reader.close()


def _nonces(payload: object) -> bytes:
    assert isinstance(payload, Rows)
    return payload.nonces


def test_interrupt_in_the_middle_of_an_append_poisons_the_handle_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log.open(tmp_path)
    put(log, 1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(log._core.recent, "add", interrupt)
        put(log, 2)
    with pytest.raises(LogPoisoned) as caught:
        log.refresh()
    assert caught.value.reason is LogReason.INTERRUPTED
    log.close()
    found = opens(tmp_path)
    assert isinstance(found, list)
    assert found[1] == 2
    assert not damage_findings(tmp_path)


def test_what_was_repaired_is_told(tmp_path: Path) -> None:
    small_store(tmp_path)
    tip = (tmp_path / "TIP").read_bytes()
    with Log.open(tmp_path) as log:
        say(log, b"x" * 300, b"y" * 300)
        end = log._core.active.end
    (tmp_path / "TIP").write_bytes(tip)
    segment = segments_of(tmp_path)[0]
    segment.write_bytes(segment.read_bytes()[: end - 8])
    for read_only in (True, False):
        with Log.open(tmp_path, read_only=read_only) as log:
            (notice,) = log.health().notices
            assert segment.name in notice
            assert log.recovery in log.health().recoveries
    with Log.open(tmp_path) as log:
        assert log.health().notices == ()
        assert log.recovery.torn_bytes == 0
