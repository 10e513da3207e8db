"""Getting rid of what erasure leaves behind in PostgreSQL: old versions of rows.

An update leaves the old version of a row where it is. VACUUM makes its place free to be written
over, which may be never; VACUUM FULL writes the living rows into new files and removes the old
ones, and keeps everybody else out of the table meanwhile. Both leave alone what a transaction that
began before may still want to see.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import psycopg
from psycopg.errors import Diagnostic

from fmemory.journals._postgres.connections import Connection
from fmemory.journals._postgres.schema import milliseconds

_NUMBER = re.compile(r"\d+")


class _Notice(NamedTuple):
    """What the server said beside its answer."""

    severity: str
    message: str
    detail: str


def vacuum(connection: Connection, *, exclusive: bool, timeout_s: float) -> tuple[str, ...]:
    """Vacuum the table of events; what may be left of erased data, and why.

    Args:
        connection: In autocommit mode, closed afterwards.
        exclusive: VACUUM FULL.
        timeout_s: Longest wait for others.

    Raises:
        psycopg.Error: The server failed.
    """
    told: list[_Notice] = []

    def note(one: Diagnostic) -> None:
        # What it holds is gone when this returns.
        severity, detail = one.severity_nonlocalized, one.message_detail
        told.append(_Notice(severity or "", one.message_primary or "", detail or ""))

    connection.add_notice_handler(note)
    connection.execute(f"SET lock_timeout TO {milliseconds(timeout_s)}".encode(), prepare=False)
    options = "FULL, VERBOSE" if exclusive else "VERBOSE"
    command = "VACUUM FULL" if exclusive else "VACUUM"
    try:
        connection.execute(f"VACUUM ({options}) fmemory_events".encode(), prepare=False)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege) as error:
        return (_pending(f"{command} could not run ({error.diag.message_primary})"),)
    skipped = [one for one in told if one.severity == "WARNING"]
    if skipped:
        return (_pending(f"{command} was refused ({skipped[0].message})"),)
    if not exclusive:
        return (_pending("old versions of rows lie in the files until they are written over"),)
    if any(_kept(one) for one in told):
        return (_pending("a transaction that began before may still see old versions of rows"),)
    return ()


def _kept(told: _Notice) -> bool:
    """Whether VACUUM FULL says that it took dead rows along: the first number of its detail."""
    number = _NUMBER.search(told.detail)
    return number is not None and int(number[0]) > 0


def _pending(why: str) -> str:
    return (
        f"VACUUM: erased data may still be in the table fmemory_events: {why}; compact with"
        " exclusive=True, as the owner of the tables, when no transaction of before is open"
    )
