"""What every part of the journal suite stands on: hooks, handles that get closed, small drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from fmemory.errors import MemoryBackendError
from fmemory.journal import (
    Blob,
    Commit,
    Draft,
    Durability,
    Journal,
    Plan,
    Rows,
    StoredEvent,
    Stream,
    Txn,
)
from fmemory.testing._capabilities import Capability, CapabilityReport, missing, report_of
from fmemory_segments.event import VectorArray

__all__ = [
    "Clock",
    "JournalSuiteBase",
    "Journals",
    "blob",
    "commit",
    "counted",
    "matrix",
    "note_body",
    "note_fields",
    "put",
    "refusal",
    "row_ids",
    "shifted",
    "stored",
    "vector_of",
]

JOURNAL_CAPABILITIES = (
    Capability.PERSISTENT,
    Capability.SHARED,
    Capability.MULTI_PROCESS,
    Capability.READ_ONLY,
    Capability.CLOCK,
    Capability.WATCH,
)

NOTES: Stream = ("records", "notes")
OTHER: Stream = ("records", "other")
WORDS: Stream = ("words",)


class Clock:
    """A clock in the test's hand: Unix nanoseconds, moved by assignment only."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


class Journals:
    """Opens journals for a test and closes all of them after it."""

    def __init__(self, suite: JournalSuiteBase, folder: Path) -> None:
        self._suite = suite
        self._folder = folder
        self._open: list[Journal] = []
        self.clock = Clock()

    def location(self, name: str = "store") -> str:
        """The location of a name; the same one for the same name."""
        return self._suite.location(self._folder, name)

    def open(self, name: str = "store") -> Journal:
        """One more handle on the journal of this name."""
        clock = self.clock if self._suite.CLOCK else None
        journal = self._suite.open_journal(self.location(name), clock)
        self._open.append(journal)
        return journal

    def open_read_only(self, name: str = "store") -> Journal:
        """A handle that cannot commit."""
        journal = self._suite.open_read_only(self.location(name))
        self._open.append(journal)
        return journal

    def reopen(self, journal: Journal, name: str = "store") -> Journal:
        """Close this handle and open its location again."""
        journal.close()
        return self.open(name)

    def close(self) -> None:
        """Close what is open, newest first."""
        while self._open:
            self._open.pop().close()


class JournalSuiteBase:
    """Hooks and fixtures; subclass `JournalSuite`, not this."""

    PERSISTENT: ClassVar[bool] = False
    SHARED: ClassVar[bool] = False
    MULTI_PROCESS: ClassVar[bool] = False
    READ_ONLY: ClassVar[bool] = False
    CLOCK: ClassVar[bool] = False
    WATCH: ClassVar[bool] = False

    def open_journal(self, location: str, clock: Callable[[], int] | None) -> Journal:
        """A journal at this location, made if missing; the same location twice is a reopen.

        Args:
            location: What `location()` gave.
            clock: Source of Unix nanoseconds; None unless CLOCK is declared.
        """
        raise NotImplementedError(
            "a subclass of JournalSuite defines open_journal(location, clock)"
        )

    def open_read_only(self, location: str) -> Journal:
        """A handle that cannot commit. Needed where READ_ONLY is declared."""
        raise NotImplementedError("READ_ONLY is declared: define open_read_only(location)")

    def spawn_target(self, location: str) -> Callable[[], Journal]:
        """What opens this location in another process: picklable, so a function or a partial of it.

        Needed where MULTI_PROCESS is declared.
        """
        raise NotImplementedError("MULTI_PROCESS is declared: define spawn_target(location)")

    def location(self, folder: Path, name: str) -> str:
        """A location for this name, new for every test: here a path that does not exist yet."""
        return str(folder / name)

    @classmethod
    def capability_report(cls) -> CapabilityReport:
        """What is declared, and how many tests run and are skipped because of it."""
        return report_of(cls, JOURNAL_CAPABILITIES)

    @pytest.fixture(autouse=True)
    def _skip_undeclared(self, request: pytest.FixtureRequest) -> None:
        declared = {one for one in JOURNAL_CAPABILITIES if getattr(self, one.value)}
        lacking = sorted(missing(request.function, declared))
        if lacking:
            pytest.skip(f"{type(self).__name__} does not declare {', '.join(lacking)}")

    @pytest.fixture
    def journals(self, tmp_path: Path) -> Iterator[Journals]:
        """Opens journals by name; all are closed afterwards."""
        handles = Journals(self, tmp_path)
        yield handles
        handles.close()

    @pytest.fixture
    def journal(self, journals: Journals) -> Journal:
        """A new, empty journal."""
        return journals.open()


def refusal(
    call: Callable[[], object], expected: type[MemoryBackendError] = MemoryBackendError
) -> MemoryBackendError:
    """The typed error that a call raises; fails if it raises none, or one of another class."""
    with pytest.raises(expected) as caught:
        call()
    return caught.value


def blob(data: bytes = b"x", *, stream: Stream = WORDS, revision: int = 1) -> Draft:
    """A draft of bytes."""
    return Draft(stream=stream, revision=revision, type="word.said", payload=Blob(data))


def put(
    *ids: str,
    stream: Stream = NOTES,
    revision: int = 1,
    timestamps: Sequence[float] | None = None,
    dim: int = 3,
    dtype: type[np.float32] | type[np.float64] = np.float64,
    embedding_ids: Sequence[str | None] | None = None,
) -> Draft:
    """A draft of rows: text and vector of each follow from its id, so reads can be checked."""
    bodies = [note_body(one) for one in ids]
    offsets = np.cumsum([0, *map(len, bodies)], dtype=np.uint32)
    vectors: VectorArray = np.zeros((len(ids), dim), dtype=dtype)
    for row, one in enumerate(ids):
        vectors[row] = vector_of(one, dim)
    rows = Rows(
        timestamps=np.array(timestamps or [float(i) for i in range(len(ids))], dtype=np.float64),
        notes=b"".join(bodies),
        note_offsets=offsets,
        vectors=vectors,
        embedding_ids=tuple(embedding_ids or [None] * len(ids)),
    )
    return Draft(
        stream=stream,
        revision=revision,
        type="records_put",
        payload=rows,
        keys=ids,
        count=len(ids),
    )


def note_body(record_id: str) -> bytes:
    """The note body that `put` stores for an id: msgpack id, text and metadata back to back."""
    return b"".join(map(msgspec.msgpack.encode, note_fields(record_id)))


def note_fields(record_id: str) -> list[object]:
    """The id, text and metadata that `put` stores for an id."""
    return [record_id, f"text of {record_id}", {"about": record_id}]


def vector_of(record_id: str, dim: int = 3) -> list[float]:
    """The vector that `put` stores for an id."""
    return [float(sum(record_id.encode()) + column) for column in range(dim)]


def commit(journal: Journal, *drafts: Draft, durability: Durability | None = None) -> Commit:
    """Append these drafts as one batch."""
    made = journal.commit(lambda _txn: drafts, durability=durability)
    assert made is not None
    return made


def counted(stream: Stream = WORDS, data: bytes = b"x") -> Plan:
    """A plan that reads the stream's newest revision and appends the next."""

    def plan(txn: Txn) -> list[Draft]:
        newest = list(txn.envelopes(0, txn.head_seq, stream=stream, backwards=True, limit=1))
        revision = newest[0].revision + 1 if newest else 1
        return [blob(data, stream=stream, revision=revision)]

    return plan


def row_ids(journal: Journal, locs: Sequence[int]) -> list[str]:
    """The ids stored in the notes at these places."""
    page = journal.rows(np.array(locs, dtype=np.uint64), vectors=False)
    fields = msgspec.msgpack.decode(page.notes) if page.notes else []
    return list(fields[::3])


def matrix(blocks: Sequence[VectorArray]) -> list[list[float]]:
    """All vectors of a page as plain lists."""
    return [[float(value) for value in row] for block in blocks for row in block]


def stored(journal: Journal) -> list[StoredEvent]:
    """Everything a journal holds, as `import_exact` takes it."""
    envelopes = list(journal.envelopes(0, journal.refresh()))
    payloads = journal.payloads([one.seq for one in envelopes])
    return [StoredEvent(*pair) for pair in zip(envelopes, payloads, strict=True)]


def shifted(event: StoredEvent, seq: int) -> StoredEvent:
    """The event with another number."""
    envelope = msgspec.structs.replace(event.envelope, seq=seq)
    return replace(event, envelope=envelope)
