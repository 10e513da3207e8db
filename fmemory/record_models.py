"""Requests and results of the eight record operations. All check themselves when built.

`Note` and `MemoryRecord` come from `note_models.py`: their constructors check nothing, every `put`
does (`check_put`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

import numpy as np

from fmemory._json_values import JsonValue, check_text, is_encodable, type_name
from fmemory._model import Model, Rule, as_tuple, check_float, check_int
from fmemory._names import (
    ID_CHARACTERS_MAX,
    NAMESPACE_LABELS_MAX,
    check_name,
    check_namespace,
    is_plain_namespace,
)
from fmemory._receipt import EventId, Receipt, Revision
from fmemory._vectors import FLOAT32, FLOAT64, VECTOR_DIM_MAX, VectorLike, check_vector
from fmemory.errors import ContractError, DuplicateRecord, Reason
from fmemory.note_models import MemoryRecord, Note, check_record, check_records
from fmemory_segments.event import Float64Array, VectorArray

__all__ = [
    "ID_CHARACTERS_MAX",
    "NAMESPACE_LABELS_MAX",
    "REQUEST_ITEMS_MAX",
    "SCAN_LIMIT_DEFAULT",
    "SCAN_LIMIT_MAX",
    "VECTOR_DIM_MAX",
    "ClearRequest",
    "ClearResult",
    "CountRequest",
    "CountResult",
    "DeleteRequest",
    "DeleteResult",
    "GetRequest",
    "GetResult",
    "MemoryRecord",
    "MetaGetRequest",
    "MetaResult",
    "MetaSetRequest",
    "Metric",
    "Namespace",
    "Note",
    "PutRequest",
    "PutResult",
    "ScanRequest",
    "ScanResult",
    "ScoredRecord",
    "TimeRange",
    "VectorBlock",
    "VectorLike",
    "check_namespace",
    "check_put",
    "check_record",
    "check_records",
    "check_vector",
]

REQUEST_ITEMS_MAX = 1_000_000
"""Most records or ids in one request."""
SCAN_LIMIT_DEFAULT = 500
SCAN_LIMIT_MAX = 100_000
"""Most records in one page; follow cursors (`iter_all`) for more."""

Metric: TypeAlias = Literal["cosine", "dot", "euclidean"]


def _check_ids(value: object) -> tuple[str, ...]:
    ids = as_tuple(value, "ids")
    if len(ids) == 1:
        check_text(ids[0], "[0]")
        return cast("tuple[str, ...]", ids)
    _check_item_count(len(ids), "ids")
    return _check_row_ids(ids)


def _check_row_ids(value: object) -> tuple[str, ...]:
    """Ids of an answer, which may have more rows than a request may have items."""
    ids = as_tuple(value, "ids")
    # One pass in C for the usual case; the slow walk finds the bad one and its place.
    texts = cast("tuple[str, ...]", ids)
    if not set(map(type, ids)) <= {str} or "" in ids or not _is_clean("".join(texts)):
        for index, id_ in enumerate(ids):
            check_text(id_, f"[{index}]")
    return texts


def _is_clean(text: str) -> bool:
    return text.isascii() or is_encodable(text)


def _check_some_records(value: object) -> tuple[MemoryRecord, ...]:
    records = as_tuple(value, "MemoryRecord")
    _check_item_count(len(records), "records")
    if not set(map(type, records)) <= {MemoryRecord}:
        for index, record in enumerate(records):
            if not isinstance(record, MemoryRecord):
                raise ContractError(
                    f"expected MemoryRecord, got {type_name(record)}",
                    where=f"[{index}]",
                    reason=Reason.WRONG_TYPE,
                )
    return cast("tuple[MemoryRecord, ...]", records)


def _check_item_count(count: int, of: str) -> None:
    if count > REQUEST_ITEMS_MAX:
        raise ContractError(
            f"expected at most {REQUEST_ITEMS_MAX} {of} in one request, got {count}",
            reason=Reason.TOO_LARGE,
        )


def _check_limit(value: object) -> int:
    limit = check_int(value)
    if not 1 <= limit <= SCAN_LIMIT_MAX:
        raise ContractError(
            f"expected 1 to {SCAN_LIMIT_MAX}, got {limit}; follow next_cursor for more",
            reason=Reason.OUT_OF_RANGE,
        )
    return limit


def _check_score(value: object) -> float:
    if isinstance(value, float) and value == value:
        return float(value)
    return check_float(value)


def _check_timestamps(value: object) -> Float64Array:
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype != FLOAT64:
        raise ContractError(
            f"expected float64 of shape (n,), got {array.dtype} of {array.shape}",
            reason=Reason.WRONG_TYPE,
        )
    return array


def _check_matrix(value: object) -> VectorArray:
    array = np.asarray(value)
    if array.shape == (0,):  # plain data of no rows has no second dimension
        return np.empty((0, 0), FLOAT64)
    if array.ndim != 2 or array.dtype not in (FLOAT32, FLOAT64):
        raise ContractError(
            f"expected float32 or float64 of shape (n, dim), got {array.dtype} of {array.shape}",
            reason=Reason.WRONG_TYPE,
        )
    return cast("VectorArray", array)


def _repeated(ids: list[str]) -> tuple[str, ...]:
    counts = Counter(ids)
    return tuple(id_ for id_, count in counts.items() if count > 1)


Namespace: TypeAlias = Annotated[tuple[str, ...], Rule(check_namespace)]
_Name: TypeAlias = Annotated[
    str, Rule(check_name, {"minLength": 1, "maxLength": ID_CHARACTERS_MAX})
]
_Ids: TypeAlias = Annotated[tuple[str, ...], Rule(_check_ids)]
_Records: TypeAlias = Annotated[tuple[MemoryRecord, ...], Rule(_check_some_records)]
_Limit: TypeAlias = Annotated[int, Rule(_check_limit, {"minimum": 1, "maximum": SCAN_LIMIT_MAX})]


class TimeRange(Model, frozen=True):
    """Timestamps from `start` on and before `end`; None = without bound on that side.

    >>> TimeRange(10, 30).contains(30)
    False
    """

    start: float | None = None
    end: float | None = None

    def _check(self) -> None:
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ContractError(
                f"expected start <= end, got {self.start} and {self.end}; swap them",
                where="start",
                reason=Reason.OUT_OF_RANGE,
                owner="TimeRange",
            )

    def contains(self, timestamp: float) -> bool:
        """Whether the timestamp lies in the range."""
        return (self.start is None or timestamp >= self.start) and (
            self.end is None or timestamp < self.end
        )


class _WriteOptions(Model, frozen=True, kw_only=True):
    """What every write request may carry besides.

    Attributes:
        event_id: Idempotency key, unique in the stream written to: a second write with it gives
            the first one's receipt.
        expected_revision: Revision the stream must have, or `Conflict`.
    """

    event_id: EventId | None = None
    expected_revision: Revision | None = None


class PutRequest(_WriteOptions, frozen=True):
    """Store new records, all or none, across namespaces."""

    records: _Records

    if TYPE_CHECKING:  # any sequence may be given; what is kept is a tuple

        def __init__(
            self,
            records: Sequence[MemoryRecord],
            *,
            event_id: str | None = None,
            expected_revision: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        records = self.records
        # One record and nothing else, as most puts are: there is nothing to convert.
        if (
            type(records) is tuple
            and len(records) == 1
            and type(records[0]) is MemoryRecord
            and self.event_id is None
            and self.expected_revision is None
            and type(self) is PutRequest
        ):
            return
        super().__post_init__()


class PutResult(Model, frozen=True):
    """How many records were written; the receipt if the backend keeps a log."""

    written: int
    receipt: Receipt | None = None


class GetRequest(Model, frozen=True):
    """Records by id; an id named twice counts once."""

    ids: _Ids
    namespace: Namespace = ()

    if TYPE_CHECKING:

        def __init__(self, ids: Sequence[str], namespace: Sequence[str] = ()) -> None: ...

    def __post_init__(self) -> None:
        ids = self.ids
        # A point read: plain values need no walk over the fields, which costs half of the read.
        if type(ids) is tuple and len(ids) == 1 and type(self) is GetRequest:
            id_ = ids[0]
            if type(id_) is str and id_.isascii() and id_ and is_plain_namespace(self.namespace):
                return
        super().__post_init__()


class GetResult(Model, frozen=True):
    """The records found, in the order asked for, and the ids that are not there."""

    records: _Records
    missing: tuple[str, ...] = ()


class DeleteRequest(_WriteOptions, frozen=True):
    """Delete records by id; an id named twice counts once."""

    ids: _Ids
    namespace: Namespace = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            ids: Sequence[str],
            namespace: Sequence[str] = (),
            *,
            event_id: str | None = None,
            expected_revision: int | None = None,
        ) -> None: ...


class DeleteResult(Model, frozen=True):
    """How many records were deleted, and the ids that were not there."""

    deleted: int
    missing: tuple[str, ...] = ()
    receipt: Receipt | None = None


class ScanRequest(Model, frozen=True):
    """One page of records, by timestamp, then write order.

    Attributes:
        time_range: None = all.
        namespace: Exactly this one, not those below it.
        limit: 1 to `SCAN_LIMIT_MAX` records.
        cursor: `next_cursor` of the page before; None = from the beginning.
    """

    time_range: TimeRange | None = None
    namespace: Namespace = ()
    limit: _Limit = SCAN_LIMIT_DEFAULT
    cursor: str | None = None

    def __post_init__(self) -> None:
        cursor = self.cursor
        # Plain values need no walk over the fields, which costs as much as a page of one.
        if (
            (cursor is None or (type(cursor) is str and cursor.isascii()))
            and self.time_range is None
            and type(self.limit) is int
            and 1 <= self.limit <= SCAN_LIMIT_MAX
            and is_plain_namespace(self.namespace)
            and type(self) is ScanRequest
        ):
            return
        super().__post_init__()


class ScanResult(Model, frozen=True):
    """One page, and the cursor of the next; None = there is no more."""

    records: _Records
    next_cursor: str | None = None


class CountRequest(Model, frozen=True):
    """How many records there are in a range."""

    time_range: TimeRange | None = None
    namespace: Namespace = ()


class CountResult(Model, frozen=True):
    """The number of records."""

    count: int


class MetaGetRequest(Model, frozen=True):
    """One value of a namespace's metadata."""

    key: _Name
    namespace: Namespace = ()


class MetaSetRequest(_WriteOptions, frozen=True):
    """Set one value of a namespace's metadata."""

    key: _Name
    value: JsonValue
    namespace: Namespace = ()


class MetaResult(Model, frozen=True):
    """The value, the caller's to change; None if there is none."""

    value: JsonValue
    receipt: Receipt | None = None


class ClearRequest(_WriteOptions, frozen=True):
    """Delete all records and metadata of one namespace."""

    namespace: Namespace = ()


class ClearResult(Model, frozen=True):
    """How many records were deleted."""

    deleted: int
    receipt: Receipt | None = None


class VectorBlock(Model, frozen=True):
    """Vectors of many records as one matrix, in scan order, without record objects.

    Attributes:
        ids: Record ids, one a row.
        timestamps: float64, shape (n,).
        matrix: float32 or float64, shape (n, dim), C-contiguous; the caller's to change.
    """

    ids: Annotated[tuple[str, ...], Rule(_check_row_ids)]
    timestamps: Annotated[Float64Array, Rule(_check_timestamps)]
    matrix: Annotated[VectorArray, Rule(_check_matrix)]

    def _check(self) -> None:
        if not len(self.ids) == len(self.timestamps) == len(self.matrix):
            raise ContractError(
                f"expected as many ids, timestamps and rows, got {len(self.ids)},"
                f" {len(self.timestamps)} and {len(self.matrix)}",
                reason=Reason.WRONG_DIMENSION,
                owner="VectorBlock",
            )

    def __len__(self) -> int:
        return len(self.ids)


class ScoredRecord(Model, frozen=True):
    """A record found by similarity; greater scores are nearer."""

    record: MemoryRecord
    score: Annotated[float, Rule(_check_score)]


def check_put(request: PutRequest) -> list[MemoryRecord]:
    """The records of a put as stored, with the rules that need no store.

    Raises:
        ContractError: A record breaks a rule, or a revision is expected of several namespaces.
        DuplicateRecord: An id is named twice in one namespace.
    """
    records = check_records(request.records)
    if len(records) <= 1:
        return records
    ids_of: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        ids_of.setdefault(record.namespace, []).append(record.note.id)
    for namespace, ids in ids_of.items():
        if len(set(ids)) != len(ids):
            raise DuplicateRecord(_repeated(ids), namespace, reason=Reason.RECORD_REPEATED)
    if request.expected_revision is not None and len(ids_of) > 1:
        raise ContractError(
            f"expected records of one namespace, got {len(ids_of)}: a revision is that of one"
            " stream; put each namespace on its own, or expect none",
            where="expected_revision",
            reason=Reason.UNSUPPORTED,
        )
    return records
