"""Copying a log: the same history in another place, or the first part of it.

Goal: a copy is the source's log, event for event. Method: every pair of journals that can be opened
here, copied whole and in parts, to targets that hold nothing, a part, or something else. What would
have to break: an import that changes an event, or a check of the target that is only of its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import fmemory
from fmemory import (
    Conflict,
    ContractError,
    Head,
    JournalBackend,
    Message,
    NotFound,
    ReadOnlyStore,
    Reason,
    copy_log,
    copying,
)
from fmemory.testing import ModelBackend
from tests.fmemory.copy_tools import KINDS, Open, Wrapped, fill, many, opened_memories, stored


@pytest.fixture
def open_as(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open a memory of a kind under a name; all are closed at the end."""
    with opened_memories(request, tmp_path) as make:
        yield make


# What a copy is


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_every_event_as_it_was(kind: str, to: str, open_as: Open) -> None:
    source, target = open_as(kind, "source"), open_as(to, "target")
    fill(source)

    result = copy_log(source, target)

    assert stored(target) == stored(source)
    assert str(target.head()) == str(source.head()) == result.head
    assert (result.copied, result.present) == (source.health().head_seq, 0)
    assert result.durable is (to != "memory")
    assert target.verify(source.head()) == ()


@pytest.mark.parametrize("to", KINDS)
def test_a_copy_answers_as_its_source_does(to: str, open_as: Open) -> None:
    source, target = open_as("memory", "source"), open_as(to, "target")
    fill(source)
    copy_log(source, target)

    for one in (source, target):
        assert one.count(one.count_request()).count == 9
    scans = [one.scan(one.scan_request()).records for one in (source, target)]
    assert scans[0] == scans[1]
    at = [one.at(9).load_bootstrap_state("s%_./") for one in (source, target)]
    assert at[0] == at[1]
    assert list(source.events()) == list(target.events())


@pytest.mark.parametrize("to", KINDS)
def test_a_target_that_was_open_and_empty_is_written_on_after_the_copy(
    to: str, open_as: Open
) -> None:
    source, target = open_as("memory", "source"), open_as(to, "target")
    assert list(target.events()) == []
    fill(source)
    copy_log(source, target)

    target.add_note("mine", id="mine")

    assert target.health().head_seq == source.health().head_seq + 1
    assert target.get(target.get_request(["mine", "float320"])).missing == ()
    assert source.get(source.get_request(["mine"])).missing == ("mine",)


def test_a_copy_there_and_back_is_the_same_log(open_as: Open) -> None:
    first = open_as("segments", "first")
    fill(first)
    chain = [first, *(open_as(kind, f"copy{n}") for n, kind in enumerate([*KINDS, "segments"]))]
    for source, target in pairwise(chain):
        copy_log(source, target)
    assert stored(chain[-1]) == stored(first)
    assert chain[-1].head() == first.head()


def test_a_log_without_events_is_copied_to_one_without(open_as: Open) -> None:
    source, target = open_as("segments", "source"), open_as("sqlite", "target")
    result = copy_log(source, target)
    assert (result.copied, result.present, result.payload_bytes) == (0, 0, 0)
    assert result.head == str(Head(0, bytes(32)))


def test_journals_are_taken_as_memories_are(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 3)
    assert copy_log(source.journal, target).copied == 3
    assert target.head() == source.head()


def test_payload_bytes_are_those_of_the_log(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    fill(source)
    result = copy_log(source, target)
    assert result.payload_bytes == sum(one.payload_bytes for one in source.journal.usage())


# Going on


@pytest.mark.parametrize("to", KINDS)
def test_a_second_copy_brings_what_came_since(to: str, open_as: Open) -> None:
    source, target = open_as("segments", "source"), open_as(to, "target")
    many(source, 5)
    copy_log(source, target)
    fill(source)

    result = copy_log(source, target)

    assert (result.present, result.copied) == (5, source.health().head_seq - 5)
    assert stored(target) == stored(source)


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_copy_brings_nothing_back_whose_deletion_is_forgotten(
    kind: str, to: str, open_as: Open
) -> None:
    source, target = open_as(kind, "source"), open_as(to, "target")
    source.add_note("secret", id="gone")
    source.add_note("tea", id="kept")
    source.append_transcript_messages("s1", [Message("user", "before")])
    copy_log(source, target)
    assert target.count(target.count_request()).count == 2
    source.delete(source.delete_request(("gone",)))
    source.delete_session("s1")
    source.append_transcript_messages("s1", [Message("user", "after")])
    source.compact(forget_before=source.head().seq)

    copy_log(source, target)

    for one in (target, source):
        assert [record.id for record in one.scan(one.scan_request()).records] == ["kept"]
        assert [said.content for said in one.load_transcript_messages("s1")] == ["after"]
    assert list(target.events()) == list(source.events())


def test_a_copy_of_what_is_there_writes_nothing(open_as: Open) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    fill(source)
    copy_log(source, target)
    batches = len(target.batches)

    result = copy_log(source, target)

    assert (result.copied, result.present) == (0, source.health().head_seq)
    assert len(target.batches) == batches
    assert target.verified == [source.head(), source.head()]


def test_a_copy_that_stopped_at_any_batch_is_gone_on_with(
    open_as: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_EVENTS_MAX", 2)
    source = open_as("memory", "source")
    fill(source)
    expected = stored(source)
    stops = range((source.health().head_seq + 1) // 2)
    for stop in stops:
        target = Wrapped()

        def give_up(target: Wrapped = target, stop: int = stop) -> None:
            if len(target.batches) == stop:
                raise KeyboardInterrupt

        target.before_import = give_up
        with pytest.raises(KeyboardInterrupt):
            copy_log(source, target)
        assert target.refresh() == 2 * stop
        target.before_import = lambda: None
        assert copy_log(source, target).present == 2 * stop
        assert stored(JournalBackend(target)) == expected


def test_upto_copies_the_first_events(open_as: Open) -> None:
    source, target = open_as("segments", "source"), open_as("sqlite", "target")
    fill(source)
    assert copy_log(source, target, upto=4).head == str(source.journal.head(4))
    assert stored(target) == stored(source)[:4]
    assert copy_log(source, target).present == 4


@pytest.mark.parametrize(
    ("upto", "error", "reason"),
    [
        (-1, ContractError, Reason.OUT_OF_RANGE),
        ("3", ContractError, Reason.WRONG_TYPE),
        (True, ContractError, Reason.WRONG_TYPE),
        (4, NotFound, Reason.EVENT_NOT_FOUND),
    ],
)
def test_upto_must_be_a_seq_of_the_source(
    upto: object, error: type[ContractError], reason: Reason, open_as: Open
) -> None:
    source, target = open_as("memory", "source"), Wrapped()
    many(source, 3)
    with pytest.raises(error) as caught:
        copy_log(source, target, upto=upto)  # type: ignore[arg-type]
    assert caught.value.reason is reason
    assert target.refresh() == 0


# Targets that are refused


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_target_with_other_events_is_refused_and_left_alone(
    count: int, to: str, open_as: Open
) -> None:
    source, target = open_as("segments", "source"), open_as(to, "target")
    many(source, 3)
    many(target, count)
    before = stored(target)
    with pytest.raises(Conflict) as caught:
        copy_log(source, target)
    assert (caught.value.reason, caught.value.actual) == (Reason.TARGET_EXISTS, count)
    assert stored(target) == before


def test_a_target_that_went_on_by_itself_is_refused(open_as: Open) -> None:
    source, target = open_as("segments", "source"), open_as("sqlite", "target")
    many(source, 3)
    copy_log(source, target)
    many(target, 1)
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            copy_log(source, target)
        assert caught.value.reason is Reason.TARGET_EXISTS
        many(source, 1)
    assert target.health().head_seq == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_not_copied_onto_itself(kind: str, open_as: Open) -> None:
    source = open_as(kind, "source")
    many(source, 3)
    others = [source, source.bind(actor="ada")]
    if kind != "memory":
        others.append(open_as(kind, "source"))
    for target in others:
        with pytest.raises(ContractError) as caught:
            copy_log(source, target)
        assert (caught.value.where, caught.value.reason) == ("target", Reason.UNSUPPORTED)
    assert source.health().head_seq == 3


def test_a_target_opened_for_reading_is_refused(open_as: Open, tmp_path: Path) -> None:
    source = open_as("memory", "source")
    many(source, 1)
    open_as("segments", "target")
    with (
        fmemory.open(tmp_path / "target", read_only=True) as target,
        pytest.raises(ReadOnlyStore),
    ):
        copy_log(source, target)


def test_a_memory_without_a_journal_is_refused(open_as: Open) -> None:
    memory = open_as("memory", "source")
    with ModelBackend() as model:
        for where, arguments in {"source": (model, memory), "target": (memory, model)}.items():
            with pytest.raises(ContractError) as caught:
                copy_log(*arguments)  # type: ignore[arg-type]
            assert (caught.value.where, caught.value.reason) == (where, Reason.WRONG_TYPE)
