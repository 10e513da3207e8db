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

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fmemory.journal import Blob, Draft, Envelope, Journal, Rows, StoredEvent, Txn
from fmemory.journals import MemoryJournal, SegmentJournal
from fmemory.journals._sqlite import SqliteTable
from fmemory.journals._tables.journal import TableJournal
from fmemory_segments import Log

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


@contextmanager
def opened(clock: list[int]) -> Iterator[list[Journal]]:
    """A new journal of each kind, under one clock."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        journals: list[Journal] = [
            MemoryJournal(clock=lambda: clock[0]),
            SegmentJournal(Log.open(place / "s", durability="os", clock=lambda: clock[0])),
            TableJournal(SqliteTable(place / "s.db", durability="os"), clock=lambda: clock[0]),
        ]
        yield journals
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
def test_everything_read_from_the_journals_is_equal(given_batches: Batches) -> None:
    clock = [1_000_000]
    with opened(clock) as journals:
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
def test_rows_read_from_the_journals_are_equal(given_batches: Batches, chance: Random) -> None:
    clock = [1_000_000]
    with opened(clock) as journals:
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
            assert [plain_rows(other, places) for other in journals[1:]] == [expected] * (
                len(journals) - 1
            )


@BOUNDED
@given(batches, st.integers(0, 10))
def test_copies_of_a_log_in_every_journal_have_its_head(given_batches: Batches, cut: int) -> None:
    clock = [1_000_000]
    with opened(clock) as sources, opened(clock) as targets:
        fill(sources, given_batches, clock)
        # Each target gets the events of another kind of journal.
        for source, target in zip(sources, [*targets[1:], targets[0]], strict=True):
            events = stored(source)
            target.import_exact(events[:cut])
            target.import_exact(events[cut:])
            assert target.head() == source.head()
            assert target.verify(source.head()) == []
