"""SWE-agent's trajectories (.traj) as sessions: history as transcript, steps and info as events.

A trajectory states no times and no verdict. Messages therefore carry no time, and a run that was
submitted is not called passed. Steps repeat the history in their `messages`; a message that equals
the history's is kept as its number, so `whole_trajectory` gives back the file's own value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fmemory import (
    ContractError,
    Message,
    NewEvent,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
)
from fmemory.messages import from_openai, to_openai
from fmemory_tools.importers._lines import (
    Malformed,
    as_object,
    as_text,
    digest_key,
    optional_text,
    parse_object,
    read_whole,
)
from fmemory_tools.importers.plan import (
    BadLine,
    BadSource,
    SessionPlan,
    SessionsPlan,
    Source,
    Step,
    counted,
)

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject, JsonValue

FORMAT = "swe-agent"
UNKNOWN = "unknown"
STEP_TYPE = "swe_agent.step"
PART_TYPE = "swe_agent.part"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of the history: its key, the message it becomes, and its value."""

    key: str
    message: Message
    value: JsonObject


@dataclass(frozen=True, slots=True)
class _TrajectoryStep:
    """A step of the trajectory: its key, the event it becomes, and its value."""

    key: str
    event: NewEvent
    value: JsonObject


def plan_swe_agent(
    path: Path,
    *,
    session_id: str | None = None,
    skip_bad: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> SessionsPlan:
    """What an import of this file would write.

    Args:
        session_id: Name of the session; the file's name without its ending if None.
        skip_bad: Leave malformed history entries and steps out instead of refusing the file.
        advance: Told the number of bytes read.

    Raises:
        BadSource: The file is no trajectory, or an entry is malformed and `skip_bad` is not set.
    """
    content, sha256 = read_whole(path)
    advance(len(content))
    try:
        value = parse_object(content)
        history = _array(value, "history")
        trajectory = _array(value, "trajectory")
    except Malformed as problem:
        raise BadSource(path.name, str(problem)) from problem
    bad: list[BadLine] = []
    messages = _read_all(history, "history entry", _message, bad)
    steps = _read_all(trajectory, "trajectory step", _step(history), bad)
    if bad and not skip_bad:
        raise BadSource(path.name, counted(len(bad), "malformed place"), lines=bad, skippable=True)
    info = value.get("info")
    facts = info if isinstance(info, dict) else {}
    version = optional_text(facts.get("swe_agent_version"))
    source = Source(path.name, FORMAT, version, sha256, len(content), tuple(bad))
    run_id = session_id or path.stem
    clock = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return SessionsPlan(
        source,
        (
            SessionPlan(
                manifest=_manifest(run_id, value, facts, messages, source),
                steps=tuple(_ordered(messages, steps)),
                summary=tuple(_summary(run_id, value, facts, steps, source, clock)),
                run_id=run_id,
            ),
        ),
    )


def whole_trajectory(
    messages: Sequence[Message], events: Sequence[tuple[str, JsonValue]]
) -> JsonObject:
    """The value of the file that these messages and these events' types and data came from."""
    history: list[JsonValue] = [entry_of_message(message) for message in messages]
    steps: list[JsonValue] = []
    whole: JsonObject = {"history": history, "trajectory": steps}
    for type_, data in events:
        kept = as_object(data, "data")
        if type_ == STEP_TYPE:
            steps.append(_with_messages(as_object(kept["value"], "value"), history))
        elif type_ == PART_TYPE:
            whole[as_text(kept["key"], "key")] = kept["value"]
    return whole


def entry_of_message(message: Message) -> JsonObject:
    """The history entry that became this message."""
    (entry,) = to_openai([message])
    kept = as_object(message.metadata["swe_agent"], "swe_agent")
    if kept["names_call"]:
        del entry["tool_call_id"]
    return entry


def _array(value: JsonObject, key: str) -> list[JsonValue]:
    found = value.get(key)
    if not isinstance(found, list):
        raise Malformed(f"no trajectory of SWE-agent: expected an array under {key!r}")
    return found


def _read_all(
    values: Sequence[JsonValue],
    unit: str,
    read: Callable[[int, JsonObject], T],
    bad: list[BadLine],
) -> list[T]:
    """Every value as `read` has it; the places of those that it refuses go to `bad`."""
    found = []
    for index, value in enumerate(values):
        try:
            found.append(read(index, as_object(value, "entry")))
        except (Malformed, ContractError) as problem:
            bad.append(BadLine(index + 1, str(problem), unit))
    return found


def _message(index: int, entry: JsonObject) -> _Entry:
    ids = entry.get("tool_call_ids")
    names_call = isinstance(ids, list) and len(ids) == 1 and "tool_call_id" not in entry
    stated = {**entry, "tool_call_id": ids[0]} if names_call and isinstance(ids, list) else entry
    if entry.get("content") is None and not entry.get("tool_calls"):
        raise Malformed("content: expected a string or an array, got none")
    (message,) = from_openai([stated])
    kept: JsonObject = {"number": index + 1, "names_call": names_call}
    metadata: JsonObject = {**message.metadata, "swe_agent": kept}
    key = digest_key(FORMAT, index + 1, _bytes_of(entry))
    return _Entry(key, msgspec.structs.replace(message, metadata=metadata), entry)


def _step(history: Sequence[JsonValue]) -> Callable[[int, JsonObject], _TrajectoryStep]:
    """A reader of steps; their messages become numbers where the history says the same."""

    def read(index: int, value: JsonObject) -> _TrajectoryStep:
        kept = dict(value)
        messages = value.get("messages")
        if isinstance(messages, list):
            kept["messages"] = [
                place if place < len(history) and history[place] == message else message
                for place, message in enumerate(messages)
            ]
        event = NewEvent(STEP_TYPE, {"number": index + 1, "value": kept})
        return _TrajectoryStep(
            digest_key(FORMAT, index + 1, b"step", _bytes_of(value)), event, value
        )

    return read


def _with_messages(value: JsonObject, history: Sequence[JsonValue]) -> JsonObject:
    """The inverse of what `_step` does to a step."""
    messages = value.get("messages")
    if not isinstance(messages, list):
        return value
    whole = [history[one] if isinstance(one, int) else one for one in messages]
    return {**value, "messages": whole}


def _ordered(entries: Sequence[_Entry], steps: Sequence[_TrajectoryStep]) -> Iterator[Step]:
    """The history in order, each step behind the answer to what it did."""
    waiting = list(steps)
    acted: _TrajectoryStep | None = None
    for entry in entries:
        if acted is not None and entry.message.role is Role.ASSISTANT:
            yield Step(acted.key, acted.event)
            acted = None
        yield Step(entry.key, entry.message)
        if waiting and _did(entry, waiting[0]):
            acted = waiting.pop(0)
    for step in ([] if acted is None else [acted]) + waiting:
        yield Step(step.key, step.event)


def _did(entry: _Entry, step: _TrajectoryStep) -> bool:
    """Whether a message of the history is the one that a step came from."""
    is_demo = entry.value.get("is_demo") is True
    same = entry.value.get("content") == step.value.get("response")
    return entry.message.role is Role.ASSISTANT and not is_demo and same


def _manifest(
    session_id: str,
    value: JsonObject,
    info: JsonObject,
    entries: Sequence[_Entry],
    source: Source,
) -> SessionManifest:
    problem = _at(value, "replay_config", "problem_statement")
    repository = _at(value, "replay_config", "env", "repo")
    facts: JsonObject = {
        "environment": value.get("environment"),
        "exit_status": info.get("exit_status"),
        "model_stats": info.get("model_stats"),
        "problem_id": problem.get("id"),
        "base_commit": repository.get("base_commit"),
        "repository": repository.get("repo_name"),
    }
    metadata: JsonObject = {
        "source": source.to_metadata(),
        "swe_agent": {key: fact for key, fact in facts.items() if fact is not None},
    }
    objective = optional_text(problem.get("text")) or _first_task(entries)
    return SessionManifest(
        session_id=session_id,
        active_branch=UNKNOWN,
        current_objective=objective or UNKNOWN,
        harness_version=FORMAT if source.version is None else f"{FORMAT} {source.version}",
        metadata=metadata,
    )


def _first_task(entries: Sequence[_Entry]) -> str | None:
    for entry in entries:
        if entry.message.role is Role.USER and entry.value.get("is_demo") is not True:
            return entry.message.content
    return None


def _summary(
    run_id: str,
    value: JsonObject,
    info: JsonObject,
    steps: Sequence[_TrajectoryStep],
    source: Source,
    clock: datetime,
) -> Iterator[Step]:
    """What is said about the whole run: the other parts of the file, and how it ended."""
    prefix = f"{FORMAT}.summary"
    for number, (key, part) in enumerate(value.items(), start=1):
        if key not in ("history", "trajectory"):
            event = NewEvent(PART_TYPE, {"key": key, "value": part})
            yield Step(digest_key(prefix, number, source.sha256.encode(), key.encode()), event)
    status, note = _outcome(info)
    yield Step(
        digest_key(prefix, 0, source.sha256.encode(), b"progress"),
        ProgressEntry(run_id=run_id, summary=_words(info, steps), created_at=clock),
    )
    checkpoint = RunCheckpoint(
        run_id=run_id,
        started_at=clock,
        completed_at=clock if optional_text(info.get("exit_status")) else None,
        status=status,
        note=f"{note}; the file states no times, this one is that of the file",
    )
    yield Step(digest_key(prefix, 0, source.sha256.encode(), b"checkpoint"), checkpoint)


def _outcome(info: JsonObject) -> tuple[RunStatus, str]:
    """What the file says about how the run ended; that its tests pass is not among it."""
    exit_status = optional_text(info.get("exit_status"))
    if exit_status is None:
        return RunStatus.IN_PROGRESS, "no exit status: whether the run ended is not in the file"
    if exit_status.startswith("submitted"):
        note = (
            f"exit status {exit_status!r}: whether what was submitted is right is not in the file"
        )
        return RunStatus.IN_PROGRESS, note
    return RunStatus.FAILED, f"exit status {exit_status!r}: nothing was submitted"


def _words(info: JsonObject, steps: Sequence[_TrajectoryStep]) -> str:
    times = [step.value.get("execution_time") for step in steps]
    known = [time for time in times if isinstance(time, int | float)]
    took = f", {sum(known):.1f} s in commands" if known else ""
    submission = optional_text(info.get("submission"))
    what = "" if submission is None else f", submission of {len(submission)} characters"
    return f"{counted(len(steps), 'step')}{took}{what}"


def _at(value: JsonObject, *keys: str) -> JsonObject:
    """The object at a path; empty if there is none."""
    for key in keys:
        inner = value.get(key)
        value = inner if isinstance(inner, dict) else {}
    return value


def _bytes_of(value: JsonValue) -> bytes:
    return json.dumps(value, sort_keys=True).encode("ascii")
