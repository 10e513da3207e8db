"""Binary search over the states of a session for the first event where something turned.

The states after each event of the session are the candidates; which of them is looked at next is
chosen here, what is good about it is asked of a check. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from fmemory._json_values import JsonObject
from fmemory._model import Model, check_int
from fmemory.errors import ContractError, Reason, brief
from fmemory.replay._facts import facts, never
from fmemory.replay._reading import moment_of

if TYPE_CHECKING:
    from fmemory.backend import LogBackend, LogView

__all__ = [
    "Bisection",
    "BisectionStep",
    "Check",
    "Verdict",
    "bisect",
    "feature_check",
    "session_state",
    "text_check",
]


class Verdict(StrEnum):
    """What a check says of a state; `SKIP` = it cannot be told of this one."""

    OK = "ok"
    BAD = "bad"
    SKIP = "skip"


Check: TypeAlias = "Callable[[LogView], Verdict | bool]"
"""Judges the memory as it was after an event; `view.seq` says which. True = ok, False = bad."""


class BisectionStep(Model, frozen=True):
    """A state that was looked at: that after event `seq`."""

    seq: int
    verdict: Verdict


class Bisection(Model, frozen=True):
    """Where a session turned from ok to bad.

    Attributes:
        session_id: The session.
        ok: The last state known to be ok.
        bad: The first state known to be bad: the event that turned it, if nothing was skipped
            between the two.
        candidates: Events one of which turned it: one, or several if those between were skipped.
        type: Type of event `bad`.
        time: When that happened, else when it was recorded; UTC.
        actor: Who wrote it.
        run_id: In which run.
        reason: Why.
        steps: The states that were looked at, in that order; the two ends first.
        event_count: Events of the session between the two ends that were given.
    """

    session_id: str
    ok: int
    bad: int
    candidates: tuple[int, ...]
    type: str
    time: datetime
    actor: str | None
    run_id: str | None
    reason: str | None
    steps: tuple[BisectionStep, ...]
    event_count: int


def bisect(
    memory: LogBackend,
    session_id: str,
    *,
    ok: int,
    bad: int,
    check: Check,
    progress: Callable[[BisectionStep, int], None] | None = None,
) -> Bisection:
    """The first event of a session after which a check says bad, found by halving.

    Where it turned more than once between the ends, one of the turns is found.

    Args:
        ok: A seq after which the state is ok; 0 = before everything.
        bad: A greater seq, after which it is bad.
        check: Asked about both ends first, then about 1 state for each halving.
        progress: Told of each step, and how many events may still be it.

    Raises:
        ContractError: `bad` is not after `ok`; the check calls `ok` bad or `bad` ok, or skips
            one of them; no event of the session lies between them. `where` says which end.
        NotFound: There is no such session, or no such event.
        HistoryCompacted: A state in between is no longer kept.
        StorageError: The store failed, or what a state needs is damaged.

    Cost: O(log events) checks; a state is folded from the session's own events, its messages are
        read if the check asks for them.
    """
    _check_ends(ok, bad)
    asked = _Asked(memory, check, progress)
    moment_of(memory, session_id, bad)
    seqs = _seqs_between(memory, session_id, ok, bad)
    if not seqs:
        raise ContractError(
            f"expected an event of session {brief(session_id)} after event {ok} and up to event"
            f" {bad}, got none: nothing of it changed between them",
            where="bad",
            reason=Reason.MISMATCH,
        )
    _check_verdict(asked.ask(ok, len(seqs)), Verdict.OK, ok)
    _check_verdict(asked.ask(bad, len(seqs)), Verdict.BAD, bad)
    last_ok, candidates = _halve(seqs, asked, ok)
    turned = memory.event(candidates[-1])
    return Bisection(
        session_id,
        last_ok,
        turned.seq,
        candidates,
        turned.type,
        turned.occurred_at or turned.recorded_at,
        turned.actor,
        turned.run_id,
        turned.reason,
        tuple(asked.steps),
        len(seqs),
    )


def feature_check(session_id: str, feature_id: str) -> Check:
    """A check: ok while the feature passes; bad when it does not, or is in no list."""

    def check(view: LogView) -> Verdict:
        for one in view.load_bootstrap_state(session_id).feature_list:
            if one.id == feature_id:
                return Verdict.OK if one.passes else Verdict.BAD
        return Verdict.BAD

    return check


def text_check(session_id: str, text: str) -> Check:
    """A check: ok while a text is nowhere in the session's state, bad once it is.

    Looked at are all texts of manifest, features, progress, checkpoints and messages, as they are
    read, not as JSON writes them.
    """

    def check(view: LogView) -> Verdict:
        state = session_state(view, session_id)
        return Verdict.BAD if any(text in one for one in texts_of(state)) else Verdict.OK

    return check


def session_state(view: LogView, session_id: str) -> JsonObject:
    """Everything of a session at a moment, as plain JSON data: what `--exec` is given.

    Keys: `session_id`, `seq`, those of `BootstrapState`, `message_count`, `messages`.
    """
    messages = view.load_transcript_messages(session_id)
    return {
        "session_id": session_id,
        "seq": view.seq,
        **view.load_bootstrap_state(session_id).to_dict(),
        "message_count": len(messages),
        "messages": [message.to_dict() for message in messages],
    }


def texts_of(value: object) -> Iterator[str]:
    """Every text in plain JSON data, keys of objects aside."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


class _Asked:
    """Asks a check about states, and keeps what it said."""

    def __init__(
        self,
        memory: LogBackend,
        check: Check,
        progress: Callable[[BisectionStep, int], None] | None,
    ) -> None:
        self._memory = memory
        self._check = check
        self._progress = progress
        self.steps: list[BisectionStep] = []

    def ask(self, seq: int, left: int) -> Verdict:
        """The verdict on the state after an event, of which so many may still be it."""
        step = BisectionStep(seq, _verdict(self._check(self._memory.at(seq))))
        self.steps.append(step)
        if self._progress is not None:
            self._progress(step, left)
        return step.verdict


def _seqs_between(memory: LogBackend, session_id: str, ok: int, bad: int) -> list[int]:
    """The events of a session after one end, up to the other."""
    seqs = (one.event.seq for one in facts(memory, session_id=session_id, upto=bad, wanted=never))
    return [seq for seq in seqs if seq > ok]


def _halve(seqs: Sequence[int], asked: _Asked, ok: int) -> tuple[int, tuple[int, ...]]:
    """The last seq known to be ok, and the seqs of which one turned it; the last is bad."""
    low, high = -1, len(seqs) - 1  # seqs[low] is ok, or the end given is; seqs[high] is bad
    skipped: set[int] = set()
    while True:
        chosen = _nearest_open(low, high, skipped)
        if chosen is None:
            return (ok if low < 0 else seqs[low]), tuple(seqs[low + 1 : high + 1])
        match asked.ask(seqs[chosen], high - low):
            case Verdict.OK:
                low = chosen
            case Verdict.BAD:
                high = chosen
            case _:
                skipped.add(chosen)


def _nearest_open(low: int, high: int, skipped: set[int]) -> int | None:
    """The place nearest to the middle of two that was not skipped; None if there is none."""
    middle = (low + high) // 2
    for distance in range(high - low):
        for one in (middle - distance, middle + distance):
            if low < one < high and one not in skipped:
                return one
    return None


def _verdict(said: object) -> Verdict:
    if isinstance(said, bool):
        return Verdict.OK if said else Verdict.BAD
    if not isinstance(said, Verdict):
        raise ContractError(
            f"expected a Verdict, or True for ok, got {brief(said)}",
            where="check",
            reason=Reason.WRONG_TYPE,
        )
    return said


def _check_ends(ok: int, bad: int) -> None:
    for name, seq in (("ok", ok), ("bad", bad)):
        try:
            check_int(seq)
        except ContractError as error:
            raise error.within(name) from None
        if seq < 0:
            raise ContractError(
                f"expected 0 (before everything) or more, got {seq}",
                where=name,
                reason=Reason.OUT_OF_RANGE,
            )
    if ok >= bad:
        raise ContractError(
            f"expected an event after ok, which is event {ok}, got event {bad}: the state must"
            " first be ok and later bad; exchange the two if they are reversed",
            where="bad",
            reason=Reason.OUT_OF_RANGE,
        )


def _check_verdict(verdict: Verdict, expected: Verdict, seq: int) -> None:
    if verdict is expected:
        return
    advice = (
        "choose a later one, or one before it was mended"
        if expected is Verdict.BAD
        else "choose an earlier one"
    )
    raise ContractError(
        f"expected the state after event {seq} to be {expected.value}, got {verdict.value}:"
        f" {advice}",
        where=expected.value,
        reason=Reason.MISMATCH,
    )
