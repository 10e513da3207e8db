"""What only a head kept elsewhere can tell: a history rewritten by someone who knows the format.

Goal: an event that was edited, removed or moved, an older copy that was restored and gone on with,
and a log that was cut back are found on every journal, and the finding names where.
Method: each store is rewritten whole and consistently, under its own id, with every seq, revision,
checksum and chain value made anew by the project's own functions, and its witness left out. So
`verify()` without a head finds nothing, which each test asserts first.
To break: a journal that compares heads by seq only, trusts a chain value that is stored, or stops
at the first head.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from msgspec.structs import replace

import fmemory
from fmemory import Head, InMemoryMemoryBackend, JournalBackend, NewEvent
from fmemory.journal import Blob, Finding, Journal, Rows, StoredEvent
from fmemory.journals import SegmentJournal
from fmemory.journals._jsonl.lines import encode_batch
from fmemory.journals._tables.event_table import stream_key
from fmemory_segments import Log, LogReason, StreamIndex
from fmemory_segments._header import pack_header, unpack_header
from fmemory_segments.event import ZERO_CHAIN
from fmemory_segments.event_bytes import meta_check, pack_event
from tests.fmemory.copy_tools import target_of
from tests.fmemory.jsonl_tools import files_of, forget

History: TypeAlias = list[StoredEvent]
KINDS = ("segments", "sqlite", "filesystem", "postgres", "memory")
SEGMENT_BYTES_MAX = 500
HEADER_BYTES = 128
LAST = 8
CHANGED = 5


# Histories


def write_events(memory: JournalBackend) -> None:
    """Eight events: notes (1, 4, 7), and two streams that take turns."""
    for number in range(1, LAST + 1):
        if number % 3 == 1:
            memory.add_note(f"note {number}", [1.0, float(number)], id=f"n{number}")
        else:
            stream = ("even",) if number % 2 == 0 else ("odd",)
            memory.append(stream, [NewEvent("job.done", f"number {number}")])


def history_of(journal: Journal) -> History:
    envelopes = list(journal.envelopes(0, journal.refresh()))
    payloads = journal.payloads([one.seq for one in envelopes])
    return [StoredEvent(*both) for both in zip(envelopes, payloads, strict=True)]


def in_line(events: Sequence[StoredEvent]) -> History:
    """The events one behind another, with seqs, revisions and times that follow."""
    revisions: dict[tuple[str, ...], int] = {}
    found, time_ns = [], 0
    for seq, event in enumerate(events, 1):
        stream = event.envelope.stream
        revisions[stream] = revisions.get(stream, 0) + 1
        time_ns = max(time_ns, event.envelope.recorded_at_ns)
        envelope = msgspec.structs.replace(
            event.envelope, seq=seq, revision=revisions[stream], recorded_at_ns=time_ns
        )
        found.append(StoredEvent(envelope, event.payload))
    return found


def edited(events: History) -> History:
    event = events[CHANGED - 1]
    assert isinstance(event.payload, Blob)
    data = event.payload.data.replace(b"number 5", b"number 6")
    assert data != event.payload.data
    events[CHANGED - 1] = replace(event, payload=replace(event.payload, data=data))
    return in_line(events)


def edited_note(events: History) -> History:
    event = events[3]
    assert isinstance(event.payload, Rows)
    notes = event.payload.notes.replace(b"note 4", b"note 5")
    assert notes != event.payload.notes
    events[3] = replace(event, payload=replace(event.payload, notes=notes))
    return in_line(events)


def reattributed(events: History) -> History:
    event = events[CHANGED - 1]
    envelope = msgspec.structs.replace(event.envelope, actor="somebody else")
    events[CHANGED - 1] = replace(event, envelope=envelope)
    return in_line(events)


def removed(events: History) -> History:
    del events[CHANGED - 1]
    return in_line(events)


def reordered(events: History) -> History:
    events[CHANGED - 1], events[CHANGED] = events[CHANGED], events[CHANGED - 1]
    return in_line(events)


def replayed(events: History) -> History:
    """The copy of when there were four events, gone on with beyond where the log was."""
    return in_line([*events[: CHANGED - 1], events[1], events[2], events[5], *events[4:6]])


def rolled_back(events: History) -> History:
    return events[: CHANGED - 1]


CHANGES: dict[Callable[[History], History], int] = {
    edited: 5,
    edited_note: 4,
    reattributed: 5,
    removed: 5,
    reordered: 5,
    replayed: 5,
    rolled_back: 5,
}
"""Each change, and the first event that it concerns."""


# Rewriting stores


def rewrite_segments(folder: Path, store_id: bytes, events: History) -> None:
    """A new log of these events in small segments, under the id of the old one."""
    for file in (*folder.glob("seg-*"), folder / "TIP", folder / "LOCK"):
        file.unlink()
    forged = folder.with_name("forged")
    log = Log.open(forged, segment_bytes_max=SEGMENT_BYTES_MAX, durability="os")
    with closing(SegmentJournal(log)) as journal:
        for event in events:
            journal.import_exact([event])
    segments = sorted(forged.glob("seg-*"))
    assert len(segments) > 1
    for segment in segments:
        content = segment.read_bytes()
        header = unpack_header(content[:HEADER_BYTES])
        assert header is not None
        renamed = pack_header(header._replace(store_id=store_id))
        (folder / segment.name).write_bytes(renamed + content[HEADER_BYTES:])
    (folder / "LOCK").touch()


def rewrite_lines(folder: Path, store_id: bytes, events: History) -> None:
    """The lines of these events with new checksums and chain values, under the old header."""
    (file,) = files_of(folder)
    chain, lines = ZERO_CHAIN, [file.read_bytes().splitlines(keepends=True)[0]]
    for event in events:
        (encoded,) = encode_batch([event], store_id=store_id, chain=chain, synced=0)
        lines += encoded.lines
        chain = encoded.chain
    file.write_bytes(b"".join(lines))
    forget(folder)


def rewrite_sqlite(file: Path, store_id: bytes, events: History) -> None:
    """All rows replaced by statements of our own."""
    streams = StreamIndex()
    with closing(sqlite3.connect(file)) as database, database:
        (kept,) = database.execute("SELECT value FROM fmemory_log WHERE key = 'store_id'")
        assert kept == (store_id,)
        database.execute("DELETE FROM fmemory_events")
        database.execute("DELETE FROM fmemory_streams")
        for one in events:
            streams.apply_envelope(one.envelope)
        for info in streams.streams():
            database.execute(
                "INSERT INTO fmemory_streams"
                " (key, kind, revision, first_seq, last_seq, last_recorded_at_ns)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    stream_key(info.stream),
                    info.stream[0],
                    info.revision,
                    info.first_seq,
                    info.last_seq,
                    info.last_recorded_at_ns,
                ),
            )
        for one in events:
            envelope, packed = one.envelope, pack_event(one.envelope, one.payload)
            database.execute(
                "INSERT INTO fmemory_events (seq, stream, revision, type, event_id,"
                " recorded_at_ns, meta, checksum, data) VALUES"
                " (?, (SELECT id FROM fmemory_streams WHERE key = ?), ?, ?, ?, ?, ?, ?, ?)",
                (
                    envelope.seq,
                    stream_key(envelope.stream),
                    envelope.revision,
                    envelope.type,
                    envelope.event_id,
                    envelope.recorded_at_ns,
                    packed.meta,
                    meta_check(envelope.seq, envelope.recorded_at_ns, packed.meta),
                    packed.data,
                ),
            )


def rewrite_postgres(url: str, forged_url: str, events: History) -> None:
    """The rows of another log of the database put in the place of this one's."""
    import psycopg

    with fmemory.open(forged_url, durability="os") as forged:
        forged.journal.import_exact(events)
    with psycopg.connect(url.partition("?log=")[0].partition("&log=")[0]) as connection:
        (old,) = connection.execute("SELECT log_id FROM fmemory_logs WHERE name = 'log'")
        (new,) = connection.execute("SELECT log_id FROM fmemory_logs WHERE name = 'forged'")
        for table in ("fmemory_events", "fmemory_streams"):
            connection.execute(f"DELETE FROM {table} WHERE log_id = %s".encode(), old)
            statement = f"UPDATE {table} SET log_id = %s WHERE log_id = %s"
            connection.execute(statement.encode(), (*old, *new))
        connection.execute(
            "UPDATE fmemory_logs o SET head_seq = n.head_seq, head_ns = n.head_ns,"
            " synced_seq = n.head_seq FROM fmemory_logs n WHERE o.log_id = %s AND n.log_id = %s",
            (*old, *new),
        )
        connection.execute(
            "UPDATE fmemory_syncs SET synced_seq = least(synced_seq, %s) WHERE log_id = %s",
            (len(events), *old),
        )


@contextmanager
def rewritten(
    request: pytest.FixtureRequest,
    folder: Path,
    kind: str,
    change: Callable[[History], History],
) -> Iterator[tuple[JournalBackend, list[Head]]]:
    """A store after a change, opened, and its heads of before: one for each seq from 0."""
    target = target_of(request, folder, kind, "log")
    with fmemory.open(target, durability="os") as memory:
        write_events(memory)
        heads = [memory.journal.head(seq) for seq in range(LAST + 1)]
        store_id, events = memory.journal.store_id, change(history_of(memory.journal))
    match kind:
        case "segments":
            rewrite_segments(folder / "log", store_id, events)
        case "filesystem":
            rewrite_lines(folder / "log", store_id, events)
        case "sqlite":
            rewrite_sqlite(folder / "log.db", store_id, events)
        case "postgres":
            forged = target_of(request, folder, kind, "forged")
            rewrite_postgres(target, forged, events)
        case _:
            with InMemoryMemoryBackend() as replacement:
                replacement.journal.import_exact(events)
                yield replacement, heads
            return
    with fmemory.open(target, create=False) as memory:
        assert memory.journal.store_id == store_id
        yield memory, heads


def ranges(findings: Sequence[Finding]) -> list[tuple[LogReason, int | None, int | None]]:
    assert all(one.damage for one in findings)
    return [(one.reason, one.first_seq, one.last_seq) for one in findings]


# Tests

every_kind = pytest.mark.parametrize("kind", KINDS)
every_change = pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)


@every_kind
@every_change
def test_one_head_names_a_range_that_holds_the_change(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    change: Callable[[History], History],
) -> None:
    with rewritten(request, tmp_path, kind, change) as (memory, heads):
        assert memory.verify() == ()
        assert ranges(memory.verify(heads[LAST])) == [(LogReason.PINNED_HEAD, 1, LAST)]


@every_kind
@pytest.mark.parametrize("change", [edited, removed, replayed])
def test_two_heads_name_what_lies_between_them(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    change: Callable[[History], History],
) -> None:
    with rewritten(request, tmp_path, kind, change) as (memory, heads):
        found = memory.verify([str(heads[LAST]), heads[3]])
        assert ranges(found) == [(LogReason.PINNED_HEAD, 4, LAST)]


@every_kind
@pytest.mark.parametrize("change", [edited, edited_note, reattributed, reordered, replayed])
def test_a_head_of_every_event_names_the_first_changed_event(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    change: Callable[[History], History],
) -> None:
    with rewritten(request, tmp_path, kind, change) as (memory, heads):
        first = CHANGES[change]
        assert ranges(memory.verify(heads)) == [(LogReason.PINNED_HEAD, first, first)]


@every_kind
@pytest.mark.parametrize(
    ("change", "expected"),
    [(removed, [(5, 5), (5, LAST)]), (rolled_back, [(5, LAST)])],
    ids=["removed", "rolled_back"],
)
def test_a_head_of_every_event_names_the_first_missing_event(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    change: Callable[[History], History],
    expected: list[tuple[int, int]],
) -> None:
    with rewritten(request, tmp_path, kind, change) as (memory, heads):
        found = ranges(memory.verify(heads))
        assert found == [(LogReason.PINNED_HEAD, *one) for one in expected]


@every_kind
def test_heads_pinned_before_and_after_a_change_tell_when_it_was_made(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """A head that fits does not make one before it fit: the log was changed between the two."""
    with rewritten(request, tmp_path, kind, edited) as (memory, heads):
        found = memory.verify([heads[4], heads[6], memory.head()])
        assert ranges(found) == [(LogReason.PINNED_HEAD, 5, 6)]


@every_kind
def test_all_heads_of_a_log_fit_it(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    with rewritten(request, tmp_path, kind, in_line) as (memory, heads):
        memory.append(("odd",), [NewEvent("job.done", "later")])
        assert memory.verify(heads) == ()


# Texts of heads

HEAD = Head(12, bytes(range(32)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no colon"),
        ("12", "no colon"),
        (HEAD.chain.hex(), "no colon"),
        (f":{HEAD.chain.hex()}", "no number before the colon"),
        (f"-12:{HEAD.chain.hex()}", "no number before the colon"),
        (f"١٢:{HEAD.chain.hex()}", "no number before the colon"),
        (f"012:{HEAD.chain.hex()}", "a number that begins with 0"),
        (f"{2**63}:{HEAD.chain.hex()}", "a number beyond"),
        (f"{'9' * 5000}:{HEAD.chain.hex()}", "a number beyond"),
        ("12:", "got 0 digits"),
        (str(HEAD)[:19], "got 16 digits"),
        (str(HEAD)[:19] + "…", "got 16 digits"),
        (str(HEAD)[:19] + "...", "got 16 digits"),
        (str(HEAD) + "0", "got 65 digits"),
        (str(HEAD).upper(), "upper-case digits"),
        (str(HEAD)[:-1] + "g", "'g' among the digits"),
        (str(HEAD)[:-1] + " ", "got 63 digits"),
        (str(HEAD).replace(":", ": "), "' ' among the digits"),
        (f"0:{HEAD.chain.hex()}", "digits of an event 0"),
    ],
)
def test_a_text_that_is_no_head_is_told_what_is_wrong_with_it(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="expected SEQ:CHAIN") as caught:
        Head.parse(text)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("head", [HEAD, Head(0, bytes(32)), Head(2**63 - 1, b"\xff" * 32)])
def test_a_head_is_parsed_as_it_is_printed(head: Head) -> None:
    assert Head.parse(str(head)) == Head.parse(f"  {head}\n") == head


@pytest.mark.parametrize(
    ("pinned", "where", "reason"),
    [
        ([], "pinned", fmemory.Reason.EMPTY),
        ([HEAD, "12"], "pinned[1]", fmemory.Reason.BAD_VALUE),
        ([str(HEAD), None], "pinned[1]", fmemory.Reason.WRONG_TYPE),
        (Head(-1, bytes(32)), "pinned", fmemory.Reason.BAD_VALUE),
        (Head(12, b"short"), "pinned", fmemory.Reason.BAD_VALUE),
        (Head(12, HEAD.chain.hex()), "pinned", fmemory.Reason.WRONG_TYPE),  # type: ignore[arg-type]
        (b"12:00", "pinned[0]", fmemory.Reason.WRONG_TYPE),
        (12, "pinned", fmemory.Reason.WRONG_TYPE),
    ],
)
def test_what_is_no_head_is_refused_by_its_place(
    pinned: object, where: str, reason: fmemory.Reason
) -> None:
    with fmemory.open(":memory:") as memory, pytest.raises(fmemory.ContractError) as caught:
        memory.verify(pinned)  # type: ignore[arg-type]
    assert (caught.value.where, caught.value.reason) == (where, reason)


# Damage


def damage_segments(folder: Path) -> None:
    (segment,) = folder.glob("seg-*")
    content = bytearray(segment.read_bytes())
    content[content.index(b"number 5")] ^= 1
    segment.write_bytes(content)


def damage_sqlite(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE fmemory_events SET data = zeroblob(length(data)) WHERE seq = 5")


@pytest.mark.parametrize(
    ("kind", "file", "damage"),
    [("segments", "log", damage_segments), ("sqlite", "log.db", damage_sqlite)],
)
def test_damage_hides_the_chain_from_heads_behind_it_and_from_none_before(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    file: str,
    damage: Callable[[Path], None],
) -> None:
    target = target_of(request, tmp_path, kind, "log")
    with fmemory.open(target) as memory:
        write_events(memory)
        heads = [memory.journal.head(seq) for seq in (3, 4, 6, 8)]
    damage(tmp_path / file)
    with fmemory.open(target, read_only=True) as memory:
        damaged, hidden = memory.verify(heads)
    assert (damaged.first_seq, damaged.last_seq) == (5, 5)
    assert ranges([hidden]) == [(LogReason.PINNED_HEAD, 5, 6)]
    assert "damage before it" in hidden.message
