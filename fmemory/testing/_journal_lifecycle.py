"""Opening, watching, measuring and closing a journal."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import numpy as np
import pytest

from fmemory.errors import ClosedStore, ReadOnlyStore
from fmemory.journal import Erasure, Journal
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._journal_base import (
    NOTES,
    WORDS,
    Journals,
    JournalSuiteBase,
    blob,
    commit,
    put,
    refusal,
)
from fmemory.testing._threads import WAIT_S_MAX

USES: dict[str, Callable[[Journal], object]] = {
    "commit": lambda journal: commit(journal, blob(revision=2)),
    "refresh": lambda journal: journal.refresh(),
    "envelopes": lambda journal: list(journal.envelopes(0, 1)),
    "payloads": lambda journal: journal.payloads([1]),
    "fold": lambda journal: list(journal.fold(0, 1)),
    "head": lambda journal: journal.head(),
    "sync": lambda journal: journal.sync(),
    "check_place": lambda journal: journal.check_place(),
}


class LifecyclePart(JournalSuiteBase):
    """Handles: identity, reopening, closing."""

    def test_declared_capabilities_are_those_of_the_journal(self, journal: Journal) -> None:
        assert journal.capabilities.persistent == self.PERSISTENT

    def test_store_id_is_sixteen_bytes(self, journal: Journal) -> None:
        assert len(journal.store_id) == 16

    def test_two_journals_have_different_store_ids(self, journals: Journals) -> None:
        assert journals.open("one").store_id != journals.open("two").store_id

    def test_journal_opened_for_writing_is_not_read_only(self, journal: Journal) -> None:
        assert not journal.read_only

    def test_second_close_does_nothing(self, journal: Journal) -> None:
        journal.close()
        journal.close()

    @pytest.mark.parametrize("use", USES)
    def test_use_after_close_is_refused(self, journal: Journal, use: str) -> None:
        commit(journal, blob())
        journal.close()
        refusal(lambda: USES[use](journal), ClosedStore)

    def test_health_says_ok_and_then_closed(self, journal: Journal) -> None:
        states = [journal.health().state]
        journal.close()
        states.append(journal.health().state)
        assert states == ["ok", "closed"]

    @needs(Capability.PERSISTENT)
    def test_store_id_is_the_same_after_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        before = journal.store_id
        assert journals.reopen(journal).store_id == before

    @needs(Capability.PERSISTENT)
    def test_events_are_there_after_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        commit(journal, put("a"), blob())
        before = list(journal.envelopes(0, 2))
        assert list(journals.reopen(journal).envelopes(0, 2)) == before

    @needs(Capability.PERSISTENT)
    def test_seqs_go_on_after_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        commit(journal, blob(), blob(revision=2))
        assert commit(journals.reopen(journal), blob(revision=3)).first_seq == 3

    @needs(Capability.READ_ONLY, Capability.PERSISTENT)
    def test_read_only_handle_reads(self, journals: Journals) -> None:
        commit(journals.open(), blob())
        assert journals.open_read_only().refresh() == 1

    @needs(Capability.READ_ONLY, Capability.PERSISTENT)
    def test_read_only_handle_refuses_to_commit(self, journals: Journals) -> None:
        commit(journals.open(), blob())
        reader = journals.open_read_only()
        refusal(lambda: commit(reader, blob(revision=2)), ReadOnlyStore)


class UsagePart(JournalSuiteBase):
    """`usage`: what each type of each stream holds."""

    def test_usage_counts_events_by_stream_and_type(self, journal: Journal) -> None:
        commit(journal, put("a"), blob(), blob(revision=2), put("b", revision=2))
        found = {(one.stream, one.type): one.event_count for one in journal.usage()}
        assert found == {(NOTES, "records_put"): 2, (WORDS, "word.said"): 2}

    def test_usage_of_a_longer_payload_is_larger(self, journal: Journal) -> None:
        commit(journal, blob(b"x" * 10, stream=("a",)), blob(b"x" * 10_000, stream=("b",)))
        size = {one.stream: one.payload_bytes for one in journal.usage()}
        assert size[("b",)] - size[("a",)] >= 9_000

    def test_new_journal_has_no_usage(self, journal: Journal) -> None:
        assert journal.usage() == []


class WatchPart(JournalSuiteBase):
    """`watch`: a wake-up hint for whoever waits."""

    @needs(Capability.WATCH)
    def test_watcher_is_called_after_a_commit(self, journal: Journal) -> None:
        called = Event()
        stop = journal.watch(called.set)
        commit(journal, blob())
        assert called.wait(WAIT_S_MAX)
        stop()

    @needs(Capability.WATCH)
    def test_all_watchers_are_called_after_a_commit(self, journal: Journal) -> None:
        woken = [Event(), Event()]
        stops = [journal.watch(one.set) for one in woken]
        commit(journal, blob())
        assert all(one.wait(WAIT_S_MAX) for one in woken)
        for stop in stops:
            stop()

    def test_stopping_a_watch_twice_does_nothing(self, journal: Journal) -> None:
        stop = journal.watch(lambda: None)
        stop()
        stop()

    def test_watcher_that_left_does_not_hinder_commits(self, journal: Journal) -> None:
        journal.watch(lambda: None)()
        assert commit(journal, blob()).last_seq == 1

    def test_journal_stays_in_its_place_when_it_is_compacted(self, journals: Journals) -> None:
        journal = journals.open()
        commit(journal, blob())
        journal.check_place()
        none = np.zeros(0, np.uint64)
        journal.compact(Erasure(1, locs=none, seqs=none))
        journal.check_place()
        assert journal.refresh() == 1

    def test_watcher_may_read_the_journal(self, journal: Journal) -> None:
        seen: list[int] = []
        stop = journal.watch(lambda: seen.append(journal.refresh()))
        commit(journal, blob())
        stop()
        assert journal.refresh() == 1
