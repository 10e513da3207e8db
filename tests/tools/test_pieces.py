"""The pure pieces of the command: times, streams, differences, summaries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fmemory import (
    BootstrapState,
    FeatureRecord,
    JsonObject,
    Message,
    ProgressEntry,
    Role,
    SessionManifest,
)
from fmemory_tools._changes import changes_between
from fmemory_tools._failure import Failure, one_line
from fmemory_tools._summary import describe_message, parse_stream, shorten, show_stream
from fmemory_tools._times import parse_place, parse_time, show_time
from fmemory_tools.stepper.brief import brief_message

NOON = datetime(2026, 2, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("10m ago", timedelta(minutes=10)),
        ("10 min ago", timedelta(minutes=10)),
        ("2h ago", timedelta(hours=2)),
        ("1.5 hours ago", timedelta(minutes=90)),
        ("3 days ago", timedelta(days=3)),
        ("1w ago", timedelta(weeks=1)),
        ("30s ago", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("1.5h", timedelta(minutes=90)),
    ],
)
def test_times_that_read_like_ten_minutes_ago(text: str, ago: timedelta) -> None:
    assert parse_time(text, "--since", now=NOON) == NOON - ago


def test_a_time_without_a_zone_is_local() -> None:
    assert parse_time("2026-02-10T12:00", "--since") == datetime(2026, 2, 10, 12).astimezone(UTC)
    assert parse_time("2026-02-10T12:00+02:00", "--since") == NOON - timedelta(hours=2)
    assert parse_time("2026-02-10", "--since") == datetime(2026, 2, 10).astimezone(UTC)


@pytest.mark.parametrize("utc", [True, False])
def test_a_time_can_be_given_back_as_it_is_shown(utc: bool) -> None:
    assert parse_time(show_time(NOON, utc=utc), "--since") == NOON


@pytest.mark.parametrize(
    "text",
    ["", "10", "10x", "ago", "2026-02-30", "T", "10y ago", "99Tx", "2026-02-10 x", "20260210T12"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_time(text, "--since")

    assert caught.value.code == 2
    assert str(caught.value).startswith("--since: expected a time")


@pytest.mark.parametrize("text", ["99999999999999999999999d ago", "9999999d ago"])
def test_a_time_before_all_times_is_refused(text: str) -> None:
    with pytest.raises(Failure):
        parse_time(text, "--since")


def test_a_plain_number_is_a_place_in_the_log() -> None:
    assert parse_place("0", "--at") == 0
    assert isinstance(parse_place("1h ago", "--at"), datetime)
    with pytest.raises(Failure, match="a sequence number"):
        parse_place("-1", "--at")


@pytest.mark.parametrize(
    "labels", [("records",), ("records", "a", "b"), ("a/b", "c\\d"), ("x", ""), ("x", "/", "\\/")]
)
def test_streams_are_read_as_they_are_shown(labels: tuple[str, ...]) -> None:
    assert parse_stream(show_stream(labels), "--stream") == labels


def test_differences_are_named_part_by_part() -> None:
    before = BootstrapState(
        manifest=SessionManifest("s", "main", "one"),
        feature_list=(FeatureRecord("a", "", ""), FeatureRecord("b", "", "")),
    )
    after = BootstrapState(
        manifest=SessionManifest("s", "main", "two"),
        feature_list=(FeatureRecord("b", "", "", passes=True), FeatureRecord("c", "", "")),
        recent_progress=(ProgressEntry("r", "did it"),),
    )

    found = changes_between(before, after, [], [Message(Role.USER, "go")])

    assert [(one.part, one.name, one.word) for one in found] == [
        ("manifest", "current_objective", "changed"),
        ("feature", "a", "removed"),
        ("feature", "b", "changed"),
        ("feature", "c", "added"),
        ("progress", "1", "added"),
        ("message", "1", "added"),
    ]


def test_equal_states_have_no_differences() -> None:
    one = BootstrapState(manifest=SessionManifest("s", "main", "one"))
    other = BootstrapState(manifest=SessionManifest("s", "main", "one"))

    assert list(changes_between(one, other, [Message(Role.USER)], [Message(Role.USER)])) == []


def test_text_for_one_line_has_no_line_ends_and_no_commands() -> None:
    assert one_line("a\r\nb\tc\x1b[0m\x00") == "a b c␛[0m␀"
    assert shorten("word " * 1000, 20) == "word word word word…"


def test_what_only_blocks_say_is_said_in_a_line() -> None:
    said: JsonObject = {
        "role": "user",
        "content": "",
        "blocks": [{"type": "text", "text": "fix it"}],
    }
    drawn: JsonObject = {"role": "user", "content": "", "blocks": [{"type": "image"}]}

    assert (describe_message(said), brief_message(said)) == ("fix it", "fix it")
    assert describe_message(drawn) == "[image]"
