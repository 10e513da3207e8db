"""What the tests of repairs share: small stores, ways to damage them, and what must hold after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from msgspec import structs

import fmemory
from fmemory import (
    JournalBackend,
    MemoryRecord,
    Message,
    NewEvent,
    Note,
    PutRequest,
    RepairResult,
    Role,
    SessionManifest,
)
from fmemory.journal import Envelope, Erased, Payload, Rows
from tests.fmemory.copy_tools import plain
from tests.tools.helpers import bytes_of

LOST = bytes(32)
KINDS = ("segments", "filesystem", "sqlite")
Events = list[tuple[Envelope, Payload]]


def target_of(kind: str, folder: Path, name: str) -> str:
    """What opens a memory of this kind under this name."""
    forms = {"segments": "{}", "sqlite": "sqlite:///{}.db", "filesystem": "jsonl:{}"}
    return forms[kind].format(folder / name)


def fill(memory: JournalBackend, *, rounds: int = 2) -> None:
    """Events of three streams that take turns, and puts of several records."""
    session = memory.session("s1")
    with fmemory.audit(actor="ada", run_id="run-1", reason="a first try"):
        session.initialize_session_if_missing(SessionManifest("s1", "main", "make it"), [])
        for number in range(rounds):
            session.append_transcript_messages([Message(Role.USER, f"word {number}")])
            memory.put(
                PutRequest(
                    [
                        MemoryRecord(
                            Note(f"n{number}-{row}", f"text {row}", float(row), {"row": row}),
                            np.linspace(-1, row, 3),
                            "model" if row % 2 else None,
                        )
                        for row in range(1 + number % 3)
                    ]
                )
            )
            memory.append(
                ("own",), [NewEvent("tool.said", {"number": number}, event_id=str(number))]
            )
    memory.delete(memory.delete_request(["n0-0"]))


def events_of(memory: JournalBackend) -> Events:
    """Every event."""
    journal = memory.journal
    envelopes = list(journal.envelopes(0, journal.refresh()))
    return list(zip(envelopes, journal.payloads([one.seq for one in envelopes]), strict=True))


def small_store(kind: str, folder: Path, *, rounds: int = 2) -> tuple[str, Events]:
    """A closed store named `source`, and its events."""
    target = target_of(kind, folder, "source")
    with fmemory.open(target) as memory:
        fill(memory, rounds=rounds)
        return target, events_of(memory)


def repaired(
    source: str, folder: Path, events: Events, *, kind: str = "segments", name: str = "repaired"
) -> RepairResult:
    """Repair a store and check all that must hold whatever the damage was."""
    target = target_of(kind, folder, name)
    before = bytes_at(source)
    result = fmemory.repair(source, target)
    assert bytes_at(source) == before
    check(target, result, events)
    return result


def salvaged(source: str, events: Events) -> RepairResult:
    """Repair a store into process memory, which is quick, and check the same."""
    before = bytes_at(source)
    with fmemory.open(":memory:") as memory:
        result = fmemory.repair(source, memory)
        assert bytes_at(source) == before
        check_memory(memory, result, events)
    return result


def check(target: str, result: RepairResult, events: Events) -> None:
    """As `check_memory`, of a store that is opened anew."""
    with fmemory.open(target) as memory:
        check_memory(memory, result, events)


def check_memory(memory: JournalBackend, result: RepairResult, events: Events) -> None:
    """What came back equals what was, what is named as lost is nothing else, and it goes on."""
    found = events_of(memory)
    assert [one.seq for one, _ in found] == list(range(1, len(found) + 1))
    lost = {seq for one in result.lost for seq in range(one.first_seq, one.last_seq + 1)}
    assert result.salvaged == len(found) - len(lost)
    assert len(found) <= len(events)
    damaged = {one.seq: one for one in result.damaged}
    for (envelope, payload), (was, payload_was) in zip(found, events, strict=False):
        if envelope.seq in lost:
            assert (envelope.type, payload) == ("event_lost", Erased(LOST))
            continue
        harm = damaged.get(envelope.seq)
        if harm is None:
            assert envelope == was
            assert plain(payload) == plain(payload_was)
        else:
            # Lines of JSON prove no id of a record that was changed: it gets another.
            own = f"lost-{envelope.seq}-"
            assert structs.replace(envelope, keys=was.keys) == was
            for key, key_was in zip(envelope.keys, was.keys, strict=True):
                assert key == key_was or (key.startswith(own) and key in harm.keys)
            check_harmed(payload, payload_was, harm.keys, envelope.keys)
    check_revisions([one for one, _ in found])
    assert str(memory.head()) == result.head
    assert [one for one in memory.journal.verify() if one.damage] == []
    receipt = memory.append(("after",), [NewEvent("it.goes_on")])
    assert receipt.seq == len(found) + 1


def check_revisions(envelopes: Sequence[Envelope]) -> None:
    """Every stream counts from 1 without a gap, and time never goes back."""
    revisions: dict[tuple[str, ...], int] = {}
    for envelope in envelopes:
        assert envelope.revision == revisions.get(envelope.stream, 0) + 1
        revisions[envelope.stream] = envelope.revision
    times = [one.recorded_at_ns for one in envelopes]
    assert times == sorted(times)


def check_harmed(payload: Payload, was: Payload, lost: Sequence[str], keys: Sequence[str]) -> None:
    """Of a damaged payload exactly the named records are gone, with a digest of zeros."""
    if not isinstance(was, Rows):
        assert payload == Erased(LOST)
        return
    assert isinstance(payload, Rows)
    for row, key in enumerate(keys):
        if key in lost:
            assert payload.erased is not None and payload.digests is not None
            assert payload.erased[row] and not payload.digests[row].any()
            continue
        assert is_erased(payload, row) == is_erased(was, row)
        assert row_of(payload, row) == row_of(was, row)


def is_erased(rows: Rows, row: int) -> bytes | None:
    """The digest of a row that was erased; None of one that lives."""
    if rows.erased is None or rows.digests is None or not rows.erased[row]:
        return None
    digest: bytes = rows.digests[row].tobytes()
    return digest


def row_of(rows: Rows, row: int) -> tuple[object, ...]:
    """A row without its nonce, which is no content."""
    low, high = rows.note_offsets[row : row + 2].tolist()
    return (
        rows.timestamps[row].tobytes(),
        rows.notes[low:high],
        rows.vectors[row].tobytes(),
        rows.embedding_ids[row],
    )


def bytes_at(source: str) -> dict[str, bytes]:
    """Every byte of a store and of what lies beside it."""
    path = Path(source.removeprefix("sqlite:///").removeprefix("jsonl:"))
    if path.is_dir():
        return bytes_of(path)
    return {one.name: one.read_bytes() for one in sorted(path.parent.glob(f"{path.name}*"))}


def file_of(kind: str, folder: Path) -> Path:
    """The file that holds a store's first events."""
    patterns = {"segments": "source/seg-*", "filesystem": "source/events-*.jsonl"}
    if kind == "sqlite":
        return folder / "source.db"
    return sorted(folder.glob(patterns[kind]))[0]


def changed(path: Path, change: Callable[[bytearray], object]) -> None:
    """Change the bytes of a file."""
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
