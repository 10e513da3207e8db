"""Writers, readers, a compactor and one who dies on one log, interleaved, and what they saw.

All that actors were told is kept in one `History`: what was acknowledged, where it was said to be,
and everything that readers read. When all are done the log is opened once more and compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

from fmemory_segments import Blob, Draft, Log, LogError, Stream
from fmemory_segments._txn import LogTxn
from fmemory_segments.errors import StoreBusy
from tests.crash.disk import QuickFileSystem
from tests.crash.programs import Fact, abandon, dead_rows, difference, erasure_of, facts_of, plain
from tests.crash.scheduler import Scheduler, SteppedFileSystem
from tests.segments.log_tools import Crash, damage_findings, next_revision, put_draft

SEGMENT_BYTES_MAX = 1_500
LONG_S = 1e6
COMPACTIONS = 3
WRITERS = 3
COMMITS = 5
LOOKS = 12


@dataclass
class History:
    """What the actors of one run were told.

    Attributes:
        acknowledged: By seq, each event whose commit returned.
        seen: By seq, each event that a reader read, with the reader's name.
    """

    acknowledged: dict[int, Fact] = field(default_factory=dict)
    seen: dict[int, list[tuple[str, Fact]]] = field(default_factory=dict)


@dataclass
class Scene:
    """One run: a store, a scheduler and its actors."""

    path: Path
    choose: Random
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.choose)

    @contextmanager
    def handle(self, *, read_only: bool = False, create: bool = True) -> Iterator[Log]:
        """A handle of an actor; where the actor's process ends, it is left as it is."""
        log = Log.open(
            self.path,
            fs=SteppedFileSystem(self.scheduler),
            read_only=read_only,
            create=create,
            segment_bytes_max=SEGMENT_BYTES_MAX,
            lock_timeout_s=LONG_S,
        )
        try:
            yield log
        except Crash:
            abandon(log)
            raise
        log.close()

    def write(self, name: str) -> None:
        """Commit batches of one to three events."""
        choose = Random(f"{name} {self.choose.random()}")
        with self.handle() as log:
            for number in range(COMMITS):
                self._commit(log, name, number, choose)

    def _commit(self, log: Log, name: str, number: int, choose: Random) -> None:
        count = choose.randint(1, 3)
        drafts: list[Draft] = []

        def plan(txn: LogTxn) -> list[Draft]:
            stream = ("session", name)
            first = next_revision(txn, stream)
            drafts[:] = [
                Draft(stream, first + at, "note.taken", Blob(f"{at}/{count} {number}".encode()))
                for at in range(count)
            ]
            records, at = ("records",), choose.getrandbits(40)
            if choose.random() < 0.6:
                put = put_draft(next_revision(txn, records), at, 2)
                drafts.append(put)
                if choose.random() < 0.6:
                    revision, keys = put.revision + 1, put.keys[:1]
                    drafts.append(Draft(records, revision, "records_deleted", Blob(b""), keys=keys))
            return drafts

        done = log.commit(plan, durability=choose.choice(["fsync", "os"]))
        assert done is not None
        for seq, draft in enumerate(drafts, done.first_seq):
            fact = (draft.stream, draft.revision, draft.type, draft.keys, plain(draft.payload))
            assert seq not in self.history.acknowledged, f"seq {seq} was given twice"
            self.history.acknowledged[seq] = fact

    def follow(self, name: str) -> None:
        """Look for new events again and again, each of them once, and now and then an old one."""
        with self.handle() as log:
            pass
        with self.handle(read_only=True, create=False) as log:
            after = 0
            for _ in range(LOOKS):
                try:
                    head = log.refresh()
                except StoreBusy:
                    continue  # A writer is at work: that is what it says.
                assert head >= after, f"the head went from {after} back to {head}"
                self._read(log, name, after, head)
                after = head

    def _read(self, log: Log, name: str, after: int, head: int) -> None:
        first = max(1, after - 2)
        envelopes = list(log.envelopes(first - 1, head))
        assert [one.seq for one in envelopes] == list(range(first, head + 1))
        payloads = log.payloads(range(first, head + 1))
        for one, payload in zip(envelopes, payloads, strict=True):
            fact = (one.stream, one.revision, one.type, one.keys, plain(payload))
            self.history.seen.setdefault(one.seq, []).append((name, fact))

    def compact(self) -> None:
        """Take out the rows of deleted records, again and again, while the others go on."""
        with self.handle() as log:
            for _ in range(COMPACTIONS):
                try:
                    done = log.compact(erasure_of(facts_of(log)), timeout_s=LONG_S)
                except StoreBusy:
                    continue
                assert not done.pending, done.pending

    def run(self) -> str:
        """What is wrong with a run; "" = nothing."""
        scheduler = self.scheduler
        actors = [
            scheduler.add(f"writer {number}", partial(self.write, f"w{number}"))
            for number in range(WRITERS)
        ]
        actors += [
            scheduler.add(f"reader {number}", partial(self.follow, f"r{number}"))
            for number in range(2)
        ]
        actors.append(scheduler.add("compactor", self.compact))
        if self.choose.random() < 0.5:
            self.choose.choice(actors).dies_at = self.choose.randint(1, 1_500)
        scheduler.run()
        for actor in actors:
            if actor.error is not None and not isinstance(actor.error, Crash):
                return f"{actor.name}: {type(actor.error).__name__}: {actor.error}"
        return self._judge()

    def _judge(self) -> str:
        try:
            with Log.open(self.path, fs=QuickFileSystem()) as log:
                facts = facts_of(log)
        except LogError as error:
            return f"it does not open: {error}"
        told = [("acknowledged", seq, fact) for seq, fact in self.history.acknowledged.items()]
        told += [
            (name, seq, fact) for seq, seen in self.history.seen.items() for name, fact in seen
        ]
        dead = dead_rows(facts)
        for name, seq, fact in told:
            if seq > len(facts):
                return f"{name}: seq {seq} is gone, {len(facts)} are there"
            # A reader may have seen a row before or after it was taken out.
            got, wanted = facts[seq - 1], without(fact, seq, dead)
            if wrong := difference(seq, without(got, seq, dead), wanted):
                return f"{name}: {wrong}"
        return _torn(facts) or ", ".join(damage_findings(self.path))


def without(fact: Fact, seq: int, dead: frozenset[tuple[int, int]]) -> Fact:
    """An event as it is when its deleted rows were taken out."""
    stream, revision, kind, keys, rows = fact
    if isinstance(rows, tuple):
        rows = tuple(None if (seq, number) in dead else row for number, row in enumerate(rows))
    return stream, revision, kind, keys, rows


def _torn(facts: list[Fact]) -> str:
    """The first batch that is not whole; batches say in their payloads how many events they had."""
    places = [
        _place(fact[0], fact[4])
        for fact in facts
        if fact[0][0] == "session" and isinstance(fact[4], bytes)
    ]
    for (stream, at, count), (following, next_at, _) in pairwise(places):
        is_last = at == count - 1
        if (is_last and next_at != 0) or (not is_last and (following, next_at) != (stream, at + 1)):
            return f"a batch of {stream} is not whole"
    return "" if not places or places[-1][1] == places[-1][2] - 1 else "the last batch is not whole"


def _place(stream: Stream, data: bytes) -> tuple[Stream, int, int]:
    at, count = data.partition(b" ")[0].split(b"/")
    return stream, int(at), int(count)
