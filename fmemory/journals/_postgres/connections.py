"""Connections to PostgreSQL: a pool that connects in the thread that asks, and the fork guard.

Not `psycopg_pool`: a thread of a pool that cannot connect lets its callers wait and then says
"timeout"; here the caller gets what the server said, at once, and no thread is lost in a fork.

A process that was forked shares its parent's sockets. Its copies are cut off before anything else
runs in it, so that whatever it does, closing included, says nothing to the parent's server.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import TypeAlias, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from fmemory.errors import ClosedStore, ForkedStore, StoreBusy
from fmemory.journals._postgres.errors import (
    ConnectError,
    connect_failed,
    is_lost,
    lost_error,
    raise_contract_error,
)
from fmemory.journals._postgres.target import PostgresTarget

CONNECTIONS_MAX = 8
RETRY_S = 0.05
CONNECT_TIMEOUT_S_MIN = 2  # libpq takes no less

Connection: TypeAlias = "psycopg.Connection[TupleRow]"
Result = TypeVar("Result")

_open: WeakSet[Connection] = WeakSet()


class Connections:
    """At most `CONNECTIONS_MAX` connections to one database, kept while they are not in use.

    Args:
        read_only: The server is told to refuse writes.
        timeout_s: Longest wait for a connection, and for a server that is away.
    """

    def __init__(self, target: PostgresTarget, *, read_only: bool, timeout_s: float) -> None:
        self._target = target
        self._read_only = read_only
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._slots = threading.Semaphore(CONNECTIONS_MAX)
        self._idle: deque[Connection] = deque()
        self._held = threading.local()
        self._closed = threading.Event()

    def check_open(self) -> None:
        """Raise unless the handle may be used."""
        if os.getpid() != self._pid:
            raise ForkedStore(
                f"handle: expected process {self._pid}, got its child {os.getpid()}"
                f" ({self._target.path}); the parent's handle is fine; open another in the child",
                path=self._target.path,
            )
        if self._closed.is_set():
            raise ClosedStore(
                f"handle: expected one that is open, got one that was closed"
                f" ({self._target.path}); open the store again",
                path=self._target.path,
            )

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed.is_set()

    def connect(self) -> Connection:
        """A new connection, which the caller closes.

        Raises:
            ConnectError: There is none to be had.
        """
        timeout_s = max(CONNECT_TIMEOUT_S_MIN, ceil(self._timeout_s))
        try:
            arguments = make_conninfo("", **self._target.connection_arguments(timeout_s))
            connection = psycopg.connect(arguments, autocommit=True)
        except psycopg.Error as error:
            failed = connect_failed(error, self._target)
        else:
            _open.add(connection)
            try:
                self._set_up(connection)
                return connection
            except psycopg.Error as error:
                failed = connect_failed(error, self._target)
                connection.close()
        raise failed from failed.error.__cause__

    @contextmanager
    def use(self, timeout_s: float | None = None) -> Iterator[Connection]:
        """A connection for one block; closed after it if it is not as it was.

        Raises:
            StoreBusy: All are in use.
            ConnectError: A new one could not be made.
        """
        self.check_open()
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        if not self._slots.acquire(timeout=max(0.0, wait_s)):
            raise StoreBusy(
                f"connection: expected one of {CONNECTIONS_MAX} free within {wait_s} s, got all in"
                f" use ({self._target.path}); nothing was written; try again",
                timeout_s=wait_s,
                path=self._target.path,
            )
        try:
            connection = self._idle_one() or self.connect()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._slots.release()

    @contextmanager
    def holding(self, connection: Connection) -> Iterator[None]:
        """Let this thread's reads go over a connection that it has, while the block lasts."""
        self._held.connection = connection
        try:
            yield
        finally:
            self._held.connection = None

    def read(self, query: Callable[[Connection], Result], doing: str = "read") -> Result:
        """What a query gives that changes nothing: asked again if the connection was lost.

        Raises:
            StorageError: The server said no, or was away for `timeout_s`.
        """
        self.check_open()
        held: Connection | None = getattr(self._held, "connection", None)
        if held is None:
            return self._read_again(query, doing)
        try:
            return query(held)
        except psycopg.Error as error:
            if is_lost(error, held):
                raise lost_error(self._target, doing, error) from None
            raise_contract_error(error, self._target, doing, self._timeout_s)

    def wait(self, deadline: float) -> bool:
        """Wait a moment before trying again; false when the time is over or the handle closed."""
        left_s = deadline - time.monotonic()
        return left_s > 0 and not self._closed.wait(min(RETRY_S, left_s))

    def discard_idle(self) -> None:
        """Close what is not in use: the server that it led to is gone."""
        while (connection := self._pop()) is not None:
            connection.close()

    def close(self) -> None:
        """Close what is not in use, and the rest as it is given back."""
        self._closed.set()
        if os.getpid() == self._pid:
            self.discard_idle()

    def _read_again(self, query: Callable[[Connection], Result], doing: str) -> Result:
        deadline = time.monotonic() + self._timeout_s
        while True:
            used: Connection | None = None
            try:
                with self.use(max(0.0, deadline - time.monotonic())) as used:
                    return query(used)
            except ConnectError as failed:
                if not self.wait(deadline):
                    self.check_open()
                    raise failed.error from failed.error.__cause__
            except psycopg.Error as error:
                if not is_lost(error, used):
                    raise_contract_error(error, self._target, doing, self._timeout_s)
                self.discard_idle()
                if not self.wait(deadline):
                    self.check_open()
                    raise lost_error(self._target, doing, error) from None

    def _set_up(self, connection: Connection) -> None:
        # Whatever the database or the role has as its default: a statement by itself runs so too.
        mode = "ON" if self._read_only else "DEFAULT"
        connection.execute(
            "SET default_transaction_isolation TO 'read committed';"
            f"SET default_transaction_read_only TO {mode}".encode(),
            prepare=False,
        )

    def _idle_one(self) -> Connection | None:
        while (connection := self._pop()) is not None:
            if not connection.closed:
                return connection
        return None

    def _pop(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _give_back(self, connection: Connection) -> None:
        if os.getpid() != self._pid:
            return
        usable = not connection.closed
        if usable and connection.info.transaction_status == pq.TransactionStatus.IDLE:
            self._idle.append(connection)
            if self._closed.is_set():
                self.discard_idle()
        else:
            connection.close()
            if not usable:
                self.discard_idle()


def _cut_off_in_child() -> None:
    """Let this process's copies of its parent's sockets lead nowhere, then free them."""
    copies = list(_open)
    _open.clear()
    if not copies:
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in copies:
        # A thread of the parent may have been half way through a call: better leak than crash.
        with suppress(Exception):
            os.dup2(nowhere, connection.fileno(), inheritable=False)
            connection.close()
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_cut_off_in_child)
