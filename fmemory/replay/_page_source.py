"""What a page is about: which sessions, what `report` says of each, and their events.

Runs and reports come from the folds that the functions `runs` and `report` give, so a page shows
the same numbers. Events are read through public operations; nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from fmemory.replay._facts import State, copied_seqs, facts, never
from fmemory.replay._names import Subject, Subjects
from fmemory.replay._page_data import PageEvents, Words
from fmemory.replay._page_spool import Spool, Told, json_text
from fmemory.replay._report import report_and_runs
from fmemory.replay._runs import runs
from fmemory.replay.models import RunReport, RunSummary, UnreadableEvent

__all__ = ["page_data"]

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


def page_data(
    memory: LogBackend,
    name: str | None,
    session_id: str | None,
    on_damaged: Callable[[UnreadableEvent], object] | None = None,
) -> Iterator[bytes]:
    """Everything that a page shows, as one JSON object in pieces; all is read before the first.

    Args:
        name: A session, or a run, whose session is then shown; None = all of the session.
        session_id: The session; None as well = all sessions.
        on_damaged: Told of each damaged event before the first piece comes.

    Raises:
        NotFound: There is no such session or run.
        ContractError: The name could be several.
        StorageError: The log cannot be read. What is damaged is told in its place.
    """
    focus: str | None = None
    words = Words()
    told: dict[str, list[Told]] = {}
    subjects = Subjects(memory)
    with Spool() as spool:
        if name is None and session_id is None:
            parts = list(_all_parts(memory, subjects))
            told = _all_told(memory, parts, words, spool)
        else:
            subject = subjects.find(name, session_id)
            focus = subject.run_id
            parts = list(_with_sub_sessions(memory, subjects, _part(memory, subjects, subject)))
        events = [_events(memory, part.whole, words, spool, told) for part in parts]
        if on_damaged is not None:
            for seq, (type_, problem) in sorted(spool.problems.items()):
                state = State.DAMAGED.value
                on_damaged(UnreadableEvent(seq, words.words[type_], state, problem))
        head = {"version": fmemory.__version__, "focus": focus}
        yield json_text(cast("JsonValue", {**head, "words": words.words}))[:-1] + b',"sessions":['
        for number, (part, of_part) in enumerate(zip(parts, events, strict=True)):
            if number:
                yield b","
            yield from _session(part, of_part, spool)
        yield b"]}"


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


def _all_told(
    memory: LogBackend, parts: list[_Part], words: Words, spool: Spool
) -> dict[str, list[Told]]:
    """The events of all sessions, from one pass; none where some are damaged."""
    upto = {part.whole.session_id: part.whole.upto for part in parts}
    folds: dict[str, PageEvents] = {}
    told: dict[str, list[Told]] = {}
    try:
        for event in memory.events(stream_prefix=(SESSION,)):
            session_id = event.stream[1] if len(event.stream) > 1 else None
            if session_id is None or event.seq > upto.get(session_id, 0):
                continue
            if session_id not in folds:
                folds[session_id] = PageEvents(words)
            one = spool.add(folds[session_id].of_session(event))
            told.setdefault(session_id, []).append(one)
    except LogCorrupt:
        # Each session is then read on its own, and tells what is damaged in it.
        return {}
    return told


def _session(part: _Part, events: list[Told], spool: Spool) -> Iterator[bytes]:
    head = {
        "id": part.whole.session_id,
        "runs": [{**run.to_dict(), "duration_s": run.duration_s} for run in part.runs],
        "report": None if part.report is None else _plain_report(part.report),
    }
    yield json_text(cast("JsonValue", head))[:-1] + b',"events":['
    for number, one in enumerate(events):
        yield b"," + spool.text(one) if number else spool.text(one)
    yield b"]}"


def _plain_report(report: RunReport) -> JsonObject:
    """A report for a page: of its errors the events, which tell what failed."""
    return {**report.to_dict(), "errors": [one.seq for one in report.errors]}


def _events(
    memory: LogBackend, subject: Subject, words: Words, spool: Spool, told: dict[str, list[Told]]
) -> list[Told]:
    """The events of a part, by seq."""
    plain = PageEvents(words)
    events: list[Told] = []
    if subject.session_id is not None:
        events = told.get(subject.session_id) or [
            spool.add(one) for one in _told(memory, subject, plain)
        ]
        copied = copied_seqs(memory, subject.session_id, subject.upto)
        for one in events:
            one.is_copied = one.seq in copied
    for envelope in subject.outside:
        try:
            outside = plain.of_elsewhere(memory.event(envelope.seq))
        except LogCorrupt as error:
            outside = plain.unreadable(envelope, problem_of(error))
        events.append(spool.add(outside))
    told_of = {one.seq for one in events}
    for fact in subject.unknown:
        if fact.event.seq not in told_of:
            events.append(spool.add(plain.unreadable(fact.event, fact.problem or "")))
    return sorted(events, key=lambda one: one.seq)


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
