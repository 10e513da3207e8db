"""`replay.records` finds records by time, text and likeness; `tells_error` knows a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmemory
from fmemory import (
    ContractError,
    JsonValue,
    LogBackend,
    Message,
    NewEvent,
    NotFound,
    RunCheckpoint,
    TimeRange,
)
from fmemory.replay import EVENT_TYPES, FoundRecords, records, tells_error
from tests.fmemory.replay_tools import JOURNALS, target_of


@pytest.fixture(params=JOURNALS)
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogBackend]:
    """Five records, of which e has no vector, and one in namespace "ui"."""
    with fmemory.open(target_of(request.param, tmp_path)) as opened:
        for number, (id_, vector) in enumerate(
            [("a", [1.0, 0.0]), ("b", [0.0, 1.0]), ("c", [1.0, 1.0]), ("d", [-1.0, 0.0]), ("e", [])]
        ):
            opened.add_note(f"Note {id_}", vector, id=id_, timestamp=float(number))
        opened.add_note("note u", [1.0], id="u", namespace=("ui",))
        yield opened


def ids(found: FoundRecords) -> str:
    return "".join(one.record.id for one in found.records)


def test_records_come_by_their_time(memory: LogBackend) -> None:
    assert ids(records(memory)) == "abcde"
    assert ids(records(memory, namespace=("ui",))) == "u"
    assert ids(records(memory, time_range=TimeRange(1.0, 3.0))) == "bc"


def test_a_text_is_found_in_whatever_capitals(memory: LogBackend) -> None:
    assert ids(records(memory, text="note C")) == "c"
    assert ids(records(memory, text="NOTE", limit=2)) == "ab"


def test_a_limit_says_whether_there_are_more(memory: LogBackend) -> None:
    assert not records(memory, limit=4).complete
    assert records(memory, limit=5).complete
    assert not records(memory, near="a", limit=2).complete


def test_the_most_similar_come_first_without_the_one_asked_for(memory: LogBackend) -> None:
    found = records(memory, near="a")

    assert ids(found) == "cbd"
    assert [one.score for one in found.records] == pytest.approx([0.5**0.5, 0.0, -1.0])


def test_likeness_keeps_to_the_range_and_the_text(memory: LogBackend) -> None:
    assert ids(records(memory, near="a", time_range=TimeRange(3.0, None))) == "d"
    assert ids(records(memory, near="a", text="note b")) == "b"
    assert ids(records(memory, near="a", time_range=TimeRange(9.0, None))) == ""


def test_a_view_of_the_past_has_what_there_was(memory: LogBackend) -> None:
    assert ids(records(memory.at(2))) == "ab"


def test_an_unknown_record_and_one_without_a_vector_are_refused(memory: LogBackend) -> None:
    with pytest.raises(NotFound) as caught:
        records(memory, near="nobody")
    assert (caught.value.what, caught.value.key) == ("record", "nobody")
    with pytest.raises(ContractError, match="has none"):
        records(memory, near="e")
    with pytest.raises(ContractError, match="limit"):
        records(memory, limit=0)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message("tool", "x", tool_call_id="c", is_error=True), True),
        (Message("tool", "EXECUTION TIMED OUT", tool_call_id="c"), True),
        (Message("tool", "0 errors", tool_call_id="c"), False),
        (Message("assistant", "an error", is_error=True), True),
        (Message("assistant", "an error"), False),
    ],
)
def test_a_message_tells_of_an_error_by_its_mark_or_a_failure(
    message: Message, expected: bool, empty: LogBackend
) -> None:
    empty.append_transcript_messages("s", [message])

    assert tells_error(empty.event(1)) is expected


def test_a_failed_run_and_a_failed_step_tell_of_an_error(empty: LogBackend) -> None:
    empty.record_run_checkpoint("s", RunCheckpoint.started("r"))
    empty.record_run_checkpoint("s", RunCheckpoint.started("r").failed())
    step: JsonValue = {"value": {"action": "ls", "observation": "EXECUTION TIMED OUT"}}
    others = [NewEvent("a.b", b"x"), NewEvent("a.step", step)]
    empty.append(("session", "s"), [NewEvent("swe_agent.step", step), *others])

    assert [tells_error(one) for one in empty.events()] == [False, True, True, False, False]


def test_the_types_of_our_own_have_no_dot() -> None:
    assert not [one for one in EVENT_TYPES if "." in one]
    assert {"records_put", "transcript_appended", "event_forgotten", "event_lost"} <= EVENT_TYPES
