"""What the driver raises, as errors of the contract: one table, in one place.

The driver's text is kept where it is safe. Where it would give the password away, neither the text
nor the error itself is passed on.
"""

from __future__ import annotations

from typing import NoReturn

import psycopg

from fmemory.errors import (
    LogCorrupt,
    MemoryBackendError,
    NotFound,
    ReadOnlyStore,
    Reason,
    StorageError,
    StoreBusy,
    StoreFull,
)
from fmemory.journals._postgres.target import PostgresTarget

# Classes of SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html
_BUSY = frozenset(
    {
        "55P03",  # lock_not_available
        "57014",  # query_canceled: statement_timeout
        "40P01",  # deadlock_detected
        "40001",  # serialization_failure
    }
)
_LOST = frozenset(
    {
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
        "25P03",  # idle_in_transaction_session_timeout
        "40003",  # statement_completion_unknown
    }
)
_NOT_SENT = (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError)
_MISSING = frozenset({"42P01", "3F000", "42703"})  # undefined table, schema, column
_DAMAGED = frozenset({"XX001", "XX002", "23505"})  # damaged data, index; a seq stored twice
_HELD = "nothing was written by this call; what was acknowledged before is kept"


class ConnectError(Exception):
    """A connection could not be made; holds what the contract calls it."""

    def __init__(self, error: StorageError) -> None:
        super().__init__(str(error))
        self.error = error


def is_lost(error: psycopg.Error, connection: psycopg.Connection | None = None) -> bool:
    """Whether an error means that the connection is gone, not that the server said no.

    Only what the server said of the statement is an answer to it. An error of the client library
    tells of the wire, whatever the state of the connection, unless it refused to send something;
    and with an error of severity FATAL the server ends the connection, whatever became of the
    statements before.
    """
    if connection is not None and connection.closed:
        return True
    state = error.sqlstate
    if state is None:
        return not isinstance(error, _NOT_SENT)
    if error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True
    return state in _LOST or state.startswith("08")


def raise_contract_error(
    error: psycopg.Error, target: PostgresTarget, doing: str, timeout_s: float | None = None
) -> NoReturn:
    """Raise what the contract calls an error of the driver.

    Args:
        doing: What was tried, one word or two: the beginning of the sentence.
        timeout_s: What a lock was waited for.
    """
    raise contract_error(error, target, doing, timeout_s) from safe_cause(error, target)


def contract_error(
    error: psycopg.Error, target: PostgresTarget, doing: str, timeout_s: float | None = None
) -> MemoryBackendError:
    """What the contract calls an error of the driver."""
    state, path = error.sqlstate, target.path
    said = _said(error, target)
    if state in _BUSY:
        return StoreBusy(
            f"{doing}: expected the log free within {timeout_s} s, got {said} ({path}); {_HELD};"
            " try again",
            timeout_s=timeout_s,
            path=path,
        )
    if state == "53100":
        return StoreFull(
            f"{doing}: expected space on the server, got {said} ({path}); {_HELD}; make room and"
            " try again",
            path=path,
        )
    if state == "25006":
        return ReadOnlyStore(
            f"{doing}: expected a server that writes, got {said} ({path}); nothing was written;"
            " connect to the primary, or open with read_only=True",
            path=path,
        )
    if state in _MISSING:
        return NotFound(
            f"{doing}: expected the tables of fmemory, got {said} ({path}); open with create=True"
            " to make them",
            reason=Reason.STORE_NOT_FOUND,
            key=path,
        )
    if state in _DAMAGED:
        return LogCorrupt(
            f"{doing}: expected tables as fmemory wrote them, got {said} ({path}); nothing was"
            " changed; run `fmemory verify`",
            path=path,
        )
    return StorageError(f"{doing}: expected an answer, got {said} ({path}); {_HELD}", path=path)


def connect_failed(error: psycopg.Error, target: PostgresTarget) -> ConnectError:
    """No connection: what the server or the network said, without a password."""
    path = target.path
    raised = StorageError(
        f"connect: expected a PostgreSQL server, got {_said(error, target)} ({path}); nothing was"
        " written; check host, port, database, user and password, and that the server runs",
        path=path,
    )
    raised.__cause__ = safe_cause(error, target)
    return ConnectError(raised)


def lost_error(target: PostgresTarget, doing: str, cause: psycopg.Error | None) -> StorageError:
    """The connection ended, and it is certain that nothing was written."""
    raised = StorageError(
        f"{doing}: expected an answer, got a connection that ended ({target.path}); nothing of this"
        " call was written; try again",
        path=target.path,
    )
    if cause is not None:
        raised.__cause__ = safe_cause(cause, target)
    return raised


def safe_cause(error: psycopg.Error, target: PostgresTarget) -> psycopg.Error | None:
    """What an error may be raised from: itself, a copy, or nothing if its text is a secret."""
    seen: BaseException | None = error
    while seen is not None:
        if target.holds_password(f"{seen!s} {seen!r}"):
            return None
        seen = seen.__cause__ or seen.__context__
    # An error of connecting carries what was connected with, password included.
    return error if error.pgconn is None else type(error)(str(error))


def _said(error: psycopg.Error, target: PostgresTarget) -> str:
    text = error.diag.message_primary or str(error) or type(error).__name__
    if target.holds_password(text):
        return f"{type(error).__name__} (its text is left out: it holds the password)"
    return " ".join(text.split())
