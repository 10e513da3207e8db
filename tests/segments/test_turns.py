"""Threads that append at the same time share one hold of the lock, and nobody loses his answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from fmemory_segments import Log, LogReason
from fmemory_segments._batch import PreparedBatch
from fmemory_segments._turns import TAKEN_MAX, Appended, Prepare, Request, Turns
from fmemory_segments.errors import LogError, StoreBusy
from tests.segments.log_tools import say

WAIT_S = 20


class Recorder:
    """A lock and an append that say what happened, and stop in the first append until let go."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.turns = Turns(begin=self.begin, append=self.append, end=self.end, busy=self.busy)

    def begin(self, _timeout_s: float) -> None:
        self.steps.append("begin")

    def append(self, prepare: Prepare, time_ns: int | None) -> Appended:
        prepare(0, 0)
        assert time_ns is not None
        self.steps.append(f"append {time_ns}")
        if not self.entered.is_set():
            self.entered.set()
            assert self.let_go.wait(WAIT_S)
        return time_ns, time_ns, time_ns

    def end(self) -> None:
        self.steps.append("end")

    def busy(self, timeout_s: float) -> LogError:
        return StoreBusy(f"busy after {timeout_s:g} s", reason=LogReason.LOCK_TIMEOUT)

    def take(self, number: int, timeout_s: float = WAIT_S) -> Appended | None:
        return self.turns.take(Request(nothing, number), timeout_s)


def nothing(_head_seq: int, _now_ns: int) -> PreparedBatch | None:
    return None


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def queue_behind(
    recorder: Recorder, pool: ThreadPoolExecutor, count: int
) -> list[Future[Appended | None]]:
    """One request that is being appended and others behind it, in order."""
    futures = [pool.submit(recorder.take, 0)]
    assert recorder.entered.wait(WAIT_S)
    for number in range(1, count):
        futures.append(pool.submit(recorder.take, number))
        until(lambda: recorder.turns.waiting == len(futures) - 1)
    return futures


def test_requests_queued_behind_one_are_appended_in_its_hold_in_order() -> None:
    recorder = Recorder()
    with ThreadPoolExecutor(5) as pool:
        futures = queue_behind(recorder, pool, 5)
        recorder.let_go.set()
        assert [future.result(WAIT_S) for future in futures] == [(n, n, n) for n in range(5)]
    assert recorder.steps == ["begin", *(f"append {n}" for n in range(5)), "end"]


def test_hold_is_bounded_and_the_rest_take_the_next() -> None:
    recorder = Recorder()
    count = TAKEN_MAX + 3
    with ThreadPoolExecutor(count) as pool:
        futures = queue_behind(recorder, pool, count)
        recorder.let_go.set()
        assert [future.result(WAIT_S) for future in futures] == [(n, n, n) for n in range(count)]
    first_end = recorder.steps.index("end")
    assert recorder.steps[: first_end + 1] == [
        "begin",
        *(f"append {n}" for n in range(TAKEN_MAX + 1)),
        "end",
    ]
    appended = [step for step in recorder.steps if step.startswith("append")]
    assert sorted(appended) == sorted(f"append {n}" for n in range(count))


def test_error_goes_to_the_thread_whose_batch_it_is() -> None:
    recorder = Recorder()

    def refused(_head_seq: int, _now_ns: int) -> PreparedBatch | None:
        raise KeyError("mine")

    with ThreadPoolExecutor(3) as pool:
        futures = queue_behind(recorder, pool, 2)
        bad = pool.submit(recorder.turns.take, Request(refused, 9), WAIT_S)
        until(lambda: recorder.turns.waiting == 2)
        recorder.let_go.set()
        assert [future.result(WAIT_S) for future in futures] == [(0, 0, 0), (1, 1, 1)]
        with pytest.raises(KeyError, match="mine"):
            bad.result(WAIT_S)
    assert recorder.steps == ["begin", "append 0", "append 1", "end"]


def test_request_that_waited_too_long_is_never_appended() -> None:
    recorder = Recorder()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(recorder.take, 0)
        assert recorder.entered.wait(WAIT_S)
        with pytest.raises(StoreBusy, match=r"0\.01 s"):
            recorder.take(1, timeout_s=0.01)
        recorder.let_go.set()
        assert first.result(WAIT_S) == (0, 0, 0)
    assert recorder.steps == ["begin", "append 0", "end"]


def test_request_that_is_being_appended_is_waited_for_beyond_its_time() -> None:
    recorder = Recorder()
    inside, go_on = threading.Event(), threading.Event()

    class LateRequest(Request):
        """One whose time runs out while his batch is being appended."""

        def wait(self, timeout_s: float) -> bool:
            if timeout_s < 0:
                go_on.set()  # That is: he goes on waiting, although his time is over.
                return super().wait(timeout_s)
            assert inside.wait(WAIT_S)
            return False

    def slow(_head_seq: int, _now_ns: int) -> PreparedBatch | None:
        inside.set()
        assert go_on.wait(WAIT_S)
        return None

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(recorder.take, 0)
        assert recorder.entered.wait(WAIT_S)
        second = pool.submit(recorder.turns.take, LateRequest(slow, 1), 0.0)
        until(lambda: recorder.turns.waiting == 1)
        recorder.let_go.set()
        assert second.result(WAIT_S) == (1, 1, 1)
        assert first.result(WAIT_S) == (0, 0, 0)
    assert recorder.steps == ["begin", "append 0", "append 1", "end"]


def test_who_was_appended_for_is_woken_when_it_is_synced_and_the_turn_is_free_meanwhile() -> None:
    recorder = Recorder()
    synced: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def sync(upto: int) -> None:
        synced.append(upto)
        inside.set()
        assert go_on.wait(WAIT_S)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(recorder.turns.take, Request(nothing, 0), WAIT_S, sync)
        assert recorder.entered.wait(WAIT_S)
        second = pool.submit(recorder.turns.take, Request(nothing, 1), WAIT_S, sync)
        until(lambda: recorder.turns.waiting == 1)
        recorder.let_go.set()
        assert inside.wait(WAIT_S)
        assert pool.submit(recorder.take, 2).result(WAIT_S) == (2, 2, 2)
        assert (synced, first.done(), second.done()) == ([1], False, False)
        go_on.set()
        assert [first.result(WAIT_S), second.result(WAIT_S)] == [(0, 0, 0), (1, 1, 1)]
    assert recorder.steps == ["begin", "append 0", "append 1", "end", "begin", "append 2", "end"]


def test_sync_that_fails_is_told_to_who_synced_and_the_others_are_woken() -> None:
    recorder = Recorder()

    def sync(_upto: int) -> None:
        raise OSError("disk")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(recorder.turns.take, Request(nothing, 0), WAIT_S, sync)
        assert recorder.entered.wait(WAIT_S)
        second = pool.submit(recorder.turns.take, Request(nothing, 1), WAIT_S, sync)
        until(lambda: recorder.turns.waiting == 1)
        recorder.let_go.set()
        with pytest.raises(OSError, match="disk"):
            first.result(WAIT_S)
        assert second.result(WAIT_S) == (1, 1, 1)  # His own sync will tell him.


@pytest.mark.parametrize("is_late", [False, True])
def test_turn_that_reaches_an_interrupted_thread_is_given_on(is_late: bool) -> None:
    recorder = Recorder()

    class Interrupted(Request):
        """One whose thread is interrupted when the turn has just been given to it."""

        def wait(self, timeout_s: float) -> bool:
            if is_late and timeout_s >= 0:
                until(lambda: self.has_turn)
                return False
            assert super().wait(WAIT_S)
            raise KeyboardInterrupt

    def queue_one(_head_seq: int, _now_ns: int) -> PreparedBatch | None:
        recorder.entered.set()
        for wanted in (Interrupted(nothing, 1), Request(nothing, 2)):
            count = recorder.turns.waiting + 1
            futures.append(pool.submit(recorder.turns.take, wanted, WAIT_S))
            until(lambda count=count: recorder.turns.waiting == count)  # type: ignore[misc]
        return None

    with ThreadPoolExecutor(2) as pool:
        futures: list[Future[Appended | None]] = []
        assert recorder.turns.take(Request(queue_one, 0), WAIT_S) == (0, 0, 0)
        with pytest.raises(KeyboardInterrupt):
            futures[0].result(WAIT_S)
        assert futures[1].result(WAIT_S) == (2, 2, 2)
    assert recorder.take(3) == (3, 3, 3)


@pytest.mark.parametrize("threads", [2, 8, 32])
def test_turn_is_never_lost_among_threads_that_come_and_give_up(threads: int) -> None:
    recorder = Recorder()
    recorder.entered.set()

    def write(thread: int) -> tuple[int, int]:
        done = busy = 0
        for number in range(60):
            number += 1_000 * thread
            try:
                assert recorder.take(number, timeout_s=(number % 3) * 1e-4) == (number,) * 3
                done += 1
            except StoreBusy:
                busy += 1
        return done, busy

    with ThreadPoolExecutor(threads) as pool:
        counts = list(pool.map(write, range(threads)))
    assert sum(done + busy for done, busy in counts) == 60 * threads
    appended = [step for step in recorder.steps if step.startswith("append")]
    assert len(set(appended)) == len(appended) == sum(done for done, _ in counts)
    assert recorder.steps.count("begin") == recorder.steps.count("end")
    assert (recorder.take(99_999), recorder.turns.waiting) == ((99_999,) * 3, 0)


def test_main_thread_appends_no_batch_but_its_own() -> None:
    recorder = Recorder()
    with ThreadPoolExecutor(1) as pool:
        other: list[Future[Appended | None]] = []

        def queue_one(_head_seq: int, _now_ns: int) -> PreparedBatch | None:
            recorder.entered.set()
            other.append(pool.submit(recorder.take, 1))
            until(lambda: recorder.turns.waiting == 1)
            return None

        assert recorder.turns.take(Request(queue_one, 0), WAIT_S) == (0, 0, 0)
        assert other[0].result(WAIT_S) == (1, 1, 1)
    assert recorder.steps == ["begin", "append 0", "end", "begin", "append 1", "end"]


def test_begin_that_fails_is_told_to_each_thread_itself() -> None:
    recorder = Recorder()
    tried = []

    def fails(timeout_s: float) -> None:
        tried.append(timeout_s)
        recorder.entered.set()
        assert recorder.let_go.wait(WAIT_S)
        raise StoreBusy("held elsewhere", reason=LogReason.LOCK_TIMEOUT)

    turns = Turns(begin=fails, append=recorder.append, end=recorder.end, busy=recorder.busy)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(turns.take, Request(nothing, n), WAIT_S) for n in range(3)]
        until(lambda: turns.waiting == 2)
        recorder.let_go.set()
        errors = [future.exception(WAIT_S) for future in futures]
    assert [str(error) for error in errors] == ["held elsewhere"] * 3
    assert (len(tried), recorder.steps, turns.waiting) == (3, [], 0)


def test_threads_of_a_log_get_the_seqs_of_their_own_batches(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", durability="os") as log, ThreadPoolExecutor(8) as pool:

        def write(thread: int) -> list[tuple[int, bytes]]:
            found = []
            for number in range(40):
                data = f"{thread}-{number}".encode()
                found.append((say(log, data).last_seq, data))
            return found

        told = [pair for pairs in pool.map(write, range(8)) for pair in pairs]
        assert sorted(seq for seq, _ in told) == list(range(1, 321))
        payloads = log.payloads([seq for seq, _ in told])
        assert [payload.data for payload in payloads] == [data for _, data in told]  # type: ignore[union-attr]
        assert log.verify() == []
