"""SQLite files: finding out what one is, opening connections, and their errors as the contract's.

The tables of a log are named `fmemory_…`, so a log can live in a database that others use too:
their tables are neither read nor changed. Files of Fiddlesticks' own are recognised, to say how
their content is imported.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from fmemory.errors import (
    ClosedStore,
    LogCorrupt,
    MemoryBackendError,
    NotFound,
    ReadOnlyStore,
    Reason,
    StorageError,
    StoreBusy,
    StoreFull,
)
from fmemory.journals._sqlite.descriptors import MAGIC, read_header

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fmemory_log (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS fmemory_streams (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    revision INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    last_recorded_at_ns INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS fmemory_streams_by_last ON fmemory_streams (last_seq);
CREATE INDEX IF NOT EXISTS fmemory_streams_by_kind ON fmemory_streams (kind, last_seq);
CREATE TABLE IF NOT EXISTS fmemory_events (
    seq INTEGER PRIMARY KEY, stream INTEGER NOT NULL REFERENCES fmemory_streams (id),
    revision INTEGER NOT NULL, type TEXT NOT NULL, event_id TEXT, recorded_at_ns INTEGER NOT NULL,
    meta BLOB NOT NULL, checksum INTEGER NOT NULL, erased INTEGER, data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS fmemory_events_by_stream ON fmemory_events (stream, seq);
CREATE INDEX IF NOT EXISTS fmemory_events_by_id ON fmemory_events (stream, event_id, seq)
    WHERE event_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS fmemory_events_erased ON fmemory_events (seq) WHERE erased;
CREATE INDEX IF NOT EXISTS fmemory_events_erased_by_stream ON fmemory_events (stream, seq)
    WHERE erased;
"""
_VERSION: Final = "SELECT value FROM fmemory_log WHERE key = 'schema_version'"
FIDDLESTICKS_TABLES: Final = frozenset({"sessions", "transcript_messages", "features"})
STORE_ID_BYTES: Final = 16
FIRST_PAUSE_S: Final = 0.000_05
PAUSE_S_MAX: Final = 0.005
PAUSE_GROWTH: Final = 1.5

_LOGGER = logging.getLogger("fmemory")


def check_place(path: Path, *, create: bool) -> bool:
    """Whether a database is to be made at a path.

    Raises:
        NotFound: There is none and none was to be made.
        StorageError: Something else lies there.
    """
    if path.is_dir():
        raise StorageError(
            f"database: expected a file, got a folder ({path}); name a file in it",
            path=str(path),
            reason=Reason.NOT_A_STORE,
        )
    try:
        magic = read_header(path)[: len(MAGIC)]
    except FileNotFoundError:
        magic = b""
    except OSError as error:
        raise StorageError(
            f"database: expected to read it, got {error.strerror} ({path})", path=str(path)
        ) from error
    if magic == MAGIC:
        return False
    if magic:
        raise StorageError(
            f"database: expected an SQLite file, got another ({path}); nothing was changed; choose"
            " another path, or if it held a memory, salvage that with `fmemory repair`",
            path=str(path),
            reason=Reason.NOT_A_STORE,
        )
    if not create:
        raise _missing(path)
    return True


def make_folder(folder: Path) -> None:
    """Make a folder and those above, where they are not there.

    Raises:
        StorageError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"database: expected to make the folder {folder}, got {error.strerror or error}; no"
            " database was created",
            path=str(folder),
        ) from error


def connect(path: Path, *, read_only: bool, busy_timeout_s: float) -> sqlite3.Connection:
    """A connection in autocommit mode, which threads may share under a lock.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    database = sqlite3.connect(
        f"file:{quote(str(path))}?{_mode(path, read_only=read_only)}",
        uri=True,
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    # What is deleted is overwritten, and macOS is told to really write.
    try:
        for pragma in ("secure_delete = ON", "fullfsync = ON", "checkpoint_fullfsync = ON"):
            database.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        database.close()
        raise
    return database


def prepare_tables(database: sqlite3.Connection, path: Path, timeout_s: float) -> None:
    """Make the tables of a log, or find them; any number of processes may do so at once.

    Raises:
        StoreBusy: Others held the database all the time.
        StorageError: A newer version made the tables.
    """
    if (tables := table_names(database)) >= {"fmemory_log", "fmemory_events"}:
        check_version(database, path)
        return
    if tables >= FIDDLESTICKS_TABLES:
        _LOGGER.warning(
            "%s holds sessions that Fiddlesticks wrote, which are left alone; to have them in"
            " this log too: fmemory -s sqlite:///%s import fiddlesticks %s",
            path,
            path,
            path,
        )
    polled(lambda: database.execute("PRAGMA journal_mode = WAL").close(), path, timeout_s)
    polled(lambda: database.execute("BEGIN IMMEDIATE").close(), path, timeout_s)
    try:
        for statement in SCHEMA.split(";\n"):
            database.execute(statement).close()
        database.executemany(
            "INSERT OR IGNORE INTO fmemory_log (key, value) VALUES (?, ?)",
            [("schema_version", SCHEMA_VERSION), ("store_id", os.urandom(STORE_ID_BYTES))],
        ).close()
        database.execute("COMMIT").close()
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK").close()
        raise
    check_version(database, path)


def table_names(database: sqlite3.Connection) -> set[str]:
    """Tables of the database."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name for (name,) in rows}


def has_log(database: sqlite3.Connection) -> bool:
    """Whether a log lives in the database."""
    return {"fmemory_log", "fmemory_events"} <= table_names(database)


def check_version(database: sqlite3.Connection, path: Path) -> None:
    """Refuse tables that a newer version made.

    Raises:
        StorageError: They have another version.
    """
    row = database.execute(_VERSION).fetchone()
    found = None if row is None else row[0]
    if found != SCHEMA_VERSION:
        raise StorageError(
            f"schema: expected version {SCHEMA_VERSION}, got {found} ({path}); nothing was"
            " changed; use the version of fmemory that made it, or a newer one",
            path=str(path),
            reason=Reason.UNKNOWN_FORMAT,
        )


def refuse_newer(path: Path) -> None:
    """Refuse a file in which a newer version made the tables, as far as that can be read.

    Makes no file beside it, and takes whatever else is wrong for damage.

    Raises:
        StorageError: They are of a newer version.
    """
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    with (
        suppress(sqlite3.Error, UnicodeDecodeError),
        closing(sqlite3.connect(uri, uri=True)) as database,
    ):
        row = database.execute(_VERSION).fetchone()
        if row is not None and isinstance(row[0], int) and row[0] > SCHEMA_VERSION:
            check_version(database, path)


def store_id(database: sqlite3.Connection, path: Path) -> bytes:
    """The 16 bytes that name the log.

    Raises:
        NotFound: No log lives in the database.
    """
    if not has_log(database):
        raise _missing(path)
    check_version(database, path)
    row = database.execute("SELECT value FROM fmemory_log WHERE key = 'store_id'").fetchone()
    if row is None or not isinstance(row[0], bytes) or len(row[0]) != STORE_ID_BYTES:
        raise LogCorrupt(
            f"log: expected {STORE_ID_BYTES} bytes that name it in fmemory_log, got"
            f" {None if row is None else row[0]!r} ({path}); nothing was changed",
            path=str(path),
        )
    return row[0]


def identity(path: Path) -> tuple[int, int] | None:
    """Which file a path names now; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def moved(path: Path) -> NotFound:
    """The error of one whose file was moved, removed or replaced while it was open."""
    return NotFound(
        f"database: expected the file that was opened, got another or none ({path}): it was moved,"
        " removed or made anew; nothing was written; open it where it is now",
        reason=Reason.STORE_NOT_FOUND,
        key=str(path),
    )


def polled(action: Callable[[], T], path: Path, timeout_s: float, *, waited_s: float = 0.0) -> T:
    """Do something that needs a lock of the database, trying again until time runs out.

    Args:
        waited_s: How much of the time was spent before.

    Raises:
        StoreBusy: Others held it all the time.
    """
    deadline = time.monotonic() + timeout_s - waited_s
    pause = FIRST_PAUSE_S
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            left = deadline - time.monotonic()
            if left <= 0:
                raise busy(path, timeout_s) from error
            time.sleep(min(pause, left))
            pause = min(pause * PAUSE_GROWTH, PAUSE_S_MAX)


def busy(path: Path, timeout_s: float) -> StoreBusy:
    """The error of one who waited that long in vain."""
    return StoreBusy(
        f"database: expected to write within {timeout_s:g} s, but another connection is writing"
        f" ({path}); nothing was written; try again, or find who holds it",
        timeout_s=timeout_s,
        path=str(path),
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of SQLite as those of the contract, chained."""
    try:
        yield
    except sqlite3.Error as error:
        raise contract_error(error, path) from error
    except UnicodeDecodeError as error:
        # The module decodes what SQLite says of a damaged file, names in it included.
        raise _unsound(f"text that is no UTF-8: {error}", path) from error


def contract_error(error: sqlite3.Error, path: Path) -> MemoryBackendError:
    """What an error of SQLite means to a caller."""
    place = str(path)
    if isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error):
        return _unsound(error, path)
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return ClosedStore(f"handle: closed ({place}); open it again", path=place)
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StoreFull(
                f"append: expected room, got a full disk ({place}); nothing was written; make"
                " room, then try again",
                path=place,
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return _unsound(error, path)
        case sqlite3.SQLITE_READONLY:
            return ReadOnlyStore(
                f"append: expected a file that may be written, got: {error} ({place}); nothing was"
                " written",
                path=place,
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(
                f"database: expected it free, got: {error} ({place}); nothing was written; try"
                " again",
                path=place,
            )
    return StorageError(f"database: {error} ({place})", path=place)


def _unsound(found: object, path: Path) -> LogCorrupt:
    return LogCorrupt(
        f"database: expected a sound file, got: {found} ({path}); nothing was changed; salvage what"
        " is intact with `fmemory repair`, or restore a backup",
        path=str(path),
    )


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


def _mode(path: Path, *, read_only: bool) -> str:
    """How to open: a file that nobody may write beside must not need files beside it."""
    if not read_only:
        return "mode=rwc"
    wal = path.with_name(path.name + "-wal")
    try:
        is_alone = not wal.stat().st_size
    except FileNotFoundError:
        is_alone = True
    if is_alone and not os.access(path.parent, os.W_OK):
        return "mode=ro&immutable=1"
    return "mode=ro"


def _missing(path: Path) -> NotFound:
    return NotFound(
        f"store: expected a log in an SQLite file, got none ({path}); nothing was created; check"
        " the path, or open it with create=True",
        reason=Reason.STORE_NOT_FOUND,
        key=str(path),
    )
