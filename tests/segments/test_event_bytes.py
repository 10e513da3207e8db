"""An event as two strings of bytes: erasure takes rows out, keeps the digest and needs no room.

Goal: a database can store an erased event in the place of what it was. Method: random payloads lose
random rows until none is left; after each step all is read back. What would have to break: a digest
that changes, a living row that is found elsewhere, bytes left of an erased one, or growth.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from fmemory_segments import Blob, Envelope, Erased, Rows, payload_digest
from fmemory_segments.event_bytes import (
    BytesDamage,
    EventBytes,
    StoredMeta,
    erase,
    meta_check,
    pack_event,
)
from tests.segments.event_strategies import make_rows, same_payload

SEQ, TIME_NS = 7, 11


def stored(packed: EventBytes) -> StoredMeta:
    return StoredMeta(SEQ, TIME_NS, packed.meta, meta_check(SEQ, TIME_NS, packed.meta))


def envelope(count: int) -> Envelope:
    keys = tuple(f"k{row}" for row in range(count))
    return Envelope(SEQ, ("records",), 3, "records_put", TIME_NS, keys=keys, count=count)


def check_living(
    packed: EventBytes, rows: Rows, gone: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> None:
    """Each row that is left lies where meta says, and none of the others does anywhere."""
    meta = stored(packed)
    data = memoryview(packed.data)
    for row, flag in enumerate(gone.tolist()):
        note = rows.notes[rows.note_offsets[row] : rows.note_offsets[row + 1]]
        if flag:
            assert rows.nonces[16 * row : 16 * row + 16] not in packed.data
            assert len(note) < 12 or note not in packed.data
            continue
        (start, size), (at, width) = (
            meta.notes_extent(row, row + 1),
            meta.vectors_extent(row, row + 1),
        )
        assert packed.data[start : start + size] == note
        assert packed.data[at : at + width] == rows.vectors[row].tobytes()
        meta.check_rows(row, row + 1, data[start : start + size], data[at : at + width])


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("dim", [0, 1, 16])
def test_rows_go_one_after_the_other_and_nothing_grows(count: int, dim: int) -> None:
    random = Random(count * 100 + dim)
    for ids in (("m",), (None,), ("a", "b", None)):
        rows = make_rows(random.randrange(1 << 30), count, dim, embedding_ids=ids)
        packed, gone = pack_event(envelope(count), rows), np.zeros(count, np.bool_)
        while not gone.all():
            chosen = np.zeros(count, np.bool_)
            chosen[random.sample(range(count), random.randint(1, count))] = True
            gone |= chosen
            before = packed
            packed = erase(stored(before), before.data, chosen)
            assert len(packed.meta) + len(packed.data) <= len(before.meta) + len(before.data)
            assert packed.is_erased
            payload = stored(packed).payload(packed.data)
            assert isinstance(payload, Rows)
            assert payload.erased is not None
            assert payload.erased.tolist() == gone.tolist()
            assert payload_digest(payload) == payload_digest(rows)
            check_living(packed, rows, gone)
        assert (packed.data, stored(packed).payload_bytes) == (b"", 0)


def test_erased_rows_that_are_packed_again_give_the_same_bytes() -> None:
    rows = make_rows(5, 9, 3)
    packed = pack_event(envelope(9), rows)
    packed = erase(stored(packed), packed.data, np.arange(9) % 2 == 0)
    payload = stored(packed).payload(packed.data)
    again = pack_event(envelope(9), payload)
    assert again == packed
    assert same_payload(stored(again).payload(again.data), payload)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 500])
def test_erased_bytes_leave_their_digest(size: int) -> None:
    blob = Blob(bytes([5]) * size, bytes(range(16)))
    before = pack_event(Envelope(SEQ, ("s",), 1, "x", TIME_NS), blob)
    packed = erase(stored(before), before.data, None)
    assert stored(packed).payload(packed.data) == Erased(payload_digest(blob))
    assert len(packed.meta) + len(packed.data) <= len(before.meta) + len(before.data)


def test_room_that_is_not_zero_is_damage() -> None:
    packed = pack_event(Envelope(SEQ, ("s",), 1, "x", TIME_NS), Blob(b"", bytes(16)))
    with pytest.raises(BytesDamage, match="zeros"):
        stored(packed).payload(packed.data[:-1] + b"\1")


def test_damaged_data_are_not_erased() -> None:
    rows = make_rows(6, 3, 3)
    packed = pack_event(envelope(3), rows)
    data = bytes([packed.data[0] ^ 1]) + packed.data[1:]
    with pytest.raises(BytesDamage):
        erase(stored(packed), data, np.ones(3, np.bool_))
