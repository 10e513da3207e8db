"""Tool calls are told alike wherever a message holds them, whatever their ids, in every reading."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmemory
from fmemory import JournalBackend, Message, NewEvent, ToolCall
from fmemory._json_values import JsonObject, JsonValue
from fmemory.replay import report, runs, transcript
from tests.fmemory.replay_stores import answered, called

USE: JsonObject = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "ls"}}
RESULT: JsonObject = {"type": "tool_result", "tool_use_id": "c", "content": "no"}
TIMED_OUT: JsonObject = {
    "type": "tool_result",
    "tool_use_id": "c",
    "content": ["EXECUTION TIMED OUT"],
}
CALL = ToolCall("c", "Bash", {"command": "ls"})


@pytest.fixture
def memory() -> Iterator[JournalBackend]:
    with fmemory.open(":memory:") as memory:
        yield memory


def say(memory: JournalBackend, run_id: str, *messages: Message) -> None:
    with fmemory.audit(run_id=run_id):
        memory.append_transcript_messages("s", list(messages))


def unanswered(memory: JournalBackend) -> dict[str, int]:
    """Run → how many of its calls were not answered, which its report must say as well."""
    counts = {one.run_id: one.unanswered_count for one in runs(memory)}
    assert {run: len(report(memory, run).unanswered) for run in counts} == counts
    assert len(report(memory, "s").unanswered) == sum(counts.values())
    return counts


def failed(memory: JournalBackend) -> dict[str, int]:
    """Run → how many of its calls failed, which its report must say as well."""
    counts = {one.run_id: one.tool_error_count for one in runs(memory)}
    assert {run: report(memory, run).tool_error_count for run in counts} == counts
    assert report(memory, "s").tool_error_count == sum(counts.values())
    return counts


@pytest.mark.parametrize(
    "calling",
    [
        Message("assistant", blocks=(USE,)),
        Message("assistant", blocks=("words", {"type": "text", "text": "so"}, USE, USE)),
        Message("assistant", blocks=(USE,), tool_calls=(CALL,)),
        Message("assistant", blocks=({"type": ["tool_use"], "id": {}}, USE)),
        Message("assistant", tool_calls=(CALL,)),
    ],
)
def test_a_call_counts_once_in_fields_blocks_or_both(
    calling: Message, memory: JournalBackend
) -> None:
    say(memory, "r", calling)

    (run,) = runs(memory)
    (open_call,) = report(memory, "r").unanswered
    (entry,) = transcript(memory, "s")

    assert (run.tool_call_count, run.unanswered_count) == (1, 1)
    assert (open_call.call_id, open_call.tool, open_call.arguments) == ("c", "Bash", "ls")
    assert [one.id for one in entry.calls] == ["c"]


@pytest.mark.parametrize(
    ("answering", "count"),
    [
        (Message("tool", "no", tool_call_id="c", is_error=True, blocks=(RESULT,)), 1),
        (Message("tool", "no", tool_call_id="c", blocks=({**RESULT, "is_error": True},)), 1),
        (Message("tool", "no", tool_call_id="c", is_error=True), 1),
        (Message("user", blocks=(TIMED_OUT,)), 1),
        (Message("tool", is_error=True, blocks=(RESULT, {**RESULT, "tool_use_id": "d"})), 2),
        (Message("tool", is_error=True, blocks=(RESULT, {**RESULT, "is_error": True})), 1),
        (Message("tool", "no", tool_call_id="c", blocks=(RESULT,)), 0),
    ],
)
def test_a_failure_counts_whether_message_block_or_words_tell_it(
    answering: Message, count: int, memory: JournalBackend
) -> None:
    say(memory, "r", *called("c", "ls"), answering)

    assert failed(memory) == {"r": count}
    results = transcript(memory, "s")[-1].results
    assert sum(one.is_error for one in results) == count


def test_a_result_without_an_id_answers_the_call_that_its_message_names(
    memory: JournalBackend,
) -> None:
    nameless: JsonObject = {"type": "tool_result", "content": "yes"}
    say(memory, "r", *called("c", "ls"), Message("tool", tool_call_id="c", blocks=(nameless,)))

    assert unanswered(memory) == {"r": 0}
    assert [one.call_id for one in transcript(memory, "s")[-1].results] == ["c"]


def test_calls_without_an_id_that_is_text_count_each(memory: JournalBackend) -> None:
    ids: list[JsonValue] = [None, [1], 2]
    nameless: list[JsonValue] = [{"type": "tool_use", "id": one} for one in ids]
    say(memory, "r", Message("assistant", blocks=nameless))

    assert unanswered(memory) == {"r": 3}


def test_an_answer_belongs_to_the_nearest_open_call_of_its_id(memory: JournalBackend) -> None:
    say(memory, "r1", *called("c", "lost"))
    say(memory, "r2", *called("c", "x"), *answered("c", "ok"))
    say(memory, "r3", *called("c", "y"), *called("c", "z"), *answered("c", "ok"))

    assert unanswered(memory) == {"r1": 1, "r2": 0, "r3": 1}
    assert [one.arguments for one in report(memory, "s").unanswered] == ["lost", "y"]


def test_steps_of_a_run_hide_no_error_of_another(memory: JournalBackend) -> None:
    step: JsonObject = {"value": {"action": "ls", "observation": "a.py"}}
    with fmemory.audit(run_id="r1"):
        memory.append(("session", "s"), [NewEvent("swe_agent.step", step)])
    say(memory, "r1", *called("a", "ls"), *answered("a", "told by the step", is_error=True))
    say(memory, "r2", *called("b", "rm"), *answered("b", "rm: no", is_error=True))

    assert failed(memory) == {"r1": 0, "r2": 1}
    first = report(memory, "s").first_error
    assert first is not None
    assert (first.seq, first.words) == (3, "rm: no")
