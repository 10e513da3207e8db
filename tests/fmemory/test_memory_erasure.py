"""Data taken out of the log in memory are gone, and all else is as it was.

Goal: the reference of what a compaction does. Method: random histories and erasures, several in a
row, compared item by item with what the log held before. What would have to break: a row that is
taken with its neighbour, a digest that changes, a count that counts twice.
"""

from __future__ import annotations

import random
import threading

import pytest

from fmemory.errors import ClosedStore, StoreBusy
from fmemory.journals import MemoryJournal
from fmemory.testing._journal_base import stored
from fmemory_segments import LOC_ROW_BITS
from tests.fmemory.erasure_tools import (
    Before,
    Writer,
    check_erased,
    choose_some,
    erasure_of,
    fill,
    remember,
)


def filled(seed: int, batches: int = 20) -> tuple[MemoryJournal, Before, random.Random]:
    journal = MemoryJournal()
    choose = random.Random(seed)
    fill(journal, Writer(choose), batches)
    return journal, remember(journal), choose


@pytest.mark.parametrize("seed", range(6))
def test_random_erasures_take_what_they_name_and_nothing_else(seed: int) -> None:
    journal, before, choose = filled(seed)
    locs: set[int] = set()
    seqs: set[int] = set()
    for _ in range(3):
        erasure = choose_some(before, choose)
        named_locs, named_seqs = set(erasure.locs.tolist()), set(erasure.seqs.tolist())
        done = journal.compact(erasure)
        assert (done.erased_rows, done.erased_events) == (
            len(named_locs - locs),
            len(named_seqs - seqs),
        )
        assert (done.upto, done.pending, done.notices) == (erasure.upto, (), ())
        locs |= named_locs
        seqs |= named_seqs
        check_erased(journal, before, locs, seqs)
    assert journal.verify(journal.head()) == []


def test_head_that_was_never_asked_for_before_comes_out_the_same() -> None:
    choose = random.Random(1)
    journal = MemoryJournal()
    fill(journal, Writer(choose), 10)
    twin = MemoryJournal()
    twin.import_exact(stored(journal))
    before = remember(journal)
    twin.compact(choose_some(before, choose))
    assert twin.head() == journal.head()


def test_events_behind_the_erasure_are_left_alone() -> None:
    journal, before, _ = filled(3)
    upto = len(before.envelopes) // 2
    done = journal.compact(erasure_of(upto, before.locs, before.seqs))
    locs = {one for one in before.locs if one >> LOC_ROW_BITS <= upto}
    seqs = {one for one in before.seqs if one <= upto}
    assert (done.erased_rows, done.erased_events) == (len(locs), len(seqs))
    check_erased(journal, before, locs, seqs)


def test_erasure_that_names_nothing_changes_nothing() -> None:
    journal, before, _ = filled(4, 5)
    done = journal.compact(erasure_of(len(before.envelopes), [], []))
    assert (done.erased_rows, done.erased_events) == (0, 0)
    check_erased(journal, before, set(), set())


def test_compaction_waits_for_a_writer_no_longer_than_it_is_told() -> None:
    journal, before, choose = filled(5, 5)
    erasure = choose_some(before, choose)
    refused: list[BaseException] = []

    def compact() -> None:
        try:
            journal.compact(erasure, timeout_s=0)
        except StoreBusy as error:
            refused.append(error)

    def plan(_txn: object) -> None:
        thread = threading.Thread(target=compact)
        thread.start()
        thread.join()

    journal.commit(plan)
    assert len(refused) == 1
    check_erased(journal, before, set(), set())


def test_closed_log_refuses() -> None:
    journal, before, choose = filled(6, 5)
    journal.close()
    with pytest.raises(ClosedStore):
        journal.compact(choose_some(before, choose))
