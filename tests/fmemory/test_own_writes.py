"""What a handle has written itself is folded from what it wrote: it is not read back.

Goal: a handle's next question costs no read for its own writes, and gives what a handle would say
that reads them. What would have to break: own writes that are folded twice, or onto a state in
which another's write is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmemory
from fmemory import (
    ClearRequest,
    DeleteRequest,
    FeatureRecord,
    JournalBackend,
    MemoryRecord,
    Message,
    MetaSetRequest,
    NewEvent,
    Note,
    PutRequest,
    ScanRequest,
    SessionManifest,
)
from fmemory._engine.projection import Projection
from fmemory.journal import Commit, Draft
from fmemory_segments import Blob, Envelope, Stream
from fmemory_segments.compaction import ErasedEvent

TARGETS: dict[str, Callable[[Path], str]] = {
    "segments": lambda folder: str(folder / "log"),
    "sqlite": lambda folder: f"sqlite:///{folder / 'log.db'}",
    "jsonl": lambda folder: f"jsonl:{folder / 'log'}",
}


def open_pair(folder: Path, kind: str) -> tuple[JournalBackend, JournalBackend]:
    target = TARGETS[kind](folder)
    return fmemory.open(target, durability="os"), fmemory.open(target, durability="os")


@pytest.fixture(params=TARGETS)
def handles(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[JournalBackend]]:
    pair = open_pair(tmp_path, request.param)
    with pair[0], pair[1]:
        yield list(pair)


def record(record_id: str, time: float = 1, namespace: tuple[str, ...] = ()) -> MemoryRecord:
    note = Note.create("text", id=record_id, timestamp=time)
    return MemoryRecord.create(note, np.array([time, 2]), namespace=namespace)


def write_of_every_kind(memory: JournalBackend, name: str) -> None:
    memory.put(PutRequest([record(f"{name}-{number}", -number) for number in range(3)]))
    memory.put(PutRequest([record(f"{name}-one", 0.5, ("other",))]))
    memory.delete(DeleteRequest([f"{name}-1"]))
    memory.set_meta(MetaSetRequest(key=name, value=[1]))
    manifest = SessionManifest(session_id=name, active_branch="main", current_objective="o")
    memory.initialize_session_if_missing(
        name, manifest, [FeatureRecord(id="f", category="c", description="d")]
    )
    with memory.batch() as batch:
        batch.append_transcript_messages(name, [Message(role="user", content="hello")])
        batch.update_feature_pass(name, "f", True)
        batch.append(("own", name), [NewEvent("a.b", 1)])
    memory.put(PutRequest([record(f"{name}-gone", namespace=("cleared",))]))
    memory.clear(ClearRequest(namespace=("cleared",)))


def state_of(memory: JournalBackend, names: list[str]) -> list[object]:
    pages = [
        [one.to_dict() for one in memory.scan(ScanRequest(namespace=labels)).records]
        for labels in ((), ("other",), ("cleared",))
    ]
    sessions = [memory.load_bootstrap_state(name).to_dict() for name in names]
    metas = [memory.get_meta(memory.meta_get_request(key=name)).value for name in names]
    listed = [one.to_dict() for one in memory.list_streams().streams]
    return [pages, sessions, metas, listed]


def spy_on_folds(memory: JournalBackend, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each fold that reads the journal is about."""
    projection = type(memory._engine.projection)
    reads: list[int] = []
    for name in ("_fold", "_catch_up"):
        real = getattr(projection, name)

        def spied(self: Any, reader: Any, *rest: Any, real: Any = real) -> Any:
            class Reader:
                def fold(self, after: int, upto: int, stream: Any = None) -> Any:
                    if self_is_live:
                        reads.append(upto - after)
                    return reader.fold(after, upto, stream)

                def __getattr__(self, attribute: str) -> Any:
                    return getattr(reader, attribute)

            self_is_live = self is memory._engine.projection
            return real(self, Reader(), *rest)

        monkeypatch.setattr(projection, name, spied)
    return reads


def test_own_writes_are_not_read_back(
    handles: list[JournalBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, _ = handles
    write_of_every_kind(memory, "a")
    state_of(memory, ["a"])
    reads = spy_on_folds(memory, monkeypatch)
    memory.put(PutRequest([record("b")]))
    memory.put(PutRequest([record("c"), record("d")]))
    memory.delete(DeleteRequest(["b"]))
    memory.update_feature_pass("a", "f", False)
    found = [one.note.id for one in memory.scan(ScanRequest()).records]
    assert found == ["a-2", "a-0", "c", "d"]
    assert reads == []


def test_streams_that_nobody_asked_for_are_read_when_somebody_does(
    handles: list[JournalBackend],
) -> None:
    memory, other = handles
    for one, name in ((memory, "a"), (other, "b"), (memory, "b"), (memory, "c")):
        one.append(("own", name), [NewEvent("a.b", 1)])
        one.put(PutRequest([record(f"in-{name}-{one is memory}", namespace=(name,))]))
    for written, one in enumerate(handles):
        found = [
            [row.note.id for row in one.scan(ScanRequest(namespace=(name,))).records]
            for name in "abc"
        ]
        assert found == [["in-a-True"], ["in-b-False", "in-b-True"], ["in-c-True"]]
        receipt = one.append(("own", "b"), [NewEvent("a.b", 2)], expected_revision=2 + written)
        assert receipt.revision == 3 + written


def test_own_writes_among_those_of_others_fold_to_what_a_reader_folds(
    handles: list[JournalBackend], tmp_path: Path
) -> None:
    names = []
    for number, memory in enumerate([*handles, *reversed(handles), *handles]):
        names.append(f"n{number}")
        write_of_every_kind(memory, names[-1])
    told = [state_of(memory, names) for memory in handles]
    (path,) = [one for one in tmp_path.iterdir() if one.name in ("log", "log.db")]
    with fmemory.open(path, read_only=True) as fresh:
        assert told == [state_of(fresh, names)] * 2


def test_own_writes_of_many_threads_fold_to_what_a_reader_folds(
    handles: list[JournalBackend],
) -> None:
    memory = handles[0]
    names = [f"t{thread}" for thread in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: write_of_every_kind(memory, name), names))
    assert state_of(memory, names) == state_of(handles[1], names)
    assert len(memory.scan(ScanRequest()).records) == 2 * len(names)


class Told:
    """A reader that has these events, and notes which of them it was asked for."""

    def __init__(self, *events: Envelope) -> None:
        self.events = events
        self.asked: list[tuple[int, int]] = []

    def fold(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[Envelope]:
        self.asked.append((after, upto))
        wanted = [one for one in self.events if after < one.seq <= upto]
        return iter([one for one in wanted if stream in (None, one.stream)])

    def erased(self, *_: object) -> Iterator[ErasedEvent]:
        return iter(())


def own_draft(name: str, revision: int) -> Draft:
    return Draft(("own", name), revision, "a.b", Blob(b""))


def appended(seq: int) -> Commit:
    return Commit(seq, seq, 0, durable=True)


def test_a_draft_that_does_not_follow_what_is_folded_of_its_stream_is_read_when_asked() -> None:
    """Threads are told of their commits in any order."""
    events = [Envelope(seq, ("own", "a"), seq, "a.b", 0) for seq in (1, 2, 3)]
    reader: Any = Told(*events)
    projection = Projection(by_stream=True)
    for seq in (2, 1, 3):
        projection.add(appended(seq), [own_draft("a", seq)])
    assert projection.revision(reader, ("own", "a"), 3) == 3
    assert reader.asked == [(1, 3)]


def test_a_stream_whose_first_event_is_the_handles_own_is_never_read() -> None:
    reader: Any = Told()
    projection = Projection(by_stream=True)
    projection.add(appended(1), [own_draft("a", 1)])
    projection.add(appended(2), [own_draft("b", 1)])
    projection.add(appended(3), [own_draft("a", 2)])
    found = [projection.revision(reader, ("own", name), 3) for name in ("a", "b", "c")]
    assert (found, reader.asked) == ([2, 1, 0], [])


@pytest.mark.parametrize("by_stream", [False, True])
def test_an_event_of_another_writer_between_own_ones_is_read(by_stream: bool) -> None:
    events = [Envelope(2, ("own", "a"), 2, "a.b", 0), Envelope(3, ("own", "a"), 3, "a.b", 0)]
    reader: Any = Told(*events)
    projection = Projection(by_stream=by_stream)
    projection.add(appended(1), [own_draft("a", 1)])
    projection.add(appended(3), [own_draft("a", 3)])
    assert projection.revision(reader, ("own", "a"), 3) == 3
    assert reader.asked == [(1, 3)]
