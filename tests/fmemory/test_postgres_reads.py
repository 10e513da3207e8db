"""A long log in PostgreSQL: who opens one session reads that session, counted and not timed.

Goal: what opening and loading one of 1,000 sessions reads does not depend on the other 99,900
events. Method: rows that queries return are counted in front of the table, and rows that the server
fetched for them are asked of the server. What would have to break: a fold of the whole log, or a
query that the server answers by walking past other streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fmemory import InMemoryMemoryBackend, JournalBackend, Message, SessionManifest
from fmemory.journal import Draft, Txn
from fmemory.journals import PostgresMemoryBackend
from fmemory.journals._postgres import open_table
from fmemory.journals._postgres.target import PostgresTarget
from fmemory.journals._tables.event_table import EventTable, Part
from fmemory.journals._tables.journal import TableJournal
from tests.postgres import Postgres

SESSIONS = 1_000
EVENTS_EACH = 100
BATCH_ROUNDS = 10  # events of every session in one commit


@pytest.fixture(scope="module")
def long_log(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a log of 100,000 events, those of the sessions taking turns."""
    url = postgres_server.create_database()
    journal = TableJournal(open_table(PostgresTarget.from_url(url), durability="os"))
    rounds = session_events()
    for first in range(0, EVENTS_EACH, BATCH_ROUNDS):
        drafts = [
            with_stream(draft, f"s{number}")
            for draft in rounds[first : first + BATCH_ROUNDS]
            for number in range(SESSIONS)
        ]
        journal.commit(lambda _txn, drafts=drafts: drafts)  # type: ignore[misc]
    assert journal.refresh() == SESSIONS * EVENTS_EACH
    journal.close()
    yield url
    postgres_server.drop_database(url)


def session_events() -> list[Draft]:
    """The events of one session: a manifest, and messages one by one."""
    with InMemoryMemoryBackend() as memory:
        memory.save_manifest("s", SessionManifest("s", "main", "objective"))
        for number in range(EVENTS_EACH - 1):
            memory.append_transcript_messages("s", (Message("user", f"message {number}"),))
        journal = memory.journal
        envelopes = list(journal.envelopes(0, journal.refresh()))
        payloads = journal.payloads([one.seq for one in envelopes])
    return [
        Draft(
            stream=one.stream,
            revision=one.revision,
            type=one.type,
            payload=payload,  # type: ignore[arg-type]
            keys=one.keys,
            count=one.count,
        )
        for one, payload in zip(envelopes, payloads, strict=True)
    ]


def with_stream(draft: Draft, session_id: str) -> Draft:
    return Draft(
        stream=(*draft.stream[:-1], session_id),
        revision=draft.revision,
        type=draft.type,
        payload=draft.payload,
        keys=draft.keys,
        count=draft.count,
    )


@dataclass
class CountedTable:
    """A table that counts the rows it gives out, by the name of the query."""

    table: EventTable
    rows: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.table, name)
        if name not in ("metas", "metas_of", "data_of", "parts", "streams"):
            return value

        def counted(*arguments: object, **options: object) -> object:
            found = value(*arguments, **options)
            self.rows[name] = self.rows.get(name, 0) + len(found)
            return found

        return counted


@pytest.fixture
def counted(long_log: str) -> Iterator[tuple[JournalBackend, dict[str, int]]]:
    """A new handle on the log, and what it has read."""
    table = CountedTable(open_table(PostgresTarget.from_url(long_log)))
    with JournalBackend(TableJournal(cast("EventTable", table))) as memory:
        yield memory, table.rows


def test_opening_reads_no_event(counted: tuple[JournalBackend, dict[str, int]]) -> None:
    _, rows = counted
    assert sum(rows.values()) == 0


def test_loading_one_session_reads_that_session_only(
    counted: tuple[JournalBackend, dict[str, int]],
) -> None:
    memory, rows = counted
    state = memory.load_bootstrap_state("s500")
    messages = memory.load_transcript_messages("s500")
    assert (state.revision, len(messages)) == (EVENTS_EACH, EVENTS_EACH - 1)
    assert rows["metas"] == EVENTS_EACH
    assert sum(rows.values()) <= 3 * EVENTS_EACH + 10


def test_append_to_one_session_reads_that_session_only(
    counted: tuple[JournalBackend, dict[str, int]],
) -> None:
    memory, rows = counted
    memory.append_transcript_messages("s501", (Message("user", "one more"),))
    assert sum(rows.values()) <= EVENTS_EACH + 10


def test_page_of_sessions_reads_the_sessions_of_the_page(
    counted: tuple[JournalBackend, dict[str, int]],
) -> None:
    memory, rows = counted
    assert len(memory.list_sessions(limit=5).sessions) == 5
    assert rows["metas"] <= (5 + 1) * (EVENTS_EACH + 1)


QUERIES: dict[str, Callable[[EventTable], object]] = {
    "metas": lambda table: table.metas(
        0, 200_000, stream='["sessions","s500"]', backwards=False, limit=512
    ),
    "newest": lambda table: table.metas(
        0, 200_000, stream='["sessions","s500"]', backwards=True, limit=1
    ),
    "find": lambda table: table.find('["sessions","s500"]', "none"),
    "stream": lambda table: table.stream('["sessions","s500"]'),
    "streams": lambda table: table.streams(("sessions",), None, 5),
    "streams of others": lambda table: table.streams(("records",), None, 5),
    "parts": lambda table: table.parts([Part(5, 0, 0, 8), Part(6, 0, 0, 8)]),
    "part": lambda table: table.parts([Part(5, 0, 0, 8)]),
    "data_of": lambda table: table.data_of(dict.fromkeys(range(500, 600), 0)),
}


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_server_fetches_no_row_that_was_not_asked_for(
    long_log: str, name: str, analyzed: bool
) -> None:
    with PostgresMemoryBackend.from_url(long_log) as memory:
        journal = cast("TableJournal", memory.journal)
        if analyzed:
            execute(long_log, "ANALYZE")
        fetched: list[int] = []

        def plan(_txn: Txn) -> None:
            before = rows_fetched(journal)
            QUERIES[name](journal.table)
            fetched.append(rows_fetched(journal) - before)

        memory.journal.commit(plan)
    assert fetched[0] <= EVENTS_EACH + 1


def rows_fetched(journal: TableJournal) -> int:
    """What the server has fetched from the tables of events and streams in this transaction."""
    query = (
        b"SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables"
        b" WHERE relname IN ('fmemory_events', 'fmemory_streams')"
    )
    connections = journal.table._connections  # type: ignore[attr-defined]
    (number,) = connections.read(lambda one: one.execute(query).fetchone())
    return int(number)


def execute(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
