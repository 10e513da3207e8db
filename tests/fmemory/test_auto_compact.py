"""Compaction by itself: when it is worth it, in the background, and loud when it fails.

Goal: garbage is erased without anybody asking, no write waits for it, and a failure shows. Method:
rules small enough for a test; the thread is waited for by what it calls. What would have to break:
a look that never comes, one at every write, a failure that ends the thread or is nowhere seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

import fmemory
from fmemory import AutoCompact, ContractError, StorageError
from fmemory._engine.auto_compact import AutoCompactor
from fmemory._engine.backend import JournalBackend
from fmemory.journal import Compaction, Erasure, JournalSizes
from fmemory.journals import MemoryJournal

WAIT_S = 30.0
EAGER = AutoCompact(garbage_share=0.5, garbage_min=2, fragments=4, pause_s=0)


class WatchedJournal(MemoryJournal):
    """Counts compactions, fails the first ones if told so, and says when one was tried."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.tried = Event()
        self.taken: list[int] = []
        self.fragments: int | None = None

    def compact(
        self, erasure: Erasure, *, timeout_s: float | None = None, exclusive: bool = False
    ) -> Compaction:
        try:
            if self.failures:
                self.failures -= 1
                raise StorageError("the disk is on fire")
            done = super().compact(erasure, timeout_s=timeout_s, exclusive=exclusive)
            self.taken.append(done.erased_rows)
            return done
        finally:
            self.tried.set()

    def sizes(self) -> JournalSizes:
        return JournalSizes(fragment_count=self.fragments)


@pytest.fixture
def journal() -> WatchedJournal:
    return WatchedJournal()


@pytest.fixture
def memory(journal: WatchedJournal) -> Iterator[JournalBackend]:
    with JournalBackend(journal) as backend:
        yield backend


def add(memory: JournalBackend, *ids: str) -> None:
    for one in ids:
        memory.add_note("tea", id=one)


def delete(memory: JournalBackend, *ids: str) -> None:
    memory.delete(memory.delete_request(ids))


def test_half_of_the_records_deleted_is_worth_it(
    memory: JournalBackend, journal: WatchedJournal
) -> None:
    compactor = AutoCompactor(journal, memory.compact, EAGER)
    add(memory, "a", "b", "c", "d")
    delete(memory, "a")
    assert not compactor.look()
    delete(memory, "b")
    assert compactor.look()
    assert not compactor.look()
    assert journal.taken == [2]


def test_many_fragments_are_worth_it(memory: JournalBackend, journal: WatchedJournal) -> None:
    compactor = AutoCompactor(journal, memory.compact, EAGER)
    journal.fragments = 3
    assert not compactor.look()
    journal.fragments = 4
    assert compactor.look()


def test_deleted_records_are_erased_in_the_background(
    memory: JournalBackend, journal: WatchedJournal
) -> None:
    memory.auto_compact(EAGER)
    add(memory, "a", "b")
    delete(memory, "a", "b")
    while not journal.tried.is_set():
        add(memory, *[f"n{memory.head().seq}"])
        delete(memory, f"n{memory.head().seq - 1}")
    assert journal.tried.wait(WAIT_S)
    memory.close()
    assert journal.taken
    assert journal.taken[0] >= 2


def test_writes_between_two_looks_cost_a_comparison(
    memory: JournalBackend, journal: WatchedJournal
) -> None:
    compactor = AutoCompactor(journal, memory.compact, EAGER)
    compactor.look()
    for seq in range(64):
        compactor.touch(seq)
    assert compactor._thread is None
    compactor.touch(64)
    assert compactor._thread is not None
    compactor.close()


def test_failure_is_told_and_the_next_try_succeeds(
    memory: JournalBackend, journal: WatchedJournal
) -> None:
    journal.failures = 1
    journal.fragments = 9
    memory.auto_compact(EAGER)
    add(memory, "a")
    assert journal.tried.wait(WAIT_S)
    while not (notices := memory.health().notices):
        assert not journal.taken
    assert notices == ("automatic compaction failed, and is tried again: the disk is on fire",)
    assert memory.health().ok
    journal.tried.clear()
    while not journal.tried.is_set():
        add(memory, f"b{memory.head().seq}")
    memory.close()
    assert journal.taken


def test_open_takes_rules() -> None:
    with fmemory.open(":memory:", auto_compact=EAGER) as memory:
        memory.add_note("tea")
    with fmemory.open(":memory:", auto_compact=True) as memory:
        memory.add_note("tea")


@pytest.mark.parametrize("rules", [0.5, "yes", {"garbage_share": 0.5}])
def test_rules_of_another_type_are_refused(rules: object) -> None:
    with pytest.raises(ContractError):
        fmemory.open(":memory:", auto_compact=rules)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "rules",
    [
        {"garbage_share": 0.0},
        {"garbage_share": 1.1},
        {"garbage_share": float("nan")},
        {"garbage_min": 0},
        {"fragments": 0},
        {"pause_s": -1.0},
        {"pause_s": float("inf")},
    ],
)
def test_rules_out_of_range_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(ContractError):
        AutoCompact(**rules)  # type: ignore[arg-type]
