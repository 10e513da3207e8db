"""What a page is about: which sessions, their runs, and their events, read from the log.

Two passes: one over the facts of the whole log, which gives the runs as `runs` tells them, and one
over the events of each session that is shown. Reads through public operations; never writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import fmemory
from fmemory._engine.types import SESSION, session_stream
from fmemory._json_values import JsonObject, JsonValue
from fmemory.backend import LogBackend
from fmemory.errors import ContractError, LogCorrupt, NotFound, Reason
from fmemory.journal import Envelope
from fmemory.log_models import Event
from fmemory.replay._facts import facts
from fmemory.replay._page_data import PageEvents, Words
from fmemory.replay._runs import Sessions
from fmemory.replay.models import RunSummary

__all__ = ["page_document"]


@dataclass(slots=True)
class _Part:
    """A session of the log, or None: what runs wrote that have no session.

    Attributes:
        last_seq: Its newest event.
        runs: Its runs, by their start.
        elsewhere: Events of its runs outside of its stream.
    """

    session_id: str | None
    last_seq: int = 0
    runs: list[RunSummary] = field(default_factory=list)
    elsewhere: list[Envelope] = field(default_factory=list)


def page_document(memory: LogBackend, name: str | None) -> JsonObject:
    """Everything that a page shows, as one JSON object.

    Args:
        name: A session, or a run, whose session is then shown; None = all sessions.

    Raises:
        NotFound: There is no session and no run of that name.
        ContractError: It names a session and a run of another one, or runs of several.
        StorageError: The log cannot be read. A damaged payload is told in its event.
    """
    head = memory.health().head_seq
    parts = _parts(memory, head)
    focus = None
    if name is not None:
        part, focus = _named(parts, name)
        parts = [part]
    words = Words()
    sessions = [_session(memory, part, words, head) for part in parts]
    return {
        "version": fmemory.__version__,
        "head": head,
        "focus": focus,
        "words": cast("JsonValue", words.words),
        "sessions": cast("JsonValue", sessions),
    }


def _parts(memory: LogBackend, head: int) -> list[_Part]:
    """The sessions of the log, deleted ones too, the most recently written first."""
    found = Sessions()
    parts: dict[str | None, _Part] = {}
    session_of_run: dict[str, str] = {}
    for fact in facts(memory):
        event = fact.event
        if event.seq > head:
            break
        found.add(fact)
        session_id = event.stream[1] if _is_of_session(event) else None
        if session_id is not None and event.run_id is not None:
            session_of_run[event.run_id] = session_id
        elif session_id is None and event.run_id is None:
            continue
        elif event.run_id is not None:
            session_id = session_of_run.get(event.run_id)
        part = parts.setdefault(session_id, _Part(session_id))
        part.last_seq = event.seq
        if not _is_of_session(event):
            part.elsewhere.append(event)
    for run in sorted(found.summaries(), key=lambda one: (one.started_at, one.first_seq)):
        parts[run.session_id].runs.append(run)
    return sorted(parts.values(), key=lambda one: -one.last_seq)


def _is_of_session(event: Envelope) -> bool:
    return event.stream[0] == SESSION and len(event.stream) == 2


def _named(parts: Sequence[_Part], name: str) -> tuple[_Part, str | None]:
    """The session of that name, or that of the run of that name, and then the run."""
    as_session = [part for part in parts if part.session_id == name]
    as_run = [part for part in parts if any(run.run_id == name for run in part.runs)]
    if as_session and all(part in as_session for part in as_run):
        return as_session[0], None
    if len(as_session) + len(as_run) > 1:
        kinds = [f"session {part.session_id}" for part in as_session]
        kinds += [f"a run of session {part.session_id}" for part in as_run]
        raise ContractError(
            f"name: expected one session or run, got {name!r}, which is {' and '.join(kinds)}",
            reason=Reason.BAD_VALUE,
            where="name",
        )
    if as_run:
        return as_run[0], name
    raise NotFound(
        f"page: expected a session or a run, got {name!r}, which is neither here;"
        " `fmemory sessions` and `fmemory runs` list what there is",
        reason=Reason.SESSION_NOT_FOUND,
        key=name,
    )


def _session(memory: LogBackend, part: _Part, words: Words, head: int) -> JsonObject:
    plain = PageEvents(words)
    events: list[JsonObject] = []
    if part.session_id is not None:
        for event in _readable(memory, part.session_id, head):
            if isinstance(event, Event):
                events.append(plain.of_session(event))
            else:
                events.append(plain.unreadable(*event))
    for envelope in part.elsewhere:
        try:
            events.append(plain.of_elsewhere(memory.event(envelope.seq)))
        except LogCorrupt as error:
            events.append(plain.unreadable(envelope, _sentence(error)))
    events.sort(key=lambda one: cast("int", one["seq"]))
    runs = [{**run.to_dict(), "duration_s": run.duration_s} for run in part.runs]
    return {
        "id": part.session_id,
        "runs": cast("JsonValue", runs),
        "events": cast("JsonValue", events),
    }


def _readable(
    memory: LogBackend, session_id: str, head: int
) -> Iterator[Event | tuple[Envelope, str]]:
    """The events of a session; in place of one that is damaged, its envelope and what is wrong."""
    after = 0
    try:
        for event in memory.events(stream=session_stream(session_id)):
            if event.seq > head:
                return
            after = event.seq
            yield event
        return
    except LogCorrupt:
        # Reading ahead meets damage early: from here on, one event at a time.
        pass
    for fact in facts(memory, session_id=session_id):
        envelope = fact.event
        if after < envelope.seq <= head:
            try:
                yield memory.event(envelope.seq)
            except LogCorrupt as error:
                yield envelope, _sentence(error)


def _sentence(error: LogCorrupt) -> str:
    """What is wrong, without the place in the file, which is for `verify` to tell."""
    return str(error).partition(" (")[0]
