"""The quick look at stored bytes never hides a match.

Goal: `grep` finds what a search of every text would find. Method: patterns and texts drawn from few
characters, so that they often match, with those that have special meanings or many cases; wherever
the pattern matches, the sieve must let the text pass. A sieve that takes an optional character for
a needed one, or forgets the Kelvin sign, breaks it.
"""

from __future__ import annotations

import re
import warnings
from typing import cast
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import fmemory
from fmemory import JsonObject, JsonValue, Message, NewEvent, ToolCall
from fmemory.replay import grep
from fmemory.replay._sieve import needed_by, sieve

PATTERNS = st.text("abkKs1.?*+^$|()[]{},\\dx4-ſ\u212a\n", max_size=8)
TEXTS = st.text("abkKs14ABſ\u212a\n -", max_size=10)


# Most patterns drawn at random are none, or match nothing: that is filtered, on purpose.
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(PATTERNS, TEXTS, st.booleans())
@example("ab?c", "ac", False)
@example("k", "\u212a", True)
@example("a\\x41b", "aAb", False)
@example("ab{0}c", "ac", False)
@example("a\nb", "a\nb", False)
def test_what_a_pattern_matches_passes(pattern: str, text: str, ignore_case: bool) -> None:
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expression = re.compile(pattern, flags)
    except (re.error, OverflowError):
        assume(False)
        raise
    found = expression.search(text)
    assume(found is not None)
    for line in text.split("\n") if "\n" not in pattern else [text]:
        if expression.search(line):
            assert sieve(pattern, literal=False, ignore_case=ignore_case)(line.encode())


@given(TEXTS.filter(bool), TEXTS, TEXTS, st.booleans())
def test_a_literal_in_a_text_passes(
    pattern: str, before: str, after: str, ignore_case: bool
) -> None:
    text = before + (pattern.swapcase() if ignore_case else pattern) + after
    expression = re.compile(re.escape(pattern), re.IGNORECASE if ignore_case else 0)
    assume(expression.search(text))
    assert sieve(pattern, literal=True, ignore_case=ignore_case)(text.encode())


@pytest.mark.parametrize(
    ("pattern", "literal", "ignore_case", "needed"),
    [
        ("Traceback", False, False, "Traceback"),
        ("Traceback", False, True, "Tracebac"),
        ("no rule.*target", False, False, "no rule"),
        ("f(x)", True, False, "f(x)"),
        ("f(x)", False, False, ""),
        ("137", True, False, ""),
        ("true", True, False, ""),
        ("exit 137", True, False, "exit 137"),
        ("größer als", True, False, "er als"),
        ("one line\nand more", True, False, "one line"),
        (r"a\.b", False, False, "b"),
    ],
)
def test_what_is_needed_is_the_longest_sure_piece(
    pattern: str, literal: bool, ignore_case: bool, needed: str
) -> None:
    assert needed_by(pattern, literal=literal, ignore_case=ignore_case) == needed


SCALARS = st.sampled_from(
    [True, False, None, 7, -12, 1e5, 1e-7, 1e22, "true", "False", "1e5", "null", "straße", "ﬁle"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "\u212aey", "true"]), inner, max_size=3)
    ),
    max_leaves=5,
)
WORDS = st.sampled_from(
    ["true", "false", "ru", "als", "1e", "e+22", "e-07", "-12", "null", "s", "fi"]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUES, min_size=1, max_size=4), WORDS, st.booleans(), st.booleans())
def test_a_search_finds_with_the_sieve_what_it_finds_without(
    values: list[object], word: str, is_upper: bool, ignore_case: bool
) -> None:
    pattern = word.upper() if is_upper else word
    with fmemory.open(":memory:") as memory:
        session = memory.session("s")
        for value in values:
            call = ToolCall("c", "Bash", cast("JsonObject", {"value": value}))
            session.append_transcript_messages([Message("assistant", tool_calls=[call])])
            session.append([NewEvent("test.said", cast("JsonValue", value))])

        found = grep(memory, pattern, literal=True, ignore_case=ignore_case)
        with patch("fmemory.replay._grep.sieve", lambda *_, **__: lambda _: True):
            expected = grep(memory, pattern, literal=True, ignore_case=ignore_case)

    assert found == expected
