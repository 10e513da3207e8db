"""Runs: what each did and how it ended, folded from the facts of the log.

A run is what carries its id, per session: events by their envelope, checkpoints and progress
entries by what they say. A run without an end is open; that it died is said only on evidence.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from fmemory._engine.stored import StoredCheckpoint, StoredProgress, StoredSession, from_ns, from_us
from fmemory._engine.types import RECORDS, SESSION, EventType
from fmemory.backend import LogBackend
from fmemory.replay._facts import Fact, Features, MessageFact, State, StepFact, facts, time_ns
from fmemory.replay.models import RunState, RunSummary

__all__ = ["Sessions", "runs"]

_PROCESS = re.compile(r".*@(?P<host>[^@:]+):(?P<pid>[0-9]{1,9})\Z")
_LIVE_NS = 60 * 1_000_000_000
"""A checkpoint recorded within so long of the start it states was written by the run itself."""

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
    sort: str = "started",
) -> tuple[RunSummary, ...]:
    """The runs of a store, in order of their start.

    Raises:
        ContractError: An argument breaks a rule.
        StorageError: The log cannot be read.

    Cost: O(events), one pass.
    """
    found = Sessions()
    for fact in facts(memory):
        found.add(fact)
    wanted = found.summaries()
    if session_id is not None:
        wanted = [one for one in wanted if one.session_id == session_id]
    if actor is not None:
        wanted = [one for one in wanted if one.actor == actor]
    if status is not None:
        wanted = [one for one in wanted if one.status == RunState(status)]
    if since is not None:
        wanted = [one for one in wanted if one.started_at >= since]
    if until is not None:
        wanted = [one for one in wanted if one.started_at < until]
    del sort
    return tuple(sorted(wanted, key=lambda one: (one.started_at, one.first_seq)))


@dataclass(slots=True)
class _Run:
    """A run while it is folded."""

    key: Key
    first: Fact
    last: Fact
    actor: str | None = None
    reason: str | None = None
    opened: tuple[StoredCheckpoint, Fact] | None = None
    closed: StoredCheckpoint | None = None
    event_count: int = 0
    message_count: int = 0
    call_count: int = 0
    error_count: int = 0
    step_count: int = 0
    step_error_count: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    before: dict[str, bool] = field(default_factory=dict)
    after: dict[str, bool] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    note_count: int = 0
    said: str = ""
    progress: str = ""
    unreadable_count: int = 0


@dataclass(slots=True)
class _Session:
    """What of a session outlives a run: the features, and how many events are copies of a fork."""

    passes: dict[str, bool] = field(default_factory=dict)
    copies: int = 0


class Sessions:
    """The fold: give it every fact in order, then ask."""

    def __init__(self) -> None:
        self._runs: dict[Key, _Run] = {}
        self._sessions: dict[str, _Session] = {}
        self._session_of_run: dict[str, str] = {}

    def add(self, fact: Fact) -> None:
        """Fold one event."""
        stream = fact.event.stream
        if stream[0] == SESSION and len(stream) > 1:
            self._add_to_session(stream[1], fact)
        elif fact.event.run_id is not None:
            run = self._run((self._session_of_run.get(fact.event.run_id), fact.event.run_id), fact)
            if stream[0] == RECORDS and fact.event.type == EventType.RECORDS_PUT:
                run.note_count += fact.event.count

    def summaries(self) -> list[RunSummary]:
        """All runs, in order of their first event."""
        return [_summary(run, self._later_start(run)) for run in self._runs.values()]

    def _run(self, key: Key, fact: Fact) -> _Run:
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _Run(key, fact, fact)
        event = fact.event
        run.last = fact
        run.event_count += 1
        if run.actor is None:
            run.actor = event.actor
        if run.reason is None:
            run.reason = event.reason
        if fact.state is not State.KEPT:
            run.unreadable_count += 1
        return run

    def _add_to_session(self, session_id: str, fact: Fact) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session()
        event = fact.event
        run: _Run | None = None
        if event.run_id is not None:
            self._session_of_run[event.run_id] = session_id
            run = self._run((session_id, event.run_id), fact)
        detail = fact.detail
        match detail:
            case tuple():
                if session.copies:
                    session.copies -= 1
                elif run is not None:
                    _add_messages(run, detail)
            case StoredCheckpoint():
                self._named(session_id, detail.run_id, run, fact, detail)
            case StoredProgress():
                named = self._named(session_id, detail.run_id, run, fact, None)
                named.progress = detail.summary
            case StepFact():
                if run is not None:
                    run.step_count += 1
                    run.step_error_count += detail.answer.failed
            case _:
                pass
        self._flip(session, run, fact)

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
            run = self._run((session_id, run_id), fact)
        if checkpoint is None:
            return run
        if checkpoint.status == "in_progress" and checkpoint.completed_at_us is None:
            if run.opened is None:
                run.opened = (checkpoint, fact)
        else:
            run.closed = checkpoint
        return run

    def _flip(self, session: _Session, run: _Run | None, fact: Fact) -> None:
        after = _features_after(session, fact)
        if after is None:
            return
        before, session.passes = session.passes, after
        if run is None:
            return
        for feature in before.keys() | after.keys():
            was, now = before.get(feature, False), after.get(feature, False)
            if was != now or feature in run.before:
                run.before.setdefault(feature, was)
                run.after[feature] = now
                if now or was:
                    run.passed.add(feature)

    def _later_start(self, run: _Run) -> _Run | None:
        """A run of the same session that began after this one's last event."""
        for other in self._runs.values():
            if other.key[0] == run.key[0] and other.first.event.seq > run.last.event.seq:
                return other
        return None


def _features_after(session: _Session, fact: Fact) -> dict[str, bool] | None:
    event = fact.event
    if event.type == EventType.FEATURE_PASS_UPDATED and fact.state is State.KEPT:
        return {**session.passes, event.keys[0]: bool(event.count)}
    if event.type == EventType.SESSION_DELETED:
        return {}
    match fact.detail:
        case Features(features=features):
            return {one.id: one.passes for one in features}
        case StoredSession(features=listed):
            if event.type == EventType.SESSION_FORKED:
                session.copies = event.count >> 1
            return {one.id: one.passes for one in listed}
        case _:
            return None


def _add_messages(run: _Run, messages: Iterable[MessageFact]) -> None:
    for message in messages:
        run.message_count += 1
        if message.words:
            run.said = message.words
        for answer in message.answers:
            run.waiting.pop(answer.call_id, None)
            run.error_count += answer.failed
        for call in message.calls:
            run.call_count += 1
            run.waiting[call.id] = run.last.event.seq


def _summary(run: _Run, later: _Run | None) -> RunSummary:
    first, last = time_ns(run.first.event), time_ns(run.last.event)
    closed, opened = run.closed, run.opened
    started_at = from_ns(first)
    if opened is not None:
        started_at = from_us(opened[0].started_at_us)
    elif closed is not None:
        started_at = from_us(closed.started_at_us)
    ended_us = None if closed is None else closed.completed_at_us
    status, evidence = _status(run, later)
    note = closed.note if closed is not None else None if opened is None else opened[0].note
    has_calls = run.call_count > 0
    return RunSummary(
        run_id=run.key[1],
        session_id=run.key[0],
        actor=run.actor,
        reason=run.reason,
        status=status,
        evidence=evidence,
        started_at=started_at,
        ended_at=None if ended_us is None else from_us(ended_us),
        last_at=from_ns(last),
        first_seq=run.first.event.seq,
        last_seq=run.last.event.seq,
        event_count=run.event_count,
        message_count=run.message_count,
        tool_call_count=run.call_count if has_calls else run.step_count,
        tool_error_count=run.error_count if has_calls else run.step_error_count,
        unanswered_count=len(run.waiting),
        features_gained=_changed(run, passes=True),
        features_lost=_changed(run, passes=False),
        note_count=run.note_count,
        last_words=note or run.said or run.progress,
        unreadable_count=run.unreadable_count,
    )


def _changed(run: _Run, *, passes: bool) -> tuple[str, ...]:
    if passes:
        return tuple(sorted(k for k, now in run.after.items() if now and not run.before[k]))
    return tuple(sorted(k for k, now in run.after.items() if not now and k in run.passed))


def _status(run: _Run, later: _Run | None) -> tuple[RunState, str | None]:
    if run.closed is not None:
        status = run.closed.status
        return (RunState.ENDED if status == "in_progress" else RunState(status)), None
    alive = _is_alive(run)
    if alive is False:
        return RunState.DIED, f"the process {run.actor} is gone"
    if later is not None and alive is None:
        return RunState.DIED, f"run {later.key[1]} began after its last event"
    return RunState.OPEN, None


def _is_alive(run: _Run) -> bool | None:
    """Whether the process that wrote the run's beginning lives; None where that cannot be told."""
    found = None if run.actor is None else _PROCESS.match(run.actor)
    if found is None or run.opened is None or found["host"] != socket.gethostname():
        return None
    checkpoint, fact = run.opened
    late = fact.event.recorded_at_ns - checkpoint.started_at_us * 1000
    if fact.event.occurred_at_ns is not None or abs(late) > _LIVE_NS:
        return None
    try:
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
