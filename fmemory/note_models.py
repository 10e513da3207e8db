"""Notes and records: bare structs, because scans build them by the million.

Their constructors check nothing. `Note.create`, `MemoryRecord.create` and every `put` do;
`check_records` is that check, shared by all backends.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Self, cast

import msgspec

from fmemory._json_values import (
    JsonObject,
    JsonValue,
    check_json_object,
    check_text,
    copy_json_object,
    is_encodable,
    is_json_object,
    type_name,
)
from fmemory._model import (
    check_float,
    check_keys,
    equal_values,
    from_json_text,
    schema_of,
    to_json_text,
)
from fmemory._names import ID_CHARACTERS_MAX, check_name, check_namespace
from fmemory._vectors import VectorLike, are_finite, check_vector, is_plain_vector
from fmemory.errors import ContractError, Reason
from fmemory_segments.event import VectorArray

__all__ = ["MemoryRecord", "Note", "check_record", "check_records"]

_FINITE_CHUNK_VECTORS = 128
_INFINITY = float("inf")


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
        vector: float32 or float64, shape (dim,), finite; dim 0 = no embedding, which is always
            stored and given back as float64.
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

    def __ne__(self, other: object) -> bool:
        # msgspec has one of its own, which would compare identities.
        return not self == other

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
            check_name(embedding_id, "embedding_id")
        namespace = check_namespace(record.namespace, "namespace")
    except ContractError as error:
        raise error.within(where) if where else error from None
    return MemoryRecord(note, vector, embedding_id, namespace)


def check_records(records: Iterable[object], where: str = "records") -> list[MemoryRecord]:
    """All records as stored, in order: those that need no conversion are returned themselves.

    Raises:
        ContractError: A value breaks a rule; `where` is its path, such as `records[3].note.id`.

    Cost: about 2 µs a record of 384 numbers and small metadata.
    """
    checked: list[MemoryRecord] = []
    vectors: list[VectorArray] = []
    namespace: object = ()
    embedding_id: object = None
    for record in records:
        if (
            type(record) is MemoryRecord
            and _is_plain_note(record.note)
            and is_plain_vector(record.vector)
        ):
            # Records of one call mostly share these two objects.
            if record.namespace is not namespace:
                namespace = check_namespace(record.namespace, f"{where}[{len(checked)}].namespace")
            if record.embedding_id is not embedding_id:
                embedding_id = record.embedding_id
                if embedding_id is not None:
                    check_name(embedding_id, f"{where}[{len(checked)}].embedding_id")
            if record.namespace is namespace:
                checked.append(record)
                vectors.append(record.vector)
                continue
        checked.append(check_record(record, f"{where}[{len(checked)}]"))
        vectors.append(checked[-1].vector)
    for start in range(0, len(vectors), _FINITE_CHUNK_VECTORS):
        if not are_finite(vectors[start : start + _FINITE_CHUNK_VECTORS]):
            for index, vector in enumerate(vectors):
                check_vector(vector, f"{where}[{index}].vector")
    return checked


def _check_note(note: object, where: str = "") -> Note:
    if not isinstance(note, Note):
        raise ContractError(
            f"expected Note, got {type_name(note)}", where=where, reason=Reason.WRONG_TYPE
        )
    try:
        check_name(note.id, "id")
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
        if value is None:
            error = ContractError(
                f"{error.problem}: use Note.create, which takes the time of now",
                reason=error.reason,
            )
        raise error.within("timestamp") from None


def _is_plain_note(note: object) -> bool:
    """Whether the note can be stored without any conversion."""
    if type(note) is not Note:
        return False
    id_, text, timestamp = note.id, note.text, note.timestamp
    return (
        type(id_) is str
        and 0 < len(id_) <= ID_CHARACTERS_MAX
        and (id_.isascii() or is_encodable(id_))
        and type(text) is str
        and (text.isascii() or is_encodable(text))
        and type(timestamp) is float
        and -_INFINITY < timestamp < _INFINITY
        and is_json_object(note.metadata)
    )
