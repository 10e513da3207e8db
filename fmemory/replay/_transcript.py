"""The conversation of a session, message by message, with the event that holds each.

A transcript is folded from the session's own events, so every message has its seq, its run and who
wrote it, and what can no longer be read stays visible as a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fmemory._json_values import JsonObject, JsonValue
from fmemory._model import Model
from fmemory.errors import ContractError, Reason
from fmemory.replay._facts import State, facts, never
from fmemory.replay._parts import NOTHING, Parts, as_answer, parts_of
from fmemory.replay._reading import events_upto, moment_of
from fmemory.replay.models import UnreadableEvent

if TYPE_CHECKING:
    from fmemory.backend import LogBackend
    from fmemory.journal import Envelope
    from fmemory.log_models import Event

__all__ = [
    "TRANSCRIPT_TYPES",
    "TranscriptCall",
    "TranscriptEntry",
    "TranscriptResult",
    "entries_upto",
    "messages_in",
    "transcript",
]

_APPENDED = "transcript_appended"
_TRUNCATED = "transcript_truncated"
_DELETED = "session_deleted"
_READ_BEFORE = 100
"""Messages that are read before the last ones, for the names of tools that these answer."""
TRANSCRIPT_TYPES = (_APPENDED, _TRUNCATED, _DELETED)
"""Types of the events that a transcript is folded from."""


class TranscriptCall(Model, frozen=True):
    """A tool call.

    Attributes:
        id: What its answer refers to; empty where the harness gives calls no ids.
        name: The tool; for such a harness the program that was called.
        arguments: As the assistant gave them; text where that is no JSON object.
        answer_seq: The event that answers it; None = nothing does.
        is_error: Whether the answer reports a failure.
    """

    id: str
    name: str
    arguments: JsonObject | str = msgspec.field(default_factory=dict)
    answer_seq: int | None = None
    is_error: bool = False


class TranscriptResult(Model, frozen=True):
    """What a tool answered.

    Attributes:
        call_id: The call it answers; None where it names none.
        name: The tool, where the call is in the transcript: the nearest one of this id before,
            unless another answer has it.
        text: The answer's text.
        is_error: Whether it reports a failure, by its mark or its own words.
    """

    call_id: str | None
    name: str | None
    text: str
    is_error: bool = False


class TranscriptEntry(Model, frozen=True):
    """One message, or an event that can no longer tell what it said.

    Attributes:
        seq: The event that holds it.
        number: Of the message among those that can be read, from 1; None for a gap. Where only the
            last ones are asked for, those long before count whether they can be read or not.
        role: Who speaks: system, user, assistant or tool; empty for a gap.
        time: When it was made, else when it happened, else when it was recorded; UTC. None where
            the event is damaged.
        text: The words, without those of results.
        thinking: What the assistant thought aloud.
        calls: Tools it wants called.
        results: What tools answered.
        others: Types of content blocks that are none of these, such as image.
        is_error: A result reports a failure, or the message is an error itself.
        run_id: The run that wrote it.
        actor: Who wrote it.
        blocks: The provider's own content blocks, as they came.
        gap: Why there is nothing to read; None for a message.
        gap_messages: How many messages the event of a gap held, of those that no truncation cut
            off; None where nobody knows. Truncations count such an event as none, so that some of
            the messages after it may have been cut off.
        place: Which of its event's messages it is, from 0; None for a gap.
    """

    seq: int
    number: int | None
    role: str
    time: datetime | None = None
    text: str = ""
    thinking: str = ""
    calls: tuple[TranscriptCall, ...] = ()
    results: tuple[TranscriptResult, ...] = ()
    others: tuple[str, ...] = ()
    is_error: bool = False
    run_id: str | None = None
    actor: str | None = None
    blocks: tuple[JsonValue, ...] = ()
    gap: UnreadableEvent | None = None
    gap_messages: int | None = None
    place: int | None = None


def transcript(
    memory: LogBackend,
    session_id: str,
    *,
    run_id: str | None = None,
    at: int | datetime | None = None,
    last: int | None = None,
) -> tuple[TranscriptEntry, ...]:
    """The messages of a session as of a moment, oldest first, with their events.

    Args:
        run_id: Only what this run wrote; gaps are left in, because nobody knows whose they are.
        at: As of this event, or time of recording; None = now.
        last: Only so many entries, 1 or more; None = all. The names of tools that these answer are
            then looked for in the hundred messages before them, of the run if one is named.

    Raises:
        NotFound: There is no such session, or not yet; or no event `at`.
        ContractError: An argument breaks a rule.
        StorageError: The store failed. A damaged event is a gap, not an error.

    Cost: O(messages of the session), or with `last` its envelopes and little more than that many
        messages; other sessions are not read. Writes nothing.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     call = fmemory.ToolCall("c1", "add", {"a": 1})
    ...     asked = fmemory.Message("assistant", "adding", tool_calls=[call])
    ...     _ = memory.append_transcript_messages("s", [asked])
    ...     [(one.seq, one.text, one.calls[0].answer_seq) for one in transcript(memory, "s")]
    [(1, 'adding', None)]
    """
    if last is not None and (type(last) is not int or last < 1):
        raise ContractError(
            f"expected 1 or more, got {last!r}", where="last", reason=Reason.OUT_OF_RANGE
        )
    upto = moment_of(memory, session_id, at)
    after, before = 0, 0
    if last is not None:
        after, before = _window(memory, session_id, upto, run_id, last)
    every = entries_upto(memory, session_id, upto, after=after, before=before)
    entries = [one for one in every if _is_of(one, run_id)]
    return tuple(entries if last is None else entries[-last:])


def entries_upto(
    memory: LogBackend, session_id: str, upto: int, *, after: int = 0, before: int = 0
) -> Iterator[TranscriptEntry]:
    """The entries of a session as of an event, with calls and answers brought together.

    Args:
        after: Only of events behind this one.
        before: Messages of events up to that one.
    """
    events = list(events_upto(memory, session_id, upto, TRANSCRIPT_TYPES, after=after))
    gaps = frozenset(one.seq for one in events if isinstance(one, UnreadableEvent))
    said = _fold(events, before, _envelopes(memory, session_id, upto, gaps))
    pairs = _pairs(said)
    number = before
    for position, one in enumerate(said):
        if isinstance(one.event, UnreadableEvent):
            held = one.count or None
            yield TranscriptEntry(one.event.seq, None, "", gap=one.event, gap_messages=held)
            continue
        number += 1
        yield _entry(one, number, position, pairs)


class _Place(NamedTuple):
    """An event with messages, or one that cannot tell, with none: how many, and of which run."""

    seq: int
    message_count: int
    run_id: str | None
    is_forgotten: bool = False


def _window(
    memory: LogBackend, session_id: str, upto: int, run_id: str | None, last: int
) -> tuple[int, int]:
    """After which event to read for the last entries, and how many messages are before that.

    Cost: O(events of the session), envelopes only.
    """
    places = _places(memory, session_id, upto)
    missing, first = last + _READ_BEFORE, len(places)
    while first and missing > 0:
        first -= 1
        place = places[first]
        if run_id is None or place.run_id == run_id or not place.message_count:
            missing -= max(1, place.message_count)
    if first == 0:
        return 0, 0
    return places[first].seq - 1, sum(one.message_count for one in places[:first])


def _places(memory: LogBackend, session_id: str, upto: int) -> list[_Place]:
    """Where the messages of a transcript lie, without reading them."""
    places: list[_Place] = []
    total = 0
    types = frozenset(TRANSCRIPT_TYPES)
    for fact in facts(memory, session_id=session_id, upto=upto, types=types, wanted=never):
        event = fact.event
        if event.type == _DELETED or (places and places[-1].is_forgotten):
            places, total = [], 0
        if event.type == _APPENDED:
            places.append(_Place(event.seq, event.count, event.run_id))
            total += event.count
        elif event.type == _TRUNCATED:
            total = _truncate_places(places, total, event.count)
        elif event.type != _DELETED:
            places.append(_Place(event.seq, 0, None, fact.state is State.FORGOTTEN))
    return places


def _truncate_places(places: list[_Place], total: int, keep: int) -> int:
    """Take out what is behind the first messages; how many of `total` are left."""
    unknown: list[_Place] = []
    while places and total - places[-1].message_count >= keep:
        place = places.pop()
        total -= place.message_count
        if not place.message_count:
            unknown.append(place)
    if total > keep:
        places[-1] = places[-1]._replace(message_count=places[-1].message_count - (total - keep))
        total = keep
    places += reversed(unknown)
    return total


def _envelopes(
    memory: LogBackend, session_id: str, upto: int, seqs: frozenset[int]
) -> dict[int, Envelope]:
    """What is known of events whose content is not there; those that cannot tell are left out.

    Cost: none without such events, else O(events of the session), envelopes only.
    """
    if not seqs:
        return {}
    types = frozenset(TRANSCRIPT_TYPES)
    found = facts(memory, session_id=session_id, upto=upto, types=types, wanted=never)
    return {one.event.seq: one.event for one in found if one.event.seq in seqs}


@dataclass(slots=True)
class _Said:
    """A message of the fold and its event; or what is left of an event, without parts.

    `count` is how many messages that is; 0 = nobody knows. `place` is where it is in its event.
    """

    event: Event | UnreadableEvent
    parts: Parts = NOTHING
    message: JsonObject = field(default_factory=dict)
    count: int = 1
    place: int = 0


def _fold(
    events: Iterable[Event | UnreadableEvent], before: int, known: Mapping[int, Envelope]
) -> list[_Said]:
    """What is said after the events.

    Args:
        before: Messages of events before these.
        known: Seq → envelope of those whose content is not there.
    """
    said: list[_Said] = []
    for event in events:
        envelope = known.get(event.seq)
        type_ = event.type if envelope is None else envelope.type
        if type_ == _DELETED:
            said.clear()
        elif type_ == _TRUNCATED:
            keep = _keep_of(event) if envelope is None else envelope.count
            said = said if keep is None else _truncated(said, keep, before)
        elif isinstance(event, UnreadableEvent):
            has_count = envelope is not None and type_ == _APPENDED
            said.append(_Said(event, count=envelope.count if envelope and has_count else 0))
        else:
            _append(said, event)
    return said


def _append(said: list[_Said], event: Event) -> None:
    # Only a deleted session is forgotten, so what is told after that belongs to a new one.
    if said and _is_forgotten(said[-1].event):
        said.clear()
    for place, message in enumerate(messages_in(event)):
        parts = parts_of(message)
        waiting = said[-1].parts.calls if said else ()
        if parts.role == "user" and len(waiting) == 1 and not waiting[0].id:
            parts = as_answer(parts)
        said.append(_Said(event, parts, message, place=place))


def _is_forgotten(event: Event | UnreadableEvent) -> bool:
    return isinstance(event, UnreadableEvent) and event.state == State.FORGOTTEN


def messages_in(event: Event) -> list[JsonObject]:
    """The messages of an event that appends some, as plain data."""
    data = event.data if isinstance(event.data, dict) else {}
    found = data.get("messages")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _keep_of(event: Event | UnreadableEvent) -> int | None:
    """How many messages a truncation keeps; None where it cannot tell."""
    data = None if isinstance(event, UnreadableEvent) else event.data
    keep = data.get("keep") if isinstance(data, dict) else None
    return keep if isinstance(keep, int) else None


def _truncated(said: list[_Said], keep: int, before: int) -> list[_Said]:
    kept: list[_Said] = []
    left = keep - before
    for one in said:
        if one.count == 0 or left > 0:
            kept.append(replace(one, count=left) if one.count > left > 0 else one)
        left -= one.count
    return kept


@dataclass(slots=True)
class _Pairs:
    """Which answers belong to which calls; a message is its position, a part its place in it.

    Attributes:
        answers: Message and call → the event that answers it, and whether that tells a failure.
        names: Message and answer → the tool that was called.
    """

    answers: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)
    names: dict[tuple[int, int], str] = field(default_factory=dict)


def _pairs(said: Sequence[_Said]) -> _Pairs:
    """Each answer with the nearest call of its id before it that nothing answers yet.

    Some harnesses count the calls of each turn anew, so an id may come again.
    """
    found = _Pairs()
    waiting: dict[str, list[tuple[int, int]]] = {}
    for position, one in enumerate(said):
        for place, answer in enumerate(one.parts.answers):
            if answer.call_id is None:
                calls = _nameless_calls(said, position - 1)
            else:
                calls = waiting.get(answer.call_id, [])[-1:]
                del waiting.get(answer.call_id, [])[-1:]
            for call in calls:
                found.answers.setdefault(call, (one.event.seq, answer.is_error))
                if answer.call_id is not None:
                    found.names[position, place] = _name_at(said, call)
        # A message answers what was called before it, and not what it calls itself.
        for place, made in enumerate(one.parts.calls):
            if made.id:
                waiting.setdefault(made.id, []).append((position, place))
    return found


def _nameless_calls(said: Sequence[_Said], position: int) -> list[tuple[int, int]]:
    calls = said[position].parts.calls if position >= 0 else ()
    return [(position, place) for place, call in enumerate(calls) if not call.id]


def _name_at(said: Sequence[_Said], call: tuple[int, int]) -> str:
    position, place = call
    return said[position].parts.calls[place].name


def _entry(said: _Said, number: int, position: int, pairs: _Pairs) -> TranscriptEntry:
    event, parts = said.event, said.parts
    assert not isinstance(event, UnreadableEvent)
    blocks = said.message.get("blocks")
    calls = [
        TranscriptCall(
            call.id,
            call.name,
            call.arguments,
            *pairs.answers.get((position, place), (None, False)),
        )
        for place, call in enumerate(parts.calls)
    ]
    results = [
        TranscriptResult(one.call_id, pairs.names.get((position, place)), one.text, one.is_error)
        for place, one in enumerate(parts.answers)
    ]
    return TranscriptEntry(
        seq=event.seq,
        number=number,
        role=parts.role,
        time=_time_of(event, said.message),
        text=parts.text,
        thinking=parts.thinking,
        calls=tuple(calls),
        results=tuple(results),
        others=parts.others,
        is_error=parts.is_error,
        run_id=event.run_id,
        actor=event.actor,
        blocks=tuple(blocks) if isinstance(blocks, list) else (),
        place=said.place,
    )


def _time_of(event: Event, message: JsonObject) -> datetime:
    created = message.get("created_at")
    if isinstance(created, str):
        return datetime.fromisoformat(created)
    return event.occurred_at or event.recorded_at


def _is_of(entry: TranscriptEntry, run_id: str | None) -> bool:
    return run_id is None or entry.gap is not None or entry.run_id == run_id
