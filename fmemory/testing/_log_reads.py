"""Reading the log: `events` and its filters, single events, streams, histories, following."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Thread

import pytest

from fmemory.backend import LogBackend
from fmemory.errors import ContractError, InvalidCursor, NotFound, Reason
from fmemory.log_models import Event
from fmemory.record_models import MemoryRecord
from fmemory.testing._backend_base import Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._log_base import LogSuiteBase, as_log, events, said_event, types
from fmemory.testing._samples import page_of, record, records
from fmemory.testing._sessions_samples import entry, features, manifest, said
from fmemory.testing._threads import WAIT_S_MAX

BAD_FILTERS: dict[str, dict[str, object]] = {
    "after": {"after": -1},
    "after text": {"after": "1"},
    "after bool": {"after": True},
    "stream text": {"stream": "records"},
    "stream empty": {"stream": ()},
    "prefix text": {"stream_prefix": "records"},
    "types text": {"types": "records_put"},
    "types int": {"types": (1,)},
    "actor int": {"actor": 1},
    "since naive": {"since": datetime(2025, 1, 1)},
    "until int": {"until": 5},
    "limit 0": {"limit": 0},
    "limit bool": {"limit": True},
}


@needs(Capability.LOG)
class EventsPart(LogSuiteBase):
    """What `events` and `event` promise."""

    def test_new_store_has_no_events(self, log: LogBackend) -> None:
        assert events(log) == []

    def test_seqs_have_no_gap(self, log: LogBackend) -> None:
        self.fill(log)
        assert [one.seq for one in events(log)] == list(range(1, log.head().seq + 1))

    def test_revisions_of_each_stream_have_no_gap(self, log: LogBackend) -> None:
        self.fill(log)
        self.fill_more(log)
        seen: dict[tuple[str, ...], int] = {}
        for one in events(log):
            assert one.revision == seen.get(one.stream, 0) + 1
            seen[one.stream] = one.revision

    def test_recorded_times_never_go_back(self, log: LogBackend) -> None:
        self.fill(log)
        self.fill_more(log)
        times = [one.recorded_at for one in events(log)]
        assert times == sorted(times)

    def test_recorded_times_are_utc(self, log: LogBackend) -> None:
        self.fill(log)
        assert {one.recorded_at.utcoffset() for one in events(log)} == {timedelta(0)}

    def test_put_event_holds_its_records(self, log: LogBackend) -> None:
        many = records(3, 1, 2)
        self.put(log, *many)
        (one,) = events(log)
        assert (one.type, one.stream, list(one.records)) == ("records_put", ("records",), many)

    def test_put_event_of_a_deleted_record_holds_id_and_time(self, log: LogBackend) -> None:
        self.put(log, record("a", 2.5))
        self.delete(log, "a")
        (kept,) = events(log)[0].records
        found = (
            (kept.note.id, kept.note.timestamp)
            if isinstance(kept, MemoryRecord)
            else (kept.id, kept.timestamp)
        )
        assert found == ("a", 2.5)

    def test_put_of_two_namespaces_is_an_event_in_each(self, log: LogBackend) -> None:
        self.put(log, record("x"), record("y", namespace=("a",)), record("z"))
        found = {one.stream: [kept_id(kept) for kept in one.records] for one in events(log)}
        assert found == {("records",): ["x", "z"], ("records", "a"): ["y"]}

    def test_every_write_has_its_type_and_stream(self, log: LogBackend) -> None:
        self.fill(log)
        self.fill_more(log)
        found = [(one.type, one.stream) for one in events(log)]
        session = ("session", "s1")
        assert found == [
            ("records_put", ("records",)),
            ("word.said", self.STREAM),
            ("word.said", self.STREAM),
            ("transcript_appended", session),
            ("records_deleted", ("records",)),
            ("meta_set", ("meta",)),
            ("session_initialized", session),
            ("manifest_saved", session),
            ("features_replaced", session),
            ("feature_pass_updated", session),
            ("progress_appended", session),
            ("transcript_truncated", session),
            ("session_deleted", session),
            ("stream_deleted", self.STREAM),
        ]

    def fill_more(self, log: LogBackend) -> None:
        """Writes of the kinds that `fill` leaves out."""
        log.initialize_session_if_missing("s1", manifest(), features("f1"))
        log.save_manifest("s1", manifest(objective="more"))
        log.replace_feature_list("s1", features("f1", "f2"))
        log.update_feature_pass("s1", "f1", True)
        log.append_progress_entry("s1", entry(1))
        log.truncate_transcript("s1", keep=1)
        log.delete_session("s1")
        log.delete_stream(self.STREAM)

    def test_clear_is_told_to_both_streams(self, log: LogBackend) -> None:
        self.put(log, record("a"))
        self.set_meta(log, "k", 1)
        before = log.head().seq
        self.clear(log)
        found = {(one.type, one.stream) for one in events(log, before)}
        assert found == {("records_cleared", ("records",)), ("meta_cleared", ("meta",))}

    @pytest.mark.parametrize("after", [0, 1, 3, 5, 6, 99])
    def test_after_is_exclusive(self, log: LogBackend, after: int) -> None:
        self.fill(log)
        assert [one.seq for one in log.events(after)] == list(range(after + 1, 7))

    @pytest.mark.parametrize("after", [0, 2, 6])
    def test_after_bounds_backwards_reading_too(self, log: LogBackend, after: int) -> None:
        self.fill(log)
        found = [one.seq for one in log.events(after, backwards=True)]
        assert found == list(range(6, after, -1))

    @pytest.mark.parametrize("backwards", [False, True])
    @pytest.mark.parametrize("limit", [1, 2, 50])
    def test_limit_takes_the_first_of_the_direction(
        self, log: LogBackend, limit: int, backwards: bool
    ) -> None:
        self.fill(log)
        whole = [one.seq for one in log.events(backwards=backwards)]
        found = [one.seq for one in log.events(backwards=backwards, limit=limit)]
        assert found == whole[:limit]

    def test_limit_counts_what_the_filters_leave(self, log: LogBackend) -> None:
        self.fill(log)
        found = [one.seq for one in log.events(types=("word.said",), limit=1, backwards=True)]
        assert found == [3]

    def test_stream_filter_is_exact(self, log: LogBackend) -> None:
        for stream in (("a",), ("a", "b"), ("a.b",), ("a", "")):
            log.append(stream, (said_event(),))
        assert [one.stream for one in log.events(stream=("a",))] == [("a",)]

    def test_prefix_filter_compares_label_by_label(self, log: LogBackend) -> None:
        for stream in (("user1",), ("user1", "a"), ("user10",), ("user1.a",)):
            log.append(stream, (said_event(),))
        found = [one.stream for one in log.events(stream_prefix=("user1",))]
        assert found == [("user1",), ("user1", "a")]

    def test_empty_prefix_is_no_filter(self, log: LogBackend) -> None:
        self.fill(log)
        assert len(list(log.events(stream_prefix=()))) == 6

    def test_type_filter_takes_any_of_several(self, log: LogBackend) -> None:
        self.fill(log)
        found = types(list(log.events(types=("meta_set", "records_put", "never.was"))))
        assert found == ["records_put", "meta_set"]

    def test_audit_filters_are_exact(self, log: LogBackend) -> None:
        log.bind(actor="ann", run_id="r1").append(self.STREAM, (said_event("1"),))
        log.bind(actor="ann", run_id="r2").append(self.STREAM, (said_event("2"),))
        log.bind(actor="anna", run_id="r1").append(self.STREAM, (said_event("3"),))
        assert [one.data for one in log.events(actor="ann")] == ["1", "2"]
        assert [one.data for one in log.events(run_id="r1")] == ["1", "3"]
        assert [one.data for one in log.events(actor="ann", run_id="r1")] == ["1"]

    def test_since_is_inclusive_and_until_exclusive(self, log: LogBackend) -> None:
        self.fill(log)
        for middle in events(log):
            since = [one.seq for one in log.events(since=middle.recorded_at)]
            until = [one.seq for one in log.events(until=middle.recorded_at)]
            times = [one.recorded_at for one in events(log)]
            assert len(since) == sum(one >= middle.recorded_at for one in times)
            assert len(until) == sum(one < middle.recorded_at for one in times)

    def test_events_are_pinned_while_the_log_grows(self, log: LogBackend) -> None:
        self.fill(log)
        reading = log.events()
        first = next(reading)
        log.append(self.STREAM, (said_event(),))
        assert [first.seq, *(one.seq for one in reading)] == list(range(1, 7))

    def test_paused_reading_hinders_no_write(self, log: LogBackend) -> None:
        self.fill(log)
        reading = log.events()
        next(reading)
        log.append(self.STREAM, (said_event(),))
        assert log.head().seq == 7

    @pytest.mark.parametrize("case", BAD_FILTERS)
    def test_bad_filter_is_refused_by_the_call(self, log: LogBackend, case: str) -> None:
        with pytest.raises(ContractError):
            self.untyped(log, "events", **BAD_FILTERS[case])

    def test_event_of_a_seq_is_that_of_the_list(self, log: LogBackend) -> None:
        self.fill(log)
        assert [log.event(one.seq) for one in events(log)] == events(log)

    @pytest.mark.parametrize("seq", [0, -1, 7, 2**60])
    def test_event_that_is_not_there_is_not_found(self, log: LogBackend, seq: int) -> None:
        self.fill(log)
        with self.refused(log, NotFound, Reason.EVENT_NOT_FOUND):
            log.event(seq)

    def test_async_events_are_the_sync_ones(self, log: LogBackend) -> None:
        self.fill(log)

        async def read() -> list[Event]:
            return [one async for one in log.aevents(1, backwards=True, limit=4)]

        assert asyncio.run(read()) == list(log.events(1, backwards=True, limit=4))

    def test_reading_writes_nothing(self, log: LogBackend) -> None:
        self.fill(log)
        with self.nothing_written(log):
            events(log)
            log.list_streams()
            log.list_sessions()
            log.stats()
            log.health()
            log.verify()

    def test_find_event_looks_everywhere_without_a_stream(self, log: LogBackend) -> None:
        log.append(("a",), (said_event("1", "k1"),))
        log.append(("b",), (said_event("2", "k2"),))
        found = log.find_event("k2")
        assert found is not None
        assert found.seq == 2

    def test_find_event_keeps_to_its_stream(self, log: LogBackend) -> None:
        log.append(("a",), (said_event("1", "k"),))
        assert log.find_event("k", stream=("b",)) is None
        assert log.find_event("nowhere") is None

    @needs(Capability.PERSISTENT)
    def test_events_are_the_same_after_a_reopen(self, stores: Stores) -> None:
        log = as_log(stores.open())
        self.fill(log)
        self.fill_more(log)
        before = events(log)
        assert events(as_log(stores.reopen(log))) == before


@needs(Capability.LOG)
class ListingPart(LogSuiteBase):
    """What `list_streams` and `list_sessions` promise."""

    def test_streams_come_by_recency(self, log: LogBackend) -> None:
        self.fill(log)
        found = [one.stream for one in log.list_streams().streams]
        assert found == [("meta",), ("records",), ("session", "s1"), self.STREAM]

    def test_stream_summary_counts_its_events(self, log: LogBackend) -> None:
        self.fill(log)
        one = log.list_streams(("records",)).streams[0]
        assert (one.revision, one.event_count, one.first_seq, one.last_seq) == (2, 2, 1, 5)
        assert one.updated_at == log.event(5).recorded_at

    @pytest.mark.parametrize("limit", [1, 3, 4, 10, 50])
    def test_stream_pages_are_the_whole(self, log: LogBackend, limit: int) -> None:
        names = [("s", str(i)) for i in range(10)]
        for name in names:
            log.append(name, (said_event(),))
        found, cursor = list[tuple[str, ...]](), None
        while True:
            page = log.list_streams(("s",), limit, cursor)
            found += [one.stream for one in page.streams]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == names[::-1]

    def test_prefix_of_streams_compares_label_by_label(self, log: LogBackend) -> None:
        for stream in (("user1",), ("user10",), ("user1", "a")):
            log.append(stream, (said_event(),))
        found = [one.stream for one in log.list_streams(("user1",)).streams]
        assert found == [("user1", "a"), ("user1",)]

    def test_sessions_come_by_recency(self, log: LogBackend) -> None:
        for one in ("s1", "s2", "s3"):
            log.append_transcript_messages(one, said("x"))
        log.append_transcript_messages("s1", said("y"))
        found = [one.session_id for one in log.list_sessions().sessions]
        assert found == ["s1", "s3", "s2"]

    def test_session_info_tells_revision_time_and_manifest(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("x"))
        log.save_manifest("s2", manifest("s2"))
        log.append_transcript_messages("s2", said("x"))
        newest, oldest = log.list_sessions().sessions
        assert (newest.session_id, newest.revision, newest.last_seq) == ("s2", 2, 3)
        assert newest.updated_at == log.event(3).recorded_at
        assert (newest.initialized, oldest.initialized) == (True, False)

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
    def test_session_pages_are_the_whole(self, log: LogBackend, limit: int) -> None:
        for number in range(7):
            log.append_transcript_messages(f"n{number}", said("x"))
        found, cursor = list[str](), None
        while True:
            page = log.list_sessions(limit, cursor)
            assert 0 < len(page.sessions) <= limit
            found += [one.session_id for one in page.sessions]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == [f"n{number}" for number in range(6, -1, -1)]

    def test_no_sessions_are_an_empty_page(self, log: LogBackend) -> None:
        self.put(log, record("x", namespace=("session",)))
        page = log.list_sessions()
        assert (page.sessions, page.next_cursor) == ((), None)

    def test_deleted_session_is_not_listed(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("x"))
        log.append_transcript_messages("s2", said("x"))
        log.delete_session("s1")
        assert [one.session_id for one in log.list_sessions().sessions] == ["s2"]

    @pytest.mark.parametrize("name", ["list_sessions", "list_streams"])
    @pytest.mark.parametrize("cursor", ["", "x", "0", "====", "-1"])
    def test_malformed_listing_cursor_is_refused(
        self, log: LogBackend, name: str, cursor: str
    ) -> None:
        self.fill(log)
        with self.refused(log, InvalidCursor, Reason.CURSOR_MALFORMED):
            self.untyped(log, name, cursor=cursor)

    @pytest.mark.parametrize("name", ["list_sessions", "list_streams"])
    def test_record_cursor_is_no_listing_cursor(self, log: LogBackend, name: str) -> None:
        self.put(log, *records(1, 2, 3))
        _ids, cursor = page_of(log, limit=1)
        with self.refused(log, InvalidCursor, Reason.CURSOR_FOREIGN):
            self.untyped(log, name, cursor=cursor)

    @pytest.mark.parametrize("name", ["list_sessions", "list_streams"])
    def test_listing_cursor_of_another_store_is_refused(self, stores: Stores, name: str) -> None:
        one, two = as_log(stores.open("one")), as_log(stores.open("two"))
        for log in (one, two):
            for number in range(3):
                log.append_transcript_messages(f"n{number}", said("x"))
        page = self.untyped(one, name, limit=1)
        cursor = getattr(page, "next_cursor", None)
        assert isinstance(cursor, str)
        with self.refused(two, InvalidCursor, Reason.CURSOR_FOREIGN):
            self.untyped(two, name, cursor=cursor)

    @pytest.mark.parametrize("name", ["list_sessions", "list_streams"])
    @pytest.mark.parametrize("limit", [0, -1, True, "1", 2**70])
    def test_bad_listing_limit_is_refused(self, log: LogBackend, name: str, limit: object) -> None:
        with self.nothing_written(log), pytest.raises(ContractError):
            self.untyped(log, name, limit=limit)


@needs(Capability.LOG)
class HistoryPart(LogSuiteBase):
    """What `history` promises."""

    def test_history_of_a_session_is_its_stream(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("x"))
        log.append_transcript_messages("s2", said("y"))
        log.append_progress_entry("s1", entry(1))
        found = list(log.history(session_id="s1"))
        assert found == list(log.events(stream=("session", "s1")))
        assert types(found) == ["transcript_appended", "progress_appended"]

    def test_history_of_a_record_is_its_puts_deletes_and_clears(self, log: LogBackend) -> None:
        self.put(log, record("a"), record("b"))
        self.delete(log, "b")
        self.delete(log, "a")
        self.put(log, record("a", 2.0))
        self.clear(log)
        self.put(log, record("c"))
        found = list(log.history(record_id="a"))
        assert types(found) == [
            "records_put",
            "records_deleted",
            "records_put",
            "records_cleared",
        ]

    def test_history_of_a_record_shows_only_it_of_a_put_of_many(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2, 3))
        (found,) = log.history(record_id="r1")
        assert [kept_id(kept) for kept in found.records] == ["r1"]

    def test_history_of_a_record_keeps_to_its_namespace(self, log: LogBackend) -> None:
        self.put(log, record("a"), record("a", namespace=("n",)))
        self.delete(log, "a")
        found = [one.stream for one in log.history(record_id="a", namespace=("n",))]
        assert found == [("records", "n")]

    def test_history_of_an_unknown_record_is_empty(self, log: LogBackend) -> None:
        self.fill(log)
        assert list(log.history(record_id="none")) == []

    @pytest.mark.parametrize("options", [{}, {"session_id": "s1", "record_id": "a"}])
    def test_history_needs_exactly_one_id(
        self, log: LogBackend, options: dict[str, object]
    ) -> None:
        with pytest.raises(ContractError):
            self.untyped(log, "history", **options)

    def test_history_tells_who_and_why(self, log: LogBackend) -> None:
        log.replace_feature_list("s1", features("f1"))
        bound = log.bind(actor="coder", run_id="run-2", reason="looks done")
        bound.update_feature_pass("s1", "f1", True)
        last = list(log.history(session_id="s1"))[-1]
        assert (last.actor, last.run_id, last.reason) == ("coder", "run-2", "looks done")


@needs(Capability.LOG)
class FollowPart(LogSuiteBase):
    """What `follow` and `afollow` promise; all waits are bounded."""

    def follow(
        self, log: LogBackend, after: int, until: int, *, durable: bool = False
    ) -> list[int]:
        """Follow in another thread until that many events came, while this one may write."""
        seen: list[int] = []
        for one in log.follow(after, durable=durable):
            seen.append(one.seq)
            if len(seen) == until:
                return seen
        return seen

    def in_background(self, work: Callable[[], None]) -> Thread:
        thread = Thread(target=work, daemon=True)
        thread.start()
        return thread

    def test_follower_sees_what_is_there(self, log: LogBackend) -> None:
        self.fill(log)
        assert self.follow(log, 2, 4) == [3, 4, 5, 6]

    def test_follower_sees_each_new_event_once_in_order(self, log: LogBackend) -> None:
        assert self.followed_while_writing(log, durable=False) == list(range(1, 61))

    @needs(Capability.PERSISTENT)
    def test_durable_follower_sees_each_new_event_once_in_order(self, log: LogBackend) -> None:
        assert self.followed_while_writing(log, durable=True) == list(range(1, 61))

    def followed_while_writing(self, log: LogBackend, *, durable: bool) -> list[int]:
        """What a thread follows while this one appends sixty events."""
        seen: list[int] = []
        thread = self.in_background(lambda: seen.extend(self.follow(log, 0, 60, durable=durable)))
        for number in range(60):
            log.append(self.STREAM, (said_event(str(number)),))
        thread.join(WAIT_S_MAX)
        return seen

    def test_async_follower_sees_each_new_event_once_in_order(self, log: LogBackend) -> None:
        async def read() -> list[int]:
            seen = []
            async for one in log.afollow(0):
                seen.append(one.seq)
                if len(seen) == 40:
                    break
            return seen

        async def work() -> list[int]:
            reader = asyncio.ensure_future(read())
            for number in range(40):
                await log.aappend(self.STREAM, (said_event(str(number)),))
            return await asyncio.wait_for(reader, WAIT_S_MAX)

        assert asyncio.run(work()) == list(range(1, 41))

    def test_many_async_followers_leave_room_for_work(self, log: LogBackend) -> None:
        async def first(after: int) -> int:
            async for one in log.afollow(after):
                return one.seq
            return 0

        async def work() -> list[int]:
            waiting = [asyncio.ensure_future(first(0)) for _ in range(100)]
            await asyncio.sleep(0)
            await log.aappend(self.STREAM, (said_event(),))
            return await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S_MAX)

        assert asyncio.run(work()) == [1] * 100

    @needs(Capability.SHARED)
    def test_follower_sees_what_another_handle_writes(self, stores: Stores) -> None:
        here, there = as_log(stores.open()), as_log(stores.open())
        seen: list[int] = []
        thread = self.in_background(lambda: seen.extend(self.follow(here, 0, 20)))
        for number in range(20):
            there.append(self.STREAM, (said_event(str(number)),))
        thread.join(WAIT_S_MAX)
        assert seen == list(range(1, 21))

    @pytest.mark.parametrize("after", [-1, "1", None])
    def test_bad_start_is_refused_by_the_call(self, log: LogBackend, after: object) -> None:
        with pytest.raises(ContractError):
            self.untyped(log, "follow", after)


def kept_id(kept: object) -> str:
    """The id of a record of an event, erased or not."""
    return str(getattr(kept, "id", ""))
