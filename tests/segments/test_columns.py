"""The index of a segment: every place it names is where the bytes are."""

from __future__ import annotations

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import Blob, Envelope, Erased, Rows, StoredEvent
from fmemory_segments._columns import SegmentIndex
from tests.segments.event_strategies import (
    FIRST_OFFSET,
    STREAMS,
    History,
    histories,
    make_rows,
    write_batches,
)

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def index_of(history: History, sizes: list[int]) -> tuple[SegmentIndex, bytes]:
    """The index of the history's batches, and the file."""
    written, frames = write_batches(history.events, sizes)
    index = SegmentIndex(1)
    for offset, batch in frames:
        index.append_frame(offset, batch)
    return index, bytes(FIRST_OFFSET) + written


def locs_of(event: StoredEvent) -> list[int]:
    if not isinstance(event.payload, Rows):
        return []
    return [event.envelope.seq << 16 | row for row in range(len(event.payload))]


def puts(count: int, rows: int = 1) -> History:
    return History(
        [
            StoredEvent(
                Envelope(seq, STREAMS[0], seq, "records_put", seq, keys=("k",) * rows),
                make_rows(seq, rows),
            )
            for seq in range(1, count + 1)
        ],
        [],
        [],
    )


@given(histories(), sizes)
def test_every_row_is_where_its_place_says(history: History, sizes: list[int]) -> None:
    index, file = index_of(history, sizes)
    for event in history.events:
        rows = event.payload
        for row, loc in enumerate(locs_of(event)):
            assert isinstance(rows, Rows)
            place = index.place(loc)
            note = file[place.note_offset : place.note_offset + place.note_bytes]
            start, end = rows.note_offsets[row : row + 2].tolist()
            assert note == rows.notes[start:end]
            vector = np.frombuffer(file, rows.vectors.dtype, place.dim, place.vector_offset)
            assert vector.tobytes() == rows.vectors[row].tobytes()
            assert place.crc == crc32c(note + vector.tobytes())
            assert place.embedding_id == rows.embedding_ids[row]
            assert index.frame_offset(place.frame) <= place.note_offset


@given(histories(), sizes, st.randoms())
def test_many_places_at_once_equal_single_ones(
    history: History, sizes: list[int], random: st.DataObject
) -> None:
    index, _ = index_of(history, sizes)
    locs = [loc for event in history.events for loc in locs_of(event)]
    random.shuffle(locs)  # type: ignore[attr-defined]
    places = index.places(np.array(locs, np.uint64))
    for number, loc in enumerate(locs):
        place = index.place(loc)
        shape = int(places.shapes[number])
        assert (shape >> 2, shape & 3) == (place.dim, place.dtype)
        assert index.embedding_ids[places.embeddings[number]] == place.embedding_id
        assert places.vector_bytes[number] == place.dim * (4 if place.dtype == 1 else 8)
        of_row = (place.frame, place.note_offset, place.note_bytes, place.vector_offset)
        assert tuple(int(column[number]) for column in places[:4]) == of_row
        assert int(places.crcs[number]) == place.crc


@given(histories(), sizes)
def test_every_payload_of_bytes_is_where_its_place_says(history: History, sizes: list[int]) -> None:
    index, file = index_of(history, sizes)
    for event in history.events:
        blob = index.blob(event.envelope.seq)
        assert index.has_rows(event.envelope.seq) == isinstance(event.payload, Rows)
        assert (blob is not None) == isinstance(event.payload, Blob)
        if blob is not None and isinstance(event.payload, Blob):
            whole = file[blob.offset : blob.offset + 16 + blob.length]
            assert whole == event.payload.nonce + event.payload.data
            assert crc32c(whole) == blob.crc


@given(histories(), sizes)
def test_seqs_of_a_stream_are_its_events(history: History, sizes: list[int]) -> None:
    index, _ = index_of(history, sizes)
    for stream in (*STREAMS, ("unknown",)):
        expected = [e.envelope.seq for e in history.events if e.envelope.stream == stream]
        assert index.seqs_of(stream, index.base_seq, index.last_seq).tolist() == expected
        some = range(index.base_seq + 1, index.last_seq)
        found = index.seqs_of(stream, some.start, some.stop - 1).tolist()
        assert found == [seq for seq in expected if seq in some]
        assert index.has_stream(stream) == bool(expected)


@given(histories(), sizes)
def test_frames_are_named_by_number_and_offset(history: History, sizes: list[int]) -> None:
    _, frames = write_batches(history.events, sizes)
    index, _ = index_of(history, sizes)
    assert index.frame_offsets.tolist() == [offset for offset, _ in frames]
    for offset, batch in frames:
        for seq in (batch.header.first_seq, batch.header.last_seq):
            assert index.frame_offset(index.frame_of(seq)) == offset


def test_places_stay_right_while_the_index_grows_and_after_it_was_frozen() -> None:
    history = puts(300)
    index, _ = index_of(history, [1])
    early = SegmentIndex(1)
    found = []
    for offset, batch in write_batches(history.events, [1])[1]:
        early.append_frame(offset, batch)
        found.append(early.place(early.last_seq << 16))
    index.freeze()
    assert [index.place(seq << 16) for seq in range(1, 301)] == found
    assert index.size_bytes == 300 * 41 + 20


def test_a_frozen_index_can_grow_again() -> None:
    _, frames = write_batches(puts(3, 2).events, [1])
    index = SegmentIndex(1)
    for offset, batch in frames:
        index.append_frame(offset, batch)
        index.freeze()
    assert index.places(np.array([3 << 16 | 1], np.uint64)).note_offsets[0] > frames[2][0]


@pytest.mark.parametrize("loc", [0, 1 << 16 | 2, 3 << 16, 2 << 16, 1 << 63])
def test_a_loc_without_row_is_a_key_error(loc: int) -> None:
    note = StoredEvent(Envelope(2, STREAMS[3], 1, "note.taken", 2), Blob(b"", bytes(16)))
    index, _ = index_of(History([*puts(1, 2).events, note], [], []), [1])
    with pytest.raises(KeyError):
        index.place(loc)
    with pytest.raises(KeyError):
        index.places(np.array([1 << 16, loc], np.uint64))


@pytest.mark.parametrize("seq", [0, 4, -1])
def test_a_seq_of_another_segment_is_a_key_error(seq: int) -> None:
    index, _ = index_of(puts(3), [1])
    with pytest.raises(KeyError):
        index.frame_of(seq)


def test_an_erased_payload_has_no_place() -> None:
    event = StoredEvent(Envelope(1, STREAMS[3], 1, "note.taken", 2), Erased(bytes(32)))
    index, _ = index_of(History([event], [], []), [1])
    assert index.blob(1) is None
    assert not index.has_rows(1)


def test_places_of_no_locs_are_empty() -> None:
    places = SegmentIndex(1).places(np.zeros(0, np.uint64))
    assert [len(column) for column in places] == [0] * 8


@pytest.mark.parametrize("last_seq", [0, 1, 3, 4, 9])
def test_a_truncated_index_continues_where_it_was_cut(last_seq: int) -> None:
    _, frames = write_batches(puts(4, 2).events, [1])
    index, _ = index_of(puts(4, 2), [1])
    expected = [index.place(seq << 16 | 1) for seq in range(1, 5)]
    index.truncate(last_seq)
    assert index.last_seq == min(last_seq, 4)
    with pytest.raises(KeyError):
        index.place((index.last_seq + 1) << 16)
    for offset, batch in frames[index.frame_count :]:
        index.append_frame(offset, batch)
    assert [index.place(seq << 16 | 1) for seq in range(1, 5)] == expected


def test_embedding_ids_are_numbered_across_events() -> None:
    events = [
        StoredEvent(
            Envelope(seq, STREAMS[0], seq, "records_put", seq, keys=("a", "b")),
            make_rows(seq, 2, embedding_ids=(name,)),
        )
        for seq, name in enumerate(("m", None, "m", "n"), 1)
    ]
    index, _ = index_of(History(events, [], []), [1])
    assert index.embedding_ids == ["m", None, "n"]
    assert [index.place(seq << 16).embedding_id for seq in (1, 2, 3, 4)] == ["m", None, "m", "n"]
