"""`replay.compare` tells where two runs part, and how what they left behind differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import fmemory
from fmemory import (
    ContractError,
    FeatureRecord,
    LogBackend,
    Message,
    NotFound,
    ProgressEntry,
    SessionManifest,
    ToolCall,
)
from fmemory.replay import FeatureDifference, RunDiff, TextAt, compare
from tests.fmemory.replay_stores import answered, called
from tests.fmemory.replay_tools import JOURNALS, target_of


@pytest.fixture(params=JOURNALS)
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogBackend]:
    with fmemory.open(target_of(request.param, tmp_path)) as opened:
        yield opened


@pytest.fixture
def simple() -> Iterator[LogBackend]:
    with fmemory.open(":memory:") as opened:
        yield opened


def call(command: str, id_: str = "c") -> ToolCall:
    return ToolCall(id_, "bash", {"command": command})


def run_once(
    memory: LogBackend,
    name: str,
    said: Sequence[Message],
    *,
    passes: bool = False,
    progress: str = "tried",
    note: str = "fine",
    objective: str = "build",
) -> None:
    """A session and a run of the same name."""
    with fmemory.audit(run_id=name):
        manifest = SessionManifest(name, "main", objective)
        features = [FeatureRecord("form", "", "")]
        memory.initialize_session_if_missing(name, manifest, features)
    with memory.session(name).run(name):
        for message in said:
            memory.append_transcript_messages(name, [message])
        if passes:
            memory.update_feature_pass(name, "form", True)
        memory.append_progress_entry(name, ProgressEntry(name, progress))
        memory.add_note(note, id="n", namespace=(name,))


SAID = [
    Message("user", "build it"),
    Message("assistant", "looking", tool_calls=[call("ls")]),
    Message("tool", "a.py", tool_call_id="c"),
    Message("assistant", "editing", tool_calls=[call("ed a.py")]),
]


def test_two_runs_that_said_the_same_do_not_differ(memory: LogBackend) -> None:
    run_once(memory, "a", SAID)
    run_once(
        memory,
        "b",
        [
            *SAID[:1],
            Message("assistant", "looking", tool_calls=[call("ls", "x")]),
            Message("tool", "a.py", tool_call_id="x"),
            SAID[3],
        ],
    )

    found = compare(memory, "a", "b")

    assert (found.message, found.call, found.features) == (None, None, ())
    assert (found.shared_messages, found.shared_calls) == (4, 2)
    # Notes are compared with their namespace, which here is the run's.
    assert [len(found.notes.a), len(found.notes.b)] == [1, 1]


@pytest.mark.parametrize(
    ("number", "other", "what"),
    [
        (1, Message("user", "build that"), "text"),
        (1, Message("system", "build it"), "role"),
        (2, Message("assistant", "looking", tool_calls=[call("ls -a")]), "call"),
        (2, Message("assistant", "looking"), "call"),
        (3, Message("tool", "b.py", tool_call_id="c"), "result"),
        (3, Message("tool", "a.py", tool_call_id="c", is_error=True), "result"),
    ],
)
def test_the_first_message_that_differs_is_found(
    number: int, other: Message, what: str, simple: LogBackend
) -> None:
    run_once(simple, "a", SAID)
    run_once(simple, "b", [other if n + 1 == number else one for n, one in enumerate(SAID)])

    parting = compare(simple, "a", "b").message

    assert parting is not None
    assert parting.a is not None
    assert parting.b is not None
    assert (parting.number, parting.what) == (number, what)
    assert simple.event(parting.a.seq).run_id == "a"
    assert simple.event(parting.b.seq).run_id == "b"


def test_a_run_that_ends_early_parts_at_its_end(memory: LogBackend) -> None:
    run_once(memory, "a", SAID[:2])
    run_once(memory, "b", SAID)

    parting = compare(memory, "a", "b").message

    assert parting is not None
    assert (parting.number, parting.what, parting.a) == (3, "end", None)


def test_the_first_call_that_differs_is_found_though_words_differ_before(
    memory: LogBackend,
) -> None:
    run_once(memory, "a", SAID)
    run_once(
        memory,
        "b",
        [
            Message("user", "please build it"),
            SAID[1],
            SAID[2],
            Message("assistant", "editing", tool_calls=[call("ed b.py")]),
        ],
    )

    found = compare(memory, "a", "b")

    assert found.message is not None
    assert found.message.number == 1
    assert found.call is not None
    assert (found.shared_calls, found.call.number) == (1, 2)
    assert found.call.a is not None
    assert found.call.b is not None
    assert found.call.a.arguments == {"command": "ed a.py"}
    assert found.call.b.arguments == {"command": "ed b.py"}


def test_the_first_answer_that_differs_in_success_is_found(memory: LogBackend) -> None:
    answers = {
        "a": ["1 passed in 0.3 s", "written", "2 passed"],
        "b": ["1 passed in 0.4 s", "written", "1 failed"],
        "c": ["1 passed in 0.4 s", "written", "2 passed"],
    }
    for run_id, texts in answers.items():
        session = memory.session(run_id)
        with session.run(run_id):
            session.append_transcript_messages([Message("user", f"this is run {run_id}")])
            for number, text in enumerate(texts):
                session.append_transcript_messages(called(f"c{number}", f"step {number}"))
                failed = "failed" in text
                session.append_transcript_messages(answered(f"c{number}", text, is_error=failed))

    found = compare(memory, "a", "b")
    assert (found.call, found.shared_calls) == (None, 3)
    assert found.result is not None and not found.is_same
    assert (found.result.number, found.result.a.text, found.result.b.text) == (
        3, "2 passed", "1 failed",
    )  # fmt: skip
    assert (found.result.a.is_error, found.result.b.is_error) == (False, True)
    assert memory.event(found.result.b.seq).run_id == "b"
    words = compare(memory, "a", "c").result
    assert words is not None and (words.number, words.b.text) == (1, "1 passed in 0.4 s")


def write_answers(
    memory: LogBackend, run_id: str, calls: list[str], answers: list[tuple[str, str]]
) -> None:
    """A run that makes all its calls at once, and gets these answers one after the other."""
    session = memory.session(run_id)
    with session.run(run_id):
        for name in calls:
            session.append_transcript_messages(called(f"id-{name}", name))
        for name, text in answers:
            failed = answered(f"id-{name}", text, is_error="failed" in text)
            session.append_transcript_messages(failed)


@pytest.mark.parametrize(
    ("calls", "answers", "expected"),
    [
        # Answers that come in another order.
        (["ls", "cat"], [[("ls", "A"), ("cat", "B")], [("cat", "B"), ("ls", "A")]], None),
        # One that nobody gave is compared with none.
        (["ls", "pytest"], [[("pytest", "ok")], [("ls", "A"), ("pytest", "ok")]], None),
        (["ls", "pytest"], [[("pytest", "ok")], [("ls", "A"), ("pytest", "failed")]], 2),
        # One to a call that the run did not make.
        (["pytest"], [[("old", "A"), ("pytest", "ok")], [("pytest", "failed")]], 1),
    ],
)
def test_answers_are_compared_by_the_calls_that_they_answer(
    calls: list[str],
    answers: list[list[tuple[str, str]]],
    expected: int | None,
    memory: LogBackend,
) -> None:
    for run_id, given in zip("ab", answers, strict=True):
        write_answers(memory, run_id, calls, given)

    found = compare(memory, "a", "b").result

    assert (found and found.number) == expected
    if found is not None:
        assert (found.a.name, found.a.text, found.b.text) == ("Bash", "ok", "failed")


def test_features_objectives_and_texts_that_differ_are_named(memory: LogBackend) -> None:
    run_once(memory, "a", SAID, passes=True, progress="built", note="use make")
    run_once(memory, "b", SAID, progress="gave up", objective="build all")

    found = compare(memory, "a", "b")

    (feature,) = found.features
    assert (feature.feature_id, feature.a, feature.b) == ("form", True, False)
    assert feature.a_seq is not None
    assert memory.event(feature.a_seq).type == "feature_pass_updated"
    assert (found.objective_a, found.objective_b) == ("build", "build all")
    assert [one.text for one in found.progress.a] == ["built"]
    assert [one.text for one in found.progress.b] == ["gave up"]
    assert [one.text for one in found.notes.a] == ["a/n: use make"]
    assert not found.is_same


def test_checkpoints_that_only_one_has_are_named(simple: LogBackend) -> None:
    run_once(simple, "a", SAID)
    with fmemory.audit(run_id="b"):
        simple.append_transcript_messages("b", SAID)

    found = compare(simple, "a", "b")

    assert [one.text for one in found.checkpoints.a] == ["in_progress", "succeeded"]
    assert found.checkpoints.b == ()
    assert found.features == (FeatureDifference("form", False, None, 1, None),)


def test_two_runs_of_one_session_are_told_apart(simple: LogBackend) -> None:
    for name, text in (("one", "try"), ("two", "try again")):
        with simple.session("s").run(name):
            simple.append_transcript_messages("s", [Message("assistant", text)])

    parting = compare(simple, "one", "two").message

    assert parting is not None
    assert parting.a is not None
    assert parting.b is not None
    assert (parting.number, parting.a.text, parting.b.text) == (1, "try", "try again")


def test_what_came_after_a_run_does_not_count(simple: LogBackend) -> None:
    run_once(simple, "a", SAID)
    run_once(simple, "b", SAID)
    simple.truncate_transcript("a", keep=0)
    simple.update_feature_pass("a", "form", True)

    found = compare(simple, "a", "b")

    assert (found.message, found.shared_messages, found.features) == (None, 4, ())


def test_runs_of_deleted_sessions_are_compared_as_far_as_they_are_there(
    memory: LogBackend,
) -> None:
    run_once(memory, "a", SAID)
    run_once(memory, "b", SAID)
    memory.delete_session("a")
    assert compare(memory, "a", "b").message is None
    memory.compact()

    found = compare(memory, "a", "b")

    assert found.message is not None
    assert (found.message.what, found.message.a) == ("end", None)
    assert {one.state for one in found.unreadable} == {"erased"}
    assert len(found.unreadable) >= len(SAID)


def test_runs_that_wrote_records_only_are_compared_by_these(simple: LogBackend) -> None:
    for name, text in (("one", "x"), ("two", "y")):
        with fmemory.audit(run_id=name):
            simple.add_note("shared", id=f"{name}-1")
            simple.add_note(text, id=f"{name}-2")

    found = compare(simple, "one", "two")

    assert (found.a.session_id, found.message) == (None, None)
    assert found.notes.shared == 1
    assert found.notes.a == (TextAt(2, "one-2: x"),)
    assert found.notes.b == (TextAt(4, "two-2: y"),)


def test_an_id_that_two_sessions_have_needs_the_session(simple: LogBackend) -> None:
    for session in ("s", "t"):
        with simple.session(session).run("r"):
            simple.append_transcript_messages(session, [Message("user", session)])

    with pytest.raises(ContractError, match="'s', 't'") as caught:
        compare(simple, "r", "r")
    assert caught.value.where == "run_a"
    found = compare(simple, "r", "r", session_a="s", session_b="t")
    assert (found.a.session_id, found.b.session_id) == ("s", "t")


def test_notes_of_runs_of_one_id_are_those_of_each_session(simple: LogBackend) -> None:
    def note(text: str) -> None:
        with fmemory.audit(run_id="r"):
            simple.add_note(text, id=text)

    note("before any session")
    for session in ("s", "t"):
        with simple.session(session).run("r"):
            simple.append_transcript_messages(session, [Message("user", session)])
            simple.add_note(f"of {session}", id=session)
            simple.add_note("of both", id=f"both {session}")
        note(f"after {session}")

    found = compare(simple, "r", "r", session_a="s", session_b="t")

    assert [one.text for one in found.notes.a] == ["s: of s", "after s: after s"]
    assert [one.text for one in found.notes.b] == ["t: of t", "after t: after t"]
    assert found.notes.shared == 1
    assert (found.a.note_count, found.b.note_count) == (3, 3)


def test_a_run_is_not_compared_with_itself(simple: LogBackend) -> None:
    run_once(simple, "a", SAID)

    with pytest.raises(ContractError):
        compare(simple, "a", "a")


def test_an_unknown_run_is_refused(simple: LogBackend) -> None:
    run_once(simple, "a", SAID)

    with pytest.raises(NotFound) as caught:
        compare(simple, "a", "nobody")
    assert (caught.value.what, caught.value.key) == ("run", "nobody")


def test_a_diff_is_plain_data_and_back(simple: LogBackend) -> None:
    run_once(simple, "a", SAID, passes=True)
    run_once(simple, "b", SAID[:3])
    found = compare(simple, "a", "b")

    assert RunDiff.from_dict(found.to_dict()) == found
