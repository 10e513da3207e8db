"""Reading a damaged store: what can be read is shown, and what cannot is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from fmemory_tools._failure import FINDING, Failure, tell

if TYPE_CHECKING:
    from fmemory import BootstrapState, Event, LogBackend, LogView, Message, StorageError
    from fmemory._damage import Read
    from fmemory.replay import UnreadableEvent

T = TypeVar("T")
_NO_SESSION = ("records", "meta")
"""First labels of streams that are of no session."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """An event that cannot be read, and what is wrong with it.

    Attributes:
        last_seq: The last of the events that were checked as one, of which any may be damaged.
    """

    seq: int
    problem: str
    last_seq: int = 0

    def __str__(self) -> str:
        which = f"event {self.seq} is"
        if self.last_seq > self.seq:
            which = f"one or more of the events {self.seq} to {self.last_seq} are"
        return f"{which} damaged: {self.problem}; run `fmemory verify`"


def damage_of(error: StorageError) -> Damaged | None:
    """The first event that an error is about, or several; None if it is about something else."""
    from fmemory import LogCorrupt, _damage

    found = _damage.damage_of(error)
    if found is None or not isinstance(error, LogCorrupt):
        return None
    return Damaged(*found, error.last_seq or 0)


def readable(events: Read, after: int = 0) -> Iterator[Event | Damaged]:
    """The events by seq, and in their places those that are damaged."""
    from fmemory import _damage

    return _damage.readable(events, after, Damaged)


def load_state(
    memory: LogBackend, view: LogView, session_id: str
) -> tuple[LogView, BootstrapState, Damaged | None]:
    """The state of a session; if an event of it is damaged, that before it, and the event."""
    return _before_damage(memory, view, lambda one: one.load_bootstrap_state(session_id))


def load_session(
    memory: LogBackend, view: LogView, session_id: str
) -> tuple[LogView, tuple[BootstrapState, tuple[Message, ...]], Damaged | None]:
    """The state of a session with its messages; if one of its events is damaged, that before it."""
    return _before_damage(
        memory,
        view,
        lambda one: (
            one.load_bootstrap_state(session_id),
            one.load_transcript_messages(session_id),
        ),
    )


def _before_damage(
    memory: LogBackend, view: LogView, load: Callable[[LogView], T]
) -> tuple[LogView, T, Damaged | None]:
    from fmemory import StorageError

    found: Damaged | None = None
    while True:
        try:
            return view, load(view), found
        except StorageError as error:
            damaged = damage_of(error)
            if damaged is None or not 0 < damaged.seq <= view.seq:
                raise
            found, view = damaged, memory.at(damaged.seq - 1)


def tell_unreadable(unreadable: Iterable[UnreadableEvent], what: str) -> None:
    """On stderr the events that were `what`, such as not searched; damage ends with a finding."""
    from fmemory_tools._sessions import name_some

    gone: dict[str, list[UnreadableEvent]] = {}
    for one in unreadable:
        gone.setdefault(one.state, []).append(one)
    for state, events in gone.items():
        if state != "damaged":
            seqs = name_some([str(one.seq) for one in events])
            tell(f"{what}, as {state}: event {seqs}")
    refuse_unreadable(gone.get("damaged", ()))


def lost_events(
    memory: LogBackend, session_id: str | None = None, *, upto: int | None = None
) -> Iterator[UnreadableEvent]:
    """Events that a repair found lost and that may be of this session; without one, of any.

    What one of them said nobody knows, so reading the session without it raises nothing.

    Args:
        upto: None behind this one.
    """
    from heapq import merge
    from operator import attrgetter

    from fmemory.replay import UnreadableEvent
    from fmemory_tools._sessions import all_streams

    streams: Iterable[tuple[str, ...] | None] = (None,)
    if session_id is not None:
        # What belongs to no stream stands in one that is not kept by the library.
        others = (one for one in all_streams(memory) if one[0] not in ("session", *_NO_SESSION))
        streams = (("session", session_id), *others)
    for event in merge(*(_lost_in(memory, one) for one in streams), key=attrgetter("seq")):
        if upto is not None and event.seq > upto:
            return
        if event.stream[0] not in _NO_SESSION:
            yield UnreadableEvent(event.seq, event.type, "lost")


def _lost_in(memory: LogBackend, stream: tuple[str, ...] | None) -> Iterator[Event]:
    def read(after: int, limit: int | None) -> Iterator[Event]:
        return memory.events(after, stream=stream, types=("event_lost",), limit=limit)

    return (one for one in readable(read) if not isinstance(one, Damaged))


def refuse_unreadable(unreadable: Iterable[UnreadableEvent]) -> None:
    """End the command with a finding if some are damaged; what is merely gone is none."""
    refuse_damage(
        [Damaged(one.seq, one.problem or "") for one in unreadable if one.state == "damaged"]
    )


def refuse_damage(damaged: Iterable[Damaged]) -> None:
    """End the command with a finding if there is any, after what can be read was shown."""
    from fmemory_tools._sessions import name_some, ranges_of

    numbers = sorted({one.seq for one in damaged})
    if not numbers:
        return
    named = name_some(ranges_of(numbers))
    which = f"event {named} is" if len(numbers) == 1 else f"events {named} are"
    raise Failure(f"{which} damaged; what else can be read is shown; run `fmemory verify`", FINDING)
