"""What is damaged, lost, forgotten, foreign or still being written is shown and never left out."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

import fmemory
from fmemory import LogBackend, Message, NewEvent
from fmemory.replay import (
    bisect,
    blame,
    compare,
    feature_check,
    grep,
    records,
    text_check,
    transcript,
)
from tests.fmemory.replay_stores import Plain
from tests.fmemory.replay_tools import JOURNALS, target_of, tell_story
from tests.tools.helpers import bytes_of


def look_at_everything(memory: LogBackend) -> list[object]:
    """What each function of reading says."""
    return [
        transcript(memory, "login"),
        blame(memory, "login", every=True),
        bisect(memory, "login", ok=6, bad=11, check=feature_check("login", "form")),
        bisect(memory, "login", ok=0, bad=11, check=text_check("login", "done")),
        compare(memory, "run-1", "run-2"),
        grep(memory, "form"),
        records(memory),
    ]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The story with a changed byte in event 5, the failed answer."""
    path = tmp_path / "damaged"
    with fmemory.open(path) as memory:
        tell_story(memory)
    (segment,) = path.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"no rule")] ^= 1
    segment.write_bytes(content)
    return path


@pytest.mark.parametrize("journal", JOURNALS[:3])
def test_looking_changes_no_byte(journal: str, tmp_path: Path) -> None:
    with fmemory.open(target_of(journal, tmp_path)) as memory:
        tell_story(memory)
    before = bytes_of(tmp_path)

    with fmemory.open(target_of(journal, tmp_path), read_only=True) as memory:
        look_at_everything(memory)
        during = bytes_of(tmp_path)
    after = bytes_of(tmp_path)

    # SQLite keeps a shared index beside the file while anybody has it open.
    assert {name: during[name] for name in before} == before
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("journal", JOURNALS[:3])
def test_a_store_that_is_being_written_is_read_as_far_as_it_is(
    journal: str, tmp_path: Path
) -> None:
    target = target_of(journal, tmp_path)
    with fmemory.open(target) as writer:
        tell_story(writer)
        with fmemory.open(target, read_only=True) as memory:
            before = look_at_everything(memory)
            writer.append_transcript_messages("login", [Message("user", "the form, please")])

            assert [one.seq for one in transcript(memory, "login", last=2)] == [11, 13]
            assert [one.seq for one in grep(memory, "please").matches] == [13]
            assert transcript(memory, "login", at=12) == before[0]


def test_a_half_finished_run_is_compared_as_far_as_it_is() -> None:
    with fmemory.open(":memory:") as memory:
        tell_story(memory)
        with memory.session("login").run("run-3"):
            memory.append_transcript_messages("login", [Message("assistant", "done")])

            found = compare(memory, "run-2", "run-3")

            assert (found.message, found.shared_messages) == (None, 1)
            assert [one.text for one in found.checkpoints.b] == ["in_progress"]


def test_a_damaged_message_is_a_gap_of_the_transcript(damaged: Path) -> None:
    with fmemory.open(damaged, read_only=True) as memory:
        found = transcript(memory, "login")

    gaps = [(one.seq, one.gap.state) for one in found if one.gap is not None]
    assert gaps == [(5, "damaged")]
    assert [one.seq for one in found] == [3, 4, 5, 11]
    (gap,) = [one.gap for one in found if one.gap is not None]
    assert "expected" in (gap.problem or "")


def test_a_damaged_message_is_named_by_search_and_comparison(damaged: Path) -> None:
    with fmemory.open(damaged, read_only=True) as memory:
        result = grep(memory, "form")
        diff = compare(memory, "run-1", "run-2")

    assert [one.seq for one in result.unreadable] == [5]
    assert [one.seq for one in result.matches] == [1, 1, 3, 6, 8, 10]
    assert [(one.seq, one.state) for one in diff.unreadable] == [(5, "damaged")]


def test_damage_of_a_message_does_not_touch_blame(damaged: Path) -> None:
    with fmemory.open(damaged, read_only=True) as memory:
        assert [one for one in blame(memory, "login") if one.gap is not None] == []


def test_a_damaged_beginning_is_a_gap_of_blame(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fmemory.open(path) as memory:
        tell_story(memory)
    (segment,) = path.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"make logging in work")] ^= 1
    segment.write_bytes(content)

    with fmemory.open(path, read_only=True) as memory:
        found = blame(memory, "login")
        named = blame(memory, "login", "nobody knows")

    assert [(one.name, one.seq, one.after) for one in found if one.gap is None] == [
        ("form", 10, False)
    ]
    assert [(one.part, one.seq, one.gap.state) for one in found if one.gap is not None] == [
        ("unknown", 1, "damaged")
    ]
    assert [one.seq for one in named] == [1]


def test_an_event_of_which_a_repair_could_save_the_envelope_is_a_gap(
    damaged: Path, tmp_path: Path
) -> None:
    fmemory.repair(damaged, tmp_path / "repaired")

    with fmemory.open(tmp_path / "repaired", read_only=True) as memory:
        found = transcript(memory, "login")

    assert [(one.seq, one.gap.state) for one in found if one.gap is not None] == [(5, "lost")]


def test_lost_events_of_a_repair_are_gaps(damaged: Path, tmp_path: Path) -> None:
    (segment,) = damaged.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    text = content.index(b"*** ")
    content[text - 80 : text] = bytes(80)
    segment.write_bytes(content)
    fmemory.repair(damaged, tmp_path / "repaired")

    with fmemory.open(tmp_path / "repaired", read_only=True) as memory:
        found = transcript(memory, "login")
        result = grep(memory, "form")
        attributions = blame(memory, "login")

    assert [(one.seq, one.gap.state) for one in found if one.gap is not None] == [(5, "lost")]
    assert [(one.seq, one.state) for one in result.unreadable] == [(5, "lost")]
    # Of a lost event nobody knows what it was, so it may have set a value.
    assert [one.seq for one in attributions if one.gap is not None] == [5]


Shown = list[tuple[int, int | None, object]]


def _truncated_behind_damage(tmp_path: Path, harm: str) -> Path:
    """Messages abc, de, fgh, then the first five are kept, then i; event 2 cannot be read."""
    path = tmp_path / "truncated"
    with fmemory.open(path) as memory:
        for texts in ("abc", ["NEEDLE", "e"], "fgh"):
            memory.append_transcript_messages("s", [Message("user", one) for one in texts])
        memory.truncate_transcript("s", keep=5)
        memory.append_transcript_messages("s", [Message("user", "i")])
    (segment,) = path.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    place = content.index(b"NEEDLE")
    content[place] ^= 1
    if harm == "event lost":
        content[place - 80 : place] = bytes(80)
    segment.write_bytes(content)
    if harm == "damaged":
        return path
    fmemory.repair(path, tmp_path / "repaired")
    return tmp_path / "repaired"


@pytest.mark.parametrize(
    ("harm", "state", "count", "beyond"),
    [
        ("damaged", "damaged", 2, []),
        ("data lost", "lost", 2, []),
        # Nobody knows how many a lost event held: it counts as none, and says so.
        ("event lost", "lost", None, [(3, 4, "f"), (3, 5, "g")]),
    ],
)
def test_a_truncation_counts_messages_that_cannot_be_read(
    harm: str, state: str, count: int | None, beyond: Shown, tmp_path: Path
) -> None:
    with fmemory.open(_truncated_behind_damage(tmp_path, harm), read_only=True) as memory:
        found = transcript(memory, "s")
        last = transcript(memory, "s", last=2)

    shown = [
        (one.seq, one.number, one.text if one.gap is None else (one.gap.state, one.gap_messages))
        for one in found
    ]
    before: Shown = [(1, 1, "a"), (1, 2, "b"), (1, 3, "c")]
    assert shown == [*before, (2, None, (state, count)), *beyond, (5, 4 + len(beyond), "i")]
    assert last == found[-2:]


def test_a_truncation_takes_unreadable_messages_out_too(damaged: Path) -> None:
    with fmemory.open(damaged) as memory:
        memory.truncate_transcript("login", keep=1)
        assert [one.seq for one in transcript(memory, "login")] == [3]
        assert [one.seq for one in transcript(memory, "login", at=11)] == [3, 4, 5, 11]


@pytest.mark.parametrize("journal", JOURNALS)
def test_forgotten_events_are_named_or_known_to_be_of_no_account(
    journal: str, tmp_path: Path
) -> None:
    with fmemory.open(target_of(journal, tmp_path)) as memory:
        tell_story(memory)
        memory.delete_session("login")
        memory.compact(forget_before=12)
        memory.append_transcript_messages("login", [Message("user", "the form again")])

        said = transcript(memory, "login")
        found = grep(memory, "form")
        attributions = blame(memory, "login")

    assert [(one.seq, one.text) for one in said if one.gap is None] == [(14, "the form again")]
    assert [one.seq for one in found.matches] == [14]
    assert {one.state for one in found.unreadable} <= {"erased", "forgotten"}
    assert {one.seq for one in found.unreadable} >= {3, 4, 5, 8, 11}
    assert attributions == ()


@pytest.mark.parametrize("journal", JOURNALS)
def test_types_that_nobody_knows_are_no_trouble(journal: str, tmp_path: Path) -> None:
    with fmemory.open(target_of(journal, tmp_path)) as memory:
        tell_story(memory)
        before = look_at_everything(memory)
        memory.append(("session", "login"), [NewEvent("what.is.this", [1, None, {"x": b"".hex()}])])
        memory.append(("session", "login"), [NewEvent("and.this", b"\x00\xff")])

        assert look_at_everything(memory) == before


def test_every_function_tells_the_same_of_every_journal(tmp_path: Path) -> None:
    told = []
    for journal in JOURNALS:
        with fmemory.open(target_of(journal, tmp_path / journal)) as memory:
            tell_story(memory)
            changed = blame(memory, "login", every=True)
            told.append(
                (
                    [
                        (one.seq, one.role, one.text, one.calls)
                        for one in transcript(memory, "login")
                    ],
                    [(one.seq, one.name, one.field, one.before, one.after) for one in changed],
                    [(one.seq, one.name, one.excerpt) for one in grep(memory, "form").matches],
                    compare(memory, "run-1", "run-2").features,
                )
            )

    assert told.count(told[0]) == len(JOURNALS)


def test_a_backend_of_others_is_blamed_and_read_through_what_is_public() -> None:
    with fmemory.open(":memory:") as memory:
        tell_story(memory)
        memory.fork_session("login", "again", at=9)
        plain = cast("LogBackend", Plain(memory))

        assert blame(plain, "login", every=True) == blame(memory, "login", every=True)
        assert blame(plain, "again") == blame(memory, "again")
        assert transcript(plain, "login") == transcript(memory, "login")
        assert grep(plain, "form") == grep(memory, "form")
        assert compare(plain, "run-1", "run-2") == compare(memory, "run-1", "run-2")
