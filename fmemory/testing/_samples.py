"""Small values and short calls that the parts of the backend suite share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import numpy as np

from fmemory._json_values import JsonObject
from fmemory.backend import MemoryView
from fmemory.record_models import MemoryRecord, Note, TimeRange, VectorLike

__all__ = [
    "NAMESPACES",
    "TIME",
    "UNTYPED",
    "count",
    "get_ids",
    "identity",
    "moment",
    "page_of",
    "pages",
    "record",
    "records",
    "scan",
    "scan_ids",
    "vector_of",
]

Namespace: TypeAlias = tuple[str, ...]

TIME = datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

# Pairs that a join by dots, a textual prefix, a pattern or a case fold would take for one another.
NAMESPACES: tuple[Namespace, ...] = (
    (),
    ("a",),
    ("a", "b"),
    ("a.b",),
    ("a/b",),
    ("a", ""),
    ("a", "b", "c"),
    ("A",),
    ("%",),
    ("_",),
    ("a%",),
    ('a"]',),
    ("a\x00",),
    ("user1",),
    ("user10",),
    ("records",),
)


def moment(seconds: float) -> datetime:
    """An aware time so many seconds after `TIME`."""
    return TIME + timedelta(seconds=seconds)


def record(
    record_id: str = "a",
    timestamp: float = 1.0,
    *,
    vector: VectorLike | None = None,
    text: str | None = None,
    metadata: JsonObject | None = None,
    embedding_id: str | None = None,
    namespace: Namespace = (),
) -> MemoryRecord:
    """A record whose text, vector and metadata follow from its id unless given."""
    note = Note(
        record_id,
        f"text of {record_id}" if text is None else text,
        float(timestamp),
        {"about": record_id} if metadata is None else metadata,
    )
    numbers = vector_of(record_id) if vector is None else vector
    return MemoryRecord.create(note, numbers, embedding_id, namespace)


def records(*timestamps: float, namespace: Namespace = ()) -> list[MemoryRecord]:
    """Records `r0`, `r1`, … at these timestamps."""
    return [
        record(f"r{number}", timestamp, namespace=namespace)
        for number, timestamp in enumerate(timestamps)
    ]


def vector_of(record_id: str, dim: int = 4) -> list[float]:
    """A vector that differs from id to id."""
    return [sum(record_id.encode()) / 7 + column for column in range(dim)]


def page_of(
    memory: MemoryView,
    cursor: str | None = None,
    *,
    limit: int = 500,
    namespace: Namespace = (),
    time_range: TimeRange | None = None,
) -> tuple[list[str], str | None]:
    """The ids of one page, and the cursor of the next."""
    request = memory.scan_request(
        time_range=time_range, namespace=namespace, limit=limit, cursor=cursor
    )
    result = memory.scan(request)
    return [one.id for one in result.records], result.next_cursor


def pages(
    memory: MemoryView,
    *,
    limit: int = 500,
    namespace: Namespace = (),
    time_range: TimeRange | None = None,
) -> Iterator[list[MemoryRecord]]:
    """All pages of a scan, following cursors."""
    cursor: str | None = None
    while True:
        request = memory.scan_request(
            time_range=time_range, namespace=namespace, limit=limit, cursor=cursor
        )
        result = memory.scan(request)
        yield list(result.records)
        cursor = result.next_cursor
        if cursor is None:
            return


def scan(
    memory: MemoryView,
    namespace: Namespace = (),
    *,
    limit: int = 500,
    time_range: TimeRange | None = None,
) -> list[MemoryRecord]:
    """All records of a namespace, in scan order, read in pages of `limit`."""
    found = pages(memory, limit=limit, namespace=namespace, time_range=time_range)
    return [one for page in found for one in page]


def scan_ids(
    memory: MemoryView,
    namespace: Namespace = (),
    *,
    limit: int = 500,
    time_range: TimeRange | None = None,
) -> list[str]:
    """The ids of all records of a namespace, in scan order."""
    return [one.id for one in scan(memory, namespace, limit=limit, time_range=time_range)]


def get_ids(memory: MemoryView, ids: Sequence[str], namespace: Namespace = ()) -> list[str]:
    """The ids that `get` finds, in the order it gives them."""
    found = memory.get(memory.get_request(tuple(ids), namespace=namespace))
    return [one.id for one in found.records]


def count(
    memory: MemoryView, namespace: Namespace = (), time_range: TimeRange | None = None
) -> int:
    """The number that `count` gives."""
    request = memory.count_request(time_range=time_range, namespace=namespace)
    return memory.count(request).count


def identity(one: MemoryRecord) -> tuple[object, ...]:
    """Everything of a record as values that compare, types of numbers included."""
    vector = np.asarray(one.vector)
    return (
        one.note.id,
        one.note.text,
        repr(one.note.timestamp),
        repr(one.note.metadata),
        vector.dtype.name,
        vector.shape,
        vector.tobytes(),
        one.embedding_id,
        one.namespace,
    )


UNTYPED: tuple[object, ...] = (None, 1, "request", (), {}, object())
