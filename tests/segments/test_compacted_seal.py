"""A SEAL of layout 2 is what its frames say, and columns that contradict each other are damage."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import Envelope, Rows, StoredEvent
from fmemory_segments._batch import BatchMeta
from fmemory_segments._block import BlockMeta
from fmemory_segments._compacted import pack_content
from fmemory_segments._compacted_index import CompactedIndex
from fmemory_segments._compacted_seal import CompactedSealBuilder
from fmemory_segments._frame import (
    FrameDamage,
    FrameFlag,
    FrameHeader,
    FrameKind,
    FrameTooLarge,
    frame_bytes,
)
from fmemory_segments._seal import SealContent, SealMeta, decode_seal, pack_seal
from fmemory_segments.event import FRAME_BYTES_MAX, UInt32Array
from tests.segments.compacted_tools import erasure_of, fold_frames
from tests.segments.event_strategies import (
    FIRST_OFFSET,
    SALT,
    History,
    chain_of,
    histories,
    make_rows,
)
from tests.segments.test_compacted_damage import ERASURE, events

ALL = (0, 1 << 60)


def sealed(
    history: History, target: int = 200, *, deflated: bool = False
) -> tuple[FrameHeader, bytes, bytes]:
    """Header, meta and data of the SEAL of a compacted segment of all of a history.

    Args:
        deflated: Data as it is written; else as it was before it was deflated.
    """
    builder = CompactedSealBuilder(1)
    offset, prev_frame_bytes = FIRST_OFFSET, 0
    for content in fold_frames(history.events, erasure_of(history), target):
        header, _ = pack_content(
            content, synced_to=0, prev_frame_bytes=prev_frame_bytes, salt=SALT, offset=offset
        )
        if isinstance(content.says, BlockMeta):
            assert len(builder.add_block(offset, header, content.says)) == 0
        else:
            builder.add(offset, BatchMeta(header, content.says))
        prev_frame_bytes = frame_bytes(header)
        offset += prev_frame_bytes
    assert len(builder.missing()) == 0
    builder.finish()
    header, buffers = pack_seal(
        builder,
        chain_of(history.events),
        synced_to=0,
        prev_frame_bytes=prev_frame_bytes,
        salt=SALT,
        offset=offset,
    )
    whole = b"".join(buffers)
    meta, data = whole[64 : header.data_start], whole[header.data_start : frame_bytes(header)]
    if deflated or not header.is_deflated:
        return header, meta, data
    data = zlib.decompress(data[: header.data_bytes])
    return header._replace(flags=FrameFlag.BATCH_END, data_bytes=len(data)), meta, data


def use(header: FrameHeader, meta: bytes, data: bytes) -> None:
    """Decode and ask for everything."""
    seal = decode_seal(header, meta, data)
    list(seal.fold(*ALL))
    list(seal.stream_infos())
    list(seal.event_ids())
    index = seal.index
    frames = np.arange(index.frame_count, dtype=np.uint32)
    assert int(index.slot_counts(frames).sum()) <= index.slot_count
    for frame in frames.tolist():
        index.seqs_of_frame(frame)
    for seq in range(index.base_seq, index.last_seq + 1):
        index.blob(seq)
        low, high = index.slot_range(seq, seq)
        for row in range(high - low):
            try:
                index.place(seq << 16 | row)
                index.places(np.array([seq << 16 | row], np.uint64))
            except KeyError:
                continue


@given(histories(), st.sampled_from([1, 200, 4 << 20]))
def test_places_come_back(history: History, target: int) -> None:
    seal = decode_seal(*sealed(history, target))
    index = seal.index
    assert isinstance(index, CompactedIndex)
    assert seal.chain == chain_of(history.events)
    dead = set(history.erased_locs)
    for event in history.events:
        seq, rows = event.envelope.seq, event.payload
        assert index.has_rows(seq) == isinstance(rows, Rows)
        if not isinstance(rows, Rows):
            assert (index.blob(seq) is None) == (seq in history.erased_seqs)
            continue
        for row in range(len(rows)):
            loc = seq << 16 | row
            assert index.slot_of(loc) is not None
            if loc in dead:
                with pytest.raises(KeyError):
                    index.place(loc)
                continue
            place = index.place(loc)
            assert place.frame >= index.ledger_count
            assert place.embedding_id == rows.embedding_ids[row]
            assert place.dim == rows.vectors.shape[1]
            assert place.note_bytes == int(np.diff(rows.note_offsets)[row])


@given(histories(max_events=5), st.data())
def test_changed_bytes_are_damage_or_still_a_seal(history: History, data: st.DataObject) -> None:
    header, *regions = sealed(history)
    region = data.draw(st.sampled_from([0, 1]))
    for _ in range(data.draw(st.integers(1, 3))):
        changed = bytearray(regions[region])
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        regions[region] = bytes(changed)
    try:
        use(header, *regions)
    except FrameDamage as damage:
        assert damage.part == "content"


EVENTS, FRAMES, SLOTS = range(3)


def put(at: tuple[int, int], value: int) -> Callable[[UInt32Array], None]:
    def change(column: UInt32Array) -> None:
        column[at] = value

    return change


@pytest.mark.parametrize(
    ("section", "change"),
    [
        (EVENTS, put((0, 0), 1)),  # The first event is not in the first frame.
        (EVENTS, put((5, 0), 4)),  # A LEDGER without events.
        (EVENTS, put((0, 3), 8)),  # A matrix, as in layout 1.
        (EVENTS, put((1, 4), 1)),  # A payload of bytes that calls itself rows.
        (EVENTS, put((2, 2), 1)),  # Slots of another event.
        (FRAMES, put((1, 0), 0)),  # Offsets that do not ascend.
        (SLOTS, put((0, 0), 0)),  # A living row that starts nowhere.
        (SLOTS, put((0, 1), 1 << 20)),  # A note beyond its frame.
        (SLOTS, put((0, 3), 9)),  # An embedding id that there is not.
        (SLOTS, put((0, 4), 0)),  # A row in a LEDGER.
        (SLOTS, put((0, 4), 99)),  # A row in a frame that there is not.
        (SLOTS, put((0, 5), 1 << 20)),  # A vector beyond its frame.
        (SLOTS, put((0, 5), 153)),  # A vector that is not aligned.
        (SLOTS, put((1, 0), 128)),  # An erased row that starts somewhere.
        (SLOTS, put((1, 5), 8)),  # An erased row with a vector.
        (SLOTS, put((3, 4), 5)),  # A payload in a BLOCK.
        (SLOTS, put((3, 5), 8)),  # A payload with a vector.
        (SLOTS, put((5, 4), 1)),  # An erased payload in a frame.
    ],
)
def test_columns_that_contradict_each_other_are_damage(
    section: int, change: Callable[[UInt32Array], None]
) -> None:
    history = History(events(), ERASURE.locs.tolist(), ERASURE.seqs.tolist())
    header, meta, data = sealed(history, 300)
    content = msgspec.msgpack.decode(meta[: header.meta_bytes], type=SealMeta)
    sizes = [size + 7 & -8 for size in content.sections()]
    start, widths = sum(sizes[:section]), (5, 1, 6)
    changed = bytearray(data)
    size = content.sections()[section]
    column = np.frombuffer(memoryview(changed)[start : start + size], "<u4")
    use(header, meta, bytes(changed))
    change(column.reshape(-1, widths[section]))
    with pytest.raises(FrameDamage):
        decode_seal(header, meta, bytes(changed))


@pytest.mark.parametrize(
    "change",
    [
        {"layout": 1},
        {"layout": 3},
        {"event_count": 2},
        {"event_count": 1 << 60},
        {"frame_count": 0},
        {"slot_count": 1},
        {"row_count": 1},
        {"put_count": 0},
        {"streams": ()},
        {"embedding_ids": ()},
        {"chain": b""},
    ],
)
def test_a_meta_that_contradicts_its_data_is_damage(change: dict[str, object]) -> None:
    history = History(events(), ERASURE.locs.tolist(), ERASURE.seqs.tolist())
    header, meta, data = sealed(history)
    content = msgspec.msgpack.decode(meta[: header.meta_bytes], type=SealMeta)
    packed = msgspec.msgpack.encode(msgspec.structs.replace(content, **change))
    with pytest.raises(FrameDamage):
        use(header._replace(meta_bytes=len(packed)), packed, data)


def test_deflated_data_say_the_same() -> None:
    history = History(events(), ERASURE.locs.tolist(), ERASURE.seqs.tolist())
    plain, written = (decode_seal(*sealed(history, deflated=flag)) for flag in (False, True))
    assert written.index.slots.tolist() == plain.index.slots.tolist()
    assert written.index.events.tolist() == plain.index.events.tolist()
    assert (written.ids(), written.envelopes()) == (plain.ids(), plain.envelopes())


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_half_of_a_deflated_stream_is_damage(kept: int) -> None:
    history = History(events(), ERASURE.locs.tolist(), ERASURE.seqs.tolist())
    header, meta, data = sealed(history, deflated=True)
    cut = data[: header.data_bytes][:kept]
    with pytest.raises(FrameDamage, match="seal, data"):
        decode_seal(header._replace(data_bytes=len(cut)), meta, cut)


def test_more_or_less_than_the_columns_is_damage() -> None:
    history = History(events(), ERASURE.locs.tolist(), ERASURE.seqs.tolist())
    header, meta, data = sealed(history)
    for wrong in (data[:-8], data + bytes(8), data + bytes(1 << 24)):
        packed = zlib.compress(wrong)
        damaged = header._replace(flags=3, data_bytes=len(packed))
        with pytest.raises(FrameDamage):
            decode_seal(damaged, meta, packed)


@pytest.mark.parametrize(("dead", "is_deflated"), [(0, False), (9, False), (10, True), (40, True)])
def test_columns_are_deflated_where_a_quarter_was_erased(dead: int, is_deflated: bool) -> None:
    keys = tuple(f"k{row}" for row in range(40))
    put = StoredEvent(Envelope(1, ("n",), 1, "records_put", 11, keys=keys), make_rows(1, 40))
    history = History([put], [1 << 16 | row for row in range(dead)], [])
    assert sealed(history, deflated=True)[0].is_deflated is is_deflated


@pytest.mark.parametrize(
    ("meta", "data", "padding", "is_same"),
    [
        (b"meta", b"columns", b"", True),
        (b"meta", b"column!", b"", False),
        (b"meta", b"columns and more", b"", False),
        (b"meta", b"column", b"", False),
        (b"Meta", b"columns", b"", False),
        (b"meta", b"columns", b"!", False),
        (b"meta", None, b"", False),
    ],
)
@pytest.mark.parametrize("deflated", [False, True])
def test_a_seal_says_what_its_bytes_say_and_nothing_else(
    meta: bytes, data: bytes | None, padding: bytes, is_same: bool, deflated: bool
) -> None:
    said = SealContent(b"meta", [b"col", b"umns"], 7)
    stored = b"no stream" if data is None else zlib.compress(data) if deflated else data
    flags = FrameFlag.BATCH_END | (FrameFlag.DEFLATED if deflated else 0)
    header = FrameHeader(
        b"", FrameKind.SEAL, flags, 0, 1, 0, 1, 5, 0, 0, len(meta), len(stored), 0, 0, 0
    )

    assert said.is_in(header, meta + bytes(4) + stored + padding) is is_same


def test_a_ledger_that_nobody_would_inflate_is_not_written() -> None:
    content = next(iter(fold_frames(events(), ERASURE)))
    large = dataclasses.replace(content, meta=bytes(FRAME_BYTES_MAX + 1))
    with pytest.raises(FrameTooLarge):
        pack_content(large, synced_to=0, prev_frame_bytes=0, salt=SALT, offset=FIRST_OFFSET)
