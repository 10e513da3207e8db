"""Tool calls of a session: the first that failed with what stands around it, and the unanswered.

A harness that keeps its actions beside the messages says in them what happened: in a run of which
there are such steps they count, and the messages that repeat them do not. What a fork copied was
said in another session and counts there, as for runs: here answers may belong to its calls.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fmemory._engine.types import EventType
from fmemory.replay._facts import Fact, MessageFact, StepFact, copied_upto, time_ns
from fmemory.replay._failures import Answer
from fmemory.replay._words import arguments_of, line_of, short
from fmemory.replay.models import EventLine, ToolError, UnansweredCall

__all__ = ["Calls", "FailedCall"]

AROUND = 5


@dataclass(slots=True)
class _First:
    """The first failure, with the lines around it, which may still be coming."""

    error: ToolError
    fact: Fact
    lines: list[EventLine]
    missing: int = AROUND


class FailedCall(NamedTuple):
    """A failed call, to be put in order with those of other sessions."""

    time_ns: int
    seq: int
    error: ToolError


class _Made(NamedTuple):
    """A tool call that waits for its answer."""

    seq: int
    call_id: str
    tool: str
    arguments: bytes
    in_scope: bool


@dataclass(slots=True)
class _Failures:
    """What failed in a run, as its messages tell, and as its steps do; by event."""

    errors: list[FailedCall] = field(default_factory=list)
    first: _First | None = None
    has_steps: bool = False
    step_errors: list[FailedCall] = field(default_factory=list)
    first_step: _First | None = None


@dataclass(slots=True)
class Calls:
    """A fold over the facts of one session.

    Attributes:
        session_id: The session.
        of_run: Of a run: it is one, whatever was deleted within it. A session begins anew.
    """

    session_id: str
    of_run: bool = False
    _failures: dict[str | None, _Failures] = field(default_factory=dict)
    _before: deque[Fact] = field(default_factory=lambda: deque(maxlen=AROUND))
    _incomplete: list[_First] = field(default_factory=list)
    _waiting: dict[str, list[_Made]] = field(default_factory=dict)
    _left: list[_Made] = field(default_factory=list)
    _said: int | None = None
    _copied_upto: int = 0

    def add(self, fact: Fact, *, in_scope: bool) -> None:
        """Fold one event; errors and calls count where it is in scope."""
        for first in self._incomplete:
            first.lines.append(line_of(fact))
            first.missing -= 1
        if self._incomplete:
            self._incomplete = [first for first in self._incomplete if first.missing]
        if fact.event.type == EventType.SESSION_DELETED:
            # What comes after it can answer nothing of before.
            self._left, self._waiting = self._open(), {}
        elif in_scope and not self.of_run:
            self._left = []
        self._copied_upto = max(self._copied_upto, copied_upto(fact.event))
        match fact.detail:
            case tuple():
                is_said = in_scope and fact.event.seq > self._copied_upto
                for message in fact.detail:
                    self._add_message(fact, message, in_scope=is_said)
            case StepFact():
                self._add_step(fact, fact.detail, in_scope=in_scope)
            case _:
                pass
        self._before.append(fact)

    @property
    def errors(self) -> list[FailedCall]:
        """All calls that failed, with time and event of each, in no order."""
        return [
            error
            for one in self._failures.values()
            for error in (one.step_errors if one.has_steps else one.errors)
        ]

    @property
    def first(self) -> tuple[ToolError, Fact, tuple[EventLine, ...]] | None:
        """The first failure, the event that tells it, and the lines around."""
        firsts = [one.first_step if one.has_steps else one.first for one in self._failures.values()]
        found = min(
            (one for one in firsts if one is not None),
            key=lambda one: one.error.seq,
            default=None,
        )
        return None if found is None else (found.error, found.fact, tuple(found.lines))

    def unanswered(self) -> list[UnansweredCall]:
        """Calls in scope that nothing answered, in order.

        Of a session, those of before it was deleted only where nothing came after that.
        """
        return [
            UnansweredCall(
                made.seq, self.session_id, made.call_id, made.tool, arguments_of(made.arguments)
            )
            for made in self._open()
            if made.in_scope
        ]

    def _open(self) -> list[_Made]:
        waiting = [made for some in self._waiting.values() for made in some]
        return self._left + sorted(waiting, key=lambda made: made.seq)

    def _add_message(self, fact: Fact, message: MessageFact, *, in_scope: bool) -> None:
        calls, answers = message.told()
        for answer in answers:
            # Ids come again: an answer is that of the nearest open call before it.
            waiting = self._waiting.get(answer.call_id)
            made = waiting.pop() if waiting else None
            if in_scope and answer.failed:
                failures = self._failures_of(fact)
                error = self._error(fact, answer, made)
                failures.errors.append(FailedCall(time_ns(fact.event), fact.event.seq, error))
                if failures.first is None:
                    failures.first = self._begin(fact, error)
        for call in calls:
            made = _Made(fact.event.seq, call.id, call.name, bytes(call.arguments), in_scope)
            self._waiting.setdefault(call.id, []).append(made)
        if message.role == "assistant":
            self._said = fact.event.seq

    def _add_step(self, fact: Fact, step: StepFact, *, in_scope: bool) -> None:
        if not in_scope:
            return
        failures = self._failures_of(fact)
        failures.has_steps = True
        if not step.answer.failed:
            return
        tool, _, arguments = step.action.strip().partition(" ")
        error = ToolError(
            seq=fact.event.seq,
            session_id=self.session_id,
            call_seq=self._said,
            call_id=None,
            tool=short(tool),
            arguments=short(arguments),
            words=short(step.answer.words),
            marked=False,
        )
        failures.step_errors.append(FailedCall(time_ns(fact.event), fact.event.seq, error))
        if failures.first_step is None:
            failures.first_step = self._begin(fact, error)

    def _failures_of(self, fact: Fact) -> _Failures:
        return self._failures.setdefault(fact.event.run_id, _Failures())

    def _error(self, fact: Fact, answer: Answer, made: _Made | None) -> ToolError:
        return ToolError(
            seq=fact.event.seq,
            session_id=self.session_id,
            call_seq=None if made is None else made.seq,
            call_id=answer.call_id or None,
            tool="" if made is None else made.tool,
            arguments="" if made is None else arguments_of(made.arguments),
            words=short(answer.words),
            marked=answer.is_error,
        )

    def _begin(self, fact: Fact, error: ToolError) -> _First:
        first = _First(error, fact, [*map(line_of, self._before), line_of(fact)])
        self._incomplete.append(first)
        return first
