"""Compaction of a memory: what is deleted goes, what is there stays, no past is told wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from fmemory._audit import audit
from fmemory.backend import LogBackend, LogView
from fmemory.errors import Conflict, ContractError, HistoryCompacted, ReadOnlyStore, Reason
from fmemory.log_models import ErasedRecord
from fmemory.testing._backend_base import Stores, readable
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._log_base import LogSuiteBase, as_log, events, said_event, types
from fmemory.testing._samples import count, get_ids, record, records, scan_ids
from fmemory.testing._sessions_samples import entry, features, manifest, said


@needs(Capability.LOG)
class CompactionPart(LogSuiteBase):
    """What `compact` promises."""

    def fill_and_delete(self, log: LogBackend) -> None:
        """Records, sessions, streams and metadata, and half of each deleted: 15 events."""
        self.put(log, *records(1, 2, 3), record("r3", 4.0, namespace=("n",)))
        self.delete(log, "r1")
        self.clear(log, ("n",))
        self.set_meta(log, "k", "kept")
        self.set_meta(log, "k", "gone", ("n",))
        self.clear(log, ("n",))
        log.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
        log.append_transcript_messages("s1", said("hello", "there"))
        log.append_transcript_messages("s2", said("secret"))
        log.delete_session("s2")
        log.append(self.STREAM, (said_event("a"),))
        log.append(("own",), (said_event("b", "key"),))
        log.delete_stream(("own",))

    def test_compaction_changes_nothing_that_is_there(self, log: LogBackend) -> None:
        self.fill_and_delete(log)
        before = readable(log), log.head(), types(events(log))
        log.compact()
        assert (readable(log), log.head(), types(events(log))) == before

    def test_compaction_says_what_it_took_out(self, log: LogBackend) -> None:
        self.fill_and_delete(log)
        done = log.compact()
        assert done.upto == log.head().seq
        # r1 and the record of the cleared namespace; its meta value, the session, the stream.
        assert (done.erased_records, done.erased_events) == (2, 3)

    def test_second_compaction_takes_out_nothing(self, log: LogBackend) -> None:
        self.fill_and_delete(log)
        log.compact()
        again = log.compact()
        assert (again.erased_records, again.erased_events) == (0, 0)

    def test_compaction_records_no_event(self, log: LogBackend) -> None:
        self.fill_and_delete(log)
        with self.nothing_written(log):
            log.compact()

    def test_erased_record_is_told_as_id_and_time(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        self.delete(log, "r0")
        log.compact()
        assert log.event(1).records[0] == ErasedRecord(id="r0", timestamp=1.0)
        assert log.event(1).records[1].id == "r1"
        told = [event.type for event in log.history(record_id="r0")]
        assert told == ["records_put", "records_deleted"]

    def test_erased_event_is_told_as_erased(self, log: LogBackend) -> None:
        with audit(actor="ann"):
            log.append_transcript_messages("s1", said("secret"))
        log.delete_session("s1")
        log.compact()
        found = log.event(1)
        assert (found.type, found.actor, found.data) == ("transcript_appended", "ann", None)
        assert [one.erased for one in events(log)] == [True, False]

    def test_verify_accepts_what_deletions_cover(self, log: LogBackend) -> None:
        self.fill_and_delete(log)
        pinned = log.head()
        log.compact()
        assert log.verify(pinned) == ()

    def test_id_of_an_erased_record_can_be_put_again(self, log: LogBackend) -> None:
        self.put(log, record("a", 1.0))
        self.delete(log, "a")
        log.compact()
        self.put(log, record("a", 2.0))
        assert log.compact().erased_records == 0
        assert scan_ids(log) == ["a"]

    def test_cursor_goes_on_over_a_compaction(self, log: LogBackend) -> None:
        self.put(log, *records(*range(10)))
        page = log.scan(log.scan_request(limit=3))
        self.delete(log, "r2", "r3", "r8")
        log.compact()
        rest = log.scan(log.scan_request(limit=500, cursor=page.next_cursor)).records
        assert [one.id for one in rest] == ["r4", "r5", "r6", "r7", "r9"]

    def test_same_write_again_is_answered_though_its_data_are_erased(self, log: LogBackend) -> None:
        request = log.put_request((record("a"),), event_id="key")
        first = log.put(request).receipt
        self.delete(log, "a")
        log.compact()
        with self.nothing_written(log):
            assert log.put(request).receipt == first

    def test_late_write_to_an_erased_session_is_a_conflict(self, log: LogBackend) -> None:
        late = log.append_transcript_messages("s1", said("x")).revision
        log.delete_session("s1")
        log.compact()
        with self.refused(log, Conflict, Reason.REVISION_MISMATCH):
            log.append_transcript_messages("s1", said("late"), expected_revision=late)

    def test_async_compaction_does_the_same(self, log: LogBackend) -> None:
        self.fill_and_delete(log)
        before = readable(log)
        assert asyncio.run(log.acompact()).erased_records == 2
        assert readable(log) == before

    @needs(Capability.PERSISTENT)
    def test_compacted_store_reopens_as_it_was(self, stores: Stores) -> None:
        log = as_log(stores.open())
        self.fill_and_delete(log)
        before = readable(log), log.head()
        log.compact()
        again = as_log(stores.reopen(log))
        assert (readable(again), again.head(), again.verify()) == (*before, ())

    @needs(Capability.SHARED)
    def test_other_handle_reads_and_writes_on(self, stores: Stores) -> None:
        here, there = as_log(stores.open()), as_log(stores.open())
        self.fill_and_delete(here)
        before = readable(there)
        here.compact()
        assert readable(there) == before
        self.put(there, record("new"))
        assert get_ids(here, ["new"]) == ["new"]

    @needs(Capability.READ_ONLY, Capability.PERSISTENT)
    def test_read_only_handle_does_not_compact(self, stores: Stores) -> None:
        log = as_log(stores.open())
        self.fill_and_delete(log)
        reader = as_log(stores.open_read_only())
        with pytest.raises(ReadOnlyStore):
            reader.compact()
        assert not any(one.erased for one in events(log))


@needs(Capability.LOG, Capability.TIME_TRAVEL)
class ErasedPastPart(LogSuiteBase):
    """What a view says whose data are gone: that they are, or what was, and never anything else."""

    def test_records_before_the_floor_are_refused_with_the_floor(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        self.delete(log, "r0")
        self.put(log, record("r9"))
        log.compact()
        asks: list[Callable[[LogView], object]] = [
            scan_ids,
            count,
            lambda view: get_ids(view, ["r1"]),
            lambda view: get_ids(view, ["r0", "r1"]),
            lambda view: view.vectors(),
        ]
        for ask in asks:
            with pytest.raises(HistoryCompacted) as caught:
                ask(log.at(1))
            assert (caught.value.seq, caught.value.floor) == (1, 2)

    def test_records_from_the_floor_on_are_as_they_were(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        self.delete(log, "r0")
        at_floor = readable(log)
        self.put(log, record("r9"))
        log.compact()
        assert readable(log.at(2)) == at_floor
        assert readable(log.at(3)) == readable(log)

    def test_floor_of_one_namespace_is_not_that_of_another(self, log: LogBackend) -> None:
        self.put(log, record("a"), record("b", namespace=("n",)))
        self.delete(log, "a")
        log.compact()
        assert scan_ids(log.at(2), ("n",)) == ["b"]
        with pytest.raises(HistoryCompacted):
            scan_ids(log.at(2))

    def test_view_made_before_a_compaction_tells_nothing_wrong(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        view = log.at(1)
        assert count(view) == 2
        self.delete(log, "r0")
        log.compact()
        with pytest.raises(HistoryCompacted) as caught:
            scan_ids(view)
        assert caught.value.floor == 2

    def test_sessions_are_as_they_were_where_their_events_are_kept(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("one"))
        log.append_transcript_messages("s1", said("two"))
        log.truncate_transcript("s1", keep=1)
        self.put(log, record("a"))
        self.delete(log, "a")
        log.compact()
        found = [log.at(seq).load_transcript_messages("s1") for seq in (1, 2, 3)]
        assert found == [said("one"), said("one", "two"), said("one")]

    def test_past_of_an_erased_session_is_refused(self, log: LogBackend) -> None:
        log.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
        log.append_transcript_messages("s1", said("secret"))
        log.delete_session("s1")
        log.append_transcript_messages("s1", said("afresh"))
        log.compact()
        view = log.at(2)
        with pytest.raises(HistoryCompacted) as caught:
            view.load_transcript_messages("s1")
        assert (caught.value.seq, caught.value.floor) == (2, 3)
        with pytest.raises(HistoryCompacted):
            view.load_bootstrap_state("s1")
        assert log.at(3).load_transcript_messages("s1") == ()
        assert log.load_transcript_messages("s1") == said("afresh")

    def test_fork_of_an_erased_past_is_refused(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("secret"))
        log.delete_session("s1")
        log.compact()
        with self.nothing_written(log), pytest.raises(HistoryCompacted) as caught:
            log.fork_session("s1", "s2", at=1)
        assert caught.value.floor == 2

    def test_past_of_an_erased_meta_value_is_refused(self, log: LogBackend) -> None:
        self.set_meta(log, "k", "secret")
        self.clear(log)
        log.compact()
        with pytest.raises(HistoryCompacted):
            log.at(1).get_meta(log.meta_get_request("k"))
        assert log.get_meta(log.meta_get_request("k")).value is None


@needs(Capability.LOG)
class ForgettingPart(LogSuiteBase):
    """What `compact(forget_before=…)` leaves of events of which nothing is there any more."""

    def live(self, log: LogBackend) -> None:
        """Ten events; of 1 and of 3 to 6 nothing is there any more, of 9 and 10 neither."""
        with audit(actor="ann", reason="to see"):
            self.put(log, record("secret-id"))
            self.put(log, record("kept"))
            log.append_transcript_messages("s1", said("hello"))
            log.append_transcript_messages("s1", said("there"))
            log.delete_session("s1")
            self.delete(log, "secret-id")
            log.append_transcript_messages("s1", said("afresh"))
            self.set_meta(log, "k", 1)
            self.put(log, record("late"))
            self.delete(log, "late")

    def test_forgetting_changes_nothing_that_is_there(self, log: LogBackend) -> None:
        self.live(log)
        before = readable(log), log.head()
        log.compact(forget_before=8)
        assert (readable(log), log.head()) == before
        assert get_ids(log, ["secret-id", "kept"]) == ["kept"]

    def test_only_place_and_time_of_a_forgotten_event_are_left(self, log: LogBackend) -> None:
        self.live(log)
        done = log.compact(forget_before=8)
        stubs = [one for one in events(log) if one.type == "event_forgotten"]
        assert [one.seq for one in stubs] == [1, 3, 4, 5, 6]
        assert done.forgotten_events == 5
        assert {(one.actor, one.reason, one.data, one.erased) for one in stubs} == {
            (None, None, None, True)
        }
        assert "secret-id" not in repr(events(log))
        assert [event.type for event in events(log)[-2:]] == ["records_put", "records_deleted"]

    def test_second_forgetting_finds_nothing_more(self, log: LogBackend) -> None:
        self.live(log)
        log.compact(forget_before=8)
        assert log.compact(forget_before=8).forgotten_events == 0
        assert log.compact(forget_before=100).forgotten_events == 2

    @needs(Capability.TIME_TRAVEL)
    def test_forgotten_past_is_refused_and_never_told_as_empty(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        log.append_transcript_messages("s1", said("secret"))
        self.delete(log, "r0", "r1")
        log.delete_session("s1")
        log.append_transcript_messages("s1", said("afresh"))
        log.compact(forget_before=log.head().seq)
        asks: list[Callable[[], object]] = [
            lambda: log.fork_session("s1", "s2", at=2),
            lambda: log.at(2).list_sessions(),
            lambda: log.at(2).load_transcript_messages("s1"),
            lambda: scan_ids(log.at(2)),
            lambda: count(log.at(2)),
        ]
        for ask in asks:
            with self.nothing_written(log), pytest.raises(HistoryCompacted) as caught:
                ask()
            assert caught.value.seq == 2 < caught.value.floor <= 4

    @needs(Capability.SHARED)
    def test_handle_that_missed_a_deletion_sees_it_though_it_is_forgotten(
        self, stores: Stores
    ) -> None:
        here, there = as_log(stores.open()), as_log(stores.open())
        self.put(here, record("gone"), record("kept"))
        self.set_meta(here, "k", 1, ("n",))
        here.append_transcript_messages("s1", said("before"))
        before = readable(there), scan_ids(there, ("n",))
        assert before[1] == []
        self.delete(here, "gone")
        self.clear(here, ("n",))
        here.delete_session("s1")
        here.append_transcript_messages("s1", said("after"))
        self.set_meta(here, "other", 2, ("n",))
        here.compact(forget_before=here.head().seq + 1)
        assert scan_ids(there) == ["kept"]
        assert (readable(there), there.verify()) == (readable(here), here.verify())
        assert there.get_meta(there.meta_get_request("k", ("n",))).value is None
        self.put(there, record("gone"))
        assert scan_ids(here) == ["kept", "gone"]

    def test_verify_tells_of_what_was_forgotten_and_proves_the_rest(self, log: LogBackend) -> None:
        self.live(log)
        pinned = log.head()
        log.compact(forget_before=8)
        (found,) = log.verify(pinned)
        assert (found.damage, found.first_seq, found.last_seq) == (False, 1, 6)

    def test_deletion_stays_while_what_it_deleted_is_not_forgotten(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        self.delete(log, "r0")
        assert log.compact(forget_before=100).forgotten_events == 0
        self.delete(log, "r1")
        assert log.compact(forget_before=100).forgotten_events == 3
        assert count(log) == 0

    def test_end_of_a_session_stays_as_long_as_it_is_the_newest(self, log: LogBackend) -> None:
        late = log.append_transcript_messages("s1", said("x")).revision
        log.delete_session("s1")
        assert log.compact(forget_before=100).forgotten_events == 1
        assert log.list_sessions().sessions == ()
        with self.refused(log, Conflict, Reason.REVISION_MISMATCH):
            log.append_transcript_messages("s1", said("late"), expected_revision=late)

    @needs(Capability.TIME_TRAVEL)
    def test_past_of_what_was_forgotten_is_refused(self, log: LogBackend) -> None:
        self.live(log)
        now = readable(log)
        log.compact(forget_before=8)
        asks: list[Callable[[LogView], object]] = [
            scan_ids,
            lambda view: view.load_transcript_messages("s1"),
            lambda view: view.is_initialized("s1"),
            lambda view: view.list_sessions(),
        ]
        for ask, floor in zip(asks, (10, 5, 5, 5), strict=True):
            with pytest.raises(HistoryCompacted) as caught:
                ask(log.at(4))
            assert (caught.value.seq, caught.value.floor) == (4, floor)
        assert log.at(7).load_transcript_messages("s1") == said("afresh")
        assert scan_ids(log.at(10)) == ["kept"]
        assert readable(log.at(10)) == now

    def test_forgotten_event_id_can_be_used_again(self, log: LogBackend) -> None:
        request = log.put_request((record("a"),), event_id="key")
        log.put(request)
        self.delete(log, "a")
        log.compact(forget_before=100)
        receipt = log.put(request).receipt
        assert receipt is not None
        assert receipt.seq == 3
        assert scan_ids(log) == ["a"]

    def test_time_says_before_what_is_forgotten(self, log: LogBackend) -> None:
        self.live(log)
        when = log.event(10).recorded_at + timedelta(seconds=1)
        assert log.compact(forget_before=when).forgotten_events == 7
        assert log.compact(forget_before=log.event(1).recorded_at).forgotten_events == 0

    @pytest.mark.parametrize("before", [0, -1, 1.5, True, "8", datetime(2025, 1, 1)])
    def test_forgetting_before_no_moment_is_refused(self, log: LogBackend, before: object) -> None:
        self.live(log)
        with self.nothing_written(log), pytest.raises(ContractError):
            self.untyped(log, "compact", forget_before=before)
        assert not any(one.erased for one in events(log))
