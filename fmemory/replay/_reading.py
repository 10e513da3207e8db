"""Reading a session's events so that nothing in their way is passed over in silence.

What was erased, forgotten, lost or damaged comes as an `UnreadableEvent` in its place. Nothing here
writes, and only the session's own stream is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fmemory import _damage
from fmemory._damage import Read
from fmemory.errors import NotFound, Reason, brief
from fmemory.log_models import ErasedRecord
from fmemory.replay._facts import State
from fmemory.replay.models import UnreadableEvent
from fmemory.session_models import check_session_id

if TYPE_CHECKING:
    from datetime import datetime

    from fmemory.backend import LogBackend
    from fmemory.log_models import Event

__all__ = [
    "FORGOTTEN",
    "LOST",
    "events_upto",
    "gap_of",
    "gaps_in_records",
    "moment_of",
    "readable",
]

FORGOTTEN = "event_forgotten"
LOST = "event_lost"


def gap_of(event: Event) -> UnreadableEvent | None:
    """What is left of an event without content; None for one that has its content."""
    if event.type == FORGOTTEN:
        return UnreadableEvent(event.seq, event.type, State.FORGOTTEN.value)
    if event.type == LOST:
        return UnreadableEvent(event.seq, event.type, State.LOST.value)
    if event.erased:
        state = State.LOST if event.lost else State.ERASED
        return UnreadableEvent(event.seq, event.type, state.value)
    return None


def gaps_in_records(event: Event) -> tuple[UnreadableEvent, ...]:
    """What of an event's records is erased, or lost; nothing where all are there."""
    gone = [one for one in event.records if isinstance(one, ErasedRecord)]
    if not gone:
        return ()
    state = State.LOST if any(one.lost for one in gone) else State.ERASED
    return (UnreadableEvent(event.seq, event.type, state.value),)


def readable(read: Read, after: int = 0) -> Iterator[Event | UnreadableEvent]:
    """The events by seq, and in their places those that are damaged.

    Raises:
        StorageError: The store failed in another way.
    """
    return _damage.readable(read, after, _damaged)


def moment_of(memory: LogBackend, session_id: str, at: int | datetime | None) -> int:
    """The last event of a moment at which a session has begun.

    Raises:
        NotFound: There is no such session, or not yet; or `at` is not written yet.
        ContractError: An argument breaks a rule.
        HistoryCompacted: That past is no longer kept.
        StorageError: The store failed.
    """
    check_session_id(session_id)
    upto = memory.health().head_seq if at is None else memory.at(at).seq
    stream = ("session", session_id)
    first = next(readable(lambda after, _: memory.events(after, stream=stream, limit=1)), None)
    if first is None or first.seq > upto:
        raise _session_not_found(session_id, None if first is None else first.seq, upto)
    return upto


def events_upto(
    memory: LogBackend,
    session_id: str,
    upto: int,
    types: Sequence[str] | None,
    *,
    after: int = 0,
) -> Iterator[Event | UnreadableEvent]:
    """Events of one session by seq; those without content are gaps.

    Also of a past that is no longer kept whole: what is gone of it is a gap.

    Args:
        upto: None behind this one.
        types: Only these types, and what was forgotten or lost; None = all.
        after: Only events behind this one.

    Raises:
        StorageError: The store failed. Damaged events are gaps, not errors.

    Cost: O(events of the session); content is only read of the types asked for.
    """
    stream = ("session", session_id)
    wanted = None if types is None else (*types, FORGOTTEN, LOST)

    def read(after: int, limit: int | None) -> Iterator[Event]:
        return memory.events(after, stream=stream, types=wanted, limit=limit)

    return _until(readable(read, after), upto)


def _session_not_found(session_id: str, first_seq: int | None, upto: int) -> NotFound:
    """The error of a session that is not there, or that begins after the event asked for."""
    if first_seq is None:
        there = "which has no event here; list_sessions() shows those that do"
    else:
        there = f"which begins at event {first_seq}, after event {upto}; ask for a later moment"
    return NotFound(
        f"session: expected one of this store, got {brief(session_id)}, {there}",
        reason=Reason.SESSION_NOT_FOUND,
        key=session_id,
    )


def _until(
    events: Iterator[Event | UnreadableEvent], upto: int
) -> Iterator[Event | UnreadableEvent]:
    for event in events:
        if event.seq > upto:
            return
        yield event if isinstance(event, UnreadableEvent) else gap_of(event) or event


def _damaged(seq: int, problem: str) -> UnreadableEvent:
    return UnreadableEvent(seq, "", State.DAMAGED.value, problem)
