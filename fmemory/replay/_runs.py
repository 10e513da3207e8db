"""Runs: what each did and how it ended, folded from the facts of the log.

A run is what carries its id, per session: events by their envelope, checkpoints and progress
entries by what they say. A run without an end is open; that it died is said only on evidence.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar

from fmemory._engine.raw_events import UNKNOWN
from fmemory._engine.results import maker_of
from fmemory._engine.stored import StoredCheckpoint, StoredProgress, StoredSession, from_ns, from_us
from fmemory._engine.types import OWN_STREAMS, RECORDS, SESSION, EventType
from fmemory._model import check_time
from fmemory._process import ProcessName, is_alive, process_of
from fmemory.backend import LogBackend
from fmemory.errors import ContractError, Reason, brief
from fmemory.journal import Envelope
from fmemory.replay._facts import (
    WORDS_MAX,
    Detail,
    Fact,
    Features,
    MessageFact,
    State,
    StepFact,
    copied_upto,
    facts,
    time_ns,
)
from fmemory.replay.models import RunSort, RunState, RunSummary, UnreadableEvent
from fmemory_segments import Stream

__all__ = ["Sessions", "runs", "unreadable_of"]

_ACTOR = re.compile(r".*@(?P<host>[^@:]+):(?P<pid>[0-9]{1,9})\Z")
_EPOCH = from_ns(0)
_LIVE_NS = 60 * 1_000_000_000
"""A checkpoint recorded within so long of the start it states was written by the run itself."""

Choice = TypeVar("Choice", bound=StrEnum)
_KEPT = State.KEPT
_FLIP = frozenset(
    {
        EventType.FEATURE_PASS_UPDATED,
        EventType.FEATURES_REPLACED,
        EventType.SESSION_INITIALIZED,
        EventType.SESSION_FORKED,
        EventType.SESSION_DELETED,
    }
)
Key: TypeAlias = tuple[str | None, str]
"""Session and run id."""


def runs(
    memory: LogBackend,
    *,
    session_id: str | None = None,
    actor: str | None = None,
    status: str | RunState | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    sort: str | RunSort = RunSort.STARTED,
    on_unreadable: Callable[[UnreadableEvent], object] | None = None,
) -> tuple[RunSummary, ...]:
    """The runs of a store: how each ended, what it did, what it changed.

    Args:
        session_id: Only runs of this session.
        actor: Only runs whose first event this actor wrote.
        status: Only runs that ended so.
        since: Only runs that started then or later; an aware time.
        until: Only runs that started before; an aware time.
        sort: By start, the first first; or by what it names, the most first.
        on_unreadable: Told of each event of the session, or of any session or run, that is erased,
            forgotten, lost or damaged; of all whose session cannot be told.

    Raises:
        ContractError: An argument breaks a rule.
        StorageError: The log cannot be read. What is damaged is counted, not an error.

    Cost: O(events), one pass over all of them, about 10 µs each.
    """
    order = _one_of(RunSort, sort, "sort")
    wanted_status = None if status is None else _one_of(RunState, status, "status")
    span = [None if one is None else check_time(one) for one in (since, until)]
    found = Sessions()
    read = facts(memory)
    found.add_all(read if on_unreadable is None else _told(read, session_id, on_unreadable))
    wanted = [
        one
        for one in found.summaries()
        if (session_id is None or one.session_id == session_id)
        and (actor is None or one.actor == actor)
        and (wanted_status is None or one.status is wanted_status)
        and (span[0] is None or one.started_at >= span[0])
        and (span[1] is None or one.started_at < span[1])
    ]
    wanted.sort(key=lambda one: (one.started_at, one.first_seq))
    wanted.sort(key=_SORT[order])
    return tuple(wanted)


def _told(
    read: Iterable[Fact],
    session_id: str | None,
    on_unreadable: Callable[[UnreadableEvent], object],
) -> Iterator[Fact]:
    """The same facts, once it is told of those whose data is not there."""
    for fact in read:
        if fact.state is not _KEPT and _may_concern(fact.event, session_id):
            on_unreadable(unreadable_of(fact))
        yield fact


_SORT: dict[RunSort, Callable[[RunSummary], float]] = {
    RunSort.STARTED: lambda _: 0,
    RunSort.DURATION: lambda one: -one.duration_s,
    RunSort.EVENTS: lambda one: -one.event_count,
    RunSort.MESSAGES: lambda one: -one.message_count,
    RunSort.CALLS: lambda one: -one.tool_call_count,
    RunSort.ERRORS: lambda one: -one.tool_error_count,
}


def _may_concern(event: Envelope, session_id: str | None) -> bool:
    """Whether an event is of the session, or of any session or run; or nobody can tell."""
    label = event.stream[0]
    if label == UNKNOWN or (event.type == EventType.EVENT_LOST and label not in OWN_STREAMS):
        return True
    if session_id is not None:
        return event.stream == (SESSION, session_id)
    return label == SESSION or event.run_id is not None


def unreadable_of(fact: Fact) -> UnreadableEvent:
    """An event of which the data is not there, as it is told to people."""
    return UnreadableEvent(fact.event.seq, fact.event.type, fact.state.value, fact.problem)


def _one_of(kind: type[Choice], value: str, name: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise ContractError(
            f"expected one of {known}, got {brief(value)}",
            where=name,
            reason=Reason.OUT_OF_RANGE,
        ) from None


@dataclass(slots=True)
class _Run:
    """A run while it is folded."""

    key: Key
    came_seq: int
    """Its first event there, whatever it wrote elsewhere before."""
    first: Envelope
    last: Envelope
    actor: str | None = None
    reason: str | None = None
    opened: tuple[StoredCheckpoint, Fact] | None = None
    """The checkpoint that began it."""
    begun: tuple[StoredCheckpoint, Fact] | None = None
    """The one that began it last, where it was begun again."""
    again_seq: int | None = None
    """What began it again after it had ended."""
    left_note: str | None = None
    closed: StoredCheckpoint | None = None
    event_count: int = 0
    message_count: int = 0
    call_count: int = 0
    error_count: int = 0
    step_count: int = 0
    step_error_count: int = 0
    unanswered_count: int = 0
    before: dict[str, bool] = field(default_factory=dict)
    after: dict[str, bool] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    note_count: int = 0
    said: str = ""
    progress: str = ""
    unreadable_count: int = 0
    lacks: Envelope | None = None
    """Its newest checkpoint, where that cannot be read."""

    def count(self, fact: Fact) -> None:
        """Take an event of the run into account."""
        self.last = fact.event
        self.event_count += 1
        self.note(fact)

    def note(self, fact: Fact) -> None:
        """Note what an event of the run says that is not known yet, or cannot be known."""
        event = fact.event
        if self.actor is None:
            self.actor = event.actor
        if self.reason is None:
            self.reason = event.reason
        if fact.state is not _KEPT and event.type != EventType.RECORDS_PUT:
            # Of records a report reads the data, a list of runs does not.
            self.unreadable_count += 1
            if event.type == EventType.CHECKPOINT_RECORDED:
                self.lacks = event


@dataclass(slots=True)
class _Session:
    """What of a session outlives a run: the features, and up to which event a fork copied.

    `runs` are those that events of the session carry, to be found faster; `flips` is when a feature
    began to pass or stopped, whoever made it so.
    """

    runs: dict[str, _Run] = field(default_factory=dict)
    passes: dict[str, bool] = field(default_factory=dict)
    flips: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    copied_upto: int = 0
    newest: _Run | None = None
    callers: dict[str, list[_Run | None]] = field(default_factory=dict)

    def note_flip(self, seq: int, feature: str, *, was: bool, now: bool) -> None:
        """Note that a feature began to pass, or stopped."""
        if was != now:
            self.flips.setdefault(feature, []).append((seq, now))

    def passes_after(self, seq: int, feature: str) -> bool:
        """Whether a feature passed after an event."""
        flips = self.flips.get(feature, [])
        number = bisect_right(flips, (seq, True))
        return number > 0 and flips[number - 1][1]


@dataclass(frozen=True, slots=True)
class _Place:
    """What an event of a session belongs to, which is mostly what the one before belonged to."""

    stream: Stream
    run_id: str | None
    session: _Session
    run: _Run | None


_NOWHERE = _Place((), None, _Session(), None)


class Sessions:
    """The fold: give it every fact in order, then ask."""

    def __init__(self) -> None:
        self._runs: dict[Key, _Run] = {}
        self._sessions: dict[str, _Session] = {}
        self._session_of_run: dict[str, str] = {}
        self._place = _NOWHERE

    def add(self, fact: Fact) -> None:
        """Fold one event."""
        self.add_all((fact,))

    def add_all(self, facts: Iterable[Fact]) -> None:
        """Fold events by seq. Cost: about 3 µs each."""
        place = self._place
        stream, run_id, session, run = place.stream, place.run_id, place.session, place.run
        for fact in facts:
            event, detail = fact.event, fact.detail
            if event.stream != stream or event.run_id != run_id or place is not self._place:
                if event.stream[0] != SESSION or len(event.stream) < 2:
                    self._add_other(fact)
                    continue
                place = self._place = self._place_of(event)
                stream, run_id, session, run = place.stream, place.run_id, place.session, place.run
            if run is not None:
                run.last = event
                run.event_count += 1
                if run.actor is None or run.reason is None or fact.state is not _KEPT:
                    run.note(fact)
            if type(detail) is tuple:
                if event.seq > session.copied_upto:
                    _add_messages(session.callers, run, detail)
            elif detail is not None or event.type in _FLIP:
                self._add_to_session(stream[1], run, fact)

    def summaries(self) -> list[RunSummary]:
        """All runs, in order of their first event."""
        self._join()
        return [self._summary(run) for run in self._runs.values()]

    def _join(self) -> None:
        """Give what a run wrote before it came to its session to it, if it came to only one."""
        sessions: dict[str, list[Key]] = {}
        for key in self._runs:
            sessions.setdefault(key[1], []).append(key)
        for key in [one for one in self._runs if one[0] is None and len(sessions[one[1]]) == 2]:
            (other,) = [one for one in sessions[key[1]] if one != key]
            early, run = self._runs.pop(key), self._runs[other]
            run.first = early.first if early.first.seq < run.first.seq else run.first
            run.last = early.last if early.last.seq > run.last.seq else run.last
            run.actor, run.reason = early.actor or run.actor, early.reason or run.reason
            run.event_count += early.event_count
            run.note_count += early.note_count
            run.unreadable_count += early.unreadable_count
            run.lacks = run.lacks or early.lacks

    def passes(self, session_id: str) -> Mapping[str, bool]:
        """Which features of a session pass, by their id, as of the newest fact."""
        session = self._sessions.get(session_id)
        return {} if session is None else session.passes

    def _summary(self, run: _Run) -> RunSummary:
        session = self._sessions.get(run.key[0] or "")
        newest = None if session is None else session.newest
        is_later = newest is not None and newest.came_seq > run.last.seq
        if session is not None:
            for feature in run.after:
                # Another run may have flipped it since this one did.
                run.after[feature] = session.passes_after(run.last.seq, feature)
        return _summary(run, newest if is_later else None)

    def _place_of(self, event: Envelope) -> _Place:
        session_id, run_id = event.stream[1], event.run_id
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session()
        if run_id is None:
            return _Place(event.stream, None, session, None)
        self._session_of_run[run_id] = session_id
        run = session.runs.get(run_id)
        if run is None:
            run = session.runs[run_id] = self._run((session_id, run_id), event)
        return _Place(event.stream, run_id, session, run)

    def _run(self, key: Key, event: Envelope) -> _Run:
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _Run(key, event.seq, event, event)
            session = self._sessions.get(key[0] or "")
            if session is not None:
                session.newest = run
        return run

    def _add_other(self, fact: Fact) -> None:
        event = fact.event
        if event.run_id is not None:
            run = self._run((self._session_of_run.get(event.run_id), event.run_id), event)
            run.count(fact)
            if event.stream[0] == RECORDS and event.type == EventType.RECORDS_PUT:
                run.note_count += event.count

    def _add_to_session(self, session_id: str, run: _Run | None, fact: Fact) -> None:
        """Anything but messages."""
        if fact.detail is not None:
            self._add_detail(session_id, run, fact, fact.detail)
        if fact.event.type in _FLIP:
            self._flip(self._sessions[session_id], run, fact)

    def _add_detail(self, session_id: str, run: _Run | None, fact: Fact, detail: Detail) -> None:
        match detail:
            case StoredCheckpoint():
                self._named(session_id, detail.run_id, run, fact, detail)
            case StoredProgress():
                named = self._named(session_id, detail.run_id, run, fact, None)
                named.progress = detail.summary
            case StoredSession() if fact.event.type == EventType.SESSION_INITIALIZED:
                for checkpoint in detail.checkpoints:
                    self._named(session_id, checkpoint.run_id, run, fact, checkpoint)
                for entry in detail.progress:
                    self._named(session_id, entry.run_id, run, fact, None).progress = entry.summary
            case StepFact():
                if run is not None:
                    run.step_count += 1
                    run.step_error_count += detail.answer.failed
            case _:
                pass

    def _named(
        self,
        session_id: str,
        run_id: str,
        run: _Run | None,
        fact: Fact,
        checkpoint: StoredCheckpoint | None,
    ) -> _Run:
        """The run that a checkpoint or progress entry names, which need not be its event's."""
        if run is None or run.key[1] != run_id:
            run = self._run((session_id, run_id), fact.event)
            if run.last is not fact.event or not run.event_count:
                run.count(fact)  # once, however often an event names it
            # What the run writes outside of sessions belongs here from now on.
            self._session_of_run[run_id] = session_id
            self._place = _NOWHERE
        if checkpoint is None:
            return run
        run.lacks = None
        if checkpoint.status == "in_progress" and checkpoint.completed_at_us is None:
            if run.closed is not None:
                run.again_seq = fact.event.seq
            run.closed, run.left_note, run.begun = None, checkpoint.note, (checkpoint, fact)
            if run.opened is None:
                run.opened = run.begun
        else:
            run.closed, run.left_note = checkpoint, checkpoint.note
        return run

    def _flip(self, session: _Session, run: _Run | None, fact: Fact) -> None:
        event = fact.event
        if event.type == EventType.FEATURE_PASS_UPDATED and fact.state is State.KEPT:
            feature, now = event.keys[0], bool(event.count)
            was = session.passes.get(feature, False)
            session.passes[feature] = now
            session.note_flip(event.seq, feature, was=was, now=now)
            if run is not None:
                _note_flip(run, feature, was=was, now=now)
            return
        if event.type == EventType.SESSION_FORKED:
            session.copied_upto = copied_upto(event)
        after = _features_after(session, fact)
        if after is None:
            return
        before, session.passes = session.passes, after
        for feature in before.keys() | after.keys():
            was, now = before.get(feature, False), after.get(feature, False)
            session.note_flip(event.seq, feature, was=was, now=now)
            if run is not None:
                _note_flip(run, feature, was=was, now=now)


def _note_flip(run: _Run, feature: str, *, was: bool, now: bool) -> None:
    if was == now and feature not in run.before:
        return
    run.before.setdefault(feature, was)
    run.after[feature] = now
    if now or was:
        run.passed.add(feature)


def _features_after(session: _Session, fact: Fact) -> dict[str, bool] | None:
    event = fact.event
    if event.type == EventType.SESSION_DELETED:
        session.callers.clear()
        return {}
    match fact.detail:
        case Features(features=features) | StoredSession(features=features):
            return {one.id: one.passes for one in features}
        case _:
            return None


def _add_messages(
    callers: dict[str, list[_Run | None]], run: _Run | None, messages: Iterable[MessageFact]
) -> None:
    """Fold the messages of one event; `callers` are the runs whose calls wait for an answer."""
    for message in messages:
        calls, answers = message.told()
        for answer in answers:
            # A run may answer what one before it left open, and ids come again: an answer is that
            # of the nearest open call before it.
            waiting = callers.get(answer.call_id)
            if waiting is not None:
                caller = waiting.pop()
                if caller is not None:
                    caller.unanswered_count -= 1
                if not waiting:
                    del callers[answer.call_id]
            if run is not None and (answer.is_error or answer.failure is not None):
                run.error_count += 1
        for call in calls:
            waiting = callers.get(call.id)
            if waiting is None:
                callers[call.id] = [run]
            else:
                waiting.append(run)
        if run is None:
            continue
        run.message_count += 1
        if text := message.content or (message.blocks and message.text):
            run.said = text[:WORDS_MAX]
        if calls:
            run.call_count += len(calls)
            run.unanswered_count += len(calls)


_summary_of = maker_of(
    RunSummary("", None, None, None, RunState.OPEN, None, _EPOCH, None, _EPOCH, 0, 0, 0)
)


def _summary(run: _Run, later: _Run | None) -> RunSummary:
    first, last = time_ns(run.first), time_ns(run.last)
    closed, opened = run.closed, run.opened
    started_at = from_ns(first)
    if opened is not None:
        started_at = from_us(opened[0].started_at_us)
    elif closed is not None:
        started_at = from_us(closed.started_at_us)
    ended_us = None if closed is None else closed.completed_at_us
    status, evidence = _status(run, later)
    has_steps = run.step_count > 0
    return _summary_of(
        run_id=run.key[1],
        session_id=run.key[0],
        actor=run.actor,
        reason=run.reason,
        status=status,
        evidence=evidence,
        started_at=started_at,
        ended_at=None if ended_us is None else from_us(ended_us),
        last_at=from_ns(last),
        first_seq=run.first.seq,
        last_seq=run.last.seq,
        event_count=run.event_count,
        message_count=run.message_count,
        tool_call_count=run.call_count or run.step_count,
        tool_error_count=run.step_error_count if has_steps else run.error_count,
        unanswered_count=run.unanswered_count,
        features_gained=_changed(run, passes=True),
        features_lost=_changed(run, passes=False),
        note_count=run.note_count,
        last_words=run.left_note or run.said or run.progress,
        unreadable_count=run.unreadable_count,
    )


def _changed(run: _Run, *, passes: bool) -> tuple[str, ...]:
    if passes:
        return tuple(sorted(k for k, now in run.after.items() if now and not run.before[k]))
    return tuple(sorted(k for k, now in run.after.items() if not now and k in run.passed))


def _status(run: _Run, later: _Run | None) -> tuple[RunState, str | None]:
    state, evidence = _state(run, later)
    if run.again_seq is None:
        return state, evidence
    again = f"begun again by event {run.again_seq}, after it had ended"
    return state, again if evidence is None else f"{evidence}; {again}"


def _state(run: _Run, later: _Run | None) -> tuple[RunState, str | None]:
    if run.closed is not None:
        status = run.closed.status
        return (RunState.ENDED if status == "in_progress" else RunState(status)), None
    if run.lacks is not None:
        return RunState.OPEN, f"event {run.lacks.seq} may have closed it, and cannot be read"
    process = _process(run)
    alive = None if process is None else is_alive(process)
    if alive is False:
        assert process is not None
        return RunState.DIED, f"its process {process.pid} on {process.host} is gone"
    if later is not None and alive is None:
        return RunState.DIED, f"run {later.key[1]} began after its last event"
    return RunState.OPEN, None


def _process(run: _Run) -> ProcessName | None:
    """The process that began the run; None where nobody said, or it wrote of another time."""
    if run.begun is None:
        return None
    checkpoint, fact = run.begun
    late = fact.event.recorded_at_ns - checkpoint.started_at_us * 1000
    if fact.event.occurred_at_ns is not None or abs(late) > _LIVE_NS:
        return None
    named = process_of(fact.event.event_id)
    if named is not None or run.actor is None:
        return named
    actor = _ACTOR.match(run.actor)
    return None if actor is None else ProcessName(actor["host"], int(actor["pid"]))
