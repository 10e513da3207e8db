"""Texts of a log that match a pattern, each with the event that holds it and a piece of it.

Everything ever written is looked through, also what was truncated or replaced later. Events that
cannot be looked through, because their content is erased, forgotten, lost or damaged, are named.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from fmemory._engine.stored import to_ns
from fmemory._json_values import JsonObject, JsonValue
from fmemory._model import Model
from fmemory.errors import ContractError, Reason, brief
from fmemory.record_models import MemoryRecord
from fmemory.replay._facts import Fact, events_sieved, time_ns
from fmemory.replay._parts import parts_of
from fmemory.replay._reading import FORGOTTEN, LOST, gap_of, gaps_in_records, moment_of
from fmemory.replay._sieve import sieve
from fmemory.replay._transcript import messages_in
from fmemory.replay.models import UnreadableEvent

if TYPE_CHECKING:
    from fmemory.backend import LogBackend
    from fmemory.journal import Envelope
    from fmemory.log_models import Event

__all__ = ["Match", "Matches", "TextPlace", "grep", "pattern_of"]

EXCERPT_CHARACTERS_MAX = 200
_BEFORE_CHARACTERS = 60
PATTERN_CHARACTERS_MAX = 10_000


class TextPlace(StrEnum):
    """Where a text stands."""

    MESSAGE = "message"
    NOTE = "note"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    MANIFEST = "manifest"
    FEATURE = "feature"
    EVENT = "event"


class Match(Model, frozen=True):
    """A text that matches, as it does so first.

    Attributes:
        seq: The event that holds it.
        place: What it is a text of.
        name: Which of them: a message's role, `thinking`, `result`, `call` (its name) or
            `call NAME PATH` (an argument); a record's or feature's id; the run of a progress entry
            or checkpoint; a path in an event's data.
        session_id: The session; None for records and streams of others.
        namespace: The record's namespace; () elsewhere.
        time: When it happened, else when it was recorded; UTC.
        actor: Who wrote it.
        run_id: In which run.
        type: The event's type.
        line: Number of the line in the text, from 1.
        excerpt: The line, or a part of it of at most `EXCERPT_CHARACTERS_MAX` characters.
        start: Where in the excerpt the match begins.
        end: Where it ends, or the excerpt does.
        match_count: How often the text matches.
    """

    seq: int
    place: TextPlace
    name: str
    session_id: str | None
    namespace: tuple[str, ...]
    time: datetime
    actor: str | None
    run_id: str | None
    type: str
    line: int
    excerpt: str
    start: int
    end: int
    match_count: int


class Matches(Model, frozen=True):
    """What a search found.

    Attributes:
        matches: By seq, and within an event in its own order.
        unreadable: Events among those asked for whose texts, or some of them, are not there.
        complete: Everything asked for was looked through; False = it stopped at the limit.
    """

    matches: tuple[Match, ...]
    unreadable: tuple[UnreadableEvent, ...] = ()
    complete: bool = True


def grep(
    memory: LogBackend,
    pattern: str,
    *,
    literal: bool = False,
    ignore_case: bool = False,
    places: Sequence[str] | None = None,
    session_id: str | None = None,
    actor: str | None = None,
    run_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
) -> Matches:
    """Texts that match, by seq: of messages, notes, progress, checkpoints and events of others.

    Args:
        pattern: A regular expression of Python's `re`; `^` and `$` stand for ends of lines.
        literal: It is a text to be found as it is.
        ignore_case: Capital and small letters are the same.
        places: Only texts of these `TextPlace`s; None = all.
        session_id: Only of this session.
        actor: Only written by this one.
        run_id: Only of this run.
        since: Only what happened then or later; an aware time.
        until: Only what happened before; an aware time.
        limit: Stop after so many texts, 1 or more.

    Raises:
        ContractError: An argument breaks a rule; a pattern that is none has `where` "pattern".
        NotFound: There is no such session.
        StorageError: The store failed. Damaged events are named in the result instead.

    Cost: O(bytes of the events asked for), and about 0.1 ms for each that may match; where the
        pattern is a text, or has one that every match contains, few others may. Writes nothing.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     _ = memory.append_transcript_messages("s", [fmemory.Message("user", "fix the parser")])
    ...     [(one.seq, one.name, one.excerpt) for one in grep(memory, "pars.r").matches]
    [(1, 'user', 'fix the parser')]
    """
    expression = pattern_of(pattern, literal=literal, ignore_case=ignore_case)
    chosen = frozenset(TextPlace) if places is None else frozenset(map(_place, places))
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ContractError(
            f"expected 1 or more, got {limit!r}", where="limit", reason=Reason.OUT_OF_RANGE
        )
    asked = _Asked(actor, run_id, _time(since, "since"), _time(until, "until"))
    found: list[Match] = []
    unreadable: list[UnreadableEvent] = []
    may = sieve(pattern, literal=literal, ignore_case=ignore_case)
    for event in _events(memory, session_id, _types(chosen), asked, may):
        if isinstance(event, UnreadableEvent):
            unreadable.append(event)
            continue
        found += _matches(event, expression, chosen)
        if TextPlace.NOTE in chosen:
            unreadable += gaps_in_records(event)
        if limit is not None and len(found) > limit:
            return Matches(tuple(found[:limit]), tuple(unreadable), complete=False)
    return Matches(tuple(found), tuple(unreadable))


def pattern_of(pattern: str, *, literal: bool, ignore_case: bool) -> re.Pattern[str]:
    """The pattern, ready to be looked for.

    Raises:
        ContractError: It is empty, too long, or no regular expression.
    """
    if type(pattern) is not str:
        raise ContractError(
            f"expected a str, got {brief(pattern)}", where="pattern", reason=Reason.WRONG_TYPE
        )
    if not pattern:
        raise ContractError("expected a text, got none", where="pattern", reason=Reason.EMPTY)
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise ContractError(
            f"expected at most {PATTERN_CHARACTERS_MAX} characters, got {len(pattern)}",
            where="pattern",
            reason=Reason.TOO_LARGE,
        )
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(re.escape(pattern) if literal else pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ContractError(
            f"expected a regular expression, got {brief(pattern)}: {error}; to look for it as it"
            " is written, ask for a literal text",
            where="pattern",
            reason=Reason.BAD_VALUE,
        ) from error


class _Asked(NamedTuple):
    """Which events are asked for; times in Unix nanoseconds."""

    actor: str | None
    run_id: str | None
    since_ns: int | None
    until_ns: int | None

    def matches(self, event: Envelope) -> bool:
        """Whether this event is; one that cannot tell is."""
        if not event.type:
            return True
        time = time_ns(event)
        return (
            (self.actor is None or event.actor == self.actor)
            and (self.run_id is None or event.run_id == self.run_id)
            and (self.since_ns is None or time >= self.since_ns)
            and (self.until_ns is None or time < self.until_ns)
        )


def _time(value: datetime | None, where: str) -> int | None:
    return None if value is None else to_ns(value, where, clamp=True)


def _place(value: str) -> TextPlace:
    try:
        return TextPlace(value)
    except ValueError:
        raise ContractError(
            f"expected {', '.join(TextPlace)}, got {brief(value)}",
            where="places",
            reason=Reason.BAD_VALUE,
        ) from None


def _events(
    memory: LogBackend,
    session_id: str | None,
    types: frozenset[str] | None,
    asked: _Asked,
    may: Callable[[bytes], bool],
) -> Iterator[Event | UnreadableEvent]:
    if session_id is not None:
        moment_of(memory, session_id, None)
    for event in events_sieved(
        memory, session_id=session_id, types=types, wanted=asked.matches, may=may
    ):
        if isinstance(event, Fact):
            envelope = event.event
            if asked.matches(envelope) or envelope.type in (FORGOTTEN, LOST):
                yield UnreadableEvent(envelope.seq, envelope.type, event.state.value, event.problem)
        else:
            yield gap_of(event) or event


def _types(places: frozenset[TextPlace]) -> frozenset[str] | None:
    """Types of the events that hold such texts; None = any may."""
    if TextPlace.EVENT in places:
        return None
    return frozenset(type_ for type_, (of_type, _) in _TEXTS.items() if of_type & places)


class _Text(NamedTuple):
    """A text and what it is."""

    place: TextPlace
    name: str
    text: str


def _matches(
    event: Event, expression: re.Pattern[str], places: frozenset[TextPlace]
) -> Iterator[Match]:
    of_type, read = _TEXTS.get(event.type, (frozenset({TextPlace.EVENT}), _of_others))
    if not of_type & places:
        return
    for place, name, text in read(event):
        # An empty text has no line, and is most often one that nobody wrote.
        first = expression.search(text) if text and place in places else None
        if first is not None:
            excerpt, start, end = _excerpt(text, *first.span())
            yield Match(
                seq=event.seq,
                place=place,
                name=name,
                session_id=event.stream[1] if event.stream[0] == "session" else None,
                namespace=event.stream[1:] if event.stream[0] == "records" else (),
                time=event.occurred_at or event.recorded_at,
                actor=event.actor,
                run_id=event.run_id,
                type=event.type,
                line=text.count("\n", 0, first.start()) + 1,
                excerpt=excerpt,
                start=start,
                end=end,
                match_count=sum(1 for _ in expression.finditer(text)),
            )


def _excerpt(text: str, start: int, end: int) -> tuple[str, int, int]:
    """The line of a match, or what of it is near, and where the match is in that."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", max(start, end - 1))
    line_end = len(text) if line_end < 0 else line_end
    first = max(line_start, start - _BEFORE_CHARACTERS)
    if line_end - first < EXCERPT_CHARACTERS_MAX:
        first = max(line_start, line_end - EXCERPT_CHARACTERS_MAX)
    first = min(first, start)
    last = min(line_end, first + EXCERPT_CHARACTERS_MAX)
    return text[first:last], start - first, min(end, last) - first


def _of_messages(event: Event) -> Iterator[_Text]:
    for message in messages_in(event):
        parts = parts_of(message)
        yield _Text(TextPlace.MESSAGE, parts.role, parts.text)
        yield _Text(TextPlace.MESSAGE, "thinking", parts.thinking)
        for call in parts.calls:
            yield _Text(TextPlace.MESSAGE, "call", call.name)
            for path, text in _leaves(call.arguments):
                yield _Text(TextPlace.MESSAGE, f"call {call.name} {path}".rstrip(), text)
        for answer in parts.answers:
            yield _Text(TextPlace.MESSAGE, "result", answer.text)


def _of_records(event: Event) -> Iterator[_Text]:
    for record in event.records:
        if isinstance(record, MemoryRecord):
            yield _Text(TextPlace.NOTE, record.id, record.note.text)
            for path, text in _leaves(record.note.metadata):
                yield _Text(TextPlace.NOTE, f"{record.id} {path}", text)


def _of_progress(event: Event) -> Iterator[_Text]:
    data = _object(event.data)
    yield _Text(TextPlace.PROGRESS, str(data.get("run_id")), str(data.get("summary")))


def _of_checkpoint(event: Event) -> Iterator[_Text]:
    data = _object(event.data)
    if data.get("note"):
        yield _Text(TextPlace.CHECKPOINT, str(data.get("run_id")), str(data.get("note")))


def _of_manifest(event: Event) -> Iterator[_Text]:
    for path, text in _leaves(_object(event.data)):
        yield _Text(TextPlace.MANIFEST, path, text)


def _of_features(event: Event) -> Iterator[_Text]:
    for feature in _objects(_object(event.data), "features"):
        yield _Text(TextPlace.FEATURE, str(feature.get("id")), str(feature.get("id")))
        for field in ("category", "description", "steps"):
            for _, text in _leaves(feature.get(field)):
                yield _Text(TextPlace.FEATURE, str(feature.get("id")), text)


def _of_flip(event: Event) -> Iterator[_Text]:
    name = str(_object(event.data).get("feature_id"))
    yield _Text(TextPlace.FEATURE, name, name)


def _of_session(event: Event) -> Iterator[_Text]:
    """What a session begins with, fresh or as a copy."""
    data = _object(event.data)
    for path, text in _leaves(data.get("manifest")):
        yield _Text(TextPlace.MANIFEST, path, text)
    yield from _of_features(event)
    for entry in _objects(data, "progress"):
        yield _Text(TextPlace.PROGRESS, str(entry.get("run_id")), str(entry.get("summary")))
    for checkpoint in _objects(data, "checkpoints"):
        note = str(checkpoint.get("note") or "")
        yield _Text(TextPlace.CHECKPOINT, str(checkpoint.get("run_id")), note)


def _of_others(event: Event) -> Iterator[_Text]:
    if isinstance(event.data, bytes):
        yield _Text(TextPlace.EVENT, "", event.data.decode("utf-8", "replace"))
        return
    for path, text in _leaves(event.data):
        yield _Text(TextPlace.EVENT, path, text)


_ONE = {place: frozenset({place}) for place in TextPlace}
_SESSION = frozenset(
    {TextPlace.MANIFEST, TextPlace.FEATURE, TextPlace.PROGRESS, TextPlace.CHECKPOINT}
)
_TEXTS: dict[str, tuple[frozenset[TextPlace], Callable[[Event], Iterator[_Text]]]] = {
    "transcript_appended": (_ONE[TextPlace.MESSAGE], _of_messages),
    "records_put": (_ONE[TextPlace.NOTE], _of_records),
    "progress_appended": (_ONE[TextPlace.PROGRESS], _of_progress),
    "checkpoint_recorded": (_ONE[TextPlace.CHECKPOINT], _of_checkpoint),
    "manifest_saved": (_ONE[TextPlace.MANIFEST], _of_manifest),
    "features_replaced": (_ONE[TextPlace.FEATURE], _of_features),
    "feature_pass_updated": (_ONE[TextPlace.FEATURE], _of_flip),
    "session_initialized": (_SESSION, _of_session),
    "session_forked": (_SESSION, _of_session),
}
"""Event type → the places its texts are of, and what gives them."""


def _leaves(value: JsonValue, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text and number in JSON data, with its path."""
    waiting = [(path, value)]
    while waiting:
        where, one = waiting.pop()
        if isinstance(one, dict):
            inner = [(f"{where}.{key}" if where else key, item) for key, item in one.items()]
            waiting += reversed(inner)
        elif isinstance(one, list):
            waiting += reversed([(f"{where}[{n}]", item) for n, item in enumerate(one)])
        elif one is not None:
            yield where, one if isinstance(one, str) else json.dumps(one)


def _object(value: JsonValue | bytes) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(data: JsonObject, key: str) -> list[JsonObject]:
    found = data.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
