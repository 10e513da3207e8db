"""Audit: who writes, in which run and why, carried beside the calls instead of through them.

The values travel in a context variable. It reaches coroutines, asyncio tasks and
`asyncio.to_thread`, and every operation of a backend, sync or async. It does **not** reach threads
you start yourself or executors you submit to: enter `audit()` inside of those, or use
`memory.bind()`.
"""

from __future__ import annotations

import functools
import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

import msgspec

from fmemory._json_values import check_text
from fmemory.errors import ContractError, Reason

__all__ = ["ACTOR_VARIABLE", "Audit", "audit", "current_audit", "default_actor"]

ACTOR_VARIABLE = "FMEMORY_ACTOR"


class Audit(msgspec.Struct, frozen=True):
    """Who, in which run and why; None where nobody said.

    Attributes:
        actor: Who writes: a person, a program, an agent.
        run_id: The run the writes belong to.
        reason: Why they are made.
        occurred_at: When what is written happened, where that is not now (imports); aware.
    """

    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    occurred_at: datetime | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("actor", self.actor),
            ("run_id", self.run_id),
            ("reason", self.reason),
        ):
            if value is not None:
                check_text(value, name)
        if self.occurred_at is not None and self.occurred_at.tzinfo is None:
            raise ContractError(
                "expected an aware time, got a naive one; add a time zone, such as datetime.UTC",
                where="occurred_at",
                reason=Reason.NAIVE_TIME,
            )

    def over(self, outer: Audit) -> Audit:
        """These values, and those of `outer` where there is none.

        >>> Audit(reason="retry").over(Audit(actor="ada", reason="start"))
        Audit(actor='ada', run_id=None, reason='retry', occurred_at=None)
        """
        return Audit(
            outer.actor if self.actor is None else self.actor,
            outer.run_id if self.run_id is None else self.run_id,
            outer.reason if self.reason is None else self.reason,
            outer.occurred_at if self.occurred_at is None else self.occurred_at,
        )


_NOBODY = Audit()
_current: ContextVar[Audit] = ContextVar("fmemory_audit", default=_NOBODY)


@contextmanager
def audit(
    *,
    actor: str | None = None,
    run_id: str | None = None,
    reason: str | None = None,
    occurred_at: datetime | None = None,
) -> Iterator[Audit]:
    """Every event written inside the block carries these values.

    Nested blocks inherit what they do not set. The values reach asyncio tasks and `to_thread`,
    not new threads and executors: see the module's text.

    Args:
        actor: Who writes; non-empty. None keeps the one around.
        run_id: The run; non-empty. None keeps the one around.
        reason: Why; non-empty. None keeps the one around.
        occurred_at: When it happened, an aware time, where that is not now (imports).

    Raises:
        ContractError: A value is not a non-empty str, or the time is naive.

    >>> with audit(actor="ada"), audit(reason="looks done") as values:
    ...     values.actor
    'ada'
    """
    values = Audit(actor, run_id, reason, occurred_at).over(_current.get())
    token = _current.set(values)
    try:
        yield values
    finally:
        _current.reset(token)


def current_audit() -> Audit:
    """The values that hold here; all None outside of every block.

    >>> current_audit()
    Audit(actor=None, run_id=None, reason=None, occurred_at=None)
    """
    return _current.get()


def default_actor() -> str:
    """Who writes when nobody said: `FMEMORY_ACTOR`, else user and host.

    The variable is read each time, user and host once.
    """
    return os.environ.get(ACTOR_VARIABLE) or _user_at_host()


@functools.cache
def _user_at_host() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in the system's tables
        user = f"uid-{os.getuid()}" if hasattr(os, "getuid") else "unknown"
    text = f"{user}@{socket.gethostname() or 'localhost'}"
    return text.encode("utf-8", "replace").decode("utf-8")
