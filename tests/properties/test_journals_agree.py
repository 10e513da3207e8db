"""Journals told the same hold the same, and one history has one chain wherever it is stored.

Goal: nothing above a journal can tell which one it stands on. Method: Hypothesis draws batches of
drafts; all journals commit them under one clock, and everything that can be read is compared; then
each is imported into new ones of every kind in random parts, and the heads are. What would have to
break: a journal that orders, groups, loses or changes events, or a digest that depends on where the
event is stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmemory.journal import Blob, Draft, Envelope, Erased, Journal, Rows, StoredEvent, Txn
from fmemory.journals import JsonlJournal, MemoryJournal, SegmentJournal
from fmemory.journals._jsonl.log import JsonlLog
from fmemory.journals._postgres import open_table
from fmemory.journals._postgres.target import PostgresTarget
from fmemory.journals._sqlite import SqliteTable
from fmemory.journals._tables.journal import TableJournal
from fmemory_segments import Log, payload_digest
from tests.postgres import Postgres
from tests.segments.event_strategies import History, histories

STREAMS = (("records",), ("records", "n"), ("words",), ("session", "s"))
BOUNDED = settings(max_examples=30, deadline=None, database=None, print_blob=True)

blobs = st.binary(max_size=40).map(Blob)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """A payload of one to four rows."""
    count = draw(st.integers(1, 4))
    dim = draw(st.integers(0, 3))
    dtype = draw(st.sampled_from([np.float32, np.float64])) if dim else np.float64
    bodies = [
        b"".join(map(msgspec.msgpack.encode, (f"id{row}", draw(st.text("aé", max_size=3)), {})))
        for row in range(count)
    ]
    return Rows(
        timestamps=np.array(draw(st.lists(st.floats(-5, 5), min_size=count, max_size=count))),
        notes=b"".join(bodies),
        note_offsets=np.cumsum([0, *map(len, bodies)], dtype=np.uint32),
        vectors=np.arange(count * dim, dtype=dtype).reshape(count, dim),
        embedding_ids=tuple(draw(st.sampled_from([None, "m"])) for _ in range(count)),
    )


batches = st.lists(
    st.lists(
        st.tuples(st.sampled_from(STREAMS), blobs | rows(), st.booleans(), st.integers(-9, 9)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=6,
)
Batches = list[list[tuple[tuple[str, ...], Blob | Rows, bool, int]]]


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> Iterator[str]:
    """The database in which each example has logs of its own."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@contextmanager
def opened(clock: list[int], database: str) -> Iterator[list[Journal]]:
    """A new journal of each kind, under one clock; files of text so small that they roll."""

    def now() -> int:
        return clock[0]

    log = f"{database}{'&' if '?' in database else '?'}log={uuid4().hex}"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        text = JsonlLog.open(place / "text", durability="os", file_bytes_max=2_000, clock=now)
        sqlite = SqliteTable(place / "s.db", durability="os")
        postgres = open_table(PostgresTarget.from_url(log), durability="os")
        journals: list[Journal] = [
            MemoryJournal(clock=now),
            SegmentJournal(Log.open(place / "s", durability="os", clock=now)),
            JsonlJournal(text),
            TableJournal(sqlite, clock=now),
            TableJournal(postgres, clock=now),
        ]
        try:
            yield journals
        finally:
            for one in journals:
                one.close()


def fill(journals: list[Journal], given_batches: Batches, clock: list[int]) -> None:
    """Commit every batch to every journal; the clock moves by what was drawn, also backwards."""
    revisions: dict[tuple[str, ...], int] = {}
    number = 0
    for batch in given_batches:
        drafts: list[Draft] = []
        for stream, payload, keyed, step in batch:
            number += 1
            clock[0] += step
            revisions[stream] = revisions.get(stream, 0) + 1
            rows_in = len(payload) if isinstance(payload, Rows) else 0
            keys = tuple(f"{number}-{row}" for row in range(rows_in))
            drafts.append(
                Draft(
                    stream,
                    revisions[stream],
                    "records_put" if rows_in else "word.said",
                    payload,
                    event_id=f"key{number}" if keyed else None,
                    keys=keys,
                    count=len(keys),
                )
            )
        for journal in journals:
            journal.commit(partial(planned, drafts))


def planned(drafts: list[Draft], _txn: Txn) -> list[Draft]:
    return drafts


def stored(journal: Journal) -> list[StoredEvent]:
    envelopes = list(journal.envelopes(0, journal.refresh()))
    payloads = journal.payloads([one.seq for one in envelopes])
    return [StoredEvent(*pair) for pair in zip(envelopes, payloads, strict=True)]


def folded(journal: Journal) -> dict[tuple[str, ...], list[object]]:
    """What folding gives, by stream, with runs taken apart into rows."""
    seen: dict[tuple[str, ...], list[object]] = {}
    for item in journal.fold(0, journal.refresh()):
        parts = seen.setdefault(item.stream, [])
        if isinstance(item, Envelope):
            parts.append(item)
        else:
            parts += zip(item.ids, item.timestamps.tolist(), item.locs.tolist(), strict=True)
    return seen


def plain_rows(journal: Journal, places: list[int]) -> object:
    page = journal.rows(np.array(places, np.uint64))
    vectors = [(block.dtype.name, row.tolist()) for block in page.blocks for row in block]
    return msgspec.msgpack.decode(page.notes), vectors, page.embedding_ids


def sorted_usage(journal: Journal) -> list[tuple[object, ...]]:
    return sorted((one.stream, one.type, one.event_count) for one in journal.usage())


@BOUNDED
@given(batches)
def test_everything_read_from_the_journals_is_equal(database: str, given_batches: Batches) -> None:
    clock = [1_000_000]
    with opened(clock, database) as journals:
        fill(journals, given_batches, clock)
        one, *others = journals
        newest = one.refresh()
        for other in others:
            assert list(one.envelopes(0, newest)) == list(other.envelopes(0, other.refresh()))
            backwards = list(other.envelopes(0, newest, backwards=True, limit=3))
            assert backwards == list(one.envelopes(0, newest, backwards=True, limit=3))
            assert folded(one) == folded(other)
            assert one.streams() == other.streams()
            assert one.streams(("records",), limit=1) == other.streams(("records",), limit=1)
            assert sorted_usage(one) == sorted_usage(other)
        for envelope in one.envelopes(0, newest):
            if envelope.event_id is not None:
                found = [each.find(envelope.stream, envelope.event_id) for each in journals]
                assert found == [envelope.seq] * len(journals)


@BOUNDED
@given(batches, st.randoms(use_true_random=False))
def test_rows_read_from_the_journals_are_equal(
    database: str, given_batches: Batches, chance: Random
) -> None:
    clock = [1_000_000]
    with opened(clock, database) as journals:
        fill(journals, given_batches, clock)
        places = [
            place
            for parts in folded(journals[0]).values()
            for part in parts
            if isinstance(part, tuple)
            for place in part[2:]
        ]
        chance.shuffle(places)
        if places:
            expected = plain_rows(journals[0], places)
            for other in journals[1:]:
                for _ in range(2):  # The second time some know what they read before.
                    assert plain_rows(other, places) == expected


@BOUNDED
@given(batches, st.integers(0, 10))
def test_copies_of_a_log_in_every_journal_have_its_head(
    database: str, given_batches: Batches, cut: int
) -> None:
    clock = [1_000_000]
    with opened(clock, database) as sources, opened(clock, database) as targets:
        fill(sources, given_batches, clock)
        # Each target gets the events of another kind of journal.
        for source, target in zip(sources, [*targets[1:], targets[0]], strict=True):
            events = stored(source)
            target.import_exact(events[:cut])
            target.import_exact(events[cut:])
            assert target.head() == source.head()
            assert target.verify(source.head()) == []


@BOUNDED
@given(histories(), st.integers(0, 8))
def test_history_with_erased_events_keeps_its_chain_everywhere(
    database: str, history: History, every: int
) -> None:
    events = [
        erased(one) if every and one.envelope.seq % every == 0 else one for one in history.events
    ]
    with opened([0], database) as journals:
        for journal in journals:
            journal.import_exact(events)
        plain, *others = journals
        expected = [payload_digest(one.payload) for one in events]
        for other in others:
            assert other.head() == plain.head()
            assert list(other.envelopes(0, len(events))) == [one.envelope for one in events]
            payloads = other.payloads(range(1, len(events) + 1))
            assert [payload_digest(one) for one in payloads] == expected
            assert other.verify(plain.head()) == []


def erased(event: StoredEvent) -> StoredEvent:
    """The event after its bytes were erased."""
    if not isinstance(event.payload, Blob):
        return event
    return StoredEvent(event.envelope, Erased(payload_digest(event.payload)))
