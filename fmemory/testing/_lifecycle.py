"""Opening, closing, second handles, read-only handles, threads; and what a log says of itself."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from threading import Thread

import pytest

from fmemory.backend import LogBackend, MemoryBackend
from fmemory.errors import ClosedStore, ContractError, DuplicateRecord, ReadOnlyStore, Reason
from fmemory.testing._backend_base import BackendSuiteBase, Stores, readable
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._log_base import LogSuiteBase, as_log, events, said_event
from fmemory.testing._samples import count, record, records, scan_ids
from fmemory.testing._sessions_samples import entry, features, manifest, said
from fmemory.testing._threads import WAIT_S_MAX, in_threads
from fmemory_segments import Head

USES: dict[str, Callable[[MemoryBackend], object]] = {
    "put": lambda memory: memory.put(memory.put_request((record("x"),))),
    "get": lambda memory: memory.get(memory.get_request(("x",))),
    "delete": lambda memory: memory.delete(memory.delete_request(("x",))),
    "scan": lambda memory: memory.scan(memory.scan_request()),
    "count": lambda memory: memory.count(memory.count_request()),
    "get_meta": lambda memory: memory.get_meta(memory.meta_get_request("k")),
    "set_meta": lambda memory: memory.set_meta(memory.meta_set_request("k", 1)),
    "clear": lambda memory: memory.clear(memory.clear_request()),
    "vectors": lambda memory: memory.vectors(),
    "aput": lambda memory: asyncio.run(memory.aput(memory.put_request((record("x"),)))),
    "aget": lambda memory: asyncio.run(memory.aget(memory.get_request(("x",)))),
    "is_initialized": lambda memory: memory.is_initialized("s1"),
    "initialize": lambda memory: memory.initialize_session_if_missing("s1", manifest(), ()),
    "load_bootstrap_state": lambda memory: memory.load_bootstrap_state("s1"),
    "save_manifest": lambda memory: memory.save_manifest("s1", manifest()),
    "append_progress_entry": lambda memory: memory.append_progress_entry("s1", entry()),
    "load_transcript_messages": lambda memory: memory.load_transcript_messages("s1"),
    "append_transcript_messages": lambda memory: memory.append_transcript_messages("s1", said("x")),
}
LOG_USES: dict[str, Callable[[LogBackend], object]] = {
    "events": lambda log: list(log.events()),
    "append": lambda log: log.append(("tools",), (said_event(),)),
    "head": lambda log: log.head(),
    "verify": lambda log: log.verify(),
    "at": lambda log: count(log.at(0)),
    "list_sessions": lambda log: log.list_sessions(),
    "sync": lambda log: log.sync(),
}
WRITES: dict[str, Callable[[MemoryBackend], object]] = {
    **{name: USES[name] for name in ("put", "delete", "set_meta", "clear", "aput")},
    "save_manifest": USES["save_manifest"],
    "initialize": lambda memory: memory.initialize_session_if_missing("s2", manifest("s2"), ()),
    "append_transcript_messages": USES["append_transcript_messages"],
}


class LifecyclePart(BackendSuiteBase):
    """Handles: closing, threads, second handles."""

    def test_second_close_does_nothing(self, memory: MemoryBackend) -> None:
        memory.close()
        memory.close()

    @pytest.mark.parametrize("use", USES)
    def test_use_after_close_is_refused(self, memory: MemoryBackend, use: str) -> None:
        self.put(memory, record("x"))
        memory.close()
        with pytest.raises(ClosedStore) as caught:
            USES[use](memory)
        assert caught.value.reason is Reason.CLOSED

    def test_handle_is_closed_by_its_block(self, stores: Stores) -> None:
        with stores.open() as memory:
            self.put(memory, record("a"))
        with pytest.raises(ClosedStore):
            count(memory)

    def test_handle_is_closed_by_its_async_block(self, stores: Stores) -> None:
        memory = stores.open()

        async def work() -> None:
            async with memory:
                await memory.aput(memory.put_request((record("a"),)))

        asyncio.run(work())
        with pytest.raises(ClosedStore):
            count(memory)

    def test_close_while_threads_write_leaves_no_error_but_closed(self, stores: Stores) -> None:
        failures: list[BaseException] = []

        def write(memory: MemoryBackend, name: str) -> None:
            try:
                for number in range(100_000):
                    self.put(memory, record(f"{name}{number}"))
            except ClosedStore:
                return
            except BaseException as error:
                failures.append(error)

        for turn in range(10):
            memory = stores.open(f"store{turn}")
            threads = [Thread(target=write, args=(memory, name), daemon=True) for name in "ab"]
            for thread in threads:
                thread.start()
            while count(memory) < 3 + turn % 5:
                continue
            memory.close()
            for thread in threads:
                thread.join(WAIT_S_MAX)
        assert failures == []

    def test_errors_survive_pickling(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with pytest.raises(DuplicateRecord) as caught:
            self.put(memory, record("a"))
        copied = pickle.loads(pickle.dumps(caught.value))
        assert (copied.ids, copied.namespace, copied.reason) == (
            ("a",),
            (),
            Reason.RECORD_EXISTS,
        )

    def test_threads_may_share_a_handle(self, memory: MemoryBackend) -> None:
        def work(number: int) -> None:
            for turn in range(10):
                self.put(memory, record(f"{number}-{turn}", turn), record(f"{number}+{turn}"))
                assert len(scan_ids(memory, limit=7)) >= 2 * (turn + 1)

        in_threads(work)
        assert count(memory) == 160

    def test_put_of_one_id_by_many_threads_succeeds_once(self, memory: MemoryBackend) -> None:
        won: list[int] = []

        def work(number: int) -> None:
            try:
                self.put(memory, record("same", number), record(f"own{number}"))
                won.append(number)
            except DuplicateRecord:
                pass

        in_threads(work)
        assert (len(won), sorted(scan_ids(memory))) == (1, sorted(["same", f"own{won[0]}"]))

    def test_scan_while_threads_write_is_never_torn(self, memory: MemoryBackend) -> None:
        stop: list[bool] = []

        def write(_number: int) -> None:
            for turn in range(60):
                self.put(memory, record(f"a{turn}", 1.0), record(f"b{turn}", 2.0))
            stop.append(True)

        def read() -> None:
            while not stop:
                ids = {one.id for one in memory.scan(memory.scan_request(limit=10_000)).records}
                whole = {one for one in ids if {f"a{one[1:]}", f"b{one[1:]}"} <= ids}
                torn.extend(sorted(ids - whole))

        torn: list[str] = []
        reader = Thread(target=read, daemon=True)
        reader.start()
        in_threads(write, 1)
        reader.join(WAIT_S_MAX)
        assert torn == []

    @needs(Capability.PERSISTENT)
    def test_everything_is_there_after_a_reopen(self, stores: Stores) -> None:
        memory = stores.open()
        self.put(memory, *records(3, 1, 2), record("x", namespace=("a",)))
        self.delete(memory, "r1")
        self.set_meta(memory, "k", [1])
        memory.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
        memory.append_transcript_messages("s1", said("x", "y"))
        before = readable(memory)
        assert readable(stores.reopen(memory)) == before

    @needs(Capability.PERSISTENT)
    def test_reopening_an_empty_store_finds_it_empty(self, stores: Stores) -> None:
        assert count(stores.reopen(stores.open())) == 0

    @needs(Capability.PERSISTENT)
    def test_ten_reopens_lose_nothing(self, stores: Stores) -> None:
        memory = stores.open()
        for number in range(10):
            self.put(memory, record(f"x{number}", number))
            memory = stores.reopen(memory)
        assert scan_ids(memory) == [f"x{number}" for number in range(10)]

    @needs(Capability.PERSISTENT)
    def test_stores_at_two_locations_are_apart(self, stores: Stores) -> None:
        one, two = stores.open("one"), stores.open("two")
        self.put(one, record("a"))
        assert count(two) == 0

    @needs(Capability.SHARED)
    def test_second_handle_sees_each_write_of_the_first(self, stores: Stores) -> None:
        here, there = stores.open(), stores.open()
        for number in range(10):
            self.put(here, record(f"x{number}"))
            assert count(there) == number + 1

    @needs(Capability.SHARED)
    def test_two_handles_writing_in_turn_lose_nothing(self, stores: Stores) -> None:
        handles = [stores.open(), stores.open()]
        for number in range(20):
            self.put(handles[number % 2], record(f"x{number}", number))
        assert [scan_ids(one) for one in handles] == [[f"x{i}" for i in range(20)]] * 2

    @needs(Capability.SHARED)
    def test_second_handle_refuses_an_id_of_the_first(self, stores: Stores) -> None:
        here, there = stores.open(), stores.open()
        self.put(here, record("a"))
        with self.refused(there, DuplicateRecord, Reason.RECORD_EXISTS):
            self.put(there, record("a"))

    @needs(Capability.SHARED)
    def test_initialize_raced_by_handles_is_true_once(self, stores: Stores) -> None:
        handles = [stores.open() for _ in range(8)]
        won: list[bool] = []

        def work(number: int) -> None:
            won.append(handles[number].initialize_session_if_missing("s1", manifest(), ()))

        in_threads(work)
        assert sum(won) == 1

    @needs(Capability.SHARED)
    def test_closing_one_handle_leaves_the_other_working(self, stores: Stores) -> None:
        here, there = stores.open(), stores.open()
        self.put(here, record("a"))
        here.close()
        self.put(there, record("b"))
        assert count(there) == 2


@needs(Capability.READ_ONLY, Capability.PERSISTENT)
class ReadOnlyPart(BackendSuiteBase):
    """Handles that only read."""

    def filled(self, stores: Stores) -> MemoryBackend:
        memory = stores.open()
        self.put(memory, *records(1, 2))
        memory.initialize_session_if_missing("s1", manifest(), features("f1"))
        return memory

    def test_read_only_handle_reads_everything(self, stores: Stores) -> None:
        memory = self.filled(stores)
        assert readable(stores.open_read_only()) == readable(memory)

    def test_read_only_handle_sees_later_writes(self, stores: Stores) -> None:
        memory = self.filled(stores)
        reader = stores.open_read_only()
        self.put(memory, record("late"))
        assert count(reader) == 3

    @pytest.mark.parametrize("write", WRITES)
    def test_read_only_handle_refuses_to_write(self, stores: Stores, write: str) -> None:
        self.filled(stores)
        reader = stores.open_read_only()
        with self.refused(reader, ReadOnlyStore, Reason.READ_ONLY):
            WRITES[write](reader)


@needs(Capability.LOG)
class HeadPart(LogSuiteBase):
    """What `head`, `verify`, `sync`, `stats` and `health` promise."""

    def test_head_of_a_new_store_is_zero(self, log: LogBackend) -> None:
        assert log.head() == Head(0, bytes(32))

    def test_head_is_the_newest_event(self, log: LogBackend) -> None:
        self.fill(log)
        assert log.head().seq == events(log)[-1].seq == 6

    def test_head_moves_with_every_event(self, log: LogBackend) -> None:
        seen = []
        for number in range(4):
            seen.append(log.head().chain)
            log.append(self.STREAM, (said_event(str(number)),))
        assert len(set(seen)) == 4

    def test_head_survives_text(self, log: LogBackend) -> None:
        self.fill(log)
        assert Head.parse(str(log.head())) == log.head()

    @needs(Capability.PERSISTENT)
    def test_head_is_the_same_after_a_reopen(self, stores: Stores) -> None:
        log = as_log(stores.open())
        self.fill(log)
        before = log.head()
        assert as_log(stores.reopen(log)).head() == before

    def test_sound_store_has_no_findings(self, log: LogBackend) -> None:
        self.fill(log)
        assert log.verify() == ()

    def test_head_pinned_earlier_is_confirmed(self, log: LogBackend) -> None:
        self.fill(log)
        pinned = log.head()
        self.clear(log)
        assert (log.verify(pinned), log.verify(str(pinned))) == ((), ())

    def test_pinned_head_of_another_store_is_a_finding(self, stores: Stores) -> None:
        one, two = as_log(stores.open("one")), as_log(stores.open("two"))
        self.fill(one)
        self.fill(two)
        assert two.verify(one.head()) != ()

    def test_pinned_head_that_is_not_there_is_a_finding(self, log: LogBackend) -> None:
        self.fill(log)
        assert log.verify(Head(7, bytes(32))) != ()

    def test_several_heads_name_the_events_behind_the_last_that_fits(self, log: LogBackend) -> None:
        self.fill(log)
        fits = str(log.head())
        log.append(self.STREAM, (said_event("later"),))
        (found,) = log.verify((Head(7, bytes(32)), fits))
        assert (found.reason.value, found.first_seq, found.last_seq) == ("pinned_head", 7, 7)
        assert log.verify([fits, log.head()]) == ()

    @pytest.mark.parametrize("pinned", [[], "", "6", "6:ab", "x:" + "0" * 64, 6, ("6", "0")])
    def test_something_that_is_no_head_is_refused(self, log: LogBackend, pinned: object) -> None:
        self.fill(log)
        with self.nothing_written(log), pytest.raises(ContractError):
            self.untyped(log, "verify", pinned)

    @needs(Capability.PERSISTENT)
    def test_sync_gives_the_newest_seq(self, log: LogBackend) -> None:
        self.fill(log)
        assert log.sync() == 6

    @needs(Capability.PERSISTENT)
    def test_async_sync_gives_the_newest_seq(self, log: LogBackend) -> None:
        self.fill(log)
        assert asyncio.run(log.async_()) == 6

    def test_stats_count_events_streams_sessions_and_records(self, log: LogBackend) -> None:
        self.fill(log)
        self.put(log, record("x", namespace=("a",)))
        found = log.stats()
        counts = (found.head_seq, found.stream_count, found.session_count, found.record_count)
        assert counts == (7, 5, 1, 3)

    def test_stats_by_type_and_by_stream_add_up(self, log: LogBackend) -> None:
        self.fill(log)
        found = log.stats()
        assert {one.type: one.event_count for one in found.by_type} == {
            "records_put": 1,
            "word.said": 2,
            "transcript_appended": 1,
            "records_deleted": 1,
            "meta_set": 1,
        }
        assert sum(one.event_count for one in found.by_stream) == 6

    @needs(Capability.SHARED)
    def test_stats_count_what_another_handle_wrote(self, stores: Stores) -> None:
        here, there = as_log(stores.open()), as_log(stores.open())
        self.fill(there)
        assert (here.stats().record_count, here.stats().session_count) == (2, 1)

    @needs(Capability.PERSISTENT)
    def test_stats_are_the_same_after_a_reopen(self, stores: Stores) -> None:
        log = as_log(stores.open())
        self.fill(log)
        before = log.stats()
        after = as_log(stores.reopen(log)).stats()
        assert (after.record_count, after.session_count, after.by_type, after.by_stream) == (
            before.record_count,
            before.session_count,
            before.by_type,
            before.by_stream,
        )

    def test_health_of_an_open_store_is_ok(self, log: LogBackend) -> None:
        self.fill(log)
        found = log.health()
        assert (found.state, found.ok, found.head_seq, found.read_only) == ("ok", True, 6, False)

    def test_health_of_a_closed_store_says_closed(self, log: LogBackend) -> None:
        self.fill(log)
        log.close()
        found = log.health()
        assert (found.state, found.ok) == ("closed", False)

    @pytest.mark.parametrize("use", LOG_USES)
    def test_log_operation_after_close_is_refused(self, log: LogBackend, use: str) -> None:
        self.fill(log)
        log.close()
        with pytest.raises(ClosedStore):
            LOG_USES[use](log)
