"""What a log gives back is what was appended, however it is read and however often reopened."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmemory_segments import (
    Envelope,
    Head,
    Log,
    LogReason,
    Payload,
    RowRun,
    Rows,
    StoredEvent,
    Stream,
)
from fmemory_segments.errors import (
    InvalidDraft,
)
from tests.segments.event_strategies import (
    History,
    chain_of,
    histories,
    same_payload,
)
from tests.segments.log_tools import (
    WatchedFileSystem,
    small_store,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "store") as opened:
        yield opened


@given(histories(max_events=16), st.lists(st.integers(1, 4), min_size=1), st.integers(300, 4_000))
@settings(max_examples=40)
def test_any_history_is_given_back_whole(
    tmp_path_factory: pytest.TempPathFactory,
    history: History,
    sizes: list[int],
    segment_bytes_max: int,
) -> None:
    path = tmp_path_factory.mktemp("history")
    fs = WatchedFileSystem()  # Its syncs do nothing, so that many examples take little time.
    with Log.open(path, fs=fs, segment_bytes_max=segment_bytes_max) as log:
        for low, high in pairwise(_cuts(len(history.events), sizes)):
            log.import_exact(history.events[low:high])
        check_history(log, history.events)
    with Log.open(path, fs=fs, read_only=True) as log:
        check_history(log, history.events)
        assert not log.verify(log.head())


def _cuts(count: int, sizes: list[int]) -> list[int]:
    cuts = [0, *accumulate(sizes * count)]
    return [*[cut for cut in cuts if cut < count], count]


def check_history(log: Log, events: list[StoredEvent]) -> None:
    """The log holds exactly these events, by every way of reading."""
    head = log.refresh()
    assert head == len(events)
    envelopes = [event.envelope for event in events]
    assert list(log.envelopes(0, head)) == envelopes
    assert list(log.envelopes(0, head, backwards=True)) == envelopes[::-1]
    for event, payload in zip(events, log.payloads(range(1, head + 1)), strict=True):
        assert same_payload(event.payload, payload)
    for upto in range(head + 1):
        assert log.head(upto) == Head(upto, chain_of(events[:upto]))
    check_fold(list(log.fold(0, head)), events)
    middle = head // 2
    check_fold(list(log.fold(middle, head)), events[middle:])
    for stream in {envelope.stream for envelope in envelopes}:
        check_fold(
            list(log.fold(0, head, stream)),
            [event for event in events if event.envelope.stream == stream],
        )
    check_rows(log, events)


def check_fold(found: list[Envelope | RowRun], events: list[StoredEvent]) -> None:
    """Each stream's events in order: puts as runs, the others as they are."""
    flat: dict[Stream, list[object]] = {}
    for item in found:
        if isinstance(item, Envelope):
            flat.setdefault(item.stream, []).append(item)
            continue
        rows = zip(item.ids, item.timestamps.tolist(), item.locs.tolist(), strict=True)
        flat.setdefault(item.stream, []).extend(rows)
        assert len({loc >> 16 for loc in item.locs.tolist()}) == item.event_count
    expected: dict[Stream, list[object]] = {}
    for event in events:
        envelope, payload = event.envelope, event.payload
        into = expected.setdefault(envelope.stream, [])
        if not isinstance(payload, Rows):
            into.append(envelope)
            continue
        for row, (key, time) in enumerate(
            zip(envelope.keys, payload.timestamps.tolist(), strict=True)
        ):
            into.append((key, time, envelope.seq << 16 | row))
    assert flat == expected


def check_rows(log: Log, events: list[StoredEvent]) -> None:
    """All rows, in write order, backwards and alone."""
    wanted: list[tuple[int, bytes, str, bytes, str | None]] = []
    for event in events:
        payload: Payload = event.payload
        if isinstance(payload, Rows):
            offsets = payload.note_offsets.tolist()
            for row, vector in enumerate(payload.vectors):
                note = payload.notes[offsets[row] : offsets[row + 1]]
                loc = event.envelope.seq << 16 | row
                shape = f"{vector.dtype.str}{len(vector)}"
                embedding_id = payload.embedding_ids[row]
                wanted.append((loc, note, shape, vector.tobytes(), embedding_id))
    for chosen in (wanted, wanted[::-1], wanted[:1], wanted * 3):
        page = log.rows(np.array([row[0] for row in chosen], np.uint64))
        assert bytes(page.notes).endswith(b"".join(row[1] for row in chosen))
        found = [
            (f"{block.dtype.str}{block.shape[1]}", vector.tobytes())
            for block in page.blocks
            for vector in block
        ]
        assert found == [(row[2], row[3]) for row in chosen]
        assert page.embedding_ids == [row[4] for row in chosen]
        alone = log.rows(np.array([row[0] for row in chosen], np.uint64), notes=False)
        assert [block.tobytes() for block in alone.blocks] == [
            block.tobytes() for block in page.blocks
        ]
        assert alone.notes == b""


def test_import_that_does_not_follow_the_head_is_refused(log: Log, tmp_path: Path) -> None:
    small_store(tmp_path / "source")
    with Log.open(tmp_path / "source") as source:
        events = [
            StoredEvent(envelope, payload)
            for envelope, payload in zip(
                source.envelopes(0, 99),
                source.payloads(range(1, source.refresh() + 1)),
                strict=True,
            )
        ]
    with pytest.raises(InvalidDraft) as caught:
        log.import_exact(events[1:])
    assert caught.value.reason is LogReason.NOT_NEXT
    assert log.import_exact([]) is None
    log.import_exact(events)
    assert log.refresh() == len(events)
