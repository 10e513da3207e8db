"""Records to rows and back: the one place that knows what a note body is.

A note body is the msgpack of id, text and metadata back to back, so that the bodies of a page are
one msgpack array and one call of the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

import msgspec
import numpy as np

from fmemory._engine.types import EventType
from fmemory._engine.work import Emission
from fmemory.errors import ContractError, Reason
from fmemory.record_models import MemoryRecord, Note
from fmemory_segments import RowPage, Rows
from fmemory_segments.event import EVENT_BYTES_MAX, ROWS_MAX, Float64Array, VectorArray

_encode = msgspec.msgpack.Encoder().encode
_ARRAY_OF_3 = b"\x93"
_FLOAT64 = np.dtype("<f8")
_UINT32 = np.dtype("<u4")
_decode = msgspec.msgpack.Decoder(list).decode
_ITEMS_OF_ONE = 3
KEY_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of record ids in one event: they stand in the frame's meta."""


class NamespacePut(msgspec.Struct, frozen=True, gc=False):
    """The events that put some records of one namespace, in write order."""

    namespace: tuple[str, ...]
    ids: tuple[str, ...]
    emissions: tuple[Emission, ...]


def encode_puts(records: Sequence[MemoryRecord], where: str = "records") -> list[NamespacePut]:
    """Events for checked records: one a namespace, more where dtype, dim or size change.

    Raises:
        ContractError: One record alone is larger than an event may be.

    Cost: about 1 µs a record and a copy of the vectors.
    """
    if len(records) == 1:
        (record,) = records
        emission = _emission_of_one(record, where)
        return [NamespacePut(record.namespace, emission.keys, (emission,))]
    by_namespace: dict[tuple[str, ...], list[MemoryRecord]] = {}
    for record in records:
        by_namespace.setdefault(record.namespace, []).append(record)
    return [
        NamespacePut(
            namespace,
            tuple([record.note.id for record in group]),
            tuple(_emissions(group, where)),
        )
        for namespace, group in by_namespace.items()
    ]


def _emissions(records: Sequence[MemoryRecord], where: str) -> Iterator[Emission]:
    bodies = [
        _encode((record.note.id, record.note.text, record.note.metadata))[1:] for record in records
    ]
    start = 0
    while start < len(records):
        stop = _run_end(records, bodies, start, where)
        yield _emission(records[start:stop], bodies[start:stop])
        start = stop


def _run_end(
    records: Sequence[MemoryRecord], bodies: Sequence[bytes], start: int, where: str
) -> int:
    """The end of the longest run of one dtype and dim that fits into one event."""
    first = records[start].vector
    count_max = min(len(records), start + ROWS_MAX)
    size = keys_size = 0
    for number in range(start, count_max):
        vector = records[number].vector
        if vector.dtype != first.dtype or vector.shape != first.shape:
            return number
        size += len(bodies[number]) + vector.nbytes
        keys_size += 4 * len(records[number].note.id)  # no character is longer in UTF-8
        if size > EVENT_BYTES_MAX or (keys_size > KEY_BYTES_MAX and number > start):
            if number == start:
                raise _too_large(records[number], size, where)
            return number
    return count_max


def _emission_of_one(record: MemoryRecord, where: str) -> Emission:
    """As the others do for many, in fewer steps: the path of a single put."""
    note, vector = record.note, record.vector
    body = _encode((note.id, note.text, note.metadata))[1:]
    if len(body) + vector.nbytes > EVENT_BYTES_MAX:
        raise _too_large(record, len(body) + vector.nbytes, where)
    rows = Rows(
        np.array((note.timestamp,), _FLOAT64),
        body,
        np.array((0, len(body)), _UINT32),
        np.array(vector, ndmin=2),
        (record.embedding_id,),
    )
    return Emission(EventType.RECORDS_PUT, rows, (note.id,), 1)


def _too_large(record: MemoryRecord, size: int, where: str) -> ContractError:
    return ContractError(
        f"expected a record of at most {EVENT_BYTES_MAX} bytes, got {size}; nothing was written;"
        " keep large texts elsewhere and store a reference",
        where=f"{where}[{record.note.id!r}]",
        reason=Reason.TOO_LARGE,
    )


def _emission(records: Sequence[MemoryRecord], bodies: Sequence[bytes]) -> Emission:
    count = len(records)
    offsets = np.zeros(count + 1, "<u4")
    np.cumsum(np.fromiter(map(len, bodies), "<u4", count), out=offsets[1:])
    dim = len(records[0].vector)
    vectors = np.concatenate([record.vector for record in records]).reshape(count, dim)
    rows = Rows(
        np.fromiter([record.note.timestamp for record in records], "<f8", count),
        b"".join(bodies),
        offsets,
        vectors,
        tuple([record.embedding_id for record in records]),
    )
    keys = tuple([record.note.id for record in records])
    return Emission(EventType.RECORDS_PUT, rows, keys, count)


def decode_page(
    page: RowPage, timestamps: Float64Array, namespace: tuple[str, ...]
) -> list[MemoryRecord]:
    """Records of a page, in its order; vectors are views of the page's own arrays.

    Cost: about 0.7 µs a record.
    """
    items = _decode(page.notes)
    if len(items) == _ITEMS_OF_ONE:
        record_id, text, metadata = items
        note = Note(record_id, text, timestamps.item(), metadata)
        return [MemoryRecord(note, page.blocks[0][0], page.embedding_ids[0], namespace)]
    # Id, text and metadata are taken from the same iterator, one after the other.
    following = iter(items)
    notes = map(Note, following, following, timestamps.tolist(), following)
    return list(map(MemoryRecord, notes, _vectors(page), page.embedding_ids, repeat(namespace)))


def decode_row(
    row: tuple[bytes, VectorArray, str | None], timestamp: float, namespace: tuple[str, ...]
) -> MemoryRecord:
    """The record of one row. Cost: about 1.5 µs."""
    body, vector, embedding_id = row
    record_id, text, metadata = _decode(_ARRAY_OF_3 + body)
    return MemoryRecord(Note(record_id, text, timestamp, metadata), vector, embedding_id, namespace)


def decode_event(
    ids: Sequence[str], rows: Rows, namespace: tuple[str, ...]
) -> list[MemoryRecord | None]:
    """The records of one put event; None where the row was erased."""
    bounds = rows.note_offsets.tolist()
    records: list[MemoryRecord | None] = []
    for number, timestamp in enumerate(rows.timestamps.tolist()):
        if rows.erased is not None and rows.erased[number]:
            records.append(None)
            continue
        body = bytes(rows.notes[bounds[number] : bounds[number + 1]])
        record_id, text, metadata = _decode(b"\x93" + body)
        assert record_id == ids[number]
        note = Note(record_id, text, timestamp, metadata)
        vector = rows.vectors[number].copy()
        records.append(MemoryRecord(note, vector, rows.embedding_ids[number], namespace))
    return records


def _vectors(page: RowPage) -> Iterator[VectorArray] | VectorArray:
    if len(page.blocks) == 1:
        return page.blocks[0]
    return chain.from_iterable(page.blocks)
