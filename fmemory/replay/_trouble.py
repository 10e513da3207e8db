"""Whether one event, by itself, tells of something that went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmemory._engine.types import EventType
from fmemory.replay._failures import is_failed_step
from fmemory.replay._parts import parts_of
from fmemory.replay._reading import FORGOTTEN
from fmemory.replay._transcript import messages_in

if TYPE_CHECKING:
    from fmemory.log_models import Event

__all__ = ["EVENT_TYPES", "tells_error"]

EVENT_TYPES = frozenset(
    value for name, value in vars(EventType).items() if not name.startswith("_")
) | {FORGOTTEN}
"""The types of fmemory's own events, which have no dot in them."""


def tells_error(event: Event) -> bool:
    """Whether an event tells of a failed tool call, a message marked as an error, or a failed run.

    Of a step that an import kept beside its messages, what it observed is looked at, too. Looks at
    this event only.

    >>> from datetime import UTC, datetime
    >>> from fmemory import Event
    >>> failed = {"run_id": "r", "status": "failed", "note": None}
    >>> when = datetime(2026, 2, 10, tzinfo=UTC)
    >>> tells_error(Event(1, ("session", "s"), 1, "checkpoint_recorded", when, data=failed))
    True
    """
    data = event.data if isinstance(event.data, dict) else {}
    if event.type == EventType.CHECKPOINT_RECORDED:
        return data.get("status") == "failed"
    if event.type == EventType.TRANSCRIPT_APPENDED:
        return any(parts_of(message).is_error for message in messages_in(event))
    return is_failed_step(event.type, data)
