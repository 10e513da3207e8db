"""A commit is one write, says what it promised, and stores nothing that cannot be stored."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from fmemory_segments import (
    Blob,
    Draft,
    Log,
    LogReason,
    Rows,
)
from fmemory_segments._roll import seal
from fmemory_segments._txn import LogTxn
from fmemory_segments.errors import (
    InvalidDraft,
    LogNotFound,
)
from tests.segments.event_strategies import (
    make_rows,
)
from tests.segments.log_tools import (
    SESSION,
    WatchedFileSystem,
    contents,
    files_of,
    put,
    put_draft,
    say,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "store") as opened:
        yield opened


def test_commit_says_what_it_promised(log: Log) -> None:
    done = say(log, b"one", b"two")
    assert (done.first_seq, done.last_seq, done.durable) == (1, 2, True)
    assert log.health().durable_seq == 2
    assert not say(log, b"three", durability="os").durable
    assert log.health().durable_seq == 2
    assert log.sync() == 3


def test_plan_that_returns_nothing_writes_nothing(log: Log) -> None:
    put(log, 1)
    size = log.stats().stored_bytes
    assert log.commit(lambda _: None) is None
    assert log.commit(lambda _: []) is None
    assert (log.refresh(), log.stats().stored_bytes) == (1, size)


def test_plan_sees_the_newest_state(log: Log) -> None:
    say(log, b"one")
    seen: list[object] = []

    def plan(txn: LogTxn) -> None:
        page = list(txn.envelopes(0, txn.head_seq))
        seen.extend((txn.head_seq, txn.refresh(), len(page), txn.find(SESSION, "x")))
        seen.append(txn.payloads([1]))
        seen.append(txn.store_id == log.store_id)

    log.commit(plan)
    (payload,) = log.payloads([1])
    assert seen == [1, 1, 1, None, [payload], True]


def test_what_a_plan_raises_is_passed_on_and_nothing_is_written(log: Log) -> None:
    class OwnError(OSError):
        pass

    def plan(_: LogTxn) -> None:
        raise OwnError("mine")

    with pytest.raises(OwnError):
        log.commit(plan)
    assert put(log, 1).first_seq == 1


def test_times_never_decrease_though_the_clock_does(tmp_path: Path) -> None:
    times = iter([50, 100, 40, 200, 10, 10])
    with Log.open(tmp_path, clock=lambda: next(times, 10)) as log:
        recorded = [say(log, b"x").recorded_at_ns for _ in range(4)]
    with Log.open(tmp_path, clock=lambda: 5) as log:
        recorded.append(say(log, b"x").recorded_at_ns)
        assert [event.recorded_at_ns for event in log.envelopes(0, 9)] == recorded
    assert recorded == sorted(recorded)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: {"revision": 2}, LogReason.NOT_NEXT),
        (lambda _: {"keys": ("one", "too many")}, LogReason.INVALID_DRAFT),
        (lambda _: {"actor": "\ud800"}, LogReason.INVALID_DRAFT),
        (lambda _: {"count": 1 << 70}, LogReason.INVALID_DRAFT),
        (lambda _: {"payload": Blob(bytes(50 << 20))}, LogReason.INVALID_DRAFT),
        (
            lambda _: {"payload": swapped_notes()},
            LogReason.INVALID_DRAFT,
        ),
    ],
)
def test_draft_that_cannot_be_stored_is_refused_and_nothing_is_written(
    log: Log, change: Callable[[Draft], dict[str, object]], reason: LogReason
) -> None:
    say(log, b"before")
    before = contents(log)
    draft = put_draft(1, 1)
    fields = {name: getattr(draft, name) for name in Draft.__struct_fields__} | change(draft)
    with pytest.raises(InvalidDraft) as caught:
        log.commit(lambda _: [Draft(**fields)])
    assert caught.value.reason is reason
    assert contents(log) == before


def swapped_notes() -> Rows:
    """Rows whose note offsets decrease."""
    return replace(make_rows(1, 2), note_offsets=np.array([0, 9, 3], "<u4"))


def test_batch_larger_than_a_frame_is_one_batch(log: Log) -> None:
    words = [bytes([number]) * (1_500_000 + number) for number in range(9)]
    done = say(log, *words)
    assert (done.first_seq, done.last_seq) == (1, 9)
    assert log.stats().segment_count == 1
    assert log._core.active.index.frame_count > 1
    found = log.payloads(range(1, 10))
    assert [payload.data for payload in found if isinstance(payload, Blob)] == words


def test_file_is_filled_with_zeros_ahead_so_that_a_sync_need_not_store_its_size(log: Log) -> None:
    put(log, 1)
    path = log._core.active.path
    size = path.stat().st_size
    for number in range(20):
        put(log, 2 + number)
        assert path.stat().st_size == size
    say(log, bytes(300_000))
    assert path.stat().st_size == log._core.active.end + 64


def test_one_write_a_batch(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs) as log:
        put(log, 1)
        fs.calls.clear()
        say(log, b"one", b"two", b"three")
        assert fs.calls.count("pwritev") == 1
        assert fs.calls.count("datasync") == 1


@pytest.mark.parametrize("how", ["moved", "lock removed", "made anew"])
def test_a_handle_of_a_store_that_is_elsewhere_writes_nothing(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store"
    log = Log.open(path, segment_bytes_max=8_000)
    put(log, 1)
    if how == "moved":
        path.rename(tmp_path / "elsewhere")
    elif how == "lock removed":
        (path / "LOCK").unlink()
    else:
        shutil.rmtree(path)
        Log.open(path).close()
    before = files_of(tmp_path)
    with pytest.raises(LogNotFound) as caught:
        put(log, 20)
    assert caught.value.reason is LogReason.STORE_MOVED
    assert files_of(tmp_path) == before
    log.close()


def test_a_segment_found_sealed_is_synced_before_its_successor_rests_on_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    calls: list[tuple[str, object]] = []
    fs = WatchedFileSystem(lambda name, about: calls.append((name, about)))
    with Log.open(path, fs=fs) as log, Log.open(path, durability="os") as other:
        put(log, 1)
        put(other, 2)
        seal(other._core, other._core.active, synced_to=1)
        sealed = log._core.active.fd
        calls.clear()
        put(log, 1)
        synced = [at for at, call in enumerate(calls) if call == ("datasync", sealed)]
        created = [at for at, (name, _) in enumerate(calls) if name == "create_file"]
        assert synced
        assert created
        assert synced[0] < created[0]
