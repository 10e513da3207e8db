"""Strict JSON values: what is taken comes back of the same types, all else is refused by path."""

from __future__ import annotations

import datetime
import decimal
import enum
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory._json_values import (
    JSON_DEPTH_MAX,
    JsonValue,
    check_json,
    check_text,
    copy_json,
    decode_json,
    encode_json,
    is_json_object,
)
from fmemory.errors import ContractError, Reason

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
)


class Colour(enum.IntEnum):
    RED = 1


class Word(str):
    __slots__ = ()


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> object:
    value: dict[str, object] = {}
    value["self"] = value
    return value


@given(json_values)
def test_every_json_value_comes_back_equal_and_of_the_same_types(value: JsonValue) -> None:
    again = decode_json(encode_json(check_json(value)))
    assert repr(again) == repr(value)


@given(json_values)
def test_a_value_is_never_changed_by_the_check(value: JsonValue) -> None:
    before = repr(value)
    assert check_json(value) is value
    assert repr(value) == before


@pytest.mark.parametrize(
    ("value", "where", "reason"),
    [
        ({"a": float("nan")}, 'm["a"]', Reason.NOT_FINITE),
        ({"a": [0, float("inf")]}, 'm["a"][1]', Reason.NOT_FINITE),
        ({"a": -float("inf")}, 'm["a"]', Reason.NOT_FINITE),
        ({"a": 2**64}, 'm["a"]', Reason.OUT_OF_RANGE),
        ({"a": 2**70}, 'm["a"]', Reason.OUT_OF_RANGE),
        ({"a": -(2**63) - 1}, 'm["a"]', Reason.OUT_OF_RANGE),
        ({1: "a"}, "m", Reason.NOT_JSON),
        ({None: "a"}, "m", Reason.NOT_JSON),
        ({Word("a"): 1}, "m", Reason.NOT_JSON),
        ({"a": {"b": (1,)}}, 'm["a"]["b"]', Reason.NOT_JSON),
        ({"a": {1, 2}}, 'm["a"]', Reason.NOT_JSON),
        ({"a": b"x"}, 'm["a"]', Reason.NOT_JSON),
        ({"a": decimal.Decimal(1)}, 'm["a"]', Reason.NOT_JSON),
        ({"a": datetime.datetime.now()}, 'm["a"]', Reason.NOT_JSON),
        ({"a": np.float64(1)}, 'm["a"]', Reason.NOT_JSON),
        ({"a": np.int64(1)}, 'm["a"]', Reason.NOT_JSON),
        ({"a": np.zeros(2)}, 'm["a"]', Reason.NOT_JSON),
        ({"a": Colour.RED}, 'm["a"]', Reason.NOT_JSON),
        ({"a": Word("x")}, 'm["a"]', Reason.NOT_JSON),
        ({"a": object()}, 'm["a"]', Reason.NOT_JSON),
        ({"a": lambda: 0}, 'm["a"]', Reason.NOT_JSON),
        ({"a": "\ud800"}, 'm["a"]', Reason.LONE_SURROGATE),
        ({"a\udc00": 1}, "m", Reason.LONE_SURROGATE),
        (["\ud800"], "m[0]", Reason.LONE_SURROGATE),
        ({'a"b\\': 2**70}, 'm["a\\"b\\\\"]', Reason.OUT_OF_RANGE),
    ],
    ids=lambda value: re.sub(r"0x\w+", "0x", ascii(value))[:30],  # the same in every process
)
def test_what_is_not_json_is_refused_by_path(value: object, where: str, reason: Reason) -> None:
    with pytest.raises(ContractError) as caught:
        check_json(value, "m")
    assert (caught.value.where, caught.value.reason) == (where, reason)


@pytest.mark.parametrize("value", [2**64, float("nan"), (1,), "\ud800", object()])
def test_a_bare_value_is_refused(value: object) -> None:
    with pytest.raises(ContractError):
        copy_json(value)


@pytest.mark.parametrize(
    "value",
    [2**64 - 1, -(2**63), 0.0, -0.0, 5e-324, 1.7976931348623157e308, "a\0b", "", "é🎉", None],
)
def test_the_edges_of_what_is_allowed_are_allowed(value: JsonValue) -> None:
    assert repr(copy_json(value)) == repr(value)


def test_lists_may_be_inside_one_another_up_to_the_limit() -> None:
    assert copy_json(nested(JSON_DEPTH_MAX)) == nested(JSON_DEPTH_MAX)


def test_deeper_lists_are_refused() -> None:
    with pytest.raises(ContractError) as caught:
        check_json(nested(JSON_DEPTH_MAX + 1))
    assert caught.value.reason is Reason.TOO_DEEP
    assert caught.value.where == "[0]" * JSON_DEPTH_MAX


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(ContractError) as caught:
        check_json(cyclic())
    assert caught.value.reason is Reason.TOO_DEEP


def test_a_copy_shares_nothing() -> None:
    value: JsonValue = {"a": [1]}
    copy = copy_json(value)
    assert isinstance(copy, dict) and isinstance(value, dict)
    assert copy["a"] is not value["a"]


@pytest.mark.parametrize("value", [[], (), "a", None, 1])
def test_only_a_dict_is_an_object(value: object) -> None:
    assert not is_json_object(value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", Reason.EMPTY),
        (1, Reason.WRONG_TYPE),
        (None, Reason.WRONG_TYPE),
        (b"a", Reason.WRONG_TYPE),
        (np.str_("a"), Reason.WRONG_TYPE),
        ("a\ud800", Reason.LONE_SURROGATE),
    ],
    ids=ascii,
)
def test_text_is_checked(value: object, reason: Reason) -> None:
    with pytest.raises(ContractError) as caught:
        check_text(value, "id")
    assert (caught.value.where, caught.value.reason) == ("id", reason)
