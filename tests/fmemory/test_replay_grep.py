"""`replay.grep` finds every text with its event, and names what it could not search."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import fmemory
from fmemory import (
    ContractError,
    FeatureRecord,
    LogBackend,
    Message,
    NewEvent,
    NotFound,
    ProgressEntry,
    Reason,
    RunCheckpoint,
    SessionManifest,
    ToolCall,
)
from fmemory.replay import Match, Matches, TextPlace, grep


def found(matches: Matches) -> list[tuple[int, str, str]]:
    return [(one.seq, one.place.value, one.name) for one in matches.matches]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("make the form", [(3, "message", "user")]),
        ("and look", [(4, "message", "assistant")]),
        ("^make$", [(4, "message", "call bash command")]),
        ("^bash$", [(4, "message", "call"), (4, "message", "call")]),
        ("no rule", [(5, "message", "result")]),
        ("form works", [(8, "progress", "run-1")]),
        ("tokens? last", [(12, "note", "n1")]),
        ("137", [(7, "event", "exit[0]")]),
        ("logging in", [(1, "manifest", "current_objective")]),
        ("^a token$", [(1, "feature", "token")]),
        ("nowhere", []),
    ],
)
def test_a_text_is_found_where_it_stands(
    pattern: str, expected: list[tuple[int, str, str]], memory: LogBackend
) -> None:
    assert found(grep(memory, pattern)) == expected


def test_a_match_tells_who_when_in_which_session_and_run(memory: LogBackend) -> None:
    (one,) = grep(memory, "done").matches

    assert (one.session_id, one.namespace, one.actor, one.run_id, one.type) == (
        "login",
        (),
        "bob",
        "run-2",
        "transcript_appended",
    )
    assert one.time == memory.event(11).recorded_at


def test_a_note_tells_its_namespace(empty: LogBackend) -> None:
    empty.add_note("tea", namespace=("a", "b"), metadata={"kind": ["green tea"]}, id="n")

    assert [(one.name, one.namespace, one.session_id) for one in grep(empty, "tea").matches] == [
        ("n", ("a", "b"), None),
        ("n kind[0]", ("a", "b"), None),
    ]


def test_the_excerpt_is_the_line_and_says_where_the_match_is(memory: LogBackend) -> None:
    (one,) = grep(memory, "look").matches

    assert (one.line, one.excerpt, one.excerpt[one.start : one.end]) == (2, "and looking", "look")


@pytest.mark.parametrize("place", [0, 1, 50, 300, 5000, 9995])
def test_of_a_long_line_the_excerpt_is_what_is_near(place: int, empty: LogBackend) -> None:
    text = "x" * place + "needle" + "x" * (9994 - place) if place < 9994 else "x" * 9994 + "needle"
    empty.append_transcript_messages("s", [Message("user", text)])

    (one,) = grep(empty, "needle").matches

    assert one.excerpt[one.start : one.end] == "needle"
    assert len(one.excerpt) == 200


def test_a_match_longer_than_an_excerpt_is_cut(empty: LogBackend) -> None:
    empty.append_transcript_messages("s", [Message("user", "a" * 1000)])

    (one,) = grep(empty, "a+").matches

    assert (one.start, one.end, len(one.excerpt)) == (0, 200, 200)


@pytest.mark.parametrize("pattern", ["^$", "x*", "^"])
def test_texts_that_nobody_wrote_are_not_found(pattern: str, empty: LogBackend) -> None:
    with fmemory.audit(run_id="r"):
        session = empty.session("s")
        features = [FeatureRecord("form", "", "")]
        session.initialize_session_if_missing(SessionManifest("s", "main", ""), features)
        with session.run("r"):
            call = ToolCall("c", "bash", {})
            session.append_transcript_messages(
                [
                    Message("user", "hello"),
                    Message("assistant", "", tool_calls=[call]),
                    Message("tool", "", tool_call_id="c"),
                ]
            )
            empty.add_note("", id="n", metadata={"owner": ""})

    found = grep(empty, pattern).matches

    assert all(one.excerpt for one in found)
    names = {(one.name, one.excerpt) for one in found if one.place == "message"}
    assert names == (set() if pattern == "^$" else {("user", "hello"), ("call", "bash")})


def test_matches_of_a_text_are_counted(empty: LogBackend) -> None:
    empty.append_transcript_messages("s", [Message("user", "ab\nab\nab")])

    (one,) = grep(empty, "^ab$").matches

    assert (one.match_count, one.line, one.excerpt) == (3, 1, "ab")


def test_a_literal_is_found_as_it_is(empty: LogBackend) -> None:
    empty.append_transcript_messages("s", [Message("user", "f(x)"), Message("user", "fx")])

    assert [one.excerpt for one in grep(empty, "f(x)", literal=True).matches] == ["f(x)"]
    assert [one.excerpt for one in grep(empty, "f(x)").matches] == ["fx"]


def test_capitals_count_unless_told_not_to(memory: LogBackend) -> None:
    assert found(grep(memory, "DONE")) == []
    assert found(grep(memory, "DONE", ignore_case=True)) == [(11, "message", "assistant")]


def test_places_limit_what_is_searched(memory: LogBackend) -> None:
    every = found(grep(memory, "form"))

    for place in TextPlace:
        only = found(grep(memory, "form", places=[place]))
        assert only == [one for one in every if one[1] == place]
    both = found(grep(memory, "form", places=["message", "progress"]))
    assert both == [(3, "message", "user"), (8, "progress", "run-1")]


def test_session_run_actor_and_time_limit_what_is_searched(memory: LogBackend) -> None:
    memory.append_transcript_messages("other", [Message("user", "form")])

    assert {one.session_id for one in grep(memory, "form", session_id="other").matches} == {"other"}
    assert {one.seq for one in grep(memory, "form", run_id="run-2").matches} == {10}
    assert {one.seq for one in grep(memory, "form", actor="bob").matches} == {10}
    later = datetime.now(UTC) + timedelta(hours=1)
    assert grep(memory, "form", since=later).matches == ()
    assert len(grep(memory, "form", until=later).matches) == len(grep(memory, "form").matches)


def test_times_are_those_when_things_happened(empty: LogBackend) -> None:
    then = datetime(2020, 1, 2, tzinfo=UTC)
    with fmemory.audit(occurred_at=then):
        empty.append_transcript_messages("s", [Message("user", "tea")])

    assert len(grep(empty, "tea", until=then + timedelta(seconds=1)).matches) == 1
    assert grep(empty, "tea", until=then).matches == ()


def test_a_limit_stops_and_says_so(memory: LogBackend) -> None:
    every = grep(memory, "form")
    some = grep(memory, "form", limit=2)

    assert (some.matches, some.complete) == (every.matches[:2], False)
    assert grep(memory, "form", limit=len(every.matches)).complete


def test_what_was_truncated_or_replaced_is_found_too(memory: LogBackend) -> None:
    memory.truncate_transcript("login", keep=0)
    memory.replace_feature_list("login", [FeatureRecord("x", "", "")])

    assert found(grep(memory, "no rule")) == [(5, "message", "result")]
    assert found(grep(memory, "^a token$")) == [(1, "feature", "token")]


def test_erased_events_and_records_are_named(memory: LogBackend) -> None:
    memory.delete(memory.delete_request(["n1"]))
    memory.delete_session("login")
    memory.compact()

    result = grep(memory, "form|tokens", places=["message", "note"])

    assert result.matches == ()
    assert [(one.seq, one.state) for one in result.unreadable] == [
        (3, "erased"),
        (4, "erased"),
        (5, "erased"),
        (11, "erased"),
        (12, "erased"),
    ]


def test_checkpoints_thoughts_and_bytes_are_searched(empty: LogBackend) -> None:
    empty.record_run_checkpoint("s", RunCheckpoint.started("r").failed("out of tea"))
    empty.append_transcript_messages(
        "s", [Message("assistant", blocks=[{"type": "thinking", "thinking": "more tea"}])]
    )
    empty.append(("jobs",), [NewEvent("job.done", "tea\xff".encode("latin-1"))])
    empty.append(("jobs",), [NewEvent("job.done", ["no", {"deep": {"er": "tea"}}])])
    empty.initialize_session_if_missing(
        "t",
        fmemory.SessionManifest("t", "main", "drink"),
        [],
        ProgressEntry("r", "first tea"),
        RunCheckpoint.started("r").succeeded("second tea"),
    )

    assert found(grep(empty, "tea")) == [
        (1, "checkpoint", "r"),
        (2, "message", "thinking"),
        (3, "event", ""),
        (4, "event", "[1].deep.er"),
        (5, "progress", "r"),
        (5, "checkpoint", "r"),
    ]


def test_a_message_of_a_megabyte_is_searched(empty: LogBackend) -> None:
    text = "word " * 200_000 + "needle"
    empty.append_transcript_messages("s", [Message("tool", text, tool_call_id="c")])

    (one,) = grep(empty, "needle").matches

    assert (one.name, one.excerpt[one.start :]) == ("result", "needle")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", Reason.BAD_VALUE),
        ("a{2,1}", Reason.BAD_VALUE),
        ("[z-a]", Reason.BAD_VALUE),
        ("a{99999999999999999999}", Reason.BAD_VALUE),
        ("(?P<a>x)(?P<a>y)", Reason.BAD_VALUE),
        ("(" * 5000 + ")" * 5000, Reason.BAD_VALUE),
        ("", Reason.EMPTY),
        ("a" * 20_000, Reason.TOO_LARGE),
        (b"a", Reason.WRONG_TYPE),
    ],
    ids=repr,
)
def test_a_pattern_that_is_none_is_refused(pattern: str, reason: Reason, empty: LogBackend) -> None:
    with pytest.raises(ContractError) as caught:
        grep(empty, pattern)
    assert (caught.value.where, caught.value.reason) == ("pattern", reason)


def test_other_wrong_arguments_are_refused(empty: LogBackend) -> None:
    with pytest.raises(ContractError, match="limit"):
        grep(empty, "a", limit=0)
    with pytest.raises(ContractError, match="places"):
        grep(empty, "a", places=["messages"])
    with pytest.raises(ContractError, match="since"):
        grep(empty, "a", since=datetime(2020, 1, 2))
    with pytest.raises(NotFound):
        grep(empty, "a", session_id="nobody")


def test_a_pattern_of_odd_sets_gives_no_warning(empty: LogBackend) -> None:
    assert grep(empty, "[[a]").matches == ()


def test_matches_are_plain_data_and_back(memory: LogBackend) -> None:
    for one in grep(memory, "form").matches:
        assert Match.from_dict(one.to_dict()) == one
