"""Converters of messages.

Goal: what a provider's API gave is given back exactly, whatever is in it. Method: real transcripts,
written cases of each API, and random JSON under the keys that the converters read. To break: a
field that is read into a Message and written back in another form, without the original being kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory.errors import ContractError, Reason
from fmemory.messages import (
    from_anthropic,
    from_openai,
    to_anthropic,
    to_openai,
    unanswered_tool_calls,
)
from fmemory.session_models import Message, Role, ToolCall

Json: TypeAlias = dict[str, object]

DATA = Path(os.environ.get("FMEMORY_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)
)
json_texts = json_values.map(json.dumps) | json_values.map(
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)
)
arguments_texts = st.dictionaries(text, json_values, max_size=2).map(json.dumps) | json_texts | text


def keys_of(*names: str) -> st.SearchStrategy[str]:
    return st.sampled_from(names) | text


anthropic_blocks = st.recursive(
    json_values
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "image", "image_url", "tool_use", "x"])},
        optional={
            "text": text,
            "thinking": text,
            "signature": text,
            "id": text,
            "name": text,
            "input": st.dictionaries(text, json_values, max_size=2),
            "source": json_values,
            "image_url": json_values | st.fixed_dictionaries({"url": text}),
            "cache_control": json_values,
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": text},
        optional={"content": text | st.lists(inner, max_size=2), "is_error": scalars},
    ),
    max_leaves=4,
)
anthropic_messages = st.builds(
    lambda extra, known: {**extra, **known},
    st.dictionaries(keys_of("id", "model", "usage"), json_values, max_size=2),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"])},
        optional={"content": text | st.lists(anthropic_blocks, max_size=3) | json_values},
    ),
)
openai_calls = json_values | st.fixed_dictionaries(
    {"id": text},
    optional={
        "type": st.sampled_from(["function", "custom"]) | json_values,
        "function": json_values
        | st.fixed_dictionaries({"name": text, "arguments": arguments_texts}),
        "custom": json_values | st.fixed_dictionaries({"name": text, "input": text}),
        "index": scalars,
    },
)
openai_messages = st.builds(
    lambda extra, known: {**extra, **known},
    st.dictionaries(keys_of("refusal", "audio"), json_values, max_size=2),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])},
        optional={
            "content": text | st.none() | st.lists(anthropic_blocks, max_size=3) | json_values,
            "name": text | json_values,
            "tool_calls": st.lists(openai_calls, max_size=2) | json_values,
            "tool_call_id": text | json_values,
            "function_call": json_values,
        },
    ),
)


def typed(value: object) -> object:
    """The value with the types of its numbers, because True == 1 == 1.0."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value), repr(value)


@given(st.lists(anthropic_messages, max_size=3))
def test_random_anthropic_messages_come_back_exactly(messages: list[Json]) -> None:
    assert typed(to_anthropic(from_anthropic(messages))) == typed(messages)


@given(st.lists(openai_messages, max_size=3))
def test_random_openai_messages_come_back_exactly(messages: list[Json]) -> None:
    assert typed(to_openai(from_openai(messages))) == typed(messages)


@given(st.lists(anthropic_messages, max_size=3))
def test_messages_survive_their_own_json(messages: list[Json]) -> None:
    converted = from_anthropic(messages)
    again = tuple(Message.from_json(message.to_json()) for message in converted)
    assert typed(to_anthropic(again)) == typed(messages)


ANTHROPIC_CASES: list[Json] = [
    {"role": "user", "content": ""},
    {"role": "user", "content": []},
    {"role": "user", "content": None},
    {"role": "user"},
    {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "x"}}]},
    {
        "role": "assistant",
        "id": "msg_1",
        "model": "m",
        "stop_reason": None,
        "usage": {"input_tokens": 3},
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "text", "text": "calling"},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "is_error": True,
                "content": [
                    {"type": "text", "text": "no such folder"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/gif", "data": "AA=="},
                    },
                ],
            },
            {"type": "tool_result", "tool_use_id": "t2", "content": "plain"},
            {"type": "text", "text": "go on"},
        ],
    },
]

OPENAI_CASES: list[Json] = [
    {"role": "system", "content": "s"},
    {"role": "developer", "content": [{"type": "text", "text": "d"}]},
    {"role": "user", "content": "u", "name": "ada"},
    {"role": "assistant", "content": None, "refusal": "no"},
    {"role": "assistant"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"id": "c3", "type": "function", "function": {"name": "f", "arguments": '{"a": '}},
            {"id": "c4", "type": "custom", "custom": {"name": "g", "input": "raw"}},
        ],
    },
    {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "4"},
    {"role": "tool", "tool_call_id": "c1", "content": "4", "tool_call_ids": ["c1"]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}]},
    {"role": "assistant", "content": "x", "tool_calls": []},
]


@pytest.mark.parametrize("message", ANTHROPIC_CASES)
def test_an_anthropic_message_comes_back_exactly(message: Json) -> None:
    assert to_anthropic(from_anthropic([message])) == [message]


@pytest.mark.parametrize("message", OPENAI_CASES)
def test_an_openai_message_comes_back_exactly(message: Json) -> None:
    assert to_openai(from_openai([message])) == [message]


def test_real_transcripts_come_back_exactly() -> None:
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there")
    lines = [
        json.loads(line)
        for path in sorted((DATA / "runs").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    messages = [line["message"] for line in lines if isinstance(line.get("message"), dict)]
    assert len(messages) > 50
    assert to_anthropic(from_anthropic(messages)) == messages


def test_real_trajectories_come_back_exactly() -> None:
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there")
    messages = [
        message
        for path in sorted((DATA / "runs").glob("*.traj"))
        for message in json.loads(path.read_text())["history"]
    ]
    assert len(messages) > 20
    converted = from_openai(messages)
    assert to_openai(converted) == messages
    assert any(message.tool_calls for message in converted)


def test_a_message_is_read_into_fields() -> None:
    message = from_anthropic([ANTHROPIC_CASES[5]])[0]
    assert message.role is Role.ASSISTANT
    assert message.content == "calling"
    assert message.tool_calls == (ToolCall("t1", "ls", {"path": "."}),)
    assert message.id == "msg_1"


def test_a_message_with_two_results_stays_one_message_without_a_call_id() -> None:
    message = from_anthropic([ANTHROPIC_CASES[6]])[0]
    assert (message.role, message.tool_call_id, message.is_error) == (Role.USER, None, False)
    assert message.content == "no such folder\nplain\ngo on"


def test_a_message_with_one_result_names_its_call() -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "bad", "is_error": True}
    message = from_anthropic([{"role": "user", "content": [block]}])[0]
    assert (message.tool_call_id, message.is_error, message.content) == ("t1", True, "bad")


def test_openai_arguments_become_a_dict_only_where_they_are_one() -> None:
    calls = from_openai([OPENAI_CASES[5]])[0].tool_calls
    assert [call.arguments for call in calls] == [{"a": 1}, {"a": 1}, '{"a": ', "raw"]


def test_consecutive_tool_messages_become_one_anthropic_message() -> None:
    given_messages = [
        Message("assistant", "", tool_calls=[ToolCall("a", "f", {}), ToolCall("b", "f", "{")]),
        Message("tool", "1", tool_call_id="a"),
        Message("tool", "2", tool_call_id="b", is_error=True),
    ]
    assert to_anthropic(given_messages) == [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {"arguments": "{"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True},
            ],
        },
    ]


def test_anthropic_results_become_openai_tool_messages() -> None:
    plain = to_openai(from_anthropic(ANTHROPIC_CASES[5:7]))
    assert [message["role"] for message in plain] == ["assistant", "tool", "tool", "user"]
    assert plain[0]["content"] == "calling"
    assert plain[2] == {"role": "tool", "tool_call_id": "t2", "content": "plain"}
    assert plain[3]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,AA=="}},
        {"type": "text", "text": "go on"},
    ]


def test_images_cross_between_providers() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    there = to_anthropic(from_openai([{"role": "user", "content": [part]}]))
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    assert there == [{"role": "user", "content": [{"type": "image", "source": source}]}]
    assert to_openai(from_anthropic(there)) == [{"role": "user", "content": [part]}]


def test_converted_messages_share_nothing_with_the_originals() -> None:
    block: Json = {"type": "text", "text": "a"}
    converted = from_anthropic([{"role": "user", "content": [block]}])
    block["text"] = "changed"
    assert converted[0].content == "a"
    assert to_anthropic(converted) == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


Converter: TypeAlias = Callable[[Iterable[Mapping[str, object]]], tuple[Message, ...]]


@pytest.mark.parametrize("convert", [from_anthropic, from_openai])
@pytest.mark.parametrize(
    ("messages", "where", "reason"),
    [
        ([{"content": "x"}], "messages[0].role", Reason.BAD_VALUE),
        ([{"role": "narrator"}], "messages[0].role", Reason.BAD_VALUE),
        ([{"role": "user", "content": b"x"}], 'messages[0]["content"]', Reason.NOT_JSON),
        ([{"role": "user", "n": float("nan")}], 'messages[0]["n"]', Reason.NOT_FINITE),
        (["x"], "messages[0]", Reason.WRONG_TYPE),
        ({"role": "user"}, "messages", Reason.WRONG_TYPE),
    ],
)
def test_what_is_no_message_is_refused_by_path(
    convert: Converter, messages: list[Json], where: str, reason: Reason
) -> None:
    with pytest.raises(ContractError) as caught:
        convert(messages)
    assert (caught.value.where, caught.value.reason) == (where, reason)


@pytest.mark.parametrize("convert", [to_anthropic, to_openai, unanswered_tool_calls])
def test_only_messages_are_converted_back(convert: Callable[[list[object]], object]) -> None:
    with pytest.raises(ContractError) as caught:
        convert([Message("user", "a"), {"role": "user"}])
    assert caught.value.where == "messages[1]"


def test_calls_are_answered_by_messages_and_by_blocks() -> None:
    calls = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in "abc"]
    result = {"type": "tool_result", "tool_use_id": "b", "content": ""}
    messages = [
        *from_anthropic([{"role": "assistant", "content": calls}]),
        *from_anthropic([{"role": "user", "content": [result]}]),
        Message("tool", "", tool_call_id="a"),
    ]
    assert [call.id for call in unanswered_tool_calls(messages)] == ["c"]


def test_an_answer_before_its_call_does_not_count() -> None:
    messages = [
        Message("tool", "", tool_call_id="a"),
        Message("assistant", tool_calls=[ToolCall("a", "f", {})]),
    ]
    assert [call.id for call in unanswered_tool_calls(messages)] == ["a"]
