"""What is malformed in a source of Fiddlesticks is named by its place, and nothing is written.

With --skip-bad that place is left out, and nothing else.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import fmemory
from fmemory import Message, Role
from fmemory_tools.importers import BadSource
from fmemory_tools.importers.fiddlesticks import plan_fiddlesticks
from tests.tools.fiddlesticks_sources import (
    BARE,
    FULL,
    SCHEMA,
    TALK,
    Stored,
    import_into,
    session_file,
    state_of,
    stored_in,
    write_folder,
    write_sqlite,
)
from tests.tools.helpers import Command, only_line

Change: TypeAlias = Callable[[dict[str, Any]], object]

ROWS = {
    "role": (
        "UPDATE transcript_messages SET role = 'robot' WHERE id = 2",
        (
            "transcript_messages row 2: Message.role: expected one of 'system', 'user',"
            " 'assistant', 'tool', got 'robot'"
        ),
        replace(FULL, transcript=FULL.transcript[:1] + FULL.transcript[2:]),
    ),
    "status": (
        "UPDATE run_checkpoints SET status = 'done' WHERE id = 1",
        (
            "run_checkpoints row 1: RunCheckpoint.status: expected one of 'in_progress',"
            " 'succeeded', 'failed', got 'done'"
        ),
        replace(FULL, checkpoints=FULL.checkpoints[1:]),
    ),
    "passes": (
        "UPDATE features SET passes = 2 WHERE feature_id = 'token'",
        "features row 2: passes: expected 0 or 1, got 2",
        replace(FULL, features=FULL.features[:1] + FULL.features[2:]),
    ),
    "feature twice": (
        "UPDATE features SET feature_id = 'form' WHERE feature_id = 'a'",
        "features row 1: expected every feature once, got 'form' again",
        replace(FULL, features=FULL.features[:2]),
    ),
    "steps": (
        "UPDATE features SET steps_json = '[1]' WHERE feature_id = 'a'",
        "features row 1: steps_json: expected a string, got a number",
        replace(FULL, features=FULL.features[:2]),
    ),
    "steps no JSON": (
        "UPDATE features SET steps_json = '[' WHERE feature_id = 'a'",
        "features row 1: steps_json: not JSON: Expecting value (column 2)",
        replace(FULL, features=FULL.features[:2]),
    ),
    "seconds": (
        "UPDATE progress_entries SET created_at_secs = -1 WHERE id = 1",
        "progress_entries row 1: created_at_secs: expected 0 to 253402300799, got -1",
        replace(FULL, progress=FULL.progress[1:]),
    ),
    "nanos": (
        "UPDATE progress_entries SET created_at_nanos = 1000000000 WHERE id = 1",
        "progress_entries row 1: created_at_nanos: expected 0 to 999999999, got 1000000000",
        replace(FULL, progress=FULL.progress[1:]),
    ),
    "half a time": (
        "UPDATE run_checkpoints SET completed_at_secs = NULL WHERE id = 2",
        "run_checkpoints row 2: completed_at: expected seconds and nanoseconds, or neither",
        replace(FULL, checkpoints=FULL.checkpoints[:1] + FULL.checkpoints[2:]),
    ),
    "time is text": (
        "UPDATE run_checkpoints SET started_at_secs = 'now' WHERE id = 1",
        "run_checkpoints row 1: started_at_secs: expected a whole number, got a string",
        replace(FULL, checkpoints=FULL.checkpoints[1:]),
    ),
    "time is broken": (
        "UPDATE run_checkpoints SET started_at_secs = 1.5 WHERE id = 1",
        "run_checkpoints row 1: started_at_secs: expected a whole number, got 1.5",
        replace(FULL, checkpoints=FULL.checkpoints[1:]),
    ),
    "blob": (
        "UPDATE transcript_messages SET content = x'00' WHERE id = 1",
        "transcript_messages row 1: content: expected text or a number, got a blob",
        replace(FULL, transcript=FULL.transcript[1:]),
    ),
    "not UTF-8": (
        "UPDATE transcript_messages SET content = CAST(x'ff' AS TEXT) WHERE id = 1",
        "transcript_messages row 1: content: not UTF-8",
        replace(FULL, transcript=FULL.transcript[1:]),
    ),
    "empty run": (
        "UPDATE progress_entries SET run_id = '' WHERE id = 1",
        "progress_entries row 1: ProgressEntry.run_id: expected a non-empty str, got ''",
        replace(FULL, progress=FULL.progress[1:]),
    ),
    "version": (
        "UPDATE sessions SET schema_version = 0",
        (
            "sessions row of session 'login': SessionManifest.schema_version: expected 1 or more,"
            " got 0"
        ),
        replace(FULL, manifest=None),
    ),
}
assert FULL.manifest is not None
WITHOUT_PLAN = replace(FULL, manifest=FULL.manifest.with_init_plan(None))
STEPS = {
    "kind": (
        "UPDATE init_plan_steps SET step_kind = 'magic' WHERE step_index = 1",
        "kind: expected 'command' or 'shell', got 'magic'",
    ),
    "shell": (
        "UPDATE init_plan_steps SET shell_name = 'fish' WHERE step_index = 1",
        "InitShellScript.shell: expected one of 'bash', 'sh', 'pwsh', 'cmd', got 'fish'",
    ),
    "script": (
        "UPDATE init_plan_steps SET shell_script = NULL WHERE step_index = 1",
        "script: expected a string, got null",
    ),
    "blob": (
        "UPDATE init_plan_steps SET shell_script = x'00' WHERE step_index = 1",
        "shell_script: expected text or a number, got a blob",
    ),
}
for _name, (_change, _problem) in STEPS.items():
    _place = "init_plan_steps row of session 'login', step_index 1"
    ROWS[f"step's {_name}"] = (_change, f"{_place}: {_problem}", WITHOUT_PLAN)


@pytest.mark.parametrize("case", ROWS)
def test_a_malformed_row_is_named_and_left_out_only_on_request(case: str, tmp_path: Path) -> None:
    change, problem, expected = ROWS[case]
    source = write_sqlite(tmp_path / "source", [FULL])
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute(change)

    with pytest.raises(BadSource) as caught:
        plan_fiddlesticks(str(source))

    assert [str(line) for line in caught.value.lines] == [problem]
    assert caught.value.skippable
    with fmemory.open(":memory:") as memory:
        import_into(memory, source, skip_bad=True)
        assert stored_in(memory, "login") == expected


ITEMS: dict[str, tuple[Change, str, Stored]] = {
    "role": (
        lambda state: state["transcript"][1].update(role="robot"),
        (
            "transcript item 2: Message.role: expected one of 'system', 'user', 'assistant',"
            " 'tool', got 'robot'"
        ),
        replace(FULL, transcript=FULL.transcript[:1] + FULL.transcript[2:]),
    ),
    "no object": (
        lambda state: state["transcript"].__setitem__(0, "hi"),
        "transcript item 1: expected an object, got a string",
        replace(FULL, transcript=FULL.transcript[1:]),
    ),
    "status": (
        lambda state: state["checkpoints"][0].update(status=1),
        "checkpoints item 1: status: expected a string, got a number",
        replace(FULL, checkpoints=FULL.checkpoints[1:]),
    ),
    "time": (
        lambda state: state["recent_progress"][0].pop("created_at_nanos"),
        "recent_progress item 1: created_at_nanos: expected a whole number, got null",
        replace(FULL, progress=FULL.progress[1:]),
    ),
    "passes": (
        lambda state: state["feature_list"][2].update(passes="yes"),
        "feature_list item 3: passes: expected 0 or 1, got 'yes'",
        replace(FULL, features=FULL.features[:2]),
    ),
    "shell": (
        lambda state: state["manifest"]["init_plan"]["steps"][1].update(shell="fish"),
        (
            "init_plan step 2: InitShellScript.shell: expected one of 'bash', 'sh', 'pwsh', 'cmd',"
            " got 'fish'"
        ),
        WITHOUT_PLAN,
    ),
    "step no object": (
        lambda state: state["manifest"]["init_plan"]["steps"].append(None),
        "init_plan step 5: expected an object, got null",
        WITHOUT_PLAN,
    ),
    "manifest": (
        lambda state: state["manifest"].pop("active_branch"),
        "manifest: active_branch: expected a string, got null",
        replace(FULL, manifest=None),
    ),
    "unknown key": (
        lambda state: state["manifest"].update(colour="red"),
        "manifest: unknown key 'colour', whose value would be lost",
        FULL,
    ),
}


@pytest.mark.parametrize("case", ITEMS)
def test_a_malformed_item_is_named_and_left_out_only_on_request(case: str, tmp_path: Path) -> None:
    change, problem, expected = ITEMS[case]
    source = write_folder(tmp_path / "source", [FULL])
    file = session_file(source, "login")
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))

    with pytest.raises(BadSource) as caught:
        plan_fiddlesticks(str(source))

    assert [str(line) for line in caught.value.lines] == [f"sessions/{file.name}: {problem}"]
    with fmemory.open(":memory:") as memory:
        import_into(memory, source, skip_bad=True)
        assert stored_in(memory, "login") == expected


FILES: dict[str, tuple[str, str, str]] = {
    "not hex": ("login.json", "{}", "its name: expected a session id in lower-case hexadecimal"),
    "upper case": ("6C6F67.json", "{}", "its name: expected a session id"),
    "odd": ("616.json", "{}", "its name: expected a session id in lower-case hexadecimal"),
    "not UTF-8": ("ff.json", "{}", "its name: expected the hexadecimal of UTF-8"),
    "of another": (
        "61.json",
        json.dumps({**state_of(TALK), "session_id": "b"}),
        "expected session 'a' by its name, and it is of 'b'",
    ),
    "not JSON": ("61.json", "{", "not JSON: Expecting property name"),
    "no object": ("61.json", "[]", "expected a JSON object, got an array"),
    "other object": ("61.json", '{"a": 1}', "no session of Fiddlesticks"),
    "no list": ("61.json", '{"transcript": {}}', "transcript: expected an array, got an object"),
    "interrupted": ("61.json.tmp", "{}", "an interrupted save, and there is no 61.json"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_session_is_named_and_left_out_only_on_request(
    case: str, tmp_path: Path, run: Command
) -> None:
    name, content, problem = FILES[case]
    source = write_folder(tmp_path / "source", [TALK])
    (source / "sessions" / name).write_text(content)

    refused = run("import", "fiddlesticks", source, "-s", tmp_path / "store")
    assert refused.exit_code == 1
    first, last = refused.stderr.splitlines()
    assert first.startswith(f"source: sessions/{name}: {problem}")
    assert last == (
        "fmemory: source: 1 malformed place; nothing was imported; --skip-bad leaves them out"
    )
    assert not (tmp_path / "store").exists()

    skipped = run("import", "fiddlesticks", source, "--skip-bad", "-s", tmp_path / "store")
    assert skipped.exit_code == 0
    assert only_line(skipped.stderr).startswith(f"source: skipped sessions/{name}: {problem}")
    with fmemory.open(tmp_path / "store") as memory:
        assert [one.session_id for one in memory.list_sessions().sessions] == [TALK.session_id]


def test_what_a_save_left_beside_its_file_is_passed_over(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", [TALK])
    Path(f"{session_file(source, TALK.session_id)}.tmp").write_text("half")
    (source / "sessions" / "README").write_text("mine")

    assert [one.session_id for one in plan_fiddlesticks(str(source)).sessions] == [TALK.session_id]


def test_names_as_in_the_tables_are_understood_in_files(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", [FULL])
    file = session_file(source, "login")
    state = json.loads(file.read_text())
    for position, one in enumerate(state["feature_list"]):
        one |= {"id": 7, "position": position, "feature_id": one["id"]}
        one |= {"steps_json": json.dumps(one.pop("steps")), "passes": int(one["passes"])}
    file.write_text(json.dumps(state))

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)
        assert stored_in(memory, "login") == FULL


@pytest.mark.parametrize(
    ("table", "row"),
    [("session_metadata", "('lost', 'k', 'v')"), ("init_plan_steps", "('lost', 0, 'command')")],
)
def test_rows_of_a_manifest_that_is_not_there_are_named(
    table: str, row: str, tmp_path: Path
) -> None:
    source = write_sqlite(tmp_path / "source", [TALK])
    columns = {"session_metadata": "session_id, key, value"}
    with closing(sqlite3.connect(source)) as connection, connection:
        names = columns.get(table, "session_id, step_index, step_kind")
        connection.execute(f"INSERT INTO {table} ({names}) VALUES {row}")

    with pytest.raises(BadSource) as caught:
        plan_fiddlesticks(str(source))

    (line,) = caught.value.lines
    assert str(line).startswith(f"{table} row of session 'lost', ")
    assert line.problem == "there is no such session in the table sessions"


def test_a_session_whose_id_is_empty_is_named(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "source", [replace(TALK, session_id="")])

    with pytest.raises(BadSource) as caught:
        plan_fiddlesticks(str(source))

    (line,) = caught.value.lines
    assert str(line) == "session '': session_id: expected a non-empty str, got ''"


def test_a_table_that_is_missing_holds_nothing(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "source", [BARE])
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("DROP TABLE transcript_messages")

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)
        assert stored_in(memory, "bare") == BARE


def test_a_column_that_is_not_known_is_named(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "source", [TALK])
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("ALTER TABLE transcript_messages ADD COLUMN mood TEXT")

    with pytest.raises(BadSource) as caught:
        plan_fiddlesticks(str(source))

    (line,) = caught.value.lines
    assert str(line) == "transcript_messages: unknown column 'mood', whose values would be lost"


def foreign_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE sessions (session_id TEXT, user TEXT)")


def no_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE fmemory_events (seq INTEGER PRIMARY KEY)")


def cut_short(path: Path) -> None:
    write_sqlite(path, [replace(TALK, transcript=(Message(Role.USER, "x" * 99_999),))], "DELETE")
    path.write_bytes(path.read_bytes()[:20_000])


def overwritten(path: Path) -> None:
    write_sqlite(path, [FULL], "DELETE")
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "other tables": (foreign_tables, "its table sessions has no 'schema_version'"),
    "no tables": (no_tables, "it has none of its tables"),
    "only a header": (lambda path: path.write_bytes(b"SQLite format 3\x00" * 9), "SQLite file: "),
    "cut short": (cut_short, "malformed"),
    "overwritten": (overwritten, ""),
    "text": (lambda path: path.write_text("hello"), "neither a SQLite file nor a folder"),
    "empty": (lambda path: path.write_bytes(b""), "neither a SQLite file nor a folder"),
    "empty folder": (lambda path: path.mkdir(), "there is no folder sessions/ in it"),
    "notes": (
        lambda path: path.write_text('{"id": "a", "text": "tea", "timestamp": 1}'),
        "this looks like notes: use `fmemory import notes",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_nothing_of_fiddlesticks_is_one_line(
    case: str, tmp_path: Path, run: Command
) -> None:
    make, problem = FOREIGN[case]
    source = tmp_path / "source"
    make(source)

    result = run("import", "fiddlesticks", source, "-s", tmp_path / "store")

    assert result.exit_code == 2, result.output
    told = only_line(result.stderr)
    assert told.startswith("fmemory: source: ")
    assert problem in told
    assert told.count("nothing was imported") == 1
    assert not (tmp_path / "store").exists()


def test_the_folder_sessions_itself_names_the_one_above(tmp_path: Path, run: Command) -> None:
    source = write_folder(tmp_path / "source", [TALK])

    result = run("import", "fiddlesticks", source / "sessions", "-s", tmp_path / "store")

    assert result.exit_code == 2
    assert "give the folder above it" in only_line(result.stderr)


def test_a_source_that_is_not_there_is_one_line(tmp_path: Path, run: Command) -> None:
    result = run("import", "fiddlesticks", tmp_path / "none", "-s", tmp_path / "store")

    assert result.exit_code == 3
    assert only_line(result.stderr) == f"fmemory: {tmp_path / 'none'}: No such file or directory"
    assert not (tmp_path / "store").exists()


def test_a_source_without_sessions_is_said_to_have_none(tmp_path: Path, run: Command) -> None:
    with closing(sqlite3.connect(tmp_path / "source")) as connection:
        connection.executescript(SCHEMA)

    result = run("import", "fiddlesticks", tmp_path / "source", "-s", tmp_path / "store")

    assert (result.exit_code, result.stdout) == (0, "source: there are no sessions in it\n")


@pytest.mark.parametrize("command", ["claude-code", "notes", "swe-agent"])
def test_another_importer_names_this_one_for_a_sqlite_file(
    command: str, tmp_path: Path, run: Command
) -> None:
    source = write_sqlite(tmp_path / "source")

    result = run("import", command, source, "-s", tmp_path / "store")

    assert result.exit_code == 2
    assert f"use `fmemory import fiddlesticks {source}`" in only_line(result.stderr)


def test_what_steers_a_terminal_is_not_obeyed(tmp_path: Path, run: Command) -> None:
    stored = replace(TALK, session_id="a\x1b[2J\n\u202e")
    source = write_sqlite(tmp_path / "source", [stored])
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("UPDATE transcript_messages SET role = ?", ("\x1b]0;x\x07\n",))

    result = run("import", "fiddlesticks", source, "--skip-bad", "-s", tmp_path / "store")

    assert len(result.stderr.splitlines()) == 2
    assert not {"\x1b", "\x07", "\u202e"} & set(result.stderr + result.stdout)
