"""What deletion, erasure and beginnings make of runs: `runs` and `report` say the same of each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import pytest

import fmemory
from fmemory import (
    FeatureRecord,
    JournalBackend,
    LogBackend,
    Message,
    NewEvent,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
)
from fmemory._json_values import JsonObject
from fmemory.journal import Blob, Draft
from fmemory.replay import RunReport, UnreadableEvent, blame, report, runs
from tests.fmemory.copy_tools import KINDS, opened_memories
from tests.fmemory.replay_stores import Plain, answered, called


@pytest.fixture
def memory() -> Iterator[JournalBackend]:
    with fmemory.open(":memory:") as memory:
        yield memory


def live(memory: JournalBackend, run_id: str) -> None:
    """Six events: all that a session's run may write."""
    with fmemory.audit(run_id=run_id):
        memory.initialize_session_if_missing(
            "s", SessionManifest("s", "main", f"what {run_id} is for"), [FeatureRecord("f", "", "")]
        )
        memory.append_transcript_messages("s", [Message("user", f"asked in {run_id}")])
        memory.append_transcript_messages("s", called(f"call of {run_id}", "ls"))
        memory.update_feature_pass("s", "f", True)
        memory.append(("session", "s"), [NewEvent("tool.finished", {"exit": 0})])
        memory.add_note("a note", [1.0], id=run_id)


def told(found: RunReport) -> tuple[str | None, str | None, list[str]]:
    return found.objective, found.asked, [one.call_id for one in found.unanswered]


def test_what_follows_a_deletion_knows_nothing_of_before(memory: JournalBackend) -> None:
    live(memory, "r1")
    memory.delete_session("s")
    before = told(report(memory, "s"))
    with fmemory.audit(run_id="r2"):
        memory.append_transcript_messages("s", [Message("user", "asked anew")])
        memory.append_transcript_messages("s", answered("call of r1", "who asked?"))

    assert before == ("what r1 is for", "asked in r1", ["call of r1"])
    assert told(report(memory, "s")) == (None, "asked anew", [])
    assert told(report(memory, "r2")) == (None, "asked anew", [])
    assert told(report(memory, "r1")) == before
    assert [one.unanswered_count for one in runs(memory)] == [1, 0]


def test_a_run_within_which_its_session_is_deleted_keeps_its_calls(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="r"):
        memory.append_transcript_messages("s", called("before", "ls"))
        memory.delete_session("s")
        memory.append_transcript_messages("s", called("after", "ls"))

    (run,) = runs(memory)

    assert run.unanswered_count == 2
    assert [one.call_id for one in report(memory, "r").unanswered] == ["before", "after"]
    assert [one.call_id for one in report(memory, "s").unanswered] == ["after"]


@pytest.mark.parametrize("kind", KINDS)
def test_erased_events_are_unreadable_and_change_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with opened_memories(request, tmp_path_factory.mktemp("m")) as opened:
        memory = opened(kind, "m")
        live(memory, "r1")
        memory.delete_session("s")
        memory.compact()
        live(memory, "r2")
        unreadable: list[UnreadableEvent] = []

        first, second = runs(memory, on_unreadable=unreadable.append)

        assert (first.features_gained, first.unreadable_count) == ((), 5)
        assert (second.features_gained, second.unreadable_count) == (("f",), 0)
        assert [(one.seq, one.state) for one in unreadable] == [(n, "erased") for n in range(1, 6)]
        assert report(memory, "s").runs == (first, second)
        assert (report(memory, "r1").runs, report(memory, "r2").runs) == ((first,), (second,))
        gaps = [one.seq for one in blame(memory, "s", every=True) if one.gap is not None]
        assert gaps == [1, 4]
        assert all(one.seq > 7 for one in blame(memory, "s", every=True) if one.gap is None)


def test_unreadable_events_are_those_of_the_session_asked_for(memory: JournalBackend) -> None:
    live(memory, "r1")
    memory.delete_session("s")
    memory.compact()
    memory.append_transcript_messages("other", [Message("user", "hello")])
    unreadable: list[UnreadableEvent] = []

    runs(memory, session_id="other", on_unreadable=unreadable.append)

    assert unreadable == []


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_run_that_a_beginning_names_has_that_event_once(
    is_plain: bool, memory: JournalBackend
) -> None:
    memory.initialize_session_if_missing(
        "s",
        SessionManifest("s", "main", "o"),
        [],
        ProgressEntry("r1", "begun"),
        RunCheckpoint("r1", datetime(2026, 3, 1, tzinfo=UTC)),
    )
    memory.fork_session("s", "again")
    looked_at = cast("LogBackend", Plain(memory)) if is_plain else memory

    (run,) = runs(looked_at)
    found = report(looked_at, "r1")

    assert (run.session_id, run.event_count, run.first_seq, run.last_words) == ("s", 1, 1, "begun")
    assert found.runs == (run,)
    assert (found.event_count, found.first_seq, found.last_seq) == (1, 1, 1)
    assert found.objective == "o"


def test_a_sub_session_counts_once_and_a_session_is_none_of_its_own(memory: JournalBackend) -> None:
    named: JsonObject = {"sub_agent_session_ids": ["s", "a", "s", "a"]}
    memory.save_manifest("s", SessionManifest("s", "main", "o", metadata=named))
    for session in ("s", "a"):
        memory.append_transcript_messages(session, called("c", "ls"))
        memory.append_transcript_messages(session, answered("c", "no", is_error=True))

    found = report(memory, "s")

    assert (found.sub_sessions, found.tool_error_count) == (("a",), 2)


def test_no_command_asks_for_a_past_that_is_erased(memory: JournalBackend) -> None:
    live(memory, "r1")
    memory.delete_session("s")
    live(memory, "r2")
    memory.delete_session("s")
    memory.compact()
    live(memory, "r3")

    offered = [one for run in ("r1", "r2", "r3") for one in report(memory, run).commands]

    assert [one for one in offered if " diff " in one] == ["fmemory diff 14 20 --session s"]


def test_a_session_that_begins_with_other_features_flips_those_there_were(
    memory: JournalBackend,
) -> None:
    passing = [FeatureRecord(name, "", "", passes=True) for name in ("kept", "lost", "gone")]
    memory.replace_feature_list("s", passing)
    begun = [FeatureRecord("kept", "", "", passes=True), FeatureRecord("lost", "", "")]
    with fmemory.audit(run_id="r"):
        memory.initialize_session_if_missing("s", SessionManifest("s", "main", "o"), begun)

    found = report(memory, "r")
    assert [(one.feature_id, one.before, one.passes, one.seq) for one in found.flips] == [
        ("lost", True, False, 2),
        ("gone", True, False, 2),
    ]
    assert {one.feature_id for one in found.regressions} == set(found.runs[0].features_lost)


def test_what_cannot_be_read_of_a_sub_agent_is_named_by_its_session(
    memory: JournalBackend,
) -> None:
    named: JsonObject = {"sub_agent_session_ids": ["a"]}
    memory.append_transcript_messages("a", called("c", "ls"))
    memory.delete_session("a")
    memory.compact()
    memory.save_manifest("s", SessionManifest("s", "main", "o", metadata=named))
    bad = Draft(("session", "s"), 2, "transcript_appended", Blob(b"\xc1"), count=1)
    memory._journal.commit(lambda _: [bad])

    found = report(memory, "s")

    assert [(one.seq, one.state) for one in found.unreadable] == [(1, "erased"), (4, "damaged")]
