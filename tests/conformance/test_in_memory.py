"""The in-memory backend runs the whole suite."""

from __future__ import annotations

from fmemory import InMemoryMemoryBackend
from fmemory.testing import MemoryBackendSuite


class TestInMemory(MemoryBackendSuite):
    LOG = True
    TIME_TRAVEL = True

    def open_backend(self, location: str) -> InMemoryMemoryBackend:
        del location  # nothing outlives a handle, so every store is a new one
        return InMemoryMemoryBackend()
