"""Events in PostgreSQL: the queries. docs/postgres.md has the tables and what they promise.

Every read is one statement over rows that never change, bounded by the seqs it names, so no
snapshot is kept between two of them. Importing this file needs the package psycopg.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import psycopg

from fmemory.errors import (
    CommitUnknown,
    ContractError,
    MemoryBackendError,
    NotFound,
    ReadOnlyStore,
    Reason,
    StoreBusy,
    StoreFull,
)
from fmemory.journal import Capabilities, Durability, JournalHealth, Stream, StreamInfo
from fmemory.journals._postgres.commit import Committer, PostgresTransaction
from fmemory.journals._postgres.connections import Connection, Connections
from fmemory.journals._postgres.errors import (
    ConnectError,
    connect_failed,
    is_lost,
    raise_contract_error,
)
from fmemory.journals._postgres.listener import Listener
from fmemory.journals._postgres.schema import (
    LogRow,
    channel,
    digest,
    event_key,
    has_marks,
    label_digest,
    milliseconds,
    open_log,
)
from fmemory.journals._postgres.target import PostgresTarget
from fmemory.journals._postgres.vacuum import vacuum
from fmemory.journals._tables.event_table import MetaRow, Part, prefix_keys, stream_of

_META = "SELECT seq, recorded_at_ns, meta, meta_check FROM fmemory_events WHERE log_id = %s"
_STREAM = (
    "SELECT stream, revision, event_count, first_seq, last_seq, last_recorded_at_ns"
    " FROM fmemory_streams WHERE log_id = %s"
)
# Only the chunks that a part lies in are read: data is stored outside of the row, uncompressed.
_PART = (
    "SELECT substring(data FROM %s::int FOR %s::int) FROM fmemory_events"
    " WHERE log_id = %s AND seq = %s AND meta_check = %s"
)
_PARTS = """
SELECT substring(e.data FROM p.start FOR p.size)
FROM unnest(%s::bigint[], %s::bigint[], %s::int[], %s::int[])
    WITH ORDINALITY AS p (seq, meta_check, start, size, place)
LEFT JOIN fmemory_events e
    ON e.log_id = %s AND e.seq = p.seq AND e.meta_check = p.meta_check
ORDER BY p.place
"""
_SIZE = """
SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name
"""
_TABLES = ["fmemory_events", "fmemory_logs", "fmemory_streams", "fmemory_syncs"]


class PostgresTable:
    """One log in a PostgreSQL database.

    Args:
        target: Which.
        create: Make tables and log if they are missing.
        read_only: Use read-only transactions and create nothing.
        durability: `fsync`: a commit is acknowledged when the server has it on disk. `interval`
            and `os`: before (`synchronous_commit` off).
        lock_timeout_s: Longest wait for other writers, for a connection, and for a server that is
            away.

    Raises:
        NotFound: There is no such log, and none was to be created.
        StorageError: The server cannot be reached, or the tables are of a newer version.
    """

    capabilities = Capabilities(
        kind="postgres", persistent=True, multi_process=True, reads_streams=True
    )

    def __init__(
        self,
        target: PostgresTarget,
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        lock_timeout_s: float = 5.0,
    ) -> None:
        self.path = target.path
        self.read_only = read_only
        self._target = target
        self._durability: Durability = durability
        self._timeout_s = lock_timeout_s
        self._connections = Connections(target, read_only=read_only, timeout_s=lock_timeout_s)
        try:
            self._log = self._open(create=create and not read_only)
        except BaseException:
            self._connections.close()
            raise
        self.store_id = self._log.store_id
        self._committer = Committer(self._connections, target, self._log)
        self._channel = channel(self._log)
        self._listener = Listener(self._connections, self._channel)
        self._write_lock = threading.Lock()
        self._durable_seq = 0
        self._full = False
        self._notifies = True
        self._has_marks = False

    # Reading

    def head_seq(self) -> int:
        """The newest seq."""

        def query(connection: Connection) -> int:
            row = connection.execute(
                "SELECT head_seq, store_id FROM fmemory_logs WHERE log_id = %s",
                (self._log.log_id,),
            ).fetchone()
            if row is None or bytes(row[1]) != self.store_id:
                raise NotFound(
                    f"read: expected the log {self._target.log!r} that was opened, got"
                    f" {'none' if row is None else 'another'}: it was removed or made anew"
                    f" ({self.path}); open the store again",
                    reason=Reason.STORE_NOT_FOUND,
                    key=self.path,
                )
            return int(row[0])

        return self._connections.read(query)

    def metas(
        self, after: int, upto: int, *, stream: str | None, backwards: bool, limit: int
    ) -> list[MetaRow]:
        """Events by seq, of all streams or, by an index, of one."""
        order = "DESC" if backwards else "ASC"
        values: list[object] = [self._log.log_id, after, upto]
        text = f"{_META} AND seq > %s AND seq <= %s"
        if stream is not None:
            text += " AND stream_hash = %b"
            values.append(digest(stream))
        found = self._rows(f"{text} ORDER BY seq {order} LIMIT %s", (*values, limit))
        return [MetaRow(*row) for row in found]

    def metas_of(self, seqs: Sequence[int]) -> list[MetaRow]:
        """These events."""
        found = self._rows(f"{_META} AND seq = ANY(%s::bigint[])", (self._log.log_id, list(seqs)))
        return [MetaRow(*row) for row in found]

    def erased(self, after: int, upto: int, *, stream: str | None, limit: int) -> list[MetaRow]:
        """Events that are marked; none in tables that nobody has opened for writing since."""
        self._has_marks = self._has_marks or self._connections.read(has_marks)
        if not self._has_marks:
            return []
        values: list[object] = [self._log.log_id, after, upto]
        text = f"{_META} AND erased AND seq > %s AND seq <= %s"
        if stream is not None:
            text += " AND stream_hash = %b"
            values.append(digest(stream))
        return [
            MetaRow(*row) for row in self._rows(f"{text} ORDER BY seq LIMIT %s", (*values, limit))
        ]

    def data_of(self, checks: Mapping[int, int]) -> dict[int, bytes]:
        """Data of these events."""
        found = self._rows(
            "SELECT seq, meta_check, data FROM fmemory_events WHERE log_id = %s"
            " AND seq = ANY(%s::bigint[])",
            (self._log.log_id, list(checks)),
        )
        return {seq: data for seq, check, data in found if checks[seq] == check}

    def parts(self, parts: Sequence[Part]) -> list[bytes]:
        """Pieces of data; the server reads no more than the chunks they lie in."""
        log_id = self._log.log_id
        if len(parts) == 1:
            (one,) = parts
            found = self._rows(_PART, (one.offset + 1, one.size, log_id, one.seq, one.check))
            return [found[0][0] if found else b""]
        seqs, checks = [one.seq for one in parts], [one.check for one in parts]
        starts, sizes = [one.offset + 1 for one in parts], [one.size for one in parts]
        found = self._rows(_PARTS, (seqs, checks, starts, sizes, log_id))
        return [row[0] or b"" for row in found]

    def find(self, stream: str, event_id: str) -> int | None:
        """The smallest seq in a stream with this event id."""
        found = self._rows(
            "SELECT seq FROM fmemory_events WHERE log_id = %s AND event_key = %b"
            " ORDER BY seq LIMIT 1",
            (self._log.log_id, event_key(stream, event_id)),
        )
        return found[0][0] if found else None

    def stream(self, stream: str) -> StreamInfo | None:
        """What is known of one stream."""
        values = (self._log.log_id, digest(stream))
        found = self._rows(f"{_STREAM} AND stream_hash = %b", values)
        return _info(found[0]) if found else None

    def streams(self, prefix: Stream, before: int | None, limit: int | None) -> list[StreamInfo]:
        """Streams, the one with the newest event first; by an index for their first label."""
        text, values = _STREAM, list[object]([self._log.log_id])
        keys = prefix_keys(prefix)
        if keys is not None:
            text += " AND label_hash = %b"
            values.append(label_digest(prefix))
            if len(prefix) > 1:
                whole, begin = keys
                text += " AND (stream = %s OR substr(stream, 1, %s::int) = %s)"
                values += [whole, len(begin), begin]
        if before is not None:
            text += " AND last_seq < %s"
            values.append(before)
        text += " ORDER BY last_seq DESC"
        if limit is not None:
            text += " LIMIT %s"
            values.append(limit)
        return [_info(row) for row in self._rows(text, values)]

    # Writing

    def scrub(self, *, exclusive: bool, timeout_s: float | None) -> tuple[str, ...]:
        """Vacuum the table of events, over a connection of its own."""
        if not self.erased(0, self.head_seq(), stream=None, limit=1):
            return ()
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            connection = self._connections.connect()
            try:
                return vacuum(connection, exclusive=exclusive, timeout_s=wait_s)
            finally:
                connection.close()
        except ConnectError as failed:
            raise failed.error from failed.error.__cause__
        except psycopg.Error as error:
            raise_contract_error(error, self._target, "vacuum", wait_s)

    @contextmanager
    def transaction(
        self, durability: Durability | None, timeout_s: float | None
    ) -> Iterator[PostgresTransaction]:
        """The one writer of the moment; reads of its thread go over its connection."""
        self.check_open()
        if self.read_only:
            raise ReadOnlyStore(
                f"append: expected a store opened for writing, got read_only=True ({self.path});"
                " nothing was written; open it without read_only",
                path=self.path,
            )
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        wanted = self._durability if durability is None else durability
        deadline = time.monotonic() + wait_s
        if not self._write_lock.acquire(timeout=wait_s):
            raise StoreBusy(
                f"append: expected the log free within {wait_s} s, got another thread that writes"
                f" ({self.path}); nothing was written; try again",
                timeout_s=wait_s,
                path=self.path,
            )
        try:
            with self._committer.transaction(wanted, deadline, wait_s) as transaction:
                yield transaction
        except StoreFull:
            self._full = True
            raise
        finally:
            self._write_lock.release()
        if transaction.rows is not None:
            self._full = False
            if wanted == "fsync":
                # On disk in the order of the commits: whatever came before is there as well.
                self._note_durable(transaction.last_seq)
            self._notify()

    def was_committed(self, error: CommitUnknown) -> bool:
        """Whether the append that ended in this error was written; false: it never will be.

        Raises:
            ContractError: The error is of another log.
            StoreBusy: Its transaction has not ended yet.
            StorageError: The server is still away.
        """
        self.check_open()
        if error.store_id != self.store_id.hex() or error.seq is None:
            raise ContractError(
                f"settle: expected an error of the log {self.store_id.hex()}, got one of"
                f" {error.store_id or None} ({self.path}); ask a handle of that log",
                where="error",
                reason=Reason.MISMATCH,
            )
        batch_id = bytes.fromhex(error.batch_id)
        try:
            return self._committer.is_committed(batch_id, error.seq, self._timeout_s)
        except ConnectError as failed:
            raise failed.error from failed.error.__cause__
        except psycopg.Error as failure:
            raise_contract_error(failure, self._target, "settle", self._timeout_s)

    def is_durable(self, seq: int) -> bool:
        """Whether this handle knows that a commit at or after this seq is on disk."""
        return seq <= self._durable_seq

    def sync(self, upto: int) -> int:
        """Have events on disk: if no synchronous commit came after them, make one.

        Returns:
            The newest seq that is known to be on disk. A read-only handle makes no commit, so for
            it that may be less than `upto`.
        """
        self.check_open()
        if upto > self._durable_seq:
            self._note_durable(self._connections.read(self._synced_seq, "sync"))
        if upto > self._durable_seq and not self.read_only:
            self._note_durable(self._connections.read(self._sync, "sync"))
        return self._durable_seq

    # Handle

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back from a thread that listens on a connection of its own."""
        self.check_open()
        return self._listener.watch(callback)

    def check_open(self) -> None:
        """Raise `ClosedStore` or `ForkedStore` if the handle must not be used."""
        self._connections.check_open()

    def check_place(self) -> None:
        """Its queries fail where the log is gone."""

    def stored_bytes(self) -> int | None:
        """What the tables of all logs of this database occupy, indexes included."""
        try:
            found = self._rows(_SIZE, (_TABLES,))
        except MemoryBackendError:
            self.check_open()
            return None  # a server that speaks the protocol but has no such function
        return None if found[0][0] is None else int(found[0][0])

    def health(self) -> JournalHealth:
        """The state of the handle; asks nothing of the server."""
        state: Literal["ok", "full", "closed"] = "full" if self._full else "ok"
        if self._connections.closed:
            state = "closed"
        notice = self._listener.notice
        return JournalHealth(state, self._durable_seq, () if notice is None else (notice,))

    def close(self) -> None:
        """Give back connections; in a forked child only the child's copies are meant."""
        try:
            self.check_open()
        except MemoryBackendError:
            self._connections.close()
            return
        self._connections.close()
        self._listener.close()

    # Private

    def _open(self, *, create: bool) -> LogRow:
        try:
            with self._connections.use() as connection:
                return open_log(connection, self._target, create=create, timeout_s=self._timeout_s)
        except ConnectError as failed:
            raise failed.error from failed.error.__cause__
        except psycopg.Error as error:
            if is_lost(error):
                failed_error = connect_failed(error, self._target).error
                raise failed_error from failed_error.__cause__
            raise_contract_error(error, self._target, "open", self._timeout_s)

    def _rows(self, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        query = text.encode()
        return self._connections.read(
            lambda connection: connection.execute(query, values, binary=True).fetchall()
        )

    def _synced_seq(self, connection: Connection) -> int:
        """What commits of anybody have left behind as being on disk."""
        row = connection.execute(
            "SELECT greatest(l.synced_seq, s.synced_seq) FROM fmemory_logs l"
            " JOIN fmemory_syncs s ON s.log_id = l.log_id WHERE l.log_id = %s",
            (self._log.log_id,),
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _sync(self, connection: Connection) -> int:
        """Commit a row of its own synchronously; an empty transaction would not wait for the disk.

        Not the head row: that would wait for whoever appends.
        """
        with connection.transaction():
            connection.execute(
                "SET LOCAL synchronous_commit TO on;"
                f"SET LOCAL lock_timeout TO {milliseconds(self._timeout_s)}".encode(),
                prepare=False,
            )
            row = connection.execute(
                "UPDATE fmemory_syncs s SET synced_seq = greatest(s.synced_seq, l.head_seq)"
                " FROM fmemory_logs l WHERE l.log_id = s.log_id AND s.log_id = %s"
                " RETURNING s.synced_seq",
                (self._log.log_id,),
            ).fetchone()
        return 0 if row is None else int(row[0])

    def _note_durable(self, seq: int) -> None:
        self._durable_seq = max(self._durable_seq, seq)

    def _notify(self) -> None:
        """Tell other handles; a hint, so nothing that happens to it matters to the commit."""
        if not self._notifies:
            return
        try:
            with self._connections.use(0.0) as connection:
                connection.execute(f"NOTIFY {self._channel}".encode(), prepare=False)
        except psycopg.Error as error:
            # A server that knows no NOTIFY is not asked again; one that went away is.
            self._notifies = is_lost(error)
        except (ConnectError, MemoryBackendError):
            pass


def _info(row: tuple[Any, ...]) -> StreamInfo:
    stream, *numbers = row
    return StreamInfo(stream_of(stream), *numbers)
