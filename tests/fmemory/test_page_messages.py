"""A stored message as the parts that a page shows: each text once, whatever is repeated."""

from __future__ import annotations

import pytest

from fmemory import JsonObject, JsonValue, Message, ToolCall
from fmemory.messages import from_anthropic, from_openai
from fmemory.replay._page_messages import EXACT_INTEGER_MAX, exact, parts_of


def parts(message: Message) -> list[JsonValue]:
    return parts_of(message.to_dict())


def test_text_is_one_part() -> None:
    assert parts(Message("user", "hello")) == [["text", "hello"]]


def test_a_message_that_says_nothing_has_no_part() -> None:
    assert parts(Message("assistant")) == []


def test_calls_come_behind_what_was_said() -> None:
    call = ToolCall("c1", "bash", {"command": "ls"})

    assert parts(Message("assistant", "look", tool_calls=[call])) == [
        ["text", "look"],
        ["call", "c1", "bash", {"command": "ls"}],
    ]


def test_an_answer_names_its_call_and_whether_it_failed() -> None:
    answer = Message("tool", "no such file", tool_call_id="c1", is_error=True)

    assert parts(answer) == [["result", "c1", "no such file", True]]


def test_an_answer_that_says_of_itself_that_it_failed_is_one_that_did() -> None:
    assert parts(Message("tool", "EXECUTION TIMED OUT\n(Open file: n/a)")) == [
        ["result", None, "EXECUTION TIMED OUT\n(Open file: n/a)", True]
    ]


def test_blocks_of_anthropic_are_in_their_order_and_said_once() -> None:
    blocks: list[JsonObject] = [
        {"type": "thinking", "thinking": "what is there?", "signature": "x"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
    ]
    (message,) = from_anthropic([{"role": "assistant", "content": blocks}])

    assert parts(message) == [
        ["think", "what is there?"],
        ["text", "I look."],
        ["call", "t1", "Bash", {"command": "ls"}],
    ]


def test_results_of_anthropic_are_said_once() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "a\nb", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "c"}]},
    ]
    messages = from_anthropic([{"role": "user", "content": content}])

    found = [part for message in messages for part in parts(message)]

    assert found == [["result", "t1", "a\nb", True], ["result", "t2", "c", False]]


def test_what_else_is_in_a_result_is_shown_behind_it() -> None:
    content: list[JsonValue] = [{"type": "text", "text": "here"}, {"type": "new_kind"}]
    listed: JsonObject = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    plain: JsonObject = {"type": "tool_result", "tool_use_id": "t2", "content": {"a": 1}}

    assert parts(Message("user", blocks=[listed, plain])) == [
        ["result", "t1", "here", False],
        ["other", {"type": "new_kind"}],
        ["result", "t2", "", False],
        ["other", {"a": 1}],
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"content": [{"type": "text", "text": "EXECUTION TIMED OUT"}]},
            [["result", "c1", "EXECUTION TIMED OUT", True]],
        ),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"}]},
            [["result", "c1", "a\nb\n", False]],
        ),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "new_kind"}]},
            [["result", "c1", "a", False], ["other", {"type": "new_kind"}]],
        ),
        ({"content": [{"type": "text", "text": ""}]}, [["result", "c1", "", False]]),
        ({"content": "a"}, [["result", "c1", "a", False]]),
        ({"content": ""}, [["result", "c1", "", False]]),
    ],
)
def test_a_tool_message_of_openai_is_an_answer_whatever_its_content_is_made_of(
    answer: JsonObject, expected: list[JsonValue]
) -> None:
    (message,) = from_openai([{"role": "tool", "tool_call_id": "c1", **answer}])

    assert parts(message) == expected


def test_an_answer_says_the_text_of_its_blocks_where_its_content_does_not() -> None:
    blocks: list[JsonObject] = [{"type": "text", "text": "in a block"}]

    assert parts(Message("tool", "", tool_call_id="c1", blocks=blocks)) == [
        ["result", "c1", "in a block", False]
    ]
    assert parts(Message("tool", "beside it", tool_call_id="c1", blocks=blocks)) == [
        ["result", "c1", "beside it", False],
        ["text", "in a block"],
    ]


def test_calls_of_openai_are_said_once() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}
    (message,) = from_openai([{"role": "assistant", "content": None, "tool_calls": [call]}])

    assert parts(message) == [["call", "c1", "ls", {"a": 1}]]


def test_of_an_image_its_type_and_size_are_told() -> None:
    image: JsonObject = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4000},
    }

    (part,) = parts(Message("user", blocks=[image]))

    assert isinstance(part, list)
    kind, media, size = part
    assert (kind, media) == ("media", "image/png")
    assert isinstance(size, int)
    assert size > 4000


@pytest.mark.parametrize(
    "block",
    [
        {"type": "new_kind", "x": 1},
        {"x": 1},
        {"type": "text", "text": 7},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        7,
        None,
        [1],
    ],
)
def test_a_block_of_a_kind_that_nobody_knows_is_shown_whole(block: JsonValue) -> None:
    assert parts(Message("user", blocks=[block])) == [["other", block]]


def test_a_call_that_is_none_as_it_should_be_is_a_call_and_shown_whole() -> None:
    nameless: JsonObject = {"type": "tool_use", "name": {"a": 1}}
    twice: list[JsonValue] = [
        {"type": "tool_use", "id": "k", "name": name, "input": {}} for name in "NM"
    ]

    assert parts(Message("assistant", blocks=[nameless])) == [
        ["call", None, "", {}], ["other", nameless],
    ]  # fmt: skip
    # A second call of an id in one message is none, as everywhere.
    assert parts(Message("assistant", blocks=twice)) == [
        ["call", "k", "N", {}], ["other", twice[1]],
    ]  # fmt: skip


def test_content_that_its_blocks_do_not_say_is_shown_first() -> None:
    message = Message("user", "a heading", blocks=[{"type": "text", "text": "the text"}])

    assert parts(message) == [["text", "a heading"], ["text", "the text"]]


@pytest.mark.parametrize("value", [EXACT_INTEGER_MAX, -EXACT_INTEGER_MAX, 1.5, True, None, "1"])
def test_values_that_a_browser_holds_exactly_stay_as_they_are(value: JsonValue) -> None:
    assert exact({"a": [value]}) == {"a": [value]}


@pytest.mark.parametrize("value", [EXACT_INTEGER_MAX + 1, -EXACT_INTEGER_MAX - 1, 2**64 - 1])
def test_integers_that_a_browser_would_round_become_text(value: int) -> None:
    assert exact([{"a": value}]) == [{"a": str(value)}]
