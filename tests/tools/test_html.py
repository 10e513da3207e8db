"""`fmemory html` and `report --html`: a page as a file, of what is named, with the same numbers."""

from __future__ import annotations

import gzip
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.fmemory.page_stores import of_page
from tests.tools.helpers import Command, bytes_of, only_line

DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)
RUNS = [
    ("claude-code", "claude-code-short.jsonl"),
    ("claude-code", "claude-code-subagent.jsonl"),
    ("claude-code", "claude-code-tool-heavy.jsonl"),
    ("swe-agent", "swe-agent-ctf-katy.traj"),
    ("swe-agent", "swe-agent-marshmallow-1867.traj"),
]
FAILURES = [2, 3, 0, 2, 0]
"""How many calls of each run failed, as its file was read by hand."""


def data_of(html: str) -> Any:
    """What a page knows."""
    found = DATA.search(html)
    assert found is not None
    return json.loads(found[1])


def test_page_of_a_store_is_written_to_the_file(run: Command, store: Path) -> None:
    result = run("html", "-o", "replay.html", "-s", store)

    html = Path("replay.html").read_text("utf-8")
    assert result.exit_code == 0
    assert "replay.html" in only_line(result.stdout)
    assert [one["id"] for one in data_of(html)["sessions"]] == ["login"]


def test_page_is_for_its_owner_only(run: Command, store: Path) -> None:
    run("html", "-o", "replay.html", "-s", store)

    assert stat.S_IMODE(Path("replay.html").stat().st_mode) == 0o600


def test_size_of_the_file_is_told_as_json(run: Command, store: Path) -> None:
    result = run("html", "-o", "replay.html", "--json", "-s", store)

    size = Path("replay.html").stat().st_size
    assert json.loads(result.stdout) == {"file": "replay.html", "bytes": size}


def test_a_file_that_is_there_is_replaced_only_by_force(run: Command, store: Path) -> None:
    Path("replay.html").write_text("mine")

    refused = run("html", "-o", "replay.html", "-s", store)
    assert (refused.exit_code, Path("replay.html").read_text()) == (2, "mine")

    assert run("html", "-o", "replay.html", "--force", "-s", store).exit_code == 0
    assert Path("replay.html").read_text().startswith("<!doctype html>")


def test_page_can_be_printed(run: Command, store: Path) -> None:
    result = run("html", "login", "-o", "-", "-s", store)

    assert result.stdout.startswith("<!doctype html>")
    assert data_of(result.stdout)["sessions"][0]["id"] == "login"


def test_page_can_be_compressed(run: Command, store: Path) -> None:
    run("html", "-o", "replay.html.gz", "-s", store)

    html = gzip.decompress(Path("replay.html.gz").read_bytes()).decode()
    assert data_of(html)["sessions"][0]["id"] == "login"


def test_a_run_is_named_by_its_beginning(run: Command, store: Path) -> None:
    result = run("html", "run-2", "-o", "-", "-s", store)
    shorter = run("html", "log", "-o", "-", "-s", store)

    assert data_of(result.stdout)["focus"] == "run-2"
    assert data_of(shorter.stdout)["sessions"][0]["id"] == "login"


def test_a_beginning_of_several_names_is_refused(run: Command, store: Path) -> None:
    result = run("html", "run-", "-o", "replay.html", "-s", store)

    assert result.exit_code == 2
    assert "run-1, run-2" in only_line(result.stderr)
    assert not Path("replay.html").exists()


def test_a_name_of_nothing_is_refused(run: Command, store: Path) -> None:
    result = run("html", "nothing", "-o", "replay.html", "-s", store)

    assert result.exit_code == 2
    assert "'nothing'" in only_line(result.stderr)


def test_without_a_file_to_write_it_says_what_to_give(run: Command, store: Path) -> None:
    result = run("html", "-s", store)

    assert result.exit_code == 2
    assert "-o replay.html" in only_line(result.stderr)


def test_making_a_page_changes_no_byte_of_the_store(run: Command, store: Path) -> None:
    before = bytes_of(store)

    run("html", "-o", "replay.html", "-s", store)

    assert bytes_of(store) == before


def test_report_writes_the_page_of_what_it_reports(run: Command, store: Path) -> None:
    result = run("report", "run-2", "--html", "run.html", "-s", store)

    found = data_of(Path("run.html").read_text("utf-8"))
    assert result.exit_code == 0
    assert found["focus"] == "run-2"
    told = json.loads(run("report", "run-2", "--json", "-s", store).stdout)
    assert found["sessions"][0]["report"] == of_page(told)


def test_report_replaces_no_file(run: Command, store: Path) -> None:
    Path("run.html").write_text("mine")

    result = run("report", "run-2", "--html", "run.html", "-s", store)

    assert (result.exit_code, Path("run.html").read_text()) == (2, "mine")


@pytest.mark.parametrize(("kind", "name"), RUNS)
def test_numbers_of_the_page_of_a_real_run_are_those_of_the_commands(
    run: Command, data: Path, kind: str, name: str
) -> None:
    assert run("import", kind, data / "runs" / name, "-s", "store").exit_code == 0
    session = json.loads(run("sessions", "--json", "-s", "store").stdout.splitlines()[-1])

    html = run("html", session["session_id"], "-o", "-", "-s", "store").stdout

    lines = run("runs", "--json", "-s", "store").stdout.splitlines()
    told = sorted((json.loads(line) for line in lines), key=str)
    shown = [one for part in data_of(html)["sessions"] for one in part["runs"]]
    assert sorted(shown, key=str) == told
    reported = json.loads(run("report", session["session_id"], "--json", "-s", "store").stdout)
    assert data_of(html)["sessions"][0]["report"] == of_page(reported)


@pytest.mark.parametrize(
    ("kind", "name", "count"),
    [(*one, count) for one, count in zip(RUNS, FAILURES, strict=True)],
)
def test_failures_marked_in_the_page_of_a_real_run_are_those_that_are_counted(
    run: Command, data: Path, kind: str, name: str, count: int
) -> None:
    assert run("import", kind, data / "runs" / name, "-s", "store").exit_code == 0
    result = run("html", "-o", "-", "-s", "store")
    assert (result.exit_code, result.stderr) == (0, "")
    parts = data_of(result.stdout)["sessions"]

    assert all(part["events"] for part in parts)
    marked = [failures_in(part) for part in parts]
    assert marked == [sum(one["tool_error_count"] for one in part["runs"]) for part in parts]
    assert sum(marked) == count


def failures_in(part: Any) -> int:
    """How many events, and results in messages, of a session are marked as failures."""
    events = part["events"]
    results = [
        result
        for one in events
        for message in one.get("messages", ())
        for result in message["parts"]
        if result[0] == "result" and result[3]
    ]
    return sum(bool(one.get("failed")) for one in events) + len(results)


def test_a_page_that_cannot_be_written_is_told_as_a_page(run: Command, store: Path) -> None:
    Path("there.html.partial").mkdir()

    result = run("html", "-o", "there.html", "-s", store)

    assert result.exit_code == 3
    assert only_line(result.stderr).startswith("fmemory: page (there.html): cannot be written")


def test_a_compressed_page_is_told_with_its_size_and_not_to_be_opened_as_it_is(
    run: Command, store: Path
) -> None:
    told = run("html", "-o", "a.html.gz", "-s", store).stdout
    size = json.loads(run("html", "-o", "a.html.gz", "--force", "--json", "-s", store).stdout)

    assert "unpack it to open it in a browser" in only_line(told)
    assert size["bytes"] == Path("a.html.gz").stat().st_size
