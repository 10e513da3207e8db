"""The verdict on the end of a log, from its bytes and its witnesses alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fmemory_segments import LogError, LogReason
from fmemory_segments import errors as log_errors
from fmemory_segments._frame import FrameHeader, FrameKind
from fmemory_segments.recovery import (
    Expected,
    Judgement,
    Verdict,
    judge_candidate,
    judge_end,
    judge_header,
)

FOUND = Judgement(Verdict.CANDIDATE, LogReason.FRAME_CHECKSUM, "a frame header, got other bytes")


def header(**fields: int) -> FrameHeader:
    values = {
        "magic": b"\xf3\xa7\xc0\x5d",
        "kind": FrameKind.BATCH,
        "flags": 1,
        "reserved": 0,
        "event_count": 2,
        "prev_frame_bytes": 200,
        "first_seq": 10,
        "time_ns": 500,
        "synced_to": 9,
        "batch_offset": 0,
        "meta_bytes": 40,
        "data_bytes": 80,
        "meta_crc": 0,
        "data_crc": 0,
        "head_crc": 0,
    } | fields
    return FrameHeader(**values)  # type: ignore[arg-type]


EXPECTED = Expected(seq=10, prev_frame_bytes=200, time_ns=500, batch_first_seq=10)


def test_frame_that_continues_is_accepted() -> None:
    assert judge_header(header(), EXPECTED, 184).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("fields", "verdict", "reason"),
    [
        ({"first_seq": 11}, Verdict.DAMAGED, LogReason.FRAME_ORDER),
        ({"first_seq": 8}, Verdict.DAMAGED, LogReason.FRAME_ORDER),
        ({"prev_frame_bytes": 0}, Verdict.DAMAGED, LogReason.FRAME_ORDER),
        ({"batch_offset": 1}, Verdict.DAMAGED, LogReason.FRAME_ORDER),
        ({"time_ns": 499}, Verdict.DAMAGED, LogReason.FRAME_ORDER),
        ({"kind": 9}, Verdict.NEWER, LogReason.UNKNOWN_FEATURE),
        ({"flags": 2}, Verdict.NEWER, LogReason.UNKNOWN_FEATURE),
        ({"reserved": 1}, Verdict.NEWER, LogReason.UNKNOWN_FEATURE),
        ({"data_bytes": 88}, Verdict.CANDIDATE, LogReason.FRAME_CHECKSUM),
    ],
)
def test_frame_that_does_not_continue_is_judged(
    fields: dict[str, int], verdict: Verdict, reason: LogReason
) -> None:
    found = judge_header(header(**fields), EXPECTED, 184)
    assert (found.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize("left_bytes", [1, 63, 64, 1000])
def test_bytes_without_a_header_are_a_candidate(left_bytes: int) -> None:
    assert judge_header(None, EXPECTED, left_bytes).verdict is Verdict.CANDIDATE


@pytest.mark.parametrize(
    ("later", "synced_seq", "verdict"),
    [
        ([], 9, Verdict.TORN),
        ([], 10, Verdict.DAMAGED),
        ([header(synced_to=9)], 9, Verdict.TORN),
        ([header(synced_to=9), header(synced_to=10)], 0, Verdict.DAMAGED),
        ([header(synced_to=12)], 0, Verdict.DAMAGED),
    ],
)
def test_candidate_is_torn_unless_a_witness_says_it_was_on_disk(
    later: list[FrameHeader], synced_seq: int, verdict: Verdict
) -> None:
    found = judge_candidate(FOUND, expected_seq=10, later=later, synced_seq=synced_seq)
    assert found.verdict is verdict
    assert found.reason is (
        LogReason.TORN_TAIL if verdict is Verdict.TORN else LogReason.FRAME_CHECKSUM
    )


def test_clean_end_below_what_was_acknowledged_is_damage() -> None:
    assert judge_end(head_seq=9, synced_seq=9).verdict is Verdict.CLEAN
    assert judge_end(head_seq=9, synced_seq=0).verdict is Verdict.CLEAN
    lost = judge_end(head_seq=9, synced_seq=10)
    assert (lost.verdict, lost.reason) == (Verdict.DAMAGED, LogReason.ACKNOWLEDGED_LOSS)


def leaves() -> list[type[LogError]]:
    return [
        one
        for one in vars(log_errors).values()
        if isinstance(one, type) and issubclass(one, LogError)
    ]


@pytest.mark.parametrize("leaf", leaves())
def test_errors_survive_pickling_with_their_fields(leaf: type[LogError]) -> None:
    error = leaf(
        "frame: expected this, got that",
        reason=LogReason.DATA_CHECKSUM,
        path=Path("store/seg.log"),
        offset=64,
        first_seq=3,
        last_seq=4,
    )
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is leaf
    assert str(copied) == str(error)
    assert vars(copied) == vars(error)


@pytest.mark.parametrize("leaf", leaves())
def test_errors_are_drawn_in_the_tree(leaf: type[LogError]) -> None:
    assert log_errors.__doc__ is not None
    assert leaf.__name__ in log_errors.__doc__
    for base in leaf.__bases__:
        if not issubclass(base, LogError) and base is not Exception:
            line = next(
                line for line in log_errors.__doc__.splitlines() if f"{leaf.__name__} " in line
            )
            assert f"({base.__name__})" in line
