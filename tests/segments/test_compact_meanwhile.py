"""While one handle compacts, all others go on: they see one log, and lose or repeat nothing.

Goal: P6 and P9 together. Method: other handles, threads and processes read and write before, during
and after the switch, at chosen calls of the compaction and with files already closed. What would
have to break: a cursor that is tied to a file, a generation that is noticed by one kind of read
only, a compactor that holds a lock too long or for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from fmemory_segments import Log, LogReason
from fmemory_segments import _choose as choose_module
from fmemory_segments.errors import LogCorrupt, StoreBusy
from tests.segments.compaction_tools import (
    STREAMS,
    Story,
    erasure_at,
    everything,
    open_log,
)
from tests.segments.log_tools import (
    WatchedFileSystem,
    damage_findings,
    put,
    say,
    segments_of,
)

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.segments.compaction_tools"])
WAIT_S = 120.0


@pytest.fixture
def small_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits at which a short history becomes several new segments."""
    monkeypatch.setattr(choose_module, "OUTPUT_BYTES", 6_000)
    monkeypatch.setattr(choose_module, "FRAGMENT_BYTES", 1_500)


# Iterators, and files that are not there any more


def mid_fold(log: Log) -> Iterator[object]:
    return iter(log.fold(0, 60, STREAMS[2]))


def mid_envelopes(log: Log) -> Iterator[object]:
    return iter(log.envelopes(0, 60))


def mid_envelopes_backwards(log: Log) -> Iterator[object]:
    return iter(log.envelopes(0, 60, backwards=True))


@pytest.mark.parametrize("begin", [mid_fold, mid_envelopes, mid_envelopes_backwards])
@pytest.mark.parametrize("keeps_files_open", [True, False])
@pytest.mark.usefixtures("small_outputs")
def test_an_iterator_in_the_middle_goes_on_and_repeats_nothing(
    tmp_path: Path, begin: Callable[[Log], Iterator[object]], keeps_files_open: bool
) -> None:
    with open_log(tmp_path) as log:
        for number in range(60):
            say(log, b"word %d " % number * 5)
    reader, writer = open_log(tmp_path, read_only=True), open_log(tmp_path)
    expected = list(begin(reader))
    for taken in (1, 20, 45):
        if not keeps_files_open:
            for segment in reader._core.segments[:-1]:
                segment.file = None
        items = begin(reader)
        found = [next(items) for _ in range(taken)]
        done = writer.compact(erasure_at(writer.refresh()))
        assert done.notices or taken > 1
        put(writer, taken)
        found += items
        assert found == expected
    reader.close()
    writer.close()


@pytest.mark.usefixtures("small_outputs")
def test_each_read_finds_the_file_that_took_the_place_of_one_that_vanished(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(12):
            put(log, number, 3)
            say(log, b"word %d " % number * 20)
    seqs = list(range(1, 25))
    locs = np.array([1 << 16, (1 << 16) + 2, 3 << 16, 9 << 16], np.uint64)
    reads: list[Callable[[Log], object]] = [
        lambda log: [type(one).__name__ for one in log.payloads(seqs)],
        lambda log: log.rows(locs).notes,
        lambda log: log.row(1 << 16)[0],
        lambda log: log.head(3),
        lambda log: log.usage(),
        lambda log: [envelope.seq for envelope in log.envelopes(0, 24)],
        lambda log: len(list(log.fold(0, 24))) > 0,
    ]
    for read in reads:
        with open_log(tmp_path, read_only=True) as reader, open_log(tmp_path) as writer:
            expected = read(reader)
            reader._chain.__init__()  # type: ignore[misc]
            for segment in reader._core.segments[:-1]:
                segment.file = None
            say(writer, b"more")
            put(writer, 99)
            writer.compact(erasure_at(writer.refresh()))
            assert read(reader) == expected


def test_a_segment_that_somebody_removed_is_damage_and_not_a_compaction(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(20):
            say(log, b"word %d " % number * 20)
        log._core.segments[0].file = None
        segments_of(tmp_path)[0].unlink()
        with pytest.raises(LogCorrupt) as caught:
            log.payloads([1])
        assert caught.value.reason is LogReason.MISSING_SEGMENT


def test_a_file_that_is_open_stays_readable_while_others_take_its_place(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(20):
            put(log, number, 2)
        segment = log._core.segments[0]
        file = log._core.file_of(segment)
        header = os.pread(file.fd, 128, 0)
        log.compact(erasure_at(20))
        assert not segment.path.exists()
        assert os.pread(file.fd, 128, 0) == header


# Others, meanwhile


class Paused(WatchedFileSystem):
    """Calls a function before one chosen call of a compaction, once."""

    def __init__(self, name: str, action: Callable[[], None], number: int = 1) -> None:
        super().__init__(self._look)
        self._name, self._action, self._number = name, action, number
        self.armed = False

    def _look(self, name: str, _: object) -> None:
        if self.armed and name == self._name:
            self._number -= 1
            if not self._number:
                self.armed = False
                self._action()


@pytest.mark.parametrize("step", ["free_bytes", "create_file", "pwritev", "rename", "remove"])
def test_writers_and_readers_go_on_at_every_step(tmp_path: Path, step: str) -> None:
    """The maintenance operation is where databases lose what others write meanwhile."""
    with open_log(tmp_path) as log:
        for number in range(20):
            put(log, number, 2)
            say(log, b"word %d" % number)
    other, reader = open_log(tmp_path, lock_timeout_s=0.01), open_log(tmp_path, read_only=True)
    written: list[int] = []

    def meanwhile() -> None:
        seen = everything(reader)
        for number in range(3):
            try:
                say(other, b"meanwhile %d" % number)
                put(other, 1_000 + number)
            except StoreBusy:
                continue  # In the short time that the lock is held for the switch.
            written.append(number)
        assert everything(reader, head=40) == everything(other, head=40)
        assert seen[1] == 40

    fs = Paused(step, meanwhile, 3 if step == "create_file" else 1)
    with open_log(tmp_path, fs=fs) as log:
        log.refresh()
        fs.armed = True
        log.compact(erasure_at(40))
        assert not fs.armed
        assert log.refresh() == 40 + 2 * len(written)
        assert everything(log) == everything(other) == everything(reader)
    other.close()
    reader.close()
    with open_log(tmp_path) as log:
        assert log.refresh() == 40 + 2 * len(written)
    assert not damage_findings(tmp_path)


def test_a_handle_that_slept_through_rolls_and_compactions_wakes_up_to_all(tmp_path: Path) -> None:
    sleeper, writer = open_log(tmp_path, read_only=False), open_log(tmp_path)
    say(writer, b"first")
    assert sleeper.refresh() == 1
    for round_ in range(3):
        for number in range(15):
            put(writer, 100 * round_ + number, 2)
        writer.compact(erasure_at(writer.refresh()))
    assert everything(sleeper) == everything(writer)
    say(sleeper, b"awake")
    assert everything(writer) == everything(sleeper)
    sleeper.close()
    writer.close()


def test_threads_that_read_while_others_compact_see_one_log(tmp_path: Path) -> None:
    log, compactor = open_log(tmp_path), open_log(tmp_path)
    for number in range(30):
        put(log, number, 2)
    expected = everything(log, head=30)
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                assert everything(log, head=30) == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(6):
        put(compactor, 1_000 + number, 30)
        compactor.compact(erasure_at(compactor.refresh()))
    done.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert not failures
    log.close()
    compactor.close()


def test_two_compactors_at_once_are_one_and_a_refusal(tmp_path: Path) -> None:
    log, other = open_log(tmp_path), open_log(tmp_path, lock_timeout_s=0.01)
    say(log, b"one", b"two")
    refused: list[LogReason] = []

    def try_too() -> None:
        with pytest.raises(StoreBusy) as caught:
            other.compact(erasure_at(2))
        refused.append(caught.value.reason)
        say(other, b"writes go on")

    fs = Paused("create_file", try_too, 3)
    with open_log(tmp_path, fs=fs) as compactor:
        fs.armed = True
        compactor.compact(erasure_at(2))
    assert refused == [LogReason.LOCK_TIMEOUT]
    other.compact(erasure_at(2))
    assert "StoreBusy" not in other.health().compaction_failure
    assert log.refresh() == 3
    log.close()
    other.close()


def compact_and_stop(path: Path, pipe: Connection) -> None:
    """A process that stands still in the middle of a compaction."""

    def stop() -> None:
        pipe.send("in the middle")
        pipe.recv()

    fs = Paused("rename", stop)
    with open_log(path, fs=fs) as log:
        fs.armed = True
        log.compact(erasure_at(log.refresh()))


def test_a_killed_compactor_blocks_nobody(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(20):
            put(log, number, 2)
        expected = everything(log)
        here, there = SPAWN.Pipe()
        child = SPAWN.Process(target=compact_and_stop, args=(tmp_path, there))
        child.start()
        there.close()
        assert here.poll(WAIT_S)
        assert here.recv() == "in the middle"
        child.kill()
        child.join(WAIT_S)
        assert everything(log) == expected
        say(log, b"goes on")
        done = log.compact(erasure_at(log.refresh()))
        assert done.pending == ()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not damage_findings(tmp_path)


def answer(path: Path, pipe: Connection) -> None:
    """Another process that has the log open: everything it reads, whenever it is asked."""
    with open_log(path) as log:
        pipe.send(everything(log))
        while pipe.recv() == "again":
            pipe.send(everything(log))


def test_a_process_that_was_there_before_reads_the_same_after(tmp_path: Path) -> None:
    story = Story(7)
    with open_log(tmp_path) as log:
        story.go_on(log, 30)
        here, there = SPAWN.Pipe()
        other = SPAWN.Process(target=answer, args=(tmp_path, there))
        other.start()
        there.close()
        assert here.recv() == everything(log)
        erasure = story.erasure(log.refresh())
        expected = everything(log, erasure)
        log.compact(erasure)
        for _ in range(2):
            here.send("again")
            assert here.poll(WAIT_S)
            assert here.recv() == expected
            story.go_on(log, 6)
            expected = everything(log)
        here.send("end")
        other.join(WAIT_S)
