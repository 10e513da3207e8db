"""Wake-ups from PostgreSQL: one connection that listens, in a thread, while somebody watches.

A wake-up is a hint; whoever waits polls as well. So nothing here raises: a lost connection is made
again, and a server that cannot notify is left alone, with a notice.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg

from fmemory.journals._postgres.connections import Connection, Connections
from fmemory.journals._postgres.errors import ConnectError, is_lost
from fmemory_segments._watch import call_all

RECONNECT_S_MIN = 0.25
RECONNECT_S_MAX = 5.0
JOIN_S_MAX = 5.0


class Listener:
    """Calls back when a commit of the log was told of.

    Args:
        channel: Letters, digits and underscores only.
    """

    def __init__(self, connections: Connections, channel: str) -> None:
        self._connections = connections
        self._channel = channel
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._thread: _Thread | None = None
        self.notice: str | None = None

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back from the listening thread; returns how to stop."""
        with self._lock:
            self._callbacks.append(callback)
            if self._thread is None and self.notice is None:
                self._thread = _Thread(self)
                self._thread.start()

        def stop() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)
                thread = self._thread
                if self._callbacks or thread is None:
                    return
                self._thread = None
            thread.stop()

        return stop

    def close(self) -> None:
        """Stop listening; the connection is closed when this returns, or is being made."""
        with self._lock:
            self._callbacks.clear()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            if thread is not threading.current_thread():
                thread.join(JOIN_S_MAX)

    def wake(self) -> None:
        """Call everybody back."""
        call_all(list(self._callbacks))

    def connect(self) -> Connection | None:
        """A connection that listens; None if this server never will."""
        connection = self._connections.connect()
        try:
            connection.execute(f"LISTEN {self._channel}".encode())
            return connection
        except psycopg.Error as error:
            lost = is_lost(error, connection)
            connection.close()
            if lost:
                raise
            self.notice = "the server cannot notify: new events are found by polling"
            return None


class _Thread(threading.Thread):
    """Waits for the server and for `stop`, on two file descriptors."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(name="fmemory-listen", daemon=True)
        self._listener = listener
        self._pid = os.getpid()
        self._stopping = threading.Event()
        self._pipe_lock = threading.Lock()
        self._reading, self._writing = os.pipe()
        self._pipe_open = True

    def stop(self) -> None:
        """Have the thread end soon; a forked child's copy has no thread, only its parent's pipe."""
        if os.getpid() != self._pid:
            return
        self._stopping.set()
        with self._pipe_lock:
            if self._pipe_open:
                os.write(self._writing, b"x")

    def run(self) -> None:
        delay_s = RECONNECT_S_MIN
        try:
            while not self._stopping.is_set():
                with suppress(ConnectError, psycopg.Error, OSError):
                    connection = self._listener.connect()
                    if connection is None:
                        return
                    delay_s = RECONNECT_S_MIN
                    with connection:
                        self._listen(connection)
                if self._stopping.wait(delay_s):
                    return
                delay_s = min(2 * delay_s, RECONNECT_S_MAX)
        finally:
            with self._pipe_lock:
                self._pipe_open = False
                os.close(self._reading)
                os.close(self._writing)

    def _listen(self, connection: Connection) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._reading, selectors.EVENT_READ)
            # What was committed before LISTEN was not told of.
            self._listener.wake()
            while not self._stopping.is_set():
                selector.select()
                if not self._stopping.is_set() and any(connection.notifies(timeout=0)):
                    self._listener.wake()
