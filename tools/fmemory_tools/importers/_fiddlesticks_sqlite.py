"""Fiddlesticks' SQLite file: rows of seven tables, gathered by session.

SQLite may write beside a database that it only reads: it makes or marks the file `-shm`, and rolls
an interrupted transaction back. So a copy is read, of the file and of what its last transactions
left beside it, and the source is opened as plain bytes. The copy is taken twice: when both are
equal, nothing was written in between and it is what lay there at one moment.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

from fmemory_tools.importers._fiddlesticks_stored import Part, StoredSession, bad_place
from fmemory_tools.importers._lines import Malformed, kind_of
from fmemory_tools.importers.plan import BadLine, BadSource

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject, JsonValue

SQLITE_MAGIC = b"SQLite format 3\x00"
SNAPSHOT_ATTEMPTS_MAX = 5

_CHUNK_BYTES = 1 << 20
_BESIDE = ("", "-wal", "-journal")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the crate: its columns but for `session_id`, and the order of its rows."""

    name: str
    columns: tuple[str, ...]
    order: str
    key: str | None = None


_SESSIONS = _Table(
    "sessions",
    (
        "schema_version",
        "harness_version",
        "active_branch",
        "current_objective",
        "last_known_good_commit",
    ),
    "session_id",
)
_METADATA = _Table("session_metadata", ("key", "value"), "session_id, key", key="key")
_STEPS = _Table(
    "init_plan_steps",
    (
        "step_index",
        "step_kind",
        "command_program",
        "command_args_json",
        "shell_name",
        "shell_script",
    ),
    "session_id, step_index",
    key="step_index",
)
_FEATURES = _Table(
    "features",
    ("id", "position", "feature_id", "category", "description", "steps_json", "passes"),
    "position, id",
    key="id",
)
_PROGRESS = _Table(
    "progress_entries",
    ("id", "run_id", "summary", "created_at_secs", "created_at_nanos"),
    "id",
    key="id",
)
_CHECKPOINTS = _Table(
    "run_checkpoints",
    (
        "id",
        "run_id",
        "started_at_secs",
        "started_at_nanos",
        "completed_at_secs",
        "completed_at_nanos",
        "status",
        "note",
    ),
    "id",
    key="id",
)
_TRANSCRIPT = _Table("transcript_messages", ("id", "role", "content"), "id", key="id")
TABLES = (_SESSIONS, _METADATA, _STEPS, _FEATURES, _PROGRESS, _CHECKPOINTS, _TRANSCRIPT)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a table by session, and the sessions of which a row could not be read."""

    of: dict[str, list[Part]]
    broken: set[str]


_Tables: TypeAlias = Mapping[_Table, _Rows]


def read_database(path: Path, bad: list[BadLine]) -> list[StoredSession]:
    """The sessions of a SQLite file; rows that cannot be read go to `bad`.

    No byte of the file or beside it is changed. This process should not have the file open in
    SQLite meanwhile: where locks are POSIX ones, whoever closes a file gives up all its process's.

    Raises:
        BadSource: It is no SQLite file, damaged, of another program, or written to all the while.

    Cost: the file is read twice, and copied to the folder for temporary files.
    """
    try:
        with _snapshot(path) as copy, closing(sqlite3.connect(copy)) as connection:
            connection.text_factory = _decoded
            connection.execute("PRAGMA trusted_schema = OFF")
            _check_is_whole(connection, path.name)
            _check_tables(connection, path.name, bad)
            return _sessions({one: _rows(connection, one, bad) for one in TABLES}, bad)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # Python cannot decode the words of an error that repeat a damaged name.
        raise BadSource(path.name, f"cannot be read as a SQLite file: {error}") from error


@contextmanager
def _snapshot(path: Path) -> Iterator[Path]:
    """A copy of a database as it lay there at one moment, gone at the end."""
    source = path.resolve()
    with TemporaryDirectory(prefix="fmemory-import-") as folder:
        copy = Path(folder) / "copy.sqlite3"
        for _ in range(SNAPSHOT_ATTEMPTS_MAX):
            if _copy(source, copy) == _digests(source):
                yield copy
                return
    raise BadSource(
        path.name, "is written to all the while: stop the program that writes it, and import again"
    )


def _copy(source: Path, target: Path) -> list[str | None]:
    """Copy a database and what lies beside it; the digests of what was copied."""
    found: list[str | None] = []
    for ending in _BESIDE:
        other = Path(f"{target}{ending}")
        other.unlink(missing_ok=True)
        digest = hashlib.sha256()
        try:
            with Path(f"{source}{ending}").open("rb") as reader, other.open("wb") as writer:
                while chunk := reader.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    writer.write(chunk)
        except FileNotFoundError:
            if not ending:
                raise
            found.append(None)
        else:
            found.append(digest.hexdigest())
    return found


def _digests(source: Path) -> list[str | None]:
    """The digests of a database and of what lies beside it; None for what is not there."""
    found: list[str | None] = []
    for ending in _BESIDE:
        try:
            with Path(f"{source}{ending}").open("rb") as reader:
                found.append(hashlib.file_digest(reader, "sha256").hexdigest())
        except FileNotFoundError:
            found.append(None)
    return found


def _decoded(text: bytes) -> str:
    # Bytes that are no UTF-8 become half surrogates, so that `_checked` can name their row.
    return text.decode("utf-8", "surrogateescape")


def _check_is_whole(connection: sqlite3.Connection, name: str) -> None:
    (first,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if first != "ok":
        raise BadSource(name, f"is damaged: {first}")


def _check_tables(connection: sqlite3.Connection, name: str, bad: list[BadLine]) -> None:
    """Refuse a database of another program; a table that is not there holds nothing.

    A column that is not known goes to `bad`: what is in it would be lost.
    """
    present = 0
    for table in TABLES:
        columns = _columns(connection, table)
        present += bool(columns)
        wanted = ("session_id", *table.columns)
        missing = [one for one in wanted if one not in columns]
        if columns and missing:
            raise BadSource(
                name, f"no database of Fiddlesticks: its table {table.name} has no {missing[0]!r}"
            )
        bad.extend(
            bad_place(table.name, f"unknown column {one!r}, whose values would be lost")
            for one in columns
            if one not in wanted
        )
    if not present:
        raise BadSource(name, "no database of Fiddlesticks: it has none of its tables")


def _columns(connection: sqlite3.Connection, table: _Table) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]


def _rows(connection: sqlite3.Connection, table: _Table, bad: list[BadLine]) -> _Rows:
    """The rows of a table, in the order in which they happened."""
    found = _Rows(defaultdict(list), set())
    if not _columns(connection, table):
        return found
    names = ("session_id", *table.columns)
    query = f"SELECT {', '.join(names)} FROM {table.name} ORDER BY {table.order}"
    for row in connection.execute(query):
        raw = dict(zip(names, row, strict=True))
        place = _place(table, raw)
        try:
            value = _checked(raw)
            found.of[_session_id(value)].append(Part(place, value))
        except Malformed as problem:
            bad.append(bad_place(place, problem))
            found.broken.add(str(raw["session_id"]))
    return found


def _place(table: _Table, raw: dict[str, object]) -> str:
    """The place of a row: its number, or its session and key where it has none."""
    key = None if table.key is None else raw[table.key]
    if table.key == "id" and isinstance(key, int):
        return f"{table.name} row {key}"
    place = f"{table.name} row of session {raw['session_id']!r}"
    return place if table.key is None else f"{place}, {table.key} {key!r}"


def _checked(raw: dict[str, object]) -> JsonObject:
    value: JsonObject = {}
    for name, found in raw.items():
        if isinstance(found, str) and not _is_utf8(found):
            raise Malformed(f"{name}: not UTF-8")
        if found is not None and not isinstance(found, str | int | float):
            raise Malformed(f"{name}: expected text or a number, got a blob")
        value[name] = found
    return value


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text)


def _session_id(value: JsonObject) -> str:
    session_id = value["session_id"]
    if not isinstance(session_id, str):
        raise Malformed(f"session_id: expected a string, got {kind_of(session_id)}")
    return session_id


def _sessions(tables: _Tables, bad: list[BadLine]) -> list[StoredSession]:
    for table in (_METADATA, _STEPS):
        for session_id in tables[table].of.keys() - tables[_SESSIONS].of.keys():
            for part in tables[table].of[session_id]:
                bad.append(part.bad("there is no such session in the table sessions"))
    of_their_own = [one for one in TABLES if one not in (_METADATA, _STEPS)]
    ids = {session_id for table in of_their_own for session_id in tables[table].of}
    return [_session(one, tables, bad) for one in sorted(ids)]


def _session(session_id: str, tables: _Tables, bad: list[BadLine]) -> StoredSession:
    def parts(table: _Table) -> tuple[Part, ...]:
        return tuple(tables[table].of.get(session_id, ()))

    manifest, *more = parts(_SESSIONS) or (None,)
    bad.extend(one.bad("a second row of the same session") for one in more if one is not None)
    steps = tuple(_step(part) for part in parts(_STEPS))
    # A plan with a hole in it is none.
    has_plan = bool(steps) and session_id not in tables[_STEPS].broken
    return StoredSession(
        session_id=session_id,
        place="",
        manifest=None if manifest is None else _with_metadata(manifest, parts(_METADATA), bad),
        init_steps=steps if has_plan else None,
        features=parts(_FEATURES),
        progress=parts(_PROGRESS),
        checkpoints=parts(_CHECKPOINTS),
        transcript=parts(_TRANSCRIPT),
    )


def _with_metadata(manifest: Part, rows: tuple[Part, ...], bad: list[BadLine]) -> Part:
    metadata: dict[str, JsonValue] = {}
    for part in rows:
        key, value = part.value["key"], part.value["value"]
        if isinstance(key, str) and isinstance(value, str):
            metadata[key] = value
        else:
            bad.append(part.bad("expected a key and a value that are strings"))
    return Part(manifest.place, {**manifest.value, "metadata": metadata})


def _step(part: Part) -> Part:
    """A row of the init plan as the object that the crate's files hold."""
    columns = part.value
    value: JsonObject = {"kind": columns["step_kind"]}
    if value["kind"] == "command":
        value |= {"program": columns["command_program"], "args_json": columns["command_args_json"]}
    elif value["kind"] == "shell":
        value |= {"shell": columns["shell_name"], "script": columns["shell_script"]}
    return Part(part.place, value)
