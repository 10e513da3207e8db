"""Where lost events belong, told from what is left of their streams."""

from __future__ import annotations

from collections.abc import Iterator

import fmemory
from fmemory import repairing
from fmemory._repair_plan import Slots, survey
from fmemory.journal import Blob, Envelope, StoredEvent, Stream
from fmemory_segments.salvage import Found, Salvaged, Trouble, Witness

NONCE = bytes(16)
A, B = ("a",), ("b",)


class Known:
    """A salvage whose findings are given."""

    def __init__(self, *found: Found) -> None:
        self._found = found

    def found(self, *, payloads: bool = True) -> Iterator[Found]:
        del payloads
        yield from self._found


def event(seq: int, stream: Stream, revision: int, *, time_ns: int = 0) -> Salvaged:
    envelope = Envelope(seq, stream, revision, "x.y", time_ns or seq)
    return Salvaged(StoredEvent(envelope, Blob(b"data", NONCE)))


def places(*found: Found, upto: int) -> dict[int, tuple[Stream, int] | None]:
    """What each seq that is missing is given."""
    slots = Slots(survey(found))
    have = {one.seq for one in found if isinstance(one, Salvaged)}
    return {seq: slots.take(seq) for seq in range(1, upto + 1) if seq not in have}


def repaired(*found: Found) -> tuple[fmemory.RepairResult, list[Envelope]]:
    with fmemory.open(":memory:") as memory:
        salvage = Known(*found)
        result = repairing._Importer(memory.journal, survey(salvage.found()), None).run(salvage)
        return result, list(memory.journal.envelopes(0, memory.journal.refresh()))


def test_a_jump_of_a_revision_names_what_was_lost() -> None:
    assert places(event(1, A, 1), event(4, A, 4), upto=4) == {2: (A, 2), 3: (A, 3)}


def test_a_stream_whose_beginning_is_lost_begins_in_the_gap() -> None:
    assert places(event(3, A, 2), upto=3) == {1: (A, 1), 2: None}


def test_the_stream_that_goes_on_first_is_served_first() -> None:
    found = (event(1, A, 1), event(2, B, 1), event(5, B, 3), event(7, A, 4))

    assert places(*found, upto=7) == {3: (B, 2), 4: (A, 2), 6: (A, 3)}


def test_a_later_gap_is_used_where_the_first_is_full() -> None:
    found = (event(1, A, 1), event(2, B, 1), event(4, B, 3), event(6, A, 3))

    assert places(*found, upto=6) == {3: (B, 2), 5: (A, 2)}


def test_a_stream_is_given_no_seq_from_before_its_last_event() -> None:
    found = (event(2, A, 1), event(4, A, 3))

    assert places(*found, upto=4) == {1: None, 3: (A, 2)}


def test_a_stream_that_misses_more_than_was_lost_ends_and_says_so() -> None:
    result, envelopes = repaired(event(1, A, 1), event(2, B, 1), event(4, A, 5), event(5, B, 2))

    assert [(one.seq, one.stream, one.revision, one.type) for one in envelopes] == [
        (1, A, 1, "x.y"),
        (2, B, 1, "x.y"),
        (3, A, 2, "event_lost"),
        (4, ("lost",), 1, "event_lost"),
        (5, B, 2, "x.y"),
    ]
    assert result.salvaged == 3
    assert [(one.first_seq, one.last_seq) for one in result.lost] == [(3, 3), (4, 4)]
    assert "revision 5" in result.lost[1].reason


def test_an_event_that_goes_back_in_time_or_revision_is_lost() -> None:
    result, envelopes = repaired(
        event(1, A, 1, time_ns=50), event(2, A, 2, time_ns=40), event(3, A, 1), event(4, B, 1)
    )

    assert result.salvaged == 1
    assert [one.type for one in envelopes] == ["x.y", *["event_lost"] * 3]


def test_an_event_that_comes_twice_is_taken_once() -> None:
    result, envelopes = repaired(event(1, A, 1), event(1, A, 1), event(2, A, 2))

    assert (result.salvaged, result.lost, len(envelopes)) == (2, (), 2)
    assert len(result.notices) == 1


def test_what_the_store_says_it_had_is_counted() -> None:
    result, envelopes = repaired(
        Witness(4, None, "TIP"), event(1, A, 1), Trouble("gone", "file", 9)
    )

    assert [(one.first_seq, one.last_seq, one.reason) for one in result.lost] == [(2, 4, "gone")]
    assert [one.type for one in envelopes] == ["x.y", *["event_lost"] * 3]


def test_each_gap_has_the_cause_that_names_it() -> None:
    result, _ = repaired(
        Trouble("one", "f", 1, 1, 1),
        event(2, A, 2),
        Trouble("other", "f", 2, 3, 4),
        event(5, A, 5),
        event(7, A, 7),
    )

    assert [(one.first_seq, one.last_seq, one.reason) for one in result.lost] == [
        (1, 1, "one"),
        (3, 4, "other"),
        (6, 6, "nothing is left of them"),
    ]


def test_a_chain_value_that_differs_is_told() -> None:
    result, _ = repaired(event(1, A, 1), Witness(1, b"x" * 32, "f"))

    assert result.head_matches is False
    assert not result.is_whole
