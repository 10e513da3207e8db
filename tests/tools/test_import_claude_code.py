"""Every line of a Claude Code session file is in the store, and can be had back exactly.

What is expected is computed here from the raw file, by other means than the importer's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fmemory
from fmemory import LogBackend, Message, RunStatus
from fmemory.replay import report
from fmemory_tools.importers.apply import Differs, apply_sessions
from fmemory_tools.importers.claude_code import (
    line_of_event,
    lines_of_message,
    plan_claude_code,
)
from fmemory_tools.importers.plan import BadSource

FILES = ["claude-code-short", "claude-code-subagent", "claude-code-tool-heavy"]
SHORT = "55604662-cf2a-4331-851a-ec234028f8ca"
PARENT = "491e126e-1e71-469c-ade2-fcc8af567c74"
AGENT = f"{PARENT}.agent-afb92ff"


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, data: Path) -> Path:
    return data / "runs" / f"{request.param}.jsonl"


@pytest.fixture
def memory(file: Path) -> Iterator[LogBackend]:
    """A memory with the whole file in it."""
    with fmemory.open(":memory:") as memory:
        apply_sessions(memory, plan_claude_code(file))
        yield memory


def raw_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


def api_message(line: dict[str, Any]) -> dict[str, Any] | None:
    """The API message of a line: its own, or that of a sub-agent."""
    if line["type"] in ("user", "assistant"):
        return dict(line["message"])
    if line["type"] == "progress" and line["data"]["type"] == "agent_progress":
        return dict(line["data"]["message"]["message"])
    return None


def all_messages(memory: LogBackend) -> Iterator[Message]:
    for info in memory.list_sessions().sessions:
        yield from memory.load_transcript_messages(info.session_id)


def main_id(file: Path) -> str:
    """The name that Claude Code gives to this file."""
    return next(str(line["sessionId"]) for line in raw_lines(file) if "sessionId" in line)


def seen_after(file: Path, ends: Iterable[int], lines: list[bytes]) -> dict[str, object]:
    """What a memory tells after imports of the first lines of a file, up to each of these ends."""
    with fmemory.open(":memory:") as memory:
        for end in ends:
            file.write_bytes(b"".join(lines[:end]))
            apply_sessions(memory, plan_claude_code(file))
        before = memory.head()
        apply_sessions(memory, plan_claude_code(file))
        assert memory.head() == before
        return seen(memory)


def seen(memory: LogBackend) -> dict[str, object]:
    """Blocks, lines, calls, failures, manifests and progress, however messages are parted."""
    told: dict[str, object] = {}
    for info in memory.list_sessions().sessions:
        lines: list[tuple[int, object]] = []
        blocks: dict[str, list[object]] = {}
        calls: list[object] = []
        for message in memory.load_transcript_messages(info.session_id):
            lines += lines_of_message(message)
            blocks.setdefault(str(message.id), []).extend(message.blocks or [message.content])
            calls += message.tool_calls
        for event in memory.events(stream=("session", info.session_id)):
            if event.type.startswith("claude_code."):
                assert not isinstance(event.data, bytes)
                lines.append(line_of_event(event.data))
        found = report(memory, info.session_id)
        state = memory.load_bootstrap_state(info.session_id)
        told[info.session_id] = (
            sorted(lines, key=lambda line: line[0]),
            blocks,
            calls,
            found.first_error and (found.first_error.tool, found.first_error.words),
            found.tool_error_count,
            state.manifest,
            [entry.summary for entry in state.recent_progress],
            state.checkpoints[-1].note,
        )
    return told


def test_every_line_of_the_file_can_be_had_back(file: Path, memory: LogBackend) -> None:
    found: dict[int, object] = {}
    for message in all_messages(memory):
        found.update(lines_of_message(message))
    for event in memory.events(stream_prefix=("session",)):
        if event.type.startswith("claude_code."):
            assert not isinstance(event.data, bytes)
            number, value = line_of_event(event.data)
            found[number] = value

    assert [found[number] for number in sorted(found)] == raw_lines(file)


def test_every_block_is_in_a_message_verbatim_and_in_order(file: Path, memory: LogBackend) -> None:
    expected: dict[str, list[Any]] = {}
    for number, line in enumerate(raw_lines(file)):
        message = api_message(line)
        if message is not None and isinstance(message["content"], list):
            expected.setdefault(message.get("id") or f"line {number}", []).extend(
                message["content"]
            )

    found = [list(message.blocks) for message in all_messages(memory) if message.blocks]
    key = json.dumps
    assert sorted(map(key, found)) == sorted(map(key, expected.values()))


def test_there_is_one_message_for_each_message_of_the_api(file: Path, memory: LogBackend) -> None:
    assistants, others = set(), 0
    for line in raw_lines(file):
        message = api_message(line)
        if message is not None and message["role"] == "assistant":
            assistants.add(message["id"])
        others += message is not None and message["role"] == "user"

    found = Counter(message.role.value for message in all_messages(memory))
    assert found == {"assistant": len(assistants), "user": others}


def test_every_other_line_is_an_event_of_its_type(file: Path, memory: LogBackend) -> None:
    expected = Counter(
        "claude_code." + line["type"].replace("-", "_")
        for line in raw_lines(file)
        if api_message(line) is None
    )

    events = memory.events(stream_prefix=("session",))
    found = Counter(event.type for event in events if event.type.startswith("claude_code."))
    assert found == expected


def test_events_carry_the_times_of_their_lines(file: Path, memory: LogBackend) -> None:
    lines = raw_lines(file)
    for event in memory.events(stream_prefix=("session",)):
        if event.type.startswith("claude_code.") and not isinstance(event.data, bytes):
            number, _ = line_of_event(event.data)
            line = lines[number - 1]
            stamp = line.get("timestamp") or line["snapshot"]["timestamp"]
            assert event.occurred_at == datetime.fromisoformat(stamp)


def test_tool_results_keep_whether_they_are_errors(file: Path, memory: LogBackend) -> None:
    expected = 0
    for line in raw_lines(file):
        content = (api_message(line) or {}).get("content")
        for block in content if isinstance(content, list) else []:
            expected += block.get("is_error") is True

    assert sum(message.is_error for message in all_messages(memory)) == expected


def test_the_same_file_twice_adds_nothing(file: Path, memory: LogBackend) -> None:
    before = memory.head()

    outcomes = apply_sessions(memory, plan_claude_code(file))

    assert [outcome.events for outcome in outcomes] == [0] * len(outcomes)
    assert memory.head() == before


def test_the_manifest_says_what_the_file_says(data: Path) -> None:
    (session,) = plan_claude_code(data / "runs" / "claude-code-short.jsonl").sessions

    manifest = session.manifest
    assert manifest.session_id == SHORT
    assert manifest.current_objective == "mix phx.server doesnt seem to start"
    assert manifest.active_branch == "master"
    assert manifest.harness_version == "claude-code 2.1.38"
    source = manifest.metadata["source"]
    assert isinstance(source, dict)
    assert source["name"] == "claude-code-short.jsonl"
    assert source["format"] == "claude-code"
    assert source["version"] == "2.1.38"


def test_a_command_with_arguments_is_an_objective(data: Path) -> None:
    session = plan_claude_code(data / "runs" / "claude-code-subagent.jsonl").sessions[0]

    assert session.manifest.current_objective.startswith(
        "/handgemacht:create-beads websearch to learn how to fastest setup credo"
    )


def test_a_sub_agent_is_a_session_that_names_its_parent(data: Path) -> None:
    file = data / "runs" / "claude-code-subagent.jsonl"
    expected = {
        line["data"]["message"]["message"].get("id") or line["uuid"]
        for line in raw_lines(file)
        if line["type"] == "progress" and line["data"]["type"] == "agent_progress"
    }

    with fmemory.open(":memory:") as memory:
        apply_sessions(memory, plan_claude_code(file))
        manifest = memory.load_bootstrap_state(AGENT).manifest
        messages = memory.load_transcript_messages(AGENT)
        parent = memory.load_bootstrap_state(PARENT).manifest

    assert manifest is not None and parent is not None
    assert manifest.metadata["parent_session_id"] == PARENT
    assert parent.metadata["sub_agent_session_ids"] == [AGENT]
    assert len(messages) == len(expected) == 15


@pytest.mark.parametrize("session_id", [SHORT, PARENT, AGENT])
def test_a_checkpoint_never_claims_success(session_id: str, data: Path) -> None:
    plans = [plan_claude_code(data / "runs" / f"{name}.jsonl") for name in FILES]
    (plan,) = (
        one for plan in plans for one in plan.sessions if one.manifest.session_id == session_id
    )

    (step,) = plan.summary
    assert isinstance(step.what, fmemory.RunCheckpoint)
    assert step.what.status is RunStatus.IN_PROGRESS
    assert "not in the file" in (step.what.note or "")


def test_a_file_that_has_grown_adds_only_its_new_part(data: Path, tmp_path: Path) -> None:
    whole = (data / "runs" / "claude-code-tool-heavy.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    grown = tmp_path / "run.jsonl"
    grown.write_bytes(b"".join(lines[:20]))
    with fmemory.open(":memory:") as memory, fmemory.open(":memory:") as other:
        apply_sessions(memory, plan_claude_code(grown))
        grown.write_bytes(whole)

        (outcome,) = apply_sessions(memory, plan_claude_code(grown))

        apply_sessions(other, plan_claude_code(grown))
        id_ = outcome.session_id
        assert 0 < outcome.messages < 17
        assert memory.load_transcript_messages(id_) == other.load_transcript_messages(id_)
        state = memory.load_bootstrap_state(id_)
        assert state.manifest == other.load_bootstrap_state(id_).manifest
        assert len(state.checkpoints) == 2


def test_a_file_can_be_cut_after_a_line_and_catches_up(file: Path, tmp_path: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    grown = tmp_path / f"{main_id(file)}.jsonl"
    whole = seen_after(grown, [len(lines)], lines)

    # Of a long file every third: the test below ends an import after each line.
    for end in range(1, len(lines), 3 if len(lines) > 40 else 1):
        assert seen_after(grown, [end, len(lines)], lines) == whole, end


def test_a_file_that_is_imported_after_every_line_has_all_of_it(file: Path, tmp_path: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    grown = tmp_path / f"{main_id(file)}.jsonl"

    by_line = seen_after(grown, range(1, len(lines) + 1), lines)

    assert by_line == seen_after(grown, [len(lines)], lines)


@pytest.mark.parametrize("left", [1, 300])
def test_a_line_that_is_not_finished_waits_for_the_next_import(
    left: int, file: Path, tmp_path: Path
) -> None:
    content = file.read_bytes()
    lines = content.splitlines(keepends=True)
    grown = tmp_path / f"{main_id(file)}.jsonl"
    whole = seen_after(grown, [len(lines)], lines)

    for end in range(2, len(lines), 5):
        cut = b"".join(lines[:end]) + lines[end][: min(left, len(lines[end]) - 2)]
        with fmemory.open(":memory:") as memory:
            grown.write_bytes(cut)
            plan = plan_claude_code(grown)
            assert plan.source.unfinished == end + 1
            assert plan.source.skipped == ()
            apply_sessions(memory, plan)
            grown.write_bytes(content)
            apply_sessions(memory, plan_claude_code(grown))
            assert seen(memory) == whole


def test_the_rest_of_a_message_is_a_message_that_continues_it(data: Path, tmp_path: Path) -> None:
    lines = (data / "runs" / "claude-code-short.jsonl").read_bytes().splitlines(keepends=True)
    grown = tmp_path / "run.jsonl"
    with fmemory.open(":memory:") as memory:
        grown.write_bytes(b"".join(lines[:6]))
        apply_sessions(memory, plan_claude_code(grown))
        grown.write_bytes(b"".join(lines))
        apply_sessions(memory, plan_claude_code(grown))
        _, first, rest, *_ = memory.load_transcript_messages(SHORT)

    assert first.id == rest.id is not None
    assert [number for number, _ in lines_of_message(first)] == [5, 6]
    assert [number for number, _ in lines_of_message(rest)] == [7, 8, 10]
    kept = rest.metadata["claude_code"]
    assert isinstance(kept, dict)
    assert kept["continues"] == 5


def test_a_message_that_an_earlier_import_cut_must_still_begin_as_it_did(
    data: Path, tmp_path: Path
) -> None:
    lines = (data / "runs" / "claude-code-short.jsonl").read_bytes().splitlines(keepends=True)
    grown = tmp_path / "run.jsonl"
    with fmemory.open(":memory:") as memory:
        grown.write_bytes(b"".join(lines[:6]))
        apply_sessions(memory, plan_claude_code(grown))
        before = memory.head()
        grown.write_bytes(b"".join([*lines[:5], *lines[6:]]))

        with pytest.raises(Differs, match="differs from it at line 5"):
            apply_sessions(memory, plan_claude_code(grown))

        assert memory.head() == before


def test_an_older_version_of_a_file_adds_nothing(data: Path, tmp_path: Path) -> None:
    whole = (data / "runs" / "claude-code-tool-heavy.jsonl").read_bytes()
    file = tmp_path / "run.jsonl"
    file.write_bytes(whole)
    with fmemory.open(":memory:") as memory:
        apply_sessions(memory, plan_claude_code(file))
        before = memory.head()
        file.write_bytes(b"".join(whole.splitlines(keepends=True)[:20]))

        apply_sessions(memory, plan_claude_code(file))

        assert memory.head() == before


def test_a_deleted_session_can_be_imported_again(data: Path) -> None:
    plan = plan_claude_code(data / "runs" / "claude-code-short.jsonl")
    with fmemory.open(":memory:") as memory:
        apply_sessions(memory, plan)
        first = memory.load_transcript_messages(SHORT)
        memory.delete_session(SHORT)

        (outcome,) = apply_sessions(memory, plan)

        assert outcome.created
        assert memory.load_transcript_messages(SHORT) == first


def test_lines_that_carry_no_session_belong_to_the_one_around(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(
        '{"type":"summary","summary":"all went well","leafUuid":"u"}\n'
        '{"type":"user","sessionId":"s","timestamp":"2026-01-01T00:00:00Z",'
        '"message":{"role":"user","content":"go"}}\n'
    )

    (session,) = plan_claude_code(file).sessions

    assert session.session_id == "s"
    assert [type(step.what).__name__ for step in session.steps] == [
        "NewEvent",
        "ProgressEntry",
        "Message",
    ]
    assert session.began_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_side_chain_without_agent_id_is_a_session_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"

    def line(uuid: str, parent: str | None, side: bool, role: str) -> str:
        message = {"role": role, "content": f"from {uuid}", "id": uuid}
        return json.dumps(
            {
                "type": role,
                "sessionId": "s",
                "uuid": uuid,
                "parentUuid": parent,
                "isSidechain": side,
                "message": message,
            }
        )

    file.write_text(
        "\n".join(
            [
                line("aaaaaaaa1", None, False, "user"),
                line("bbbbbbbb1", None, True, "user"),
                line("bbbbbbbb2", "bbbbbbbb1", True, "assistant"),
                line("aaaaaaaa2", "aaaaaaaa1", False, "assistant"),
            ]
        )
    )

    sessions = plan_claude_code(file).sessions

    assert [session.session_id for session in sessions] == ["s", "s.agent-bbbbbbbb"]
    assert [len(session.steps) for session in sessions] == [2, 2]


def test_todo_lists_are_progress_and_only_when_they_change(tmp_path: Path) -> None:
    todos = [{"content": "one", "status": "completed"}, {"content": "two", "status": "in_progress"}]
    user: dict[str, object] = {"type": "user", "sessionId": "s", "todos": todos}
    user["message"] = {"role": "user", "content": "go"}
    file = tmp_path / "run.jsonl"
    file.write_text(f"{json.dumps(user)}\n{json.dumps(user)}\n")

    (session,) = plan_claude_code(file).sessions

    entries = [step.what for step in session.steps if isinstance(step.what, fmemory.ProgressEntry)]
    assert [entry.summary for entry in entries] == ["todos: 1 of 2 done; now: two"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[1]", "expected a JSON object, got an array"),
        ('{"type": 1}', "type: expected a string"),
        ('{"type": "user"}', "message: expected an object"),
        ('{"type": "user", "message": {"role": "assistant", "content": ""}}', "message.role"),
        ('{"type": "user", "message": {"role": "user", "content": 1}}', "message.content"),
        ('{"type": "system", "timestamp": "yesterday"}', "timestamp: expected an RFC 3339 time"),
        ('{"type": "system", "content": "\\ud800"}', "half of a surrogate pair"),
        ('{"type": "system", "level": NaN}', "NaN is not JSON"),
        ('{"type": "system", "level": 1e999}', "out of range"),
        ('{"type": "system", "level": 1180591620717411303424}', "more than 64 bits"),
    ],
)
def test_a_malformed_line_is_named_and_refused(line: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    good = '{"type":"user","sessionId":"s","message":{"role":"user","content":"go"}}'
    file.write_text(f"{good}\n{line}\n{good}\n")

    with pytest.raises(BadSource) as caught:
        plan_claude_code(file)

    (bad,) = caught.value.lines
    assert bad.number == 2
    assert problem in bad.problem
    assert len(plan_claude_code(file, skip_bad=True).sessions[0].steps) == 2
