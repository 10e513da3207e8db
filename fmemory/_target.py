"""What a target means: a path or URL becomes the config of one backend; nothing is created.

    :memory:                                      process memory
    PATH                                          what lies there; else a new folder of segments
    sqlite:///relative.db, sqlite:////absolute.db a SQLite file
    jsonl:FOLDER                                  a folder of JSON Lines
    postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME   a log in PostgreSQL

Parts of the `//` forms are percent-decoded. An error never repeats a URL that may hold a password:
it names the part that is wrong, and shows the rest as `masked` does.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from fmemory._configs import (
    DEFAULT_LOG,
    POSTGRES_PORT,
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

__all__ = ["FORMS", "MEMORY_TARGET", "config_of", "masked", "shown", "sqlite_url"]

MEMORY_TARGET: Final = ":memory:"
FORMS: Final = (
    'a folder\'s path, ":memory:", sqlite:///FILE (absolute: sqlite:////FILE), jsonl:FOLDER or'
    " postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME"
)
POSTGRES_FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME"
HIDDEN: Final = "***"

# A single letter before the colon is a drive, not a scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_OURS = frozenset({"sqlite", "jsonl", "postgresql", "postgres"})
_DATABASE_SUFFIXES = frozenset({".db", ".db3", ".sqlite", ".sqlite3"})


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
            return _postgres(rest)
        case other if rest.startswith("//"):
            raise _refusal(
                f"expected {FORMS}, got a URL that begins with {brief(other)}; nothing was created"
            )
        case _:
            return _config_of_path(text)


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
            return _postgres_url(config)
        case _:
            return MEMORY_TARGET


def masked(target: str) -> str:
    """A target to show to people: what may be a password in it is `***`, well-formed or not.

    >>> masked("postgresql://ada:secret@db/agents?log=x"), masked("./memory")
    ('postgresql://ada:***@db/agents?log=x', './memory')
    """
    scheme = _SCHEME.match(target)
    if scheme is None or scheme[1].lower() in ("sqlite", "jsonl"):
        return target
    rest = target[scheme.end() :]
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


def _masked_tail(tail: str) -> str:
    place, question, query = tail.partition("?")
    address, slash, database = place.partition("/")
    host, colon, port = address.rpartition(":")
    if colon and not port.isdigit() and not port.endswith("]"):
        address = f"{host}:{HIDDEN}"
    values = [
        pair if name == "log" else f"{name}={HIDDEN}"
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
        raise _refusal(f"expected {form}, got {brief('sqlite:' + rest)}")
    path, question, query = rest[3:].partition("?")
    if question:
        _parameters(query, known=(), scheme="sqlite")
    if "#" in path:
        raise _refusal(f"expected {form}, with # written as %23, got {brief('sqlite:' + rest)}")
    name = _decoded(path, "path")
    if name in ("", MEMORY_TARGET):
        raise _refusal(f'expected {form}, got no file; for process memory the target is ":memory:"')
    return SqliteConfig(path=_expanded(name))


def _jsonl(rest: str) -> FilesystemConfig:
    if not rest or (rest.startswith("//") and not rest.startswith("///")):
        raise _refusal(
            f"expected jsonl:FOLDER, got {brief('jsonl:' + rest)}; the folder's path stands right"
            " behind the colon, as in jsonl:./memory"
        )
    return FilesystemConfig(root=_expanded(rest))


def _postgres(rest: str) -> PostgresConfig:
    if not rest.startswith("//"):
        raise _refusal(f"expected {POSTGRES_FORM}, got no // behind the scheme")
    if "#" in rest:
        raise _refusal(f"expected {POSTGRES_FORM}, got a #; inside a part it is written %23")
    place, question, query = rest[2:].partition("?")
    address, _, database = place.partition("/")
    login, _, server = address.rpartition("@")
    if "@" in database or "@" in query or "@" in login:
        raise _refusal(
            f"expected {POSTGRES_FORM}, got an @ where none may stand; in a name or password, @ is"
            " written %40, / %2F, : %3A, ? %3F and % %25"
        )
    username, _, password = login.partition(":")
    host, port = _server(server)
    parts = {"user": username, "host": host, "database": database}
    missing = [name for name, value in parts.items() if not value]
    if missing:
        raise _refusal(f"expected {POSTGRES_FORM}, got no {' and no '.join(missing)}")
    if "/" in database:
        raise _refusal(f"expected {POSTGRES_FORM}, got a / in the database (there it is %2F)")
    values = _parameters(query, known=("log",), scheme="postgresql") if question else {}
    return PostgresConfig(
        host=_decoded(host, "host"),
        port=port,
        database=_decoded(database, "database"),
        username=_decoded(username, "user"),
        password=_decoded(password, "password"),
        log=values.get("log", DEFAULT_LOG),
    )


def _server(server: str) -> tuple[str, int]:
    """Host and port; an IPv6 address stands in brackets."""
    if server.startswith("["):
        host, bracket, after = server[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise _refusal(f"expected {POSTGRES_FORM}, got [ without the ] of an IPv6 address")
        colon, port = after[:1], after[1:]
    else:
        host, colon, port = server.partition(":")
    if not colon:
        return host, POSTGRES_PORT
    # What stands here may be half a password, so it is not repeated.
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65_535:
        raise _refusal(
            f"expected {POSTGRES_FORM} with a PORT from 1 to 65535, got something else behind the"
            " host; in a password, @ is written %40, / %2F and : %3A"
        )
    return host, int(port)


def _parameters(query: str, *, known: tuple[str, ...], scheme: str) -> dict[str, str]:
    """The parameters of a URL. Values are never repeated: people put passwords there."""
    takes = f"only the parameter {', '.join(known)}" if known else "no parameters"
    found: dict[str, str] = {}
    for pair in query.split("&"):
        name, equals, value = pair.partition("=")
        if name not in known:
            # What has no = may be the end of a password.
            got = brief(name) if equals else "one without a value"
            hint = " (a password stands behind the user: USER:PASSWORD@)" if "pass" in name else ""
            raise ContractError(
                f"a {scheme} URL takes {takes}, got {got}{hint}",
                where="target",
                reason=Reason.UNKNOWN_FIELD,
            )
        if name in found:
            raise _refusal(f"expected the parameter {name} once, got it twice")
        if not value:
            raise ContractError(
                f"expected {name}=VALUE, got no value", where="target", reason=Reason.EMPTY
            )
        found[name] = _decoded(value, name)
    return found


def _postgres_url(config: PostgresConfig) -> str:
    host = f"[{config.host}]" if ":" in config.host else quote(config.host, safe="")
    log = "" if config.log == DEFAULT_LOG else f"?log={quote(config.log, safe='')}"
    return (
        f"postgresql://{quote(config.username, safe='')}@{host}:{config.port}"
        f"/{quote(config.database, safe='')}{log}"
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
        case Found.NOTHING if path.suffix.lower() in _DATABASE_SUFFIXES:
            raise _refusal(
                f"expected a folder, got {brief(text)}, which looks like a database file and is not"
                f" there; to create it, the URL is {sqlite_url(text)}",
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
