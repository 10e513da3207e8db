"""The base of all models: frozen structs that check themselves and convert to plain data and back.

msgspec's constructors check nothing, so `Model` does: every field is checked against its
annotation when an instance is built, by constructor or from plain data alike, and errors name the
path. What is kept is never the caller's: sequences become tuples, JSON values are copied, times
become UTC. `Note` and `MemoryRecord` are not Models, because scans build them by the million.

Annotations understood: str, int, float, bool, datetime, bytes, enums, Models, JsonValue,
JsonObject, `tuple[X, ...]`, numpy arrays, unions of these, and `Annotated[X, Rule(...)]`.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, Self, TypeVar, cast

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from fmemory._json_values import (
    INT_MAX,
    INT_MIN,
    JsonObject,
    JsonValue,
    check_text,
    copy_json,
    copy_json_object,
    type_name,
)
from fmemory.errors import ContractError, Reason, brief

__all__ = [
    "Field",
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

M = TypeVar("M")


class Plain(Protocol):
    """What can be turned into plain JSON data."""

    def to_dict(self) -> JsonObject: ...


class Rule:
    """A check beyond the type: `Annotated[str, Rule(check_id)]`.

    Args:
        check: Takes the value and returns it, in the form that is kept, or raises ContractError
            with a path relative to the value.
    """

    __slots__ = ("check",)

    def __init__(self, check: Callable[[object], object]) -> None:
        self.check = check


class Model(msgspec.Struct, frozen=True, eq=False):
    """A frozen value that is checked when built, and compared by value, arrays with their dtype."""

    def __post_init__(self) -> None:
        for name, field in _fields(type(self)):
            value = getattr(self, name)
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
        fields = dict(_fields(cls))
        optional = [field.name for field in msgspec.structs.fields(cls) if not field.required]
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


class Field:
    """One annotation, compiled: checks a given value, or builds one from plain data.

    Attributes:
        check: Takes a Python value, returns what is kept.
        build: Takes plain JSON data, returns what `check` takes.
    """

    __slots__ = ("build", "check")

    def __init__(
        self,
        check: Callable[[object], object],
        build: Callable[[object], object] | None = None,
    ) -> None:
        self.check = check
        self.build = _unchanged if build is None else build


# ------------------------------------------------------------------ checks of single values


def check_int(value: object) -> int:
    """The value, when it is an int of 64 bit; bool is not a number.

    Raises:
        ContractError: It is not.
    """
    if type(value) is not int:
        raise _wrong_type("int", value)
    if not INT_MIN <= value <= INT_MAX:
        raise ContractError(
            f"expected an int from -2**63 to 2**64 - 1, got {brief(value)}",
            reason=Reason.OUT_OF_RANGE,
        )
    return value


def check_float(value: object) -> float:
    """The value as float, when it is a finite number that float64 holds exactly.

    Raises:
        ContractError: It is not; bool is not a number.
    """
    if isinstance(value, float):
        number = float(value)
    elif type(value) is int:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if number != value:
            raise ContractError(
                f"expected a number that float64 holds exactly, got {brief(value)}",
                reason=Reason.NOT_EXACT,
            )
    else:
        raise _wrong_type("a number", value)
    if not math.isfinite(number):
        raise ContractError(f"expected a finite number, got {number}", reason=Reason.NOT_FINITE)
    return number


def check_time(value: object) -> datetime:
    """The time in UTC, when it knows its offset.

    Raises:
        ContractError: Not a datetime, a naive one, or beyond the years 1 to 9999 in UTC.
    """
    if type(value) is not datetime:
        raise _wrong_type("datetime", value)
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise ContractError(
            f"expected a time with its offset, got the naive {value.isoformat()}: use"
            " datetime.now(UTC), or value.replace(tzinfo=UTC) if it is UTC",
            reason=Reason.NAIVE_TIME,
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ContractError(
            f"expected a time of the years 1 to 9999 in UTC, got {value.isoformat()}",
            reason=Reason.OUT_OF_RANGE,
        ) from None


def as_tuple(value: object, of: str) -> tuple[object, ...]:
    """The items of a sequence; text, bytes, sets and iterators are none.

    Raises:
        ContractError: It is not one.
    """
    if type(value) is tuple:
        return value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        return tuple(value)
    hint = ": put it into a tuple" if isinstance(value, str) else ""
    if isinstance(value, (set, frozenset)) or inspect.isgenerator(value):
        hint = ": use a list or tuple, which have an order and a length"
    raise ContractError(
        f"expected a sequence of {of}, got {type_name(value)}{hint}", reason=Reason.WRONG_TYPE
    )


def check_keys(
    data: object, names: Iterable[str], optional: Iterable[str] = (), *, owner: str = ""
) -> dict[str, object]:
    """The dict itself, when its keys are the named ones; the optional ones may be absent.

    Raises:
        ContractError: Not a dict, an unknown key, or one that is missing.
    """
    if type(data) is not dict:
        raise ContractError(
            f"expected a dict, got {type_name(data)}", reason=Reason.WRONG_TYPE, owner=owner
        )
    known = tuple(names)
    for key in data:
        if key not in known:
            raise ContractError(
                f"expected only {', '.join(known)}, got the key {brief(key)}",
                reason=Reason.UNKNOWN_FIELD,
                owner=owner,
            )
    for name in known:
        if name not in data and name not in optional:
            raise ContractError(
                "expected a value, got none", where=name, reason=Reason.MISSING_FIELD, owner=owner
            )
    return cast("dict[str, object]", data)


def build_bytes(value: object) -> bytes:
    """The bytes of base64 text; bytes are taken as they are.

    Raises:
        ContractError: Neither.
    """
    if isinstance(value, bytes):
        return value
    if type(value) is not str:
        raise _wrong_type("base64 text", value)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ContractError(f"expected base64 text: {error}", reason=Reason.BAD_VALUE) from None


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


# ------------------------------------------------------------------ plain data, text and schema


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


def schema_of(kind: type[object]) -> JsonObject:
    """A JSON Schema of what `kind.to_dict` gives.

    Raises:
        ContractError: A field has a type that JSON Schema cannot describe.
    """
    try:
        return cast("JsonObject", msgspec.json.schema(kind, schema_hook=_array_schema))
    except (TypeError, NotImplementedError) as error:
        raise ContractError(
            f"expected fields that JSON Schema can describe: {error}",
            reason=Reason.UNSUPPORTED,
            owner=kind.__name__,
        ) from error


# ------------------------------------------------------------------ compiling annotations


@functools.cache
def _fields(cls: type[Model]) -> tuple[tuple[str, Field], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple((name, _compile(hints[name])) for name in cls.__struct_fields__)


def _compile(annotation: object) -> Field:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _compile_annotated(annotation)
    if origin in (typing.Union, types.UnionType):
        options = sorted(typing.get_args(annotation), key=lambda option: option is Any)
        return _compile_union([_compile_option(option) for option in options])
    if origin is tuple:
        return _compile_tuple(typing.get_args(annotation)[0])
    if annotation is Any:
        return Field(copy_json)
    if annotation == JsonObject:
        return Field(copy_json_object)
    if origin is np.ndarray:
        return Field(_check_array, _build_array)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if isinstance(annotation, type):
        return _compile_class(annotation)
    raise TypeError(f"models cannot have fields of type {annotation!r}")


def _compile_annotated(annotation: object) -> Field:
    inner, *extras = typing.get_args(annotation)
    rules = [extra.check for extra in extras if isinstance(extra, Rule)]
    if not rules:
        return _compile(inner)
    return Field(rules[0], _compile(inner).build)


def _compile_class(kind: type[Any]) -> Field:
    if issubclass(kind, Enum):
        return Field(functools.partial(_check_enum, kind), None)
    build = getattr(kind, "from_dict", None)

    def check(value: object) -> object:
        if not isinstance(value, kind):
            raise _wrong_type(kind.__name__, value)
        return value

    return Field(check, build)


def _compile_option(option: object) -> tuple[Callable[[object], bool], Field]:
    """For a union: does a value belong to this option, and its field."""
    if option is type(None):
        return _is_none, Field(_unchanged)
    inner = typing.get_args(option)[0] if typing.get_origin(option) is Annotated else option
    kind = typing.get_origin(inner) or inner
    if kind is Any:
        return _is_anything, _compile(option)
    accepted: tuple[type[object], ...] = (cast("type[object]", kind),)
    if kind is float:
        accepted = (float, int)
    elif kind is tuple:
        accepted = (tuple, list)
    return lambda value: isinstance(value, accepted), _compile(option)


def _compile_union(options: list[tuple[Callable[[object], bool], Field]]) -> Field:
    concrete = [field for belongs, field in options if belongs is not _is_none]
    nullable = len(concrete) < len(options)
    if len(concrete) == 1 and nullable:
        only = concrete[0]
        return Field(
            lambda value: None if value is None else only.check(value),
            lambda value: None if value is None else only.build(value),
        )

    def check(value: object) -> object:
        for belongs, field in options:
            if belongs(value):
                return field.check(value)
        return concrete[0].check(value)

    def build(value: object) -> object:
        for belongs, field in options:
            if belongs(value):
                return field.build(value)
        return concrete[0].build(value)

    return Field(check, build)


def _compile_tuple(item: object) -> Field:
    field = _compile(item)
    name = getattr(item, "__name__", "values")

    def check(value: object) -> object:
        items = as_tuple(value, name)
        kept = [_at(index, field.check, item) for index, item in enumerate(items)]
        if items is value and all(map(_same, kept, items)):
            return value
        return tuple(kept)

    def build(value: object) -> object:
        return tuple(
            _at(index, field.build, item) for index, item in enumerate(as_tuple(value, name))
        )

    return Field(check, build)


def _at(index: int, step: Callable[[object], object], item: object) -> object:
    try:
        return step(item)
    except ContractError as error:
        raise error.within(f"[{index}]") from None


def _check_enum(kind: type[Enum], value: object) -> object:
    if type(value) is kind:
        return value
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(repr(member.value) for member in kind)
        raise ContractError(
            f"expected one of {choices}, got {brief(value)}",
            reason=Reason.BAD_VALUE if isinstance(value, str) else Reason.WRONG_TYPE,
        ) from None


def _check_str(value: object) -> str:
    return check_text(value, empty=True)


def _check_bool(value: object) -> bool:
    if type(value) is not bool:
        raise _wrong_type("bool", value)
    return value


def _check_bytes(value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _wrong_type("bytes", value)


def _check_array(value: object) -> object:
    if not isinstance(value, np.ndarray):
        raise _wrong_type("numpy.ndarray", value)
    return value


def _build_time(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if type(value) is not str:
        raise _wrong_type("RFC 3339 text", value)
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ContractError(
            f"expected a time such as 2026-01-31T12:00:00Z, got {brief(value)}",
            reason=Reason.BAD_VALUE,
        ) from None


def _build_array(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"expected lists of numbers: {error}", reason=Reason.WRONG_TYPE
        ) from None


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


def _array_schema(kind: type[object]) -> dict[str, object]:
    if kind is np.ndarray or typing.get_origin(kind) is np.ndarray:
        return {"type": "array"}
    raise NotImplementedError(f"no schema for {kind!r}")


def _wrong_type(expected: str, value: object) -> ContractError:
    return ContractError(f"expected {expected}, got {type_name(value)}", reason=Reason.WRONG_TYPE)


def _unchanged(value: object) -> object:
    return value


def _same(one: object, other: object) -> bool:
    return one is other


def _is_none(value: object) -> bool:
    return value is None


def _is_anything(_value: object) -> bool:
    return True


_SCALARS: Final[dict[type[object], Field]] = {
    str: Field(_check_str),
    int: Field(check_int),
    float: Field(check_float),
    bool: Field(_check_bool),
    datetime: Field(check_time, _build_time),
    bytes: Field(_check_bytes, build_bytes),
}

if TYPE_CHECKING:
    _proof: type[Plain] = Model
