"""What a replay tells: runs, reports and what they consist of, as frozen values.

All are `Model`s: `to_dict` and `to_json` give plain data, times as RFC 3339. Seqs are numbers of
events in the log, so every statement here can be looked up with `fmemory show SEQ`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from fmemory._model import Model

__all__ = [
    "ByteShare",
    "EventLine",
    "FeatureFlip",
    "NoteLine",
    "Regression",
    "RunReport",
    "RunSort",
    "RunState",
    "RunSummary",
    "TimeGap",
    "ToolError",
    "UnansweredCall",
    "UnreadableEvent",
]


class RunState(StrEnum):
    """How a run ended, as far as the log says.

    `ended`: a checkpoint states its end and no verdict; "submitted" is not "passed". `open`: no end
    is known. `died`: no end is known, and there is evidence that none will come.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ENDED = "ended"
    OPEN = "open"
    DIED = "died"


class RunSort(StrEnum):
    """What a list of runs is sorted by."""

    STARTED = "started"
    DURATION = "duration"
    EVENTS = "events"
    MESSAGES = "messages"
    CALLS = "calls"
    ERRORS = "errors"


class RunSummary(Model, frozen=True):
    """One run in one session.

    Attributes:
        run_id: Its id.
        session_id: The session it wrote to; None if it wrote records only.
        actor: Who wrote its first event; None where nobody said.
        reason: Why, of its first event that says so.
        status: How it ended.
        evidence: What `died` is concluded from; which checkpoint of an `open` run cannot be read;
            which event began it again after it had ended. Else None.
        started_at: Its "in progress" checkpoint's time, else its first event's.
        ended_at: The time of the checkpoint that closes it; None while there is none.
        last_at: Time of its newest event.
        first_seq: Its first event.
        last_seq: Its newest event.
        event_count: Its events.
        message_count: Messages it appended.
        tool_call_count: Tool calls in them.
        tool_error_count: Answers that failed, by their mark or their own words.
        unanswered_count: Tool calls that nothing answers.
        features_gained: Features that pass after it and did not before.
        features_lost: Features that passed before it or meanwhile, and do not after it.
        note_count: Records it put.
        last_words: The note of the checkpoint that closes it, or while none does, of its newest
            "in progress" one; else its last message's text, else its last progress entry's.
        unreadable_count: Its events whose data are erased, lost or damaged.
    """

    run_id: str
    session_id: str | None
    actor: str | None
    reason: str | None
    status: RunState
    evidence: str | None
    started_at: datetime
    ended_at: datetime | None
    last_at: datetime
    first_seq: int
    last_seq: int
    event_count: int
    message_count: int = 0
    tool_call_count: int = 0
    tool_error_count: int = 0
    unanswered_count: int = 0
    features_gained: tuple[str, ...] = ()
    features_lost: tuple[str, ...] = ()
    note_count: int = 0
    last_words: str = ""
    unreadable_count: int = 0

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or to its newest event while it has none."""
        until = self.last_at if self.ended_at is None else self.ended_at
        return max(0.0, (until - self.started_at).total_seconds())


class EventLine(Model, frozen=True):
    """An event in a few words.

    Attributes:
        seq: Its number.
        at: When it happened.
        type: What happened.
        actor: Who wrote it.
        run_id: The run it belongs to.
        words: The first words of what it says.
        is_error: It holds a failed answer.
    """

    seq: int
    at: datetime
    type: str
    actor: str | None = None
    run_id: str | None = None
    words: str = ""
    is_error: bool = False


class ToolError(Model, frozen=True):
    """A tool call that failed.

    Attributes:
        seq: The event that holds the answer.
        session_id: Where: the session itself, or a sub-agent's.
        call_seq: The event that holds the call; None where there is none.
        call_id: The call's id; None where the harness gives none.
        tool: The tool's name, or the program that was called; empty where it is not known.
        arguments: The call's arguments, the first of them, as text.
        words: The first words of the answer.
        marked: The answer is marked as an error; else its text says so of itself.
    """

    seq: int
    session_id: str
    call_seq: int | None
    call_id: str | None
    tool: str
    arguments: str
    words: str
    marked: bool


class UnansweredCall(Model, frozen=True):
    """A tool call that no later message of its session answers.

    Attributes:
        seq: The event that holds the call.
        session_id: Where: the session itself, or a sub-agent's.
        call_id: The call's id.
        tool: The tool's name.
        arguments: The call's arguments, the first of them, as text.
    """

    seq: int
    session_id: str
    call_id: str
    tool: str
    arguments: str


class FeatureFlip(Model, frozen=True):
    """A feature that began to pass, or stopped.

    Attributes:
        seq: The event that did it.
        at: When it happened.
        feature_id: The feature.
        before: Whether it passed; None if it was not in the list.
        passes: Whether it passes after it.
        actor: Who did it.
        run_id: In which run.
        reason: Why.
    """

    seq: int
    at: datetime
    feature_id: str
    before: bool | None
    passes: bool
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None


class Regression(Model, frozen=True):
    """A feature that passed and then did not.

    Attributes:
        feature_id: The feature.
        passed_seq: The event since which it passed; None if that lies before what is reported.
        lost_seq: The event that ended it.
        again_seq: The event since which it passes again; None if it does not.
    """

    feature_id: str
    passed_seq: int | None
    lost_seq: int
    again_seq: int | None = None


class TimeGap(Model, frozen=True):
    """A while in which nothing was written: between two consecutive events."""

    after_seq: int
    before_seq: int
    seconds: float


class NoteLine(Model, frozen=True):
    """Records that one event put.

    Attributes:
        seq: The event.
        at: When it happened.
        namespace: Where they are.
        ids: Their ids.
        words: The first words of the first of them; empty where it is erased, and behind the
            first 100 events.
    """

    seq: int
    at: datetime
    namespace: tuple[str, ...]
    ids: tuple[str, ...]
    words: str = ""


class ByteShare(Model, frozen=True):
    """Events of one type: how many, and the bytes of their payloads.

    Payloads as they are encoded, the same in every kind of store; an event whose envelope says all,
    such as a feature flip, has none. `Stats` counts what the store takes for them.
    """

    type: str
    event_count: int
    payload_bytes: int


class UnreadableEvent(Model, frozen=True):
    """An event whose data is not there: `state` is erased, forgotten, lost or damaged."""

    seq: int
    type: str
    state: str
    problem: str | None = None


class RunReport(Model, frozen=True):
    """What a person wants to know first of a run, or of all that happened in a session.

    Attributes:
        name: The run or session asked for.
        session_id: The session; None for a run that wrote to none.
        run_id: The run; None where all of the session is reported.
        sub_sessions: Sessions of its sub-agents; errors and calls there count as its own.
        objective: Of the manifest as it was then; None without one, or where it cannot be read:
            `unreadable` then names the event, also where that is not the run's.
        asked: The first words of the first message of a user; None without one.
        runs: The run, or the session's runs by their first event.
        event_count: Events that were looked at, those of sub-agents aside.
        first_seq: The first of them; None where there is none.
        last_seq: The last of them.
        first_error: The first tool call that failed; None if none did.
        around: The event that tells so, and the five before and after it in its session.
        tool_error_count: All tool calls that failed, those aside that a fork copied.
        errors: These calls, by the time of their answers.
        unanswered: Tool calls that nothing answers, those aside that a fork copied.
        flips: Features that began to pass or stopped, in order.
        regressions: Features that passed and then did not.
        gaps: The longest times between two events, the longest first; five at most.
        notes: Events that put records.
        bytes: Where the bytes are, by type, the most first.
        unreadable: Events whose data is not there, those of sub-agents too, by seq.
        commands: Three commands to go on with.
    """

    name: str
    session_id: str | None
    run_id: str | None
    sub_sessions: tuple[str, ...]
    objective: str | None
    asked: str | None
    runs: tuple[RunSummary, ...]
    event_count: int
    first_seq: int | None = None
    last_seq: int | None = None
    first_error: ToolError | None = None
    around: tuple[EventLine, ...] = ()
    tool_error_count: int = 0
    errors: tuple[ToolError, ...] = ()
    unanswered: tuple[UnansweredCall, ...] = ()
    flips: tuple[FeatureFlip, ...] = ()
    regressions: tuple[Regression, ...] = ()
    gaps: tuple[TimeGap, ...] = ()
    notes: tuple[NoteLine, ...] = ()
    bytes: tuple[ByteShare, ...] = ()
    unreadable: tuple[UnreadableEvent, ...] = ()
    commands: tuple[str, ...] = ()
