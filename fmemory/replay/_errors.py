"""Tool calls of a session: the first that failed with what stands around it, and the unanswered.

A harness that keeps its actions beside the messages says in them what happened: where there are
such steps they count, and the messages that repeat them do not.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fmemory.replay._facts import Fact, MessageFact, StepFact
from fmemory.replay._failures import Answer
from fmemory.replay._words import arguments_of, line_of, short
from fmemory.replay.models import EventLine, ToolError, UnansweredCall

__all__ = ["Calls"]

AROUND = 5


@dataclass(slots=True)
class _First:
    """The first failure, with the lines around it, which may still be coming."""

    error: ToolError
    fact: Fact
    lines: list[EventLine]
    missing: int = AROUND


class _Made(NamedTuple):
    """A tool call that waits for its answer."""

    seq: int
    call_id: str
    tool: str
    arguments: bytes
    in_scope: bool


@dataclass(slots=True)
class Calls:
    """A fold over the facts of one session."""

    session_id: str
    error_count: int = 0
    step_error_count: int = 0
    has_steps: bool = False
    _before: deque[Fact] = field(default_factory=lambda: deque(maxlen=AROUND))
    _waiting: dict[str, _Made] = field(default_factory=dict)
    _first: _First | None = None
    _first_step: _First | None = None
    _said: int | None = None

    def add(self, fact: Fact, *, in_scope: bool) -> None:
        """Fold one event; errors and calls count where it is in scope."""
        for first in (self._first, self._first_step):
            if first is not None and first.missing:
                first.lines.append(line_of(fact))
                first.missing -= 1
        match fact.detail:
            case tuple():
                for message in fact.detail:
                    self._add_message(fact, message, in_scope=in_scope)
            case StepFact():
                self._add_step(fact, fact.detail, in_scope=in_scope)
            case _:
                pass
        self._before.append(fact)

    @property
    def count(self) -> int:
        """How many calls failed."""
        return self.step_error_count if self.has_steps else self.error_count

    @property
    def first(self) -> tuple[ToolError, Fact, tuple[EventLine, ...]] | None:
        """The first failure, the event that tells it, and the lines around."""
        found = self._first_step if self.has_steps else self._first
        return None if found is None else (found.error, found.fact, tuple(found.lines))

    def unanswered(self) -> list[UnansweredCall]:
        """Calls in scope that nothing answered, in order."""
        return [
            UnansweredCall(
                made.seq, self.session_id, made.call_id, made.tool, arguments_of(made.arguments)
            )
            for made in self._waiting.values()
            if made.in_scope
        ]

    def _add_message(self, fact: Fact, message: MessageFact, *, in_scope: bool) -> None:
        for answer in message.answers:
            made = self._waiting.pop(answer.call_id, None)
            if in_scope and answer.failed:
                self.error_count += 1
                if self._first is None:
                    self._first = self._begin(fact, self._error(fact, answer, made))
        for call in message.calls:
            self._waiting[call.id] = _Made(
                fact.event.seq, call.id, call.name, bytes(call.arguments), in_scope
            )
        if message.role == "assistant":
            self._said = fact.event.seq

    def _add_step(self, fact: Fact, step: StepFact, *, in_scope: bool) -> None:
        if not in_scope:
            return
        self.has_steps = True
        if not step.answer.failed:
            return
        self.step_error_count += 1
        if self._first_step is None:
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
            self._first_step = self._begin(fact, error)

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
        return _First(error, fact, [*map(line_of, self._before), line_of(fact)])
