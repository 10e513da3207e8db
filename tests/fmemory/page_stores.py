"""Stores to make pages of: a long session, and some that would break a careless page."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import fmemory
from fmemory import (
    FeatureRecord,
    LogBackend,
    LogSession,
    Message,
    NewEvent,
    ProgressEntry,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
    ToolCall,
)

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
TEXT = (
    "the parser reads a token and then the next one until nothing is left of the line that it was"
    " given so the test that failed before should pass once the buffer is flushed in time"
)
WORDS = TEXT.split()
TOOLS = ("bash", "read_file", "edit_file", "run_tests")
CODE = "def flush(buffer: list[str]) -> str:\n    text = ''.join(buffer)\n    return text\n"


def long_session(memory: LogBackend, event_count: int, *, seed: int = 7) -> None:
    """A session `build` of exactly so many events in runs of about 400, the last one unfinished."""
    chance = random.Random(seed)
    session = memory.session("build")
    features = [FeatureRecord(f"feature-{one}", "core", _text(chance, 8)) for one in range(12)]
    with fmemory.audit(actor="ada", occurred_at=START):
        session.initialize_session_if_missing(
            SessionManifest("build", "main", "make every feature of the parser pass its tests"),
            features,
        )
    written, run, at = 1, 0, START
    while written < event_count:
        run += 1
        length = min(400, event_count - written)
        is_last = written + length >= event_count
        with fmemory.audit(actor=("ada", "bob")[run % 2], run_id=f"run-{run:02}"):
            at = _run(session, chance, f"run-{run:02}", at, length, is_last=is_last)
        written += length
        at += timedelta(minutes=40)


def _run(
    session: LogSession,
    chance: random.Random,
    run_id: str,
    at: datetime,
    length: int,
    *,
    is_last: bool,
) -> datetime:
    started_at = at
    with fmemory.audit(occurred_at=at):
        session.record_run_checkpoint(RunCheckpoint(run_id, started_at))
    waiting: str | None = None
    for number in range(length - 2 + is_last):
        at += timedelta(seconds=chance.randint(1, 20))
        with fmemory.audit(occurred_at=at):
            waiting = _event(session, chance, f"{run_id}-{number}", waiting)
    if not is_last:
        status = RunStatus.SUCCEEDED if chance.random() < 0.6 else RunStatus.FAILED
        ended = RunCheckpoint(run_id, started_at, at, status, note=_text(chance, 9))
        with fmemory.audit(occurred_at=at):
            session.record_run_checkpoint(ended)
    return at


def _event(
    session: LogSession, chance: random.Random, call_id: str, waiting: str | None
) -> str | None:
    """One event: the answer to the call that waits, else something new; a call that then waits."""
    if waiting is not None:
        text, failed = _output(chance)
        answer = Message("tool", text, tool_call_id=waiting, is_error=failed)
        session.append_transcript_messages([answer])
        return None
    kind = chance.random()
    if kind < 0.75:
        call = ToolCall(call_id, chance.choice(TOOLS), _arguments(chance))
        said = _text(chance, chance.randint(0, 40))
        session.append_transcript_messages([Message("assistant", said, tool_calls=[call])])
        return call.id
    if kind < 0.82:
        session.append([NewEvent("harness.tick", {"tokens": chance.randint(1, 9999)})])
    elif kind < 0.87:
        session.append_progress_entry(ProgressEntry(call_id.rpartition("-")[0], _text(chance, 14)))
    elif kind < 0.9:
        with fmemory.audit(reason=_text(chance, 5)):
            _flip(session, chance)
    else:
        said = f"{_text(chance, 60)}\n```python\n{CODE}```\n"
        session.append_transcript_messages([Message("assistant", said)])
    return None


def _flip(session: LogSession, chance: random.Random) -> None:
    features = session.load_bootstrap_state().feature_list
    passing = [one for one in features if one.passes]
    failing = [one for one in features if not one.passes]
    if passing and (not failing or chance.random() < 0.3):
        session.update_feature_pass(chance.choice(passing).id, False)
    else:
        session.update_feature_pass(chance.choice(failing).id, True)


def _arguments(chance: random.Random) -> dict[str, fmemory.JsonValue]:
    return {"path": f"src/{chance.choice(WORDS)}.py", "command": _text(chance, 6)}


def _output(chance: random.Random) -> tuple[str, bool]:
    if chance.random() < 0.06:
        return f"Traceback (most recent call last):\n  {_text(chance, 12)}\nValueError: no", True
    lines = [f"{number:4}  {_text(chance, 9)}" for number in range(chance.randint(1, 25))]
    return "\n".join(lines), False


def _text(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(WORDS, k=count))


HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 2</script>",
    "<!--<script>",
    "]]></script><svg onload='window.pwned = 3'>",
    '<img src=x onerror="window.pwned = 4">',
    '<iframe srcdoc="<script>parent.pwned = 5</script>"></iframe>',
    '<a href="javascript:window.pwned = 6">a link</a> javascript:window.pwned=7',
    "</title></style></textarea><base href=https://example.invalid/>",
    '<meta http-equiv=refresh content="0;url=https://example.invalid/">',
    "{{data}} {{script}} ${window.pwned = 8} `${window.pwned = 9}`",
    "&lt;b&gt; &#60;script&#62; \\u003cscript\\u003e",
    "\u202eright to left\u202c \u2066isolated\u2069 \u200bhidden\U000e0041 \x00\x1b[31m\x07\x9b",
    "__proto__",
    "constructor",
    "\u2028line\u2029paragraph",
)
"""Texts that would run, load, end or hide something where they are taken for more than text."""


def hostile_session(memory: LogBackend) -> None:
    """A session in whose every field, name and message such texts stand."""
    session = memory.session("</script><script>window.pwned = 10</script>")
    features = [FeatureRecord(one, one, one, steps=(one, one)) for one in HOSTILE]
    manifest = SessionManifest(session.id, HOSTILE[0], HOSTILE[1], metadata=dict.fromkeys(HOSTILE))
    session.initialize_session_if_missing(manifest, features)
    for one in HOSTILE:
        with fmemory.audit(actor=one, run_id=one, reason=one):
            session.record_run_checkpoint(RunCheckpoint(one, START, note=one))
            session.append_progress_entry(ProgressEntry(one, one))
            session.update_feature_pass(one, True)
            session.append_transcript_messages(_hostile_messages(one))
            session.append([NewEvent("hostile.<b>", {one: one, "nested": [{one: [one]}]})])
            memory.add_note(one, [1.0], id=one, namespace=("</script>",))
            memory.append((one, one), [NewEvent(f"{one[:150]}.x", {one: one})])


def _hostile_messages(text: str) -> list[Message]:
    call = ToolCall(text, text, {text: text})
    blocks: list[fmemory.JsonValue] = [
        {"type": "text", "text": text},
        {"type": "thinking", "thinking": text},
        {"type": "tool_result", "tool_use_id": text, "content": text},
        {"type": "image", "source": {"media_type": text, "data": text}},
        {"type": text, text: text},
    ]
    return [
        Message("user", text, name=text),
        Message("assistant", text, tool_calls=[call]),
        Message("tool", text, tool_call_id=text, is_error=True),
        Message("assistant", text, blocks=blocks, metadata={text: text}),
    ]


ODD_BLOCKS: tuple[fmemory.JsonValue, ...] = (
    {"type": "tool_use"},
    {"type": "tool_use", "id": 7, "name": {"a": 1}, "input": [1, None]},
    {"type": "tool_use", "id": "c9", "name": "bash", "input": "ls"},
    {"type": "tool_result"},
    {"type": "tool_result", "tool_use_id": ["x"], "content": [7, {"type": "image"}, "text"]},
    {"type": "tool_result", "tool_use_id": "c9", "content": {"a": 1}, "is_error": "yes"},
    {"type": "text", "text": None},
    {"type": "thinking", "thinking": []},
    {"type": "image", "source": "nowhere"},
    {"type": ["list"]},
    {"__proto__": {"polluted": True}, "toString": 1},
    [],
    None,
    0,
)
MEGABYTE = "a line of a very long answer, number {}\n"


def odd_sessions(memory: LogBackend) -> None:
    """Sessions as they come to be when things go wrong, or are done in unusual ways.

    `gone` was deleted, erased and begun anew; `bare` has no manifest, an unfinished run, the
    caller's own events and a message of a megabyte; `copy` is a fork of it; `blocks` has blocks of
    shapes that no provider writes; `lone` put records in a run of no session.
    """
    gone = memory.session("gone")
    gone.initialize_session_if_missing(
        SessionManifest("gone", "main", "be forgotten"), [FeatureRecord("secret", "core", "none")]
    )
    gone.append_transcript_messages([Message("user", "a secret")])
    gone.delete()
    memory.compact()
    gone.append_transcript_messages([Message("user", "a new beginning")])
    bare = memory.session("bare")
    with fmemory.audit(run_id="half"):
        bare.record_run_checkpoint(RunCheckpoint("half", START))
        call = ToolCall("c1", "bash", {"command": "true", "big": 2**63 - 1})
        bare.append_transcript_messages([Message("assistant", tool_calls=[call])])
        bare.append([NewEvent("odd.bytes", b"\x00\xff"), NewEvent("odd.null"), NewEvent("odd.", 7)])
    lines = [MEGABYTE.format(number) for number in range(25_000)]
    bare.append_transcript_messages([Message("user", "".join(lines)), Message("user")])
    bare.fork("copy")
    bare.truncate_transcript(keep=1)
    for block in ODD_BLOCKS:
        memory.session("blocks").append_transcript_messages([Message("user", blocks=[block])])
    with fmemory.audit(run_id="lone"):
        memory.add_note("nobody's note", [1.0], id="n1")


def of_page(told: Any) -> Any:
    """A report as plain data as a page has it: what its errors said stands in their events."""
    return {**told, "errors": [one["seq"] for one in told["errors"]]}
