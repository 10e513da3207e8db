"""Annotations of model fields, compiled once a class: what to check, how to build, what to say.

Understood are str, int, float, bool, datetime, bytes, enums, structs with `from_dict`, JsonValue,
JsonObject, `tuple[X, ...]`, numpy arrays, unions of these, and `Annotated[X, Rule(...)]`.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Final, cast

import msgspec
import numpy as np

from fmemory._checks import (
    as_tuple,
    build_bytes,
    check_float,
    check_int,
    check_time,
    wrong_type,
)
from fmemory._json_values import (
    JsonObject,
    JsonValue,
    check_text,
    copy_json,
    copy_json_object,
)
from fmemory.errors import ContractError, Reason, brief

__all__ = ["Field", "Rule", "fields_of", "reference_to", "struct_schema"]


class Rule:
    """A check beyond the type: `Annotated[str, Rule(check_id)]`.

    Args:
        check: Takes the value and returns it, in the form that is kept, or raises ContractError
            with a path relative to the value.
        schema: What of it JSON Schema can say.
    """

    __slots__ = ("check", "schema")

    def __init__(self, check: Callable[[object], object], schema: JsonObject | None = None) -> None:
        self.check = check
        self.schema: JsonObject = {} if schema is None else schema


class Field:
    """One annotation, compiled: checks a given value, or builds one from plain data.

    Attributes:
        check: Takes a Python value, returns what is kept.
        build: Takes plain JSON data, returns what `check` takes.
        schema: JSON Schema of the plain data; takes the definitions to add classes to.
        as_is: Types of which every value is kept as it is, so that `check` need not be called.
    """

    __slots__ = ("as_is", "build", "check", "schema")

    def __init__(
        self,
        check: Callable[[object], object],
        build: Callable[[object], object] | None,
        schema: Callable[[JsonObject], JsonObject],
        as_is: frozenset[type[object]] = frozenset(),
    ) -> None:
        self.check = check
        self.as_is = as_is
        self.build = _unchanged if build is None else build
        self.schema = schema


@functools.cache
def fields_of(cls: type[msgspec.Struct]) -> tuple[tuple[str, Field], ...]:
    """The fields of a struct, compiled once.

    Raises:
        TypeError: A field has a type that models cannot have.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple((name, _compile(hints[name])) for name in cls.__struct_fields__)


def struct_schema(kind: type[msgspec.Struct], defs: JsonObject) -> JsonObject:
    """The schema of a struct's fields; `defs` takes those of the classes in them."""
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return {
        "title": kind.__name__,
        "description": (kind.__doc__ or "").partition("\n")[0],
        "type": "object",
        "properties": {name: field.schema(defs) for name, field in fields_of(kind)},
        "required": cast("JsonValue", required),
        "additionalProperties": False,
    }


def reference_to(kind: type[msgspec.Struct], defs: JsonObject) -> JsonObject:
    """A reference to the schema of a struct, which is added to `defs` unless it is there."""
    if kind.__name__ not in defs:
        defs[kind.__name__] = {}  # taken, for a class that contains itself
        describe = getattr(kind, "_schema", functools.partial(struct_schema, kind))
        defs[kind.__name__] = describe(defs)
    return {"$ref": f"#/$defs/{kind.__name__}"}


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
        return Field(copy_json, None, lambda _defs: {})
    if annotation == JsonObject:
        return Field(copy_json_object, None, lambda _defs: {"type": "object"})
    if origin is np.ndarray:
        return Field(_check_array, _build_array, lambda _defs: {"type": "array"})
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if isinstance(annotation, type):
        return _compile_class(annotation)
    raise TypeError(f"models cannot have fields of type {annotation!r}")


def _compile_annotated(annotation: object) -> Field:
    inner, *extras = typing.get_args(annotation)
    field = _compile(inner)
    for extra in extras:
        if isinstance(extra, Rule):
            return _with_rule(field, extra)
    return field


def _with_rule(field: Field, rule: Rule) -> Field:
    return Field(rule.check, field.build, lambda defs: {**field.schema(defs), **rule.schema})


def _compile_class(kind: type[Any]) -> Field:
    if issubclass(kind, Enum):
        choices: JsonObject = {"enum": [member.value for member in kind]}
        return Field(functools.partial(_check_enum, kind), None, lambda _defs: choices)
    if not issubclass(kind, msgspec.Struct) or not hasattr(kind, "from_dict"):
        raise TypeError(f"models cannot have fields of type {kind!r}")

    def check(value: object) -> object:
        if not isinstance(value, kind):
            raise wrong_type(kind.__name__, value)
        return value

    def build(value: object) -> object:
        return value if isinstance(value, kind) else kind.from_dict(value)

    return Field(check, build, functools.partial(reference_to, kind), frozenset({kind}))


def _compile_option(option: object) -> tuple[Callable[[object], bool], Field]:
    """For a union: does a value belong to this option, and its field."""
    if option is type(None):
        return _is_none, _NONE
    inner = typing.get_args(option)[0] if typing.get_origin(option) is Annotated else option
    kind = typing.get_origin(inner) or inner
    if kind is Any:
        return _is_anything, _compile(option)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return functools.partial(_fits, kind), _compile(option)
    accepted: tuple[type[object], ...] = (cast("type[object]", kind),)
    if kind is float:
        accepted = (float, int)
    elif kind is tuple:
        accepted = (tuple, list)
    return lambda value: isinstance(value, accepted), _compile(option)


def _compile_union(options: list[tuple[Callable[[object], bool], Field]]) -> Field:
    """The first option a value belongs to; the last one gives the error if it belongs to none."""
    concrete = [field for belongs, field in options if belongs is not _is_none]
    fallback = concrete[-1]

    def field_of(value: object) -> Field:
        for belongs, field in options:
            if belongs(value):
                return field
        return fallback

    return Field(
        lambda value: field_of(value).check(value),
        lambda value: field_of(value).build(value),
        lambda defs: {"anyOf": [field.schema(defs) for _, field in options]},
        frozenset().union(*(field.as_is for _, field in options)),
    )


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

    return Field(check, build, lambda defs: {"type": "array", "items": field.schema(defs)})


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
        raise wrong_type("bool", value)
    return value


def _check_bytes(value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise wrong_type("bytes", value)


def _check_array(value: object) -> object:
    if not isinstance(value, np.ndarray):
        raise wrong_type("numpy.ndarray", value)
    return value


def _build_time(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if type(value) is not str:
        raise wrong_type("RFC 3339 text", value)
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


def _fits(kind: type[msgspec.Struct], value: object) -> bool:
    """Whether the value is a struct of this class, or plain data with its keys."""
    if type(value) is not dict:
        return isinstance(value, kind)
    infos = msgspec.structs.fields(kind)
    return value.keys() <= {info.name for info in infos} and all(
        info.name in value for info in infos if info.required
    )


def _unchanged(value: object) -> object:
    return value


def _same(one: object, other: object) -> bool:
    return one is other


def _is_none(value: object) -> bool:
    return value is None


def _is_anything(_value: object) -> bool:
    return True


_NONE: Final = Field(_unchanged, None, lambda _defs: {"type": "null"}, frozenset({type(None)}))
_SCALARS: Final[dict[type[object], Field]] = {
    str: Field(_check_str, None, lambda _defs: {"type": "string"}),
    int: Field(check_int, None, lambda _defs: {"type": "integer"}),
    float: Field(check_float, None, lambda _defs: {"type": "number"}),
    bool: Field(_check_bool, None, lambda _defs: {"type": "boolean"}, frozenset({bool})),
    datetime: Field(
        check_time, _build_time, lambda _defs: {"type": "string", "format": "date-time"}
    ),
    bytes: Field(
        _check_bytes, build_bytes, lambda _defs: {"type": "string", "contentEncoding": "base64"}
    ),
}
