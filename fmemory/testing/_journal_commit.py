"""Committing: numbers without gaps, plans under exclusion, all of a batch or none of it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Lock, Thread

import pytest

from fmemory.errors import ContractError, StoreBusy
from fmemory.journal import Blob, Draft, Durability, Journal, Rows, Txn
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._journal_base import (
    NOTES,
    OTHER,
    WORDS,
    Journals,
    JournalSuiteBase,
    blob,
    commit,
    counted,
    put,
    refusal,
)
from fmemory.testing._threads import WAIT_S_MAX, in_threads
from fmemory_segments.event import EVENT_BYTES_MAX, NONCE_BYTES, ROWS_MAX

THREADS = 8
COMMITS = 12


class PlannedError(Exception):
    """Raised inside plans."""


class CommitPart(JournalSuiteBase):
    """What `commit` promises."""

    def test_new_journal_has_head_zero(self, journal: Journal) -> None:
        assert journal.refresh() == 0

    def test_first_event_has_seq_one(self, journal: Journal) -> None:
        assert commit(journal, blob()).first_seq == 1

    def test_seqs_have_no_gap_across_batches(self, journal: Journal) -> None:
        commit(journal, blob(), blob(revision=2))
        commit(journal, blob(revision=3))
        commit(journal, blob(revision=4), blob(revision=5), blob(revision=6))
        assert [one.seq for one in journal.envelopes(0, 6)] == [1, 2, 3, 4, 5, 6]

    def test_commit_names_first_and_last_seq_of_its_batch(self, journal: Journal) -> None:
        commit(journal, blob())
        made = commit(journal, blob(revision=2), blob(revision=3))
        assert (made.first_seq, made.last_seq) == (2, 3)

    def test_refresh_gives_the_newest_seq(self, journal: Journal) -> None:
        commit(journal, blob(), blob(revision=2))
        assert journal.refresh() == 2

    def test_revisions_are_kept_as_drafted(self, journal: Journal) -> None:
        commit(journal, blob(), put("a"), blob(revision=2), put("b", stream=OTHER))
        assert [one.revision for one in journal.envelopes(0, 4)] == [1, 1, 2, 1]

    def test_envelope_keeps_every_drafted_field(self, journal: Journal) -> None:
        draft = Draft(
            stream=("words", "", "ü.x"),
            revision=1,
            type="word.said",
            payload=Blob(b"data"),
            occurred_at_ns=-5,
            actor="ann",
            run_id="run-1",
            reason="because",
            event_id="key-1",
            keys=("k1", "k2"),
            count=7,
        )
        commit(journal, draft)
        kept = next(journal.envelopes(0, 1))
        names = [name for name in Draft.__struct_fields__ if name != "payload"]
        assert {n: getattr(kept, n) for n in names} == {n: getattr(draft, n) for n in names}

    def test_blob_comes_back_byte_for_byte(self, journal: Journal) -> None:
        data = bytes(range(256)) * 3
        commit(journal, blob(data))
        payload = journal.payloads([1])[0]
        assert isinstance(payload, Blob)
        assert payload.data == data

    def test_empty_blob_comes_back_empty(self, journal: Journal) -> None:
        commit(journal, blob(b""))
        payload = journal.payloads([1])[0]
        assert isinstance(payload, Blob)
        assert payload.data == b""

    def test_journal_draws_a_nonce_for_each_blob(self, journal: Journal) -> None:
        commit(journal, blob(), blob(revision=2))
        nonces = [one.nonce for one in journal.payloads([1, 2]) if isinstance(one, Blob)]
        assert [len(nonce) for nonce in nonces] == [NONCE_BYTES] * 2
        assert nonces[0] != nonces[1]

    def test_journal_draws_a_nonce_for_each_row(self, journal: Journal) -> None:
        commit(journal, put("a", "b"))
        payload = journal.payloads([1])[0]
        assert isinstance(payload, Rows)
        assert len(payload.nonces) == 2 * NONCE_BYTES
        assert payload.nonces[:NONCE_BYTES] != payload.nonces[NONCE_BYTES:]

    def test_batch_of_a_thousand_events_is_whole(self, journal: Journal) -> None:
        made = commit(journal, *(blob(revision=1 + i) for i in range(1000)))
        assert (made.first_seq, made.last_seq) == (1, 1000)
        assert [one.revision for one in journal.envelopes(0, 1000)] == list(range(1, 1001))

    def test_most_rows_an_event_may_have_are_kept(self, journal: Journal) -> None:
        ids = [f"r{i}" for i in range(ROWS_MAX)]
        commit(journal, put(*ids, dim=1))
        runs = list(journal.fold(0, 1))
        assert [list(getattr(run, "ids", ())) for run in runs] == [ids]

    def test_one_row_more_than_an_event_may_have_is_refused(self, journal: Journal) -> None:
        draft = put(*(f"r{i}" for i in range(ROWS_MAX + 1)), dim=1)
        refusal(lambda: commit(journal, draft), ContractError)
        assert journal.refresh() == 0

    def test_payload_longer_than_an_event_may_have_is_refused(self, journal: Journal) -> None:
        draft = blob(bytes(EVENT_BYTES_MAX + 1))
        refusal(lambda: commit(journal, blob(), draft), ContractError)
        assert journal.refresh() == 0

    def test_mixed_batch_keeps_its_order(self, journal: Journal) -> None:
        commit(journal, put("a"), blob(), put("b", revision=2), put("c", stream=OTHER))
        streams = [one.stream for one in journal.envelopes(0, 4)]
        assert streams == [NOTES, WORDS, NOTES, OTHER]


class PlanPart(JournalSuiteBase):
    """What a plan sees, and what becomes of what it does."""

    def test_plan_returning_none_writes_nothing(self, journal: Journal) -> None:
        assert journal.commit(lambda _txn: None) is None
        assert journal.refresh() == 0

    def test_plan_returning_no_drafts_writes_nothing(self, journal: Journal) -> None:
        assert journal.commit(lambda _txn: ()) is None
        assert journal.refresh() == 0

    def test_what_a_plan_raises_is_passed_on(self, journal: Journal) -> None:
        def plan(_txn: Txn) -> list[Draft]:
            raise PlannedError

        with pytest.raises(PlannedError):
            journal.commit(plan)
        assert journal.refresh() == 0

    def test_commit_works_after_a_plan_raised(self, journal: Journal) -> None:
        def plan(_txn: Txn) -> list[Draft]:
            raise PlannedError

        with pytest.raises(PlannedError):
            journal.commit(plan)
        assert commit(journal, blob()).last_seq == 1

    def test_plan_sees_the_newest_seq(self, journal: Journal) -> None:
        commit(journal, blob(), blob(revision=2))
        seen: list[int] = []
        journal.commit(lambda txn: seen.append(txn.head_seq))
        assert set(seen) == {2}

    def test_plan_sees_the_time_that_its_drafts_will_carry(self, journal: Journal) -> None:
        seen: list[int] = []

        def plan(txn: Txn) -> list[Draft]:
            seen.append(txn.now_ns)
            return [blob()]

        made = journal.commit(plan)
        assert made is not None
        assert made.recorded_at_ns == seen[-1]

    def test_plan_reads_events_committed_before(self, journal: Journal) -> None:
        commit(journal, put("a", "b"))
        seen: list[tuple[str, ...]] = []

        def plan(txn: Txn) -> None:
            seen.extend(one.keys for one in txn.envelopes(0, txn.head_seq))

        journal.commit(plan)
        assert seen[-1] == ("a", "b")

    def test_plan_finds_an_idempotency_key(self, journal: Journal) -> None:
        draft = Draft(WORDS, 1, "word.said", Blob(b"x"), event_id="key")
        commit(journal, draft)
        seen: list[int | None] = []
        journal.commit(lambda txn: seen.append(txn.find(WORDS, "key")))
        assert set(seen) == {1}

    def test_plan_reads_payloads(self, journal: Journal) -> None:
        commit(journal, blob(b"before"))
        seen: list[object] = []
        journal.commit(lambda txn: seen.extend(txn.payloads([1])))
        assert {one.data for one in seen if isinstance(one, Blob)} == {b"before"}

    def test_two_plans_never_run_at_once(self, journal: Journal) -> None:
        inside = Lock()
        overlaps: list[int] = []

        def plan(txn: Txn) -> Sequence[Draft] | None:
            if not inside.acquire(blocking=False):
                overlaps.append(txn.head_seq)
                return None
            try:
                return counted()(txn)
            finally:
                inside.release()

        in_threads(lambda _n: [journal.commit(plan) for _ in range(COMMITS)], THREADS)
        assert overlaps == []

    def test_check_then_append_from_many_threads_loses_nothing(self, journal: Journal) -> None:
        in_threads(lambda _n: [journal.commit(counted()) for _ in range(COMMITS)], THREADS)
        revisions = [one.revision for one in journal.envelopes(0, journal.refresh())]
        assert revisions == list(range(1, THREADS * COMMITS + 1))

    def test_commits_of_threads_name_disjoint_seqs(self, journal: Journal) -> None:
        made: list[int] = []

        def work(_number: int) -> None:
            for _ in range(COMMITS):
                one = journal.commit(counted())
                assert one is not None
                made.append(one.last_seq)

        in_threads(work, THREADS)
        assert sorted(made) == list(range(1, THREADS * COMMITS + 1))

    @needs(Capability.SHARED)
    def test_check_then_append_from_two_handles_loses_nothing(self, journals: Journals) -> None:
        handles = [journals.open(), journals.open()]
        for turn in range(20):
            handles[turn % 2].commit(counted())
        revisions = [one.revision for one in handles[0].envelopes(0, handles[0].refresh())]
        assert revisions == list(range(1, 21))

    @needs(Capability.SHARED)
    def test_plan_sees_what_another_handle_committed(self, journals: Journals) -> None:
        here, there = journals.open(), journals.open()
        commit(there, blob())
        seen: list[int] = []
        here.commit(lambda txn: seen.append(txn.head_seq))
        assert seen[-1] == 1


class BusyPart(JournalSuiteBase):
    """Waits for other writers are bounded."""

    def refused_while_held(self, holder: Journal, other: Journal) -> None:
        """Commit to `other` while a plan of `holder` runs; `other` must give up in time."""
        entered, leave = Event(), Event()

        def plan(_txn: Txn) -> None:
            entered.set()
            leave.wait(WAIT_S_MAX)

        thread = Thread(target=holder.commit, args=(plan,), daemon=True)
        thread.start()
        assert entered.wait(WAIT_S_MAX)
        try:
            refusal(lambda: other.commit(lambda _txn: [blob()], timeout_s=0.05), StoreBusy)
        finally:
            leave.set()
            thread.join(WAIT_S_MAX)

    def test_commit_gives_up_after_its_timeout(self, journal: Journal) -> None:
        self.refused_while_held(journal, journal)
        assert journal.refresh() == 0

    def test_commit_works_after_one_gave_up(self, journal: Journal) -> None:
        self.refused_while_held(journal, journal)
        assert commit(journal, blob()).last_seq == 1

    @needs(Capability.SHARED)
    def test_commit_of_another_handle_gives_up_after_its_timeout(self, journals: Journals) -> None:
        holder, other = journals.open(), journals.open()
        self.refused_while_held(holder, other)
        assert commit(other, blob()).last_seq == 1

    def test_reading_does_not_wait_for_a_plan(self, journal: Journal) -> None:
        commit(journal, blob(b"before"))
        seen: list[object] = []

        def plan(_txn: Txn) -> None:
            reader = Thread(target=lambda: seen.extend(journal.payloads([1])), daemon=True)
            reader.start()
            reader.join(WAIT_S_MAX)

        journal.commit(plan)
        assert [one.data for one in seen if isinstance(one, Blob)] == [b"before"]


class TimePart(JournalSuiteBase):
    """Recorded times: one a batch, and never going back."""

    def test_events_of_a_batch_carry_one_time(self, journal: Journal) -> None:
        made = commit(journal, blob(), put("a"), blob(revision=2))
        times = {one.recorded_at_ns for one in journal.envelopes(0, 3)}
        assert times == {made.recorded_at_ns}

    @needs(Capability.CLOCK)
    def test_recorded_time_is_that_of_the_clock(self, journals: Journals) -> None:
        journal = journals.open()
        assert commit(journal, blob()).recorded_at_ns == journals.clock.now_ns

    @needs(Capability.CLOCK)
    def test_recorded_time_never_goes_back_with_the_clock(self, journals: Journals) -> None:
        journal = journals.open()
        start = journals.clock.now_ns
        for step, revision in zip((0, -10, -10, 5), range(1, 5), strict=True):
            journals.clock.now_ns = start + step
            commit(journal, blob(revision=revision))
        times = [one.recorded_at_ns - start for one in journal.envelopes(0, 4)]
        assert times == [0, 0, 0, 5]

    @needs(Capability.CLOCK, Capability.PERSISTENT)
    def test_recorded_time_never_goes_back_over_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        start = journals.clock.now_ns
        commit(journal, blob())
        journals.clock.now_ns = start - 1_000
        journal = journals.reopen(journal)
        assert commit(journal, blob(revision=2)).recorded_at_ns == start


class DurabilityPart(JournalSuiteBase):
    """What a commit promises about power cuts."""

    @needs(Capability.PERSISTENT)
    def test_commit_with_fsync_says_durable(self, journal: Journal) -> None:
        assert commit(journal, blob(), durability="fsync").durable

    @needs(Capability.PERSISTENT)
    def test_durable_seq_reaches_a_commit_with_fsync(self, journal: Journal) -> None:
        made = commit(journal, blob(), durability="fsync")
        assert journal.health().durable_seq >= made.last_seq

    @needs(Capability.PERSISTENT)
    def test_sync_returns_at_least_the_seq_asked_for(self, journal: Journal) -> None:
        made = commit(journal, blob(), durability="os")
        assert journal.sync(made.last_seq) >= made.last_seq

    @needs(Capability.PERSISTENT)
    def test_sync_without_argument_reaches_the_head(self, journal: Journal) -> None:
        commit(journal, blob(), durability="os")
        commit(journal, blob(revision=2), durability="interval")
        assert journal.sync() == 2

    @pytest.mark.parametrize("durability", ["fsync", "interval", "os"])
    def test_event_is_visible_under_every_durability(
        self, journal: Journal, durability: Durability
    ) -> None:
        commit(journal, blob(), durability=durability)
        assert journal.refresh() == 1

    def test_never_durable_commit_is_not_called_durable(self, journal: Journal) -> None:
        made = commit(journal, blob(), durability="os")
        assert not made.durable or journal.health().durable_seq >= made.last_seq
