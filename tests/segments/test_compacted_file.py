"""A compacted segment answers every question as the events with their erasure would.

Goal: nothing but what was named is missing from a compacted store, and of that everything. Method:
random histories and erasures are written as one or two compacted files, with frames of one row, of
a few and of all; every way to read is compared with the events as they were given.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import (
    Blob,
    Log,
    RowRun,
    Rows,
    Stream,
    payload_digest,
)
from fmemory_segments._stream_index import StreamIndex
from fmemory_segments.errors import LogReason, RowErased
from tests.segments.compacted_tools import (
    compacted_store,
    erased,
    erasure_of,
    events_of,
)
from tests.segments.event_strategies import (
    STREAMS,
    History,
    chain_of,
    histories,
    same_payload,
)
from tests.segments.test_seal import expected_of, flattened

targets = st.sampled_from([1, 300, 4 << 20])
PUT = "records_put"


@contextmanager
def compacted(history: History, target: int = 4 << 20, cut: int = 0) -> Iterator[Log]:
    """A log of compacted segments that hold a history with its erasure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        compacted_store(
            path,
            history.events,
            erasure_of(history),
            [cut] if 1 < cut <= len(history.events) else [],
            ledger_bytes_target=target,
            block_bytes_target=target,
        )
        with Log.open(path, read_only=True) as log:
            yield log


def living(history: History) -> dict[int, tuple[bytes, list[float], str, str | None]]:
    """Note, vector, dtype and embedding id of each row that is alive, by loc."""
    dead = set(history.erased_locs)
    found = {}
    for event in history.events:
        rows = event.payload
        if not isinstance(rows, Rows):
            continue
        offsets = rows.note_offsets.tolist()
        for row in range(len(rows)):
            if (loc := event.envelope.seq << 16 | row) not in dead:
                found[loc] = (
                    rows.notes[offsets[row] : offsets[row + 1]],
                    rows.vectors[row].tolist(),
                    rows.vectors.dtype.str,
                    rows.embedding_ids[row],
                )
    return found


@given(histories(), targets, st.integers(1, 12))
def test_events_come_back_with_their_erasure(history: History, target: int, cut: int) -> None:
    expected = erased(history.events, erasure_of(history))
    with compacted(history, target, cut) as log:
        for found, wanted in zip(events_of(log), expected, strict=True):
            assert found.envelope == wanted.envelope
            assert same_payload(found.payload, wanted.payload)


@given(histories(), targets, st.integers(1, 12))
def test_the_chain_is_the_same_at_every_seq(history: History, target: int, cut: int) -> None:
    with compacted(history, target, cut) as log:
        for seq in range(len(history.events) + 1):
            assert log.head(seq).chain == chain_of(history.events[:seq])
        assert log.verify(log.head()) == []


@given(histories(), targets, st.data())
def test_a_fold_gives_erased_rows_too(history: History, target: int, data: st.DataObject) -> None:
    after = data.draw(st.integers(0, len(history.events)))
    upto = data.draw(st.integers(after, len(history.events)))
    stream = data.draw(st.none() | st.sampled_from(STREAMS))
    chosen = [
        event
        for event in history.events
        if after < event.envelope.seq <= upto and stream in (None, event.envelope.stream)
    ]
    with compacted(history, target) as log:
        assert flattened(list(log.fold(after, upto, stream))) == expected_of(chosen)


@given(histories(), targets, st.booleans(), st.data())
def test_envelopes_come_in_both_directions(
    history: History, target: int, backwards: bool, data: st.DataObject
) -> None:
    stream = data.draw(st.none() | st.sampled_from(STREAMS))
    expected = [e.envelope for e in history.events if stream in (None, e.envelope.stream)]
    if backwards:
        expected.reverse()
    limit = data.draw(st.none() | st.integers(0, 5))
    with compacted(history, target) as log:
        found = log.envelopes(0, 1 << 40, stream=stream, backwards=backwards, limit=limit)
        assert list(found) == expected[:limit]


@given(histories(), targets, st.integers(1, 12))
def test_single_rows_are_read_and_erased_ones_refused(
    history: History, target: int, cut: int
) -> None:
    with compacted(history, target, cut) as log:
        for loc, wanted in living(history).items():
            note, vector, embedding_id = log.row(loc)
            assert (note, vector.tolist(), vector.dtype.str, embedding_id) == wanted
        for loc in history.erased_locs:
            with pytest.raises(RowErased) as raised:
                log.row(loc)
            assert (raised.value.reason, raised.value.first_seq) == (LogReason.ERASED, loc >> 16)


@given(histories(max_events=30), targets, st.integers(1, 12), st.data())
def test_pages_of_any_rows_in_any_order(
    history: History, target: int, cut: int, data: st.DataObject
) -> None:
    rows = living(history)
    if not rows:
        return
    locs = data.draw(st.lists(st.sampled_from(sorted(rows)), min_size=1, max_size=40))
    if data.draw(st.booleans()):
        locs.sort()
    with compacted(history, target, cut) as log:
        for _ in range(2):  # The second page meets frames that were checked.
            page = log.rows(np.array(locs, np.uint64))
            vectors = [(row.tolist(), row.dtype.str) for block in page.blocks for row in block]
            assert vectors == [rows[loc][1:3] for loc in locs]
            assert page.embedding_ids == [rows[loc][3] for loc in locs]
            assert bytes(page.notes).endswith(b"".join(rows[loc][0] for loc in locs))


@given(histories(max_events=30), targets)
def test_a_page_with_an_erased_row_is_refused(history: History, target: int) -> None:
    rows = sorted(living(history))[:20]
    with compacted(history, target) as log:
        for loc in history.erased_locs[:3]:
            for page in ([loc], [*rows, loc], [loc, *rows, *rows]):
                with pytest.raises(RowErased):
                    log.rows(np.array(page, np.uint64))


@given(histories(), targets, st.integers(1, 12), st.data())
def test_erased_events_are_named_with_their_rows(
    history: History, target: int, cut: int, data: st.DataObject
) -> None:
    after = data.draw(st.integers(0, len(history.events)))
    upto = data.draw(st.integers(after, len(history.events)))
    stream = data.draw(st.none() | st.sampled_from(STREAMS))
    with compacted(history, target, cut) as log:
        found = list(log.erased(after, upto, stream))
        chosen = [event.seq for event in found]
        whole = {event.seq: event.rows for event in log.erased(0, 1 << 40)}
    events = {event.envelope.seq: event for event in history.events}
    wanted = sorted({loc >> 16 for loc in history.erased_locs} | set(history.erased_seqs))
    assert sorted(whole) == wanted
    assert chosen == [
        seq
        for seq in wanted
        if after < seq <= upto and stream in (None, events[seq].envelope.stream)
    ]
    for seq, rows in whole.items():
        payload = events[seq].payload
        if isinstance(payload, Rows):
            flags = [seq << 16 | row in history.erased_locs for row in range(len(payload))]
            assert rows is not None and rows.tolist() == flags
        else:
            assert rows is None


@given(histories(), targets, st.integers(1, 12))
def test_streams_and_event_ids_come_back(history: History, target: int, cut: int) -> None:
    walked = StreamIndex()
    for event in history.events:
        walked.apply_envelope(event.envelope)
    with compacted(history, target, cut) as log:
        assert log.streams() == walked.streams()
        for event in history.events:
            if (key := event.envelope.event_id) is not None:
                assert log.find(event.envelope.stream, key) == event.envelope.seq


@given(histories(), targets)
def test_usage_counts_what_is_left(history: History, target: int) -> None:
    with compacted(history, target) as log:
        usage = {
            (one.stream, one.type): (one.event_count, one.payload_bytes) for one in log.usage()
        }
    wanted: dict[tuple[Stream, str], tuple[int, int]] = {}
    rows = living(history)
    for event in history.events:
        envelope, payload = event.envelope, event.payload
        size = 0
        if isinstance(payload, Blob) and envelope.seq not in history.erased_seqs:
            size = 16 + len(payload.data) + 7 & -8
        elif isinstance(payload, Rows):
            for row in range(len(payload)):
                if found := rows.get(envelope.seq << 16 | row):
                    size += 16 + len(found[0]) + len(found[1]) * payload.vectors.itemsize
        name = (envelope.stream, envelope.type)
        count, before = wanted.get(name, (0, 0))
        wanted[name] = (count + 1, before + size)
    assert usage == wanted


@given(histories(), targets)
def test_nothing_is_left_of_a_store_whose_rows_are_all_erased(
    history: History, target: int
) -> None:
    locs = [
        event.envelope.seq << 16 | row
        for event in history.events
        if isinstance(event.payload, Rows)
        for row in range(len(event.payload))
    ]
    with compacted(dataclasses.replace(history, erased_locs=locs), target) as log:
        assert log.head().chain == chain_of(history.events)
        assert [run.locs.tolist() for run in log.fold(0, 99) if isinstance(run, RowRun)] or not locs
        for event, found in zip(history.events, events_of(log), strict=True):
            if isinstance(event.payload, Rows):
                assert isinstance(found.payload, Rows)
                assert found.payload.erased is not None and found.payload.erased.all()
                assert payload_digest(found.payload) == payload_digest(event.payload)
