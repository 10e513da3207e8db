"""Waiting in PostgreSQL: for the log, for a connection, for news. Every wait has an end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from fmemory import Reason, StoreBusy, StoreFull
from fmemory.journal import Blob, Draft, Durability, Txn
from fmemory.journals import PostgresMemoryBackend
from fmemory.testing._threads import WAIT_S_MAX


def put(memory: PostgresMemoryBackend, record_id: str) -> None:
    memory.add_note("tea", [1.0], id=record_id)


@contextmanager
def head_held(url: str) -> Iterator[None]:
    """Somebody else's transaction that has the log's head row and does not end."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("SELECT head_seq FROM fmemory_logs FOR UPDATE")
        yield
        connection.rollback()


@pytest.mark.parametrize("timeout_s", [0.0, 0.5])
def test_held_log_is_busy_after_the_stated_wait(postgres_url: str, timeout_s: float) -> None:
    with PostgresMemoryBackend.from_url(postgres_url, lock_timeout_s=timeout_s) as memory:
        put(memory, "a")
        with head_held(postgres_url):
            began = time.monotonic()
            with pytest.raises(StoreBusy) as caught:
                put(memory, "b")
            waited_s = time.monotonic() - began
        assert (caught.value.timeout_s, caught.value.reason) == (timeout_s, Reason.STORE_BUSY)
        assert timeout_s * 0.9 <= waited_s < timeout_s + 10


def test_log_that_was_busy_can_be_written_when_it_is_free(postgres_url: str) -> None:
    with PostgresMemoryBackend.from_url(postgres_url, lock_timeout_s=0.1) as memory:
        with head_held(postgres_url), pytest.raises(StoreBusy):
            put(memory, "a")
        put(memory, "a")
        assert [event.seq for event in memory.events()] == [1]


def test_held_log_can_be_read(postgres_url: str) -> None:
    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        put(memory, "a")
        with head_held(postgres_url):
            assert [one.id for one in memory.iter_all()] == ["a"]


def test_writer_in_another_thread_is_waited_for_no_longer_than_asked(postgres_url: str) -> None:
    holding, done = Event(), Event()

    def plan(_txn: Txn) -> None:
        holding.set()
        done.wait(WAIT_S_MAX)

    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        writer = Thread(target=lambda: memory.journal.commit(plan))
        writer.start()
        holding.wait(WAIT_S_MAX)
        with pytest.raises(StoreBusy) as caught:
            memory.journal.commit(lambda _txn: None, timeout_s=0.2)
        done.set()
        writer.join()
        assert caught.value.timeout_s == 0.2


def test_transaction_that_a_plan_fails_leaves_the_log_free(postgres_url: str) -> None:
    def plan(_txn: Txn) -> None:
        raise LookupError("the plan's own")

    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        with pytest.raises(LookupError):
            memory.journal.commit(plan)
        put(memory, "a")
        assert memory.head().seq == 1


def test_more_threads_than_connections_all_write(postgres_url: str) -> None:
    with PostgresMemoryBackend.from_url(postgres_url, lock_timeout_s=WAIT_S_MAX) as memory:
        threads = [Thread(target=put, args=(memory, f"r{number}")) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [event.seq for event in memory.events()] == list(range(1, 25))


def test_full_server_is_told_as_full_and_the_log_is_as_it_was(postgres_url: str) -> None:
    """A trigger says what a full disk makes the server say."""
    import psycopg

    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        put(memory, "a")
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE 'no space' USING ERRCODE = '53100'; END $$"
            )
            other.execute(
                "CREATE TRIGGER full_disk BEFORE INSERT ON fmemory_events"
                " EXECUTE FUNCTION full_disk()"
            )
            with pytest.raises(StoreFull):
                put(memory, "b")
            assert (memory.health().state, memory.head().seq) == ("full", 1)
            other.execute("DROP TRIGGER full_disk ON fmemory_events")
        put(memory, "b")
        assert (memory.health().state, memory.head().seq) == ("ok", 2)


def test_commit_of_another_handle_wakes_a_watcher(postgres_url: str) -> None:
    with (
        PostgresMemoryBackend.from_url(postgres_url) as here,
        PostgresMemoryBackend.from_url(postgres_url) as there,
    ):
        woken = Watched(here)
        put(there, "a")
        assert woken.again()


def test_watcher_is_woken_again_after_its_connection_was_lost(postgres_url: str) -> None:
    import psycopg

    with (
        PostgresMemoryBackend.from_url(postgres_url) as here,
        PostgresMemoryBackend.from_url(postgres_url) as there,
    ):
        woken = Watched(here)
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            )
        assert woken.again()  # it listens again
        put(there, "a")
        assert woken.again()


class Watched:
    """A watcher that listens when this returns."""

    def __init__(self, memory: PostgresMemoryBackend) -> None:
        self._woken = Event()
        memory.journal.watch(self._woken.set)
        assert self.again()  # called once when the connection listens

    def again(self) -> bool:
        """Whether it is called from now on, or was since the last time."""
        called = self._woken.wait(WAIT_S_MAX)
        self._woken.clear()
        return called


def test_watching_ends_with_its_thread(postgres_url: str) -> None:
    import threading

    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        memory.journal.watch(lambda: None)
    assert not [one for one in threading.enumerate() if one.name == "fmemory-listen"]


@pytest.mark.parametrize("durability", ["os", "interval"])
def test_sync_makes_earlier_commits_durable(postgres_url: str, durability: Durability) -> None:
    with PostgresMemoryBackend.from_url(postgres_url, durability=durability) as memory:
        draft = Draft(stream=("a",), revision=1, type="x", payload=Blob(b"x"))
        made = memory.journal.commit(lambda _txn: [draft])
        assert made is not None
        assert (made.durable, memory.sync(), memory.health().durable_seq) == (False, 1, 1)


def test_reader_knows_what_other_handles_have_on_disk(postgres_url: str) -> None:
    with (
        PostgresMemoryBackend.from_url(postgres_url, durability="os") as fast,
        PostgresMemoryBackend.from_url(postgres_url) as safe,
        PostgresMemoryBackend.from_url(postgres_url, read_only=True) as reader,
    ):
        put(fast, "a")
        seen = [reader.sync()]
        put(safe, "b")
        seen.append(reader.sync())
        put(fast, "c")
        seen.append(reader.sync())
        fast.sync()
        seen.append(reader.sync())
    assert seen == [0, 2, 2, 3]
