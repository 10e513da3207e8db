"""Fiddlesticks' table in PostgreSQL: one row a session, its state as JSON.

Read in one read-only transaction, so all rows are of one moment and nothing can be changed. A
password is never repeated: neither in the name of the source nor in an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from fmemory_tools.importers._fiddlesticks_stored import StoredSession, bad_place, session_of
from fmemory_tools.importers._lines import Malformed, as_text, parse_object
from fmemory_tools.importers.plan import BadLine, BadSource

if TYPE_CHECKING:
    import psycopg

TABLE = "fmemory_session_state"
SCHEMES = ("postgresql://", "postgres://")
CONNECT_TIMEOUT_S = 10

_NAME = "PostgreSQL"


class CannotRead(Exception):  # noqa: N818 - an outcome, told in one line
    """The source could not be looked at: a package is missing, or the server does not answer."""


def read_table(url: str, bad: list[BadLine]) -> tuple[str, list[StoredSession]]:
    """The source's name, `host:port/database`, and its sessions; rows that cannot be read: `bad`.

    Raises:
        BadSource: The URL is none, or there is no such table.
        CannotRead: psycopg is not installed, or the server or database cannot be reached.
    """
    try:
        import psycopg
    except ImportError as error:
        raise CannotRead(
            "importing from PostgreSQL needs psycopg, which is in the extra `postgres`:"
            " pip install 'fmemory[postgres]'"
        ) from error
    try:
        with psycopg.connect(_checked(url), autocommit=False) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            name = f"{connection.info.host}:{connection.info.port}/{connection.info.dbname}"
            return name, _sessions(connection, name, bad)
    except psycopg.Error as error:
        raise CannotRead(f"{_NAME}: {without_secrets(str(error), url)}") from None


def without_secrets(message: str, url: str) -> str:
    """A message on one line, without what stands in the URL between `//` and the last `@`.

    >>> without_secrets("no host b@c", "postgresql://ada:a@b@c/d")
    'no host ***@c'
    """
    rest = url.partition("://")[2]
    secrets = [rest.rpartition("@")[0].partition(":")[2]]
    secrets += re.findall(r"(?:password|sslpassword)=([^&]*)", url)
    pieces = {piece for one in secrets for piece in re.split(r"[:/?#@&]", one) if piece}
    for piece in sorted(pieces | {unquote(one) for one in pieces}, key=len, reverse=True):
        message = message.replace(piece, "***")
    return " ".join(message.split())


def _checked(url: str) -> str:
    """The connection string of a URL, with a limit to the wait for the server."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = conninfo_to_dict(url)
        # A part of a password would be looked up as a host's name; a socket may begin with @.
        is_understood = "@" not in str(given.get("host", ""))[1:]
    except ProgrammingError:
        # The client's own words repeat the part that it does not understand.
        is_understood = False
    if not is_understood:
        raise BadSource(
            _NAME,
            "expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %40 for @ and %2F for /"
            " in the password",
        )
    return make_conninfo(url, connect_timeout=given.get("connect_timeout", CONNECT_TIMEOUT_S))


def _sessions(connection: psycopg.Connection, name: str, bad: list[BadLine]) -> list[StoredSession]:
    from psycopg.errors import UndefinedColumn

    (table,) = connection.execute("SELECT to_regclass(%s)::text", (TABLE,)).fetchone() or (None,)
    if table is None:
        raise BadSource(name, f"no database of Fiddlesticks: it has no table {TABLE}")
    found = []
    query = f"SELECT session_id, state_json::text FROM {TABLE} ORDER BY session_id"
    try:
        rows = connection.execute(query.encode())
    except UndefinedColumn as error:
        raise BadSource(
            name, f"no table of Fiddlesticks: {TABLE} has not the columns session_id, state_json"
        ) from error
    for session_id, text in rows:
        place = f"{TABLE} row of session {session_id!r}"
        try:
            state = parse_object(str(text).encode("utf-8"))
            found.append(session_of(as_text(session_id, "session_id"), place, state, bad))
        except Malformed as problem:
            bad.append(bad_place(place, problem))
    return found
