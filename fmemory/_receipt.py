"""What a write promised, and what a write may be told: shared by records, sessions and the log."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fmemory._json_values import check_text
from fmemory._model import Model, Rule, check_int
from fmemory.errors import ContractError, Reason

__all__ = ["EVENT_ID_CHARACTERS_MAX", "EventId", "Receipt", "Revision", "check_length"]

EVENT_ID_CHARACTERS_MAX = 1024


def check_length(text: str, characters_max: int) -> str:
    """The text itself, when it is no longer than that.

    Raises:
        ContractError: It is.
    """
    if len(text) > characters_max:
        raise ContractError(
            f"expected at most {characters_max} characters, got {len(text)}",
            reason=Reason.TOO_LARGE,
        )
    return text


def _check_event_id(value: object) -> str:
    return check_length(check_text(value), EVENT_ID_CHARACTERS_MAX)


def _check_revision(value: object) -> int:
    revision = check_int(value)
    if revision < 0:
        raise ContractError(
            f"expected 0 (a new stream) or more, got {revision}", reason=Reason.OUT_OF_RANGE
        )
    return revision


EventId: TypeAlias = Annotated[
    str, Rule(_check_event_id, {"minLength": 1, "maxLength": EVENT_ID_CHARACTERS_MAX})
]
Revision: TypeAlias = Annotated[int, Rule(_check_revision, {"minimum": 0})]


class Receipt(Model, frozen=True):
    """What a write promised.

    Attributes:
        seq: Number of the write's last event; the newest seq if it changed nothing.
        revision: Revision of the stream after it.
        event_count: Events it appended; 0 if it changed nothing.
        durable: Whether it was on disk when the call returned.
    """

    seq: int
    revision: int
    event_count: int
    durable: bool
