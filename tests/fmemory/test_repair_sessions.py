"""Sessions of which a repair found content lost: who is told what, and what can still be read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fmemory
from fmemory import (
    ErasedRecord,
    FeatureRecord,
    HistoryCompacted,
    JournalBackend,
    LogCorrupt,
    Message,
    MetaGetRequest,
    MetaSetRequest,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
    replay,
)
from fmemory.replay import UnreadableEvent
from tests.fmemory.repair_tools import KINDS, changed, file_of, target_of

PARTS = {"messages": 8, "manifest": 9, "features": 10, "progress": 11, "checkpoint": 12}
"""The event of session `b` that holds each part."""
NEWEST = 12


def write_session(memory: JournalBackend, name: str) -> None:
    """Six events: a session with everything, and a word in each payload to be found by."""
    session = memory.session(name)
    session.initialize_session_if_missing(SessionManifest(name, "main", "make it"), [])
    session.append_transcript_messages([Message(Role.USER, f"messages of {name}")])
    session.save_manifest(SessionManifest(name, "main", f"manifest of {name}"))
    session.replace_feature_list([FeatureRecord("f", "ui", f"features of {name}", [])])
    session.append_progress_entry(ProgressEntry("run", f"progress of {name}"))
    session.record_run_checkpoint(
        RunCheckpoint(
            "run", datetime.now(UTC), None, RunStatus.IN_PROGRESS, f"checkpoint of {name}"
        )
    )


def repaired(kind: str, folder: Path, text: str, write: Callable[[JournalBackend], None]) -> str:
    """A store of a kind, repaired after the payload with a text was damaged, by its target."""
    # An edited line of JSON loses its envelope too, so such a store gets its losses from another.
    source_kind = "segments" if kind == "filesystem" else kind
    source = target_of(source_kind, folder, "source")
    with fmemory.open(source) as memory:
        write(memory)

    wanted = text.encode()

    def harm(data: bytearray) -> None:
        data[data.index(wanted)] ^= 1

    # A compaction may have left several files.
    files = sorted(folder.glob("source*/seg-*")) or [file_of(source_kind, folder)]
    changed(next(one for one in files if wanted in one.read_bytes()), harm)
    target = target_of(kind, folder, "target")
    result = fmemory.repair(source, target)
    assert (result.lost, len(result.damaged)) == ((), 1)
    return target


def two_sessions(memory: JournalBackend) -> None:
    write_session(memory, "a")
    write_session(memory, "b")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store that has files."""
    name: str = request.param
    return name


@pytest.mark.parametrize("part", PARTS)
def test_lost_content_is_named_now_and_at_every_moment_since(
    kind: str, part: str, tmp_path: Path
) -> None:
    seq = PARTS[part]
    with fmemory.open(repaired(kind, tmp_path, f"{part} of b", two_sessions)) as memory:
        for view in (memory, *map(memory.at, range(seq, NEWEST + 1))):
            read: Callable[[str], object] = view.load_bootstrap_state
            other: Callable[[str], object] = view.load_transcript_messages
            if part == "messages":
                read, other = other, read
            with pytest.raises(LogCorrupt) as caught:
                read("b")
            assert (caught.value.seq, caught.value.last_seq) == (seq, seq)
            told = str(caught.value)
            assert told.startswith(f"event {seq}: expected its data, got none: they were damaged")
            assert "session 'b'" in told and f"at({seq - 1})" in told
            assert "erased" not in told and "past" not in told
            assert other("b")
            assert view.load_bootstrap_state("a").revision == 6
        before = memory.at(seq - 1)
        assert before.load_bootstrap_state("b").revision == seq - 7
        before.load_transcript_messages("b")
        with pytest.raises(LogCorrupt, match=f"event {seq}: "):
            memory.fork_session("b", "c")
        for listing in (memory, memory.at(NEWEST)):
            ids = [one.session_id for one in listing.list_sessions().sessions]
            assert ids == ["b", "a"]
        assert [one.seq for one in memory.session("b").history()] == list(range(7, NEWEST + 1))


def test_what_is_lost_is_never_called_erased(kind: str, tmp_path: Path) -> None:
    def write(memory: JournalBackend) -> None:
        two_sessions(memory)
        write_session(memory, "c")
        memory.session("c").delete()
        memory.compact()

    copied = target_of(kind, tmp_path, "copied")
    with fmemory.open(repaired(kind, tmp_path, "messages of b", write)) as memory:
        memory.backup(copied)
    with fmemory.open(copied) as memory:
        memory.compact()
        gone = {one.seq: one.lost for one in memory.events() if one.erased}
        assert {seq for seq, is_lost in gone.items() if is_lost} == {8}
        assert {seq for seq, is_lost in gone.items() if not is_lost} >= {14, 15, 16}

        (finding,) = memory.verify()
        assert (finding.first_seq, finding.reason) == (8, "not_deleted")
        assert "damaged before a repair" in finding.message and "erased" not in finding.message

        lost = (UnreadableEvent(8, "transcript_appended", "lost"),)
        assert tuple(one.gap for one in replay.transcript(memory, "b")) == lost
        assert replay.grep(memory, "x", session_id="b").unreadable == lost
        assert replay.report(memory, "b").unreadable == lost
        lost_changes = [one.seq for one in replay.changes(memory, "b") if one.lost]
        assert lost_changes == [8]
        told: list[UnreadableEvent] = []
        replay.runs(memory, on_unreadable=told.append)
        assert {one.seq: one.state == "lost" for one in told} == gone


def test_lost_records_are_never_called_erased(kind: str, tmp_path: Path) -> None:
    def write(memory: JournalBackend) -> None:
        for name in ("one", "two", "three"):
            memory.add_note(f"note {name}", id=name)
        memory.delete(memory.delete_request(["two"]))
        memory.compact()

    with fmemory.open(repaired(kind, tmp_path, "note one", write)) as memory:
        rows = [one.records[0] for one in memory.events(limit=3)]
        assert [isinstance(one, ErasedRecord) for one in rows] == [True, True, False]
        assert [one.lost for one in rows if isinstance(one, ErasedRecord)] == [True, False]
        states = [one.state for one in replay.grep(memory, "note").unreadable]
        assert states == ["lost", "erased"]


def test_a_manifest_written_anew_ends_the_error(kind: str, tmp_path: Path) -> None:
    with fmemory.open(repaired(kind, tmp_path, "manifest of b", two_sessions)) as memory:
        memory.session("b").save_manifest(SessionManifest("b", "main", "again"))
        manifest = memory.load_bootstrap_state("b").manifest
        assert manifest is not None and manifest.current_objective == "again"
        with pytest.raises(LogCorrupt, match="event 9: "):
            memory.at(NEWEST).load_bootstrap_state("b")


def test_features_written_anew_end_the_error(kind: str, tmp_path: Path) -> None:
    with fmemory.open(repaired(kind, tmp_path, "features of b", two_sessions)) as memory:
        session = memory.session("b")
        with pytest.raises(LogCorrupt, match="event 10: ") as caught:
            session.update_feature_pass("f", True)
        assert caught.value.seq == 10
        session.replace_feature_list([FeatureRecord("f", "ui", "again", [])])
        session.update_feature_pass("f", True)
        assert [one.passes for one in session.load_bootstrap_state().feature_list] == [True]


def test_deleting_the_session_makes_its_past_a_compacted_one(kind: str, tmp_path: Path) -> None:
    with fmemory.open(repaired(kind, tmp_path, "progress of b", two_sessions)) as memory:
        deleted = memory.session("b").delete().seq
        assert [one.session_id for one in memory.list_sessions().sessions] == ["a"]
        assert memory.load_bootstrap_state("b").recent_progress == ()
        memory.compact()
        with pytest.raises(HistoryCompacted) as caught:
            memory.at(NEWEST).load_bootstrap_state("b")
        assert caught.value.floor == deleted


def test_a_loss_moves_no_floor(kind: str, tmp_path: Path) -> None:
    def two_lives(memory: JournalBackend) -> None:
        write_session(memory, "b")
        memory.session("b").delete()
        memory.compact()
        memory.session("b").append_progress_entry(ProgressEntry("run", "second life"))
        memory.session("b").append_transcript_messages([Message(Role.USER, "hello")])

    with fmemory.open(repaired(kind, tmp_path, "second life", two_lives)) as memory:
        with pytest.raises(HistoryCompacted) as caught:
            memory.at(6).load_bootstrap_state("b")
        assert (caught.value.seq, caught.value.floor) == (6, 7)
        assert memory.at(7).load_bootstrap_state("b").recent_progress == ()
        for seq in (8, 9):
            with pytest.raises(LogCorrupt, match="event 8: "):
                memory.at(seq).load_bootstrap_state("b")


def test_a_lost_record_hides_no_past_of_the_others(kind: str, tmp_path: Path) -> None:
    def three_notes(memory: JournalBackend) -> None:
        for name in ("one", "two", "three"):
            memory.add_note(f"note {name}", id=name)

    with fmemory.open(repaired(kind, tmp_path, "note one", three_notes)) as memory:
        for view in (memory, memory.at(3), memory.at(2)):
            (record,) = view.get(view.get_request(["two"])).records
            assert record.note.text == "note two"
            with pytest.raises(LogCorrupt, match=r"event 1: .*got none: they were damaged") as told:
                view.get(view.get_request(["one"]))
            assert told.value.seq == 1


def test_an_edited_line_hides_no_session(tmp_path: Path) -> None:
    source = target_of("filesystem", tmp_path, "source")
    with fmemory.open(source) as memory:
        two_sessions(memory)

    def edit(data: bytearray) -> None:
        start = data.index(b"progress of b")
        data[start : start + 8] = b"PROGRESS"

    changed(file_of("filesystem", tmp_path), edit)
    result = fmemory.repair(source, target_of("filesystem", tmp_path, "target"))
    assert [one.first_seq for one in result.lost] == [11]
    with fmemory.open(target_of("filesystem", tmp_path, "target")) as memory:
        for view in (memory, memory.at(NEWEST)):
            assert [one.session_id for one in view.list_sessions().sessions] == ["b", "a"]
            assert view.load_bootstrap_state("a").revision == 6
            assert view.load_bootstrap_state("b").recent_progress == ()


def test_a_lost_meta_value_is_named_and_can_be_set_again(kind: str, tmp_path: Path) -> None:
    def write(memory: JournalBackend) -> None:
        memory.set_meta(MetaSetRequest("mood", "a word to be found by"))
        memory.set_meta(MetaSetRequest("place", "kept"))

    with fmemory.open(repaired(kind, tmp_path, "word to be found", write)) as memory:
        with pytest.raises(LogCorrupt, match="event 1: expected its data, got none") as caught:
            memory.get_meta(MetaGetRequest("mood"))
        assert caught.value.seq == 1
        assert memory.get_meta(MetaGetRequest("place")).value == "kept"

        for _ in range(2):
            assert memory.set_meta(MetaSetRequest("mood", "better")).value == "better"
        assert memory.get_meta(MetaGetRequest("mood")).value == "better"
        assert memory.head().seq == 3
