"""PostgreSQL runs the whole suites, of the backend and of the journal.

All stores of all tests are logs of one database, so every test also shows that logs are apart.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fmemory.journal import Journal
from fmemory.journals import PostgresMemoryBackend
from fmemory.journals._postgres import open_table
from fmemory.journals._postgres.target import PostgresTarget
from fmemory.journals._tables.journal import TableJournal
from fmemory.testing import Composed, JournalSuite, MemoryBackendSuite
from tests.postgres import Postgres


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> Iterator[str]:
    """The database that the stores of this file share."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


class InPostgres:
    """Each location is the URL of a log that no other test has."""

    _database: str

    @pytest.fixture(autouse=True)
    def _use_database(self, database: str) -> None:
        self._database = database

    def location(self, folder: Path, name: str) -> str:
        log = hashlib.sha256(str(folder).encode()).hexdigest()
        return f"{self._database}{'&' if '?' in self._database else '?'}log={log}-{name}"


class TestPostgres(InPostgres, MemoryBackendSuite):
    MACHINE_ROUNDS = 8
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    FORK_GUARD = True
    LOG = True
    TIME_TRAVEL = True

    def open_backend(self, location: str) -> PostgresMemoryBackend:
        return PostgresMemoryBackend.from_url(location)

    def open_read_only(self, location: str) -> PostgresMemoryBackend:
        return PostgresMemoryBackend.from_url(location, read_only=True)

    def spawn_target(self, location: str) -> Callable[[], PostgresMemoryBackend]:
        return partial(PostgresMemoryBackend.from_url, location)


class TestPostgresJournal(InPostgres, JournalSuite):
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    CLOCK = True
    WATCH = True

    def open_journal(self, location: str, clock: Callable[[], int] | None) -> Journal:
        table = open_table(PostgresTarget.from_url(location))
        return TableJournal(table, clock=clock or time.time_ns)

    def open_read_only(self, location: str) -> Journal:
        return TableJournal(open_table(PostgresTarget.from_url(location), read_only=True))

    def spawn_target(self, location: str) -> Callable[[], Journal]:
        return Composed(TableJournal, partial(open_table, PostgresTarget.from_url(location)))
