"""What `fmemory step` tells of each moment, in whatever order the moments are asked for.

Held against the memory itself as of the same event: a fold that goes along with whoever steps must
never tell another state than a view of the past does. Broken are told states after a jump, after a
truncation, a deletion, an erasure or damage, if a fold goes on from the wrong place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import fmemory
from fmemory import (
    FeatureRecord,
    JournalBackend,
    LogView,
    Message,
    NewEvent,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
)
from fmemory.replay import Delta, Part
from fmemory_tools.stepper.states import ENTRIES_SHOWN, ROWS_BACK, ROWS_PAST_DAMAGE, States, Told
from fmemory_tools.stepper.timeline import PAGE_ROWS, Timeline
from tests.tools.helpers import bytes_of, change_one_byte

EVENTS = 250


@pytest.fixture(params=["{}", "sqlite:///{}.db", "jsonl:{}"], ids=["segments", "sqlite", "jsonl"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalBackend]:
    target = str(request.param).format(tmp_path / "memory")
    with fmemory.open(target, durability="os") as memory:
        yield memory


def write_something(memory: JournalBackend, draw: random.Random, number: int) -> None:
    session = memory.session("s")
    match draw.randrange(11):
        case 0:
            session.save_manifest(SessionManifest("s", "main", f"objective {number}"))
        case 1:
            some = draw.sample("abcdef", draw.randrange(6))
            session.replace_feature_list([FeatureRecord(one, "c", f"{number}") for one in some])
        case 2 | 3:
            features = session.load_bootstrap_state().feature_list
            if features:
                session.update_feature_pass(draw.choice(features).id, draw.random() < 0.5)
        case 4:
            session.append_progress_entry(ProgressEntry("r", f"did {number}"))
        case 5:
            session.record_run_checkpoint(RunCheckpoint.started("r"))
        case 6:
            keep = draw.randrange(len(session.load_transcript_messages()) + 1)
            session.truncate_transcript(keep=keep)
        case 7:
            memory.append(("session", "s"), [NewEvent("my.own", {"n": number})])
        case 8:
            memory.add_note(f"of another stream {number}", [1.0])
        case _:
            said = [Message("user", f"said {number}") for _ in range(draw.randrange(1, 6))]
            session.append_transcript_messages(said)


class Moment:
    """What both know of a moment, in plain values."""

    def __init__(self, view: LogView, session_id: str) -> None:
        state = view.load_bootstrap_state(session_id)
        manifest = {} if state.manifest is None else state.manifest.to_dict()
        messages = view.load_transcript_messages(session_id)
        self.manifest = {name: value for name, value in manifest.items() if value is not None}
        self.features = [(one.id, one.description, one.passes) for one in state.feature_list]
        self.progress = [one.to_dict() for one in state.recent_progress]
        self.checkpoints = [one.to_dict() for one in state.checkpoints]
        self.messages = [(n, one.content) for n, one in enumerate(messages, 1)]


def check(told: Told, view: LogView, session_id: str = "s") -> None:
    """The state that is told is that of the view."""
    state, moment = told.state, Moment(view, session_id)
    assert state is not None
    assert told.problem == ""
    assert {k: v for k, v in state.manifest.items() if v is not None} == moment.manifest
    assert [(one.id, one.description, one.passes) for one in state.features] == moment.features
    assert list(state.progress) == moment.progress[-ENTRIES_SHOWN:]
    assert state.progress_count == len(moment.progress)
    assert list(state.checkpoints) == moment.checkpoints[-ENTRIES_SHOWN:]
    assert state.checkpoint_count == len(moment.checkpoints)
    assert state.message_count == len(moment.messages)
    said = [(one.number, one.text) for one in state.messages]
    assert said == moment.messages[-ENTRIES_SHOWN:]


def test_moments_asked_for_in_any_order_have_the_state_of_the_log(memory: JournalBackend) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for number in range(EVENTS):
        write_something(memory, draw, number)
    timeline = Timeline(memory, "s")
    states = States(memory, timeline)
    seqs = [event.seq for event in memory.events(stream=("session", "s"))]
    assert timeline.count == len(seqs)

    row = 0
    for _ in range(150):
        # Mostly one step on or back, as people do, and now and then a jump.
        step = draw.choice([1, 1, 1, -1, 70, -40, draw.randrange(-EVENTS, EVENTS)])
        row = min(max(0, row + step), len(seqs) - 1)
        told = states.told(row)
        assert told.change is not None
        assert told.change.seq == seqs[row]
        check(told, memory.at(seqs[row]))


def test_a_fork_begins_with_what_it_copied(memory: JournalBackend) -> None:
    draw = random.Random(5)
    for number in range(60):
        write_something(memory, draw, number)
    memory.session("s").append_transcript_messages([Message("user", "the last")])
    memory.fork_session("s", "t")
    timeline = Timeline(memory, "t")
    states = States(memory, timeline)

    told = [states.told(row) for row in range(timeline.count)]

    check(told[-1], memory.at(timeline.last_seq), "t")
    change = told[0].change
    assert change is not None
    assert change.deltas[0].part is Part.ORIGIN


def test_a_session_deleted_and_begun_again_has_only_the_new(memory: JournalBackend) -> None:
    session = memory.session("s")
    session.save_manifest(SessionManifest("s", "main", "first"))
    session.append_transcript_messages([Message("user", "one")])
    session.delete()
    session.append_transcript_messages([Message("user", "two")])
    states = States(memory, Timeline(memory, "s"))

    before, deleted, after = states.told(1), states.told(2), states.told(3)

    assert before.state is not None
    assert before.state.manifest["current_objective"] == "first"
    assert deleted.change is not None
    assert Delta(Part.TRANSCRIPT, "messages", 1, 0) in deleted.change.deltas
    check(deleted, memory.at(3))
    check(after, memory.at(4))


@pytest.mark.parametrize("forgets", [False, True])
def test_moments_that_were_erased_are_not_told_and_those_after_them_are(
    memory: JournalBackend, forgets: bool
) -> None:
    session = memory.session("s")
    session.save_manifest(SessionManifest("s", "main", "secret"))
    for number in range(3 * ROWS_BACK):
        session.append_transcript_messages([Message("user", f"secret {number}")])
    session.delete()
    session.save_manifest(SessionManifest("s", "main", "new"))
    session.append_transcript_messages([Message("user", "new")])
    memory.compact(forget_before=2 * ROWS_BACK if forgets else None)
    timeline = Timeline(memory, "s")
    last = timeline.count - 1

    for rows in (range(timeline.count), range(last, -1, -1)):
        states = States(memory, timeline)
        told = {row: states.told(row) for row in rows}
        for row in range(last - 2):
            assert told[row].state is None
            assert "the state of then cannot be told" in told[row].problem
        deleted = told[last - 2]
        assert deleted.change is None
        assert "what it changed cannot be told" in deleted.problem
        check(replace(deleted, problem=""), memory.at(last - 1))
        for row in (last - 1, last):
            check(told[row], memory.at(row + 1))


def test_a_damaged_event_is_told_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fmemory.open(path) as memory:
        session = memory.session("s")
        session.save_manifest(SessionManifest("s", "main", "an objective"))
        session.append_progress_entry(ProgressEntry("r", "damaged"))
        session.append_progress_entry(ProgressEntry("r", "whole"))
    change_one_byte(path, b"damaged")
    with fmemory.open(path, read_only=True) as memory:
        timeline = Timeline(memory, "s")
        timeline.load(0)
        states = States(memory, timeline)
        told = [states.told(row) for row in range(3)]
        rows = [timeline.row(row) for row in range(3)]

    assert [row.kind for row in rows if row is not None] == ["manifest", "damaged", "progress"]
    assert told[0].problem == ""
    assert "event 2 is damaged" in told[1].problem
    assert "event 2 is damaged" in told[2].problem
    state = told[2].state
    assert state is not None
    assert [one["summary"] for one in state.progress if isinstance(one, dict)] == ["whole"]


def test_far_from_damage_the_state_before_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fmemory.open(path) as memory:
        memory.session("s").append_progress_entry(ProgressEntry("r", "whole"))
        memory.session("s").append_progress_entry(ProgressEntry("r", "damaged"))
        memory.append(
            ("session", "s"), [NewEvent("my.own", number) for number in range(2 * ROWS_PAST_DAMAGE)]
        )
    change_one_byte(path, b"damaged")
    with fmemory.open(path, read_only=True) as memory:
        timeline = Timeline(memory, "s")
        told = States(memory, timeline).told(timeline.count - 1)

    assert "event 2 is damaged" in told.problem
    assert "the state as of event 1" in told.problem
    assert told.state is not None
    assert told.state.progress_count == 1


def test_rows_of_any_page_are_the_events_of_the_session(memory: JournalBackend) -> None:
    draw = random.Random(7)
    for number in range(3 * PAGE_ROWS):
        for _ in range(draw.randrange(4)):
            memory.append(("other", "stream"), [NewEvent("noise.made", number)])
        memory.append(("session", "s"), [NewEvent("my.own", number)])
    seqs = [event.seq for event in memory.events(stream=("session", "s"))]

    for page in (2, 0, 1):
        timeline = Timeline(memory, "s")
        timeline.load(page)
        rows = [timeline.row(row) for row in range(page * PAGE_ROWS, (page + 1) * PAGE_ROWS)]
        assert [row.seq for row in rows if row is not None] == seqs[page * PAGE_ROWS :][:PAGE_ROWS]
    timeline = Timeline(memory, "s")
    for _ in range(50):
        seq = draw.randrange(1, memory.health().head_seq + 1)
        before = [row for row, one in enumerate(seqs) if one <= seq]
        assert timeline.row_at(seq) == max(before, default=0)


def test_a_session_that_grows_has_more_rows(memory: JournalBackend) -> None:
    memory.append(("session", "s"), [NewEvent("my.own", 0)])
    timeline = Timeline(memory, "s")
    timeline.load(0)
    memory.append(("session", "s"), [NewEvent("my.own", n) for n in (1, 2)])

    timeline.refresh()

    assert timeline.count == 3
    assert timeline.missing(range(3)) == 0
    timeline.load(0)
    assert [row.what for row in map(timeline.row, range(3)) if row is not None] == ["0", "1", "2"]


def test_stepping_reads_only(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fmemory.open(path) as memory:
        for number in range(50):
            write_something(memory, random.Random(number), number)
    before = bytes_of(path)
    with fmemory.open(path, read_only=True) as memory:
        timeline = Timeline(memory, "s")
        states = States(memory, timeline)
        timeline.load(0)
        for row in range(timeline.count):
            states.told(row)

    assert bytes_of(path) == before
