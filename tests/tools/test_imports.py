"""`fmemory import`: what it prints, its exit codes, and that a bad file changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.helpers import Command, bytes_of, only_line

RUNS = [
    ("claude-code", "claude-code-short.jsonl"),
    ("claude-code", "claude-code-subagent.jsonl"),
    ("claude-code", "claude-code-tool-heavy.jsonl"),
    ("swe-agent", "swe-agent-ctf-katy.traj"),
    ("swe-agent", "swe-agent-marshmallow-1867.traj"),
]
USER = '{"type":"user","sessionId":"s","message":{"role":"user","content":"go"}}'


@pytest.mark.parametrize(("kind", "name"), RUNS)
def test_a_run_is_imported_once(
    kind: str, name: str, data: Path, tmp_path: Path, run: Command
) -> None:
    store, file = tmp_path / "store", data / "runs" / name

    first = run("import", kind, file, "-s", store)
    before = bytes_of(store)
    second = run("import", kind, file, "-s", store)

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert "already imported" in second.stdout
    assert {key: value for key, value in bytes_of(store).items() if key.startswith("seg-")} == {
        key: value for key, value in before.items() if key.startswith("seg-")
    }
    assert run("verify", "-s", store).exit_code == 0


def test_notes_are_imported_once(data: Path, tmp_path: Path, run: Command) -> None:
    store, file = tmp_path / "store", data / "notes" / "locomo-26.jsonl"
    arguments = ["notes", file, "--vectors", file.with_suffix(".npy"), "--namespace", "a/b"]

    first = run("import", *arguments, "-s", store)
    second = run("import", *arguments, "--json", "-s", store)

    assert "419 notes added in namespace a/b" in first.stdout
    assert json.loads(second.stdout) == {
        "file": "locomo-26.jsonl",
        "namespace": ["a", "b"],
        "added": 0,
        "present": 419,
        "skipped_lines": [],
    }


def test_malformed_lines_are_named_and_no_store_is_made(tmp_path: Path, run: Command) -> None:
    file, store = tmp_path / "run.jsonl", tmp_path / "store"
    file.write_text("\n".join([USER, "{", USER, *["nope"] * 25]))

    result = run("import", "claude-code", file, "-s", store)

    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert told[0].startswith("run.jsonl: line 2: not JSON")
    assert told[20] == "run.jsonl: and 6 more"
    assert told[21:] == [
        "fmemory: run.jsonl: 26 malformed lines; nothing was imported; --skip-bad leaves them out"
    ]
    assert not store.exists()


def test_malformed_lines_are_left_out_on_request_and_still_named(
    tmp_path: Path, run: Command
) -> None:
    file, store = tmp_path / "run.jsonl", tmp_path / "store"
    file.write_text(f"{USER}\nnope\n{USER}\n")

    result = run("import", "claude-code", file, "--skip-bad", "--json", "-s", store)

    assert result.exit_code == 0
    assert "run.jsonl: skipped line 2: not JSON" in result.stderr
    imported = json.loads(result.stdout)
    assert (imported["messages_added"], imported["skipped_lines"]) == (2, [2])


def test_a_line_that_is_not_finished_is_named_and_left_to_the_next_import(
    tmp_path: Path, run: Command
) -> None:
    file, store = tmp_path / "run.jsonl", tmp_path / "store"
    file.write_text(f"{USER}\n{USER[:30]}")

    first = run("import", "claude-code", file, "--json", "-s", store)
    file.write_text(f"{USER}\n{USER}\n")
    second = run("import", "claude-code", file, "--json", "-s", store)

    assert (first.exit_code, second.exit_code) == (0, 0)
    told = "run.jsonl: line 2 is not finished; it is left to the next import"
    assert (first.stderr.splitlines(), second.stderr) == ([told], "")
    imported = [json.loads(one.stdout) for one in (first, second)]
    assert [one["messages_added"] for one in imported] == [1, 1]
    assert [one["unfinished_line"] for one in imported] == [2, None]


def test_a_file_of_one_line_that_is_not_finished_holds_no_session(
    tmp_path: Path, run: Command
) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(USER[:30])

    result = run("import", "claude-code", file, "-s", tmp_path / "store")

    assert result.exit_code == 2
    assert "line 1: not finished" in only_line(result.stderr)


def test_a_session_of_another_origin_is_not_written_to(store: Path, run: Command) -> None:
    file = store.parent / "run.jsonl"
    file.write_text(USER.replace('"s"', '"login"'))
    before = bytes_of(store)

    result = run("import", "claude-code", file, "-s", store)

    assert result.exit_code == 1
    assert "does not come from such a file" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert {name: one for name, one in bytes_of(store).items() if name.startswith("seg-")} == {
        name: one for name, one in before.items() if name.startswith("seg-")
    }


def test_a_session_can_be_named(data: Path, tmp_path: Path, run: Command) -> None:
    file = data / "runs" / "claude-code-subagent.jsonl"

    run("import", "claude-code", file, "--session", "beads", "-s", tmp_path / "store")

    result = run("sessions", "--json", "-s", tmp_path / "store")
    assert [json.loads(line)["session_id"] for line in result.stdout.splitlines()] == [
        "beads.agent-afb92ff",
        "beads",
    ]


def test_a_file_that_is_something_else_is_one_line(tmp_path: Path, run: Command) -> None:
    file = tmp_path / "run.traj"
    file.write_text("{}")

    result = run("import", "swe-agent", file, "-s", tmp_path / "store")

    assert result.exit_code == 2
    assert only_line(result.stderr).startswith("fmemory: run.traj: no trajectory of SWE-agent")


KINDS = {
    "notes": ("notes/locomo-26.jsonl", "notes"),
    "claude-code": ("runs/claude-code-short.jsonl", "a session of Claude Code"),
    "swe-agent": ("runs/swe-agent-marshmallow-1867.traj", "a SWE-agent trajectory"),
}


@pytest.mark.parametrize("given", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_names_the_command_for_it(
    kind: str, given: str, data: Path, tmp_path: Path, run: Command
) -> None:
    name, words = KINDS[given]

    result = run("import", kind, data / name, "-s", tmp_path / "store")

    if kind == given:
        assert result.exit_code == 0
        return
    assert result.exit_code == 2
    told = only_line(result.stderr)
    assert f"this looks like {words}: use `fmemory import {given} {data / name}`" in told
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x93NUMPY\x01\x00", "--vectors"),
        (b'{"format":"coniti-memory","version":"1.0.0"}', "fmemory load"),
        (b"nonsense\n" * 30, "not JSON"),
        (b"\xff\n" * 30, "not UTF-8"),
        (b"[1]\n" * 30, ""),
        (b"", ""),
    ],
    ids=str,
)
def test_a_file_of_no_such_kind_is_one_line(
    kind: str, content: bytes, words: str, tmp_path: Path, run: Command
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    result = run("import", kind, file, "-s", tmp_path / "store")

    assert result.exit_code == 2
    assert words in only_line(result.stderr)
    assert not (tmp_path / "store").exists()


def test_loading_notes_names_the_importer(data: Path, tmp_path: Path, run: Command) -> None:
    result = run("load", data / "notes" / "locomo-26.jsonl", "-s", tmp_path / "store")

    assert result.exit_code == 2
    assert "use `fmemory import notes" in only_line(result.stderr)
