"""Short programs over a log, and the ledger of what each step of them was promised.

A program is a sequence of names from `OPERATIONS`; all short ones can be listed, long ones are
drawn. A `Runner` runs one on a store and keeps a `Ledger`: the events in order as plain facts, how
many of them must survive, which may or may not be there, and what a compaction took out. `judge`
compares what a store holds afterwards with a ledger, event by event.
"""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

import fmemory_segments._append as append_module
from fmemory.copying import copy_log
from fmemory.errors import LogCorrupt, StorageError
from fmemory.journals._segments import SegmentJournal
from fmemory_segments import Blob, Draft, Erasure, Log, Payload, Rows, Stream
from fmemory_segments.errors import LogError, LogPoisoned
from fmemory_segments.filesystem import FileSystem
from tests.crash.settings import EXHAUSTIVE_LENGTH

RECORDS: Stream = ("records", "n")
SESSION: Stream = ("session", "s")
SEGMENT_BYTES_MAX = 4_000
ROLL_BYTES = 3_700
LONG_LENGTH = (4, 9)

Fact = tuple[Stream, int, str, tuple[str, ...], object]
"""An event as plain data: stream, revision, type, keys, and its bytes, or its rows."""

Step = Callable[["Runner"], None]


class Row(NamedTuple):
    """A record row as plain data."""

    timestamp: float
    note: bytes
    vector: bytes
    embedding_id: str | None


@dataclass(frozen=True)
class Ledger:
    """What a store must hold, as far as anybody was told.

    Attributes:
        facts: Events that were appended, in order.
        ends: Numbers of events after which a batch ended.
        durable: So many of them were acknowledged as being on disk.
        doubtful: Events of a batch that may be there or not; behind `facts`.
        erased: Rows that a finished compaction took out, as (seq, row).
        erasing: The same of one that may have taken effect or not.
        backed_up: So many of them are surely in the backup.
    """

    facts: tuple[Fact, ...] = ()
    ends: frozenset[int] = frozenset({0})
    durable: int = 0
    doubtful: tuple[Fact, ...] = ()
    erased: frozenset[tuple[int, int]] = frozenset()
    erasing: frozenset[tuple[int, int]] = frozenset()
    backed_up: int = 0

    def settled(self, head: int) -> Ledger:
        """The ledger of one who looked and found so many events."""
        facts = (self.facts + self.doubtful)[:head]
        ends = frozenset(end for end in {*self.ends, len(facts)} if end <= head)
        return replace(self, facts=facts, ends=ends, doubtful=())


def judge(ledger: Ledger, found: Sequence[Fact], *, lost: bool = True) -> str:
    """What is wrong with what a store holds; "" = nothing.

    Args:
        lost: What was not acknowledged as durable may be gone.
    """
    whole = ledger.facts + ledger.doubtful
    least = ledger.durable if lost else len(ledger.facts)
    if len(found) < least:
        return f"{least} events were acknowledged, {len(found)} are there"
    if len(found) not in ledger.ends | {len(ledger.facts), len(whole)}:
        return f"a part of a batch is there: {len(found)} events of batches {sorted(ledger.ends)}"
    may_be_erased = ledger.erased | ledger.erasing
    for seq, (got, wanted) in enumerate(zip(found, whole, strict=False), 1):
        if wrong := difference(seq, got, wanted, may_be_erased):
            return wrong
    for seq, row in ledger.erased:
        rows = found[seq - 1][4]
        if isinstance(rows, tuple) and rows[row] is not None:
            return f"seq {seq}, row {row}: it was erased and is there"
    return ""


def judge_backup(ledger: Ledger, found: Sequence[Fact], source_count: int) -> str:
    """What is wrong with what a backup holds; "" = nothing.

    It may end within a batch, and have rows that were taken out of the store since.

    Args:
        source_count: Events that the store itself has kept.
    """
    if len(found) < ledger.backed_up:
        return f"backup: {ledger.backed_up} events were acknowledged, {len(found)} are there"
    if len(found) > source_count:
        return f"backup: it has {len(found)} events, the store only {source_count}"
    may_be_erased = ledger.erased | ledger.erasing
    whole = ledger.facts + ledger.doubtful
    for seq, (got, wanted) in enumerate(zip(found, whole, strict=False), 1):
        if wrong := difference(seq, got, wanted, may_be_erased):
            return f"backup: {wrong}"
    return ""


def dead_rows(facts: Sequence[Fact]) -> frozenset[tuple[int, int]]:
    """Places, as (seq, row), of the rows that a delete named."""
    places: dict[str, tuple[int, int]] = {}
    dead: set[tuple[int, int]] = set()
    for seq, (_, _, kind, keys, _) in enumerate(facts, 1):
        if kind == "records_put":
            places.update((key, (seq, row)) for row, key in enumerate(keys))
        elif kind == "records_deleted":
            dead.update(places.pop(key) for key in keys if key in places)
    return frozenset(dead)


def erasure_of(facts: Sequence[Fact]) -> Erasure:
    """What a compaction is to take out: the rows that a delete named."""
    locs = sorted(seq << 16 | row for seq, row in dead_rows(facts))
    return Erasure(len(facts), np.array(locs, np.uint64), np.array([], np.uint64))


def traces(path: Path, ledger: Ledger) -> str:
    """Where a file still holds the note of a row that was taken out; "" = nowhere."""
    notes = {
        rows[row].note
        for seq, row in ledger.erased
        if isinstance(rows := ledger.facts[seq - 1][4], tuple) and rows[row] is not None
    }
    for file in path.rglob("*"):
        if notes and file.is_file() and any(note in file.read_bytes() for note in notes):
            return f"{file.name} holds what was erased"
    return ""


def difference(
    seq: int, got: Fact, wanted: Fact, may_be_erased: frozenset[tuple[int, int]] = frozenset()
) -> str:
    """How an event differs from what it was; "" = not at all."""
    if got[:4] != wanted[:4]:
        return f"seq {seq}: expected {wanted[:4]}, got {got[:4]}"
    if not isinstance(wanted[4], tuple):
        return "" if got[4] == wanted[4] else f"seq {seq}: another payload"
    assert isinstance(got[4], tuple)
    for number, (row, kept) in enumerate(zip(got[4], wanted[4], strict=True)):
        if row != kept and not (row is None and (seq, number) in may_be_erased):
            return f"seq {seq}, row {number}: another row"
    return ""


def facts_of(log: Log) -> list[Fact]:
    """All events of a log as plain data; the single way of reading agrees with the whole one."""
    head = log.refresh()
    envelopes = list(log.envelopes(0, head))
    assert [one.seq for one in envelopes] == list(range(1, head + 1))
    payloads = log.payloads(range(1, head + 1))
    return [
        (one.stream, one.revision, one.type, one.keys, plain(payload))
        for one, payload in zip(envelopes, payloads, strict=True)
    ]


def plain(payload: Payload) -> object:
    """A payload as plain data: bytes, or one `Row` or None (erased) for each row."""
    if isinstance(payload, Blob):
        return payload.data
    if not isinstance(payload, Rows):
        return None
    ends = payload.note_offsets.tolist()
    return tuple(
        None
        if payload.erased is not None and payload.erased[number]
        else Row(
            float(payload.timestamps[number]),
            payload.notes[ends[number] : ends[number + 1]],
            payload.vectors[number].tobytes(),
            payload.embedding_ids[number],
        )
        for number in range(len(payload))
    )


@dataclass
class Runner:
    """Runs the operations of programs on one store.

    Attributes:
        log: The open handle; None between handles.
        ledger: What was promised so far.
        living: Ids of records that no delete named yet, oldest first.
    """

    path: Path
    fs: FileSystem
    log: Log | None = None
    ledger: Ledger = Ledger()
    living: list[str] = field(default_factory=list)
    _clock: Iterator[int] = field(default_factory=lambda: itertools.count(10**18, 10**6))
    _number: int = 0

    def open(self) -> Log:
        """The open handle."""
        if self.log is None:
            self.log = Log.open(
                self.path,
                fs=self.fs,
                segment_bytes_max=SEGMENT_BYTES_MAX,
                clock=self._clock.__next__,
            )
            self.ledger = self.ledger.settled(self.log.refresh())
        return self.log

    def take_over(self) -> None:
        """Enter what a store holds already into the ledger, as durable."""
        facts = tuple(facts_of(self.open()))
        self.ledger = Ledger(facts, frozenset({0, len(facts)}), len(facts))

    def run(self, name: str) -> None:
        """Run one operation."""
        OPERATIONS[name](self)

    def try_run(self, name: str) -> LogError | LogCorrupt | None:
        """Run one operation; a failure is taken as it says: nothing happened, or all is in doubt.

        A handle that refuses everything is closed, as its message asks. What a backup wrote and
        could not read is the one failure that no log raises.
        """
        try:
            self.run(name)
        except (LogError, LogCorrupt) as error:
            if not isinstance(error, LogError) and name != "backup":
                raise
            if isinstance(error, LogPoisoned):
                self.forget()
            elif self.log is not None:
                self.ledger = replace(self.ledger, doubtful=())
            return error
        return None

    def commit(self, *drafts: Draft, durable: bool = True) -> None:
        """Append a batch, and enter it into the ledger."""
        log = self.open()
        facts = tuple(
            (one.stream, one.revision, one.type, one.keys, plain(one.payload)) for one in drafts
        )
        self.ledger = replace(self.ledger, doubtful=facts)
        done = log.commit(lambda _: drafts, durability="fsync" if durable else "os")
        assert done is not None
        first = len(self.ledger.facts) + 1
        assert (done.first_seq, done.last_seq) == (first, first + len(drafts) - 1)
        ledger = self.ledger.settled(done.last_seq)
        self.ledger = replace(ledger, durable=done.last_seq if done.durable else ledger.durable)
        for draft in drafts:
            if isinstance(draft.payload, Rows):
                self.living += draft.keys

    def records(self, count: int, note_bytes: int = 12) -> Draft:
        """A put of new records."""
        self._number += 1
        choose = random.Random(self._number)
        notes = [choose.randbytes(note_bytes) for _ in range(count)]
        vectors = np.array([[choose.random() for _ in range(2)] for _ in range(count)])
        rows = Rows(
            timestamps=np.array([choose.random() for _ in range(count)]),
            notes=b"".join(notes),
            note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
            vectors=vectors,
            embedding_ids=(None,) * count,
        )
        keys = tuple(f"r{self._number}-{row}" for row in range(count))
        return Draft(RECORDS, self._next(RECORDS), "records_put", rows, keys=keys, count=count)

    def words(self, *data: bytes) -> list[Draft]:
        """Session events."""
        first = self._next(SESSION)
        return [
            Draft(SESSION, revision, "note.taken", Blob(one), count=1)
            for revision, one in enumerate(data, first)
        ]

    def deletion(self) -> Draft:
        """A delete of the oldest record, or of one that never was."""
        key = self.living.pop(0) if self.living else "nobody"
        revision = self._next(RECORDS)
        return Draft(RECORDS, revision, "records_deleted", Blob(b""), keys=(key,), count=1)

    def _next(self, stream: Stream) -> int:
        self.open()
        return sum(fact[0] == stream for fact in self.ledger.facts) + 1

    def close(self) -> None:
        """Close the handle."""
        log, self.log = self.log, None
        if log is not None:
            log.close()

    def forget(self) -> None:
        """Leave the handle as the end of its process does: locks go, nothing else happens."""
        log, self.log = self.log, None
        if log is not None:
            abandon(log)


def abandon(log: Log) -> None:
    """Give up a handle without writing or syncing anything."""
    log._core.state = "poisoned"
    log._interval.stop()
    log._watcher.close()
    log._files.close()
    log._core.release()


def put(run: Runner) -> None:
    """One record, durable."""
    run.commit(run.records(1))


def batch(run: Runner) -> None:
    """Three records and two session events in one batch, durable."""
    run.commit(run.records(3), *run.words(b"one", b"two"))


def soft(run: Runner) -> None:
    """A session event that nobody syncs."""
    run.commit(*run.words(b"left to the system"), durable=False)


def delete(run: Runner) -> None:
    """The oldest record, durable."""
    run.commit(run.deletion())


def roll(run: Runner) -> None:
    """A batch that finds no room in a segment with anything in it, so a new one begins."""
    run.commit(run.records(1, ROLL_BYTES))


def compact(run: Runner) -> None:
    """Take the rows of all deleted records out."""
    log, dead = run.open(), dead_rows(run.ledger.facts)
    run.ledger = replace(run.ledger, erasing=run.ledger.erasing | dead)
    done = log.compact(erasure_of(run.ledger.facts))
    if not done.pending:
        run.ledger = replace(run.ledger, erased=dead, erasing=frozenset())


def backup(run: Runner) -> None:
    """Copy what came since the last backup into it."""
    source = run.open()
    try:
        with Log.open(
            backup_of(run.path), fs=run.fs, segment_bytes_max=SEGMENT_BYTES_MAX
        ) as target:
            copy_log(SegmentJournal(source), SegmentJournal(target))
    except StorageError as error:
        # What one of the two logs raised; else the copy was looked at, and could not be read.
        if isinstance(error.__cause__, LogError):
            raise error.__cause__ from error
        raise
    count = len(run.ledger.facts)
    run.ledger = replace(run.ledger, durable=count, backed_up=count)


def backup_of(path: Path) -> Path:
    """Where the backup of a store lies: beside it."""
    return path.with_name(f"{path.name}-backup")


def reopen(run: Runner) -> None:
    """Close, and open again."""
    run.close()
    run.open()


OPERATIONS: dict[str, Step] = {
    "put": put,
    "batch": batch,
    "soft": soft,
    "delete": delete,
    "roll": roll,
    "compact": compact,
    "backup": backup,
    "reopen": reopen,
}

Program = tuple[str, ...]


def short_programs(length: int = EXHAUSTIVE_LENGTH) -> list[Program]:
    """Every program of this length; the shorter ones are their beginnings."""
    return list(itertools.product(OPERATIONS, repeat=length))


def long_program(choose: random.Random) -> Program:
    """One of the longer programs."""
    return tuple(choose.choices(list(OPERATIONS), k=choose.randint(*LONG_LENGTH)))


def is_new(program: Program, at: int) -> bool:
    """True for one of the programs that begin alike up to and with step `at`."""
    first = next(iter(OPERATIONS))
    return all(name == first for name in program[at + 1 :])


@contextmanager
def determined(seed: int = 0) -> Iterator[None]:
    """What is random in a store follows from a seed, and files have few zeros ahead."""
    choose = random.Random(seed)
    with (
        mock.patch.object(secrets, "token_bytes", choose.randbytes),
        mock.patch.object(secrets, "token_hex", lambda size: choose.randbytes(size).hex()),
        mock.patch.object(secrets, "randbits", choose.getrandbits),
        mock.patch.object(append_module, "ZERO_AHEAD_BYTES", 1 << 10),
    ):
        yield
