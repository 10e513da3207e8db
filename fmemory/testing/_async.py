"""Async operations: equal to their sync twins, on any event loop, whole when cancelled."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from contextlib import suppress
from threading import Thread
from typing import cast

import pytest

from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, DuplicateRecord
from fmemory.session_models import FeatureRecord, Message, ProgressEntry, Role, RunCheckpoint
from fmemory.testing._backend_base import BackendSuiteBase, Stores, readable
from fmemory.testing._samples import (
    TIME,
    count,
    record,
    records,
    scan_ids,
)
from fmemory.testing._sessions_samples import manifest
from fmemory.testing._threads import WAIT_S_MAX

RECORD_OPERATIONS = ("put", "get", "delete", "scan", "count", "get_meta", "set_meta", "clear")
SESSION_OPERATIONS = (
    "is_initialized",
    "initialize_session_if_missing",
    "load_bootstrap_state",
    "save_manifest",
    "append_progress_entry",
    "replace_feature_list",
    "update_feature_pass",
    "record_run_checkpoint",
    "load_transcript_messages",
    "append_transcript_messages",
)
CONVENIENCE = ("vectors", "nearest", "add_note", "ensure_embedding_id")
ALL_OPERATIONS = RECORD_OPERATIONS + SESSION_OPERATIONS + CONVENIENCE

Call = tuple[tuple[object, ...], dict[str, object]]


def calls(memory: MemoryBackend) -> dict[str, Call]:
    """One call of every operation, on a store that `prepare` filled."""
    one, two = FeatureRecord("f1", "core", "works"), FeatureRecord("f2", "core", "is fast")
    return {
        "put": ((memory.put_request((record("new", 4), record("x", namespace=("a",)))),), {}),
        "get": ((memory.get_request(("r1", "none")),), {}),
        "delete": ((memory.delete_request(("r1", "none")),), {}),
        "scan": ((memory.scan_request(limit=500),), {}),
        "count": ((memory.count_request(),), {}),
        "get_meta": ((memory.meta_get_request("k"),), {}),
        "set_meta": ((memory.meta_set_request("k", [2]),), {}),
        "clear": ((memory.clear_request(),), {}),
        "vectors": ((), {}),
        "nearest": (([1.0, 2.0, 3.0, 4.0], 2), {"metric": "dot"}),
        "add_note": (("tea",), {"id": "n1", "timestamp": 7.0}),
        "ensure_embedding_id": (("model",), {}),
        "is_initialized": (("s1",), {}),
        "initialize_session_if_missing": (("s2", manifest("s2"), (one,)), {}),
        "load_bootstrap_state": (("s1",), {}),
        "save_manifest": (("s1", manifest("s1", "other")), {}),
        "append_progress_entry": (("s1", ProgressEntry("run", "more", TIME)), {}),
        "replace_feature_list": (("s1", (two,)), {}),
        "update_feature_pass": (("s1", "f1", True), {}),
        "record_run_checkpoint": (("s1", RunCheckpoint("run", TIME)), {}),
        "load_transcript_messages": (("s1",), {}),
        "append_transcript_messages": (("s1", (Message(Role.USER, "more"),)), {}),
    }


def prepare(memory: MemoryBackend) -> None:
    """Something of everything."""
    memory.put(memory.put_request(tuple(records(1, 2, 3))))
    memory.set_meta(memory.meta_set_request("k", {"a": 1}))
    memory.initialize_session_if_missing(
        "s1", manifest("s1"), (FeatureRecord("f1", "core", "works"),)
    )
    memory.append_transcript_messages("s1", (Message(Role.USER, "hello"),))


class AsyncTwinsPart(BackendSuiteBase):
    """Every operation has a twin that does the same."""

    @pytest.mark.parametrize("name", (*ALL_OPERATIONS, "iter_all", "dump", "load", "close"))
    def test_async_twin_has_the_parameters_of_the_sync_operation(
        self, memory: MemoryBackend, name: str
    ) -> None:
        sync, twin = getattr(memory, name), getattr(memory, f"a{name}")
        assert inspect.signature(twin).parameters == inspect.signature(sync).parameters

    @pytest.mark.parametrize("name", ALL_OPERATIONS)
    def test_async_result_and_effect_equal_the_sync_ones(self, stores: Stores, name: str) -> None:
        sync, twin = stores.open("sync"), stores.open("async")
        results: list[object] = []
        for memory, prefix in ((sync, ""), (twin, "a")):
            prepare(memory)
            arguments, options = calls(memory)[name]
            results.append(self.untyped(memory, prefix + name, *arguments, **options))
        results[1] = asyncio.run(awaited(results[1]))
        assert results[1] == results[0]
        assert readable(twin) == readable(sync)

    def test_async_iteration_gives_what_the_sync_one_gives(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(*range(25)))

        async def read() -> list[str]:
            return [one.id async for one in memory.aiter_all(page_size=4)]

        assert asyncio.run(read()) == [one.id for one in memory.iter_all(page_size=4)]

    def test_async_operation_raises_what_the_sync_one_raises(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with pytest.raises(DuplicateRecord):
            asyncio.run(memory.aput(memory.put_request((record("a"),))))

    def test_async_operation_refuses_another_type(self, memory: MemoryBackend) -> None:
        with pytest.raises(ContractError):
            asyncio.run(awaited(self.untyped(memory, "aput", None)))


class AsyncLoopsPart(BackendSuiteBase):
    """Loops, tasks and cancellation."""

    def test_two_hundred_puts_at_once_are_all_there(self, memory: MemoryBackend) -> None:
        async def write() -> None:
            puts = [memory.put_request((record(f"x{i}", i),)) for i in range(200)]
            await asyncio.gather(*map(memory.aput, puts))

        asyncio.run(write())
        assert scan_ids(memory) == [f"x{i}" for i in range(200)]

    def test_one_of_many_puts_of_one_id_succeeds(self, memory: MemoryBackend) -> None:
        async def write() -> list[object]:
            puts = [memory.put_request((record("same", i),)) for i in range(12)]
            return await asyncio.gather(*map(memory.aput, puts), return_exceptions=True)

        results = asyncio.run(write())
        refused = [one for one in results if isinstance(one, DuplicateRecord)]
        assert (len(results) - len(refused), count(memory)) == (1, 1)

    def test_refused_put_does_not_hinder_others_of_its_moment(self, memory: MemoryBackend) -> None:
        self.put(memory, record("taken"))

        async def write() -> None:
            puts = [memory.put_request((record(f"x{i}"),)) for i in range(10)]
            puts.insert(5, memory.put_request((record("x99"), record("taken"))))
            await asyncio.gather(*map(memory.aput, puts), return_exceptions=True)

        asyncio.run(write())
        assert set(scan_ids(memory)) == {"taken", *(f"x{i}" for i in range(10))}

    def test_handle_survives_its_first_event_loop(self, memory: MemoryBackend) -> None:
        asyncio.run(memory.aput(memory.put_request((record("a", 1),))))
        asyncio.run(memory.aput(memory.put_request((record("b", 2),))))
        assert scan_ids(memory) == ["a", "b"]

    def test_two_event_loops_may_use_one_handle_at_once(self, memory: MemoryBackend) -> None:
        async def write(name: str) -> None:
            for number in range(20):
                await memory.aput(memory.put_request((record(f"{name}{number}"),)))

        threads = [Thread(target=asyncio.run, args=(write(one),), daemon=True) for one in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S_MAX)
        assert count(memory) == 40

    def test_sync_operation_works_inside_a_running_loop(self, memory: MemoryBackend) -> None:
        async def write() -> int:
            self.put(memory, record("a"))
            await memory.aput(memory.put_request((record("b"),)))
            return count(memory)

        assert asyncio.run(asyncio.wait_for(write(), WAIT_S_MAX)) == 2

    def test_write_is_read_by_the_next_await(self, memory: MemoryBackend) -> None:
        async def work() -> list[int]:
            seen = []
            for number in range(10):
                await memory.aput(memory.put_request((record(f"x{number}"),)))
                seen.append((await memory.acount(memory.count_request())).count)
            return seen

        assert asyncio.run(work()) == list(range(1, 11))

    @pytest.mark.parametrize("steps", range(6))
    def test_cancelled_put_is_there_whole_or_not_at_all(
        self, memory: MemoryBackend, steps: int
    ) -> None:
        async def work() -> None:
            both = memory.put_request((record("x"), record("x", namespace=("a",))))
            task = asyncio.ensure_future(memory.aput(both))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await memory.aput(memory.put_request((record("after"),)))

        asyncio.run(work())
        written = (count(memory) - 1, count(memory, ("a",)))
        assert written in {(0, 0), (1, 1)}

    def test_cancelled_put_does_not_hinder_others_of_its_moment(
        self, memory: MemoryBackend
    ) -> None:
        async def work() -> None:
            tasks = [
                asyncio.ensure_future(memory.aput(memory.put_request((record(f"x{i}"),))))
                for i in range(20)
            ]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(work())
        assert {f"x{i}" for i in range(1, 20, 2)} <= set(scan_ids(memory))

    def test_abandoned_async_iteration_hinders_no_write(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2, 3))

        async def work() -> None:
            reading = memory.aiter_all(page_size=1)
            async for _one in reading:
                break
            await memory.aput(memory.put_request((record("late"),)))
            await reading.aclose()

        asyncio.run(asyncio.wait_for(work(), WAIT_S_MAX))
        assert count(memory) == 4


async def awaited(value: object) -> object:
    return await cast("Awaitable[object]", value)
