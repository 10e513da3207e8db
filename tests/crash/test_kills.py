"""Processes that are killed lose nothing acknowledged and tear no batch.

Goal: P1, P4 and P6 with real processes and SIGKILL. Method: two writers at a time append, put and
delete, and send each acknowledged batch to the parent before they go on, while a third process
compacts; the parent kills them at random moments, opens the store and compares it with the ledger.
What would have to break: an acknowledgement before the write, a lock that is left held, a torn tail
that is taken for events or left in the way, a generation that is half there.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from fmemory_segments import Blob, Draft, Log, LogError
from fmemory_segments._txn import LogTxn
from tests.crash.programs import Fact, dead_rows, difference, erasure_of, facts_of, plain
from tests.crash.settings import ROUNDS, chooser
from tests.segments.log_tools import damage_findings, next_revision, put_draft

# Children are forked from a server that has imported everything: starting one costs little.
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.crash.test_kills"])
WAIT_S = 120.0
KILL_ROUNDS = 4 * ROUNDS
LIFE_S = 0.06
SEGMENT_BYTES_MAX = 60_000
Ledger = dict[int, Fact]


def write_for_ever(path: Path, name: str, result: Connection) -> None:
    """Append batches, and tell the parent of each one when it is acknowledged."""
    log = Log.open(path, segment_bytes_max=SEGMENT_BYTES_MAX)
    choose = Random(name)
    while True:
        drafts: list[Draft] = []
        done = log.commit(partial(make, name=name, choose=choose, drafts=drafts))
        assert done is not None
        result.send((done.first_seq, [_fact(draft) for draft in drafts]))


def make(txn: LogTxn, name: str, choose: Random, drafts: list[Draft]) -> list[Draft]:
    """Session events that say which of how many they are, a put, and a delete of half of it."""
    stream, count = ("session", name), choose.randint(1, 5)
    first = next_revision(txn, stream)
    for at in range(count):
        data = f"{at}/{count} ".encode() + choose.randbytes(choose.randint(0, 3_000))
        drafts.append(Draft(stream, first + at, "note.taken", Blob(data)))
    records = ("records",)
    put = put_draft(next_revision(txn, records), choose.getrandbits(40), 2)
    key = put.keys[:1]
    drafts += [put, Draft(records, put.revision + 1, "records_deleted", Blob(b""), keys=key)]
    return drafts


def compact_for_ever(path: Path, name: str, result: Connection) -> None:
    """Take out the rows of deleted records, again and again, and tell whenever that is done."""
    log = Log.open(path, segment_bytes_max=SEGMENT_BYTES_MAX, lock_timeout_s=WAIT_S)
    while name:
        log.compact(erasure_of(facts_of(log)))
        result.send((0, []))


def tell_before_writing(path: Path, name: str, result: Connection) -> None:
    """The same with a mistake: the second batch is told of first and written later."""
    log = Log.open(path, segment_bytes_max=SEGMENT_BYTES_MAX)
    choose = Random(name)

    def plan(txn: LogTxn) -> list[Draft]:
        drafts = make(txn, name, choose, [])
        result.send((txn.head_seq + 1, [_fact(draft) for draft in drafts]))
        if txn.head_seq:
            threading.Event().wait(WAIT_S)  # Until it is killed, as at a busy disk.
        return drafts

    for _ in range(2):
        log.commit(plan)


def _fact(draft: Draft) -> Fact:
    return draft.stream, draft.revision, draft.type, draft.keys, plain(draft.payload)


class Child:
    """A process that tells what was acknowledged, until it is killed.

    Raises:
        EOFError: It ended before it told of anything.
    """

    def __init__(self, target: object, *args: object) -> None:
        self.ledger: Ledger = {}
        self._receive, send = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(target=target, args=(*args, send))  # type: ignore[arg-type]
        self._process.start()
        send.close()
        try:
            self._note()
        except BaseException:
            self.end()
            raise

    def _note(self) -> None:
        assert self._receive.poll(WAIT_S), f"expected a message within {WAIT_S} s, got none"
        first, facts = self._receive.recv()
        self.ledger.update(enumerate(facts, first))

    def kill_after(self, seconds: float) -> None:
        """Let it run for a while, kill it, and read the rest of what it told.

        One that has ended by itself, with an error or without, fails the test.
        """
        killer = threading.Timer(seconds, self._process.kill)
        killer.start()
        # A message that the kill cut off in the middle is an OSError: nothing was acknowledged.
        with suppress(EOFError, OSError):
            while True:
                self._note()
        self._process.join(WAIT_S)
        killer.join()
        self._receive.close()
        assert self._process.exitcode == -signal.SIGKILL

    def end(self) -> None:
        """Leave no process behind, whatever a test found."""
        self._process.kill()
        self._process.join(WAIT_S)


def complaint(path: Path, ledger: Ledger) -> str:
    """What is wrong with a store whose writers were killed; "" = nothing."""
    try:
        with Log.open(path) as log:
            facts = facts_of(log)
    except LogError as error:
        return f"it does not open: {error}"
    dead = dead_rows(facts)
    for seq, wanted in ledger.items():
        if seq > len(facts):
            return f"seq {seq} was acknowledged, {len(facts)} are there"
        if wrong := difference(seq, facts[seq - 1], wanted, dead):
            return wrong
    return _torn(facts) or ", ".join(damage_findings(path))


def _torn(facts: Sequence[Fact]) -> str:
    """The first batch that is not whole: each begins with 0/n and ends with a delete."""
    kinds = [_place(fact) for fact in facts]
    for seq, (one, following) in enumerate(pairwise(kinds), 1):
        if following[0] != one[1]:
            return f"seq {seq + 1}: expected {one[1]}, got {following[0]}"
    return "" if not kinds or kinds[-1][1] == "0" else "the last batch is not whole"


def _place(fact: Fact) -> tuple[str, str]:
    """Which part of a batch an event is, and which one follows it."""
    if fact[2] == "records_put":
        return "put", "delete"
    if fact[2] == "records_deleted":
        return "delete", "0"
    assert isinstance(fact[4], bytes)
    at, count = map(int, fact[4].partition(b" ")[0].split(b"/"))
    return str(at), str(at + 1) if at + 1 < count else "put"


def test_killed_writers_lose_nothing_acknowledged_and_tear_no_batch(tmp_path: Path) -> None:
    choose = chooser("kills")
    ledger: Ledger = {}
    for number in range(KILL_ROUNDS):
        children: list[Child] = []
        try:
            for one in range(2):
                name = f"{number}-{one}-{choose.random()}"
                children.append(Child(write_for_ever, tmp_path, name))
            children.append(Child(compact_for_ever, tmp_path, "compactor"))
            choose.shuffle(children)
            for child in children:
                child.kill_after(choose.random() * LIFE_S)
                assert not child.ledger.keys() & ledger.keys()
                ledger.update(child.ledger)
        finally:
            for child in children:
                child.end()
        assert complaint(tmp_path, ledger) == ""


def test_kills_tell_of_a_batch_that_is_acknowledged_before_it_is_written(tmp_path: Path) -> None:
    child = Child(tell_before_writing, tmp_path, "careless")
    child.kill_after(LIFE_S)
    assert "was acknowledged" in complaint(tmp_path, child.ledger)
