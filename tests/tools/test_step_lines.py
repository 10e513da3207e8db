"""What `fmemory step` says of events and states, as lines; and lines as rows of a width."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import fmemory
from fmemory import (
    FeatureRecord,
    JournalBackend,
    JsonObject,
    LogBackend,
    Message,
    NewEvent,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
    ToolCall,
)
from fmemory.replay import report
from fmemory_tools.stepper.brief import brief
from fmemory_tools.stepper.content import BYTES_SHOWN, event_lines, limited, state_lines
from fmemory_tools.stepper.lines import MATCH, STYLES, Line, clean, line, text_lines, wrap
from fmemory_tools.stepper.search import BadPattern, compile_pattern, look
from fmemory_tools.stepper.states import States
from fmemory_tools.stepper.timeline import Timeline
from tests.tools.helpers import change_one_byte

Texts = st.text(st.characters(codec="utf-8"), max_size=80)


def text_of(rows: Sequence[tuple[tuple[str, str], ...]]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def told(memory: LogBackend, row: int, session_id: str = "s") -> tuple[str, str]:
    """What is said of an event and of the state after it, in rows of 100 cells."""
    timeline = Timeline(memory, session_id)
    moment = States(memory, timeline).told(row)
    event = event_lines(timeline.event(row), moment, utc=True)
    state = state_lines(moment.state, moment)
    shown = [text_of(wrap(list(lines), 100)[0]) for lines in (event, state)]
    return "\n".join(shown[0]), "\n".join(shown[1])


# Rows


@given(st.lists(st.tuples(Texts, st.sampled_from(STYLES)), max_size=5), st.integers(2, 40))
def test_rows_fit_the_width_and_lose_nothing_but_the_spaces_they_break_at(
    spans: list[tuple[str, str]], width: int
) -> None:
    one = line(*spans, hang=0)
    whole = "".join(text for text, _ in one.spans)

    rows, _ = wrap([one], width)

    assert all(cell_len(text) <= width for text in text_of(rows))
    assert "".join(text_of(rows)).replace(" ", "") == whole.replace(" ", "")
    styled = [(sign, style) for row in rows for text, style in row for sign in text if sign != " "]
    assert styled == [(s, style) for text, style in one.spans for s in text if s != " "]


@given(Texts)
def test_clean_text_steers_nothing(text: str) -> None:
    assert clean(text).replace("\n", "").isprintable() or any(
        not sign.isprintable() and ord(sign) > 0x9F for sign in clean(text)
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", clean(text))


def test_a_match_is_marked_across_rows_and_styles() -> None:
    rows, _ = wrap([line(("abc", "red"), "def", hang=0)], 2, re.compile("bcde"))

    marked = "".join(text for row in rows for text, style in row if style == MATCH)
    assert marked == "bcde"
    assert text_of(rows) == ["ab", "cd", "ef"]


def test_rows_of_the_first_new_line_are_told() -> None:
    lines = [line("a b"), line("c d", hang=0, is_new=True), line("e", is_new=True)]

    rows, new = wrap(lines, 1)

    assert [text_of(rows)[row] for row in new] == ["c", "d"]
    assert wrap(lines[:1], 1)[1] == range(0)


@pytest.mark.parametrize("length", [1, 50, 51, 1_000_000])
def test_a_limit_is_kept_and_told(length: int) -> None:
    found = limited(text_lines("x" * length), 50, more="more")

    assert len(found[0].spans[0][0]) == min(length, 50)
    assert [one.spans[0][0] for one in found[1:]] == (["more"] if length > 50 else [])


# Events and states


@pytest.fixture
def memory() -> JournalBackend:
    return fmemory.open(":memory:")


def test_messages_show_thinking_calls_results_and_errors(memory: LogBackend) -> None:
    blocks: list[JsonObject] = [
        {"type": "thinking", "thinking": "hmm"},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls\npwd"}},
    ]
    answer: list[JsonObject] = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "denied", "is_error": True}
    ]
    memory.session("s").append_transcript_messages(
        [
            Message("assistant", "I look", blocks=blocks),
            Message("user", "", blocks=answer),
            Message("assistant", "", tool_calls=[ToolCall("c2", "grep", {"pattern": "x"})]),
        ]
    )

    event, state = told(memory, 0)

    for words in ("thinking\n    hmm", "  I look", "→ bash\n    command:\n      ls\n      pwd"):
        assert words in event
    assert "user  error\n  ← result\n    denied" in event
    assert "→ grep\n    pattern: x" in event
    assert "messages 0 → 3" in event
    assert "▸ result error: denied" in state


def test_changes_are_told_in_words(memory: LogBackend) -> None:
    session = memory.session("s")
    session.initialize_session_if_missing(
        SessionManifest("s", "main", "first"), [FeatureRecord("f", "c", "does it")]
    )
    session.save_manifest(SessionManifest("s", "work", "second"))
    session.update_feature_pass("f", True)
    session.replace_feature_list([FeatureRecord("g", "c", "does more")])
    session.record_run_checkpoint(RunCheckpoint.started("r").failed("broke"))
    session.append_progress_entry(ProgressEntry("r", "went on"))
    session.append([NewEvent("my.own")])
    said = [told(memory, row)[0] for row in range(7)]

    assert "manifest current_objective\n  - first\n  + second" in said[1]
    assert "✓ f passes now, it did not pass" in said[2]
    assert "+ feature g: does more" in said[3]
    assert "- f is not a feature any more" in said[3]
    assert "+ checkpoint 1 r: failed" in said[4]
    assert "+ progress 1 r: went on" in said[5]
    assert "it changed nothing of the state" in said[6]


def test_a_fork_says_where_it_came_from_and_a_deletion_what_went(memory: LogBackend) -> None:
    memory.session("s").save_manifest(SessionManifest("s", "main", "go"))
    memory.session("s").fork("t")
    memory.session("t").delete()

    assert "origin session" in told(memory, 0, "t")[0]
    assert "- manifest current_objective: go" in told(memory, memory_count(memory, "t") - 1, "t")[0]


def memory_count(memory: LogBackend, session_id: str) -> int:
    return Timeline(memory, session_id).count


def test_erased_and_forgotten_events_say_so(memory: JournalBackend) -> None:
    session = memory.session("s")
    for words in ("one", "two"):
        session.append_transcript_messages([Message("user", words)])
    session.delete()
    memory.compact(forget_before=2)

    said = [told(memory, row) for row in range(2)]

    assert "a compaction forgot what it was" in said[0][0]
    assert "its data were erased" in said[1][0]
    assert all("cannot be told" in state for _, state in said)


def test_a_state_says_what_it_leaves_out(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        memory.session("s").append_progress_entry(ProgressEntry("r", "damaged"))
        memory.session("s").append_progress_entry(ProgressEntry("r", "whole"))
    change_one_byte(tmp_path / "store", b"damaged")

    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        event, state = told(memory, 1)

    assert "+ progress 1 r: whole" in event
    assert "event 1 is damaged" not in event
    assert "event 1 is damaged" in " ".join(state.split())
    assert "it is left out of the state" in " ".join(state.split())


def test_data_of_ones_own_is_shown_whole_and_bytes_as_far_as_told(memory: LogBackend) -> None:
    deep: JsonObject = {"a": [{"b": {"c": [1, None, True]}}], "empty": {}}
    data = bytes(range(256)) * 20
    memory.append(("session", "s"), [NewEvent("my.own", deep), NewEvent("my.bytes", data)])

    own, raw = told(memory, 0)[0], told(memory, 1)[0]

    for words in ("a:", "b:", "c:", "- 1", "- null", "- true", "empty: {}"):
        assert words in own
    assert f"5,120 bytes, the first {BYTES_SHOWN:,} of them" in raw
    assert "00010203 04050607" in raw


def test_a_step_of_a_harness_that_failed_is_marked(memory: LogBackend) -> None:
    for said in ("EXECUTION TIMED OUT\n(Open file: n/a)", "fine"):
        step: JsonObject = {"value": {"action": "make", "observation": said}}
        memory.append(("session", "s"), [NewEvent("swe_agent.step", step)])
    memory.session("s").append_transcript_messages([Message("tool", "EXECUTION TIMED OUT")])

    styles = [brief(event)[2] for event in memory.events(stream=("session", "s"))]

    assert styles == ["red", "dim", "red"]


TIMED_OUT: JsonObject = {"type": "text", "text": "EXECUTION TIMED OUT"}
RESULT: JsonObject = {"type": "tool_result", "tool_use_id": "t", "content": [TIMED_OUT]}


@pytest.mark.parametrize(
    "message",
    [
        Message("user", blocks=[RESULT]),
        Message("user", blocks=[{**RESULT, "content": "EXECUTION TIMED OUT"}]),
        Message("user", blocks=[{**RESULT, "content": "no", "is_error": True}]),
        Message("user", blocks=[{**RESULT, "content": "fine"}]),
        Message("user", blocks=[{**RESULT, "content": "fine"}, RESULT], is_error=True),
        Message("user", "EXECUTION TIMED OUT"),
        Message("tool", "EXECUTION TIMED OUT", blocks=[TIMED_OUT], tool_call_id="t"),
        Message("tool", "it broke", tool_call_id="t", is_error=True),
        Message("assistant", "the API is overloaded", is_error=True),
        Message("assistant", blocks=[{**RESULT, "is_error": True}]),
        Message("assistant", blocks=[{"type": "new_kind", "is_error": True}]),
    ],
)
def test_an_event_is_red_where_report_counts_a_failed_call(
    memory: LogBackend, message: Message
) -> None:
    memory.session("s").append_transcript_messages([message])

    (event,) = memory.events(stream=("session", "s"))

    assert (brief(event)[2] == "red") is (report(memory, "s").tool_error_count > 0)


def test_a_failed_answer_is_red_and_one_beside_it_is_not(memory: LogBackend) -> None:
    blocks: list[JsonObject] = [{**RESULT, "content": "fine"}, RESULT]
    memory.session("s").append_transcript_messages([Message("user", blocks=blocks)])

    (event,) = memory.events(stream=("session", "s"))
    timeline = Timeline(memory, "s")
    lines = event_lines(event, States(memory, timeline).told(0), utc=True)
    spans = [span for one in lines for span in one.spans]

    assert ("EXECUTION TIMED OUT", "red") in spans
    assert ("fine", "") in spans


def test_what_a_message_says_beside_its_blocks_is_shown(memory: LogBackend) -> None:
    call = ToolCall("c1", "grep", {"pattern": "x"})
    blocks: list[JsonObject] = [{"type": "text", "text": "I look"}]
    memory.session("s").append_transcript_messages(
        [
            Message("assistant", "I look", blocks=blocks, tool_calls=[call]),
            Message("assistant", "more", blocks=blocks),
        ]
    )

    event, _ = told(memory, 0)

    assert event.count("  I look") == 2
    assert "  more\n  I look" in event
    assert "→ grep\n    pattern: x" in event


# Searching


def test_a_search_looks_at_everything_an_event_tells(memory: LogBackend) -> None:
    with fmemory.audit(actor="ada", run_id="run-7", reason="because"):
        memory.append(("session", "s"), [NewEvent("my.own", {"deep": [{"n": 4711}]})])
    memory.append(("session", "s"), [NewEvent("my.bytes", "größe".encode())])
    timeline = Timeline(memory, "s")

    def rows(text: str, *, forward: bool = True) -> list[int]:
        found = look(timeline, compile_pattern(text), 0 if forward else 1, forward=forward)
        return [row for row, is_match in found if is_match]

    assert [rows(one) for one in ("ada", "run-7", "because", "4711", "^my.own$")] == [[0]] * 5
    assert rows("größe") == [1]
    assert rows("my", forward=False) == [1, 0]
    assert rows("nowhere") == []


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(BadPattern, match="unterminated"):
        compile_pattern("[")


def test_an_empty_line_is_an_empty_row() -> None:
    assert wrap(list(text_lines("a\n\nb")), 10)[0] == [(("a", ""),), (), (("b", ""),)]
    assert wrap([Line()], 10)[0] == [()]
