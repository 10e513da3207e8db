"""LEDGER and BLOCK say what the batches said.

Goal: compaction may free what is dead and must change nothing else. Method: histories of puts,
deletes, clears and session events are folded into LEDGER and BLOCK frames, packed to bytes, read
back, and compared event by event, loc by loc and by chain value. A wrong order, a lost or doubled
row, a digest over other bytes or a loc that moved would break it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import (
    Blob,
    Envelope,
    Erased,
    Rows,
    StoredEvent,
    event_digest,
    payload_digest,
    row_digests,
)
from fmemory_segments._batch import BatchMeta, decode_meta, decode_payload, payload_extent
from fmemory_segments._block import Block, BlockMeta, decode_block, decode_block_meta
from fmemory_segments._compacted import FrameContent, pack_content
from fmemory_segments._compacted_seal import CompactedSealBuilder
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    FrameDamage,
    FrameHeader,
    FrameKind,
    data_ok,
    frame_bytes,
    meta_ok,
    unpack_header,
)
from fmemory_segments.compaction import Erasure
from tests.segments.compacted_tools import NOTHING, erasure_of, fold_frames, unfold_frames
from tests.segments.event_strategies import (
    FIRST_OFFSET,
    SALT,
    History,
    chain_of,
    histories,
    make_rows,
    same_payload,
    write_batches,
)


class Compacted:
    """Frames as they come back from a file."""

    def __init__(self, contents: Sequence[FrameContent]) -> None:
        self.ledgers: list[tuple[BatchMeta, bytes]] = []
        self.blocks: list[Block] = []
        self.frames: list[tuple[int, FrameHeader, BatchMeta | BlockMeta]] = []
        offset, prev_frame_bytes = FIRST_OFFSET, 0
        for content in contents:
            header, buffers = pack_content(
                content,
                synced_to=0,
                prev_frame_bytes=prev_frame_bytes,
                salt=SALT,
                offset=offset,
            )
            prev_frame_bytes = self._read(b"".join(buffers), offset)
            assert self.headers[-1] == header
            offset += prev_frame_bytes

    @property
    def headers(self) -> list[FrameHeader]:
        return [header for _, header, _ in self.frames]

    def _read(self, packed: bytes, offset: int) -> int:
        header = unpack_header(packed, SALT, offset)
        assert header is not None and header.is_supported and header.ends_batch
        meta = packed[FRAME_HEADER_BYTES : header.data_start]
        data = packed[header.data_start : frame_bytes(header)]
        assert meta_ok(header, meta, SALT, offset)
        assert data_ok(header, data, SALT, offset)
        if header.kind == FrameKind.LEDGER:
            batch = decode_meta(meta, header)
            self.ledgers.append((batch, data))
            self.frames.append((offset, header, batch))
        else:
            self.blocks.append(decode_block(header, meta, data))
            self.frames.append((offset, header, decode_block_meta(header, meta)))
        return frame_bytes(header)

    def events(self) -> list[StoredEvent]:
        return unfold_frames(self.ledgers, self.blocks)

    def locs(self) -> list[int]:
        return sorted(loc for block in self.blocks for loc in block.locs.tolist())


def fold(history: History, target: int = 4 << 20) -> Compacted:
    return Compacted(fold_frames(history.events, erasure_of(history), target))


def locs_of(events: Sequence[StoredEvent]) -> list[int]:
    return [
        event.envelope.seq << 16 | row
        for event in events
        if isinstance(event.payload, Rows)
        for row in range(len(event.payload))
    ]


def two_batches() -> History:
    """Two puts of one stream with interleaved timestamps, a session event between, a deletion."""
    first = msgspec.structs.replace(make_rows(1, 3), timestamps=np.array([10.0, 30.0, 20.0]))
    second = msgspec.structs.replace(make_rows(2, 2), timestamps=np.array([15.0, 30.0]))
    note = Blob(b"between", bytes(range(16)))
    stream = ("records", "user1")
    puts = "records_put"
    return History(
        [
            StoredEvent(Envelope(1, stream, 1, puts, 100, keys=("a", "b", "c"), count=3), first),
            StoredEvent(Envelope(2, ("session", "s"), 1, "note.taken", 101, actor="me"), note),
            StoredEvent(Envelope(3, stream, 2, puts, 102, keys=("d", "e"), count=2), second),
            StoredEvent(
                Envelope(4, stream, 3, "records_deleted", 103, keys=("b",), count=1),
                Blob(b"", bytes(16)),
            ),
        ],
        erased_locs=[1 << 16 | 1],
        erased_seqs=[],
    )


def read_batches(history: History) -> History:
    """The same events after a way through BATCH frames."""
    packed, frames = write_batches(history.events, [2, 2])
    events = []
    for offset, batch in frames:
        start = offset - FIRST_OFFSET + batch.header.data_start
        for number, event in enumerate(batch.events):
            at, size = payload_extent(event)
            payload = decode_payload(event, packed[start + at : start + at + size])
            events.append(StoredEvent(batch.envelope(number), payload))
    return dataclasses.replace(history, events=events)


def test_two_batches_with_a_dead_row_keep_chain_events_and_locs() -> None:
    history = two_batches()
    compacted = fold(read_batches(history))
    events = compacted.events()
    assert [block.locs.tolist() for block in compacted.blocks] == [
        [1 << 16, 3 << 16, 1 << 16 | 2, 3 << 16 | 1]
    ]
    assert [event.envelope for event in events] == [event.envelope for event in history.events]
    assert chain_of(events) == chain_of(history.events)
    assert same_payload(events[1].payload, history.events[1].payload)
    assert same_payload(events[2].payload, history.events[2].payload)


def test_a_dead_row_is_shown_as_erased_and_keeps_its_digest() -> None:
    history = two_batches()
    before, after = history.events[0].payload, fold(history).events()[0].payload
    assert isinstance(before, Rows) and isinstance(after, Rows)
    assert after.erased is not None and after.erased.tolist() == [False, True, False]
    assert after.timestamps.tolist() == before.timestamps.tolist()
    assert after.digests is not None
    assert after.digests[1].tobytes() == row_digests(before)[1].tobytes()
    start, end = before.note_offsets[1:3].tolist()
    assert after.notes == before.notes[:start] + before.notes[end:]
    assert not after.vectors[1].any()
    assert after.nonces[16:32] == bytes(16)


@given(histories(), st.sampled_from([1, 200, 4 << 20]))
def test_compaction_keeps_chain_envelopes_and_locs(history: History, target: int) -> None:
    compacted = fold(history, target)
    events = compacted.events()
    assert [event.envelope for event in events] == [event.envelope for event in history.events]
    assert chain_of(events) == chain_of(history.events)
    assert compacted.locs() == sorted(set(locs_of(history.events)) - set(history.erased_locs))


@given(histories(), st.sampled_from([1, 200, 4 << 20]))
def test_compaction_keeps_every_payload_but_the_erased(history: History, target: int) -> None:
    for event, before in zip(fold(history, target).events(), history.events, strict=True):
        if event.envelope.seq in history.erased_seqs:
            assert event.payload == Erased(payload_digest(before.payload))
        elif not isinstance(before.payload, Rows):
            assert event.payload == before.payload
        else:
            assert isinstance(event.payload, Rows)
            assert same_rows_alive(event.payload, before.payload)


def same_rows_alive(after: Rows, before: Rows) -> bool:
    dead = np.zeros(len(before), np.bool_) if after.erased is None else after.erased
    return after.timestamps.tobytes() == before.timestamps.tobytes() and all(
        dead[row] or row_at(after, row) == row_at(before, row) for row in range(len(before))
    )


def row_at(rows: Rows, row: int) -> tuple[object, ...]:
    start, end = rows.note_offsets[row : row + 2].tolist()
    return (
        rows.notes[start:end],
        rows.nonces[16 * row : 16 * row + 16],
        rows.embedding_ids[row],
        rows.vectors.dtype,
        rows.vectors[row].tolist(),
    )


@given(histories())
def test_nothing_of_a_dead_row_is_left_in_the_frames(history: History) -> None:
    everything = dataclasses.replace(history, erased_locs=locs_of(history.events))
    contents = fold_frames(everything.events, erasure_of(everything))
    assert all(content.kind == FrameKind.LEDGER for content in contents)
    assert Compacted(contents).locs() == []
    assert chain_of(Compacted(contents).events()) == chain_of(history.events)


@given(histories(), st.data())
def test_a_second_compaction_adds_to_the_first(history: History, data: st.DataObject) -> None:
    early = data.draw(st.sets(st.sampled_from(history.erased_locs or [0])))
    once = fold(dataclasses.replace(history, erased_locs=sorted(early), erased_seqs=[]))
    twice = fold(dataclasses.replace(history, events=once.events()))
    assert twice.headers == fold(history).headers


@given(histories())
def test_blocks_are_sorted_and_of_one_stream_and_shape(history: History) -> None:
    events = {event.envelope.seq: event for event in history.events}
    seen = set()
    for block in fold(history).blocks:
        order = []
        for loc in block.locs.tolist():
            event = events[loc >> 16]
            assert isinstance(event.payload, Rows)
            assert event.envelope.stream == block.stream
            assert event.payload.vectors.dtype == block.vectors.dtype
            order.append((float(event.payload.timestamps[loc & 0xFFFF]), loc))
        assert order == sorted(order)
        seen.add((block.stream, block.vectors.dtype, block.vectors.shape[1]))
    assert len(seen) == len(fold(history).blocks)


@given(histories())
def test_ledgers_cover_every_event_in_order(history: History) -> None:
    compacted = fold(history, 200)
    next_seq, before_ns = 1, 0
    for batch, _ in compacted.ledgers:
        assert batch.header.first_seq == next_seq
        assert batch.header.time_ns == history.events[next_seq - 1].envelope.recorded_at_ns
        assert batch.header.time_ns >= before_ns
        next_seq, before_ns = batch.header.last_seq + 1, batch.header.time_ns
    assert next_seq == len(history.events) + 1


def simple(count: int = 3) -> Compacted:
    envelope = Envelope(1, ("records",), 1, "records_put", 5, keys=tuple("abcdefgh"[:count]))
    return Compacted(fold_frames([StoredEvent(envelope, make_rows(4, count))], NOTHING))


def locs(block: BlockMeta, *rows: int) -> BlockMeta:
    """The same rows under other locs."""
    return msgspec.structs.replace(block, locs=np.array(rows, "<u8").tobytes())


@pytest.mark.parametrize(
    ("change", "misplaced", "missing"),
    [
        (lambda _: [], [], [0, 1, 2]),
        (lambda block: [block, block], [0, 1, 2], []),
        (lambda block: [locs(block, 1 << 16, 1 << 16 | 1, 1 << 16 | 1)], [1], [2]),
        (lambda block: [locs(block, 1 << 16, 1 << 16 | 1, 1 << 16 | 3)], [3], [2]),
        (lambda block: [locs(block, 1 << 16, 1 << 16 | 1, 2 << 16)], [1 << 16], [2]),
        (lambda block: [locs(block, 0, 1 << 16 | 1, 1 << 16 | 2)], [-1 << 16], [0]),
        (
            lambda block: [msgspec.structs.replace(block, stream=("records", "other"))],
            [0, 1, 2],
            [0, 1, 2],
        ),
        (lambda block: [msgspec.structs.replace(block, dtype=1)], [0, 1, 2], [0, 1, 2]),
    ],
)
def test_rows_that_are_in_no_block_or_two_or_elsewhere_are_named(
    change: Callable[[BlockMeta], list[BlockMeta]], misplaced: list[int], missing: list[int]
) -> None:
    (ledger_at, _, batch), (at, header, block) = simple().frames
    assert isinstance(batch, BatchMeta) and isinstance(block, BlockMeta)
    builder = CompactedSealBuilder(1)
    builder.add(ledger_at, batch)
    found = [loc for one in change(block) for loc in builder.add_block(at, header, one).tolist()]
    assert sorted(found) == sorted((1 << 16) + row for row in misplaced)
    assert sorted(builder.missing().tolist()) == sorted((1 << 16) + row for row in missing)


def test_a_row_that_was_erased_belongs_into_no_block() -> None:
    (_, _, batch), (at, header, block) = simple().frames
    erasure = Erasure(1, np.array([1 << 16 | 1], np.uint64), np.zeros(0, np.uint64))
    envelope = Envelope(1, ("records",), 1, "records_put", 5, keys=("a", "b", "c"))
    frames = Compacted(fold_frames([StoredEvent(envelope, make_rows(4, 3))], erasure)).frames
    builder = CompactedSealBuilder(1)
    ledger_at, _, batch = frames[0]
    assert isinstance(batch, BatchMeta) and isinstance(block, BlockMeta)
    builder.add(ledger_at, batch)
    assert builder.add_block(at, header, block).tolist() == [1 << 16 | 1]
    assert builder.missing().tolist() == []


def block_frame() -> tuple[FrameHeader, bytes, bytes]:
    """Header, meta and data of a BLOCK of three rows."""
    envelope = Envelope(1, ("records",), 1, "records_put", 5, keys=("a", "b", "c"))
    contents = fold_frames([StoredEvent(envelope, make_rows(4, 3))], NOTHING)
    header = Compacted(contents).headers[-1]
    return header, contents[-1].meta, b"".join(contents[-1].parts)


def test_any_flipped_bit_of_a_rows_bytes_is_noticed() -> None:
    header, meta, data = block_frame()
    intact = decode_block(header, meta, data)
    used = len(intact.nonces) + len(intact.notes) + intact.vectors.nbytes
    unnoticed = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            decode_block(header, meta, flipped)
            unnoticed += 1
        except FrameDamage as damage:
            assert damage.part in ("data", "row")
    assert unnoticed == 8 * (len(data) - used)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_changed_meta_of_a_block_is_damage_or_still_fits(changes: list[tuple[int, int]]) -> None:
    header, meta, data = block_frame()
    changed = bytearray(meta)
    for at, value in changes:
        changed[at % len(meta)] = value
    try:
        block = decode_block(header, changed, data)
    except FrameDamage:
        return
    assert len(block.locs) == len(block.vectors) == len(block.embedding_ids) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 4},
        {"dim": 1 << 40},
        {"dtype": 0},
        {"dtype": 3},
        {"locs": bytes(16)},
        {"note_offsets": bytes(12)},
        {"row_crcs": b""},
        {"embedding_ids": ()},
        {"embedding_numbers": b"\xff" * 12},
    ],
)
def test_a_block_that_contradicts_itself_is_damage(change: dict[str, object]) -> None:
    header, meta, data = block_frame()
    content = msgspec.structs.replace(msgspec.msgpack.decode(meta, type=BlockMeta), **change)
    packed = msgspec.msgpack.encode(content)
    with pytest.raises(FrameDamage):
        decode_block(header._replace(meta_bytes=len(packed)), packed, data)


def test_event_digests_do_not_depend_on_where_rows_lie() -> None:
    [event] = simple().events()
    [again] = Compacted(fold_frames([event], NOTHING)).events()
    digests = [event_digest(e.envelope, payload_digest(e.payload)) for e in (event, again)]
    assert digests[0] == digests[1]
