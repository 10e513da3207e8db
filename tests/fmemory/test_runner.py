"""Async calls: any number of event loops, the caller's context, and closing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest

from fmemory._audit import audit, current_audit
from fmemory._runner import ITERATOR_PAGE_ITEMS, Runner
from fmemory.errors import ClosedStore
from fmemory.record_models import CountRequest, GetRequest, MemoryRecord, Note, ScanRequest
from fmemory.testing._model_backend import ModelBackend


def filled(count: int) -> ModelBackend:
    memory = ModelBackend()
    records = [MemoryRecord.create(Note(f"n{n}", "", float(n), {})) for n in range(count)]
    memory.put(memory.put_request(records))
    return memory


def test_one_backend_serves_event_loops_one_after_another_and_at_once() -> None:
    counts: list[int] = []

    def loop() -> None:
        for _ in range(3):
            counts.append(asyncio.run(memory.acount(CountRequest())).count)

    with filled(3) as memory:
        threads = [threading.Thread(target=loop) for _ in range(3)]
        for thread in threads:
            thread.start()
        loop()
        for thread in threads:
            thread.join()
    assert counts == [3] * 12


def test_a_call_does_not_block_the_loop() -> None:
    class Waiting(ModelBackend):
        """Its count ends when the loop has run on."""

        def count(self, request: CountRequest) -> object:  # type: ignore[override]
            assert went_on.wait(30)
            return super().count(request)

    async def work() -> None:
        call = asyncio.create_task(memory.acount(CountRequest()))
        await asyncio.sleep(0)
        went_on.set()
        await call

    went_on = threading.Event()
    with Waiting() as memory:
        asyncio.run(work())


def test_the_context_of_the_caller_goes_along() -> None:
    class Looking(Runner):
        async def look(self) -> str | None:
            return (await self._run(current_audit)).actor

    async def work() -> str | None:
        with audit(actor="a"):
            return await runner.look()

    runner = Looking()
    assert asyncio.run(work()) == "a"
    runner._close_threads()


@pytest.mark.parametrize("count", [0, 1, ITERATOR_PAGE_ITEMS, 2 * ITERATOR_PAGE_ITEMS + 1])
def test_an_async_iterator_gives_every_item_once(count: int) -> None:
    class Counting(Runner):
        async def numbers(self) -> list[int]:
            return [n async for n in self._run_iterator(iter, range(count))]

    runner = Counting()
    assert asyncio.run(runner.numbers()) == list(range(count))
    runner._close_threads()


@pytest.mark.parametrize("page_size", [1, 2, 3, 500])
def test_records_come_page_by_page_in_both_forms(page_size: int) -> None:
    async def ids() -> list[str]:
        return [one.id async for one in memory.aiter_all(page_size=page_size)]

    with filled(3) as memory:
        assert asyncio.run(ids()) == ["n0", "n1", "n2"]
        assert [one.id for one in memory.iter_all(page_size=page_size)] == ["n0", "n1", "n2"]


def test_an_async_iterator_may_be_left_early_while_others_write() -> None:
    async def work() -> str:
        async with aclosing(memory.aiter_all(page_size=1)) as records:
            async for record in records:
                await memory.aadd_note("meanwhile")
                return record.id
        return ""

    with filled(3) as memory:
        assert asyncio.run(work()) == "n0"


def test_a_closed_backend_refuses_async_calls() -> None:
    memory = filled(1)
    asyncio.run(memory.aget(GetRequest(["n0"])))
    memory.close()
    memory.close()
    with pytest.raises(ClosedStore):
        asyncio.run(memory.ascan(ScanRequest()))


def test_closing_waits_for_calls_that_have_begun() -> None:
    class Slow(ModelBackend):
        def count(self, request: CountRequest) -> object:  # type: ignore[override]
            begun.set()
            assert closing.wait(30)
            return super().count(request)

    async def work() -> int:
        call = asyncio.create_task(memory.acount(CountRequest()))
        await asyncio.to_thread(begun.wait, 30)
        closer = asyncio.create_task(asyncio.to_thread(memory._close_threads))
        closing.set()
        await closer
        return (await call).count

    begun, closing = threading.Event(), threading.Event()
    memory = Slow()
    assert asyncio.run(work()) == 0


def test_a_backend_can_close_itself_in_a_loop() -> None:
    async def work() -> None:
        async with filled(1) as memory:
            assert (await memory.acount(CountRequest())).count == 1

    asyncio.run(work())
