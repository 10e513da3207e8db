"""A choice of backend as data: one class a backend, which opens nothing and knows no driver.

A password is part of the choice, so a config compares by it; it is never part of what a config
shows. `repr`, `to_dict`, `to_json` and every error leave it out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self, cast

import msgspec

from fmemory._json_values import (
    JsonObject,
    check_text,
    copy_json_object,
    is_encodable,
    type_name,
)
from fmemory._model import Model, Rule, check_int, schema_of
from fmemory.errors import ContractError, Reason, brief

__all__ = [
    "POSTGRES_PORT",
    "FilesystemConfig",
    "InMemoryConfig",
    "MemoryBackendConfig",
    "PostgresConfig",
    "SegmentsConfig",
    "SqliteConfig",
]

POSTGRES_PORT = 5432
PORT_MAX = 65_535
DEFAULT_LOG = "default"


def _check_place(value: object) -> object:
    text = check_text(value)
    if "\0" in text:
        raise ContractError(f"expected a path, got {brief(text)}, which has a NUL character")
    return text


def _check_name(value: object) -> object:
    text = check_text(value, empty=True)
    if "\0" in text:
        raise ContractError(f"expected a name, got {brief(text)}, which has a NUL character")
    return text


def _check_needed(value: object) -> object:
    check_text(value)
    return _check_name(value)


def _check_parameters(value: object) -> object:
    found = copy_json_object(value)
    for name, text in found.items():
        if not isinstance(text, str):
            raise ContractError(
                f"expected str, got {type_name(text)}",
                where=f'["{name}"]',
                reason=Reason.WRONG_TYPE,
            )
    return found


def _check_port(value: object) -> object:
    port = check_int(value)
    if not 1 <= port <= PORT_MAX:
        raise ContractError(
            f"expected a port from 1 to {PORT_MAX}, got {port}", reason=Reason.OUT_OF_RANGE
        )
    return port


def _check_password(value: object) -> object:
    """The value itself; what is wrong with it is said without showing any of it."""
    if type(value) is not str:
        raise ContractError(f"expected str, got {type_name(value)}", reason=Reason.WRONG_TYPE)
    if not is_encodable(value):
        raise ContractError(
            "expected text that UTF-8 can carry, got a lone surrogate (the text is not shown)",
            reason=Reason.LONE_SURROGATE,
        )
    if "\0" in value:
        raise ContractError("expected no NUL character, got one (the text is not shown)")
    return value


Place = Annotated[str, Rule(_check_place, {"minLength": 1})]
Name = Annotated[str, Rule(_check_needed, {"minLength": 1})]
NameOrNone = Annotated[str, Rule(_check_name)]
Port = Annotated[int, Rule(_check_port, {"minimum": 1, "maximum": PORT_MAX})]
Parameters = Annotated[
    JsonObject, Rule(_check_parameters, {"additionalProperties": {"type": "string"}})
]
Password = Annotated[str, Rule(_check_password, {"writeOnly": True})]


class MemoryBackendConfig(Model, frozen=True):
    """A choice of backend; build one with a static constructor, or from plain data.

    Plain data has the backend's `kind` and its fields. `from_dict` takes a `password` beside them,
    for settings that come from a secret store; `to_dict`, `to_json` and `repr` never give it back,
    so a config that went through them has to be given its password again. `==` compares it.

    >>> MemoryBackendConfig.Segments("notes").root
    'notes'
    >>> MemoryBackendConfig.from_dict({"kind": "sqlite", "path": "notes.db"})
    SqliteConfig(path='notes.db')
    """

    KIND: ClassVar[str] = ""
    SECRET: ClassVar[str | None] = None
    """The field that is never shown."""

    @staticmethod
    def Segments(root: str | os.PathLike[str]) -> SegmentsConfig:  # noqa: N802  the contract's name
        """Segment files in a folder."""
        return SegmentsConfig(root=_path(root, "root"))

    @staticmethod
    def Sqlite(path: str | os.PathLike[str]) -> SqliteConfig:  # noqa: N802
        """Rows in a SQLite file."""
        return SqliteConfig(path=_path(path, "path"))

    @staticmethod
    def Postgres(  # noqa: N802
        host: str,
        port: int = POSTGRES_PORT,
        database: str = "",
        username: str = "",
        password: str = "",
        log: str = DEFAULT_LOG,
        parameters: Mapping[str, str] | None = None,
    ) -> PostgresConfig:
        """Rows in a PostgreSQL database, which holds any number of logs by name.

        Args:
            host: Name or address of the server, or the folder of its socket. Empty: what the
                driver finds.
            port: 1 to 65535.
            database: Its name; it must exist.
            username: Who connects. Empty: what the driver finds.
            password: Never shown. Empty: what the driver finds (PGPASSWORD, ~/.pgpass), or none.
            log: Which log of the database.
            parameters: Further connection parameters, such as `{"sslmode": "require"}`.

        Raises:
            ContractError: A value of another type, or an empty database or log.
        """
        return PostgresConfig(host, port, database, username, password, log, dict(parameters or {}))

    @staticmethod
    def Filesystem(root: str | os.PathLike[str]) -> FilesystemConfig:  # noqa: N802
        """JSON Lines in a folder, for people to read."""
        return FilesystemConfig(root=_path(root, "root"))

    @staticmethod
    def InMemory() -> InMemoryConfig:  # noqa: N802
        """Process memory."""
        return InMemoryConfig()

    @property
    def kind(self) -> str:
        """The backend's `kind`."""
        return self.KIND

    def to_dict(self) -> JsonObject:
        """Plain data: `kind` and the fields, without a password."""
        plain = super().to_dict()
        if self.SECRET is not None:
            plain.pop(self.SECRET)
        return {"kind": self.KIND, **plain}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """The config of plain data; `kind` chooses the class.

        Raises:
            ContractError: Not a dict, an unknown kind or field, or a value that breaks a rule;
                `where` is its path. A password is never quoted.
        """
        if type(data) is not dict:
            raise ContractError(
                f"expected a dict, got {type_name(data)}",
                reason=Reason.WRONG_TYPE,
                owner=cls.__name__,
            )
        chosen = cls._class_of(cast("dict[str, object]", data))
        return super(MemoryBackendConfig, chosen).from_dict(
            {name: value for name, value in data.items() if name != "kind"}
        )

    @classmethod
    def _class_of(cls, data: dict[str, object]) -> type[Self]:
        found = {one.KIND: one for one in (cls, *cls.__subclasses__()) if one.KIND}
        if "kind" not in data and cls.KIND:
            return cls
        kind = data.get("kind")
        if isinstance(kind, str) and kind in found:
            return found[kind]
        names = ", ".join(f'"{name}"' for name in found)
        raise ContractError(
            f"expected one of {names}, got {brief(kind) if 'kind' in data else 'none'}",
            where="kind",
            reason=Reason.BAD_VALUE if "kind" in data else Reason.MISSING_FIELD,
            owner=cls.__name__,
        )

    @classmethod
    def json_schema(cls) -> JsonObject:
        """A JSON Schema of what `from_dict` takes; a password is marked `writeOnly`."""
        if cls.KIND:
            return schema_of(cls)
        parts = [schema_of(one) for one in cls.__subclasses__()]
        return {
            "$schema": parts[0]["$schema"],
            "oneOf": [{"$ref": part["$ref"]} for part in parts],
            "$defs": {
                name: defined
                for part in parts
                for name, defined in cast("JsonObject", part["$defs"]).items()
            },
        }

    @classmethod
    def _schema(cls, defs: JsonObject) -> JsonObject:
        plain = super()._schema(defs)
        fields = cast("JsonObject", plain["properties"])
        required = cast("list[str]", plain["required"])
        return {
            **plain,
            "properties": {"kind": {"const": cls.KIND}, **fields},
            "required": ["kind", *required],
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        shown = [name for name in self.__struct_fields__ if name != self.SECRET]
        return [(name, getattr(self, name)) for name in shown if getattr(self, name) != {}]


class SegmentsConfig(MemoryBackendConfig, frozen=True):
    """Segment files in the folder `root`."""

    KIND = "segments"

    root: Place


class SqliteConfig(MemoryBackendConfig, frozen=True):
    """Rows in the SQLite file `path`."""

    KIND = "sqlite"

    path: Place


class PostgresConfig(MemoryBackendConfig, frozen=True):
    """Rows in a PostgreSQL database. The password is kept, compared and never shown.

    >>> PostgresConfig("db.example", 5432, "agents", "ada", "secret")
    PostgresConfig(host='db.example', port=5432, database='agents', username='ada', log='default')
    """

    KIND = "postgres"
    SECRET = "password"

    host: NameOrNone
    port: Port = POSTGRES_PORT
    database: Name = ""
    username: NameOrNone = ""
    password: Password = ""
    log: Name = DEFAULT_LOG
    parameters: Parameters = msgspec.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.host, self.port, self.database, self.username, self.password, self.log))


class FilesystemConfig(MemoryBackendConfig, frozen=True):
    """JSON Lines in the folder `root`."""

    KIND = "filesystem"

    root: Place


class InMemoryConfig(MemoryBackendConfig, frozen=True):
    """Process memory; nothing is kept."""

    KIND = "in_memory"


def _path(value: object, where: str) -> str:
    try:
        path = os.fspath(cast("str", value))
    except TypeError:
        raise ContractError(
            f"expected a path, got {type_name(value)}", where=where, reason=Reason.WRONG_TYPE
        ) from None
    return path if isinstance(path, str) else os.fsdecode(path)
