"""One append to PostgreSQL: the head row locked, rows and COMMIT in one message, doubt settled.

The row of the log in `fmemory_logs` is the lock: who holds it gives out seqs, so they have no gap
and their order is that of the commits. If the connection is lost around COMMIT, the row says what
became of it: once another connection holds it, the first one's transaction has ended, and either
its first event is there with its batch id, or nothing of it ever will be. A large batch goes in
several messages, COMMIT in the last, and no more than one of them is in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec
import psycopg
from psycopg import pq

from fmemory.errors import CommitUnknown, NotFound, Reason, StorageError
from fmemory.journal import Durability, StreamInfo
from fmemory.journals._postgres.connections import Connection, Connections
from fmemory.journals._postgres.errors import (
    ConnectError,
    is_lost,
    lost_error,
    raise_contract_error,
    safe_cause,
)
from fmemory.journals._postgres.schema import (
    LogRow,
    digest,
    event_key,
    label_digest,
    milliseconds,
    new_batch_id,
)
from fmemory.journals._postgres.target import PostgresTarget
from fmemory.journals._tables.event_table import ErasedRow, EventRow, stream_key
from fmemory_segments import FORGOTTEN

IDLE = pq.TransactionStatus.IDLE
SETTLE_TIMEOUT_S = 10.0
MESSAGE_BYTES = 4 * 1024 * 1024
# lock_timeout is for each lock, of which a row can want several: this bounds them together.
_STATEMENT_SLACK_MS = 100

_INSERT_EVENT = """
INSERT INTO fmemory_events (log_id, seq, stream_hash, revision, type, event_key, batch_id,
    recorded_at_ns, meta_check, meta, data)
VALUES (%s, %s, %b, %s, %s, %b, %b, %s, %s, %b, %b)
"""
_REPLACE_EVENT = """
UPDATE fmemory_events SET meta = %b, meta_check = %s, data = %b, erased = true
WHERE log_id = %s AND seq = %s
"""
_FORGET_EVENT = f"""
UPDATE fmemory_events SET type = '{FORGOTTEN}', event_key = NULL WHERE log_id = %s AND seq = %s
"""
_MARK_EVENT = "UPDATE fmemory_events SET erased = true WHERE log_id = %s AND seq = %s"
_UPSERT_STREAM = """
INSERT INTO fmemory_streams (log_id, stream_hash, label_hash, stream, revision, event_count,
    first_seq, last_seq, last_recorded_at_ns)
VALUES (%s, %b, %b, %s, %s, %s, %s, %s, %s)
ON CONFLICT (log_id, stream_hash) DO UPDATE SET
    revision = excluded.revision,
    event_count = excluded.event_count,
    last_seq = excluded.last_seq,
    last_recorded_at_ns = excluded.last_recorded_at_ns
"""
# By whether the commit is synchronous: then others see it only when it is on disk, and with it all
# commits before it.
_MOVE_HEAD = {
    False: "UPDATE fmemory_logs SET head_seq = %(seq)s, head_ns = %(ns)s WHERE log_id = %(log)s",
    True: "UPDATE fmemory_logs SET head_seq = %(seq)s, head_ns = %(ns)s, synced_seq = %(seq)s"
    " WHERE log_id = %(log)s",
}


class PostgresTransaction:
    """The one writer of a log. Rows are kept until the end and go with the COMMIT.

    Attributes:
        head_seq: The newest seq.
        head_ns: Its time.
        durability: When it ends.
        batch_id: Names this append for ever.
        last_seq: The newest seq once it has ended.
    """

    def __init__(self, head_seq: int, head_ns: int, durability: Durability) -> None:
        self.head_seq = head_seq
        self.head_ns = head_ns
        self.durability: Durability = durability
        self.batch_id = new_batch_id()
        self.last_seq = head_seq
        self.rows: Iterable[EventRow] | None = None
        self.streams: Sequence[StreamInfo] = ()
        self.replaced: Sequence[ErasedRow] = ()

    def append(self, rows: Iterable[EventRow], streams: Sequence[StreamInfo]) -> None:
        """Store events when the transaction ends; they are taken then."""
        assert self.rows is None, "a transaction appends once"
        self.rows, self.streams = rows, streams

    def replace(self, rows: Sequence[ErasedRow]) -> None:
        """Store events anew when the transaction ends."""
        assert self.rows is None, "a transaction replaces or appends"
        self.replaced = rows


class Committer:
    """Runs appends of one log, one at a time in each process."""

    def __init__(self, connections: Connections, target: PostgresTarget, log: LogRow) -> None:
        self._connections = connections
        self._target = target
        self._log = log

    @contextmanager
    def transaction(
        self, durability: Durability, deadline: float, timeout_s: float
    ) -> Iterator[PostgresTransaction]:
        """The head row, locked until the block ends; then what was appended is committed.

        Raises:
            StoreBusy: Others held the row until the deadline. Nothing was written.
            CommitUnknown: The connection was lost around COMMIT and the server stayed away.
            StorageError: The database failed. Nothing was written.
        """
        with self._locked_head(durability, deadline, timeout_s) as (connection, transaction):
            try:
                with self._connections.holding(connection):
                    yield transaction
                if transaction.rows is not None or transaction.replaced:
                    self._commit(connection, transaction, timeout_s)
            finally:
                _roll_back(connection)

    def is_committed(self, batch_id: bytes, first_seq: int, timeout_s: float) -> bool:
        """Whether an append is there whole; false: it is not, and never will be.

        Raises:
            ConnectError, psycopg.Error: That cannot be told now.
        """
        connection = self._connections.connect()
        try:
            _lock_head(connection, self._log, "on", timeout_s)
            row = connection.execute(
                "SELECT batch_id FROM fmemory_events WHERE log_id = %s AND seq = %s",
                (self._log.log_id, first_seq),
                binary=True,
            ).fetchone()
            connection.execute("ROLLBACK")
        finally:
            connection.close()
        return row is not None and row[0] is not None and bytes(row[0]) == batch_id

    def _is_replaced(self, row: ErasedRow, timeout_s: float) -> bool:
        """Whether an event was stored anew as this; false: it was not, and never will be."""
        connection = self._connections.connect()
        try:
            _lock_head(connection, self._log, "on", timeout_s)
            found = connection.execute(
                "SELECT meta_check FROM fmemory_events WHERE log_id = %s AND seq = %s",
                (self._log.log_id, row.seq),
            ).fetchone()
            connection.execute("ROLLBACK")
        finally:
            connection.close()
        return found is not None and int(found[0]) == row.check

    @contextmanager
    def _locked_head(
        self, durability: Durability, deadline: float, timeout_s: float
    ) -> Iterator[tuple[Connection, PostgresTransaction]]:
        """Begin; a connection that turns out to be lost is replaced, for nothing has run yet."""
        setting = "on" if durability == "fsync" else "off"
        while True:
            used: Connection | None = None
            try:
                with self._connections.use(max(0.0, deadline - time.monotonic())) as used:
                    left_s = max(0.0, deadline - time.monotonic())
                    head = self._begin(used, setting, left_s, timeout_s)
                    if head is not None:
                        yield used, PostgresTransaction(*head, durability)
                        return
            except ConnectError as failed:
                if not self._connections.wait(deadline):
                    self._connections.check_open()
                    raise failed.error from failed.error.__cause__
            if used is not None:
                self._connections.discard_idle()
                if not self._connections.wait(deadline):
                    self._connections.check_open()
                    raise lost_error(self._target, "append", None)

    def _begin(
        self, connection: Connection, setting: str, left_s: float, timeout_s: float
    ) -> tuple[int, int] | None:
        """The head, locked; None if the connection was lost."""
        try:
            head = _lock_head(connection, self._log, setting, left_s)
        except psycopg.Error as error:
            if is_lost(error, connection):
                return None
            _roll_back(connection)
            raise_contract_error(error, self._target, "append", timeout_s)
        if head is None:
            _roll_back(connection)
            raise NotFound(
                f"append: expected the log {self._target.log!r}, got none: it was removed"
                f" ({self._target.path}); nothing was written; open the store again",
                reason=Reason.STORE_NOT_FOUND,
                key=self._target.path,
            )
        return head

    def _commit(
        self, connection: Connection, transaction: PostgresTransaction, timeout_s: float
    ) -> None:
        try:
            status = self._send(connection, transaction)
        except psycopg.Error as error:
            if is_lost(error, connection):
                connection.close()
                self._settle(transaction, error)
                return
            # An answer that is an error: the server has rolled back.
            raise_contract_error(error, self._target, "append", timeout_s)
        if status is None:
            connection.close()
            self._settle(transaction, None)
        elif status != "COMMIT":
            raise StorageError(
                f"append: expected COMMIT, got {status} ({self._target.path}); nothing was written",
                path=self._target.path,
            )

    def _send(self, connection: Connection, transaction: PostgresTransaction) -> str | None:
        log_id = self._log.log_id
        if transaction.rows is None:
            return self._send_replaced(connection, transaction.replaced)
        erased: list[tuple[int, int]] = []
        moved: dict[str, int] = {"log": log_id}
        values = _event_values(log_id, transaction, erased, moved)
        message, is_full = _next_message(values)
        while is_full:
            # The client library keeps what the server has not taken: so this waits for each.
            with _pipeline(connection), connection.cursor() as cursor:
                cursor.executemany(_INSERT_EVENT, message)
            message, is_full = _next_message(values)
        with _pipeline(connection):
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT_EVENT, message)
            with connection.cursor() as cursor:
                cursor.executemany(_UPSERT_STREAM, _stream_values(log_id, transaction.streams))
            if erased:
                with connection.cursor() as cursor:
                    cursor.executemany(_MARK_EVENT, erased)
            connection.execute(_MOVE_HEAD[transaction.durability == "fsync"], moved)
            transaction.last_seq = moved["seq"]
            last = connection.execute("COMMIT")
        return last.statusmessage

    def _send_replaced(self, connection: Connection, rows: Sequence[ErasedRow]) -> str | None:
        log_id = self._log.log_id
        values = [(row.meta, row.check, row.data, log_id, row.seq) for row in rows]
        with _pipeline(connection):
            with connection.cursor() as cursor:
                cursor.executemany(_REPLACE_EVENT, values)
            stubs = [(log_id, row.seq) for row in rows if row.is_stub]
            if stubs:
                with connection.cursor() as cursor:
                    cursor.executemany(_FORGET_EVENT, stubs)
            last = connection.execute("COMMIT")
        return last.statusmessage

    def _is_done(self, transaction: PostgresTransaction, timeout_s: float) -> bool:
        if transaction.replaced:
            return self._is_replaced(transaction.replaced[0], timeout_s)
        return self.is_committed(transaction.batch_id, transaction.head_seq + 1, timeout_s)

    def _settle(self, transaction: PostgresTransaction, cause: psycopg.Error | None) -> None:
        """Return if it was committed; raise that it was not, or that nobody knows."""
        first_seq = transaction.head_seq + 1
        timeout_s = SETTLE_TIMEOUT_S
        deadline = time.monotonic() + timeout_s
        self._connections.discard_idle()
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            try:
                if self._is_done(transaction, left_s):
                    return
                raise lost_error(self._target, "append", cause)
            except (ConnectError, psycopg.Error):
                if self._connections.wait(deadline):
                    continue
            if transaction.replaced:
                raise StorageError(
                    f"compact: expected an answer to COMMIT, got a connection that ended and no"
                    f" server for {timeout_s} s ({self._target.path}); all of the events of this"
                    " transaction were erased or none; compact again when the server is back",
                    path=self._target.path,
                    seq=transaction.replaced[0].seq,
                ) from (None if cause is None else safe_cause(cause, self._target))
            unknown = CommitUnknown(
                f"append: expected an answer to COMMIT, got a connection that ended and no server"
                f" for {timeout_s} s ({self._target.path}); whether event {first_seq} and those"
                f" after it were written is unknown; batch {transaction.batch_id.hex()} settles"
                " it: was_committed(error) when the server is back",
                path=self._target.path,
                seq=first_seq,
                batch_id=transaction.batch_id.hex(),
                store_id=self._log.store_id.hex(),
            )
            raise unknown from (None if cause is None else safe_cause(cause, self._target))


def _lock_head(
    connection: Connection, log: LogRow, setting: str, timeout_s: float
) -> tuple[int, int] | None:
    """Begin a transaction and lock the head row, in one message; None if there is no such row."""
    wait_ms = milliseconds(timeout_s)
    cursor = connection.execute(
        (
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            f"SET LOCAL synchronous_commit TO {setting};"
            f"SET LOCAL lock_timeout TO {wait_ms};"
            f"SET LOCAL statement_timeout TO {wait_ms + _STATEMENT_SLACK_MS};"
            f"SELECT head_seq, head_ns FROM fmemory_logs WHERE log_id = {log.log_id} FOR UPDATE;"
            "SET LOCAL statement_timeout TO DEFAULT"
        ).encode(),
        prepare=False,
    )
    head: tuple[int, int] | None = None
    while True:
        if cursor.description is not None:
            row = cursor.fetchone()
            head = None if row is None else (int(row[0]), int(row[1]))
        if not cursor.nextset():
            return head


def _event_values(
    log_id: int,
    transaction: PostgresTransaction,
    erased: list[tuple[int, int]],
    moved: dict[str, int],
) -> Iterator[tuple[object, ...]]:
    """What is inserted for each event.

    Args:
        erased: Gets what marks those that are erased.
        moved: Gets what moves the head to the last one taken.
    """
    batch_id: bytes | None = transaction.batch_id
    hashes: dict[str, bytes] = {}
    for row in transaction.rows or ():
        stream_hash = hashes.get(row.stream)
        if stream_hash is None:
            stream_hash = hashes[row.stream] = digest(row.stream)
        key = None if row.event_id is None else event_key(row.stream, row.event_id)
        yield (
            log_id,
            row.seq,
            stream_hash,
            row.revision,
            # As JSON writes it: a type may hold a NUL, which text of the server may not.
            msgspec.json.encode(row.type)[1:-1].decode(),
            key,
            batch_id,
            row.recorded_at_ns,
            row.check,
            row.meta,
            row.data,
        )
        batch_id = None  # one is enough: a batch is there whole or not at all
        if row.is_erased:
            erased.append((log_id, row.seq))
        moved.update(seq=row.seq, ns=row.recorded_at_ns)


def _next_message(values: Iterator[tuple[object, ...]]) -> tuple[list[tuple[object, ...]], bool]:
    """What is sent at once, and whether it is as much as should be: then more may follow."""
    message: list[tuple[object, ...]] = []
    size = 0
    for one in values:
        message.append(one)
        size += sum(len(part) for part in one if isinstance(part, bytes))
        if size >= MESSAGE_BYTES:
            return message, True
    return message, False


def _stream_values(log_id: int, streams: Sequence[StreamInfo]) -> Iterator[tuple[object, ...]]:
    for info in streams:
        key = stream_key(info.stream)
        yield (
            log_id,
            digest(key),
            label_digest(info.stream),
            key,
            info.revision,
            info.event_count,
            info.first_seq,
            info.last_seq,
            info.last_recorded_at_ns,
        )


def _pipeline(connection: Connection) -> AbstractContextManager[object]:
    """One message for all statements, where the client library can."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()


def _roll_back(connection: Connection) -> None:
    """End a transaction that was not committed; a connection that cannot is closed."""
    if connection.closed or connection.info.transaction_status == IDLE:
        return
    try:
        connection.execute(b"ROLLBACK", prepare=False)
    except psycopg.Error:
        connection.close()
