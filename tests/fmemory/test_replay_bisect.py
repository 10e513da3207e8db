"""`replay.bisect` finds the first bad event with few checks, and refuses ends that are not so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmemory
from fmemory import ContractError, LogBackend, LogView, Message, NotFound, Reason
from fmemory.replay import (
    Bisection,
    BisectionStep,
    Verdict,
    bisect,
    feature_check,
    session_state,
    text_check,
)


@pytest.fixture
def long() -> Iterator[LogBackend]:
    """A session of 200 messages in events 1 to 400, every other one another session's."""
    with fmemory.open(":memory:") as opened:
        with opened.batch() as batch:
            for number in range(1, 201):
                batch.append_transcript_messages("s", [Message("user", f"message {number}")])
                batch.append_transcript_messages("other", [Message("user", "noise")])
        yield opened


def count_of(view: LogView) -> int:
    return len(view.load_transcript_messages("s"))


def test_the_event_after_which_a_feature_no_longer_passes_is_found(memory: LogBackend) -> None:
    found = bisect(memory, "login", ok=6, bad=11, check=feature_check("login", "form"))

    assert (found.ok, found.bad, found.candidates) == (9, 10, (10,))
    assert (found.type, found.actor, found.run_id, found.reason) == (
        "feature_pass_updated",
        "bob",
        "run-2",
        "looks broken",
    )
    assert found.time == memory.event(10).recorded_at
    assert found.steps[:2] == (BisectionStep(6, Verdict.OK), BisectionStep(11, Verdict.BAD))


def test_the_event_that_brought_a_text_is_found(memory: LogBackend) -> None:
    found = bisect(memory, "login", ok=0, bad=11, check=text_check("login", "no rule"))

    assert (found.ok, found.bad) == (4, 5)


@pytest.mark.parametrize("wanted", [1, 2, 3, 100, 199, 200])
def test_every_turn_is_found_with_few_checks(wanted: int, long: LogBackend) -> None:
    found = bisect(long, "s", ok=0, bad=400, check=lambda view: count_of(view) < wanted)

    assert (found.bad, found.event_count) == (2 * wanted - 1, 200)
    assert len(found.steps) <= 2 + 8


def test_skipped_states_are_gone_round(long: LogBackend) -> None:
    def check(view: LogView) -> Verdict:
        count = count_of(view)
        if 90 <= count <= 110:
            return Verdict.SKIP
        return Verdict.OK if count < 80 else Verdict.BAD

    assert bisect(long, "s", ok=0, bad=400, check=check).candidates == (159,)


def test_where_all_between_are_skipped_several_events_are_named(long: LogBackend) -> None:
    def check(view: LogView) -> Verdict:
        count = count_of(view)
        if 90 <= count <= 93:
            return Verdict.SKIP
        return Verdict.OK if count < 92 else Verdict.BAD

    found = bisect(long, "s", ok=0, bad=400, check=check)

    assert (found.ok, found.bad) == (177, 187)
    assert found.candidates == (179, 181, 183, 185, 187)


def test_progress_is_told_with_what_is_left(long: LogBackend) -> None:
    told: list[tuple[int, int]] = []
    found = bisect(
        long,
        "s",
        ok=0,
        bad=8,
        check=lambda view: count_of(view) < 3,
        progress=lambda step, left: told.append((step.seq, left)),
    )

    assert told == [(0, 4), (8, 4), (3, 4), (5, 2)]
    assert [one.seq for one in found.steps] == [0, 8, 3, 5]


@pytest.mark.parametrize(
    ("ok", "bad", "where", "reason"),
    [
        (11, 6, "bad", Reason.OUT_OF_RANGE),
        (6, 6, "bad", Reason.OUT_OF_RANGE),
        (-1, 6, "ok", Reason.OUT_OF_RANGE),
        (True, 6, "ok", Reason.WRONG_TYPE),
        (10, 11, "ok", Reason.MISMATCH),
        (6, 9, "bad", Reason.MISMATCH),
        (11, 12, "bad", Reason.MISMATCH),
    ],
)
def test_ends_that_are_not_as_claimed_are_refused(
    ok: int, bad: int, where: str, reason: Reason, memory: LogBackend
) -> None:
    with pytest.raises(ContractError) as caught:
        bisect(memory, "login", ok=ok, bad=bad, check=feature_check("login", "form"))
    assert (caught.value.where, caught.value.reason) == (where, reason)


def test_an_end_that_is_skipped_is_refused(memory: LogBackend) -> None:
    with pytest.raises(ContractError, match="got skip"):
        bisect(memory, "login", ok=6, bad=11, check=lambda _: Verdict.SKIP)


def test_a_check_that_answers_something_else_is_refused(memory: LogBackend) -> None:
    with pytest.raises(ContractError) as caught:
        bisect(memory, "login", ok=6, bad=11, check=lambda _: 0)  # type: ignore[arg-type, return-value]
    assert (caught.value.where, caught.value.reason) == ("check", Reason.WRONG_TYPE)


def test_what_a_check_raises_comes_through(memory: LogBackend) -> None:
    def check(view: LogView) -> Verdict:
        raise ZeroDivisionError(view.seq)

    with pytest.raises(ZeroDivisionError):
        bisect(memory, "login", ok=6, bad=11, check=check)


@pytest.mark.parametrize(("session", "bad"), [("nobody", 11), ("login", 99)])
def test_an_unknown_session_or_event_is_refused(session: str, bad: int, memory: LogBackend) -> None:
    with pytest.raises(NotFound):
        bisect(memory, session, ok=0, bad=bad, check=lambda _: True)


def test_a_state_as_plain_data_is_what_there_was(memory: LogBackend) -> None:
    state = session_state(memory.at(5), "login")

    assert (state["session_id"], state["seq"], state["message_count"]) == ("login", 5, 3)
    said = [one.to_dict() for one in memory.at(5).load_transcript_messages("login")]
    assert state["messages"] == said
    loaded = memory.at(5).load_bootstrap_state("login").to_dict()
    assert {key: state[key] for key in loaded} == loaded


def test_a_bisection_is_plain_data_and_back(memory: LogBackend) -> None:
    found = bisect(memory, "login", ok=6, bad=11, check=feature_check("login", "form"))

    assert Bisection.from_dict(found.to_dict()) == found
