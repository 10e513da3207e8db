"""The base of all models: frozen structs that check themselves and convert to plain data and back.

msgspec's constructors check nothing, so `Model` does: every field is checked against its
annotation when an instance is built, by constructor or from plain data alike, and errors name the
path. What is kept is never the caller's: sequences become tuples, JSON values are copied, times
become UTC. `Note` and `MemoryRecord` are not Models, because scans build them by the million.
"""

from __future__ import annotations

import base64
import functools
import json
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from fmemory._checks import (
    as_tuple,
    build_bytes,
    check_float,
    check_int,
    check_keys,
    check_time,
)
from fmemory._fields import Rule, fields_of, reference_to, struct_schema
from fmemory._json_values import JsonObject, JsonValue, type_name
from fmemory.errors import ContractError, Reason, brief

__all__ = [
    "SCHEMA_DIALECT",
    "Model",
    "Plain",
    "Rule",
    "as_tuple",
    "build_bytes",
    "check_float",
    "check_int",
    "check_keys",
    "check_time",
    "equal_values",
    "from_json_text",
    "plain_of",
    "schema_of",
    "to_json_text",
]

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Plain(Protocol):
    """What can be turned into plain JSON data."""

    def to_dict(self) -> JsonObject: ...


class Model(msgspec.Struct, frozen=True, eq=False):
    """A frozen value that is checked when built, and compared by value, arrays with their dtype."""

    def __post_init__(self) -> None:
        for name, field in fields_of(type(self)):
            value = getattr(self, name)
            if type(value) in field.as_is:
                continue
            try:
                kept = field.check(value)
            except ContractError as error:
                raise error.within(name, owner=type(self).__name__) from None
            if kept is not value:
                force_setattr(self, name, kept)
        self._check()

    def _check(self) -> None:
        """For subclasses: rules between fields. All fields have been checked."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            equal_values(getattr(self, name), getattr(other, name))
            for name in self.__struct_fields__
        )

    def __ne__(self, other: object) -> bool:
        # msgspec has one of its own, which would compare identities.
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.__struct_fields__)))

    def to_dict(self) -> JsonObject:
        """Plain JSON data of the value: dicts, lists, str, numbers, None; times as RFC 3339."""
        return {
            name: cast("JsonValue", plain_of(getattr(self, name)))
            for name in self.__struct_fields__
        }

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """The value of plain data as `to_dict` gives it.

        Raises:
            ContractError: Not a dict, an unknown or missing field, or a value that breaks a rule;
                `where` is its path.
        """
        fields = dict(fields_of(cls))
        optional = _optional_fields(cls)
        checked = check_keys(data, fields, optional, owner=cls.__name__)
        built: dict[str, Any] = {}
        for name, value in checked.items():
            try:
                built[name] = fields[name].build(value)
            except ContractError as error:
                raise error.within(name, owner=cls.__name__) from None
        return cls(**built)

    def to_json(self) -> str:
        """JSON text of `to_dict`; every number comes back as it was."""
        return to_json_text(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The value of JSON text as `to_json` gives it.

        Raises:
            ContractError: Not JSON (NaN, infinity and repeated keys are not), or as `from_dict`.
        """
        return cls.from_dict(from_json_text(text, owner=cls.__name__))

    @classmethod
    def json_schema(cls) -> JsonObject:
        """A JSON Schema of what `to_dict` gives.

        Raises:
            ContractError: A subclass has a field that JSON Schema cannot describe.
        """
        return schema_of(cls)

    @classmethod
    def _schema(cls, defs: JsonObject) -> JsonObject:
        """The schema of one instance; `defs` takes those of the classes in it."""
        return struct_schema(cls, defs)


@functools.cache
def _optional_fields(cls: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple([field.name for field in msgspec.structs.fields(cls) if not field.required])


def equal_values(one: object, other: object) -> bool:
    """Equality that knows arrays: same dtype, shape and values."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return (
            isinstance(one, np.ndarray)
            and isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and np.array_equal(one, other)
        )
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(equal_values, one, other))
    return one == other


def plain_of(value: object) -> object:
    """Plain JSON data of a field's value."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)):
        return [plain_of(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_of(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    return cast("Plain", value).to_dict()


def to_json_text(value: Plain) -> str:
    """JSON text of `value.to_dict()`."""
    return msgspec.json.encode(value.to_dict()).decode()


def from_json_text(text: object, *, owner: str = "") -> object:
    """The data of JSON text, strictly: no NaN, no infinity, no key twice.

    Raises:
        ContractError: It is not such text.
    """
    if not isinstance(text, (str, bytes)):
        raise ContractError(
            f"expected JSON text, got {type_name(text)}", reason=Reason.WRONG_TYPE, owner=owner
        )
    try:
        return json.loads(text, object_pairs_hook=_strict_object, parse_constant=_refuse_constant)
    except RecursionError:
        problem = "expected JSON text, got too many lists and dicts inside one another"
    except ContractError as error:
        raise error.within("", owner=owner) from None
    except ValueError as error:  # bad syntax, or bytes that are not UTF-8
        problem = f"expected JSON text: {error}"
    raise ContractError(problem, reason=Reason.NOT_JSON, owner=owner)


def schema_of(kind: type[msgspec.Struct]) -> JsonObject:
    """A JSON Schema of what `kind.to_dict` gives.

    Raises:
        ContractError: A field has a type that JSON Schema cannot describe.
    """
    defs: JsonObject = {}
    try:
        reference = reference_to(kind, defs)
    except TypeError as error:
        raise ContractError(
            f"expected fields that JSON Schema can describe: {error}",
            reason=Reason.UNSUPPORTED,
            owner=kind.__name__,
        ) from error
    return {"$schema": SCHEMA_DIALECT, **reference, "$defs": defs}


def _strict_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    built = dict(pairs)
    if len(built) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ContractError(
                    f"expected every key once, got {brief(key)} twice", reason=Reason.NOT_JSON
                )
            seen.add(key)
    return built


def _refuse_constant(text: str) -> object:
    raise ContractError(f"expected a finite number, got {text}", reason=Reason.NOT_FINITE)


if TYPE_CHECKING:
    _proof: type[Plain] = Model
