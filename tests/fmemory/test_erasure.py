"""What is dead is told from the log, once, for compaction, verification and the past.

Goal: nothing living is ever chosen, nothing dead is left out, and erased data that nothing deletes
are found. Method: random histories against what the events themselves say; a journal that is told
to erase too much; a compaction in the middle of a read. What would have to break: a record that
comes and goes under one id, a clear beside a delete, a session that begins again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from fmemory import HistoryCompacted, LogCorrupt, NewEvent, TimeRange
from fmemory._engine.backend import JournalBackend
from fmemory._engine.erasure import erasure_at, floor_of
from fmemory.journal import Erasure, RowPage
from fmemory.journals import MemoryJournal
from fmemory_segments import LOC_ROW_BITS, LogReason
from fmemory_segments.event import UInt64Array

SEEDS = range(12)
NAMESPACES = [(), ("n",)]


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def memory(journal: MemoryJournal) -> Iterator[JournalBackend]:
    with JournalBackend(journal) as backend:
        yield backend


def erase(journal: MemoryJournal, *, locs: list[int] = [], seqs: list[int] = []) -> None:  # noqa: B006
    upto = journal.refresh()
    journal.compact(Erasure(upto, np.array(locs, np.uint64), np.array(seqs, np.uint64)))


def live_on(memory: JournalBackend, chance: random.Random) -> None:
    """One random write."""
    space = chance.choice(NAMESPACES)
    name = chance.choice("abc")
    session = chance.choice(["s1", "s2"])
    steps: list[Callable[[], object]] = [
        lambda: memory.delete(memory.delete_request((name, "zz"), space)),
        lambda: memory.clear(memory.clear_request(space)),
        lambda: memory.set_meta(memory.meta_set_request("k", chance.random(), space)),
        lambda: memory.session(session).append_transcript_messages([]),
        lambda: memory.append(("session", session), [NewEvent("word.said", 1)]),
        lambda: memory.delete_session(session),
        lambda: memory.append(("own",), [NewEvent("word.said", name)]),
        lambda: memory.delete_stream(("own",)),
    ]
    if not memory.get(memory.get_request((name,), space)).records:
        steps = [lambda: memory.add_note("tea", [1.0], id=name, namespace=space), *steps]
    chance.choice(steps)()


def dead_by_events(memory: JournalBackend) -> tuple[list[int], list[int]]:
    """The same from whole events, one after the other, in plain dicts."""
    living: dict[tuple[str, ...], dict[str, int]] = {}
    waiting: dict[tuple[str, ...], list[int]] = {}
    locs: list[int] = []
    seqs: list[int] = []
    for event in memory.events():
        rows = living.setdefault(event.stream, {})
        match event.type:
            case "records_put":
                for row, one in enumerate(event.records):
                    rows[one.id] = event.seq << LOC_ROW_BITS | row
            case "records_deleted":
                assert isinstance(event.data, dict)
                ids = event.data["ids"]
                assert isinstance(ids, list)
                locs += [rows.pop(str(one)) for one in ids]
            case "records_cleared":
                locs += rows.values()
                rows.clear()
            case "session_deleted" | "stream_deleted" | "meta_cleared":
                seqs += waiting.pop(event.stream, [])
            case _:
                waiting.setdefault(event.stream, []).append(event.seq)
    return sorted(locs), sorted(seqs)


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_dead_is_chosen_and_nothing_that_lives(
    memory: JournalBackend, journal: MemoryJournal, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        live_on(memory, chance)
    chosen = erasure_at(journal, journal.refresh())
    assert (chosen.locs.tolist(), chosen.seqs.tolist()) == dead_by_events(memory), f"seed {seed}"


def test_choice_rests_on_the_seq_it_is_made_for(
    memory: JournalBackend, journal: MemoryJournal
) -> None:
    memory.add_note("tea", id="a")
    memory.add_note("tea", id="b")
    memory.delete(memory.delete_request(("a",)))
    memory.delete(memory.delete_request(("b",)))
    assert erasure_at(journal, 2).locs.tolist() == []
    assert erasure_at(journal, 3).locs.tolist() == [1 << LOC_ROW_BITS]


def test_floor_is_the_newest_deletion_of_what_was_erased(
    memory: JournalBackend, journal: MemoryJournal
) -> None:
    for name in "abc":
        memory.add_note("tea", id=name)
    memory.delete(memory.delete_request(("a",)))
    memory.delete(memory.delete_request(("b",)))
    assert floor_of(journal, ("records",), 5) == 0
    erase(journal, locs=[1 << LOC_ROW_BITS])
    assert floor_of(journal, ("records",), 5) == 4
    memory.compact()
    assert floor_of(journal, ("records",), 5) == 5


def test_erased_row_that_nothing_deletes_is_found(
    memory: JournalBackend, journal: MemoryJournal
) -> None:
    memory.add_note("tea", id="a")
    memory.add_note("tea", id="b")
    memory.delete(memory.delete_request(("a",)))
    erase(journal, locs=[1 << LOC_ROW_BITS, 2 << LOC_ROW_BITS])
    (found,) = memory.verify()
    assert (found.reason, found.damage, found.first_seq) == (LogReason.NOT_DELETED, True, 2)


def test_erased_payload_that_nothing_deletes_is_found(
    memory: JournalBackend, journal: MemoryJournal
) -> None:
    memory.append(("own",), [NewEvent("word.said", 1), NewEvent("word.said", 2)])
    erase(journal, seqs=[2])
    (found,) = memory.verify()
    assert (found.reason, found.first_seq, found.last_seq) == (LogReason.NOT_DELETED, 2, 2)


@pytest.mark.parametrize("end", [1, 2, 3, 4, 5])
def test_stub_that_names_no_deletion_of_its_stream_is_found(
    memory: JournalBackend, journal: MemoryJournal, end: int
) -> None:
    memory.add_note("tea", id="a")
    memory.append(("own",), [NewEvent("word.said", 1), NewEvent("word.said", 2)])
    memory.delete(memory.delete_request(("a",)))
    memory.append(("own",), [NewEvent("word.said", 3)])
    forget, ends = np.array([2], np.uint64), np.array([end], np.uint64)
    nothing = np.zeros(0, np.uint64)
    journal.compact(Erasure(5, nothing, nothing, forget, ends))
    found = [(one.reason, one.damage, one.first_seq) for one in memory.verify()]
    # A stub that names itself is that of a deletion: nothing tells it from one.
    wrong = [(LogReason.NOT_DELETED, True, 2)] if end != 2 else []
    assert found == [(LogReason.FORGOTTEN, False, 2), *wrong]


def test_record_whose_data_are_gone_is_told_as_damage(
    memory: JournalBackend, journal: MemoryJournal
) -> None:
    memory.add_note("tea", id="a")
    memory.add_note("tea", id="b")
    erase(journal, locs=[2 << LOC_ROW_BITS])
    with pytest.raises(LogCorrupt) as caught:
        memory.scan(memory.scan_request())
    assert caught.value.seq == 2
    assert [one.id for one in memory.get(memory.get_request(("a",))).records] == ["a"]


def test_record_count_of_a_forgotten_past_is_refused(memory: JournalBackend) -> None:
    memory.add_note("tea", id="a")
    memory.delete(memory.delete_request(("a",)))
    memory.add_note("tea", id="b")
    memory.compact(forget_before=3)
    assert (memory.at(2).stats().record_count, memory.stats().record_count) == (0, 1)
    with pytest.raises(HistoryCompacted) as caught:
        memory.at(1).stats()
    assert caught.value.floor == 2


class DeletingJournal(MemoryJournal):
    """Runs something once, between the question and the read of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().rows(locs, notes=notes, vectors=vectors)


READS: dict[str, Callable[[JournalBackend], list[str]]] = {
    "scan": lambda log: [one.id for one in log.scan(log.scan_request()).records],
    "get": lambda log: [one.id for one in log.get(log.get_request(("b", "a"))).records],
    "vectors": lambda log: list(log.vectors(TimeRange(0)).ids),
}


@pytest.mark.parametrize("read", READS)
def test_record_erased_while_it_is_read_is_a_deleted_one(read: str) -> None:
    journal = DeletingJournal()
    with JournalBackend(journal) as log:

        def delete_and_compact() -> None:
            log.delete(log.delete_request(("b",)))
            log.compact()

        log.add_note("tea", [1.0], id="a", timestamp=1.0)
        log.add_note("tea", [2.0], id="b", timestamp=2.0)
        journal.meanwhile = delete_and_compact
        assert READS[read](log) == ["a"]
        assert journal.meanwhile is None
