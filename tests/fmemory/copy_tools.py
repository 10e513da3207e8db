"""What the tests of copying share: a history of all kinds, a journal that can be told to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import fmemory
from fmemory import (
    Finding,
    JournalBackend,
    MemoryRecord,
    Message,
    NewEvent,
    Note,
    PutRequest,
    Role,
    SessionManifest,
)
from fmemory.journal import Commit, Payload, Pinned, StoredEvent
from fmemory.journals import MemoryJournal
from fmemory_segments.event import VectorArray

KINDS = ("segments", "sqlite", "filesystem", "postgres", "memory")
Open = Callable[[str, str], JournalBackend]


@contextmanager
def opened_memories(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open a memory of a kind under a name; all are closed at the end.

    The database of `postgres` is asked for when the first of that kind is opened.
    """
    with ExitStack() as opened:

        def make(kind: str, name: str) -> JournalBackend:
            target = target_of(request, tmp_path, kind, name)
            return opened.enter_context(fmemory.open(target, durability="os"))

        yield make


def target_of(request: pytest.FixtureRequest, tmp_path: Path, kind: str, name: str) -> str:
    """What opens a memory of this kind under this name."""
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        return f"{url}{'&' if '?' in url else '?'}log={name}"
    targets = {
        "segments": "{}",
        "sqlite": "sqlite:///{}.db",
        "filesystem": "jsonl:{}",
        "memory": ":memory:",
    }
    return targets[kind].format(tmp_path / name)


def fill(memory: JournalBackend) -> None:
    """Events of all kinds in batches of several sizes, with all that an envelope can carry."""
    with fmemory.audit(actor="ada", run_id="run-1", reason="a reason\0\u2028😀"):
        session = memory.session("s%_./")
        session.initialize_session_if_missing(SessionManifest("s%_./", "main", "obj"), [])
        session.append_transcript_messages([Message(Role.USER, "x\0\u2028😀" * 100)] * 3)
        for dtype in ("float32", "float64"):
            vector: VectorArray = np.linspace(-1, 1, 7).astype(dtype)
            memory.put(
                PutRequest(
                    [
                        MemoryRecord(
                            Note(f"{dtype}{n}", "ä", float(n), {"n": n}),
                            vector,
                            "model" if n % 2 else None,
                            namespace,
                        )
                        for n in range(5)
                        for namespace in ((), ("%", "a_b./"))
                    ]
                )
            )
    memory.delete(memory.delete_request(["float321"]))
    with memory.batch() as batch:
        batch.append(("own", ""), [NewEvent("a.b", {"x": [1.5, None]}, event_id="id-1")])
        batch.append(("own", "\0"), [NewEvent("a.b", b"\0\xff" * 9)])
        batch.append(("own", ""), [NewEvent("a.b")])
    memory.set_meta(memory.meta_set_request("k", {"v": 1}, ("%",)))
    memory.clear(memory.clear_request(namespace=("%", "a_b./")))
    memory.fork_session("s%_./", "fork")


def many(memory: JournalBackend, count: int) -> None:
    for number in range(count):
        memory.append(("numbers",), [NewEvent("number.said", number)])


def stored(memory: JournalBackend) -> list[tuple[object, ...]]:
    """Every event as values that compare."""
    journal = memory.journal
    envelopes = list(journal.envelopes(0, journal.refresh()))
    payloads = journal.payloads([one.seq for one in envelopes])
    return [(one, *plain(payload)) for one, payload in zip(envelopes, payloads, strict=True)]


def plain(payload: Payload) -> tuple[object, ...]:
    fields = [getattr(payload, name) for name in type(payload).__struct_fields__]
    return tuple(
        (one.dtype.str, one.shape, one.tobytes()) if isinstance(one, np.ndarray) else one
        for one in fields
    )


class Wrapped(MemoryJournal):
    """A journal in memory that can be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[StoredEvent]] = []
        self.before_import: Callable[[], None] = lambda: None
        self.after_import: Callable[[], None] = lambda: None
        self.findings: list[Finding] = []
        self.verified: list[Pinned] = []

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        taken = list(events)
        self.before_import()
        done = super().import_exact(taken)
        self.batches.append(taken)
        self.after_import()
        return done

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        self.verified.append(pinned)
        return [*super().verify(pinned), *self.findings]
