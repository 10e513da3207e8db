"""Claude Code's session files (JSON Lines) as sessions: one message per API message, nothing lost.

Lines of one `message.id` are merged in order, their blocks verbatim. A message keeps the rest of
its lines in its metadata and all other lines become events of a `claude_code.` type, so that
`lines_of_message` and `line_of_event` give back every line of the file. Sub-agents (agent progress
lines, lines with an `agentId`, side chains) become sessions of their own that name their parent.

A file may be imported while it is written, and its end may fall within an API message. What was
written then stays as it is: the message's later lines become a message of the same id, whose
metadata say in `claude_code.continues` at which line the API message began.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

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
from fmemory.messages import from_anthropic
from fmemory_tools.importers._claude_code_lines import (
    MESSAGE_TYPES,
    Line,
    Thread,
    api_of,
    read_line,
    rename_threads,
    threads_of,
)
from fmemory_tools.importers._lines import (
    Malformed,
    as_count,
    as_object,
    digest_key,
    json_lines,
    objects_in,
    optional_text,
    read_whole,
    split_unfinished,
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

FORMAT = "claude-code"
CHECKPOINT = f"{FORMAT}.checkpoint"
UNKNOWN = "unknown"

_COMMAND = re.compile(r"<command-name>\s*/?(.*?)\s*</command-name>", re.DOTALL)
_COMMAND_ARGUMENTS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)
_NOT_A_PROMPT = ("<local-command-", "<bash-", "<task-notification>", "[Request interrupted")
_INTERRUPTED = "[Request interrupted"
_NO_VERDICT = "whether the work succeeded is not in the file"
_FAILED_STATUSES = frozenset({"failed", "error", "cancelled", "killed"})


def plan_claude_code(
    path: Path,
    *,
    session_id: str | None = None,
    skip_bad: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> SessionsPlan:
    """What an import of this file would write.

    A last line that is still being written is left to the next import, and named in the source.

    Args:
        session_id: Name of the main session instead of the file's own.
        skip_bad: Leave malformed lines out instead of refusing the file.
        advance: Told the number of bytes of each line read.

    Raises:
        BadSource: A line is malformed and `skip_bad` is not set, or the file holds no session.
    """
    content, sha256 = read_whole(path)
    finished, unfinished = split_unfinished(content)
    bad: list[BadLine] = []
    lines: list[Line] = []
    for number, raw, value in json_lines(finished, bad, advance):
        try:
            lines.append(read_line(number, raw, value))
        except Malformed as problem:
            bad.append(BadLine(number, str(problem)))
    bad.sort(key=lambda line: line.number)
    if bad and not skip_bad:
        raise BadSource(
            path.name, counted(len(bad), "malformed line"), lines=bad, skippable=bool(lines)
        )
    if not lines:
        if unfinished is not None:
            bad.append(BadLine(unfinished, "not finished"))
        raise BadSource(path.name, "no line of a Claude Code session in it", lines=bad)
    version = _last_text(lines, "version")
    source = Source(path.name, FORMAT, version, sha256, len(content), tuple(bad), unfinished)
    clock = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    threads = threads_of(lines, fallback=path.stem)
    if session_id is not None:
        threads = rename_threads(threads, session_id, path.name)
    try:
        plans = tuple(_plan(thread, threads, source, clock) for thread in threads)
    except Malformed as problem:
        raise BadSource(path.name, str(problem)) from problem
    return SessionsPlan(source, plans)


def lines_of_message(message: Message) -> list[tuple[int, JsonObject]]:
    """Number and whole value of every line that was merged into `message`, as the file has them."""
    kept = as_object(message.metadata.get("claude_code"), "claude_code")
    lines: list[tuple[int, JsonObject]] = []
    blocks = list(message.blocks)
    for entry in objects_in(kept.get("lines")):
        count = as_count(entry["blocks"], "blocks")
        taken, blocks = blocks[:count], blocks[count:]
        content: JsonValue = taken
        if entry["text"]:
            content = as_object(taken[0], "block")["text"] if taken else message.content
        rest = as_object(entry["rest"], "rest")
        lines.append((as_count(entry["line"], "line"), _with_content(rest, content)))
    return lines


def line_of_event(data: JsonValue) -> tuple[int, JsonObject]:
    """Number and value of the line kept in the data of a `claude_code.` event."""
    kept = as_object(data, "data")
    return as_count(kept["line"], "line"), as_object(kept["value"], "value")


def _plan(
    thread: Thread, threads: Sequence[Thread], source: Source, clock: datetime
) -> SessionPlan:
    run_id = thread.session_id
    steps = tuple(_steps(thread, run_id, clock, ends=()))
    messages = [step.what for step in steps if isinstance(step.what, Message)]
    status, note, ended_at = _outcome(thread, messages, clock)
    checkpoint = RunCheckpoint(
        run_id=run_id,
        started_at=thread.began_at or clock,
        completed_at=ended_at,
        status=status,
        note=note,
    )
    key = digest_key(CHECKPOINT, thread.lines[-1].number, source.sha256.encode())
    return SessionPlan(
        manifest=_manifest(thread, threads, source),
        steps=steps,
        summary=(Step(key, checkpoint, thread.ended_at),),
        run_id=run_id,
        began_at=thread.began_at,
        steps_given=partial(_steps_given, thread, run_id, clock),
    )


def _steps_given(
    thread: Thread, run_id: str, clock: datetime, stored: Sequence[str]
) -> tuple[Step, ...]:
    """The steps, parted where earlier imports ended: each left a checkpoint that names its end."""
    checkpoints = (key.split(":") for key in stored if key.startswith(f"{CHECKPOINT}:"))
    ends = {int(number) for _, number, *_ in checkpoints}
    return tuple(_steps(thread, run_id, clock, ends=ends))


def _steps(
    thread: Thread, run_id: str, clock: datetime, *, ends: Collection[int]
) -> Iterator[Step]:
    """Messages, notes and progress in the order of the first line of each.

    Args:
        ends: Numbers of lines that no message goes on after: it continues in another.
    """
    began_at_line: dict[str, int] = {}
    time = thread.began_at or clock
    todos: list[JsonObject] = []
    for group in _groups(thread.lines, ends):
        line = group[0]
        time = line.time or time
        key = digest_key(FORMAT, line.number, *(one.raw for one in group))
        if line.api is None:
            yield Step(key, _event(line), line.time)
        else:
            message_id = _merged_id(line)
            began = began_at_line.setdefault(message_id, line.number) if message_id else line.number
            continues = began if began < line.number else None
            yield Step(key, _message(group, continues), line.time)
        for index, (summary, listed) in enumerate(_progress(group, todos)):
            todos = listed or todos
            yield Step(
                f"{key}:progress-{index}",
                ProgressEntry(run_id=run_id, summary=summary, created_at=time),
                line.time,
            )


def _groups(lines: Sequence[Line], ends: Collection[int]) -> Iterator[list[Line]]:
    """The lines of each step, ordered by the first of each; no group reaches past an end."""
    groups: dict[str, list[Line]] = {}
    order: list[list[Line]] = []
    for line in lines:
        message_id = _merged_id(line)
        if message_id is None:
            order.append([line])
        elif message_id in groups:
            groups[message_id].append(line)
        else:
            groups[message_id] = [line]
            order.append(groups[message_id])
        if line.number in ends:
            groups.clear()
    yield from order


def _merged_id(line: Line) -> str | None:
    """The id of the API message that the line is merged into, if it is of that sort."""
    if line.api is None or line.api["role"] != "assistant":
        return None
    return optional_text(line.api.get("id"))


def _event(line: Line) -> NewEvent:
    word = re.sub(r"[^A-Za-z0-9]+", "_", line.kind).strip("_").lower() or "line"
    return NewEvent(type=f"claude_code.{word}", data={"line": line.number, "value": line.value})


def _message(group: Sequence[Line], continues: int | None) -> Message:
    """The message of these lines.

    Args:
        continues: Number of the line at which an earlier message began that this one goes on from.
    """
    api = api_of(group[0])
    blocks: list[JsonValue] = []
    kept: list[JsonValue] = []
    text: str | None = None
    for line in group:
        stated = api_of(line)["content"]
        part: list[JsonValue] = stated if isinstance(stated, list) else []
        if isinstance(stated, str) and len(group) == 1:
            text = stated
        elif isinstance(stated, str):
            part = [{"type": "text", "text": stated}]
        blocks += part
        kept.append(
            {
                "line": line.number,
                "blocks": len(part),
                "text": isinstance(stated, str),
                "rest": _without(line),
            }
        )
    content: JsonValue = blocks if text is None else text
    facts: JsonObject = {"lines": kept}
    if continues is not None:
        facts["continues"] = continues
    try:
        (message,) = from_anthropic([{"role": api["role"], "content": content}])
    except ContractError as error:
        raise Malformed(f"line {group[0].number}: {error}") from error
    return Message(
        role=message.role,
        content=message.content,
        blocks=message.blocks,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        is_error=message.is_error or group[0].value.get("isApiErrorMessage") is True,
        id=optional_text(api.get("id")) or group[0].uuid,
        created_at=group[0].time,
        metadata={**message.metadata, "claude_code": facts},
    )


def _without(line: Line) -> JsonObject:
    """The line's value without the content of its API message."""
    value = line.value
    if line.kind in MESSAGE_TYPES:
        return {**value, "message": _contentless(value["message"])}
    data = as_object(value["data"], "data")
    inner = as_object(data["message"], "data.message")
    inner = {**inner, "message": _contentless(inner["message"])}
    return {**value, "data": {**data, "message": inner}}


def _contentless(message: JsonValue) -> JsonObject:
    return {key: value for key, value in as_object(message, "message").items() if key != "content"}


def _with_content(rest: JsonObject, content: JsonValue) -> JsonObject:
    """The inverse of `_without`."""
    if "message" in rest:
        message = as_object(rest["message"], "message")
        return {**rest, "message": {**message, "content": content}}
    data = as_object(rest["data"], "data")
    return {
        **rest,
        "data": {
            **data,
            "message": _with_content(as_object(data["message"], "data.message"), content),
        },
    }


def _progress(
    group: Sequence[Line], todos: list[JsonObject]
) -> Iterator[tuple[str, list[JsonObject]]]:
    """What the lines say about how far the work is: text, and the todo list if it is a new one."""
    for line in group:
        value = line.value
        if line.kind == "summary" and isinstance(value.get("summary"), str):
            yield f"summary: {value['summary']}", []
        if value.get("isCompactSummary") is True and line.api is not None:
            yield f"summary: {_text_of(line.api['content'])}", []
        result = value.get("toolUseResult")
        if isinstance(result, dict) and "agentId" in result and "status" in result:
            yield f"sub-agent {result['agentId']} reported {result['status']}", []
        for listed in _todo_lists(line):
            if listed != todos:
                todos = listed
                yield _todo_text(listed), listed


def _todo_lists(line: Line) -> Iterator[list[JsonObject]]:
    found = [objects_in(line.value.get("todos"))]
    for block in objects_in(None if line.api is None else line.api["content"]):
        arguments = block.get("input")
        if block.get("name") == "TodoWrite" and isinstance(arguments, dict):
            found.append(objects_in(arguments.get("todos")))
    yield from (todos for todos in found if todos)


def _todo_text(todos: Sequence[JsonObject]) -> str:
    done = sum(item.get("status") == "completed" for item in todos)
    now = next((item for item in todos if item.get("status") == "in_progress"), None)
    text = f"todos: {done} of {len(todos)} done"
    return text if now is None else f"{text}; now: {now.get('content')}"


def _manifest(thread: Thread, threads: Sequence[Thread], source: Source) -> SessionManifest:
    lines = thread.lines
    facts: JsonObject = {
        "cwd": _last_text(lines, "cwd"),
        "branches": _distinct(lines, "gitBranch"),
        "versions": _distinct(lines, "version"),
        "models": _models(lines),
        "began_at": thread.began_at.isoformat() if thread.began_at else None,
        "ended_at": thread.ended_at.isoformat() if thread.ended_at else None,
    }
    metadata: JsonObject = {"source": source.to_metadata(), "claude_code": facts}
    if thread.parent is not None:
        metadata["parent_session_id"] = thread.parent.session_id
        metadata["agent_id"] = thread.agent_id
        metadata["parent_tool_call_id"] = _last_text(lines, "parentToolUseID")
    children: list[JsonValue] = [one.session_id for one in threads if one.parent is thread]
    if children:
        metadata["sub_agent_session_ids"] = children
    version = _last_text(lines, "version")
    return SessionManifest(
        session_id=thread.session_id,
        active_branch=_last_text(lines, "gitBranch") or UNKNOWN,
        current_objective=_objective(lines) or UNKNOWN,
        harness_version=FORMAT if version is None else f"{FORMAT} {version}",
        metadata=metadata,
    )


def _objective(lines: Sequence[Line]) -> str | None:
    """The first thing that a person, or the parent of a sub-agent, asked for."""
    for line in lines:
        if line.api is None or line.api["role"] != "user" or line.is_meta:
            continue
        text = _text_of(line.api["content"]).strip()
        command = _COMMAND.search(text)
        if command is not None:
            arguments = _COMMAND_ARGUMENTS.search(text)
            if arguments is not None and arguments.group(1):
                return f"/{command.group(1)} {arguments.group(1)}"
        elif text and not text.startswith(_NOT_A_PROMPT):
            return text
    return None


def _text_of(content: JsonValue) -> str:
    if isinstance(content, str):
        return content
    texts = [one.get("text") for one in objects_in(content) if one.get("type") == "text"]
    return "\n".join(str(text) for text in texts)


def _outcome(
    thread: Thread, messages: Sequence[Message], clock: datetime
) -> tuple[RunStatus, str, datetime | None]:
    """How the run ended and when, as far as the file says; success is not among what it says."""
    report = _report_of(thread)
    if report is not None:
        stated = as_object(report.value["toolUseResult"], "toolUseResult").get("status")
        note, ended_at = f"the sub-agent reported {stated}", report.time or clock
        if stated in _FAILED_STATUSES:
            return RunStatus.FAILED, note, ended_at
        return RunStatus.IN_PROGRESS, f"{note}; {_NO_VERDICT}", ended_at
    if messages and messages[-1].role is Role.ASSISTANT and messages[-1].is_error:
        return RunStatus.FAILED, "ends with an API error", thread.ended_at or clock
    return RunStatus.IN_PROGRESS, f"{_last_words(messages)}; {_NO_VERDICT}", None


def _last_words(messages: Sequence[Message]) -> str:
    if not messages:
        return "no message in the file"
    last = messages[-1]
    if last.role is Role.ASSISTANT:
        return "ends with a tool call" if last.tool_calls else "ends with the assistant's answer"
    if last.content.startswith(_INTERRUPTED):
        return "ends with an interruption by the user"
    return "ends before the assistant answered"


def _report_of(thread: Thread) -> Line | None:
    """The line in which the parent got the result of this sub-agent."""
    for line in reversed(thread.parent.lines if thread.parent is not None else []):
        result = line.value.get("toolUseResult")
        if isinstance(result, dict) and result.get("agentId") == thread.agent_id:
            return line if optional_text(result.get("status")) is not None else None
    return None


def _last_text(lines: Sequence[Line], key: str) -> str | None:
    found = (optional_text(line.value.get(key)) for line in reversed(lines))
    return next((one for one in found if one is not None), None)


def _distinct(lines: Sequence[Line], key: str) -> list[JsonValue]:
    found = (optional_text(line.value.get(key)) for line in lines)
    return list(dict.fromkeys(one for one in found if one is not None))


def _models(lines: Sequence[Line]) -> list[JsonValue]:
    found = (optional_text(line.api.get("model")) for line in lines if line.api is not None)
    return list(dict.fromkeys(one for one in found if one is not None))
