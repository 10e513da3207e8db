"""Several processes on one log: racing, following, ending badly; all of them see one log.

Goal: P4 and P6 with real processes. Method: children write, read and hold locks at the same time;
the parent compares what they were told. What would have to break: a lock that does not exclude, a
catch-up that skips, a torn tail that is taken for events or left in the way. What processes that
are killed leave is for tests/crash/test_kills.py.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from fmemory_segments import Blob, Draft, Log, PosixFileSystem, verify_store
from fmemory_segments._txn import LogTxn
from fmemory_segments.errors import LogCorrupt, StoreBusy
from tests.segments.log_tools import (
    ROUNDS,
    WatchedFileSystem,
    contents,
    damage_findings,
    say,
    small_store,
)

# Children are forked from a server that has imported everything: starting one costs little.
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.segments.log_tools"])
WAIT_S = 120.0


def append_many(path: Path, name: int, count: int, barrier: Barrier) -> None:
    log = Log.open(path, segment_bytes_max=40_000)
    barrier.wait(WAIT_S)
    for number in range(count):
        stream = ("session", str(name))
        log.commit(
            lambda _, stream=stream, number=number: [  # type: ignore[misc]
                Draft(stream, number + 1, "note.taken", Blob(b"%d" % number))
            ]
        )
    log.close()


def follow(path: Path, count: int, barrier: Barrier, result: Connection) -> None:
    log = Log.open(path, read_only=True)
    woken = threading.Event()
    stop = log.watch(woken.set)
    barrier.wait(WAIT_S)
    seen: list[tuple[int, tuple[str, ...], int]] = []
    deadline = time.monotonic() + WAIT_S
    while len(seen) < count and time.monotonic() < deadline:
        after = seen[-1][0] if seen else 0
        head = log.refresh()
        if head == after:
            woken.wait(0.05)
            woken.clear()
        seen += [(event.seq, event.stream, event.revision) for event in log.envelopes(after, head)]
    stop()
    log.close()
    result.send(seen)


def run_all(targets: list[tuple[Callable[..., None], tuple[object, ...]]]) -> None:
    """Start processes, and wait for all of them to end well."""
    processes = [SPAWN.Process(target=target, args=args) for target, args in targets]
    for process in processes:
        process.start()
    for process in processes:
        process.join(WAIT_S)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_four_writers_and_a_follower_see_one_log(tmp_path: Path) -> None:
    count = 60 * ROUNDS
    Log.open(tmp_path).close()
    barrier = SPAWN.Barrier(5)
    receive, send = SPAWN.Pipe(duplex=False)
    seen: list[tuple[int, tuple[str, ...], int]] = []
    reader = threading.Thread(target=lambda: seen.extend(receive.recv()))
    reader.start()
    run_all(
        [
            (follow, (tmp_path, 4 * count, barrier, send)),
            *[(append_many, (tmp_path, name, count, barrier)) for name in range(4)],
        ]
    )
    reader.join(WAIT_S)
    assert [seq for seq, _, _ in seen] == list(range(1, 4 * count + 1))
    for name in range(4):
        revisions = [revision for _, stream, revision in seen if stream[1] == str(name)]
        assert revisions == list(range(1, count + 1))
    assert not verify_store(PosixFileSystem(), tmp_path)


def open_fresh(path: Path, name: int, barrier: Barrier, result: Connection) -> None:
    barrier.wait(WAIT_S)
    with Log.open(path) as log:

        def first(txn: LogTxn) -> list[Draft] | None:
            if txn.head_seq:
                return None
            return [Draft(("session", "s"), 1, "note.taken", Blob(b"%d" % name))]

        result.send((log.store_id, log.commit(first) is not None))


def test_eight_processes_open_a_fresh_path_as_one_store(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store"
    barrier = SPAWN.Barrier(8)
    pipes = [SPAWN.Pipe(duplex=False) for _ in range(8)]
    run_all([(open_fresh, (path, name, barrier, pipes[name][1])) for name in range(8)])
    answers = [receive.recv() for receive, _ in pipes]
    assert len({store_id for store_id, _ in answers}) == 1
    assert sum(first for _, first in answers) == 1
    with Log.open(path, read_only=True) as log:
        assert log.refresh() == 1


def hold_lock(path: Path, ready: Connection) -> None:
    log = Log.open(path)

    def plan(_: LogTxn) -> None:
        ready.send(True)
        ready.recv()

    log.commit(plan)
    log.close()


def test_lock_held_for_long_is_store_busy_and_reading_goes_on(tmp_path: Path) -> None:
    small_store(tmp_path)
    ours, theirs = SPAWN.Pipe()
    log, reader = Log.open(tmp_path), Log.open(tmp_path, read_only=True)
    before = contents(reader)
    holder = SPAWN.Process(target=hold_lock, args=(tmp_path, theirs))
    holder.start()
    ours.recv()
    started = time.monotonic()
    with pytest.raises(StoreBusy):
        log.commit(lambda _: None, timeout_s=0.2)
    with pytest.raises(StoreBusy):
        Log.open(tmp_path, lock_timeout_s=0.1)
    assert time.monotonic() - started < 5
    assert contents(log) == contents(reader) == before
    ours.send(True)
    holder.join(WAIT_S)
    assert say(log, b"free again").last_seq == log.refresh()
    log.close()
    reader.close()


def test_torn_tail_of_a_dead_writer_is_set_aside_by_the_next_commit(tmp_path: Path) -> None:
    """No handle is reopened: the one that appends next finds the stub, and so do readers."""
    small_store(tmp_path)
    log, reader = Log.open(tmp_path), Log.open(tmp_path, read_only=True)
    before = contents(log)
    with Log.open(tmp_path) as dead:
        say(dead, b"word" * 100, b"more" * 100, durability="os")
        start = log._core.active.end
        end = dead._core.active.end
        os.ftruncate(dead._core.active.fd, end - 50)
    assert contents(log) == contents(reader) == before
    assert (reader.recovery.offset, reader.recovery.applied) == (start, False)
    say(log, b"goes on")
    assert (log.recovery.offset, log.recovery.applied) == (start, True)
    assert log.recovery.torn_bytes == end - 50 - start
    assert contents(reader) == contents(log)
    assert not damage_findings(tmp_path)
    log.close()
    reader.close()


def test_two_handles_of_one_process_append_in_turn(tmp_path: Path) -> None:
    one, other = Log.open(tmp_path), Log.open(tmp_path)
    for number in range(10):
        say(one if number % 2 else other, b"%d" % number)
    assert one.refresh() == other.refresh() == 10
    assert contents(one) == contents(other)
    one.close()
    assert say(other, b"still open").last_seq == 11
    other.close()


def test_threads_share_syncs_and_every_commit_is_durable(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    log = Log.open(tmp_path, fs=fs)
    fs.calls.clear()
    start = threading.Barrier(8)
    durable: list[bool] = []

    def write(name: int) -> None:
        start.wait(WAIT_S)
        for number in range(20):
            done = log.commit(
                lambda _, number=number: [  # type: ignore[misc]
                    Draft(("session", str(name)), number + 1, "note.taken", Blob(b"x"))
                ]
            )
            assert done is not None
            durable.append(done.durable and log.health().durable_seq >= done.last_seq)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert durable == [True] * 160
    assert fs.calls.count("datasync") <= 160
    assert log.refresh() == 160
    log.close()


def test_threads_that_read_and_threads_that_write_share_a_handle(tmp_path: Path) -> None:
    """Readers refresh while the same handle appends and rolls: nothing is taken in twice."""
    log = Log.open(tmp_path, fs=WatchedFileSystem(), segment_bytes_max=4_000, durability="os")
    other = Log.open(tmp_path, fs=WatchedFileSystem(), segment_bytes_max=4_000, durability="os")
    stop = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            last = 0
            while not stop.is_set():
                head = log.refresh()
                assert head >= last
                last = head
        except BaseException as error:
            failures.append(error)

    def write(handle: Log) -> None:
        try:
            for number in range(100 * ROUNDS):
                say(handle, b"%d" % number * 20)
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(handle,)) for handle in (log, log, other)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join(WAIT_S)
    stop.set()
    for thread in readers:
        thread.join(WAIT_S)
    assert not failures
    assert log.refresh() == 300 * ROUNDS
    assert contents(log) == contents(other)
    bases = [segment.base_seq for segment in log._core.segments]
    assert bases == sorted(set(bases))
    log.close()
    other.close()
    assert not damage_findings(tmp_path)


def test_damage_behind_a_busy_writer_is_no_short_log(tmp_path: Path) -> None:
    """A reader cannot tell damage from a writer at work, but does not hide acknowledged events."""
    small_store(tmp_path)
    reader, log = Log.open(tmp_path, read_only=True), Log.open(tmp_path)
    say(log, b"acknowledged")
    segment = log._core.active
    os.pwrite(segment.fd, b"\xff", reader._core.active.end + 70)

    def plan(_: LogTxn) -> None:
        with pytest.raises(StoreBusy):
            reader.refresh()

    log.commit(plan)
    with pytest.raises(LogCorrupt):
        reader.refresh()
    reader.close()
    log.close()
