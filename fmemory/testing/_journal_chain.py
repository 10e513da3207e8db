"""The chain: one value for one history, whatever stores it; exact imports; verification."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fmemory.journal import Head, Journal, StoredEvent
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._journal_base import (
    OTHER,
    Journals,
    JournalSuiteBase,
    blob,
    commit,
    put,
    refusal,
    shifted,
    stored,
)
from fmemory_segments.digest import chain_step, event_digest, payload_digest
from fmemory_segments.event import ZERO_CHAIN


def fill(journal: Journal) -> None:
    """Six events of both payload kinds in three batches."""
    commit(journal, put("a", "b"), blob(b"one"))
    commit(journal, put("x", stream=OTHER, dim=0), blob(b"", revision=2))
    commit(journal, put("c", revision=2, embedding_ids=["model"]), blob(b"two", revision=3))


def chain_of(events: Sequence[StoredEvent]) -> list[bytes]:
    """The chain value after each event, from the public digest functions alone."""
    values = [ZERO_CHAIN]
    for one in events:
        digest = event_digest(one.envelope, payload_digest(one.payload))
        values.append(chain_step(values[-1], digest))
    return values


class ChainPart(JournalSuiteBase):
    """`head` is a function of the events and of nothing else."""

    def test_head_of_a_new_journal_is_zero(self, journal: Journal) -> None:
        assert journal.head() == Head(0, ZERO_CHAIN)

    def test_head_is_the_chain_over_all_digests(self, journal: Journal) -> None:
        fill(journal)
        assert journal.head() == Head(6, chain_of(stored(journal))[6])

    def test_head_at_any_seq_is_the_chain_up_to_it(self, journal: Journal) -> None:
        fill(journal)
        expected = chain_of(stored(journal))
        for upto in (4, 0, 6, 1, 5):
            assert journal.head(upto) == Head(upto, expected[upto])

    def test_head_at_an_old_seq_does_not_move_with_the_log(self, journal: Journal) -> None:
        fill(journal)
        before = journal.head(3)
        commit(journal, blob(revision=4))
        assert journal.head(3) == before

    def test_head_beyond_the_newest_event_is_refused(self, journal: Journal) -> None:
        fill(journal)
        refusal(lambda: journal.head(7))

    def test_two_journals_with_the_same_events_written_apart_differ(
        self, journals: Journals
    ) -> None:
        one, two = journals.open("one"), journals.open("two")
        fill(one)
        fill(two)
        assert one.head().chain != two.head().chain

    @needs(Capability.PERSISTENT)
    def test_head_is_the_same_after_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        fill(journal)
        before = journal.head()
        assert journals.reopen(journal).head() == before

    @needs(Capability.SHARED)
    def test_head_of_two_handles_is_the_same(self, journals: Journals) -> None:
        here, there = journals.open(), journals.open()
        fill(there)
        here.refresh()
        assert here.head() == there.head()


class ImportPart(JournalSuiteBase):
    """`import_exact` copies a log so that nobody can tell the copy by its chain."""

    def test_imported_log_has_the_head_of_its_source(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        target.import_exact(stored(source))
        assert target.head() == source.head()

    def test_imported_envelopes_are_those_of_the_source(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        target.import_exact(stored(source))
        assert list(target.envelopes(0, 6)) == list(source.envelopes(0, 6))

    def test_import_in_parts_has_the_head_of_its_source(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        target.import_exact(stored(source)[:2])
        target.import_exact(stored(source)[2:])
        assert target.head() == source.head()

    def test_imported_journal_goes_on_by_itself(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        target.import_exact(stored(source))
        assert commit(target, blob(revision=4)).first_seq == 7

    def test_import_returns_what_it_promised(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        made = target.import_exact(stored(source))
        assert made is not None
        assert (made.first_seq, made.last_seq) == (1, 6)

    def test_import_of_nothing_writes_nothing(self, journal: Journal) -> None:
        assert journal.import_exact([]) is None
        assert journal.refresh() == 0

    @pytest.mark.parametrize("first", [0, 2, 3])
    def test_import_that_does_not_continue_the_log_is_refused(
        self, journals: Journals, first: int
    ) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        events = [shifted(one, first + i) for i, one in enumerate(stored(source)[:2])]
        refusal(lambda: target.import_exact(events))
        assert target.refresh() == 0

    def test_import_with_a_gap_inside_writes_nothing(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        events = stored(source)
        refusal(lambda: target.import_exact([*events[:2], events[3]]))
        assert target.refresh() == 0


class VerifyPart(JournalSuiteBase):
    """`verify` is silent about a sound journal and speaks when it does not match a pinned head."""

    def test_verify_finds_nothing_in_a_new_journal(self, journal: Journal) -> None:
        assert journal.verify() == []

    def test_verify_finds_nothing_in_a_sound_journal(self, journal: Journal) -> None:
        fill(journal)
        assert journal.verify() == []

    def test_verify_finds_nothing_against_a_head_pinned_earlier(self, journal: Journal) -> None:
        fill(journal)
        pinned = journal.head()
        commit(journal, blob(revision=4))
        assert journal.verify(pinned) == []

    def test_verify_finds_a_pinned_head_with_another_chain(self, journal: Journal) -> None:
        fill(journal)
        assert journal.verify(Head(4, bytes(32))) != []

    def test_verify_finds_that_a_pinned_head_is_missing(self, journal: Journal) -> None:
        fill(journal)
        assert journal.verify(Head(9, journal.head().chain)) != []

    def test_verify_finds_nothing_against_several_heads(self, journal: Journal) -> None:
        fill(journal)
        assert journal.verify([journal.head(seq) for seq in (6, 0, 3)]) == []

    def test_verify_names_the_events_behind_the_last_head_that_fits(self, journal: Journal) -> None:
        fill(journal)
        pinned = [Head(5, bytes(32)), journal.head(1), journal.head(3), Head(4, bytes(32))]
        (found,) = journal.verify(pinned)
        assert (found.reason.value, found.damage) == ("pinned_head", True)
        assert (found.first_seq, found.last_seq) == (4, 4)

    def test_verify_names_the_events_up_to_a_head_that_is_missing(self, journal: Journal) -> None:
        fill(journal)
        (found,) = journal.verify([Head(9, bytes(32)), journal.head(5)])
        assert (found.reason.value, found.damage) == ("pinned_head", True)
        assert (found.first_seq, found.last_seq) == (6, 9)

    def test_head_that_fits_does_not_excuse_one_before_it(self, journal: Journal) -> None:
        fill(journal)
        (found,) = journal.verify([journal.head(6), Head(2, bytes(32))])
        assert (found.first_seq, found.last_seq) == (1, 2)

    def test_verify_changes_nothing(self, journal: Journal) -> None:
        fill(journal)
        before = journal.head()
        journal.verify()
        assert journal.head() == before
