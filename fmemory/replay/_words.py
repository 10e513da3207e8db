"""An event in a few words, from its facts: what a report shows of the events around an error."""

from __future__ import annotations

import msgspec

from fmemory._engine.stored import (
    StoredCheckpoint,
    StoredManifest,
    StoredProgress,
    StoredSession,
    from_ns,
)
from fmemory._engine.types import RECORDS, EventType
from fmemory._json_values import JsonObject, JsonValue
from fmemory.replay._facts import Fact, Features, MessageFact, State, StepFact, time_ns
from fmemory.replay.models import EventLine

__all__ = ["arguments_of", "line_of", "short", "words_of"]

ARGUMENTS_MAX = 300
_decode = msgspec.msgpack.Decoder().decode


def line_of(fact: Fact) -> EventLine:
    """An event as a line of a report."""
    event = fact.event
    return EventLine(
        seq=event.seq,
        at=from_ns(time_ns(event)),
        type=event.type or "unknown",
        actor=event.actor,
        run_id=event.run_id,
        words=words_of(fact),
        is_error=_is_error(fact),
    )


def words_of(fact: Fact) -> str:
    """The first words of what an event says; in brackets what is left where it says nothing."""
    if fact.state is not State.KEPT:
        problem = f": {fact.problem}" if fact.problem else ""
        return f"({fact.state.value}{problem})"
    detail = fact.detail
    match detail:
        case tuple():
            return _of_messages(detail)
        case StoredCheckpoint():
            return f"{detail.run_id} {_status(detail)}{f': {detail.note}' if detail.note else ''}"
        case StoredProgress():
            return detail.summary[:ARGUMENTS_MAX]
        case StoredManifest():
            return detail.current_objective[:ARGUMENTS_MAX]
        case StoredSession():
            manifest = detail.manifest
            return "" if manifest is None else manifest.current_objective[:ARGUMENTS_MAX]
        case Features(features=features):
            passing = sum(one.passes for one in features)
            return f"{len(features)} features, {passing} passing"
        case StepFact():
            return f"{short(detail.action)}: {short(detail.answer.words)}"
        case _:
            return _of_envelope(fact)


def arguments_of(stored: bytes) -> str:
    """The stored arguments of a call as one line: each by its name, or the text itself."""
    try:
        value: JsonValue = _decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return _of_value(value)


def short(text: str) -> str:
    """The first words of a text, on one line."""
    return " ".join(text[:ARGUMENTS_MAX].split())


def _of_messages(messages: tuple[MessageFact, ...]) -> str:
    if not messages:
        return "no messages"
    last = messages[-1]
    count = f"{len(messages)} messages, last " if len(messages) > 1 else ""
    made, answers = last.told()
    role = "result" if answers and last.role == "user" else last.role
    words = short(answers[-1].words if answers else last.words)
    calls = ", ".join(f"{call.name}({arguments_of(bytes(call.arguments))})" for call in made)
    failed = "error: " if any(one.failed for one in answers) or last.is_error else ""
    shown = " ".join(part for part in (words, f"[{calls}]" if calls else "") if part)
    return f"{count}{role}: {failed}{shown}"


def _of_envelope(fact: Fact) -> str:
    event = fact.event
    match event.type:
        case EventType.FEATURE_PASS_UPDATED:
            return f"{event.keys[0]} {'passes' if event.count else 'does not pass'}"
        case EventType.TRANSCRIPT_TRUNCATED:
            return f"the first {event.count} messages kept"
        case EventType.RECORDS_PUT | EventType.RECORDS_DELETED:
            return ", ".join(event.keys[:5])
        case EventType.RECORDS_CLEARED:
            return f"{event.count} records"
        case _:
            return "/".join(event.stream[1:]) if event.stream[0] == RECORDS else ""


def _of_value(value: JsonValue) -> str:
    if isinstance(value, str):
        return short(value)
    if isinstance(value, dict):
        if len(value) == 1:
            (only,) = value.values()
            return _of_value(only)
        return short(", ".join(f"{key}={_of_value(one)}" for key, one in _some(value)))
    if isinstance(value, list):
        return short(f"[{', '.join(_of_value(one) for one in value[:20])}]")
    return str(value)


def _some(value: JsonObject) -> list[tuple[str, JsonValue]]:
    return list(value.items())[:20]


def _status(checkpoint: StoredCheckpoint) -> str:
    if checkpoint.status == "in_progress" and checkpoint.completed_at_us is not None:
        return "ended"
    return checkpoint.status.replace("_", " ")


def _is_error(fact: Fact) -> bool:
    match fact.detail:
        case tuple():
            return any(answer.failed for one in fact.detail for answer in one.answers)
        case StepFact():
            return fact.detail.answer.failed
        case _:
            return False
