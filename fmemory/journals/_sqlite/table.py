"""Events in an SQLite file, which may hold other people's tables too.

One connection writes and one reads, each under a lock; with the write-ahead log neither waits for
the other. A commit is `BEGIN IMMEDIATE`, the plan, inserts, `COMMIT`: SQLite's own lock keeps other
processes out meanwhile. docs/sqlite.md has the tables and what is promised.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

from fmemory.errors import ClosedStore, ForkedStore, LogPoisoned, StoreBusy
from fmemory.journal import Capabilities, Durability, JournalHealth, Stream, StreamInfo
from fmemory.journals._sqlite.erase import (
    PENDING_VACUUM,
    add_marks,
    has_marks,
    is_unclean,
    pages_of,
    rebuild,
    truncate_wal,
)
from fmemory.journals._sqlite.file import (
    busy,
    check_place,
    connect,
    identity,
    make_folder,
    moved,
    polled,
    prepare_tables,
    store_id,
    translated,
)
from fmemory.journals._sqlite.transaction import STREAM_ID, SqliteTransaction
from fmemory.journals._tables.event_table import MetaRow, Part, prefix_keys, stream_of
from fmemory_segments._sync import IntervalSync

LOCK_TIMEOUT_S: Final = 5.0
INTERVAL_S: Final = 0.1
SEQS_A_QUERY: Final = 500

_SYNCHRONOUS: Final = {"fsync": "FULL", "interval": "NORMAL", "os": "NORMAL"}
_META = "seq, recorded_at_ns, meta, checksum"
_CHECK = "SELECT checksum FROM fmemory_events WHERE seq = ?"
_STREAM = "key, revision, first_seq, last_seq, last_recorded_at_ns"
_FORKED: Final[list[sqlite3.Connection]] = []
"""Connections of the parent in a forked child: closing them there would disturb the parent's."""


class SqliteTable:
    """The events of one SQLite file. See `EventTable`."""

    capabilities = Capabilities(
        kind="sqlite", persistent=True, multi_process=True, reads_streams=True
    )

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._file = path.absolute()
        self.path = str(self._file)
        self.read_only = read_only
        self._durability = durability
        self._lock_timeout_s = lock_timeout_s
        self._process = os.getpid()
        self._is_closed = False
        self._poison = ""
        self._durable_seq = 0
        self._durable_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._read_lock = threading.RLock()
        self._synchronous = ""
        is_new = check_place(self._file, create=create and not read_only)
        with translated(self._file):
            if is_new:
                make_folder(self._file.parent)
            self._writer = None if read_only else self._connect()
            try:
                if self._writer is not None and create:
                    prepare_tables(self._writer, self._file, lock_timeout_s)
                self._reader = self._connect()
                try:
                    self.store_id = store_id(self._reader, self._file)
                    if self._writer is not None:
                        # Only who erases needs it, and tries again.
                        with suppress(sqlite3.Error, StoreBusy):
                            add_marks(self._writer, self._file, lock_timeout_s)
                    self._pages = pages_of(self._reader, self._file)
                    self._has_marks = has_marks(self._reader)
                except BaseException:
                    self._reader.close()
                    raise
            except BaseException:
                if self._writer is not None:
                    self._writer.close()
                raise
        self._identity = identity(self._file)
        if is_new:
            _sync_folder(self._file.parent)
        self._interval = IntervalSync(_sync_if_alive(weakref.ref(self)), INTERVAL_S)

    # Reading

    def head_seq(self) -> int:
        """The newest seq."""
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM fmemory_events")[0][0])

    def metas(
        self, after: int, upto: int, *, stream: str | None, backwards: bool, limit: int
    ) -> list[MetaRow]:
        """Metas by seq."""
        of_stream = "" if stream is None else f" AND stream = {STREAM_ID}"
        order = "DESC" if backwards else "ASC"
        rows = self._rows(
            f"SELECT {_META} FROM fmemory_events WHERE seq > ? AND seq <= ?{of_stream}"
            f" ORDER BY seq {order} LIMIT ?",
            (after, upto, *(() if stream is None else (stream,)), limit),
        )
        return list(map(MetaRow._make, rows))

    def metas_of(self, seqs: Sequence[int]) -> list[MetaRow]:
        """Metas of these seqs."""
        return list(map(MetaRow._make, self._rows_of(_META, seqs)))

    def erased(self, after: int, upto: int, *, stream: str | None, limit: int) -> list[MetaRow]:
        """Metas of events that are marked; none in tables that nobody has written to since."""
        if not self._has_marks:
            with self._read_lock:
                self.check_open()
                with translated(self._file):
                    self._has_marks = has_marks(self._reader)
            if not self._has_marks:
                return []
        of_stream = "" if stream is None else f" AND stream = {STREAM_ID}"
        rows = self._rows(
            f"SELECT {_META} FROM fmemory_events WHERE erased AND seq > ? AND seq <= ?{of_stream}"
            " ORDER BY seq LIMIT ?",
            (after, upto, *(() if stream is None else (stream,)), limit),
        )
        return list(map(MetaRow._make, rows))

    def data_of(self, checks: Mapping[int, int]) -> dict[int, bytes]:
        """Data of these seqs."""
        rows = self._rows_of("seq, checksum, data", list(checks))
        return {seq: data for seq, check, data in rows if checks[seq] == check}

    def parts(self, parts: Sequence[Part]) -> list[bytes]:
        """Pieces of data, read from the pages they lie in."""
        found: list[bytes] = []
        with self._read_lock, translated(self._file):
            blob: sqlite3.Blob | None = None
            seq, check = -1, -1
            try:
                for part in parts:
                    if blob is None or part.seq != seq:
                        if blob is not None:
                            blob.close()
                        blob = self._reader.blobopen(
                            "fmemory_events", "data", part.seq, readonly=True
                        )
                        seq = part.seq
                        # While it is open, this connection sees one state of the database.
                        (check,) = self._reader.execute(_CHECK, (seq,)).fetchone()
                    if check != part.check:
                        found.append(b"")
                        continue
                    blob.seek(min(part.offset, len(blob)))
                    found.append(blob.read(part.size))
            finally:
                if blob is not None:
                    blob.close()
        return found

    def find(self, stream: str, event_id: str) -> int | None:
        """The first event with this id."""
        rows = self._rows(
            f"SELECT min(seq) FROM fmemory_events WHERE stream = {STREAM_ID} AND event_id = ?",
            (stream, event_id),
        )
        seq: int | None = rows[0][0]
        return seq

    def stream(self, stream: str) -> StreamInfo | None:
        """One stream."""
        rows = self._rows(f"SELECT {_STREAM} FROM fmemory_streams WHERE key = ?", (stream,))
        return _stream_info(rows[0]) if rows else None

    def streams(self, prefix: Stream, before: int | None, limit: int | None) -> list[StreamInfo]:
        """Streams, newest first."""
        conditions, values = ["last_seq < ?"], [2**62 if before is None else before]
        arguments: list[object] = list(values)
        keys = prefix_keys(prefix)
        if keys is not None:
            whole, longer = keys
            conditions += ["kind = ?", "(key = ? OR substr(key, 1, ?) = ?)"]
            arguments += [prefix[0], whole, len(longer), longer]
        rows = self._rows(
            f"SELECT {_STREAM} FROM fmemory_streams WHERE {' AND '.join(conditions)}"
            " ORDER BY last_seq DESC LIMIT ?",
            (*arguments, -1 if limit is None else limit),
        )
        return list(map(_stream_info, rows))

    def stored_bytes(self) -> int | None:
        """The file and its write-ahead log, which comes and goes."""
        total = 0
        for path in (self._file, self._wal):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    # Writing

    @contextmanager
    def transaction(
        self, durability: Durability | None, timeout_s: float | None
    ) -> Iterator[SqliteTransaction]:
        """Exclude other writers, commit at the end."""
        wanted = durability or self._durability
        timeout_s = self._lock_timeout_s if timeout_s is None else timeout_s
        started = time.monotonic()
        if not self._write_lock.acquire(timeout=timeout_s):
            raise busy(self._file, timeout_s)
        try:
            self.check_open()
            database = self._writer
            assert database is not None
            try:
                with translated(self._file):
                    waited_s = time.monotonic() - started
                    transaction = self._begin(database, wanted, timeout_s, waited_s)
                self.check_place()
                yield transaction
                self._commit(database)
            except BaseException:
                # Also where it was begun and nothing more: it would keep everybody out.
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK").close()
                raise
            self._committed(transaction.last_seq, wanted)
        finally:
            self._write_lock.release()

    def scrub(self, *, exclusive: bool, timeout_s: float | None) -> tuple[str, ...]:
        """Rebuild the file if that was asked for, then empty the write-ahead log."""
        timeout_s = self._lock_timeout_s if timeout_s is None else timeout_s
        if not self._write_lock.acquire(timeout=timeout_s):
            raise busy(self._file, timeout_s)
        try:
            self.check_open()
            database = self._writer
            assert database is not None
            with translated(self._file):
                database.execute("PRAGMA busy_timeout = 0").close()
                pending = rebuild(database, self._file, timeout_s) if exclusive else ()
                pending += truncate_wal(database, self._file, timeout_s)
                if not exclusive and is_unclean(database):
                    pending += (PENDING_VACUUM,)
            return pending
        finally:
            self._write_lock.release()

    def is_durable(self, seq: int) -> bool:
        """Whether a sync or a commit that syncs covered it."""
        return seq <= self._durable_seq

    def sync(self, upto: int) -> int:
        """Sync the write-ahead log, where all is that the file does not have."""
        if self._durable_seq >= upto:
            return self._durable_seq
        head = self.head_seq()
        try:
            _sync_file(self._wal)
        except OSError as error:
            raise self._poisoned(error) from error
        self._advance_durable(head)
        return self._durable_seq

    # Handle

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """SQLite tells nobody of commits of other connections: whoever waits polls."""
        del callback
        return lambda: None

    def check_place(self) -> None:
        """Refuse a file that was moved, removed or replaced."""
        if identity(self._file) != self._identity:
            raise moved(self._file)

    def check_open(self) -> None:
        """Refuse a handle that was closed or carried over a fork."""
        if os.getpid() != self._process:
            raise ForkedStore(
                f"handle: expected the process that opened it, got a fork of it ({self.path}); the"
                " parent's handle is untouched; open the store again in this process",
                path=self.path,
            )
        if self._is_closed:
            raise ClosedStore(
                f"handle: expected an open store, got a closed one ({self.path}); open it again",
                path=self.path,
            )
        if self._poison:
            raise LogPoisoned(self._poison, path=self.path)

    def health(self) -> JournalHealth:
        """Ok until it is closed or a sync failed."""
        state: Literal["ok", "poisoned", "closed"] = "poisoned" if self._poison else "ok"
        return JournalHealth("closed" if self._is_closed else state, self._durable_seq)

    def close(self) -> None:
        """Sync what interval commits left, and close the connections; twice is fine."""
        if self._is_closed:
            return
        if os.getpid() != self._process:
            self._is_closed = True
            _FORKED.extend(one for one in (self._writer, self._reader) if one is not None)
            return
        self._interval.stop()
        with self._write_lock, self._read_lock:
            try:
                if self._interval.is_dirty:
                    self.sync(self.head_seq())
            finally:
                self._is_closed = True
                with translated(self._file):
                    self._reader.close()
                    if self._writer is not None:
                        self._writer.close()

    # Private

    @property
    def _wal(self) -> Path:
        return self._file.with_name(self._file.name + "-wal")

    def _connect(self) -> sqlite3.Connection:
        return connect(self._file, read_only=self.read_only, busy_timeout_s=self._lock_timeout_s)

    def _begin(
        self,
        database: sqlite3.Connection,
        durability: Durability,
        timeout_s: float,
        waited_s: float,
    ) -> SqliteTransaction:
        synchronous = _SYNCHRONOUS[durability]
        if synchronous != self._synchronous:
            database.execute(f"PRAGMA synchronous = {synchronous}").close()
            self._synchronous = synchronous
        database.execute("PRAGMA busy_timeout = 0").close()
        polled(
            lambda: database.execute("BEGIN IMMEDIATE").close(),
            self._file,
            timeout_s,
            waited_s=waited_s,
        )
        newest = database.execute(
            "SELECT seq, recorded_at_ns FROM fmemory_events ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return SqliteTransaction(database, self._pages, *(newest or (0, 0)))

    def _advance_durable(self, seq: int) -> None:
        with self._durable_lock:
            self._durable_seq = max(self._durable_seq, seq)

    def _committed(self, last_seq: int, durability: Durability) -> None:
        if durability == "fsync":
            # The sync of a commit covers the whole write-ahead log, earlier commits included.
            self._advance_durable(last_seq)
        elif durability == "interval":
            self._interval.touch()

    def _rows(self, statement: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._read_lock:
            self.check_open()
            with translated(self._file):
                return self._reader.execute(statement, arguments).fetchall()

    def _rows_of(self, columns: str, seqs: Sequence[int]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(seqs), SEQS_A_QUERY):
            part = seqs[start : start + SEQS_A_QUERY]
            marks = ", ".join("?" * len(part))
            found += self._rows(
                f"SELECT {columns} FROM fmemory_events WHERE seq IN ({marks})", part
            )
        return found

    def _commit(self, database: sqlite3.Connection) -> None:
        with translated(self._file):
            try:
                database.execute("COMMIT").close()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_IOERR_FSYNC:
                    raise
                raise self._poisoned(error) from error

    def _poisoned(self, error: Exception) -> LogPoisoned:
        """Make every later call fail: after a failed sync nobody knows what is on disk."""
        self._poison = (
            f"sync: expected it to succeed, got {error} ({self.path}); events after seq"
            f" {self._durable_seq} are in doubt; close this handle and open the store again"
        )
        return LogPoisoned(self._poison, path=self.path)


def _stream_info(row: tuple[str, int, int, int, int]) -> StreamInfo:
    key, revision, first_seq, last_seq, last_recorded_at_ns = row
    return StreamInfo(stream_of(key), revision, revision, first_seq, last_seq, last_recorded_at_ns)


def _sync_file(path: Path) -> None:
    """Sync a file; one that is not there needs none."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    """Have the name of a new file on disk."""
    if os.name == "posix":
        _sync_file(path)


def _sync_if_alive(reference: weakref.ref[SqliteTable]) -> Callable[[], bool]:
    """Sync the table, unless it is gone; False if it is."""

    def sync() -> bool:
        table = reference()
        if table is None:
            return False
        try:
            table.sync(table.head_seq())
        except (ClosedStore, ForkedStore, LogPoisoned):
            return False  # Every later call of the handle says so.
        return True

    return sync
