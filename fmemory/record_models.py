"""Records: a note with its vector, the requests and results of the eight record operations.

`Note` and `MemoryRecord` are bare structs, because scans build them by the million: their
constructors check nothing. `Note.create`, `MemoryRecord.create` and every `put` check them;
`check_records` is that check, shared by all backends. Everything else checks itself when built.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from fmemory._json_values import (
    JsonObject,
    JsonValue,
    check_json_object,
    check_text,
    copy_json_object,
    is_json_object,
    type_name,
)
from fmemory._model import (
    Model,
    Rule,
    as_tuple,
    check_float,
    check_int,
    check_keys,
    equal_values,
    from_json_text,
    schema_of,
    to_json_text,
)
from fmemory._receipt import EventId, Receipt, Revision
from fmemory.errors import ContractError, DuplicateRecord, Reason, brief
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

ID_CHARACTERS_MAX = 4096
"""Longest id, key or namespace label."""
NAMESPACE_LABELS_MAX = 32
REQUEST_ITEMS_MAX = 1_000_000
"""Most records or ids in one request."""
SCAN_LIMIT_DEFAULT = 500
SCAN_LIMIT_MAX = 100_000
"""Most records in one page; follow cursors (`iter_all`) for more."""
VECTOR_DIM_MAX = 1_048_576

VectorLike: TypeAlias = VectorArray | Sequence[float] | npt.NDArray[np.integer]
"""A vector as callers have it; what is stored is float32 or float64."""
Metric: TypeAlias = Literal["cosine", "dot", "euclidean"]

_FLOAT32 = np.dtype("<f4")
_FLOAT64 = np.dtype("<f8")
_INFINITY = float("inf")
_INT_EXACT_MAX = 2**53


class Note(msgspec.Struct, frozen=True, gc=False):
    """A timestamped text. The constructor checks nothing: use `Note.create`, or let `put` check.

    Attributes:
        id: Non-empty, unique in its namespace.
        text: Any text that UTF-8 can carry; may be empty.
        timestamp: When, in whatever unit the caller counts; finite. Scans are ordered by it.
        metadata: JSON values under str keys.

    >>> Note("n1", "tea at four", 16.0, {"by": "ada"}).to_json()
    '{"id":"n1","text":"tea at four","timestamp":16.0,"metadata":{"by":"ada"}}'
    """

    id: str
    text: str
    timestamp: float
    metadata: JsonObject

    @classmethod
    def create(
        cls,
        text: str,
        *,
        timestamp: float | None = None,
        metadata: JsonObject | None = None,
        id: str | None = None,  # noqa: A002 - the field's name
    ) -> Self:
        """A checked note; what is not given is filled in.

        Args:
            text: Any text that UTF-8 can carry.
            timestamp: Finite; None = now, in Unix seconds.
            metadata: Copied; None = empty.
            id: Non-empty; None = 32 random hexadecimal digits.

        Raises:
            ContractError: A value breaks a rule.

        >>> Note.create("tea at four", timestamp=16, id="n1")
        Note(id='n1', text='tea at four', timestamp=16.0, metadata={})
        """
        note = cls(
            uuid.uuid4().hex if id is None else id,
            text,
            time.time() if timestamp is None else timestamp,
            {} if metadata is None else metadata,
        )
        checked = _check_note(note)
        return cls(checked.id, checked.text, checked.timestamp, copy_json_object(checked.metadata))

    def to_dict(self) -> JsonObject:
        """Plain JSON data: `id, text, timestamp, metadata`; the metadata is the note's own."""
        return {
            "id": self.id,
            "text": self.text,
            "timestamp": self.timestamp,
            "metadata": self.metadata,
        }

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """The checked note of plain data as `to_dict` gives it; metadata may be absent.

        Raises:
            ContractError: A field is unknown, missing or breaks a rule; `where` is its path.
        """
        fields = check_keys(data, cls.__struct_fields__, ("metadata",), owner=cls.__name__)
        note = cls(
            cast("str", fields["id"]),
            cast("str", fields["text"]),
            cast("float", fields["timestamp"]),
            cast("JsonObject", fields.get("metadata", {})),
        )
        checked = _check_note(note)
        return cls(checked.id, checked.text, checked.timestamp, copy_json_object(checked.metadata))

    def to_json(self) -> str:
        """JSON text of `to_dict`."""
        return to_json_text(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The checked note of JSON text as `to_json` gives it.

        Raises:
            ContractError: Not JSON, or as `from_dict`.
        """
        return cls.from_dict(from_json_text(text, owner=cls.__name__))

    @classmethod
    def json_schema(cls) -> JsonObject:
        """A JSON Schema of what `to_dict` gives."""
        return schema_of(cls)


class MemoryRecord(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A note with its vector. The constructor checks nothing: use `create`, or let `put` check.

    A vector that came from a scan is a view of its page's matrix: keeping one record keeps the
    page's vectors in memory. It is the caller's to change.

    Attributes:
        note: The note.
        vector: float32 or float64, shape (dim,), finite; dim 0 = no embedding.
        embedding_id: Which model made the vector; None = unknown.
        namespace: Whose record it is; labels compared one by one, () = the root.
    """

    note: Note
    vector: VectorArray
    embedding_id: str | None = None
    namespace: tuple[str, ...] = ()

    @classmethod
    def create(
        cls,
        note: Note,
        vector: VectorLike = (),
        embedding_id: str | None = None,
        namespace: Sequence[str] = (),
    ) -> Self:
        """A checked record with a vector of its own, converted to float64 unless float32.

        Raises:
            ContractError: A value breaks a rule.

        >>> MemoryRecord.create(Note("n1", "tea", 16.0, {}), [1, 0]).vector
        array([1., 0.])
        """
        checked = check_record(
            MemoryRecord(
                note, cast("VectorArray", vector), embedding_id, cast("tuple[str, ...]", namespace)
            )
        )
        own = checked.note
        return cls(
            Note(own.id, own.text, own.timestamp, copy_json_object(own.metadata)),
            checked.vector.copy(),
            checked.embedding_id,
            checked.namespace,
        )

    @property
    def id(self) -> str:
        """The note's id."""
        return self.note.id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryRecord):
            return NotImplemented
        return (
            self.note == other.note
            and self.embedding_id == other.embedding_id
            and self.namespace == other.namespace
            and equal_values(self.vector, other.vector)
        )

    __hash__ = None  # type: ignore[assignment]  # metadata and vectors can change

    def to_dict(self) -> JsonObject:
        """Plain JSON data: `note, vector, embedding_id, namespace`.

        Plain data has no dtype: `from_dict` gives float64, of exactly the same values.
        """
        return {
            "note": self.note.to_dict(),
            "vector": cast("JsonValue", self.vector.tolist()),
            "embedding_id": self.embedding_id,
            "namespace": list(self.namespace),
        }

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """The checked record of plain data as `to_dict` gives it.

        Raises:
            ContractError: A field is unknown, missing or breaks a rule; `where` is its path.
        """
        fields = check_keys(
            data, cls.__struct_fields__, ("embedding_id", "namespace"), owner=cls.__name__
        )
        try:
            note = Note.from_dict(fields["note"])
        except ContractError as error:
            raise error.within("note", owner=cls.__name__) from None
        return cls.create(
            note,
            cast("VectorLike", fields["vector"]),
            cast("str | None", fields.get("embedding_id")),
            cast("Sequence[str]", fields.get("namespace", ())),
        )

    def to_json(self) -> str:
        """JSON text of `to_dict`; every number comes back as it was."""
        return to_json_text(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The checked record of JSON text as `to_json` gives it.

        Raises:
            ContractError: Not JSON, or as `from_dict`.
        """
        return cls.from_dict(from_json_text(text, owner=cls.__name__))

    @classmethod
    def json_schema(cls) -> JsonObject:
        """A JSON Schema of what `to_dict` gives."""
        return schema_of(cls)


# ------------------------------------------------------------------ checks


def check_namespace(value: object, where: str = "") -> tuple[str, ...]:
    """The labels as a tuple. The first is not empty, the others may be; () is the root.

    Raises:
        ContractError: Not a sequence of str, an empty first label, or too many or too long ones.
    """
    if value == ():
        return ()
    try:
        labels = as_tuple(value, "str labels")
        for index, label in enumerate(labels):
            _check_name(label, f"[{index}]", empty=index > 0)
    except ContractError as error:
        raise error.within(where) from None
    if len(labels) > NAMESPACE_LABELS_MAX:
        raise ContractError(
            f"expected at most {NAMESPACE_LABELS_MAX} labels, got {len(labels)}",
            where=where,
            reason=Reason.TOO_LARGE,
        )
    return cast("tuple[str, ...]", labels)


def check_vector(value: object, where: str = "") -> VectorArray:
    """The vector as stored: little-endian float32 or float64, shape (dim,), C-contiguous, finite.

    Args:
        value: A one-dimensional array or sequence of numbers. float32 and float64 are kept, all
            else becomes float64. May be returned itself: copy it to keep it.
        where: Path for the error.

    Raises:
        ContractError: Another shape, not numbers, not finite, or longer than `VECTOR_DIM_MAX`.

    >>> check_vector([1, 2])
    array([1., 2.])
    """
    array = _numbers(value, where)
    if array.ndim != 1:
        raise ContractError(
            f"expected one dimension, got shape {array.shape}; put one record a row",
            where=where,
            reason=Reason.WRONG_DIMENSION,
        )
    if len(array) > VECTOR_DIM_MAX:
        raise ContractError(
            f"expected at most {VECTOR_DIM_MAX} numbers, got {len(array)}",
            where=where,
            reason=Reason.TOO_LARGE,
        )
    finite = np.isfinite(array)
    if not finite.all():
        index = int(np.argmin(finite))
        raise ContractError(
            f"expected finite numbers, got {array[index]}",
            where=f"{where}[{index}]",
            reason=Reason.NOT_FINITE,
        )
    if not len(array):
        return np.empty(0, _FLOAT64)
    return np.ascontiguousarray(array)


def check_record(record: object, where: str = "") -> MemoryRecord:
    """The record as stored: checked, with float timestamp, tuple namespace and a clean vector.

    Nothing is copied that need not be converted: encode it before the caller can change it.

    Raises:
        ContractError: A value breaks a rule; `where` is its path.
    """
    if not isinstance(record, MemoryRecord):
        raise ContractError(
            f"expected MemoryRecord, got {type_name(record)}",
            where=where,
            reason=Reason.WRONG_TYPE,
        )
    try:
        note = _check_note(record.note, "note")
        vector = check_vector(record.vector, "vector")
        embedding_id = record.embedding_id
        if embedding_id is not None:
            _check_name(embedding_id, "embedding_id")
        namespace = check_namespace(record.namespace, "namespace")
    except ContractError as error:
        raise error.within(where) if where else error from None
    return MemoryRecord(note, vector, embedding_id, namespace)


def check_records(records: Iterable[object], where: str = "records") -> list[MemoryRecord]:
    """All records as stored, in order: those that need no conversion are returned themselves.

    Raises:
        ContractError: A value breaks a rule; `where` is its path, such as `records[3].note.id`.

    Cost: about 1.5 µs a record of 384 numbers and small metadata.
    """
    checked: list[MemoryRecord] = []
    namespace: object = ()
    embedding_id: object = None
    # An overflow of v.dot(v) is expected, and answered below by the slower check.
    with np.errstate(all="ignore"):
        for record in records:
            if (
                type(record) is MemoryRecord
                and _is_plain_note(record.note)
                and _is_plain_vector(record.vector)
            ):
                if record.namespace is not namespace:
                    namespace = check_namespace(
                        record.namespace, f"{where}[{len(checked)}].namespace"
                    )
                if record.embedding_id is not embedding_id:
                    embedding_id = record.embedding_id
                    if embedding_id is not None:
                        _check_name(embedding_id, f"{where}[{len(checked)}].embedding_id")
                if record.namespace is namespace:
                    checked.append(record)
                    continue
            checked.append(check_record(record, f"{where}[{len(checked)}]"))
    return checked


def check_put(request: PutRequest) -> list[MemoryRecord]:
    """The records of a put as stored, with the rules that need no store.

    Raises:
        ContractError: A record breaks a rule, or a revision is expected of several namespaces.
        DuplicateRecord: An id is named twice in one namespace.
    """
    records = check_records(request.records)
    if not records:
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


def _check_ids(value: object) -> tuple[str, ...]:
    ids = as_tuple(value, "ids")
    _check_item_count(len(ids), "ids")
    # One pass in C for the usual case; the slow walk finds the bad one and its place.
    texts = cast("tuple[str, ...]", ids)
    if not set(map(type, ids)) <= {str} or "" in ids or not _is_clean("".join(texts)):
        for index, id_ in enumerate(ids):
            check_text(id_, f"[{index}]")
    return texts


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
    if array.ndim != 1 or array.dtype != _FLOAT64:
        raise ContractError(
            f"expected float64 of shape (n,), got {array.dtype} of {array.shape}",
            reason=Reason.WRONG_TYPE,
        )
    return array


def _check_matrix(value: object) -> VectorArray:
    array = np.asarray(value)
    if array.ndim != 2 or array.dtype not in (_FLOAT32, _FLOAT64):
        raise ContractError(
            f"expected float32 or float64 of shape (n, dim), got {array.dtype} of {array.shape}",
            reason=Reason.WRONG_TYPE,
        )
    return cast("VectorArray", array)


def _check_name(value: object, where: str = "", *, empty: bool = False) -> str:
    name = check_text(value, where, empty=empty)
    if len(name) > ID_CHARACTERS_MAX:
        raise ContractError(
            f"expected at most {ID_CHARACTERS_MAX} characters, got {len(name)}",
            where=where,
            reason=Reason.TOO_LARGE,
        )
    return name


def _check_note(note: object, where: str = "") -> Note:
    if not isinstance(note, Note):
        raise ContractError(
            f"expected Note, got {type_name(note)}", where=where, reason=Reason.WRONG_TYPE
        )
    try:
        _check_name(note.id, "id")
        check_text(note.text, "text", empty=True)
        check_json_object(note.metadata, "metadata")
        timestamp = _check_timestamp(note.timestamp)
    except ContractError as error:
        raise error.within(where) if where else error from None
    if type(note) is Note and timestamp is note.timestamp:
        return note
    return Note(note.id, note.text, timestamp, note.metadata)


def _check_timestamp(value: object) -> float:
    try:
        return (
            value if type(value) is float and -_INFINITY < value < _INFINITY else check_float(value)
        )
    except ContractError as error:
        raise error.within("timestamp") from None


def _is_plain_note(note: object) -> bool:
    """Whether the note can be stored without any conversion."""
    if type(note) is not Note:
        return False
    id_, text, timestamp = note.id, note.text, note.timestamp
    return (
        type(id_) is str
        and 0 < len(id_) <= ID_CHARACTERS_MAX
        and (id_.isascii() or _is_clean(id_))
        and type(text) is str
        and (text.isascii() or _is_clean(text))
        and type(timestamp) is float
        and -_INFINITY < timestamp < _INFINITY
        and is_json_object(note.metadata)
    )


def _is_plain_vector(vector: object) -> bool:
    """Whether the vector can be stored without any conversion."""
    if type(vector) is not np.ndarray:
        return False
    dtype = vector.dtype
    return (
        (dtype is _FLOAT64 or dtype is _FLOAT32)
        and vector.ndim == 1
        and 0 < len(vector) <= VECTOR_DIM_MAX
        and vector.flags.c_contiguous
        and bool(vector.dot(vector) < _INFINITY)
    )


def _is_clean(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _numbers(value: object, where: str) -> VectorArray:
    """Any sequence of numbers as native float32 or float64, of whatever shape."""
    if isinstance(value, np.ma.MaskedArray):
        raise _not_numbers("a masked array, which has missing values", where)
    is_array = isinstance(value, np.ndarray)
    array = cast("VectorArray", np.asarray(value) if is_array else _array_of_sequence(value, where))
    if array.dtype == _FLOAT32:
        return array.astype(_FLOAT32, copy=False)
    if array.dtype == _FLOAT64:
        return array.astype(_FLOAT64, copy=False)
    if not array.size and array.ndim == 1:
        return np.empty(0, _FLOAT64)
    if array.dtype.kind not in "fiu":
        raise _not_numbers(f"dtype {array.dtype}", where)
    if array.dtype.kind in "iu" and array.ndim == 1:
        beyond = (array > _INT_EXACT_MAX) | (array < -_INT_EXACT_MAX)
        if beyond.any():
            index = int(np.argmax(beyond))
            raise ContractError(
                f"expected numbers that float64 holds exactly, got {array[index]}",
                where=f"{where}[{index}]",
                reason=Reason.NOT_EXACT,
            )
    with np.errstate(all="ignore"):
        return array.astype(_FLOAT64)


def _array_of_sequence(value: object, where: str) -> npt.NDArray[np.generic]:
    try:
        items = as_tuple(value, "numbers")
    except ContractError as error:
        raise error.within(where) from None
    for index, item in enumerate(items):
        if isinstance(item, (bool, np.bool_, str, bytes)) or item is None:
            raise ContractError(
                f"expected a number, got {brief(item)}",
                where=f"{where}[{index}]",
                reason=Reason.WRONG_TYPE,
            )
    try:
        return np.array(items)
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_numbers(f"a sequence numpy refuses ({error})", where) from None


def _not_numbers(got: str, where: str) -> ContractError:
    return ContractError(
        f"expected a one-dimensional array of numbers, got {got}",
        where=where,
        reason=Reason.WRONG_TYPE,
    )


def _repeated(ids: list[str]) -> tuple[str, ...]:
    counts = Counter(ids)
    return tuple(id_ for id_, count in counts.items() if count > 1)


Namespace: TypeAlias = Annotated[tuple[str, ...], Rule(check_namespace)]
_Name: TypeAlias = Annotated[str, Rule(_check_name)]
_Ids: TypeAlias = Annotated[tuple[str, ...], Rule(_check_ids)]
_Records: TypeAlias = Annotated[tuple[MemoryRecord, ...], Rule(_check_some_records)]
_Limit: TypeAlias = Annotated[int, Rule(_check_limit), msgspec.Meta(ge=1, le=SCAN_LIMIT_MAX)]


# ------------------------------------------------------------------ requests and results


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


class PutResult(Model, frozen=True):
    """How many records were written; the receipt if the backend keeps a log."""

    written: int
    receipt: Receipt | None = None


class GetRequest(Model, frozen=True):
    """Records by id; an id named twice counts once."""

    ids: _Ids
    namespace: Namespace = ()


class GetResult(Model, frozen=True):
    """The records found, in the order asked for, and the ids that are not there."""

    records: _Records
    missing: tuple[str, ...] = ()


class DeleteRequest(_WriteOptions, frozen=True):
    """Delete records by id; an id named twice counts once."""

    ids: _Ids
    namespace: Namespace = ()


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

    ids: _Ids
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
