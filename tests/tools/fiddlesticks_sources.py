"""Sources as the Rust crate Fiddlesticks writes them, made from the library's own models.

A `Stored` is one session; `write_sqlite`, `write_folder` and `write_table` put sessions into the
three kinds of sources, in exactly the formats of the crate. Times get nanoseconds that a datetime
cannot hold, the same for every time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fmemory import (
    FeatureRecord,
    InitCommand,
    InitPlan,
    InitShell,
    InitShellScript,
    InitStep,
    LogBackend,
    Message,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
)
from fmemory_tools.importers.fiddlesticks import plan_fiddlesticks
from fmemory_tools.importers.fiddlesticks_apply import Fate, apply_fiddlesticks

NANOS = 789
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SCHEMA = """
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, schema_version INTEGER NOT NULL, harness_version TEXT NOT NULL,
    active_branch TEXT NOT NULL, current_objective TEXT NOT NULL, last_known_good_commit TEXT);
CREATE TABLE session_metadata (
    session_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (session_id, key));
CREATE TABLE init_plan_steps (
    session_id TEXT NOT NULL, step_index INTEGER NOT NULL, step_kind TEXT NOT NULL,
    command_program TEXT, command_args_json TEXT, shell_name TEXT, shell_script TEXT,
    PRIMARY KEY (session_id, step_index));
CREATE TABLE features (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, position INTEGER NOT NULL,
    feature_id TEXT NOT NULL, category TEXT NOT NULL, description TEXT NOT NULL,
    steps_json TEXT NOT NULL, passes INTEGER NOT NULL);
CREATE TABLE progress_entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, run_id TEXT NOT NULL,
    summary TEXT NOT NULL, created_at_secs INTEGER NOT NULL, created_at_nanos INTEGER NOT NULL);
CREATE TABLE run_checkpoints (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, run_id TEXT NOT NULL,
    started_at_secs INTEGER NOT NULL, started_at_nanos INTEGER NOT NULL,
    completed_at_secs INTEGER, completed_at_nanos INTEGER, status TEXT NOT NULL, note TEXT);
CREATE TABLE transcript_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
    content TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Stored:
    """One session as the crate has it."""

    session_id: str
    manifest: SessionManifest | None = None
    features: tuple[FeatureRecord, ...] = ()
    progress: tuple[ProgressEntry, ...] = ()
    checkpoints: tuple[RunCheckpoint, ...] = ()
    transcript: tuple[Message, ...] = ()


def at(seconds: int, microseconds: int = 0) -> datetime:
    return EPOCH + timedelta(seconds=seconds, microseconds=microseconds)


FULL = Stored(
    "login",
    SessionManifest(
        "login",
        "feature/init",
        "Make logging in work",
        schema_version=2,
        harness_version="v1",
        last_known_good_commit="abc123",
        init_plan=InitPlan(
            [
                InitStep.command("git", ["status", "--short", ""]),
                InitStep.shell(InitShell.BASH, "set -e\nmake\n"),
                InitStep.command("true"),
                InitStep.shell(InitShell.PWSH, ""),
            ]
        ),
        metadata={"owner": "ada", "": "no key", "snow": "☃\u2028😀"},
    ),
    features=(
        FeatureRecord("form", "ui", "a form", ["open it", "fill it"], True),
        FeatureRecord("token", "api", "a token"),
        FeatureRecord("a", "", "", [""], True),
    ),
    progress=(
        ProgressEntry("run-1", "the form\nworks", at(1_700_000_000, 123_456)),
        ProgressEntry("run-2", "", at(0)),
        ProgressEntry("run-1", "last by id, second by time", at(1)),
    ),
    checkpoints=(
        RunCheckpoint("run-1", at(1_700_000_000)),
        RunCheckpoint(
            "run-1", at(1_700_000_000), at(1_700_000_060, 5), RunStatus.SUCCEEDED, "all pass"
        ),
        RunCheckpoint("run-2", at(253_402_300_799), None, RunStatus.FAILED, ""),
    ),
    transcript=(
        Message(Role.SYSTEM, "be brief"),
        Message(Role.USER, "hi"),
        Message(Role.ASSISTANT, ""),
        Message(Role.TOOL, "☃ \u2028 😀 \t\r\n"),
        Message(Role.USER, "hi"),
    ),
)
TALK = Stored("only talk", transcript=(Message(Role.USER, "hello"), Message(Role.ASSISTANT, "yes")))
BARE = Stored("bare", SessionManifest("bare", "main", "nothing yet"))
ODD = Stored("../../etc/ß☃😀 %_.\\\n'\"", transcript=(Message(Role.USER, "odd"),))
IN_JSONB = (FULL, TALK, BARE, ODD)
NUL = Stored("nul", transcript=(Message(Role.USER, "a\x00b"),))
EVERYTHING = (*IN_JSONB, NUL)


def state_of(stored: Stored) -> dict[str, Any]:
    """The JSON object of a session."""
    return {
        "manifest": None if stored.manifest is None else manifest_of(stored.manifest),
        "feature_list": [
            {
                "id": one.id,
                "category": one.category,
                "description": one.description,
                "steps": list(one.steps),
                "passes": one.passes,
            }
            for one in stored.features
        ],
        "recent_progress": [
            {"run_id": one.run_id, "summary": one.summary, **time_of("created_at", one.created_at)}
            for one in stored.progress
        ],
        "checkpoints": [
            {
                "run_id": one.run_id,
                **time_of("started_at", one.started_at),
                **time_of("completed_at", one.completed_at),
                "status": one.status.value,
                "note": one.note,
            }
            for one in stored.checkpoints
        ],
        "transcript": [{"role": m.role.value, "content": m.content} for m in stored.transcript],
    }


def manifest_of(manifest: SessionManifest) -> dict[str, Any]:
    plan = manifest.init_plan
    return {
        "schema_version": manifest.schema_version,
        "harness_version": manifest.harness_version,
        "active_branch": manifest.active_branch,
        "current_objective": manifest.current_objective,
        "last_known_good_commit": manifest.last_known_good_commit,
        "init_plan": None if plan is None else {"steps": [one.to_dict() for one in plan.steps]},
        "metadata": dict(manifest.metadata),
    }


def time_of(name: str, time: datetime | None) -> dict[str, int | None]:
    """The two columns of a time, with nanoseconds below a microsecond."""
    if time is None:
        return {f"{name}_secs": None, f"{name}_nanos": None}
    whole = (time - EPOCH) // timedelta(microseconds=1)
    seconds, microseconds = divmod(whole, 1_000_000)
    return {f"{name}_secs": seconds, f"{name}_nanos": microseconds * 1000 + NANOS}


def session_file(root: Path, session_id: str) -> Path:
    return root / "sessions" / f"{session_id.encode().hex()}.json"


def write_folder(root: Path, sessions: Iterable[Stored] = EVERYTHING) -> Path:
    """A folder as the crate's filesystem backend leaves it."""
    for stored in sessions:
        file = session_file(root, stored.session_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(state_of(stored), indent=2, ensure_ascii=False), "utf-8")
    return root


def write_sqlite(path: Path, sessions: Iterable[Stored] = EVERYTHING, mode: str = "WAL") -> Path:
    """A database as the crate's SQLite backend leaves it; rows of sessions lie mixed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.executescript(SCHEMA)
        for stored in sessions:
            insert_manifest(connection, stored)
        rows = [list(rows_of(stored)) for stored in sessions]
        for number in range(max(map(len, rows), default=0)):
            for one in rows:
                if number < len(one):
                    insert(connection, *one[number])
    return path


def insert_manifest(connection: sqlite3.Connection, stored: Stored) -> None:
    manifest = stored.manifest
    if manifest is None:
        return
    row = {
        "session_id": stored.session_id,
        "schema_version": manifest.schema_version,
        "harness_version": manifest.harness_version,
        "active_branch": manifest.active_branch,
        "current_objective": manifest.current_objective,
        "last_known_good_commit": manifest.last_known_good_commit,
    }
    insert(connection, "sessions", row)
    for key, value in manifest.metadata.items():
        row = {"session_id": stored.session_id, "key": key, "value": value}
        insert(connection, "session_metadata", row)
    steps = () if manifest.init_plan is None else manifest.init_plan.steps
    for index, step in reversed(list(enumerate(steps))):
        row = {"session_id": stored.session_id, "step_index": index, **step_row(step)}
        insert(connection, "init_plan_steps", row)


def step_row(step: InitStep) -> dict[str, Any]:
    if isinstance(step, InitCommand):
        arguments = json.dumps(list(step.args), separators=(",", ":"))
        return {
            "step_kind": "command",
            "command_program": step.program,
            "command_args_json": arguments,
        }
    assert isinstance(step, InitShellScript)
    return {"step_kind": "shell", "shell_name": step.shell.value, "shell_script": step.script}


def rows_of(stored: Stored) -> Iterable[tuple[str, dict[str, Any]]]:
    """The rows that have an id of their own; features in another order than their positions."""
    state = state_of(stored)
    for position, one in reversed(list(enumerate(state["feature_list"]))):
        yield (
            "features",
            {
                "session_id": stored.session_id,
                "position": position,
                "feature_id": one["id"],
                "category": one["category"],
                "description": one["description"],
                "steps_json": json.dumps(one["steps"], ensure_ascii=False),
                "passes": int(one["passes"]),
            },
        )
    for table, name in (
        ("progress_entries", "recent_progress"),
        ("run_checkpoints", "checkpoints"),
        ("transcript_messages", "transcript"),
    ):
        for one in state[name]:
            yield table, {"session_id": stored.session_id, **one}


def insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    places = ", ".join("?" * len(row))
    connection.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values())
    )


def write_table(url: str, sessions: Iterable[Stored] = IN_JSONB) -> str:
    """A table as the crate's PostgreSQL backend leaves it; JSONB holds no NUL."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS fmemory_session_state"
            " (session_id TEXT PRIMARY KEY, state_json JSONB NOT NULL)"
        )
        for stored in sessions:
            connection.execute(
                "INSERT INTO fmemory_session_state VALUES (%s, %s)",
                (stored.session_id, json.dumps(state_of(stored))),
            )
    return url


WRITERS: dict[str, Callable[..., Path]] = {"sqlite": write_sqlite, "filesystem": write_folder}


def import_into(memory: LogBackend, source: object, *, skip_bad: bool = False) -> dict[str, Fate]:
    plan = plan_fiddlesticks(str(source), skip_bad=skip_bad)
    return {one.session_id: one.fate for one in apply_fiddlesticks(memory, plan)}


def stored_in(memory: LogBackend, session_id: str) -> Stored:
    """The session as the public API has it; what the import added to its metadata taken away."""
    state = memory.load_bootstrap_state(session_id)
    manifest = state.manifest
    if manifest is not None:
        kept = {key: one for key, one in manifest.metadata.items() if key != "source"}
        manifest = manifest.with_metadata(kept)
    messages = memory.load_transcript_messages(session_id)
    return Stored(
        session_id,
        manifest,
        state.feature_list,
        state.recent_progress,
        state.checkpoints,
        tuple(messages),
    )
