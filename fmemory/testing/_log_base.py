"""What the parts that need a log stand on."""

from __future__ import annotations

from typing import ClassVar

import pytest

from fmemory.backend import LogBackend, MemoryBackend
from fmemory.log_models import Event, NewEvent
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._samples import records
from fmemory.testing._sessions_samples import said

__all__ = ["LogSuiteBase", "as_log", "events", "said_event", "types"]


def as_log(memory: MemoryBackend) -> LogBackend:
    """The backend as one that keeps a log; fails for any other."""
    assert isinstance(memory, LogBackend), "LOG is declared: the backend is no LogBackend"
    return memory


class LogSuiteBase(BackendSuiteBase):
    """Fixtures of the parts that need LOG."""

    STREAM: ClassVar[tuple[str, ...]] = ("tools", "shell")

    @pytest.fixture
    def log(self, stores: Stores) -> LogBackend:
        """A new, empty store that keeps a log."""
        return as_log(stores.open())

    def fill(self, log: LogBackend) -> None:
        """One write of most kinds; every session, namespace and key is one the suite reads."""
        self.put(log, *records(1, 2, 3))
        log.append(self.STREAM, (said_event("a"), said_event("b")))
        log.append_transcript_messages("s1", said("hello", "there"))
        self.delete(log, "r1")
        self.set_meta(log, "k", 1)


def said_event(data: str = "x", event_id: str | None = None) -> NewEvent:
    """An event of a caller's own type."""
    return NewEvent("word.said", data, event_id)


def events(log: LogBackend, after: int = 0) -> list[Event]:
    """All events behind a seq."""
    return list(log.events(after))


def types(found: list[Event]) -> list[str]:
    """Their types."""
    return [one.type for one in found]
