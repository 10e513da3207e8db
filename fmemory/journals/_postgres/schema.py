"""Tables of fmemory in a PostgreSQL database, and the row of a log. docs/postgres.md owns them.

Tables are made in one transaction under an advisory lock, so any number of processes may do it at
once. They are never changed after that but by a version that says so in `fmemory_format`.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import NamedTuple

import psycopg

from fmemory.errors import NotFound, Reason, StorageError, UnsupportedPlatform
from fmemory.journal import Stream
from fmemory.journals._postgres.target import PostgresTarget
from fmemory.journals._tables.event_table import stream_key

SCHEMA_VERSION = 1
STORE_ID_BYTES = 16

# Any number will do that nobody else takes: the first bytes of sha256(b"fmemory").
_LOCK_KEY = int.from_bytes(hashlib.sha256(b"fmemory").digest()[:8], "big", signed=True)

_CREATE = """
CREATE TABLE IF NOT EXISTS fmemory_format (
    only_row boolean PRIMARY KEY CHECK (only_row),
    version integer NOT NULL
);
CREATE TABLE IF NOT EXISTS fmemory_logs (
    log_id bigserial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    store_id bytea NOT NULL,
    head_seq bigint NOT NULL,
    head_ns bigint NOT NULL,
    synced_seq bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS fmemory_syncs (
    log_id bigint PRIMARY KEY REFERENCES fmemory_logs,
    synced_seq bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS fmemory_streams (
    log_id bigint NOT NULL REFERENCES fmemory_logs,
    stream_hash bytea NOT NULL,
    label_hash bytea NOT NULL,
    stream text NOT NULL,
    revision bigint NOT NULL,
    event_count bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    last_recorded_at_ns bigint NOT NULL,
    PRIMARY KEY (log_id, stream_hash)
);
CREATE INDEX IF NOT EXISTS fmemory_streams_newest ON fmemory_streams (log_id, last_seq);
CREATE INDEX IF NOT EXISTS fmemory_streams_label ON fmemory_streams (log_id, label_hash, last_seq);
CREATE TABLE IF NOT EXISTS fmemory_events (
    log_id bigint NOT NULL,
    seq bigint NOT NULL,
    stream_hash bytea NOT NULL,
    revision bigint NOT NULL,
    type text NOT NULL,
    event_key bytea,
    batch_id bytea,
    recorded_at_ns bigint NOT NULL,
    meta_check bigint NOT NULL,
    meta bytea NOT NULL,
    data bytea NOT NULL,
    erased boolean,
    PRIMARY KEY (log_id, seq)
);
ALTER TABLE fmemory_events ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX IF NOT EXISTS fmemory_events_stream
    ON fmemory_events (log_id, stream_hash, seq);
CREATE INDEX IF NOT EXISTS fmemory_events_key
    ON fmemory_events (log_id, event_key, seq) WHERE event_key IS NOT NULL;
"""
_MARKS = """
CREATE INDEX IF NOT EXISTS fmemory_events_erased ON fmemory_events (log_id, seq) WHERE erased;
CREATE INDEX IF NOT EXISTS fmemory_events_erased_stream
    ON fmemory_events (log_id, stream_hash, seq) WHERE erased;
"""


class LogRow(NamedTuple):
    """What is fixed of a log.

    Attributes:
        log_id: Its number in this database.
        store_id: 16 bytes that name it everywhere.
    """

    log_id: int
    store_id: bytes


def open_log(
    connection: psycopg.Connection, target: PostgresTarget, *, create: bool, timeout_s: float
) -> LogRow:
    """The log of this name, made with its tables if it is missing and `create` says so.

    Raises:
        NotFound: There are no tables, or no log of this name, and none was to be made.
        StorageError: The tables are of a newer version. Nothing was changed.
        UnsupportedPlatform: The database cannot hold all text. Nothing was changed.
        psycopg.Error: The server said no.
    """
    version = _version(connection)
    if version is None:
        if not create:
            raise _not_found(target, "there are no tables of fmemory")
        _check_encoding(connection, target)
        _create_tables(connection, timeout_s)
        version = _version(connection)
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"tables: expected version {SCHEMA_VERSION}, got {version} ({target.path}); nothing was"
            " changed; use the fmemory that made them, or a newer one",
            path=target.path,
            reason=Reason.UNKNOWN_FORMAT,
        )
    if create and not has_marks(connection):
        # Only who erases needs it: who has no right to it, or has to wait, goes on without.
        with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.LockNotAvailable):
            _add_marks(connection, timeout_s)
    found = _find_log(connection, target.log)
    if found is None:
        if not create:
            raise _not_found(target, f"there is no log {target.log!r}")
        _create_log(connection, target.log, timeout_s)
        found = _find_log(connection, target.log)
    if found is None:
        raise _not_found(target, f"the log {target.log!r} was removed at once")
    return found


def has_marks(connection: psycopg.Connection) -> bool:
    """Whether the table of events has the column that marks erased ones."""
    row = connection.execute(
        "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('fmemory_events')"
        " AND attname = 'erased' AND NOT attisdropped"
    ).fetchone()
    return row is not None


def digest(text: str) -> bytes:
    """What keys of any length are indexed by.

    >>> digest("a").hex()[:8]
    'ca978112'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def event_key(stream: str, event_id: str) -> bytes:
    """What an event id is found by: a hash of its stream and itself; no stream key has a NUL."""
    return digest(f"{stream}\0{event_id}")


def label_digest(stream: Stream) -> bytes:
    """What streams are found by that share their first label."""
    return digest(stream_key(stream[:1]))


def channel(row: LogRow) -> str:
    """Name of the channel on which commits of a log are told; letters and digits only."""
    return f"fmemory_{row.store_id.hex()}"


def new_batch_id() -> bytes:
    """16 random bytes that name one append for ever."""
    return os.urandom(16)


def _version(connection: psycopg.Connection) -> int | None:
    try:
        row = connection.execute("SELECT version FROM fmemory_format").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return None if row is None else int(row[0])


def _create_tables(connection: psycopg.Connection, timeout_s: float) -> None:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {milliseconds(timeout_s)}".encode())
        connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})".encode())
        # Who came second finds the tables, in use already: even to make them again would wait.
        (made,) = connection.execute("SELECT to_regclass('fmemory_format')").fetchone() or (None,)
        if made is not None:
            return
        connection.execute(f"{_CREATE}{_MARKS}".encode(), prepare=False)
        connection.execute(
            "INSERT INTO fmemory_format (only_row, version) VALUES (true, %s)"
            " ON CONFLICT (only_row) DO NOTHING",
            (SCHEMA_VERSION,),
        )


def _add_marks(connection: psycopg.Connection, timeout_s: float) -> None:
    """Add that column to tables that were made before there was one; rows are not rewritten."""
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {milliseconds(timeout_s)}".encode())
        connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})".encode())
        column = "ALTER TABLE fmemory_events ADD COLUMN IF NOT EXISTS erased boolean;"
        connection.execute(f"{column}{_MARKS}".encode(), prepare=False)


def _create_log(connection: psycopg.Connection, name: str, timeout_s: float) -> None:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {milliseconds(timeout_s)}".encode())
        connection.execute(
            "INSERT INTO fmemory_logs (name, store_id, head_seq, head_ns, synced_seq)"
            " VALUES (%s, %b, 0, 0, 0)"
            " ON CONFLICT (name) DO NOTHING",
            (name, os.urandom(STORE_ID_BYTES)),
        )
        connection.execute(
            "INSERT INTO fmemory_syncs (log_id, synced_seq)"
            " SELECT log_id, 0 FROM fmemory_logs WHERE name = %s ON CONFLICT (log_id) DO NOTHING",
            (name,),
        )


def _find_log(connection: psycopg.Connection, name: str) -> LogRow | None:
    row = connection.execute(
        "SELECT log_id, store_id FROM fmemory_logs WHERE name = %s", (name,), binary=True
    ).fetchone()
    return None if row is None else LogRow(int(row[0]), bytes(row[1]))


def _check_encoding(connection: psycopg.Connection, target: PostgresTarget) -> None:
    row = connection.execute("SHOW server_encoding").fetchone()
    if row is None or str(row[0]).upper() not in ("UTF8", "UTF-8"):
        raise UnsupportedPlatform(
            f"database: expected the encoding UTF8, got {row[0] if row else None}"
            f" ({target.path}); nothing was created; create the database with ENCODING 'UTF8'",
            path=target.path,
        )


def _not_found(target: PostgresTarget, why: str) -> NotFound:
    return NotFound(
        f"open: expected a log that is there, but {why} ({target.path}); nothing was created; open"
        " with create=True, or correct the name",
        reason=Reason.STORE_NOT_FOUND,
        key=target.path,
    )


def milliseconds(timeout_s: float) -> int:
    """A time for the server, which takes 0 for endless.

    >>> milliseconds(0), milliseconds(0.5)
    (1, 500)
    """
    return max(1, min(int(timeout_s * 1000), (1 << 31) - 1))
