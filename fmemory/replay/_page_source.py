"""What a page is about: which sessions, what `report` says of each, and their events.

Runs and reports come from the folds that the functions `runs` and `report` give, so a page shows
the same numbers. Events are read through public operations; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import fmemory
from fmemory._damage import problem_of, readable
from fmemory._engine.types import SESSION, session_stream
from fmemory._json_values import JsonObject, JsonValue
from fmemory.backend import LogBackend
from fmemory.errors import LogCorrupt
from fmemory.journal import Envelope
from fmemory.log_models import Event
from fmemory.replay._facts import copied_seqs, facts, never
from fmemory.replay._names import Subject, Subjects
from fmemory.replay._page_data import PageEvents, Words
from fmemory.replay._report import report_and_runs
from fmemory.replay._runs import runs
from fmemory.replay.models import RunReport, RunSummary

__all__ = ["page_document"]

_PAGE = 200


@dataclass(slots=True)
class _Part:
    """What of a log is shown together: a session, or what runs of no session wrote.

    Attributes:
        whole: All of it.
        runs: Its runs.
        report: Of what was asked for: all of it, or one run; None where there is none to give.
    """

    whole: Subject
    runs: tuple[RunSummary, ...]
    report: RunReport | None


def page_document(memory: LogBackend, name: str | None, session_id: str | None) -> JsonObject:
    """Everything that a page shows, as one JSON object.

    Args:
        name: A session, or a run, whose session is then shown; None = all of the session.
        session_id: The session; None as well = all sessions.

    Raises:
        NotFound: There is no such session or run.
        ContractError: The name could be several.
        StorageError: The log cannot be read. What is damaged is told in its place.
    """
    focus: str | None = None
    words = Words()
    told: dict[str, list[JsonObject]] = {}
    subjects = Subjects(memory)
    if name is None and session_id is None:
        parts = list(_all_parts(memory, subjects))
        told = _all_told(memory, parts, words)
    else:
        subject = subjects.find(name, session_id)
        focus = subject.run_id
        parts = list(_with_sub_sessions(memory, subjects, _part(memory, subjects, subject)))
    sessions = [_session(memory, part, words, told) for part in parts]
    return {
        "version": fmemory.__version__,
        "focus": focus,
        "words": cast("JsonValue", words.words),
        "sessions": cast("JsonValue", sessions),
    }


def _part(memory: LogBackend, subjects: Subjects, subject: Subject) -> _Part:
    """The session of what was asked for."""
    whole = subject if subject.session_id is None else subjects.of(subject.session_id)
    report, runs_of_all = report_and_runs(memory, subject, whole)
    return _Part(whole, runs_of_all, report)


def _with_sub_sessions(memory: LogBackend, subjects: Subjects, part: _Part) -> Iterator[_Part]:
    """A session and those of its sub-agents, whose errors count as its own; each once."""
    yield part
    named = dict.fromkeys(part.report.sub_sessions if part.report is not None else ())
    named.pop(part.whole.session_id or "", None)
    # A sub-agent that the import did not find wrote nothing that could be shown.
    for session_id in named:
        if session_id in subjects:
            yield _part(memory, subjects, subjects.of(session_id))


def _all_parts(memory: LogBackend, subjects: Subjects) -> Iterator[_Part]:
    """Every session, deleted ones too, the newest first; behind them those of sub-agents."""
    cursor = None
    parts: list[_Part] = []
    while True:
        found = memory.list_streams((SESSION,), _PAGE, cursor)
        for one in found.streams:
            if len(one.stream) > 1:
                parts.append(_part(memory, subjects, subjects.of(one.stream[1])))
        cursor = found.next_cursor
        if cursor is None:
            break
    reports = [part.report for part in parts if part.report is not None]
    called = {one for report in reports for one in report.sub_sessions if one != report.session_id}
    yield from sorted(parts, key=lambda part: part.whole.session_id in called)
    lone = _without_session(memory)
    if lone is not None:
        yield lone


def _without_session(memory: LogBackend) -> _Part | None:
    """What runs wrote that never came to a session."""
    found = runs(memory)
    at_home = {one.run_id for one in found if one.session_id is not None}
    lone = tuple(one for one in found if one.run_id not in at_home)
    if not lone:
        return None
    names = frozenset(one.run_id for one in lone)
    upto = memory.health().head_seq
    outside = [
        fact.event for fact in facts(memory, upto=upto, wanted=never) if fact.event.run_id in names
    ]
    return _Part(Subject("", None, None, names, outside, [], upto), lone, None)


def _all_told(memory: LogBackend, parts: list[_Part], words: Words) -> dict[str, list[JsonObject]]:
    """The events of all sessions, from one pass; none where some are damaged."""
    upto = {part.whole.session_id: part.whole.upto for part in parts}
    folds: dict[str, PageEvents] = {}
    told: dict[str, list[JsonObject]] = {}
    try:
        for event in memory.events(stream_prefix=(SESSION,)):
            session_id = event.stream[1] if len(event.stream) > 1 else None
            if session_id is None or event.seq > upto.get(session_id, 0):
                continue
            if session_id not in folds:
                folds[session_id] = PageEvents(words)
            told.setdefault(session_id, []).append(folds[session_id].of_session(event))
    except LogCorrupt:
        # Each session is then read on its own, and tells what is damaged in it.
        return {}
    return told


def _session(
    memory: LogBackend, part: _Part, words: Words, told: dict[str, list[JsonObject]]
) -> JsonObject:
    plain = PageEvents(words)
    subject = part.whole
    events: list[JsonObject] = []
    if subject.session_id is not None:
        events = told.get(subject.session_id) or list(_told(memory, subject, plain))
        copied = copied_seqs(memory, subject.session_id, subject.upto)
        for one in events:
            if one["seq"] in copied:
                one["copied"] = True
    for envelope in subject.outside:
        try:
            events.append(plain.of_elsewhere(memory.event(envelope.seq)))
        except LogCorrupt as error:
            events.append(plain.unreadable(envelope, problem_of(error)))
    told_of = {one["seq"] for one in events}
    for fact in subject.unknown:
        if fact.event.seq not in told_of:
            events.append(plain.unreadable(fact.event, fact.problem or ""))
    events.sort(key=lambda one: cast("int", one["seq"]))
    return {
        "id": subject.session_id,
        "runs": [{**run.to_dict(), "duration_s": run.duration_s} for run in part.runs],
        "report": None if part.report is None else part.report.to_dict(),
        "events": cast("JsonValue", events),
    }


def _told(memory: LogBackend, subject: Subject, plain: PageEvents) -> Iterator[JsonObject]:
    """The events of one session, read on its own."""
    for event in _readable(memory, subject.session_id or "", subject.upto):
        yield plain.of_session(event) if isinstance(event, Event) else plain.unreadable(*event)


def _readable(
    memory: LogBackend, session_id: str, upto: int
) -> Iterator[Event | tuple[Envelope, str]]:
    """The events of a session; in place of one that is damaged, its envelope and what is wrong.

    Those of which nobody can tell whose they are, a subject names.
    """
    stream = session_stream(session_id)
    known: dict[int, Envelope] = {}

    def damaged(seq: int, problem: str) -> tuple[Envelope | None, str]:
        if not known:
            found = facts(memory, session_id=session_id, upto=upto, wanted=never)
            known.update((one.event.seq, one.event) for one in found if one.event.type)
        return known.get(seq), problem

    for one in readable(
        lambda after, limit: memory.events(after, stream=stream, limit=limit), 0, damaged
    ):
        if isinstance(one, Event):
            if one.seq > upto:
                return
            yield one
        elif one[0] is not None:
            yield one[0], one[1]
