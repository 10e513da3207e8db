"""A memory in a PostgreSQL database. The extra `postgres` is needed when one is opened."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from fmemory._engine.backend import JournalBackend
from fmemory.errors import CommitUnknown, ContractError, Reason
from fmemory.journal import Durability
from fmemory.journals._options import check_options
from fmemory.journals._postgres.target import LOG, PORT, PostgresTarget
from fmemory.journals._tables.journal import TableJournal

if TYPE_CHECKING:
    from fmemory.journals._postgres.table import PostgresTable

LOCK_TIMEOUT_S = 5.0
LOCK_TIMEOUT_S_MAX = 86_400.0


def open_table(
    target: PostgresTarget,
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "fsync",
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> PostgresTable:
    """The table of a log.

    Raises:
        ContractError: The extra `postgres` is not installed.
        MemoryBackendError: As `PostgresMemoryBackend`.
    """
    check_options(durability, lock_timeout_s)
    try:
        import psycopg  # noqa: F401

        from fmemory.journals._postgres.table import PostgresTable
    except ImportError as error:  # also a driver that finds no client library
        raise ContractError(
            f"a memory in PostgreSQL needs the package psycopg: {error}; it comes with the extra"
            " `postgres`: pip install 'fmemory[postgres]'",
            where="postgres",
            reason=Reason.UNSUPPORTED,
        ) from error

    return PostgresTable(
        target,
        create=create,
        read_only=read_only,
        durability=durability,
        lock_timeout_s=lock_timeout_s,
    )


class PostgresMemoryBackend(JournalBackend):
    """A memory in a PostgreSQL database, shared by any number of processes and machines.

    A database holds any number of logs that know nothing of each other. A process reads only the
    streams that it touches.

    Args:
        host: Name, address, or folder of a socket; None: what libpq takes for it.
        port: 1 to 65535.
        database: Name; it must exist, in the encoding UTF8.
        username: None: what libpq finds.
        password: None: what libpq finds, or none. It appears in no error, `repr`, log or path.
        log: Name of the log, 1 to 200 characters.
        create: Create tables and log if they are missing.
        read_only: Read-only transactions; nothing is created.
        durability: When writes are acknowledged: `fsync` when the server has them on disk,
            `interval` and `os` before (`synchronous_commit` off).
        lock_timeout_s: Longest wait for other writers, and for a server that is away, seconds.
        clock: Unix nanoseconds; for tests.
        parameters: Further connection parameters of libpq, such as `sslmode`.

    Raises:
        ContractError: An argument cannot be used, or the extra `postgres` is not installed.
        NotFound: There is no such log, and none was to be created.
        StorageError: The server cannot be reached; or, with `Reason.UNKNOWN_FORMAT`, the tables
            are of a newer version.

    Durability: what the server's settings make of `synchronous_commit`. A connection that is lost
        around COMMIT is settled by looking the batch up; if the server stays away for ten seconds,
        `CommitUnknown` says so, and `was_committed` tells later.
    Cost: opening is a few queries, however long the log.
    """

    kind = "postgres"

    def __init__(
        self,
        host: str | None,
        port: int = PORT,
        database: str = "postgres",
        username: str | None = None,
        password: str | None = None,
        *,
        log: str = LOG,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Callable[[], int] = time.time_ns,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        self._table = open_table(
            PostgresTarget(host, port, database, username, password, log, dict(parameters or {})),
            create=create,
            read_only=read_only,
            durability=durability,
            lock_timeout_s=lock_timeout_s,
        )
        super().__init__(
            TableJournal(self._table, clock=clock), durability=durability, path=self._table.path
        )

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Callable[[], int] = time.time_ns,
    ) -> Self:
        """The memory that `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME` names.

        Raises:
            ContractError: The URL cannot be read. Its text is not repeated.
            MemoryBackendError: As the constructor.
        """
        target = PostgresTarget.from_url(url)
        return cls(
            target.host,
            target.port,
            target.database,
            target.username,
            target.password,
            log=target.log,
            create=create,
            read_only=read_only,
            durability=durability,
            lock_timeout_s=lock_timeout_s,
            clock=clock,
            parameters=target.parameters,
        )

    def was_committed(self, error: CommitUnknown) -> bool:
        """Whether the write that ended in this error is there; false: it is not and never will be.

        Raises:
            ContractError: The error is of another log.
            StoreBusy: Its transaction has not ended yet: ask again.
            StorageError: The server is still away.
        """
        return self._table.was_committed(error)
