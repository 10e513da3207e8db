"""The quick look at stored bytes never hides a match.

Goal: `grep` finds what a search of every text would find. Method: patterns and texts drawn from few
characters, so that they often match, with those that have special meanings or many cases; wherever
the pattern matches, the sieve must let the text pass. A sieve that takes an optional character for
a needed one, or forgets the Kelvin sign, breaks it.
"""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

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
