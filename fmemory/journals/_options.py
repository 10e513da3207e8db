"""The choices that every durable backend offers, checked in one place."""

from __future__ import annotations

from typing import Final, cast, get_args

from fmemory.errors import ContractError, Reason, brief
from fmemory.journal import Durability

DURABILITIES: Final[tuple[str, ...]] = get_args(Durability)
LOCK_TIMEOUT_S_MAX: Final = 86_400.0


def check_options(durability: object, lock_timeout_s: object) -> None:
    """Refuse a policy or a wait that nobody offers.

    Raises:
        ContractError: Nothing was opened.

    >>> check_options("fsync", 5)
    >>> check_options("sync", 5)
    Traceback (most recent call last):
    fmemory.errors.ContractError: durability: expected fsync, interval or os, got 'sync'
    """
    if durability not in DURABILITIES:
        raise ContractError(
            f"expected {', '.join(DURABILITIES[:-1])} or {DURABILITIES[-1]}, got"
            f" {brief(durability)}",
            where="durability",
            reason=Reason.BAD_VALUE,
        )
    is_number = isinstance(lock_timeout_s, int | float) and not isinstance(lock_timeout_s, bool)
    if not is_number or not 0 <= cast("float", lock_timeout_s) <= LOCK_TIMEOUT_S_MAX:
        raise ContractError(
            f"expected seconds, 0 to {LOCK_TIMEOUT_S_MAX:g}, got {brief(lock_timeout_s)}",
            where="lock_timeout_s",
            reason=Reason.OUT_OF_RANGE,
        )
