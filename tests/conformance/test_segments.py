"""The segments backend runs the whole suite."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import fmemory
from fmemory import JournalBackend
from fmemory.testing import MemoryBackendSuite


class TestSegments(MemoryBackendSuite):
    PERSISTENT = True
    SHARED = True
    MULTI_PROCESS = True
    READ_ONLY = True
    FORK_GUARD = True
    LOG = True
    TIME_TRAVEL = True

    def open_backend(self, location: str) -> JournalBackend:
        return fmemory.open(location)

    def open_read_only(self, location: str) -> JournalBackend:
        return fmemory.open(location, read_only=True)

    def spawn_target(self, location: str) -> Callable[[], JournalBackend]:
        return partial(fmemory.open, location)
