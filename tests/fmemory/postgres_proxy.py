"""A man in the middle of a client and a PostgreSQL server, who cuts the wire at COMMIT.

It listens on a socket as a server does and passes bytes on. Armed, it does what `Cut` names with
the first message that holds a COMMIT; until `restore()` nobody gets through again, if so asked. Or
it cuts the answer to a COMMIT after some bytes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

_CHUNK_BYTES = 1 << 16
_PORT = 5432


class Cut(Enum):
    """Where the wire is cut."""

    BEFORE = "the server never gets the COMMIT and sees the client leave"
    AFTER = "the server commits, the client never gets the answer"
    HELD = "the client is cut off, the COMMIT reaches the server when it is released"


class Proxy:
    """A proxy before the server at `socket_path`."""

    def __init__(self, folder: Path, socket_path: str) -> None:
        self._upstream = socket_path
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / f".s.PGSQL.{_PORT}"))
        self._listening.listen()
        self._cut: Cut | None = None
        self._refuse_after_cut = False
        self._refusing = False
        self._answer: tuple[int, bytes] | None = None
        self.answer_bytes = 0
        self._released = threading.Event()
        self.cut_done = threading.Event()
        self._wires: list[socket.socket] = [self._listening]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def arm(self, cut: Cut, *, refuse: bool = False) -> None:
        """Cut at the next COMMIT; `refuse`: let nobody through after that."""
        self._cut, self._refuse_after_cut = cut, refuse

    def arm_answer(self, byte_count: int, last_words: bytes) -> None:
        """Let the client have that much of the answer to the next COMMIT, and the last words."""
        self._answer = (byte_count, last_words)

    def restore(self) -> None:
        """Let everybody through again."""
        self._refusing = False

    def release(self) -> None:
        """Send the COMMIT that was held."""
        self._released.set()

    def close(self) -> None:
        """Cut everybody off and listen no more."""
        self._released.set()
        for wire in self._wires:
            _close(wire)
        for thread in self._threads:
            thread.join()
        for wire in self._wires:
            wire.close()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._refusing:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                self._wires += [client, server]
                server.connect(self._upstream)
                self._start(self._to_server, client, server)
                self._start(self._to_client, server, client)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(_CHUNK_BYTES):
                if self._cut is not None and b"COMMIT\0" in chunk:
                    self._cut_at(chunk, client, server)
                    return
                server.sendall(chunk)
        _close(server)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while chunk := server.recv(_CHUNK_BYTES):
                if self._answer is not None and b"COMMIT\0" in chunk:
                    (byte_count, last_words), self._answer = self._answer, None
                    self.answer_bytes = len(chunk)
                    client.sendall(chunk[:byte_count] + last_words)
                    break
                client.sendall(chunk)
        _close(client)
        _close(server)

    def _cut_at(self, chunk: bytes, client: socket.socket, server: socket.socket) -> None:
        cut, self._cut = self._cut, None
        self._refusing = self._refuse_after_cut
        # From here on the client gets no answer, and sees the connection end.
        if cut is Cut.BEFORE:
            _close(server)
            _close(client)
        elif cut is Cut.AFTER:
            _close(client)
            server.sendall(chunk)
            _close(server, socket.SHUT_WR)
        else:
            _close(client)
            self._released.wait()
            server.sendall(chunk)
            _close(server, socket.SHUT_WR)
        self.cut_done.set()


@contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server of a URL, and the URL that leads through it."""
    parts = urlsplit(url)
    (host,) = parse_qs(parts.query)["host"]
    with TemporaryDirectory(prefix="fmemory-px-") as folder:
        proxy = Proxy(Path(folder), f"{host}/.s.PGSQL.{_PORT}")
        try:
            yield proxy, urlunsplit(parts._replace(query=urlencode({"host": folder})))
        finally:
            proxy.close()


def _close(wire: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with suppress(OSError):
        wire.shutdown(how)
