"""Stores of every released format are opened, read whole, proven and written to.

Goal: no later version loses a store of an earlier one. Method: stores that were made once
(`make.py`) and are never made again; each is copied, opened and compared with what was put in, and
with its head of then. What would have to break: any change of a format without a new version.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmemory
from fmemory import HistoryCompacted, JournalBackend
from tests.stores.make import TARGETS

HEADS = {
    "segments-1.0": "11:17a4171ef76b41057c018c9988481cfed5b983de36446d45f668b14f955a249b",
    "segments-1.0-deflated": "11:c4947b6f0da7030bbfc2baa50239ca5428e31c7a24e7d018bd29666e60b3e8f3",
    "jsonl-1": "11:e85d61ac4ab43c4b2467828f22369784cf41a0223cc91c2c2a3446f193c33c02",
    "sqlite-1": "11:a19629d32d38a05562b67c3577127aa8b82ef90514a7d5af5059ff771218f2fd",
}
EVENTS = [
    (1, "event_forgotten", None),
    (2, "event_forgotten", None),
    (3, "records_put", "ada"),
    (4, "records_put", "ada"),
    (5, "tool.finished", "ada"),
    (6, "session_initialized", "ada"),
    (7, "transcript_appended", "ada"),
    (8, "records_deleted", "ada"),
    (9, "meta_set", "ada"),
    (10, "progress_appended", "bob"),
    (11, "records_put", "bob"),
]


@pytest.fixture(params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def target(name: str, tmp_path: Path) -> str:
    place = tmp_path / name
    shutil.copytree(Path(__file__).parent / name, place)
    return TARGETS[name].format(place)


@pytest.fixture
def memory(target: str) -> Iterator[JournalBackend]:
    with fmemory.open(target, create=False) as opened:
        yield opened


def test_every_event_of_a_frozen_store_is_there(memory: JournalBackend) -> None:
    assert [(one.seq, one.type, one.actor) for one in memory.events()] == EVENTS


def test_frozen_store_has_its_head_of_then_and_nothing_is_damaged(
    memory: JournalBackend, name: str
) -> None:
    assert str(memory.head()) == HEADS[name]
    (told,) = memory.verify(HEADS[name])
    assert (told.damage, told.first_seq, told.last_seq) == (False, 1, 2)


def test_records_of_a_frozen_store_are_exact(memory: JournalBackend) -> None:
    (tea,) = memory.scan(memory.scan_request(namespace=("n",))).records
    assert (tea.note.text, tea.note.timestamp, tea.vector.tolist()) == (
        "tea at four",
        2.5,
        [0.5, -1.0],
    )
    (after,) = memory.scan(memory.scan_request()).records
    assert (after.id, after.note.metadata, len(after.vector)) == ("after", {"a": [1, None]}, 0)


def test_session_of_a_frozen_store_is_exact(memory: JournalBackend) -> None:
    session = memory.session("s1")
    assert [one.content for one in session.load_transcript_messages()] == ["h\u00e9llo"]
    state = session.load_bootstrap_state()
    assert state.manifest is not None
    assert (state.manifest.current_objective, state.recent_progress[0].summary) == (
        "read old stores",
        "after",
    )


def test_past_of_a_frozen_store_is_told_or_refused(memory: JournalBackend) -> None:
    with pytest.raises(HistoryCompacted):
        memory.at(3).scan(memory.scan_request(namespace=("n",)))
    assert len(memory.at(7).session("s1").load_transcript_messages()) == 1


def test_frozen_store_can_be_read_without_writing(target: str) -> None:
    with fmemory.open(target, read_only=True) as memory:
        assert memory.head().seq == len(EVENTS)


def test_frozen_store_can_be_written_and_compacted(memory: JournalBackend) -> None:
    memory.add_note("new", id="new")
    memory.delete(memory.delete_request(["after"]))
    assert memory.compact(exclusive=True).erased_records == 1
    assert [one.id for one in memory.iter_all()] == ["new"]
    assert not any(one.damage for one in memory.verify())
