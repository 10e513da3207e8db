"""The JSON Lines journal holds what the journal in memory holds, erased events included.

Goal: a log copied to text and back is the same log. Method: Hypothesis draws batches of drafts for
both journals, and whole histories with erased payloads for an exact import. What would have to
break: a field that text leaves out, an order, a digest that depends on where an event is stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fmemory.journal import Journal, StoredEvent
from fmemory.journals import JsonlJournal, MemoryJournal
from fmemory.journals._jsonl.log import JsonlLog
from fmemory_segments import Blob, Erased, payload_digest
from tests.properties.test_journals_agree import (
    Batches,
    batches,
    fill,
    folded,
    plain_rows,
    stored,
)
from tests.segments.event_strategies import History, histories

BOUNDED = settings(max_examples=30, deadline=None, database=None, print_blob=True)


@contextmanager
def both(clock: list[int], *, file_bytes_max: int = 2_000) -> Iterator[list[Journal]]:
    """A new journal in memory and one of small files, under one clock."""
    with tempfile.TemporaryDirectory() as folder:
        log = JsonlLog.open(
            Path(folder) / "store",
            durability="os",
            file_bytes_max=file_bytes_max,
            clock=lambda: clock[0],
        )
        journals: list[Journal] = [MemoryJournal(clock=lambda: clock[0]), JsonlJournal(log)]
        yield journals
        for one in journals:
            one.close()


@BOUNDED
@given(batches)
def test_everything_read_from_memory_and_from_text_is_equal(given_batches: Batches) -> None:
    clock = [1_000_000]
    with both(clock) as journals:
        fill(journals, given_batches, clock)
        one, two = journals
        newest = one.refresh()
        assert list(one.envelopes(0, newest)) == list(two.envelopes(0, two.refresh()))
        assert folded(one) == folded(two)
        assert one.streams() == two.streams()
        places = [
            place
            for parts in folded(one).values()
            for part in parts
            if isinstance(part, tuple)
            for place in part[2:]
        ]
        for _ in range(2):  # The second time records are read without their lines.
            assert plain_rows(one, places[::-1]) == plain_rows(two, places[::-1])
        assert two.verify() == []


@BOUNDED
@given(batches, st.integers(0, 10))
def test_log_copied_to_text_and_back_has_the_head_of_its_source(
    given_batches: Batches, cut: int
) -> None:
    clock = [1_000_000]
    with both(clock) as sources, both(clock) as targets:
        fill(sources, given_batches, clock)
        for source, target in zip(sources, reversed(targets), strict=True):
            events = stored(source)
            target.import_exact(events[:cut])
            target.import_exact(events[cut:])
            assert target.head() == source.head()
            assert target.verify(source.head()) == []


@BOUNDED
@given(histories(), st.integers(0, 8))
def test_history_with_erased_events_keeps_its_chain_in_text(history: History, every: int) -> None:
    events = [
        erased(one) if every and one.envelope.seq % every == 0 else one for one in history.events
    ]
    with both([0]) as (plain, text):
        for journal in (plain, text):
            journal.import_exact(events)
        assert text.head() == plain.head()
        assert list(text.envelopes(0, len(events))) == [one.envelope for one in events]
        found = [payload_digest(one) for one in text.payloads(range(1, len(events) + 1))]
        assert found == [payload_digest(one.payload) for one in events]
        assert text.verify(plain.head()) == []


def erased(event: StoredEvent) -> StoredEvent:
    """The event after its bytes were erased."""
    if not isinstance(event.payload, Blob):
        return event
    return StoredEvent(event.envelope, Erased(payload_digest(event.payload)))
