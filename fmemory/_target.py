"""What a target means: a path or URL becomes the config of one backend; nothing is created.

    :memory:                                      process memory
    PATH                                          what lies there; else a new folder of segments
    sqlite:///relative.db, sqlite:////absolute.db a SQLite file
    jsonl:FOLDER                                  a folder of JSON Lines
    postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME   a log in PostgreSQL

Parts of the `//` forms are percent-decoded; `PostgresTarget` owns the last of them. An error never
repeats a URL that may hold a password.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from fmemory._configs import (
    FilesystemConfig,
    InMemoryConfig,
    MemoryBackendConfig,
    PostgresConfig,
    SegmentsConfig,
    SqliteConfig,
)
from fmemory._json_values import is_encodable, type_name
from fmemory._recognise import Found, what_lies_at
from fmemory.errors import ContractError, Reason, brief
from fmemory.journals._postgres.target import PostgresTarget

__all__ = [
    "DATABASE_SUFFIXES",
    "FORMS",
    "MEMORY_TARGET",
    "check_apart",
    "config_of",
    "masked",
    "place_of",
    "shown",
    "sqlite_url",
]

MEMORY_TARGET: Final = ":memory:"
FORMS: Final = (
    'a folder\'s path, ":memory:", sqlite:///FILE (absolute: sqlite:////FILE), jsonl:FOLDER or'
    " postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME"
)
HIDDEN: Final = "***"

# A single letter before the colon is a drive, not a scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_PLAIN_PARAMETERS = frozenset({"host", "log", "port", "sslmode"})
_OURS = frozenset({"sqlite", "jsonl", "postgresql", "postgres"})
DATABASE_SUFFIXES = frozenset({".db", ".db3", ".sqlite", ".sqlite3"})


def config_of(target: str | os.PathLike[str]) -> MemoryBackendConfig:
    """The config of what a target names, looking at what lies at a path.

    Raises:
        ContractError: No text or path, a URL of no known form, or a path to something that is no
            memory; the message has the form that is meant. Nothing was created.

    Cost: for a path, a look at the folder, or at the tables of a SQLite file.

    >>> config_of("sqlite:///notes.db"), config_of("sqlite:////srv/notes.db").path
    (SqliteConfig(path='notes.db'), '/srv/notes.db')
    """
    text = _text_of(target)
    if isinstance(target, os.PathLike):
        scheme = _SCHEME.match(text)
        if scheme is not None and scheme[1].lower() in _OURS:
            raise _refusal(
                f"expected a path, got a path that begins with {scheme[0]}; pass a URL as str"
            )
        return _config_of_path(text)
    if text == MEMORY_TARGET:
        return InMemoryConfig()
    scheme = _SCHEME.match(text)
    rest = "" if scheme is None else text[scheme.end() :]
    match "" if scheme is None else scheme[1].lower():
        case "sqlite":
            return _sqlite(rest)
        case "jsonl":
            return _jsonl(rest)
        case "postgresql" | "postgres":
            return _postgres(text)
        case other if rest.startswith("//"):
            raise _refusal(
                f"expected {FORMS}, got a URL that begins with {brief(other)}; nothing was created"
            )
        case _:
            return _config_of_path(text)


def check_apart(source: str | None, target: str | os.PathLike[str]) -> None:
    """Check that a backup would outlive this process, and the folder of what it is of.

    Args:
        source: Where the store is that is backed up; None if it has no place.

    Raises:
        ContractError: It would not, or as `config_of`. Nothing was created.

    >>> check_apart("memory", "memory/backup")
    Traceback (most recent call last):
    fmemory.errors.ContractError: target: expected a place outside of the store, got \
'memory/backup', which lies in its folder and would be lost with it; nothing was written
    """
    match config_of(target):
        case InMemoryConfig():
            raise _refusal(
                f"expected a place that is kept, got {MEMORY_TARGET}, which ends with the process;"
                " nothing was written"
            )
        case SegmentsConfig(root=place) | FilesystemConfig(root=place) | SqliteConfig(path=place):
            # Of a store in a file or a database nothing lies below its path.
            if source is not None and Path(source).resolve() in Path(place).resolve().parents:
                raise _refusal(
                    f"expected a place outside of the store, got {brief(place)}, which lies in its"
                    " folder and would be lost with it; nothing was written"
                )
        case _:
            pass


def shown(config: MemoryBackendConfig) -> str:
    """A target that names what a config names, to show to people: without its password.

    >>> shown(PostgresConfig("db", 5432, "agents", "ada", "secret", "x"))
    'postgresql://ada@db:5432/agents?log=x'
    """
    match config:
        case SegmentsConfig(root=root):
            return root
        case SqliteConfig(path=path):
            return sqlite_url(path)
        case FilesystemConfig(root=root):
            return f"jsonl:{root}"
        case PostgresConfig():
            return place_of(config).path
        case _:
            return MEMORY_TARGET


def masked(target: str) -> str:
    """A target to show to people: what may be a password in it is `***`, well-formed or not.

    >>> masked("postgresql://ada:secret@db/agents?log=x"), masked("./memory")
    ('postgresql://ada:***@db/agents?log=x', './memory')
    """
    scheme = _SCHEME.match(target)
    rest = target if scheme is None else target[scheme.end() :]
    is_file = (
        scheme is not None and scheme[1].lower() in ("sqlite", "jsonl") and not _names_host(rest)
    )
    if scheme is None or is_file:
        return target
    slashes = rest[: len(rest) - len(rest.lstrip("/"))]
    rest = rest[len(slashes) :]
    if not slashes and "@" not in rest and scheme[1].lower() not in _OURS:
        return target  # a file with a colon in its name
    # A password may hold any character, so the last @ ends it where it is not clear.
    login, at, tail = rest.rpartition("@")
    if not at:
        login, tail = "", rest
    user, colon, _ = login.partition(":")
    return f"{scheme[0]}{slashes}{user}{colon and colon + HIDDEN}{at}{_masked_tail(tail)}"


def _names_host(rest: str) -> bool:
    """Whether a host, and so a password, may stand behind the scheme."""
    return rest.startswith("//") and not rest.startswith("///")


def _masked_tail(tail: str) -> str:
    place, question, query = tail.partition("?")
    address, slash, database = place.partition("/")
    host, colon, port = address.rpartition(":")
    if colon and not port.isdigit() and not port.endswith("]"):
        address = f"{host}:{HIDDEN}"
    values = [
        pair if name in _PLAIN_PARAMETERS else f"{name}={HIDDEN}"
        for pair in query.split("&")
        for name in (pair.partition("=")[0],)
        if pair
    ]
    return f"{address}{slash}{database}{question}{'&'.join(values)}"


def sqlite_url(path: str | os.PathLike[str]) -> str:
    """The URL of a SQLite file.

    >>> sqlite_url("/srv/notes.db"), sqlite_url("50%?.db")
    ('sqlite:////srv/notes.db', 'sqlite:///50%25%3F.db')
    """
    text = os.fspath(path).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    return f"sqlite:///{text}"


# Each form


def _sqlite(rest: str) -> SqliteConfig:
    form = "sqlite:///FILE, or sqlite:////FILE where the path is absolute"
    if not rest.startswith("///"):
        raise _refusal(f"expected {form}, got {brief(masked('sqlite:' + rest))}")
    path, question, _ = rest[3:].partition("?")
    if question:
        raise ContractError(
            f"expected {form}, without parameters, got a ?; in a name it is written %3F",
            where="target",
            reason=Reason.UNKNOWN_FIELD,
        )
    if "#" in path:
        raise _refusal(
            f"expected {form}, with # written as %23, got {brief(masked('sqlite:' + rest))}"
        )
    name = _decoded(path, "path")
    if name in ("", MEMORY_TARGET):
        raise _refusal(f'expected {form}, got no file; for process memory the target is ":memory:"')
    return SqliteConfig(path=_expanded(name))


def _jsonl(rest: str) -> FilesystemConfig:
    if not rest or _names_host(rest):
        raise _refusal(
            f"expected jsonl:FOLDER, got {brief(masked('jsonl:' + rest))}; the folder's path stands"
            " right behind the colon, as in jsonl:./memory"
        )
    return FilesystemConfig(root=_expanded(rest))


def _postgres(text: str) -> PostgresConfig:
    names = [name for name, _ in parse_qsl(text.partition("?")[2], keep_blank_values=True)]
    if len(set(names)) < len(names):
        raise _refusal("expected every parameter of the URL once, got one of them twice")
    try:
        place = PostgresTarget.from_url(text)
    except ContractError as error:
        part = "" if error.where == "url" else f"{error.where}: "
        raise _refusal(f"{part}{error.problem}", reason=error.reason) from None
    return PostgresConfig(
        host=place.host or "",
        port=place.port,
        database=place.database,
        username=place.username or "",
        password=place.password or "",
        log=place.log,
        parameters=dict(place.parameters),
    )


def place_of(config: PostgresConfig) -> PostgresTarget:
    """What a config names, as the backend knows it."""
    return PostgresTarget(
        config.host or None,
        config.port,
        config.database,
        config.username or None,
        config.password or None,
        config.log,
        {name: str(value) for name, value in config.parameters.items()},
    )


# Paths


def _config_of_path(text: str) -> MemoryBackendConfig:
    path = Path(_expanded(text))
    match what_lies_at(path):
        case Found.SQLITE_LOG | Found.FIDDLESTICKS_FILE:
            return SqliteConfig(path=str(path))
        case Found.JSONL_LOG:
            return FilesystemConfig(root=str(path))
        case Found.OTHER_SQLITE:
            raise _refusal(
                f"expected a memory, got {brief(text)}, a SQLite file that holds none; to keep one"
                f" in it, beside what is there, the URL is {sqlite_url(text)}",
                reason=Reason.UNSUPPORTED,
            )
        case Found.FIDDLESTICKS_FOLDER:
            raise _refusal(
                f"expected a memory, got {brief(text)}, a folder of sessions that Fiddlesticks"
                f" wrote; to import them: fmemory import fiddlesticks {text} -s STORE",
                reason=Reason.UNSUPPORTED,
            )
        case Found.NOTHING | Found.OTHER_FILE if path.suffix.lower() in DATABASE_SUFFIXES:
            raise _refusal(
                f"expected a memory or a new folder, got {brief(text)}, the name of a database file"
                f" with no memory in it; to make one there, the URL is {sqlite_url(text)}",
                reason=Reason.UNSUPPORTED,
            )
        case _:
            return SegmentsConfig(root=str(path))


def _text_of(target: object) -> str:
    if not isinstance(target, (str, os.PathLike)):
        raise _refusal(f"expected {FORMS}, got {type_name(target)}", reason=Reason.WRONG_TYPE)
    text = os.fspath(target)
    if not isinstance(text, str):
        text = os.fsdecode(text)
    if not text:
        raise _refusal(f"expected {FORMS}, got ''", reason=Reason.EMPTY)
    if "\0" in text:
        raise _refusal("expected a path or URL, got one with a NUL character")
    return text


def _expanded(text: str) -> str:
    try:
        return str(Path(text).expanduser())
    except RuntimeError as error:  # no home folder, or that of a user who does not exist
        raise _refusal(f"expected a path, got {brief(text)}: {error}") from None


def _decoded(text: str, part: str) -> str:
    """A part of a URL, percent-decoded."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise _refusal(
            f"expected percent-encoded text for the {part}, got a % without two digits; a % itself"
            " is written %25"
        )
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        decoded = "\0"
    if "\0" in decoded or not is_encodable(decoded):
        raise _refusal(f"expected text in UTF-8 without NUL for the {part}, got something else")
    return decoded


def _refusal(problem: str, *, reason: Reason = Reason.BAD_VALUE) -> ContractError:
    return ContractError(problem, where="target", reason=reason)
