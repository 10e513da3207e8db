"""A segment opened by its SEAL is the segment that was walked, or the damage has a name."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import Envelope, RowRun, Rows, StoredEvent, Stream
from fmemory_segments._columns import SegmentIndex
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    FrameDamage,
    FrameHeader,
    data_ok,
    frame_bytes,
    meta_ok,
    unpack_header,
)
from fmemory_segments._seal import (
    TRAILER_BYTES,
    Seal,
    SealBuilder,
    SealMeta,
    decode_seal,
    pack_seal,
    seal_end,
    unpack_trailer,
)
from fmemory_segments._stream_index import StreamIndex
from tests.segments.event_strategies import (
    FIRST_OFFSET,
    SALT,
    STREAMS,
    History,
    histories,
    make_rows,
    write_batches,
)

CHAIN = bytes(range(32))
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3)
EVERYTHING = (0, 1 << 60)


def sealed(events: list[StoredEvent], sizes: list[int]) -> tuple[SegmentIndex, int, bytes]:
    """The walked index, and where which bytes end the file."""
    _, frames = write_batches(events, sizes)
    builder = SealBuilder(1)
    offset, prev_frame_bytes = FIRST_OFFSET, 0
    for at, batch in frames:
        builder.add(at, batch)
        prev_frame_bytes = frame_bytes(batch.header)
        offset = at + prev_frame_bytes
    header, buffers = pack_seal(
        builder,
        CHAIN,
        synced_to=0,
        prev_frame_bytes=prev_frame_bytes,
        salt=SALT,
        offset=offset,
    )
    tail = b"".join(buffers)
    assert seal_end(header, offset) == offset + len(tail)
    return builder.index, offset, tail


def split(offset: int, tail: bytes) -> tuple[FrameHeader, bytes, bytes]:
    """The frame's header, meta and data, with right CRCs."""
    header = unpack_header(tail, SALT, offset)
    assert header is not None and header.is_supported
    meta = tail[FRAME_HEADER_BYTES : header.data_start]
    data = tail[header.data_start : frame_bytes(header)]
    assert meta_ok(header, meta, SALT, offset)
    assert data_ok(header, data, SALT, offset)
    return header, meta, data


def reopened(events: list[StoredEvent], sizes: list[int]) -> Seal:
    _, offset, tail = sealed(events, sizes)
    return decode_seal(*split(offset, tail))


@given(histories(), sizes)
def test_the_index_comes_back_column_by_column(history: History, sizes: list[int]) -> None:
    walked, offset, tail = sealed(history.events, sizes)
    seal = decode_seal(*split(offset, tail))
    assert seal.chain == CHAIN
    assert seal.time_ns == history.events[-1].envelope.recorded_at_ns
    for name in ("events", "slots", "frame_offsets"):
        assert np.array_equal(getattr(seal.index, name), getattr(walked, name))
    for name in ("base_seq", "last_seq", "streams", "embedding_ids"):
        assert getattr(seal.index, name) == getattr(walked, name)


@given(histories(), sizes, st.data())
def test_a_fold_gives_each_streams_events_in_order(
    history: History, sizes: list[int], data: st.DataObject
) -> None:
    after = data.draw(st.integers(0, len(history.events)))
    upto = data.draw(st.integers(after, len(history.events) + 1))
    stream = data.draw(st.none() | st.sampled_from(STREAMS))
    items = list(reopened(history.events, sizes).fold(after, upto, stream))
    chosen = [
        event
        for event in history.events
        if after < event.envelope.seq <= upto and stream in (None, event.envelope.stream)
    ]
    assert flattened(items) == expected_of(chosen)


Item = tuple[int, int, object]


def flattened(items: list[Envelope | RowRun]) -> dict[Stream, list[Item]]:
    """By stream: seq, revision, and envelope or rows of each event."""
    found: dict[Stream, list[Item]] = defaultdict(list)
    for item in items:
        if isinstance(item, Envelope):
            found[item.stream].append((item.seq, item.revision, item))
            continue
        rows: dict[int, list[object]] = defaultdict(list)
        for key, time, loc in zip(item.ids, item.timestamps, item.locs, strict=True):
            rows[int(loc) >> 16].append((key, float(time), int(loc) & 0xFFFF))
        assert (len(rows), min(rows), max(rows)) == (
            item.event_count,
            item.first_seq,
            item.last_seq,
        )
        for number, (seq, entries) in enumerate(rows.items()):
            found[item.stream].append((seq, item.first_revision + number, entries))
    return found


def expected_of(events: list[StoredEvent]) -> dict[Stream, list[Item]]:
    found: dict[Stream, list[Item]] = defaultdict(list)
    for event in events:
        envelope, payload = event.envelope, event.payload
        content: object = envelope
        if isinstance(payload, Rows):
            times = payload.timestamps.tolist()
            content = [(key, times[row], row) for row, key in enumerate(envelope.keys)]
        found[envelope.stream].append((envelope.seq, envelope.revision, content))
    return found


def test_puts_of_one_stream_are_one_run_across_other_streams_events() -> None:
    events = [
        StoredEvent(
            Envelope(seq, STREAMS[seq % 2], (seq + 1) // 2, "records_put", seq, keys=("a", "b")),
            make_rows(seq, 2),
        )
        for seq in range(1, 9)
    ]
    runs = list(reopened(events, [3]).fold(*EVERYTHING))
    assert [(run.first_seq, run.last_seq) for run in runs if isinstance(run, RowRun)] == [
        (1, 7),
        (2, 8),
    ]


@given(histories(), sizes)
def test_the_stream_index_comes_back(history: History, sizes: list[int]) -> None:
    seal = reopened(history.events, sizes)
    walked, opened = StreamIndex(), StreamIndex()
    for event in history.events:
        walked.apply_envelope(event.envelope)
    opened.apply_segment(seal.stream_infos(), seal.event_ids())
    assert opened.streams() == walked.streams()
    for event in history.events:
        key = event.envelope.event_id
        if key is not None:
            assert opened.find(event.envelope.stream, key) == event.envelope.seq


@given(histories(), sizes)
def test_envelopes_of_other_events_come_back_whole(history: History, sizes: list[int]) -> None:
    assert reopened(history.events, sizes).envelopes() == [
        event.envelope for event in history.events if not isinstance(event.payload, Rows)
    ]


def test_a_segment_without_events_can_be_sealed() -> None:
    header, buffers = pack_seal(
        SealBuilder(9, time_ns=77), CHAIN, synced_to=8, prev_frame_bytes=0, salt=SALT, offset=128
    )
    seal = decode_seal(*split(128, b"".join(buffers)))
    assert (header.first_seq, header.last_seq, header.time_ns) == (9, 8, 77)
    assert (seal.index.last_seq, seal.chain) == (8, CHAIN)
    assert [*seal.fold(*EVERYTHING), *seal.event_ids(), *seal.stream_infos()] == []


def test_the_trailer_names_the_seal() -> None:
    _, offset, tail = sealed([event()], [1])
    assert unpack_trailer(tail[-TRAILER_BYTES:], offset + len(tail)) == offset


def event() -> StoredEvent:
    envelope = Envelope(1, STREAMS[0], 1, "records_put", 5, event_id="x", keys=("a", "b"))
    return StoredEvent(envelope, make_rows(1, 2))


@given(st.binary(min_size=16, max_size=16))
def test_random_bytes_are_no_trailer(noise: bytes) -> None:
    assert unpack_trailer(noise, 1 << 20) is None


@pytest.mark.parametrize("file_bytes", [0, 16, 100])
def test_a_trailer_that_points_behind_the_file_is_none(file_bytes: int) -> None:
    _, _, tail = sealed([event()], [1])
    assert unpack_trailer(tail[-TRAILER_BYTES:], file_bytes) is None


def use(header: FrameHeader, meta: bytes, data: bytes) -> None:
    """Decode and ask for everything."""
    seal = decode_seal(header, meta, data)
    list(seal.fold(*EVERYTHING))
    list(seal.stream_infos())
    list(seal.event_ids())
    seal.index.freeze()
    for seq in range(seal.index.base_seq, seal.index.last_seq + 1):
        seal.index.blob(seq)
        if seal.index.has_rows(seq):
            seal.index.place(seq << 16)


@given(histories(max_events=5), st.data())
def test_changed_bytes_of_a_seal_are_damage_or_still_a_seal(
    history: History, data: st.DataObject
) -> None:
    _, offset, tail = sealed(history.events, [2])
    header, *regions = split(offset, tail)
    region = data.draw(st.sampled_from([0, 1]))
    for _ in range(data.draw(st.integers(1, 3))):
        changed = bytearray(regions[region])
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        regions[region] = bytes(changed)
    try:
        use(header, *regions)
    except FrameDamage as damage:
        assert damage.part == "content"


@pytest.mark.parametrize(
    "change",
    [
        {"layout": 2},
        {"event_count": 2},
        {"event_count": 1 << 60},
        {"frame_count": 0},
        {"slot_count": 1},
        {"row_count": 1},
        {"put_count": 0},
        {"streams": ()},
        {"streams": (STREAMS[0], STREAMS[0])},
        {"embedding_ids": ()},
        {"ids_bytes": 1},
        {"chain": b""},
    ],
)
def test_a_seal_that_contradicts_itself_is_damage(change: dict[str, object]) -> None:
    _, offset, tail = sealed([event()], [1])
    header, meta, data = split(offset, tail)
    content = msgspec.msgpack.decode(meta[: header.meta_bytes], type=SealMeta)
    packed = msgspec.msgpack.encode(msgspec.structs.replace(content, **change))
    with pytest.raises(FrameDamage):
        use(header._replace(meta_bytes=len(packed)), packed, data)


def test_any_flipped_bit_of_a_seal_is_noticed_by_its_checksums() -> None:
    _, offset, tail = sealed([event()], [1])
    frame = tail[:-TRAILER_BYTES]
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        header = unpack_header(flipped, SALT, offset)
        assert (
            header is None
            or not meta_ok(header, flipped[64 : header.data_start], SALT, offset)
            or not data_ok(header, flipped[header.data_start :], SALT, offset)
        )
