"""Tool calls are told alike wherever a message holds them, whatever their ids, in every reading."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmemory
from fmemory import JournalBackend, Message, NewEvent, Role, ToolCall
from fmemory._json_values import JsonObject, JsonValue
from fmemory.replay import _page_messages, compare, grep, report, runs, transcript
from fmemory.replay._facts import WORDS_MAX, facts
from fmemory.replay._parts import parts_of
from tests.fmemory.page_stores import ODD_BLOCKS
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


def test_what_a_fork_copied_counts_nowhere_again(memory: JournalBackend) -> None:
    say(memory, "r", *called("c1", "rm"), *answered("c1", "rm: no", is_error=True))
    say(memory, "r", *called("c2", "ls"))
    with fmemory.audit(run_id="fork"):
        memory.fork_session("s", "t")
        memory.append_transcript_messages("t", [*answered("c2", "a.py"), *called("c3", "cat")])

    (run,) = runs(memory, session_id="t")
    for found in (report(memory, "fork"), report(memory, session_id="t")):
        assert (found.first_error, found.tool_error_count) == (None, 0)
        assert [one.call_id for one in found.unanswered] == ["c3"]
        assert found.runs == (run,)
    assert (run.message_count, run.tool_error_count, run.unanswered_count) == (2, 0, 1)
    told = compare(memory, "r", "fork")
    assert told.call is not None
    assert told.call.b is not None
    assert (told.call.number, told.call.b.arguments) == (1, {"command": "cat"})


def test_a_failed_call_that_a_fork_copied_is_named_by_the_answer_to_it(
    memory: JournalBackend,
) -> None:
    say(memory, "r", *called("c1", "rm"))
    with fmemory.audit(run_id="fork"):
        memory.fork_session("s", "t")
        memory.append_transcript_messages("t", answered("c1", "rm: no", is_error=True))

    error = report(memory, "fork").first_error

    assert error is not None
    assert (error.seq, error.call_seq, error.tool) == (4, 3, "Bash")


def test_what_came_before_a_deletion_was_copied_by_no_later_fork(memory: JournalBackend) -> None:
    say(memory, "r", *called("c1", "ls"))
    memory.fork_session("s", "t")
    memory.delete_session("t")
    with fmemory.audit(run_id="new"):
        memory.append_transcript_messages("t", answered("c1", "no", is_error=True))

    (run,) = runs(memory, session_id="t")
    assert (run.message_count, run.tool_error_count) == (1, 1)
    assert report(memory, "new").tool_error_count == 1


ODD_CALLS: tuple[JsonValue, ...] = (
    {"type": "tool_use", "name": "nameless"},
    {"type": "tool_use", "id": None, "name": "Bash"},
    {"type": "tool_use", "id": "", "name": "Bash"},
    {"type": "tool_use", "id": 7, "name": {"a": 1}},
    {"type": "tool_use", "id": "None", "name": "Bash"},
)
ODD_RESULTS: tuple[JsonValue, ...] = (
    {"type": "tool_result", "content": [{"type": "text", "text": "EXECUTION TIMED OUT"}]},
    {"type": "tool_result", "content": [{"type": "other", "text": "EXECUTION TIMED OUT"}]},
    {"type": "tool_result", "content": [{"type": "input_text", "text": "a"}, "b", 7, None]},
    {"type": "tool_result", "content": {"type": "text", "text": "EXECUTION TIMED OUT"}},
    {"type": "tool_result", "content": [{"type": "tool_result", "content": "Invalid command"}]},
    {"type": "tool_result", "tool_use_id": ["c"], "is_error": "yes"},
    {"type": "tool_result", "tool_use_id": "", "is_error": True},
)


@pytest.mark.parametrize("call_id", [None, "c"])
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
@pytest.mark.parametrize(
    "blocks", [*((one,) for one in (*ODD_BLOCKS, *ODD_RESULTS)), ODD_CALLS, ODD_RESULTS, ()]
)
def test_runs_and_transcripts_read_the_same_calls_and_answers(
    blocks: tuple[JsonValue, ...], role: str, call_id: str | None, memory: JournalBackend
) -> None:
    said = Message(Role(role), "Invalid command", tool_call_id=call_id, blocks=blocks)
    say(memory, "r", said)

    (fact,) = facts(memory)
    assert isinstance(fact.detail, tuple)
    (folded,), read = fact.detail, parts_of(said.to_dict())

    assert [(one.id, one.name) for one in folded.calls] == [
        (one.id, one.name) for one in read.calls
    ]
    assert [(one.call_id, one.words, one.failed) for one in folded.answers] == [
        (one.call_id or "", one.text[:WORDS_MAX], one.is_error) for one in read.answers
    ]


def test_a_result_that_an_assistant_repeats_is_no_answer_but_is_shown(
    memory: JournalBackend,
) -> None:
    say(memory, "r", *called("c", "ls"), Message("assistant", blocks=(TIMED_OUT,)))

    assert (unanswered(memory), failed(memory)) == ({"r": 1}, {"r": 0})
    entry = transcript(memory, "s")[-1]
    assert (entry.results, entry.text, entry.others) == (
        (),
        "EXECUTION TIMED OUT",
        ("tool_result",),
    )
    assert [one.seq for one in grep(memory, "TIMED OUT").matches] == [1]
    assert _page_messages.parts_of(Message("assistant", blocks=(TIMED_OUT,)).to_dict()) == [
        ["other", TIMED_OUT]
    ]
