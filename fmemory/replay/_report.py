"""A report: what a person wants to know first of a run that failed, in one value."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import structs

from fmemory._engine.stored import StoredManifest, StoredSession, from_ns
from fmemory._engine.types import SESSION, EventType
from fmemory._json_values import JsonValue
from fmemory._shell import shell_word
from fmemory.backend import LogBackend
from fmemory.errors import HistoryCompacted, LogCorrupt
from fmemory.log_models import Event
from fmemory.record_models import MemoryRecord
from fmemory.replay._errors import Calls
from fmemory.replay._facts import Fact, MessageFact, State, always, facts, facts_of, time_ns
from fmemory.replay._flips import Flips, regressions_of
from fmemory.replay._names import Subject, find_subject, runs_named
from fmemory.replay._runs import Sessions, unreadable_of
from fmemory.replay._words import short
from fmemory.replay.models import (
    ByteShare,
    NoteLine,
    RunReport,
    RunSummary,
    TimeGap,
    UnreadableEvent,
)

__all__ = ["report", "report_and_runs", "report_of"]

COMMANDS = 3
GAPS_MAX = 5
GAP_S_MIN = 1.0
NOTES_READ_MAX = 100
"""Of so many events that put records the first words are read."""
SUB_AGENTS = "sub_agent_session_ids"
"""Where the manifest of an imported session names those of its sub-agents."""
_TOLD = frozenset(
    {
        EventType.SESSION_INITIALIZED,
        EventType.SESSION_FORKED,
        EventType.MANIFEST_SAVED,
        EventType.FEATURES_REPLACED,
        EventType.FEATURE_PASS_UPDATED,
        EventType.EVENT_LOST,
    }
)
"""Events of a session that a report of one run tells of, whoever wrote them."""


def report(
    memory: LogBackend, name: str | None = None, *, session_id: str | None = None
) -> RunReport:
    """What a run did, or what happened in a session: where it broke, what it changed, what it left.

    Args:
        name: A run or a session, by its whole id; None = the only session.
        session_id: The session of the run, where several have one of that name, empty for what it
            wrote to none; alone, all of it.

    Raises:
        NotFound: There is no such run or session.
        ContractError: The name could be several; the message names them.
        StorageError: The log cannot be read. Damaged events are part of the report.

    Cost: a pass over the envelopes of the log, about 6 µs each, and the payloads of the session;
        where some of them are erased, those up to two moments once more.
    """
    return report_of(memory, find_subject(memory, name, session_id))


def report_of(memory: LogBackend, subject: Subject) -> RunReport:
    """The report of a run or session that was found."""
    return report_and_runs(memory, subject, subject)[0]


def report_and_runs(
    memory: LogBackend, subject: Subject, whole: Subject
) -> tuple[RunReport, tuple[RunSummary, ...]]:
    """The report of a run or session, and the runs of more of the same session, from one pass.

    Args:
        whole: What the runs are of: the subject itself, or all of its session.
    """
    found = _Fold(subject)
    for fact in _facts_of_subject(memory, whole):
        found.add(fact)
    calls = [found.calls]
    for child in found.sub_sessions:
        calls.append(_calls_of(memory, child, subject.upto, found.unreadable))
    return _build(memory, subject, found, calls), _runs_of(whole, found.sessions)


@dataclass(slots=True)
class _Fold:
    """What a report needs, folded from the facts of a session and of what its runs put."""

    subject: Subject
    sessions: Sessions = field(default_factory=Sessions)
    calls: Calls = field(init=False)
    flips: Flips = field(default_factory=Flips)
    saved: str | None = None
    is_deleted: bool = False
    is_thinned: bool = False
    objective: str | None = None
    asked: str | None = None
    sub_sessions: tuple[str, ...] = ()
    event_count: int = 0
    first: Fact | None = None
    last: Fact | None = None
    gaps: list[TimeGap] = field(default_factory=list)
    notes: list[NoteLine] = field(default_factory=list)
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    unreadable: list[UnreadableEvent] = field(default_factory=list)
    missed: list[UnreadableEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        is_run = self.subject.run_id is not None
        self.calls = Calls(self.subject.session_id or "", of_run=is_run)

    def add(self, fact: Fact) -> None:
        """Fold one event, whether of the run or only of its session."""
        in_scope = self._is_in_scope(fact)
        self.sessions.add(fact)
        if fact.event.stream[0] == SESSION:
            self.is_thinned |= fact.state in (State.ERASED, State.FORGOTTEN)
            self.calls.add(fact, in_scope=in_scope)
            self.flips.add(fact, in_scope=in_scope)
            if self.is_deleted and in_scope:
                # What follows a deletion begins anew; else what was there before is told.
                self.is_deleted, self.asked, self.sub_sessions = False, None, ()
            self._see_manifest(fact)
        if not in_scope:
            if fact.event.type == EventType.SESSION_DELETED:
                self.missed.clear()
            elif fact.state is not State.KEPT and fact.event.type in _TOLD:
                self.missed.append(unreadable_of(fact))
            return
        # What stood before it in its session may be what a run was told.
        self.unreadable += self.missed
        self.missed.clear()
        self._see_time(fact)
        if not self.is_deleted:
            # A run is told what was to be done then, not what came later.
            self.objective = self.saved
        self.event_count += 1
        self.first = self.first or fact
        self.last = fact
        event = fact.event
        count, size = self.shares.get(event.type, (0, 0))
        self.shares[event.type] = (count + 1, size + fact.size)
        if fact.state is not State.KEPT:
            self.unreadable.append(unreadable_of(fact))
        if event.type == EventType.RECORDS_PUT:
            at = from_ns(time_ns(event))
            self.notes.append(NoteLine(event.seq, at, event.stream[1:], event.keys))
        if self.asked is None and isinstance(fact.detail, tuple):
            self.asked = _asked(fact.detail)

    def _is_in_scope(self, fact: Fact) -> bool:
        run = self.subject.run_id
        return run is None or fact.event.run_id == run or run in runs_named(fact)

    def _see_manifest(self, fact: Fact) -> None:
        match fact.detail:
            case StoredSession(manifest=StoredManifest() as manifest) | (
                StoredManifest() as manifest
            ):
                self.saved = manifest.current_objective
                if self.subject.run_id is None:
                    named = _names_in(manifest.metadata.get(SUB_AGENTS))
                    others = [one for one in named if one != self.subject.session_id]
                    self.sub_sessions = tuple(dict.fromkeys(others))
            case _:
                if fact.event.type == EventType.SESSION_DELETED:
                    self.saved = None
                    self.is_deleted = True

    def _see_time(self, fact: Fact) -> None:
        if self.last is None:
            return
        seconds = (time_ns(fact.event) - time_ns(self.last.event)) / 1e9
        if seconds >= GAP_S_MIN:
            self.gaps.append(TimeGap(self.last.event.seq, fact.event.seq, seconds))
            if len(self.gaps) > 64:
                self.gaps = _longest(self.gaps)


def _facts_of_subject(memory: LogBackend, subject: Subject) -> Iterator[Fact]:
    """Facts of the session, of what its runs wrote elsewhere, and of what cannot be read."""
    of_session: Iterator[Fact] = iter(())
    if subject.session_id is not None:
        of_session = _facts_of_session(memory, subject.session_id, subject.upto)
    elsewhere = facts_of(memory, subject.outside)
    yield from heapq.merge(of_session, elsewhere, key=lambda fact: fact.event.seq)


def _facts_of_session(memory: LogBackend, session_id: str, upto: int) -> Iterator[Fact]:
    """Without events of which nobody can tell whose they are: a subject names these."""
    of_session = facts(memory, session_id=session_id, upto=upto, wanted=always)
    return (one for one in of_session if one.event.type)


def _calls_of(
    memory: LogBackend, session_id: str, upto: int, unreadable: list[UnreadableEvent]
) -> Calls:
    """The calls of a sub-agent's session; what of it cannot be read is added to the list."""
    calls = Calls(session_id)
    for fact in _facts_of_session(memory, session_id, upto):
        calls.add(fact, in_scope=True)
        if fact.state is not State.KEPT:
            unreadable.append(unreadable_of(fact))
    return calls


def _build(memory: LogBackend, subject: Subject, found: _Fold, calls: list[Calls]) -> RunReport:
    firsts = [one.first for one in calls if one.first is not None]
    firsts.sort(key=lambda first: (time_ns(first[1].event), first[1].event.seq))
    error, around = (firsts[0][0], firsts[0][2]) if firsts else (None, ())
    errors = sorted(
        (one for some in calls for one in some.errors), key=lambda one: (one.time_ns, one.seq)
    )
    regressions = regressions_of(found.flips.found)
    # One of which nobody can tell whose it is, the session's own events may tell after all.
    unreadable = {one.seq: one for one in (*map(unreadable_of, subject.unknown), *found.unreadable)}
    shares = [ByteShare(type_, *counted) for type_, counted in found.shares.items()]
    found_report = RunReport(
        name=subject.name,
        session_id=subject.session_id,
        run_id=subject.run_id,
        sub_sessions=found.sub_sessions,
        objective=found.objective,
        asked=found.asked,
        runs=_runs_of(subject, found.sessions),
        event_count=found.event_count,
        first_seq=None if found.first is None else found.first.event.seq,
        last_seq=None if found.last is None else found.last.event.seq,
        first_error=error,
        around=around,
        tool_error_count=len(errors),
        errors=tuple(one.error for one in errors),
        unanswered=tuple(call for one in calls for call in one.unanswered()),
        flips=tuple(found.flips.found),
        regressions=tuple(regressions),
        gaps=tuple(_longest(found.gaps)),
        notes=tuple(_with_words(memory, found.notes)),
        bytes=tuple(sorted(shares, key=lambda one: (-one.payload_bytes, -one.event_count))),
        unreadable=tuple(unreadable[seq] for seq in sorted(unreadable)),
    )
    commands = tuple(_commands(subject, found_report, _span(memory, subject, found)))
    return structs.replace(found_report, commands=commands)


def _runs_of(subject: Subject, sessions: Sessions) -> tuple[RunSummary, ...]:
    """The runs that are meant, as `runs` tells them."""
    return tuple(
        one
        for one in sessions.summaries()
        if one.session_id == subject.session_id
        and (subject.run_id is None or one.run_id == subject.run_id)
    )


def _with_words(memory: LogBackend, notes: list[NoteLine]) -> Iterator[NoteLine]:
    for number, note in enumerate(notes):
        words = _first_note(memory, note.seq) if number < NOTES_READ_MAX else ""
        yield NoteLine(note.seq, note.at, note.namespace, note.ids, words) if words else note


def _first_note(memory: LogBackend, seq: int) -> str:
    """The first words of the first record of an event that is still there."""
    try:
        event: Event = memory.event(seq)
    except LogCorrupt:
        # What is damaged is named among the unreadable events.
        return ""
    texts = [one.note.text for one in event.records if isinstance(one, MemoryRecord)]
    return short(texts[0]) if texts else ""


def _commands(subject: Subject, report: RunReport, span: tuple[int, int] | None) -> list[str]:
    """What to type next: at the error, at what was lost, else through the run.

    Args:
        span: The moments of the session before and after it, where they can be shown.
    """
    error = report.first_error
    session = subject.session_id
    commands = []
    if error is not None:
        commands.append(f"fmemory show {error.seq}")
        if error.session_id:
            options = f"--at {error.seq} --last 6"
            commands.append(_transcript(error.session_id, options))
    commands += [f"fmemory show {one.lost_seq}" for one in report.regressions[:1]]
    commands += [f"fmemory show {one.seq}" for one in report.unanswered[:1]]
    commands += [f"fmemory show {one.seq}" for one in report.unreadable[:1]]
    if session is not None:
        of = f"--session {shell_word(session)}"
        if span is not None:
            commands.append(f"fmemory diff {span[0]} {span[1]} {of}")
        run = "" if subject.run_id is None else f"--run {shell_word(subject.run_id)} "
        commands.append(_transcript(session, f"{run}--last 10"))
        commands.append(f"fmemory history {of}")
    else:
        commands.append(f"fmemory log --all --run {shell_word(subject.name)}")
        commands.append(f"fmemory show {report.first_seq}")
        commands.append(f"fmemory show {report.last_seq}")
    return list(dict.fromkeys(commands))[:COMMANDS]


def _transcript(session_id: str, options: str) -> str:
    name = shell_word(session_id)
    # A name that looks like an option stands behind all of them.
    if session_id.startswith("-"):
        return f"fmemory transcript {options} -- {name}"
    return f"fmemory transcript {name} {options}"


def _span(memory: LogBackend, subject: Subject, found: _Fold) -> tuple[int, int] | None:
    """The moments before and after what is reported, or as much between them as is still kept."""
    session = subject.session_id
    if session is None or found.first is None or found.last is None:
        return None
    before, after = found.first.event.seq - 1, found.last.event.seq
    if found.is_thinned:
        before = max(before, _floor_at(memory, session, before))
        if before >= after or _floor_at(memory, session, after):
            return None
    return before, after


def _floor_at(memory: LogBackend, session_id: str, seq: int) -> int:
    """The oldest moment of a session that is kept, where this one is not; else 0."""
    view = memory.at(seq)
    try:
        view.load_bootstrap_state(session_id)
        view.load_transcript_messages(session_id)
    except HistoryCompacted as error:
        return error.floor
    except LogCorrupt:
        # `diff` shows what is before the damage.
        pass
    return 0


def _longest(gaps: list[TimeGap]) -> list[TimeGap]:
    return sorted(gaps, key=lambda one: (-one.seconds, one.after_seq))[:GAPS_MAX]


def _asked(messages: tuple[MessageFact, ...]) -> str | None:
    """What a user says first; answers of tools are no such thing."""
    for message in messages:
        if message.role == "user" and message.words and not message.answers:
            return short(message.words)
    return None


def _names_in(value: JsonValue) -> tuple[str, ...]:
    found = value if isinstance(value, list) else []
    return tuple(one for one in found if isinstance(one, str))
