"""What somebody else changed in the tables is found, named, and never given out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fmemory import LogCorrupt, NotFound, Reason
from fmemory.journals import PostgresMemoryBackend

CHANGES = {
    "data": "UPDATE fmemory_events SET data = set_byte(data, 40, 255) WHERE seq = 2",
    "meta": "UPDATE fmemory_events SET meta = set_byte(meta, 3, 255) WHERE seq = 2",
    "time": "UPDATE fmemory_events SET recorded_at_ns = recorded_at_ns + 1 WHERE seq = 2",
    "shorter data": "UPDATE fmemory_events SET data = substring(data FOR 16) WHERE seq = 2",
}


@pytest.fixture
def memory(postgres_url: str) -> Iterator[PostgresMemoryBackend]:
    with PostgresMemoryBackend.from_url(postgres_url) as opened:
        for record_id in "abc":
            opened.add_note("tea with milk", [1.0, 2.0], id=record_id)
        yield opened


def execute(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize("change", CHANGES)
def test_changed_event_is_found_and_named(
    memory: PostgresMemoryBackend, postgres_url: str, change: str
) -> None:
    assert memory.verify() == ()
    execute(postgres_url, CHANGES[change])
    assert {finding.first_seq for finding in memory.verify()} == {2}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("memory")
def test_changed_event_is_not_given_out(postgres_url: str, change: str) -> None:
    execute(postgres_url, CHANGES[change])
    with PostgresMemoryBackend.from_url(postgres_url) as other, pytest.raises(LogCorrupt) as caught:
        list(other.iter_all())
    assert caught.value.seq == 2


def test_removed_event_is_found(memory: PostgresMemoryBackend, postgres_url: str) -> None:
    execute(postgres_url, "DELETE FROM fmemory_events WHERE seq = 2")
    assert memory.verify() != ()


def test_changed_history_differs_from_a_pinned_head(
    memory: PostgresMemoryBackend, postgres_url: str
) -> None:
    pinned = memory.head()
    execute(postgres_url, "DELETE FROM fmemory_events WHERE seq = 3")
    execute(postgres_url, "UPDATE fmemory_logs SET head_seq = 2")
    with PostgresMemoryBackend.from_url(postgres_url) as other:
        assert other.verify(pinned) != ()


@pytest.mark.parametrize("use", ["read", "write"])
def test_removed_log_is_told_as_one_that_is_not_there(
    memory: PostgresMemoryBackend, postgres_url: str, use: str
) -> None:
    execute(
        postgres_url,
        "DELETE FROM fmemory_syncs; DELETE FROM fmemory_streams; DELETE FROM fmemory_logs",
    )
    uses: dict[str, Callable[[], object]] = {
        "read": lambda: memory.count(memory.count_request()),
        "write": lambda: memory.add_note("tea", id="d"),
    }
    with pytest.raises(NotFound) as caught:
        uses[use]()
    assert caught.value.reason is Reason.STORE_NOT_FOUND


@pytest.mark.parametrize("anew", [False, True])
def test_a_log_that_was_taken_away_is_told_to_whoever_waits(
    memory: PostgresMemoryBackend, postgres_url: str, *, anew: bool
) -> None:
    newest = memory.head().seq
    events = memory.follow(newest)
    execute(
        postgres_url,
        "DROP TABLE fmemory_syncs, fmemory_streams, fmemory_events, fmemory_logs CASCADE;"
        " DROP TABLE fmemory_format",
    )
    if anew:
        with PostgresMemoryBackend.from_url(postgres_url) as other:
            other.add_note("another life", id="x")

    with pytest.raises(NotFound) as caught:
        next(events)

    assert caught.value.reason is Reason.STORE_NOT_FOUND
    assert (memory.health().state, memory.health().head_seq) == ("moved", 0)
