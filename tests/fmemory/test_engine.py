"""Rules of the engine that random histories rarely reach: retries, large ids, views, durability."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmemory
from fmemory import (
    Conflict,
    ContractError,
    DeleteRequest,
    JournalBackend,
    MemoryRecord,
    NewEvent,
    Note,
    ProgressEntry,
    PutRequest,
    Reason,
    RunCheckpoint,
)


def record(record_id: str) -> MemoryRecord:
    return MemoryRecord.create(Note.create("text", id=record_id, timestamp=1))


@pytest.fixture
def memory() -> Iterator[JournalBackend]:
    with fmemory.open(":memory:") as opened:
        yield opened


def test_the_same_write_twice_in_a_batch_is_written_once(memory: JournalBackend) -> None:
    with memory.batch() as batch:
        batch.put(PutRequest([record("a")], event_id="e"))
        batch.put(PutRequest([record("a")], event_id="e"))
    assert [event.event_id for event in memory.events()] == ["e"]
    assert batch.receipt is not None
    assert batch.receipt.seq == 1


@pytest.mark.parametrize("second", ["put", "delete", "clear", "append"])
def test_an_event_id_stands_for_one_write_also_in_a_batch(
    memory: JournalBackend, second: str
) -> None:
    with pytest.raises(Conflict) as caught, memory.batch() as batch:
        batch.put(PutRequest([record("a")], event_id="e"))
        match second:
            case "put":
                batch.put(PutRequest([record("b")], event_id="e"))
            case "delete":
                batch.delete(DeleteRequest(["a"], event_id="e"))
            case "clear":
                batch.clear(memory.clear_request(event_id="e"))
            case _:
                batch.append(("own",), [NewEvent("a.b", 1, event_id="e")])
                batch.append(("own",), [NewEvent("a.b", 2, event_id="e")])
    assert caught.value.reason is Reason.EVENT_ID_REUSED
    assert list(memory.events()) == []


def test_a_retried_delete_answers_as_the_first_did(memory: JournalBackend) -> None:
    memory.put(PutRequest([record("p"), record("q")]))
    request = DeleteRequest(["p", "unknown"], event_id="d")
    first = memory.delete(request)
    memory.put(PutRequest([record("p")]))
    assert memory.delete(request) == first
    assert memory.get(memory.get_request(["p"])).missing == ()


def test_a_delete_of_other_ids_under_one_event_id_conflicts(memory: JournalBackend) -> None:
    memory.put(PutRequest([record("p"), record("q")]))
    memory.delete(DeleteRequest(["p"], event_id="d"))
    with pytest.raises(Conflict):
        memory.delete(DeleteRequest(["p", "q"], event_id="d"))
    assert memory.count(memory.count_request()).count == 1


def test_a_delete_of_several_events_is_answered_whole_when_retried(
    memory: JournalBackend,
) -> None:
    ids = [f"r{number}" for number in range(70_000)]
    memory.put(PutRequest([record(one) for one in ids]))
    request = DeleteRequest(ids, event_id="d")
    first = memory.delete(request)
    assert (first.deleted, first.missing) == (70_000, ())
    assert first.receipt is not None
    assert first.receipt.event_count == 2
    assert memory.delete(request) == first


def test_long_ids_are_put_and_deleted_in_as_many_events_as_they_need(tmp_path: Path) -> None:
    ids = [f"{number:05}" + "x" * 3000 for number in range(12_000)]
    with fmemory.open(tmp_path / "store", durability="os") as memory:
        memory.put(PutRequest([record(one) for one in ids]))
        assert memory.count(memory.count_request()).count == len(ids)
        assert memory.delete(DeleteRequest(ids)).deleted == len(ids)
        assert len(list(memory.events(types=["records_deleted"]))) > 1


@pytest.mark.parametrize("write", ["progress", "checkpoint"])
def test_a_retry_with_an_entry_built_anew_is_the_same_write(
    memory: JournalBackend, write: str
) -> None:
    session = memory.session("s")
    for _ in range(2):
        if write == "progress":
            session.append_progress_entry(ProgressEntry("r", "done"), event_id="k")
        else:
            session.record_run_checkpoint(RunCheckpoint.started("r"), event_id="k")
    assert memory.head().seq == 1


def test_a_session_of_own_events_alone_can_be_deleted(memory: JournalBackend) -> None:
    memory.append(("session", "q"), [NewEvent("a.b", 1)])
    assert memory.delete_session("q").event_count == 1
    assert memory.delete_session("q").event_count == 0
    assert memory.list_sessions().sessions == ()


def test_a_view_lists_sessions_page_by_page_as_they_were(memory: JournalBackend) -> None:
    for number in range(600):
        memory.append(("session", f"s{number}"), [NewEvent("a.b", number)])
    seq = memory.head().seq
    for number in range(0, 600, 2):
        memory.delete_session(f"s{number}")
    view = memory.at(memory.head().seq)
    assert len(memory.at(seq).list_sessions(1000).sessions) == 600
    found: list[str] = []
    cursor = None
    while True:
        page = view.list_sessions(7, cursor)
        found += [one.session_id for one in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == [f"s{number}" for number in range(599, 0, -2)]


def test_asynchronous_writes_become_durable_on_an_interval_store(tmp_path: Path) -> None:
    async def write() -> JournalBackend:
        memory = await fmemory.aopen(tmp_path / "store", durability="interval")
        await memory.aadd_note("text")
        return memory

    memory = asyncio.run(write())
    try:
        durable = threading.Event()
        stop = memory.journal.watch(durable.set)
        for _ in range(100):
            if memory.health().durable_seq == 1:
                break
            durable.wait(0.05)
        stop()
        assert memory.health().durable_seq == 1
    finally:
        memory.close()


def test_a_durable_follower_that_only_reads_sees_what_is_on_disk(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as writer:
        writer.add_note("a")
        with fmemory.open(tmp_path / "store", read_only=True) as reader:
            writer.add_note("b")
            follower = reader.follow(0, durable=True)
            assert [next(follower).seq, next(follower).seq] == [1, 2]


@pytest.mark.parametrize("prefix", [5, "ab", [1], None])
def test_a_bad_prefix_is_a_typed_error(memory: JournalBackend, prefix: object) -> None:
    with pytest.raises(ContractError) as caught:
        memory.list_streams(prefix)  # type: ignore[arg-type]
    assert caught.value.where.startswith("prefix")
