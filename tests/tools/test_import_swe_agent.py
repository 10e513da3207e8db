"""A trajectory of SWE-agent is in the store whole, and nothing is claimed that is not in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fmemory
from fmemory import LogBackend, RunCheckpoint, RunStatus
from fmemory_tools.importers.apply import apply_sessions
from fmemory_tools.importers.plan import BadSource
from fmemory_tools.importers.swe_agent import plan_swe_agent, whole_trajectory

FILES = ["swe-agent-ctf-katy", "swe-agent-marshmallow-1867"]


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, data: Path) -> Path:
    return data / "runs" / f"{request.param}.traj"


@pytest.fixture
def memory(file: Path) -> Iterator[LogBackend]:
    """A memory with the whole file in it."""
    with fmemory.open(":memory:") as memory:
        apply_sessions(memory, plan_swe_agent(file))
        yield memory


def raw(file: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(file.read_bytes())
    return value


def test_the_whole_file_can_be_had_back(file: Path, memory: LogBackend) -> None:
    events = [
        (event.type, event.data)
        for event in memory.events(types=("swe_agent.step", "swe_agent.part"))
        if not isinstance(event.data, bytes)
    ]
    messages = memory.load_transcript_messages(file.stem)

    assert whole_trajectory(messages, events) == raw(file)


def test_the_transcript_is_the_history(file: Path, memory: LogBackend) -> None:
    messages = memory.load_transcript_messages(file.stem)

    expected = [(entry["role"], entry["content"]) for entry in raw(file)["history"]]
    assert [(one.role.value, one.content) for one in messages] == expected


def test_tool_calls_and_what_answers_them_are_fields(file: Path, memory: LogBackend) -> None:
    history = raw(file)["history"]
    calls = Counter(call["id"] for entry in history for call in entry.get("tool_calls") or [])
    answers = Counter(one for entry in history for one in entry.get("tool_call_ids") or [])

    messages = memory.load_transcript_messages(file.stem)
    assert Counter(call.id for one in messages for call in one.tool_calls) == calls
    assert Counter(one.tool_call_id for one in messages if one.tool_call_id) == answers


def test_every_step_is_an_event_behind_its_answer(file: Path, memory: LogBackend) -> None:
    types = [event.type for event in memory.events(stream=("session", file.stem))]

    steps = len(raw(file)["trajectory"])
    assert types.count("swe_agent.step") == steps
    first = types.index("swe_agent.step")
    # manifest, system, user, assistant, answer, step
    assert first == 5


def test_submitted_is_not_passed(file: Path) -> None:
    (session,) = plan_swe_agent(file).sessions

    (checkpoint,) = [step.what for step in session.summary if isinstance(step.what, RunCheckpoint)]
    assert raw(file)["info"]["exit_status"] == "submitted"
    assert checkpoint.status is RunStatus.IN_PROGRESS
    assert "'submitted'" in (checkpoint.note or "")


def test_the_manifest_says_what_the_file_says(data: Path) -> None:
    (session,) = plan_swe_agent(data / "runs" / "swe-agent-marshmallow-1867.traj").sessions

    manifest = session.manifest
    assert manifest.current_objective.startswith("TimeDelta serialization precision")
    assert manifest.harness_version == "swe-agent"
    facts = manifest.metadata["swe_agent"]
    assert isinstance(facts, dict)
    assert facts["base_commit"] == "bfd2593d4b416122e30cdefe0c72d322ef471611"
    assert (
        facts["model_stats"]
        == raw(data / "runs" / "swe-agent-marshmallow-1867.traj")["info"]["model_stats"]
    )


def test_the_submitted_patch_is_kept(data: Path) -> None:
    file = data / "runs" / "swe-agent-marshmallow-1867.traj"
    with fmemory.open(":memory:") as memory:
        apply_sessions(memory, plan_swe_agent(file))
        parts = [event.data for event in memory.events(types=("swe_agent.part",))]

    infos = [part["value"] for part in parts if isinstance(part, dict) and part["key"] == "info"]
    assert infos == [raw(file)["info"]]
    assert "diff --git a/src/marshmallow/fields.py" in str(infos[0])


def test_the_same_file_twice_adds_nothing(file: Path, memory: LogBackend) -> None:
    before = memory.head()

    (outcome,) = apply_sessions(memory, plan_swe_agent(file))

    assert outcome.events == 0
    assert memory.head() == before


def test_a_run_that_died_of_its_costs_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "run.traj"
    file.write_text(
        json.dumps({"history": [], "trajectory": [], "info": {"exit_status": "exit_cost"}})
    )

    (session,) = plan_swe_agent(file).sessions

    (checkpoint,) = [step.what for step in session.summary if isinstance(step.what, RunCheckpoint)]
    assert checkpoint.status is RunStatus.FAILED


def test_content_in_blocks_is_kept(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}}]
    value = {
        "history": [{"role": "user", "content": blocks, "agent": "main"}],
        "trajectory": [],
        "info": {},
    }
    file = tmp_path / "run.traj"
    file.write_text(json.dumps(value))
    with fmemory.open(":memory:") as memory:
        apply_sessions(memory, plan_swe_agent(file))
        (message,) = memory.load_transcript_messages("run")

    assert message.content == "look"
    assert list(message.blocks) == blocks


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "not JSON"), ("[]", "expected a JSON object"), ("{}", "under 'history'")],
)
def test_what_is_no_trajectory_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "run.traj"
    file.write_text(text)

    with pytest.raises(BadSource) as caught:
        plan_swe_agent(file)

    assert problem in str(caught.value)


def test_a_malformed_entry_is_named_and_left_out_only_on_request(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "go"}, {"role": "nobody", "content": "?"}, 3]
    file = tmp_path / "run.traj"
    file.write_text(json.dumps({"history": history, "trajectory": [], "info": {}}))

    with pytest.raises(BadSource) as caught:
        plan_swe_agent(file)

    assert [(line.unit, line.number) for line in caught.value.lines] == [
        ("history entry", 2),
        ("history entry", 3),
    ]
    plan = plan_swe_agent(file, skip_bad=True)
    assert len(plan.sessions[0].steps) == 1
    assert len(plan.source.skipped) == 2
