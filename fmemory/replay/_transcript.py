"""The conversation of a session, message by message, with the event that holds each.

A transcript is folded from the session's own events, so every message has its seq, its run and who
wrote it, and what can no longer be read stays visible as a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from fmemory._json_values import JsonObject, JsonValue
from fmemory._model import Model
from fmemory.errors import ContractError, Reason
from fmemory.replay._parts import Parts, parts_of
from fmemory.replay._reading import Gap, session_events

if TYPE_CHECKING:
    from fmemory.backend import LogBackend
    from fmemory.log_models import Event

__all__ = ["TranscriptCall", "TranscriptEntry", "TranscriptResult", "transcript"]

_APPENDED = "transcript_appended"
_TRUNCATED = "transcript_truncated"
_DELETED = "session_deleted"


class TranscriptCall(Model, frozen=True):
    """A tool call.

    Attributes:
        id: What its answer refers to.
        name: The tool.
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
        name: The tool, where the call is in the transcript.
        text: The answer's text.
        is_error: Whether it reports a failure.
    """

    call_id: str | None
    name: str | None
    text: str
    is_error: bool = False


class TranscriptEntry(Model, frozen=True):
    """One message, or an event that can no longer tell what it said.

    Attributes:
        seq: The event that holds it.
        number: Of the message in the transcript, from 1; None for a gap.
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
    gap: Gap | None = None


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
        last: Only so many entries, 1 or more; None = all.

    Raises:
        NotFound: There is no such session, or not yet; or no event `at`.
        ContractError: An argument breaks a rule.
        StorageError: The store failed. A damaged event is a gap, not an error.

    Cost: O(messages of the session); other sessions are not read. Writes nothing.

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
    events = session_events(memory, session_id, at=at, types=(_APPENDED, _TRUNCATED, _DELETED))
    entries = [one for one in _entries(_fold(events)) if _is_of(one, run_id)]
    return tuple(entries if last is None else entries[-last:])


@dataclass(slots=True)
class _Said:
    """A message of the fold and its event, or a gap."""

    event: Event | Gap
    parts: Parts | None = None
    message: JsonObject = field(default_factory=dict)


def _fold(events: Iterator[Event | Gap]) -> list[_Said]:
    said: list[_Said] = []
    for event in events:
        if isinstance(event, Gap):
            # Whatever else was erased or forgotten belongs to a deletion, and was no message then.
            if event.type in (None, _APPENDED):
                said.append(_Said(event))
        elif event.type == _DELETED:
            said.clear()
        elif event.type == _TRUNCATED:
            said = _truncated(said, event)
        else:
            said += [_Said(event, parts_of(one), one) for one in messages_in(event)]
    return said


def messages_in(event: Event) -> list[JsonObject]:
    """The messages of an event that appends some, as plain data."""
    data = event.data if isinstance(event.data, dict) else {}
    found = data.get("messages")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _truncated(said: list[_Said], event: Event) -> list[_Said]:
    keep = event.data.get("keep") if isinstance(event.data, dict) else None
    assert isinstance(keep, int), "a truncation says how many it keeps"
    kept: list[_Said] = []
    count = 0
    for one in said:
        count += one.parts is not None
        if one.parts is None or count <= keep:
            kept.append(one)
    return kept


def _entries(said: Sequence[_Said]) -> Iterator[TranscriptEntry]:
    names: dict[str, str] = {}
    answers = _answers(said)
    number = 0
    for one in said:
        if one.parts is None or isinstance(one.event, Gap):
            assert isinstance(one.event, Gap)
            yield TranscriptEntry(one.event.seq, None, "", gap=one.event)
            continue
        number += 1
        names.update({call.id: call.name for call in one.parts.calls})
        yield _entry(one.event, number, one.parts, one.message, names, answers)


def _answers(said: Sequence[_Said]) -> dict[str, tuple[int, bool]]:
    """Call id → the first event that answers it, and whether with an error."""
    found: dict[str, tuple[int, bool]] = {}
    for one in said:
        for answer in () if one.parts is None else one.parts.answers:
            if answer.call_id is not None:
                found.setdefault(answer.call_id, (one.event.seq, answer.is_error))
    return found


def _entry(
    event: Event,
    number: int,
    parts: Parts,
    message: JsonObject,
    names: dict[str, str],
    answers: dict[str, tuple[int, bool]],
) -> TranscriptEntry:
    blocks = message.get("blocks")
    return TranscriptEntry(
        seq=event.seq,
        number=number,
        role=parts.role,
        time=_time_of(event, message),
        text=parts.text,
        thinking=parts.thinking,
        calls=tuple(
            TranscriptCall(call.id, call.name, call.arguments, *answers.get(call.id, (None, False)))
            for call in parts.calls
        ),
        results=tuple(
            TranscriptResult(
                one.call_id,
                None if one.call_id is None else names.get(one.call_id),
                one.text,
                one.is_error,
            )
            for one in parts.answers
        ),
        others=parts.others,
        is_error=parts.is_error,
        run_id=event.run_id,
        actor=event.actor,
        blocks=tuple(blocks) if isinstance(blocks, list) else (),
    )


def _time_of(event: Event, message: JsonObject) -> datetime:
    created = message.get("created_at")
    if isinstance(created, str):
        return datetime.fromisoformat(created)
    return event.occurred_at or event.recorded_at


def _is_of(entry: TranscriptEntry, run_id: str | None) -> bool:
    return run_id is None or entry.gap is not None or entry.run_id == run_id
