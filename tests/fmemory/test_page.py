"""A replay as an HTML page: what is in the file. What a browser makes of it: test_page_browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fmemory
from fmemory import (
    ContractError,
    LogBackend,
    Message,
    NotFound,
    RunCheckpoint,
    SessionManifest,
)
from fmemory._engine.raw_events import raw_pages
from fmemory.replay import _facts, page, report, runs
from tests.fmemory.page_stores import (
    HOSTILE,
    START,
    hostile_session,
    long_session,
    odd_sessions,
    of_page,
)
from tests.fmemory.replay_stores import answered, called

FIXED_BYTES_MAX = 100_000
DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)


@pytest.fixture
def memory() -> Iterator[LogBackend]:
    with fmemory.open(":memory:") as opened:
        yield opened


def data_of(html: str) -> Any:
    """What a page knows."""
    found = DATA.search(html)
    assert found is not None
    return json.loads(found[1])


def session_of(html: str, session_id: str | None) -> Any:
    (found,) = [one for one in data_of(html)["sessions"] if one["id"] == session_id]
    return found


def event_of(html: str, seq: int) -> Any:
    events = [event for one in data_of(html)["sessions"] for event in one["events"]]
    (found,) = [event for event in events if event["seq"] == seq]
    return found


def test_page_of_a_session_has_all_its_events(memory: LogBackend) -> None:
    long_session(memory, 60)
    memory.session("other").append_transcript_messages([Message("user", "elsewhere")])

    html = page(memory, "build")

    assert [one["id"] for one in data_of(html)["sessions"]] == ["build"]
    assert [one["seq"] for one in session_of(html, "build")["events"]] == list(range(1, 61))


def test_page_of_all_sessions_begins_with_the_newest(memory: LogBackend) -> None:
    for name in ("first", "second"):
        memory.session(name).append_transcript_messages([Message("user", name)])

    assert [one["id"] for one in data_of(page(memory))["sessions"]] == ["second", "first"]


def test_page_of_a_run_is_that_of_its_session_and_names_the_run(memory: LogBackend) -> None:
    long_session(memory, 900)

    found = data_of(page(memory, "run-02"))

    assert found["focus"] == "run-02"
    assert [one["id"] for one in found["sessions"]] == ["build"]


def test_page_of_nothing_that_exists_is_refused(memory: LogBackend) -> None:
    with pytest.raises(NotFound) as caught:
        page(memory, "nothing")

    assert caught.value.key == "nothing"


def test_name_of_a_session_and_of_a_run_of_another_is_refused(memory: LogBackend) -> None:
    memory.session("twice").append_transcript_messages([Message("user", "a session")])
    memory.session("other").record_run_checkpoint(RunCheckpoint("twice", START))

    with pytest.raises(ContractError) as caught:
        page(memory, "twice")

    assert caught.value.where == "name"


def test_page_of_an_empty_store_has_no_session(memory: LogBackend) -> None:
    assert data_of(page(memory))["sessions"] == []


def test_runs_of_the_page_are_those_that_runs_gives(memory: LogBackend) -> None:
    long_session(memory, 900)
    odd_sessions(memory)

    shown = [run for one in data_of(page(memory))["sessions"] for run in one["runs"]]

    told = [{**one.to_dict(), "duration_s": one.duration_s} for one in runs(memory)]
    assert sorted(shown, key=str) == sorted(json.loads(json.dumps(told)), key=str)


@pytest.mark.parametrize("name", ["build", "run-02", "gone", "bare", "lone"])
def test_report_of_the_page_is_that_which_report_gives(memory: LogBackend, name: str) -> None:
    long_session(memory, 900)
    odd_sessions(memory)

    shown = data_of(page(memory, name))["sessions"][0]["report"]

    assert shown == of_page(json.loads(report(memory, name).to_json()))


def test_sessions_of_sub_agents_are_in_the_page_of_their_session(memory: LogBackend) -> None:
    metadata: fmemory.JsonObject = {"sub_agent_session_ids": ["s.agent", "never imported"]}
    memory.session("s").save_manifest(SessionManifest("s", "main", "ask", metadata=metadata))
    memory.session("s.agent").append_transcript_messages([Message("user", "asked")])
    memory.session("other").append_transcript_messages([Message("user", "not asked")])

    assert [one["id"] for one in data_of(page(memory, "s"))["sessions"]] == ["s", "s.agent"]


@pytest.mark.parametrize("name", ["s", None])
def test_every_session_is_in_the_page_once_however_often_it_is_named(
    memory: LogBackend, name: str | None
) -> None:
    named: fmemory.JsonObject = {"sub_agent_session_ids": ["s.agent", "s", "s.agent"]}
    memory.session("s.agent").append_transcript_messages([Message("user", "asked")])
    memory.session("s").save_manifest(SessionManifest("s", "main", "ask", metadata=named))

    assert [one["id"] for one in data_of(page(memory, name))["sessions"]] == ["s", "s.agent"]


@pytest.mark.parametrize("name", ["s", None])
def test_the_log_is_gone_through_as_often_for_many_sessions_as_for_few(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def counted(*args: Any, stream: Any = None, **options: Any) -> Any:
        passes[-1] += stream is None
        return raw_pages(*args, stream=stream, **options)

    monkeypatch.setattr(_facts, "raw_pages", counted)
    for count in (2, 20):
        passes.append(0)
        agents: list[fmemory.JsonValue] = [f"s.{number}" for number in range(count)]
        metadata: fmemory.JsonObject = {"sub_agent_session_ids": agents}
        with fmemory.open(":memory:") as memory:
            memory.session("s").save_manifest(
                SessionManifest("s", "main", "ask", metadata=metadata)
            )
            for agent in agents:
                with memory.session(str(agent)).run(f"run of {agent}"):
                    memory.add_note("read", [1.0])
            html = page(memory, name)
        assert len(data_of(html)["sessions"]) == count + 1

    assert passes[0] == passes[1] > 0


def test_a_session_of_many_is_told_as_alone(memory: LogBackend) -> None:
    long_session(memory, 200)
    odd_sessions(memory)
    with memory.session("late").run("both"):
        memory.add_note("of late", [1.0], id="n7")
    with memory.session("later").run("both"):
        memory.add_note("of later", [1.0], id="n8")

    together = {one["id"]: one for one in data_of(page(memory))["sessions"]}

    for session_id in ("build", "gone", "bare", "late", "later"):
        alone = data_of(page(memory, session_id=session_id))["sessions"][0]
        seqs = [event["seq"] for event in together[session_id]["events"]]
        assert seqs == [event["seq"] for event in alone["events"]]
        assert together[session_id]["report"] == alone["report"]
        assert together[session_id]["runs"] == alone["runs"]


def test_notes_of_a_run_are_events_of_its_session(memory: LogBackend) -> None:
    with memory.session("s").run("r1"):
        memory.add_note("tokens last an hour", [1.0], id="n1", namespace=("api",))

    event = event_of(page(memory, "s"), 2)

    assert event["stream"] == ["records", "api"]
    assert event["notes"] == [{"id": "n1", "text": "tokens last an hour"}]


def test_runs_without_a_session_have_a_place_of_their_own(memory: LogBackend) -> None:
    odd_sessions(memory)

    found = session_of(page(memory, "lone"), None)

    assert [one["notes"] for one in found["events"]] == [[{"id": "n1", "text": "nobody's note"}]]


def test_erased_events_are_there_and_say_so(memory: LogBackend) -> None:
    odd_sessions(memory)

    events = session_of(page(memory, "gone"), "gone")["events"]

    assert [one.get("erased", False) for one in events] == [True, True, False, False]
    assert "a secret" not in page(memory)


def test_events_of_types_nobody_knows_are_shown_with_their_data(memory: LogBackend) -> None:
    odd_sessions(memory)
    html = page(memory, "bare")
    words = data_of(html)["words"]

    events = session_of(html, "bare")["events"]

    own = {words[one["type"]]: one.get("data") for one in events if "." in words[one["type"]]}
    assert own == {"odd.bytes": {"data_base64": "AP8="}, "odd.null": None, "odd.": 7}


def test_integers_that_a_browser_would_round_are_text(memory: LogBackend) -> None:
    odd_sessions(memory)
    events = session_of(page(memory, "bare"), "bare")["events"]

    (message,) = events[1]["messages"]

    (call,) = message["parts"]
    assert call == ["call", "c1", "bash", {"command": "true", "big": str(2**63 - 1)}]


def test_a_damaged_event_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        session = memory.session("s")
        for text in ("before it", "damaged here", "after it"):
            session.append_transcript_messages([Message("user", text)])
    change_one_byte(tmp_path / "store", b"damaged here")

    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        events = session_of(page(memory), "s")["events"]

    assert [one["seq"] for one in events] == [1, 2, 3]
    assert ["problem" in one for one in events] == [False, True, False]
    assert events[2]["messages"][0]["parts"] == [["text", "after it"]]


def change_one_byte(store: Path, text: bytes) -> None:
    (segment,) = store.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(text)] ^= 1
    segment.write_bytes(content)


def test_making_a_page_changes_no_byte_of_the_store(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        odd_sessions(memory)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        page(memory)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nothing_of_a_hostile_log_can_end_the_data_or_begin_markup(memory: LogBackend) -> None:
    hostile_session(memory)
    html = page(memory)

    found = DATA.search(html)

    assert found is not None
    assert "<" not in found[1]
    assert all(text in json.dumps(data_of(html), ensure_ascii=False) for text in HOSTILE[:3])
    assert not any(text in html.replace(found[1], "") for text in HOSTILE if "<" in text)


def test_a_hostile_log_adds_no_element_to_the_page(memory: LogBackend) -> None:
    empty = elements_of(page(memory))
    hostile_session(memory)

    assert elements_of(page(memory)) == empty


class Elements(HTMLParser):
    """The elements of a page, as an HTML parser sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements_of(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(html)
    return parser.found


def test_the_page_names_no_address_but_its_own(memory: LogBackend) -> None:
    addresses = [
        value
        for _, attributes in elements_of(page(memory))
        for name, value in attributes.items()
        if name in {"src", "href", "action", "data", "srcset", "poster"}
    ]

    assert sorted(map(str, addresses)) == ["#list", "data:,"]


def test_the_policy_allows_no_script_but_those_of_the_page(memory: LogBackend) -> None:
    (policy,) = [
        str(attributes["content"])
        for tag, attributes in elements_of(page(memory))
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert all(one.startswith("'sha256-") for one in rules["script-src"].split())
    assert "unsafe" not in policy


def test_the_page_without_data_is_small(memory: LogBackend) -> None:
    assert len(page(memory).encode()) < FIXED_BYTES_MAX


def test_a_page_of_failures_only_is_smaller_than_three_times_its_data(memory: LogBackend) -> None:
    fixed = len(page(memory).encode())
    with memory.batch() as batch:
        for number in range(500):
            batch.append_transcript_messages("s", called(f"toolu_{number:06}", f"pytest t{number}"))
            failed = answered(f"toolu_{number:06}", f"t{number} failed: 1 != 2", is_error=True)
            batch.append_transcript_messages("s", failed)

    size = sum(one.payload_bytes for one in memory.stats().by_type)
    assert len(page(memory, "s").encode()) - fixed < 3 * size
    assert data_of(page(memory, "s"))["sessions"][0]["report"]["tool_error_count"] == 500


@pytest.mark.parametrize("event_count", [200, 2000])
def test_beyond_its_fixed_part_a_page_is_smaller_than_twice_its_data(
    memory: LogBackend, event_count: int
) -> None:
    fixed = len(page(memory).encode())
    long_session(memory, event_count)

    shown = len(page(memory).encode()) - fixed

    payloads = sum(one.payload_bytes for one in memory.stats().by_type)
    as_json = sum(len(msgspec.json.encode(event.to_dict())) for event in memory.events())
    assert shown < 2 * payloads
    assert shown < as_json


def test_a_page_of_markup_alone_is_smaller_than_thrice_its_data(memory: LogBackend) -> None:
    fixed = len(page(memory).encode())
    text = "<p class='x'></p><b>1</b>" * 4000
    memory.session("s").append_transcript_messages([Message("user", text)])

    assert len(page(memory).encode()) - fixed < 3 * len(text)


def test_what_is_written_while_the_page_is_made_is_left_out_whole(
    memory: LogBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = memory.session("s")
    with session.run("r1"):
        session.append_transcript_messages([Message("user", "before")])
    events = memory.events

    def write_meanwhile(*arguments: Any, **options: Any) -> Iterator[fmemory.Event]:
        session.append_transcript_messages([Message("user", "meanwhile")])
        return events(*arguments, **options)

    monkeypatch.setattr(memory, "events", write_meanwhile)
    found = session_of(page(memory, "s"), "s")

    assert [one["seq"] for one in found["events"]] == [1, 2, 3]
    assert found["report"]["event_count"] == 3
