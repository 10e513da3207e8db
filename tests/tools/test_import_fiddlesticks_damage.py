"""Any damage to a source of Fiddlesticks ends in sessions or in a `BadSource`, in nothing else.

Goal: no traceback and no half import, whatever the bytes are. Method: every value of a session's
JSON object is replaced by every kind of wrong value, and taken away; bits of a SQLite file are
turned over at random (the seed is the test's parameter, and is printed with a failure). What would
have to break: a value that is used before it is checked, or an error of a library that is let
through.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fmemory
from fmemory_tools.importers import BadSource
from tests.tools.fiddlesticks_sources import (
    FULL,
    TALK,
    import_into,
    session_file,
    state_of,
    write_folder,
    write_sqlite,
)

GONE = "this value is taken away"
WRONG: list[object] = [GONE, None, -1, 1.5, "", "\ud800", [], [[]], {}, True, 2**63, 2**70]
FLIPS = 40


def places_in(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner:
        yield (*above, key)
        if isinstance(one, dict | list):
            yield from places_in(one, (*above, key))


def changed(state: dict[str, Any], place: tuple[Any, ...], value: object) -> dict[str, Any]:
    whole = copy.deepcopy(state)
    inner: Any = whole
    for key in place[:-1]:
        inner = inner[key]
    if value == GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return whole


def is_imported(source: Path) -> bool:
    """Whether the source is imported; if it is refused, that nothing was written, and with what
    is malformed left out it is imported or refused for good."""
    with fmemory.open(":memory:") as memory:
        try:
            import_into(memory, source)
        except BadSource:
            assert memory.head().seq == 0
        else:
            return True
        try:
            import_into(memory, source, skip_bad=True)
        except BadSource as bad:
            assert not bad.skippable
    return False


@pytest.mark.parametrize("wrong", WRONG, ids=ascii)
def test_a_wrong_value_anywhere_is_a_finding_or_a_value(wrong: object, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", [FULL])
    state = state_of(FULL)
    places = list(places_in(state))
    imported = 0

    for place in places:
        text = json.dumps(changed(state, place, wrong))
        session_file(source, "login").write_text(text)
        imported += is_imported(source)

    assert len(places) > 80
    assert imported < len(places)


@pytest.mark.parametrize("seed", range(8))
def test_turned_bits_are_a_finding_or_values(seed: int, tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "source", [FULL, TALK], "DELETE")
    content = source.read_bytes()
    chance = random.Random(seed)

    for _ in range(FLIPS):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 2, 8])):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        source.write_bytes(damaged)
        is_imported(source)


def test_a_damaged_name_that_is_no_text_is_a_finding(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "source", [FULL], "DELETE")
    content = source.read_bytes()
    source.write_bytes(content.replace(b"TABLE run_checkpoints", b"TABLE ru\xee_checkpoints"))

    with pytest.raises(BadSource), fmemory.open(":memory:") as memory:
        import_into(memory, source)


@pytest.mark.parametrize("seed", range(8))
def test_a_source_cut_anywhere_is_a_finding(seed: int, tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "source", [FULL], "DELETE")
    content = source.read_bytes()
    chance = random.Random(seed)

    for _ in range(5):
        source.write_bytes(content[: chance.randrange(len(content))])

        assert not is_imported(source)
