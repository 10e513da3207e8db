"""Reading on behind damage: the events that can be read, and in their places those that cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from fmemory.errors import LogCorrupt, StorageError

if TYPE_CHECKING:
    from fmemory.log_models import Event

__all__ = ["Read", "damage_of", "problem_of", "readable"]

Read: TypeAlias = "Callable[[int, int | None], Iterator[Event]]"
"""Reads events: those after a seq, at most so many."""
Gap = TypeVar("Gap")


def readable(read: Read, after: int, gap: Callable[[int, str], Gap]) -> Iterator[Event | Gap]:
    """The events by seq, and in their places those that are damaged.

    Args:
        gap: Makes what stands for a damaged event of its seq and what is wrong with it.

    Raises:
        StorageError: The store failed in another way.
    """
    one_by_one = False
    while True:
        try:
            for event in read(after, 1 if one_by_one else None):
                after = event.seq
                yield event
                if one_by_one:
                    break
            else:
                return
        except StorageError as error:
            damage = damage_of(error, after)
            if damage is None:
                raise
            # Reading ahead meets damage early: the events before it are still to come.
            if one_by_one:
                after = damage[0]
                yield gap(*damage)
            one_by_one = not one_by_one


def damage_of(error: StorageError, after: int = 0) -> tuple[int, str] | None:
    """The first event after a seq that an error is about, and what is wrong with it.

    None if it is about something else.
    """
    if not isinstance(error, LogCorrupt) or error.seq is None:
        return None
    seq = max(error.seq, after + 1)
    if seq > max(error.seq, error.last_seq or 0):
        return None
    return seq, problem_of(error)


def problem_of(error: LogCorrupt) -> str:
    """What is wrong, without the place in the file, which is for `verify` to tell."""
    return str(error).partition(" (")[0]
