"""What a page makes of tool calls in a browser: what answers them, and what counts as a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmemory
from fmemory import JsonValue, Message, ToolCall
from fmemory.replay import page, report, transcript
from tests.browser import Browser
from tests.fmemory.replay_stores import answered, called


def test_what_comes_after_a_deletion_answers_no_call_of_before(
    browser: Browser, tmp_path: Path
) -> None:
    with fmemory.open(":memory:") as memory:
        memory.append_transcript_messages("s", called("c", "ls"))
        memory.delete_session("s")
        memory.append_transcript_messages("s", answered("c", "too late"))
        html, told = page(memory, "s"), report(memory, "s")
    (tmp_path / "replay.html").write_text(html, encoding="utf-8")

    browser.open(tmp_path / "replay.html")

    assert [one.call_id for one in told.unanswered] == []
    assert browser.texts("#list .call .badge") == ["never answered"]
    assert browser.texts("#list .result .tool-name") == ["result"]
    assert browser.texts("#list .result .answer") == []


def test_only_a_failed_tool_call_is_a_failure(browser: Browser, tmp_path: Path) -> None:
    with fmemory.open(":memory:") as memory:
        memory.append_transcript_messages("s", called("c", "ls"))
        memory.append_transcript_messages("s", answered("c", "no", is_error=True))
        memory.append_transcript_messages("s", [Message("assistant", "I broke", is_error=True)])
        html, told = page(memory, "s"), report(memory, "s")
    (tmp_path / "replay.html").write_text(html, encoding="utf-8")

    browser.open(tmp_path / "replay.html")

    failed = (
        "return [...document.querySelectorAll('#list .event.failed')].map((e) => e.dataset.seq)"
    )
    assert browser.run(failed) == ["2"]
    assert browser.text("[data-filter=error] .count") == str(told.tool_error_count)
    assert browser.texts("#list .assistant .role .badge") == ["error"]


def test_further_failures_are_links_to_their_events(browser: Browser, tmp_path: Path) -> None:
    with fmemory.open(":memory:") as memory:
        for number in range(3):
            memory.append_transcript_messages("s", called(f"c{number}", "ls"))
            memory.append_transcript_messages("s", answered(f"c{number}", "no", is_error=True))
        html, told = page(memory, "s"), report(memory, "s")
    (tmp_path / "replay.html").write_text(html, encoding="utf-8")

    browser.open(tmp_path / "replay.html")
    browser.run(
        "[...document.querySelectorAll('.findings summary')]"
        ".find((one) => one.textContent.includes('further error')).click()"
    )

    assert [one.seq for one in told.errors] == [2, 4, 6]
    assert browser.texts(".findings details[open] a") == ["#4", "#6"]


def test_what_a_fork_copied_is_no_failure_of_the_fork(browser: Browser, tmp_path: Path) -> None:
    with fmemory.open(":memory:") as memory:
        memory.append_transcript_messages("s", called("c", "ls"))
        memory.append_transcript_messages("s", answered("c", "no", is_error=True))
        memory.fork_session("s", "again")
        memory.append_transcript_messages("again", answered("d", "no", is_error=True))
        html, told = page(memory, "again"), report(memory, "again")
    (tmp_path / "replay.html").write_text(html, encoding="utf-8")

    browser.open(tmp_path / "replay.html")

    assert (told.tool_error_count, told.event_count) == (1, 3)
    assert browser.text("[data-filter=error] .count") == "1"
    assert browser.texts("#list .result .badge") == ["error", "error"]


SEARCH: list[JsonValue] = [
    {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "news"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
]
TWICE: list[JsonValue] = [
    {"type": "tool_use", "id": "k", "name": name, "input": {}} for name in ("N", "M")
]
NAMELESS: list[JsonValue] = [{"type": "tool_use"}, {"type": "tool_use", "id": "n", "name": None}]


@pytest.mark.parametrize(
    ("messages", "count"),
    [
        ([Message("assistant", blocks=SEARCH)], 0),
        ([Message("assistant", blocks=TWICE), Message("tool", "ok", tool_call_id="k")], 0),
        ([Message("assistant", blocks=TWICE)], 1),
        ([Message("assistant", blocks=NAMELESS)], 2),
        ([Message("assistant", blocks=NAMELESS), Message("tool", "ok")], 1),
        ([*called("c", "ls"), *called("c", "ls"), *answered("c", "one")], 1),
        ([*answered("c", "early"), *called("c", "ls")], 1),
        ([Message("assistant", blocks=TWICE, tool_calls=[ToolCall("k", "N")])], 1),
        ([Message("assistant", blocks=TWICE, tool_calls=[ToolCall("other", "N")])], 2),
        ([Message("user", blocks=[*TWICE[:1], {"type": "tool_result", "tool_use_id": "k"}])], 1),
    ],
    ids=range(10),
)
def test_calls_without_an_answer_are_those_that_the_commands_count(
    messages: list[Message], count: int, browser: Browser, tmp_path: Path
) -> None:
    with fmemory.open(":memory:") as memory:
        memory.append_transcript_messages("s", messages)
        html, told = page(memory, "s"), report(memory, "s")
        calls = [call for entry in transcript(memory, "s") for call in entry.calls]
    (tmp_path / "replay.html").write_text(html, encoding="utf-8")

    browser.open(tmp_path / "replay.html")

    assert len(told.unanswered) == count
    assert [one.answer_seq for one in calls].count(None) == count
    assert browser.texts("#list .call .badge") == ["never answered"] * count
