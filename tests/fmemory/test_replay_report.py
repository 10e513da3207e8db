"""A report names the first failure, what was lost and what is not there, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import fmemory
from fmemory import (
    ContractError,
    JournalBackend,
    LogBackend,
    Message,
    NewEvent,
    NotFound,
    SessionManifest,
)
from fmemory.journal import Blob, Draft
from fmemory.replay import RunReport, grep, report, runs, transcript
from tests.fmemory.copy_tools import KINDS, opened_memories, target_of
from tests.fmemory.replay_stores import Plain, answered, at, called, write_broken


@pytest.fixture
def memory() -> Iterator[JournalBackend]:
    with fmemory.open(":memory:") as memory:
        yield memory


@pytest.fixture
def broken(memory: JournalBackend) -> JournalBackend:
    write_broken(memory)
    return memory


def unreadable(found: RunReport) -> list[tuple[int, str, str]]:
    return [(one.seq, one.type, one.state) for one in found.unreadable]


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_reported_alike_in_every_journal(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened_memories(request, tmp_path) as opened:
        memory = opened(kind, "m")
        write_broken(memory)

        found = report(memory, "login")

    assert (found.session_id, found.run_id) == ("login", None)
    assert (found.objective, found.asked) == ("make logging in work", "make the form")
    assert [one.run_id for one in found.runs] == ["run-1", "run-2"]
    assert (found.event_count, found.first_seq, found.last_seq) == (16, 1, 16)
    error = found.first_error
    assert error is not None
    assert (error.seq, error.call_seq, error.call_id, error.tool) == (11, 10, "c2", "Bash")
    assert (error.arguments, error.words, error.marked) == ("rm -r form", "rm: no", True)
    assert [one.seq for one in found.around] == [6, 7, 8, 9, 10, 11, 12, 14, 15, 16]
    assert [one.seq for one in found.around if one.is_error] == [11]
    assert [(one.seq, one.call_id) for one in found.unanswered] == [(15, "c3")]
    assert [(one.seq, one.actor, one.run_id, one.reason) for one in found.flips] == [
        (6, "ada", "run-1", "2 tests passed"),
        (12, "bob", "run-2", "it was in the way"),
    ]
    assert [(one.feature_id, one.passed_seq, one.lost_seq) for one in found.regressions] == [
        ("form", 6, 12)
    ]
    assert [(one.seq, one.ids, one.words) for one in found.notes] == [
        (13, ("n1",), "forms need labels")
    ]
    assert sum(one.event_count for one in found.bytes) == 16
    assert found.unreadable == ()


def test_a_run_is_reported_alone(broken: JournalBackend) -> None:
    found = report(broken, "run-2")

    assert (found.session_id, found.run_id) == ("login", "run-2")
    assert (found.event_count, found.first_seq, found.last_seq) == (8, 9, 16)
    assert found.objective == "make logging in work"
    assert [(one.feature_id, one.passed_seq, one.lost_seq) for one in found.regressions] == [
        ("form", None, 12)
    ]
    assert found.tool_error_count == 1
    assert [one.run_id for one in found.runs] == ["run-2"]


def test_a_run_without_failures_has_no_error(broken: JournalBackend) -> None:
    found = report(broken, "run-1")

    assert (found.first_error, found.around, found.tool_error_count) == (None, (), 0)
    assert found.unanswered == ()


def test_three_commands_lead_on(broken: JournalBackend) -> None:
    assert report(broken, "login").commands == (
        "fmemory show 11",
        "fmemory transcript login --at 11 --last 6",
        "fmemory show 12",
    )
    assert report(broken, "run-1").commands == (
        "fmemory diff 1 8 --session login",
        "fmemory transcript login --run run-1 --last 10",
        "fmemory history --session login",
    )


def test_gaps_are_between_the_events_that_happened_the_longest_first(
    memory: JournalBackend,
) -> None:
    for minutes in (0, 1, 31, 33):
        happened = NewEvent("tool.finished", {"exit": 0}, occurred_at=at(minutes))
        memory.append(("session", "s"), [happened])

    gaps = report(memory, "s").gaps

    assert [(one.after_seq, one.before_seq, one.seconds) for one in gaps] == [
        (2, 3, 1800.0),
        (3, 4, 120.0),
        (1, 2, 60.0),
    ]


def test_a_backend_of_others_is_read_through_what_is_public(broken: JournalBackend) -> None:
    found = report(cast("LogBackend", Plain(broken)), "login")
    expected = report(broken, "login")

    assert found.first_error == expected.first_error
    assert (found.flips, found.unanswered, found.notes) == (
        expected.flips,
        expected.unanswered,
        expected.notes,
    )


def test_a_name_of_a_run_in_two_sessions_is_refused_until_one_is_named(
    broken: JournalBackend,
) -> None:
    with fmemory.audit(run_id="run-2"):
        broken.append_transcript_messages("other", [Message("user", "hello")])

    with pytest.raises(ContractError) as caught:
        report(broken, "run-2")
    assert "session login or a run of session other" in str(caught.value)
    assert report(broken, "run-2", session_id="other").asked == "hello"


def test_a_name_of_a_run_and_another_session_is_refused(broken: JournalBackend) -> None:
    broken.append_transcript_messages("run-2", [Message("user", "hello")])
    with fmemory.audit(run_id="x"):
        broken.append_transcript_messages("run-2", [Message("user", "hello")])

    with pytest.raises(ContractError) as caught:
        report(broken, "run-2")
    assert "session run-2 or a run of session login" in str(caught.value)
    assert report(broken, session_id="run-2").event_count == 2


def test_an_unknown_name_says_what_there_is(broken: JournalBackend) -> None:
    with pytest.raises(NotFound) as caught:
        report(broken, "run-9")

    assert caught.value.key == "run-9"
    assert "there are: login, run-1, run-2" in str(caught.value)


def test_a_session_without_manifest_is_reported_by_what_was_asked(memory: JournalBackend) -> None:
    memory.append_transcript_messages("s", [Message("user", "build a boat")])

    found = report(memory, "s")
    assert (found.objective, found.asked, found.runs) == (None, "build a boat", ())


def test_a_run_of_records_only_is_reported(memory: JournalBackend) -> None:
    with fmemory.audit(run_id="r"):
        memory.add_note("alone", id="n")

    found = report(memory, "r")
    assert (found.session_id, found.run_id, found.event_count) == (None, "r", 1)
    assert [one.words for one in found.notes] == ["alone"]


def test_all_failures_are_told_in_the_order_of_their_times(memory: JournalBackend) -> None:
    session, agent = memory.session("s"), memory.session("s.agent-1")
    session.save_manifest(
        SessionManifest("s", "main", "o", metadata={"sub_agent_session_ids": ["s.agent-1"]})
    )
    said: list[int] = []
    for number, one in enumerate((session, agent, session, agent)):
        one.append_transcript_messages(called(f"c{number}", f"step {number}"))
        is_error = number != 2
        one.append_transcript_messages(answered(f"c{number}", f"no {number}", is_error=is_error))
        said.append(memory.head().seq)

    found = report(memory, session_id="s")

    assert [(one.seq, one.words) for one in found.errors] == [
        (said[number], f"no {number}") for number in (0, 1, 3)
    ]
    assert found.first_error == found.errors[0]
    assert found.tool_error_count == 3
    assert report(memory, session_id="s.agent-1").errors == found.errors[1:]


def test_the_failure_of_a_message_without_a_call_is_a_failure(memory: JournalBackend) -> None:
    memory.append_transcript_messages("s", answered("gone", "no", is_error=True))

    error = report(memory, "s").first_error
    assert error is not None
    assert (error.seq, error.call_seq, error.tool) == (1, None, "")


def test_the_words_of_a_harness_are_a_failure_that_is_not_marked(memory: JournalBackend) -> None:
    memory.append_transcript_messages("s", called("c", "submit"))
    memory.append_transcript_messages("s", answered("c", "EXECUTION TIMED OUT\n$ "))

    error = report(memory, "s").first_error
    assert error is not None
    assert (error.seq, error.marked) == (2, False)


def test_what_only_blocks_say_is_said(memory: JournalBackend) -> None:
    session = memory.session("s")
    with session.run("r"):
        session.append_transcript_messages(
            [
                Message("user", blocks=[{"type": "text", "text": "please fix zebra"}]),
                *called("c", "giraffe"),
                Message(
                    "tool",
                    tool_call_id="c",
                    blocks=[{"type": "text", "text": "bash: giraffe: command not found"}],
                ),
            ]
        )

    found = report(memory, "r")
    assert (found.asked, found.tool_error_count) == ("please fix zebra", 1)
    assert found.first_error is not None
    assert found.first_error.words == "bash: giraffe: command not found"
    assert runs(memory)[0].last_words == "bash: giraffe: command not found"
    user, _, tool = transcript(memory, "s")
    assert (user.text, tool.results[0].text) == (
        "please fix zebra", "bash: giraffe: command not found",
    )  # fmt: skip
    assert [one.excerpt for one in grep(memory, "zebra").matches] == ["please fix zebra"]
    assert len(grep(memory, "giraffe").matches) == 2


def test_types_that_nobody_knows_are_shown_by_name(memory: JournalBackend) -> None:
    memory.append(("session", "s"), [NewEvent("moon.landed", {"at": "dawn"})])
    memory.append_transcript_messages("s", answered("c", "no", is_error=True))

    found = report(memory, "s")
    assert [one.type for one in found.around] == ["moon.landed", "transcript_appended"]
    assert {one.type for one in found.bytes} == {"moon.landed", "transcript_appended"}


def test_a_message_of_a_megabyte_is_shown_by_its_first_words(memory: JournalBackend) -> None:
    text = "word " * 200_000
    memory.append_transcript_messages("s", called("c", text))
    memory.append_transcript_messages("s", answered("c", text, is_error=True))

    found = report(memory, "s")
    assert found.first_error is not None
    assert len(found.first_error.words) <= 300
    assert len(found.first_error.arguments) <= 300
    assert found.bytes[0].payload_bytes > 2_000_000
    assert len(found.to_json()) < 10_000


def test_what_compaction_erased_is_named(broken: JournalBackend) -> None:
    broken.delete_session("login")
    broken.compact()

    found = report(broken, "login")
    erased = [seq for seq, _, state in unreadable(found) if state == "erased"]
    assert {3, 4, 5, 10, 11, 15} <= set(erased)
    assert [one.run_id for one in found.runs] == ["run-1", "run-2"]
    assert [one.unreadable_count > 0 for one in found.runs] == [True, True]
    assert found.first_error is None


def test_what_is_forgotten_is_named(broken: JournalBackend) -> None:
    broken.delete_session("login")
    broken.append_transcript_messages("login", answered("c", "no", is_error=True))
    broken.compact(forget_before=6)

    found = report(broken, "login")
    assert "forgotten" in {state for _, _, state in unreadable(found)}
    assert found.first_error is not None


def test_a_payload_that_is_not_one_is_named_and_the_rest_is_read(broken: JournalBackend) -> None:
    bad = Draft(("session", "login"), 16, "transcript_appended", Blob(b"\xc1"), count=1)
    lost = Draft(("session", "login"), 17, "event_lost", Blob(b""))
    broken._journal.commit(lambda _: [bad, lost])

    found = report(broken, "login")
    assert unreadable(found) == [
        (17, "transcript_appended", "damaged"),
        (18, "event_lost", "lost"),
    ]
    assert found.unreadable[0].problem is not None
    assert found.first_error is not None


def test_a_flipped_byte_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        write_broken(memory)
    (segment,) = (tmp_path / "m").glob("seg-*.log")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"make the form", b"fake the form"))

    with fmemory.open(tmp_path / "m", read_only=True) as memory:
        found = report(memory, "login")

    assert unreadable(found) == [(3, "transcript_appended", "damaged")]
    assert found.first_error is not None
    assert found.first_error.seq == 11


@pytest.mark.parametrize("kind", ["segments", "filesystem", "sqlite"])
def test_a_report_changes_no_byte(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target = target_of(request, tmp_path, kind, "m")
    with fmemory.open(target) as memory:
        write_broken(memory)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with fmemory.open(target, create=False, read_only=True) as memory:
        report(memory, "login")

    # SQLite makes two files beside its own while it reads; that one stays as it was.
    assert {path: path.read_bytes() for path in before} == before
    beside = {path.name for path in tmp_path.rglob("*") if path.is_file() and path not in before}
    assert beside <= {"m.db-shm", "m.db-wal"}


@pytest.mark.parametrize("kind", ["segments", "filesystem", "sqlite", "postgres"])
def test_a_store_that_is_being_written_is_reported_as_far_as_it_is(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target = target_of(request, tmp_path, kind, "m")
    with fmemory.open(target) as writer:
        writer.append_transcript_messages("s", called("c", "ls"))
        with fmemory.open(target, create=False, read_only=True) as reader:
            waiting = report(reader, "s")
            writer.append_transcript_messages("s", answered("c", "no", is_error=True))
            failed = report(reader, "s")

    assert [one.call_id for one in waiting.unanswered] == ["c"]
    assert (failed.unanswered, failed.event_count) == ((), 2)
    assert failed.first_error is not None
