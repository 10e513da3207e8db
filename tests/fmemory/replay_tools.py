"""Stores that the tests of reading with `fmemory.replay` look at."""

from __future__ import annotations

from pathlib import Path

import fmemory
from fmemory import (
    FeatureRecord,
    LogBackend,
    Message,
    NewEvent,
    ProgressEntry,
    SessionManifest,
    ToolCall,
)

JOURNALS = ("segments", "sqlite", "jsonl", "memory")


def target_of(journal: str, folder: Path) -> str:
    """Where a store of this journal is."""
    return {
        "segments": str(folder / "store"),
        "sqlite": f"sqlite:///{folder / 'store.db'}",
        "jsonl": f"jsonl:{folder / 'store'}",
        "memory": ":memory:",
    }[journal]


def tell_story(memory: LogBackend) -> None:
    """A session "login" of two runs, and a note.

    1 the session begins with features form and token; 2 run-1 starts; 3 it is asked; 4 it calls
    bash, twice; 5 the first answer fails; 6 form passes; 7 a custom event; 8 progress; 9 run-1
    succeeds; 10 run-2 (never ended) says that form does not pass; 11 it says done; 12 a note.
    """
    session = memory.session("login")
    features = [FeatureRecord("form", "ui", "a form"), FeatureRecord("token", "api", "a token")]
    calls = [ToolCall("c1", "bash", {"command": "make"}), ToolCall("c2", "bash", {"command": "ls"})]
    with fmemory.audit(actor="ada"):
        manifest = SessionManifest("login", "main", "make logging in work", metadata={"owner": "x"})
        session.initialize_session_if_missing(manifest, features)
        with session.run("run-1"):
            session.append_transcript_messages([Message("user", "make the form")])
            session.append_transcript_messages(
                [Message("assistant", "building\nand looking", tool_calls=calls)]
            )
            failed = Message("tool", "make: *** no rule", tool_call_id="c1", is_error=True)
            session.append_transcript_messages([failed])
            with fmemory.audit(reason="2 tests passed"):
                session.update_feature_pass("form", True)
            memory.append(("session", "login"), [NewEvent("tool.finished", {"exit": [137]})])
            session.append_progress_entry(ProgressEntry("run-1", "the form works"))
    with fmemory.audit(actor="bob", run_id="run-2", reason="looks broken"):
        session.update_feature_pass("form", False)
        session.append_transcript_messages([Message("assistant", "done")])
        memory.add_note("tokens last an hour", [1.0, 0.0], id="n1", timestamp=10.0)
