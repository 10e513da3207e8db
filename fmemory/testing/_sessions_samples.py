"""Session artifacts for tests, with fixed times."""

from __future__ import annotations

from fmemory.session_models import (
    FeatureRecord,
    InitPlan,
    InitShell,
    InitStep,
    Message,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
    ToolCall,
)
from fmemory.testing._samples import moment

__all__ = ["FULL_MANIFEST", "MESSAGES", "checkpoint", "entry", "features", "manifest", "said"]


def manifest(session_id: str = "s1", objective: str = "build it") -> SessionManifest:
    """A small manifest."""
    return SessionManifest(session_id, "main", objective)


FULL_MANIFEST = SessionManifest(
    session_id="s1",
    active_branch="feature/ü",
    current_objective="line one\nline two \U0001f680",
    schema_version=7,
    harness_version="v2-rc1",
    last_known_good_commit="abc123",
    init_plan=InitPlan(
        (
            InitStep.command("make", ("test", "-j", "2", "")),
            InitStep.shell(InitShell.BASH, 'echo "a\x00b"\n'),
            InitStep.shell(InitShell.PWSH, ""),
            InitStep.command("true"),
        )
    ),
    metadata={"nested": [{"a.b": None}, 2**64 - 1, 0.1], "": {}},
)


def features(*ids: str, passes: bool = False) -> tuple[FeatureRecord, ...]:
    """Features of these ids."""
    return tuple(
        FeatureRecord(one, "core", f"{one} works", (f"open {one}", "look"), passes) for one in ids
    )


def entry(number: int = 0, run_id: str = "run-1") -> ProgressEntry:
    """A progress entry; its time goes down as the number goes up, so time is no order."""
    return ProgressEntry(run_id, f"did {number}", moment(-number))


def checkpoint(number: int = 0, run_id: str = "run-1") -> RunCheckpoint:
    """A checkpoint, of each status in turn."""
    status = list(RunStatus)[number % 3]
    ended = None if status is RunStatus.IN_PROGRESS else moment(number)
    return RunCheckpoint(run_id, moment(-number), ended, status, f"note {number}")


def said(*texts: str) -> tuple[Message, ...]:
    """Messages of a user."""
    return tuple(Message(Role.USER, text) for text in texts)


MESSAGES = (
    Message(Role.SYSTEM, "be brief", created_at=moment(0)),
    Message(Role.USER, "", name="ann", id="m1", metadata={"k": [1, {"a": None}]}),
    Message(
        Role.ASSISTANT,
        "let me look",
        blocks=(
            {"type": "thinking", "thinking": "…", "signature": "EqQBCg=="},
            {"type": "text", "text": "let me look", "citations": None},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "/a\x00b", "n": 1.0}},
        ),
        tool_calls=(ToolCall("t1", "ls", {"path": "/", "deep": {"n": [1, 1.5]}}),),
        created_at=moment(-5),
    ),
    Message(Role.ASSISTANT, tool_calls=(ToolCall("t2", "ls", '{"broken": '), ToolCall("t3", "x"))),
    Message(Role.TOOL, "no such file", tool_call_id="t2", is_error=True, name="ls"),
    Message(Role.USER, "漢字 \U0001f680 \u00e9 e\u0301 \u2028"),
)
