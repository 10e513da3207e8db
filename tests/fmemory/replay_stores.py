"""A session of two runs of which the second broke something: what tests of replays look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import fmemory
from fmemory import (
    FeatureRecord,
    JournalBackend,
    LogBackend,
    Message,
    NewEvent,
    ProgressEntry,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
    ToolCall,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


def called(call_id: str, command: str) -> list[Message]:
    """A message of the assistant that calls a shell."""
    call = ToolCall(call_id, "Bash", {"command": command})
    return [Message("assistant", tool_calls=[call])]


def answered(call_id: str, text: str, *, is_error: bool = False) -> list[Message]:
    """What the shell answers."""
    return [Message("tool", text, tool_call_id=call_id, is_error=is_error)]


def write_broken(memory: JournalBackend) -> None:
    """Events 1 to 16.

    Run 1 (2 to 8) makes the form and succeeds. Run 2 (9 to 16) breaks it: event 11 is a failed
    call, 12 the flip, 13 a note, the call of 15 has no answer, and the run no end.
    """
    session = memory.session("login")
    features = [FeatureRecord("form", "ui", "a form"), FeatureRecord("token", "api", "a token")]
    with fmemory.audit(actor="ada"):
        session.initialize_session_if_missing(
            SessionManifest("login", "main", "make logging in work"), features
        )
    with fmemory.audit(actor="ada", run_id="run-1", reason="first try"):
        session.record_run_checkpoint(RunCheckpoint("run-1", at(0), status=RunStatus.IN_PROGRESS))
        session.append_transcript_messages([Message("user", "make the form")])
        session.append_transcript_messages(called("c1", "pytest"))
        session.append_transcript_messages(answered("c1", "2 passed"))
        with fmemory.audit(reason="2 tests passed"):
            session.update_feature_pass("form", True)
        memory.append(("session", "login"), [NewEvent("tool.finished", {"exit": 0})])
        session.record_run_checkpoint(
            RunCheckpoint("run-1", at(0), at(5), status=RunStatus.SUCCEEDED, note="the form works")
        )
    with fmemory.audit(actor="bob", run_id="run-2", reason="the token"):
        session.record_run_checkpoint(RunCheckpoint("run-2", at(10), status=RunStatus.IN_PROGRESS))
        session.append_transcript_messages(called("c2", "rm -r form"))
        session.append_transcript_messages(answered("c2", "rm: no", is_error=True))
        with fmemory.audit(reason="it was in the way"):
            session.update_feature_pass("form", False)
        memory.add_note("forms need labels", [1.0], id="n1", namespace=("ui",))
        session.append_progress_entry(ProgressEntry("run-2", "the token is half done"))
        session.append_transcript_messages(called("c3", "sleep 99"))
        memory.append(
            ("session", "login"), [NewEvent("tool.started", {"of": 3}, occurred_at=at(10))]
        )


class Plain:
    """A memory of which only what is public can be reached."""

    def __init__(self, memory: LogBackend) -> None:
        self.events = memory.events
        self.event = memory.event
        self.health = memory.health
