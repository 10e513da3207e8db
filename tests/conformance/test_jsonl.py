"""The JSON Lines journal and its backend run both suites whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from fmemory import FilesystemMemoryBackend, JournalBackend
from fmemory.journal import Journal
from fmemory.journals import JsonlJournal
from fmemory.journals._jsonl.log import JsonlLog
from fmemory.testing import Composed, JournalSuite, MemoryBackendSuite


def open_jsonl(
    location: str, clock: Callable[[], int] | None = None, *, read_only: bool = False
) -> JsonlJournal:
    return JsonlJournal(JsonlLog.open(location, read_only=read_only, clock=clock or time.time_ns))


class TestJsonlJournal(JournalSuite):
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    CLOCK = True
    WATCH = True

    def open_journal(self, location: str, clock: Callable[[], int] | None) -> Journal:
        return open_jsonl(location, clock)

    def open_read_only(self, location: str) -> Journal:
        return open_jsonl(location, read_only=True)

    def spawn_target(self, location: str) -> Callable[[], Journal]:
        return Composed(JsonlJournal, partial(JsonlLog.open, location))


class TestFilesystem(MemoryBackendSuite):
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    FORK_GUARD = True
    LOG = True
    TIME_TRAVEL = True

    def open_backend(self, location: str) -> JournalBackend:
        return FilesystemMemoryBackend(location)

    def open_read_only(self, location: str) -> JournalBackend:
        return FilesystemMemoryBackend(location, read_only=True)

    def spawn_target(self, location: str) -> Callable[[], JournalBackend]:
        return partial(FilesystemMemoryBackend, location)
