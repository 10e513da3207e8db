"""Which log of which PostgreSQL database, and how to get there: checked, and printable without a
password.

A password lives in `PostgresTarget` and in what the driver is given, nowhere else: `repr`, `path`
and every message of this module leave it out, and a URL that cannot be read is never quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fmemory.errors import ContractError, Reason, brief

URL_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME"
PORT = 5432
LOG = "default"
LOG_CHARACTERS_MAX = 200

_SCHEMES = frozenset({"postgresql", "postgres"})
_PARAMETERS = frozenset(
    {
        "application_name",
        "channel_binding",
        "connect_timeout",
        "gssencmode",
        "passfile",
        "sslcert",
        "sslcrl",
        "sslkey",
        "sslmode",
        "sslrootcert",
        "target_session_attrs",
    }
)


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """A log in a database.

    Attributes:
        host: Name, address, or folder of a socket; None: what libpq takes for it.
        password: None or empty: what libpq finds (`PGPASSWORD`, a password file), or none.
        log: Name of the log.
        parameters: Further connection parameters of libpq, such as `sslmode`.
    """

    host: str | None
    port: int
    database: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    log: str = LOG
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (
            ("host", self.host),
            ("username", self.username),
            ("password", self.password),
        ):
            if value is not None:
                _check_text(name, value, secret=name == "password")
        _check_text("database", self.database)
        _check_text("log", self.log)
        if not self.database:
            raise ContractError("expected a name, got ''", where="database", reason=Reason.EMPTY)
        if not 1 <= len(self.log) <= LOG_CHARACTERS_MAX:
            raise ContractError(
                f"expected 1 to {LOG_CHARACTERS_MAX} characters, got {len(self.log)}",
                where="log",
                reason=Reason.TOO_LARGE if self.log else Reason.EMPTY,
            )
        if isinstance(self.port, bool) or not isinstance(self.port, int):
            raise ContractError(
                f"expected int, got {type(self.port).__name__}",
                where="port",
                reason=Reason.WRONG_TYPE,
            )
        if not 0 < self.port < 1 << 16:
            raise ContractError(
                f"expected 1 to 65535, got {self.port}", where="port", reason=Reason.OUT_OF_RANGE
            )
        for name in self.parameters:
            if name not in _PARAMETERS:
                raise ContractError(
                    f"expected one of {', '.join(sorted(_PARAMETERS))}, got {brief(name)}",
                    where="parameters",
                    reason=Reason.UNSUPPORTED,
                )

    @classmethod
    def from_url(cls, url: str) -> PostgresTarget:
        """The target that a URL names.

        Args:
            url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME`; all but HOST and DATABASE
                may be left out, and a socket's folder is given as `?host=/folder`. Other
                parameters are those of libpq, such as `sslmode`.

        Raises:
            ContractError: The URL cannot be read. Its text is not repeated: it may hold a password.

        >>> PostgresTarget.from_url("postgresql://ada:secret@there/notes?log=one").path
        'postgresql://ada@there:5432/notes?log=one'
        """
        if not isinstance(url, str):
            raise ContractError(
                f"expected str, got {type(url).__name__}", where="url", reason=Reason.WRONG_TYPE
            )
        try:
            parts = urlsplit(url)
            query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=False))
        except ValueError:
            _refuse_url()
        # An @ behind the host means that a password with a slash was cut in two.
        behind = parts.path + parts.query + parts.fragment
        if parts.scheme not in _SCHEMES or "@" in behind or parts.fragment:
            _refuse_url()
        who, _, where = parts.netloc.rpartition("@")
        username, _, password = who.partition(":")
        host, port = _host_and_port(where)
        username = unquote(username)
        return cls(
            query.pop("host", "") or host or None,
            _port(query.pop("port", "") or port),
            unquote(parts.path.removeprefix("/")) or username,
            username or None,
            unquote(password) or None,
            query.pop("log", LOG),
            query,
        )

    @property
    def path(self) -> str:
        """Where the log is, for messages: a URL without a password."""
        user = f"{quote(self.username, safe='')}@" if self.username else ""
        host, folder = self.host or "", ""
        if host.startswith("/"):
            host, folder = "", f"host={quote(host)}&"
        elif ":" in host:
            host = f"[{host}]"
        place = f"{host}:{self.port}" if host else ""
        database, log = quote(self.database, safe=""), quote(self.log, safe="")
        return f"postgresql://{user}{place}/{database}?{folder}log={log}"

    def connection_arguments(self, timeout_s: int) -> dict[str, str | int]:
        """What the driver is given; this holds the password."""
        given: dict[str, str | int | None] = {
            "connect_timeout": timeout_s,
            "application_name": "fmemory",
            # A peer that is gone without a word is noticed within about a minute.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            **self.parameters,
            "client_encoding": "UTF8",
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": self.username,
            "password": self.password or None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def holds_password(self, text: str) -> bool:
        """Whether a text would give the password away, as it is or as URLs write it."""
        password = self.password
        if not password:
            return False
        return any(one in text for one in (password, quote(password), quote(password, safe="")))


def _refuse_url() -> NoReturn:
    # Without the cause: what urllib says may quote the password.
    raise ContractError(
        f"expected {URL_FORM}, got something else; write / ? # @ : % of a user or password as"
        " %2F %3F %23 %40 %3A %25",
        where="url",
        reason=Reason.BAD_VALUE,
    ) from None


def _host_and_port(where: str) -> tuple[str, str]:
    if where.startswith("["):
        host, bracket, rest = where[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            _refuse_url()
        return host, rest.removeprefix(":")
    host, _, port = where.partition(":")
    return unquote(host), port


def _port(text: str) -> int:
    if not text:
        return PORT
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        _refuse_url()
    return int(text)


def _check_text(name: str, value: str, *, secret: bool = False) -> None:
    if not isinstance(value, str):
        raise ContractError(
            f"expected str, got {type(value).__name__}", where=name, reason=Reason.WRONG_TYPE
        )
    try:
        bad = "\0" in value
        value.encode()
    except UnicodeEncodeError:
        bad = True
    if bad:
        got = "one with" if secret else f"{brief(value)}, which has"
        raise ContractError(
            f"expected text, got {got} a NUL character or a lone surrogate",
            where=name,
            reason=Reason.BAD_VALUE,
        ) from None
