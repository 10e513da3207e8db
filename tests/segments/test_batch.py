"""BATCH frames: what is read is what was accepted, or the damage has a name."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import Blob, Draft, Erased, Payload, Rows, StoredEvent, payload_digest
from fmemory_segments._batch import (
    BatchMeta,
    FinishedBatch,
    decode_meta,
    decode_payload,
    finish,
    payload_extent,
    prepare,
    prepare_stored,
)
from fmemory_segments._event_meta import RowsPlace
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    FrameDamage,
    FrameHeader,
    FrameTooLarge,
    frame_bytes,
    unpack_header,
)
from tests.segments.event_strategies import (
    SALT,
    History,
    drafts,
    histories,
    make_rows,
    same_payload,
    write_batches,
)

TIME_NS = 1_700_000_000_000_000_000


def complete(batch: list[Draft], *, first_seq: int = 7) -> FinishedBatch:
    return finish(
        prepare(batch),
        first_seq=first_seq,
        recorded_at_ns=TIME_NS,
        synced_to=first_seq - 1,
        prev_frame_bytes=0,
        salt=SALT,
        offset=128,
    )


def read(packed: bytes, offset: int = 128) -> list[tuple[BatchMeta, list[Payload]]]:
    """The frames that stand one behind the other in these bytes."""
    frames = []
    at = 0
    while at < len(packed):
        header = unpack_header(packed[at:], SALT, offset + at)
        assert header is not None
        batch = decode_meta(packed[at + FRAME_HEADER_BYTES : at + header.data_start], header)
        data = packed[at + header.data_start : at + frame_bytes(header)]
        frames.append((batch, payloads(batch, data)))
        at += frame_bytes(header)
    return frames


def payloads(batch: BatchMeta, data: bytes) -> list[Payload]:
    found = []
    for event in batch.events:
        offset, size = payload_extent(event)
        found.append(decode_payload(event, data[offset : offset + size]))
    return found


def put(count: int = 2, **changes: object) -> Draft:
    rows = make_rows(1, count)
    keys = tuple(map(str, range(count)))
    draft = Draft(("records",), 1, "records_put", rows, keys=keys, count=count)
    return msgspec.structs.replace(draft, **changes)


def note(size: int = 3) -> Draft:
    return Draft(("session", "s"), 1, "note.taken", Blob(bytes(size)))


@given(st.lists(drafts(), min_size=1, max_size=5))
def test_drafts_come_back_with_seqs_times_and_payloads(batch: list[Draft]) -> None:
    finished = complete(batch)
    [(meta, found)] = read(b"".join(finished.buffers))
    assert meta == finished.frames[0].batch
    for number, (draft, envelope) in enumerate(zip(batch, meta.envelopes(), strict=True)):
        assert (envelope.seq, envelope.recorded_at_ns) == (7 + number, TIME_NS)
        for name in ("stream", "revision", "type", "occurred_at_ns", "actor", "run_id"):
            assert getattr(envelope, name) == getattr(draft, name)
        for name in ("reason", "event_id", "keys", "count"):
            assert getattr(envelope, name) == getattr(draft, name)
        stored = found[number]
        assert isinstance(stored, Blob | Rows)
        if isinstance(stored, Blob):
            given_nonce = isinstance(draft.payload, Blob) and draft.payload.nonce
            assert len(stored.nonce) == 16 and given_nonce in (b"", stored.nonce)
            assert same_payload(stored, msgspec.structs.replace(draft.payload, nonce=stored.nonce))
        else:
            assert len(stored.nonces) == 16 * len(stored)
            assert same_payload(
                stored, msgspec.structs.replace(draft.payload, nonces=stored.nonces)
            )


@given(histories(), st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_stored_events_keep_times_nonces_and_digests(history: History, sizes: list[int]) -> None:
    packed, _ = write_batches(history.events, sizes)
    frames = read(packed)
    envelopes = [envelope for batch, _ in frames for envelope in batch.envelopes()]
    assert envelopes == [event.envelope for event in history.events]
    stored = [payload for _, found in frames for payload in found]
    assert all(map(same_payload, stored, [event.payload for event in history.events]))
    assert list(map(payload_digest, stored)) == [
        payload_digest(event.payload) for event in history.events
    ]


def test_erased_payloads_can_be_imported_with_their_digests() -> None:
    rows = make_rows(3, 3)
    erased = np.array([False, True, False])
    digests = np.zeros((3, 32), np.uint8)
    digests[1] = 7
    rows = msgspec.structs.replace(rows, erased=erased, digests=digests)
    envelopes = complete([put(3), note()], first_seq=1).frames[0].batch.envelopes()
    erasures: list[Payload] = [rows, Erased(bytes(range(32)))]
    events = list(map(StoredEvent, envelopes, erasures))
    packed, _ = write_batches(events, [2])
    [(_, found)] = read(packed)
    assert same_payload(found[0], rows)
    assert found[1] == Erased(bytes(range(32)))


def test_a_large_batch_becomes_several_frames_of_which_only_the_last_ends_it() -> None:
    finished = complete([note(3 << 20), note(3 << 20), put(), note(5 << 20), note()])
    headers = [frame.batch.header for frame in finished.frames]
    assert [header.ends_batch for header in headers] == [False, False, False, True]
    assert [header.event_count for header in headers] == [1, 2, 1, 1]
    assert [header.first_seq for header in headers] == [7, 8, 10, 11]
    assert [header.batch_offset for header in headers] == [0, 1, 3, 4]
    assert [header.prev_frame_bytes for header in headers] == [0, *map(frame_bytes, headers[:-1])]
    assert finished.end == 128 + sum(map(frame_bytes, headers))
    assert finished.end == finished.frames[0].offset + prepare_size(finished)
    assert len(read(b"".join(finished.buffers))) == 4


def prepare_size(finished: FinishedBatch) -> int:
    return sum(map(len, finished.buffers))


def test_prepare_says_how_many_bytes_the_batch_will_take() -> None:
    prepared = prepare([note(3 << 20), note(3 << 20), put()])
    assert prepared.event_count == 3
    assert prepared.size_bytes == prepare_size(complete([note(3 << 20), note(3 << 20), put()]))


def test_nonces_are_drawn_once_and_used_in_order() -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    prepared = prepare([note(), msgspec.structs.replace(put(), payload=unsalted())], random=random)
    data = b"".join(prepared.frames[0].parts)
    assert asked == [48]
    assert data[:16] == bytes(range(16))
    assert data[24:56] == bytes(range(16, 48))


def unsalted() -> Rows:
    return make_rows(1, 2, has_nonces=False)


def test_a_matrix_is_written_from_where_it_lies() -> None:
    draft = put(500)
    assert isinstance(draft.payload, Rows)
    finished = complete([draft])
    assert any(
        np.shares_memory(np.frombuffer(buffer, np.uint8), draft.payload.vectors)
        for buffer in finished.buffers
    )


def test_a_batch_can_be_finished_again_elsewhere() -> None:
    prepared = prepare([put(), note()])
    first, second = (
        finish(
            prepared,
            first_seq=seq,
            recorded_at_ns=TIME_NS,
            synced_to=0,
            prev_frame_bytes=0,
            salt=SALT,
            offset=8 * seq,
        )
        for seq in (20, 30)
    )
    before, after = (
        read(b"".join(finished.buffers), 8 * seq)[0]
        for finished, seq in ((first, 20), (second, 30))
    )
    assert before[0].events == after[0].events
    assert all(map(same_payload, before[1], after[1]))


def test_a_flipped_bit_of_a_row_names_the_row() -> None:
    batch, data = split(complete([put(3)]))
    place = batch.events[0].place
    assert isinstance(place, RowsPlace)
    vectors = payload_extent(batch.events[0])[1] - 3 * 3 * 8
    flipped = bytearray(data)
    flipped[vectors + 2 * 24] ^= 1
    with pytest.raises(FrameDamage, match="row 2") as raised:
        decode_payload(batch.events[0], flipped)
    assert raised.value.part == "row"


def split(finished: FinishedBatch) -> tuple[BatchMeta, bytes]:
    batch = finished.frames[0].batch
    return batch, b"".join(finished.buffers)[batch.header.data_start :]


@pytest.mark.parametrize("draft", [put(1), put(3), note(5)])
def test_any_flipped_bit_of_a_payload_is_noticed(draft: Draft) -> None:
    batch, data = split(complete([draft]))
    [event] = batch.events
    intact = decode_payload(event, data)
    unnoticed = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            payload = decode_payload(event, flipped)
        except FrameDamage:
            continue
        assert same_payload(payload, intact)
        unnoticed += 1
    assert unnoticed == 8 * (len(data) - used_bytes(intact))


def used_bytes(payload: Payload) -> int:
    """Without padding, which only the frame's own CRC covers."""
    if isinstance(payload, Rows):
        return len(payload.nonces) + len(payload.notes) + payload.vectors.nbytes
    assert isinstance(payload, Blob)
    return len(payload.nonce) + len(payload.data)


def test_a_payload_that_is_cut_short_is_damage() -> None:
    batch, data = split(complete([note(40)]))
    with pytest.raises(FrameDamage) as raised:
        decode_payload(batch.events[0], data[:32])
    assert raised.value.part == "data"


@given(st.data(), st.lists(drafts(), min_size=1, max_size=3))
def test_changed_meta_is_damage_or_still_fits_the_frame(
    data: st.DataObject, batch: list[Draft]
) -> None:
    finished = complete(batch)
    header = finished.frames[0].batch.header
    packed = b"".join(finished.buffers)
    meta = bytearray(packed[64 : 64 + header.meta_bytes])
    for _ in range(data.draw(st.integers(1, 3))):
        meta[data.draw(st.integers(0, len(meta) - 1))] = data.draw(st.integers(0, 255))
    decode_or_damage(bytes(meta), header, packed[header.data_start :])


def decode_or_damage(meta: bytes, header: FrameHeader, data: bytes) -> None:
    try:
        found = decode_meta(meta, header)
        assert len(found.events) == header.event_count
        payloads(found, data)
    except FrameDamage:
        return


plain = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=30,
)


@given(plain | st.binary(max_size=60), st.integers(0, 3), st.sampled_from([1, 3]))
def test_meta_of_any_other_shape_is_damage(content: object, count: int, kind: int) -> None:
    meta = content if isinstance(content, bytes) else msgspec.msgpack.encode(content)
    header = complete([note()]).frames[0].batch.header
    header = header._replace(meta_bytes=len(meta), event_count=count, data_bytes=64, kind=kind)
    decode_or_damage(meta, header, bytes(64))


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deeply_nested_meta_is_damage(depth: int) -> None:
    meta = b"\x91" * depth + b"\xc0"
    header = complete([note()]).frames[0].batch.header._replace(meta_bytes=len(meta))
    with pytest.raises(FrameDamage):
        decode_meta(meta, header)


def test_an_array_that_claims_more_items_than_there_are_bytes_is_damage() -> None:
    meta = b"\xdd\xff\xff\xff\xff"
    header = complete([note()]).frames[0].batch.header._replace(meta_bytes=len(meta))
    with pytest.raises(FrameDamage):
        decode_meta(meta, header)


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": ("a",)},
        {"payload": make_rows(1, 3)},
        {"payload": msgspec.structs.replace(make_rows(1, 2), vectors=np.zeros((2, 3), "<f2"))},
        {"payload": msgspec.structs.replace(make_rows(1, 2), vectors=np.zeros((2, 3), ">f8"))},
        {"payload": msgspec.structs.replace(make_rows(1, 2), vectors=np.zeros((2, 6))[:, ::2])},
        {"payload": msgspec.structs.replace(make_rows(1, 2), vectors=np.zeros(6))},
        {"payload": msgspec.structs.replace(make_rows(1, 2), timestamps=np.zeros(2, "<f4"))},
        {"payload": msgspec.structs.replace(make_rows(1, 2), notes=b"")},
        {"payload": msgspec.structs.replace(make_rows(1, 2), nonces=bytes(16))},
        {"payload": msgspec.structs.replace(make_rows(1, 2), embedding_ids=(None,))},
        {"payload": msgspec.structs.replace(make_rows(1, 2), erased=np.array([True, False]))},
        {"payload": make_rows(1, 0), "keys": ()},
        {"payload": Blob(b"", b"short")},
    ],
)
def test_a_draft_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"rows|blob"):
        prepare([put(2, **changes)])


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one event"):
        prepare([])


def test_an_event_larger_than_a_frame_is_refused() -> None:
    with pytest.raises(FrameTooLarge):
        prepare([note(1 << 26)])


@pytest.mark.parametrize("change", [{"type": "\ud800"}, {"revision": 1 << 64}])
def test_what_messagepack_cannot_carry_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((UnicodeEncodeError, OverflowError)):
        prepare([put(2, **change)])


def test_stored_events_whose_times_decrease_are_refused() -> None:
    envelopes = list(complete([note(), note()], first_seq=1).frames[0].batch.envelopes())
    later = msgspec.structs.replace(envelopes[0], recorded_at_ns=TIME_NS + 1)
    events = [StoredEvent(envelope, Blob(b"", bytes(16))) for envelope in (later, envelopes[1])]
    with pytest.raises(ValueError, match="times"):
        prepare_stored(events)


def test_stored_events_without_nonce_are_refused() -> None:
    [envelope] = complete([note()]).frames[0].batch.envelopes()
    with pytest.raises(ValueError, match="nonce"):
        prepare_stored([StoredEvent(envelope, Blob(b""))])
