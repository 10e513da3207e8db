"""SQLite files run the whole suites, of the backend and of the journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fmemory.journal import Journal
from fmemory.journals import SqliteMemoryBackend
from fmemory.journals._sqlite import SqliteTable
from fmemory.journals._tables.journal import TableJournal
from fmemory.testing import Composed, JournalSuite, MemoryBackendSuite


class TestSqlite(MemoryBackendSuite):
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    FORK_GUARD = True
    LOG = True
    TIME_TRAVEL = True

    def open_backend(self, location: str) -> SqliteMemoryBackend:
        return SqliteMemoryBackend(f"{location}.db")

    def open_read_only(self, location: str) -> SqliteMemoryBackend:
        return SqliteMemoryBackend(f"{location}.db", read_only=True)

    def spawn_target(self, location: str) -> Callable[[], SqliteMemoryBackend]:
        return partial(SqliteMemoryBackend, f"{location}.db")


class TestSqliteJournal(JournalSuite):
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    CLOCK = True
    WATCH = True

    def open_journal(self, location: str, clock: Callable[[], int] | None) -> Journal:
        return TableJournal(SqliteTable(Path(f"{location}.db")), clock=clock or time.time_ns)

    def open_read_only(self, location: str) -> Journal:
        return TableJournal(SqliteTable(Path(f"{location}.db"), read_only=True))

    def spawn_target(self, location: str) -> Callable[[], Journal]:
        return Composed(TableJournal, partial(SqliteTable, Path(f"{location}.db")))
