"""`replay.transcript` gives each message with its event, calls with their answers, and gaps."""

from __future__ import annotations

import random

import pytest

import fmemory
from fmemory import (
    ContractError,
    FeatureRecord,
    JsonValue,
    LogBackend,
    Message,
    NewEvent,
    NotFound,
    ToolCall,
    messages,
)
from fmemory.replay import TranscriptEntry, transcript


def seqs(found: tuple[TranscriptEntry, ...]) -> list[int]:
    return [one.seq for one in found]


def test_messages_come_in_order_with_event_run_and_actor(memory: LogBackend) -> None:
    found = transcript(memory, "login")

    assert [(one.seq, one.number, one.role, one.run_id, one.actor) for one in found] == [
        (3, 1, "user", "run-1", "ada"),
        (4, 2, "assistant", "run-1", "ada"),
        (5, 3, "tool", "run-1", "ada"),
        (11, 4, "assistant", "run-2", "bob"),
    ]
    assert found[0].time == memory.event(3).recorded_at


def test_calls_name_the_event_that_answers_and_whether_it_failed(memory: LogBackend) -> None:
    answered, open_ = transcript(memory, "login")[1].calls

    assert (answered.arguments, answered.answer_seq, answered.is_error) == (
        {"command": "make"},
        5,
        True,
    )
    assert (open_.answer_seq, open_.is_error) == (None, False)


def test_a_result_has_the_name_of_its_tool(memory: LogBackend) -> None:
    entry = transcript(memory, "login")[2]

    (result,) = entry.results
    assert (result.name, result.text, result.is_error) == ("bash", "make: *** no rule", True)
    assert (entry.text, entry.is_error) == ("", True)


def test_an_answer_belongs_to_the_nearest_open_call_of_its_id_before_it(empty: LogBackend) -> None:
    def call(*names: str) -> Message:
        return Message("assistant", tool_calls=[ToolCall("call_0", name, {}) for name in names])

    def answer(text: str, *, failed: bool = False) -> Message:
        return Message("tool", text, tool_call_id="call_0", is_error=failed)

    said = [
        answer("too early"),
        call("first"),
        answer("boom", failed=True),
        call("second"),
        answer("fine"),
        call("far", "near"),
        answer("of the near", failed=True),
        answer("of the far"),
        answer("too late"),
        call("open"),
    ]
    for one in said:
        empty.append_transcript_messages("s", [one])
    entries = transcript(empty, "s")
    calls = [(c.name, c.answer_seq, c.is_error) for one in entries for c in one.calls]
    assert calls == [
        ("first", 3, True),
        ("second", 5, False),
        ("far", 8, False),
        ("near", 7, True),
        ("open", None, False),
    ]
    names = [(r.text, r.name) for one in entries for r in one.results]
    assert names == [
        ("too early", None),
        ("boom", "first"),
        ("fine", "second"),
        ("of the near", "near"),
        ("of the far", "far"),
        ("too late", None),
    ]


def test_a_run_a_moment_and_the_last_ones_can_be_asked_for(memory: LogBackend) -> None:
    assert seqs(transcript(memory, "login", run_id="run-2")) == [11]
    assert seqs(transcript(memory, "login", at=4)) == [3, 4]
    assert seqs(transcript(memory, "login", last=2)) == [5, 11]
    assert seqs(transcript(memory, "login", at=5, run_id="run-1", last=1)) == [5]


def test_truncated_messages_are_gone(memory: LogBackend) -> None:
    memory.truncate_transcript("login", keep=1)

    assert seqs(transcript(memory, "login")) == [3]
    assert seqs(transcript(memory, "login", at=12)) == [3, 4, 5, 11]


def test_of_a_deleted_session_only_what_came_after_is_there(memory: LogBackend) -> None:
    memory.delete_session("login")
    memory.append_transcript_messages("login", [Message("user", "again")])
    memory.compact()

    assert [(one.seq, one.text, one.gap) for one in transcript(memory, "login")] == [
        (14, "again", None)
    ]


def test_a_session_without_messages_has_none(empty: LogBackend) -> None:
    empty.replace_feature_list("s", [FeatureRecord("a", "", "")])

    assert transcript(empty, "s") == ()


def test_blocks_of_anthropic_are_taken_apart(empty: LogBackend) -> None:
    blocks: list[JsonValue] = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "looking"},
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.py"}},
        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
    ]
    answer: list[JsonValue] = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "gone", "is_error": True}
    ]
    plain: list[dict[str, object]] = [
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": answer},
    ]
    empty.append_transcript_messages("s", messages.from_anthropic(plain))

    said, answered = transcript(empty, "s")

    assert (said.text, said.thinking, said.others) == ("looking", "hm", ("image",))
    (call,) = said.calls
    assert (call.id, call.name, call.answer_seq, call.is_error) == ("t1", "Read", 1, True)
    assert (answered.results[0].name, answered.results[0].text) == ("Read", "gone")
    assert said.blocks == tuple(blocks)


def test_a_call_known_by_its_blocks_and_its_fields_is_one_call(empty: LogBackend) -> None:
    block: JsonValue = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
    empty.append_transcript_messages(
        "s", [Message("assistant", blocks=[block], tool_calls=[ToolCall("t1", "ls", {})])]
    )

    assert [call.id for call in transcript(empty, "s")[0].calls] == ["t1"]


def test_a_message_of_a_megabyte_is_given_whole(memory: LogBackend) -> None:
    text = "x" * (1 << 20)
    memory.append_transcript_messages("login", [Message("assistant", text)])

    assert transcript(memory, "login", last=1)[0].text == text


def test_a_transcript_of_a_fork_has_the_events_of_the_fork(memory: LogBackend) -> None:
    memory.fork_session("login", "again", at=5)

    found = transcript(memory, "again")

    assert [one.role for one in found] == ["user", "assistant", "tool"]
    assert min(seqs(found)) > 12


@pytest.mark.parametrize("last", [0, -1, True, 1.5])
def test_a_count_below_one_is_refused(last: int, empty: LogBackend) -> None:
    with pytest.raises(ContractError) as caught:
        transcript(empty, "s", last=last)
    assert caught.value.where == "last"


def test_an_unknown_session_and_moment_are_refused(memory: LogBackend) -> None:
    with pytest.raises(NotFound):
        transcript(memory, "nobody")
    with pytest.raises(NotFound):
        transcript(memory, "login", at=99)


def test_entries_are_plain_data_and_back(memory: LogBackend) -> None:
    for one in transcript(memory, "login"):
        assert TranscriptEntry.from_dict(one.to_dict()) == one


def test_the_last_entries_are_those_of_the_whole(empty: LogBackend) -> None:
    draw = random.Random(7)
    length = 0
    for number in range(400):
        with fmemory.audit(run_id=f"run-{number // 90}"):
            if draw.random() < 0.05 and length:
                length -= draw.randrange(min(length, 20))
                empty.truncate_transcript("s", keep=length)
                continue
            said = [Message("user", f"{number}.{row}") for row in range(draw.randrange(1, 4))]
            empty.append_transcript_messages("s", said)
            length += len(said)
        empty.append(("session", "s"), [NewEvent("what.ever")])
    whole = transcript(empty, "s")
    assert len(whole) == length > 300

    for last in (1, 2, 3, 7, 50, 150, 199, 200, 201, length - 1, length, length + 5):
        assert transcript(empty, "s", last=last) == whole[-last:]
        for run in ("run-0", "run-3", "run-4"):
            of_run = tuple(one for one in whole if one.run_id == run)
            assert transcript(empty, "s", run_id=run, last=last) == of_run[-last:]


def test_the_last_entries_of_a_session_that_began_anew_are_its_own(memory: LogBackend) -> None:
    memory.delete_session("login")
    memory.compact(forget_before=12)
    memory.append_transcript_messages("login", [Message("user", str(n)) for n in range(3)])

    assert [(one.number, one.text) for one in transcript(memory, "login", last=2)] == [
        (2, "1"),
        (3, "2"),
    ]
    assert transcript(memory, "login", last=9) == transcript(memory, "login")


def test_the_last_entries_of_a_run_lie_before_many_of_no_run(empty: LogBackend) -> None:
    with fmemory.audit(run_id="r"):
        empty.append_transcript_messages("s", [Message("user", "mine")])
    empty.append_transcript_messages("s", [Message("user", str(n)) for n in range(300)])

    assert [one.text for one in transcript(empty, "s", run_id="r", last=1)] == ["mine"]
