"""Both journals run the whole journal suite, and store one history with one chain."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fmemory.journal import Journal
from fmemory.journals import MemoryJournal, SegmentJournal
from fmemory.testing import Composed, JournalSuite
from fmemory_segments import Log


def open_segments(
    location: str, clock: Callable[[], int] | None = None, *, read_only: bool = False
) -> SegmentJournal:
    log = Log.open(Path(location), read_only=read_only, clock=clock or time.time_ns)
    return SegmentJournal(log)


class TestSegmentJournal(JournalSuite):
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    CLOCK = True
    WATCH = True

    def open_journal(self, location: str, clock: Callable[[], int] | None) -> Journal:
        return open_segments(location, clock)

    def open_read_only(self, location: str) -> Journal:
        return open_segments(location, read_only=True)

    def spawn_target(self, location: str) -> Callable[[], Journal]:
        return Composed(SegmentJournal, partial(Log.open, Path(location)))


class TestMemoryJournal(JournalSuite):
    CLOCK = True
    WATCH = True

    def open_journal(self, location: str, clock: Callable[[], int] | None) -> Journal:
        del location  # nothing outlives a handle, so every journal is a new one
        return MemoryJournal(clock=clock or time.time_ns)
