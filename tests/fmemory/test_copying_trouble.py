"""Copying a log while others write, within bounds, and with damage on either side.

Goal: whatever happens, the target holds the first events of the source and the caller is told.
Method: a target that acts at every batch: writes of others, lost answers, failures; sources written
meanwhile; damage planted on both sides. What would have to break: a batch without bound, an error
that is swallowed, or a verification that is not made.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

import fmemory
from fmemory import (
    Conflict,
    Finding,
    JournalBackend,
    LogCorrupt,
    MemoryRecord,
    NewEvent,
    Note,
    PutRequest,
    StorageError,
    copy_log,
    copying,
)
from fmemory.journal import Commit, Journal, Payload, StoredEvent
from fmemory_segments import LogReason
from tests.fmemory.copy_tools import (
    KINDS,
    Open,
    Wrapped,
    fill,
    many,
    opened_memories,
    stored,
    target_of,
)


@pytest.fixture
def open_as(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open a memory of a kind under a name; all are closed at the end."""
    with opened_memories(request, tmp_path) as make:
        yield make


# Others who write


def test_what_is_written_to_the_source_meanwhile_is_left_for_the_next_copy(
    open_as: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_EVENTS_MAX", 2)
    source, target = open_as("segments", "source"), Wrapped()
    many(source, 9)
    target.after_import = lambda: many(source, 1)

    result = copy_log(source, target)

    assert (result.copied, target.refresh()) == (9, 9)
    assert target.head() == source.journal.head(9)
    assert source.health().head_seq == 9 + len(target.batches)


def test_a_source_under_constant_writes_is_copied_whole(open_as: Open) -> None:
    source, target = open_as("segments", "source"), open_as("sqlite", "target")
    many(source, 50)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            many(source, 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        results = [copy_log(source, target) for _ in range(3)]
    finally:
        stop.set()
        writer.join()
    assert [one.present for one in results[1:]] == [one.present + one.copied for one in results[:2]]
    copy_log(source, target)
    assert target.head() == source.head()


def test_somebody_who_writes_to_the_target_is_a_conflict(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 3)
    other = JournalBackend(target)
    target.before_import = lambda: many(other, 1)
    with pytest.raises(Conflict) as caught:
        copy_log(source, target)
    assert (caught.value.expected, caught.value.actual) == (0, 1)
    assert [one.type for one in other.events()] == ["number.said"]


def test_a_batch_that_was_stored_though_its_answer_was_lost_is_not_an_error(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 3)

    def lose() -> None:
        raise StorageError("connection: lost")

    target.after_import = lose
    assert copy_log(source, target).copied == 3
    assert target.head() == source.head()


def test_a_target_that_fails_is_told_as_it_says(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 3)

    def fail() -> None:
        raise StorageError("disk: failed", path="/x")

    target.before_import = fail
    with pytest.raises(StorageError) as caught:
        copy_log(source, target)
    assert caught.value.path == "/x"
    target.before_import = target.close
    with pytest.raises(fmemory.ClosedStore):
        copy_log(source, target)


KILLED = """
import os, signal, sys
import fmemory
from fmemory import copying
source, target, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
copying.BATCH_EVENTS_MAX = 2
def told(_count):
    global batches
    batches -= 1
    if not batches:
        os.kill(os.getpid(), signal.SIGKILL)
with fmemory.open(source, read_only=True) as one, fmemory.open(target) as other:
    fmemory.copy_log(one, other, progress=told)
"""


@pytest.mark.parametrize("kind", [one for one in KINDS if one != "memory"])
def test_a_copy_whose_process_was_killed_is_gone_on_with(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source, target = str(tmp_path / "source"), target_of(request, tmp_path, kind, "target")
    with fmemory.open(source, durability="os") as memory:
        fill(memory)
    for batches in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, source, target, str(batches)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
    with fmemory.open(source, read_only=True) as one, fmemory.open(target) as other:
        assert copy_log(one, other).present == 6
        assert stored(other) == stored(one)


# Bounds and progress


def test_progress_adds_up_to_what_was_copied(
    open_as: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_EVENTS_MAX", 4)
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 11)
    told: list[int] = []
    copy_log(source, target, upto=1)
    copy_log(source, target, progress=told.append)
    assert told == [4, 4, 2]


def test_batches_are_bounded_in_events(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    with source.batch() as batch:
        batch.append(("s",), [NewEvent("a.b", n) for n in range(5000)])
    copy_log(source, target)
    assert [len(one) for one in target.batches] == [2048, 2048, 904]


def test_batches_are_bounded_in_bytes(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    megabyte = b"x" * (1 << 20)
    for _ in range(40):
        source.append(("s",), [NewEvent("a.b", megabyte)])
    copy_log(source, target)
    # What is stored of each event is a few bytes more than a megabyte.
    assert {len(one) for one in target.batches} <= {7, 8}
    assert sum(len(one) for one in target.batches) == 40


def test_rows_that_are_read_together_are_bounded(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    for number in range(8):
        source.put(
            PutRequest(
                [MemoryRecord.create(Note(f"{number}-{n}", "", 0.0, {}), ()) for n in range(4096)]
            )
        )
    journal = source.journal
    asked: list[int] = []
    payloads = journal.payloads

    def counted(seqs: list[int]) -> list[Payload]:
        asked.append(len(seqs))
        return payloads(seqs)

    journal.payloads = counted  # type: ignore[method-assign,assignment]
    copy_log(source, target)
    assert asked == [1] * 8


# Damage


def test_damage_in_the_source_stops_the_copy_behind_what_is_whole(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 40)
    journal = source.journal
    payloads = journal.payloads

    def damaged(seqs: list[int]) -> list[Payload]:
        if 30 in seqs:
            raise LogCorrupt("event 30: damaged", seq=30)
        return payloads(seqs)

    journal.payloads = damaged  # type: ignore[method-assign,assignment]
    with pytest.raises(LogCorrupt) as caught:
        copy_log(source, target)
    assert caught.value.seq == 30
    assert target.refresh() == 29


def test_a_copy_that_is_damaged_is_found(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 3)
    target.findings = [
        Finding(LogReason.FOREIGN_SEGMENT, "a note", damage=False),
        Finding(LogReason.DATA_CHECKSUM, "event 2: damaged", file="f", first_seq=2, last_seq=2),
    ]
    with pytest.raises(LogCorrupt) as caught:
        copy_log(source, target)
    assert (caught.value.seq, caught.value.last_seq, caught.value.path) == (2, 2, "f")
    target.findings.pop()
    assert copy_log(source, target).present == 3


def test_a_copy_with_another_chain_is_found(open_as: Open) -> None:
    class Forgetful(Wrapped):
        """Stores the last event without its reason."""

        def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
            *rest, last = events
            envelope = msgspec.structs.replace(last.envelope, reason=None)
            return super().import_exact([*rest, StoredEvent(envelope, last.payload)])

    source, target = open_as("memory", "source"), Forgetful()
    with fmemory.audit(reason="because"):
        many(source, 3)
    with pytest.raises(LogCorrupt) as caught:
        copy_log(source, target)
    assert (caught.value.seq, caught.value.last_seq) == (1, 3)


def test_a_wrapped_journal_is_a_journal() -> None:
    assert isinstance(Wrapped(), Journal)
