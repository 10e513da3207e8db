"""Several damaged events in one store: each is named, and no event that can be read is lost.

Goal: whatever is read, every event is either told or named as damaged. Method: a session of 339
events of which three are changed on disk, two close together and one far behind them, in segments
of three kinds and in SQLite's rows; what each way of reading tells is compared with what
`verify` finds. What would have to break: a reader that stops at damage, names it twice, or skips
what is beside it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import fmemory
from fmemory import FeatureRecord, JournalBackend, LogBackend, LogView, Message, NewEvent
from fmemory.journals._segments import SegmentJournal
from fmemory.replay import (
    UnreadableEvent,
    bisect,
    blame,
    compare,
    grep,
    page,
    report,
    runs,
    transcript,
)
from fmemory_segments import Log
from tests.fmemory.replay_tools import target_of

HEAD = 339
MESSAGES = (*range(3, 15), *range(18, 338))
"""Of the events, those that append a message: twelve of run-1, and 320 of run-2."""
CHANGED = {6: b"run-1 says 3.", 8: b"run-1 says 5.", 270: b"run-2 says 252."}
STORES = ("segments", "sealed", "compacted", "sqlite", "sqlite envelopes")
DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)


def write(memory: LogBackend) -> None:
    """A feature list, then two runs of which each says things and then flips the feature."""
    session = memory.session("s")
    session.replace_feature_list([FeatureRecord("form", "ui", "a form")])
    for run, count in (("run-1", 12), ("run-2", 320)):
        with session.run(run):
            for number in range(count):
                session.append_transcript_messages([Message("user", f"{run} says {number}.")])
            session.update_feature_pass("form", run == "run-1")


def stored(store: str, folder: Path) -> str:
    """A store of this kind with the three events changed; what opens it."""
    target = target_of(store.split()[0] if "sqlite" in store else "segments", folder)
    with opened(store, target) as memory:
        write(memory)
        assert [one.seq for one in memory.events(types=("transcript_appended",))] == [*MESSAGES]
        if store == "compacted":
            memory.compact()
    for seq, text in CHANGED.items():
        if "sqlite" in store:
            change_row(folder / "store.db", "meta" if "envelopes" in store else "data", seq)
        else:
            change(folder / "store", text, before=60 if store == "sealed" else 0)
    return target


def opened(store: str, target: str) -> JournalBackend:
    """A new store; of `sealed` most segments are full and closed before the last event."""
    if store != "sealed":
        return fmemory.open(target)
    log = Log.open(Path(target), segment_bytes_max=1 << 14)
    return JournalBackend(SegmentJournal(log), durability="fsync", path=target)


def change_row(file: Path, column: str, seq: int) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        where = f"WHERE seq = {seq}"
        (old,) = connection.execute(f"SELECT {column} FROM fmemory_events {where}").fetchone()
        new = old[:3] + bytes([old[3] ^ 255]) + old[4:]
        connection.execute(f"UPDATE fmemory_events SET {column} = ? {where}", (new,))


def change(store: Path, text: bytes, *, place: int = 0, before: int = 0) -> None:
    """Change the segment that holds a text: its first, second, … place there, and bytes before."""
    (segment,) = [path for path in store.glob("seg-*.log") if text in path.read_bytes()]
    content = bytearray(segment.read_bytes())
    found = [one.start() for one in re.finditer(re.escape(text), content)][place]
    content[found - before : found + 1] = bytes(before + 1)
    segment.write_bytes(content)


@pytest.fixture(scope="module", params=STORES)
def damaged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LogBackend]:
    """The damaged store, open."""
    target = stored(str(request.param), tmp_path_factory.mktemp("damaged"))
    with fmemory.open(target, read_only=True) as memory:
        yield memory


@pytest.fixture(scope="module")
def seqs(damaged: LogBackend) -> list[int]:
    """The damaged events, as `verify` finds them: of a compacted segment their neighbours too."""
    found = {
        seq
        for one in damaged.verify()
        if one.first_seq is not None
        for seq in range(one.first_seq, (one.last_seq or one.first_seq) + 1)
    }
    assert found >= CHANGED.keys()
    assert len(found) < 10
    return sorted(found)


def good(seqs: list[int]) -> list[int]:
    """The messages that can be read."""
    return [seq for seq in MESSAGES if seq not in seqs]


def test_runs_count_all_but_the_damaged(damaged: LogBackend, seqs: list[int]) -> None:
    told: list[UnreadableEvent] = []

    found = runs(damaged, on_unreadable=told.append)

    assert [one.seq for one in told] == seqs
    assert sum(one.message_count for one in found) == len(good(seqs))


def test_a_report_names_the_damaged_in_order(damaged: LogBackend, seqs: list[int]) -> None:
    found = report(damaged, "s")

    assert [(one.seq, one.state) for one in found.unreadable] == [(seq, "damaged") for seq in seqs]
    assert sum(one.message_count for one in found.runs) == len(good(seqs))
    assert [one.passes for one in found.flips] == [True, False]


def test_a_transcript_has_all_messages_and_gaps(damaged: LogBackend, seqs: list[int]) -> None:
    found = transcript(damaged, "s")

    assert [one.seq for one in found if one.gap is not None] == seqs
    assert [one.seq for one in found if one.gap is None] == good(seqs)
    assert [one.seq for one in transcript(damaged, "s", last=20)] == [one.seq for one in found][
        -20:
    ]


def test_search_finds_all_that_can_be_read(damaged: LogBackend, seqs: list[int]) -> None:
    found = grep(damaged, "says")

    assert [one.seq for one in found.unreadable] == seqs
    assert [one.seq for one in found.matches] == good(seqs)


@pytest.mark.parametrize("name", ["s", "run-2", None])
def test_a_page_has_every_event_once(
    name: str | None, damaged: LogBackend, seqs: list[int]
) -> None:
    found = DATA.search(page(damaged, name))

    assert found is not None
    (session,) = json.loads(found[1])["sessions"]
    assert [one["seq"] for one in session["events"]] == [*range(1, HEAD + 1)]
    assert [one["seq"] for one in session["events"] if "problem" in one] == seqs
    assert [one["seq"] for one in session["events"] if "messages" in one] == good(seqs)


def test_a_comparison_names_the_damaged(damaged: LogBackend, seqs: list[int]) -> None:
    found = compare(damaged, "run-1", "run-2")

    assert [one.seq for one in found.unreadable] == seqs
    assert found.a.message_count + found.b.message_count == len(good(seqs))


def test_blame_names_the_event_that_set_a_value(damaged: LogBackend, seqs: list[int]) -> None:
    found = blame(damaged, "s", "form")

    assert [(one.seq, one.after) for one in found if one.field == "passes"] == [(HEAD - 1, False)]
    assert {one.seq for one in found if one.gap is not None} <= set(seqs)


def _is_not_passing(view: LogView) -> bool:
    (feature,) = view.load_bootstrap_state("s").feature_list
    return not feature.passes


@pytest.mark.parametrize("damaged", ["segments", "sealed", "compacted", "sqlite"], indirect=True)
def test_bisection_passes_over_what_no_state_needs(damaged: LogBackend) -> None:
    assert bisect(damaged, "s", ok=2, bad=HEAD - 2, check=_is_not_passing).bad == 15


@pytest.mark.parametrize(
    "damaged", ["segments", "sealed", "sqlite", "sqlite envelopes"], indirect=True
)
def test_events_up_to_a_limit_are_given_though_the_next_is_damaged(damaged: LogBackend) -> None:
    def given(limit: int, after: int = 0, **asked: object) -> list[int]:
        return [one.seq for one in damaged.events(after, limit=limit, **asked)]  # type: ignore[arg-type]

    assert given(5) == [1, 2, 3, 4, 5]
    assert given(1, 6) == [7]
    assert given(3, types=("transcript_appended",)) == [3, 4, 5]
    assert given(4, run_id="run-1") == [2, 3, 4, 5]
    assert given(261, 8)[-1] == 269
    assert given(69, backwards=True) == [*range(HEAD, 270, -1)]
    assert given(69, stream=("session", "s"), backwards=True, run_id="run-2")[-1] == 271


@pytest.mark.parametrize(
    "damaged", ["segments", "sealed", "sqlite", "sqlite envelopes"], indirect=True
)
def test_one_event_more_than_can_be_read_raises(damaged: LogBackend) -> None:
    for asked in ({}, {"types": ("transcript_appended",)}, {"run_id": "run-1"}):
        with pytest.raises(fmemory.LogCorrupt) as caught:
            list(damaged.events(limit=6, **asked))
        assert caught.value.seq == 6


def test_a_damaged_note_beside_a_damaged_message_is_named_once(tmp_path: Path) -> None:
    with opened("sealed", str(tmp_path / "store")) as memory, fmemory.audit(run_id="r"):
        for number in range(1, 400, 2):
            memory.append_transcript_messages("s", [Message("user", f"event {number}.")])
            memory.add_note(f"event {number + 1}.", [1.0], id=f"n{number}")
    for number in (5, 6, 301):
        change(tmp_path / "store", f"event {number}.".encode(), before=60)
    told: list[UnreadableEvent] = []

    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        (run,) = runs(memory, on_unreadable=told.append)
        found = report(memory, "r")
        html = DATA.search(page(memory))

    assert html is not None
    (session,) = json.loads(html[1])["sessions"]
    assert [one.seq for one in told] == [one.seq for one in found.unreadable] == [5, 6, 301]
    assert [one["seq"] for one in session["events"]] == [*range(1, 401)]
    assert [one["seq"] for one in session["events"] if "problem" in one] == [5, 6, 301]
    assert (run.message_count, run.note_count) == (198, 199)


def test_a_damaged_copy_of_a_fork_hides_nothing_that_was_said_after_it(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        memory.append_transcript_messages("s", [Message("user", "to be copied")])
        with fmemory.audit(run_id="fork"):
            memory.fork_session("s", "t")
            memory.append_transcript_messages("t", [Message("user", "said in the fork")])
    change(tmp_path / "store", b"to be copied", place=1)

    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        (run,) = runs(memory)
        (event,) = report(memory, "fork").unreadable

    assert (run.message_count, run.last_words, run.unreadable_count) == (1, "said in the fork", 1)
    assert (event.seq, event.state) == (3, "damaged")


def test_bisection_of_a_session_whose_beginning_is_damaged(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        memory.append(("session", "s"), [NewEvent("harness.begun", "with this")])
        memory.replace_feature_list("s", [FeatureRecord("form", "ui", "a form")])
        memory.update_feature_pass("s", "form", True)
    change(tmp_path / "store", b"with this")

    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        assert bisect(memory, "s", ok=2, bad=3, check=_is_not_passing).bad == 3
