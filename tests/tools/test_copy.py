"""`fmemory copy`, and every command on every kind of store: one history, one output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmemory
from fmemory_tools._failure import _PASSWORD
from tests.tools.helpers import Command, bytes_of, change_one_byte, only_line

KINDS = ("segments", "sqlite", "filesystem", "postgres")
SECRET = "s3cr3t-p4ss"


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A target of the kind that the test is given, where nothing is."""
    kind = request.param
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        return f"{url}{'&' if '?' in url else '?'}log=copy"
    place = tmp_path / "copy"
    return {"segments": f"{place}", "sqlite": f"sqlite:///{place}", "filesystem": f"jsonl:{place}"}[
        kind
    ]


on_every_kind = pytest.mark.parametrize("target", KINDS, indirect=True)


def head_of(target: str | Path) -> str:
    with fmemory.open(target, read_only=True) as memory:
        return str(memory.head())


# Copying


@on_every_kind
def test_a_copy_has_the_head_of_its_source(target: str, store: Path, run: Command) -> None:
    result = run("copy", target, "-s", store)

    assert result.exit_code == 0, result.output
    assert "11 events copied to" in result.stdout
    assert head_of(store) in result.stdout
    assert head_of(target) == head_of(store)


@on_every_kind
def test_a_second_copy_brings_what_came_since(target: str, store: Path, run: Command) -> None:
    assert run("copy", target, "-s", store).exit_code == 0
    assert "nothing to copy" in run("copy", target, "-s", store).stdout.replace("\n", " ")
    with fmemory.open(store) as memory:
        memory.add_note("later")

    result = run("copy", target, "-s", store, "--json")

    plain = json.loads(result.stdout)
    assert (plain["copied"], plain["present"]) == (1, 11)
    assert plain["head"] == head_of(store) == head_of(target)


@on_every_kind
def test_a_copy_can_be_copied_back(target: str, store: Path, tmp_path: Path, run: Command) -> None:
    run("copy", target, "-s", store)

    assert run("copy", tmp_path / "back", "-s", target).exit_code == 0
    assert head_of(tmp_path / "back") == head_of(store)


def test_json_says_where_from_and_where_to(store: Path, run: Command) -> None:
    result = run("copy", "sqlite:///new.db", "-s", store, "--json")

    plain = json.loads(result.stdout)
    assert plain.pop("payload_bytes") > 0
    assert plain == {
        "source": str(store),
        "source_kind": "segments",
        "target": "sqlite:///new.db",
        "target_kind": "sqlite",
        "copied": 11,
        "present": 0,
        "head": head_of(store),
        "durable": True,
    }


@on_every_kind
def test_a_target_with_other_events_is_left_alone(target: str, store: Path, run: Command) -> None:
    with fmemory.open(target) as memory:
        memory.add_note("mine")
    before = head_of(target)

    result = run("copy", target, "-s", store)

    assert result.exit_code == 2
    assert "nothing was written" in only_line(result.stderr)
    assert head_of(target) == before


def test_a_store_is_not_copied_onto_itself(store: Path, run: Command) -> None:
    before = bytes_of(store)

    result = run("copy", store, "-s", store)

    assert result.exit_code == 2
    assert "the source itself" in only_line(result.stderr)
    assert bytes_of(store) == before


def test_a_source_that_is_not_there_makes_no_target(run: Command) -> None:
    for source in ("nowhere", "sqlite:///nowhere.db", "jsonl:nowhere"):
        result = run("copy", "new", "-s", source)

        assert result.exit_code == 3
        assert f"no store at {source}" in only_line(result.stderr)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("target", "code"),
    [("", 2), (":memory:", 2), ("new.db", 3), ("redis://h", 3), ("postgresql://u:{}@h:x/d", 3)],
)
def test_a_target_that_cannot_be_is_one_line(
    target: str, code: int, store: Path, run: Command
) -> None:
    result = run("copy", target.format(SECRET), "-s", store)

    assert result.exit_code == code
    assert SECRET not in only_line(result.stderr)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("command", ["copy", "backup"])
@pytest.mark.parametrize(
    ("words", "kept", "told"),
    [(b"make the form", [1, 2], "events 1 to 2"), (b"a token", [], "no event")],
)
def test_a_damaged_source_is_a_finding_and_what_was_copied_is_told(
    command: str, words: bytes, kept: list[int], told: str, store: Path, run: Command
) -> None:
    change_one_byte(store, words)

    result = run(command, "new", "-s", store)

    assert result.exit_code == 1
    assert only_line(result.stderr).endswith(f"; new holds {told}")
    with fmemory.open("new") as memory:
        assert [one.seq for one in memory.events()] == kept


# Every command, every store


COMMANDS = [
    ["log", "--utc"],
    ["log", "--json"],
    ["show", "4", "--utc"],
    ["sessions", "--utc"],
    ["state", "--at", "8", "--utc"],
    ["diff", "4", "9"],
    ["history", "--record", "n1", "--utc"],
    ["history", "--session", "login", "--utc"],
    ["tail", "--count", "3", "--utc"],
    ["dump", "-"],
]


@on_every_kind
def test_commands_that_read_print_the_same_of_every_store(
    target: str, store: Path, run: Command
) -> None:
    run("copy", target, "-s", store)

    for command in COMMANDS:
        expected, result = (run(*command, "-s", one) for one in (store, target))
        assert result.exit_code == expected.exit_code, result.output
        assert without_dump_time(result.stdout) == without_dump_time(expected.stdout)


def without_dump_time(text: str) -> list[str]:
    return [line for line in text.splitlines() if '"created_at"' not in line]


@on_every_kind
def test_verify_and_stats_take_every_store(target: str, store: Path, run: Command) -> None:
    run("copy", target, "-s", store)

    verified = run("verify", "--head", head_of(store), "-s", target)
    assert (verified.exit_code, verified.stdout[:5]) == (0, "fine:")
    wrong = head_of(store)[:-1] + ("0" if head_of(store)[-1] != "0" else "1")
    assert run("verify", "--head", wrong, "-s", target).exit_code == 1
    plain = json.loads(run("stats", "--json", "-s", target).stdout)
    assert (plain["head_seq"], plain["head"]) == (11, head_of(store))


@on_every_kind
def test_commands_that_write_make_every_store(target: str, run: Command) -> None:
    Path("notes.jsonl").write_text('{"id": "a", "text": "x", "timestamp": 1}\n')

    assert run("import", "notes", "notes.jsonl", "-s", target).exit_code == 0
    assert run("dump", "file.jsonl", "-s", target).exit_code == 0
    assert run("load", "file.jsonl", "--namespace", "two", "-s", target).exit_code == 0
    with fmemory.open(target, read_only=True) as memory:
        for namespace in ((), ("two",)):
            assert memory.count(memory.count_request(namespace=namespace)).count == 1


@pytest.mark.parametrize("form", ["sqlite:///{}", "{}"])
def test_a_database_file_is_named_by_url_or_path(
    form: str, store: Path, tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("copy", f"sqlite:///{tmp_path}/memory.db", "-s", store)
    monkeypatch.setenv("FMEMORY_STORE", form.format(tmp_path / "memory.db"))

    assert run("log", "--utc").stdout == run("log", "--utc", "-s", store).stdout


def test_a_folder_of_lines_is_named_by_url_or_path(
    store: Path, tmp_path: Path, run: Command
) -> None:
    run("copy", f"jsonl:{tmp_path}/lines", "-s", store)

    for target in (f"jsonl:{tmp_path}/lines", tmp_path / "lines"):
        assert run("log", "--utc", "-s", target).stdout == run("log", "--utc", "-s", store).stdout


def test_verify_names_an_edited_line(store: Path, tmp_path: Path, run: Command) -> None:
    run("copy", f"jsonl:{tmp_path}/lines", "-s", store)
    (file,) = (tmp_path / "lines").glob("events-*.jsonl")
    file.write_text(file.read_text().replace("make the form", "make the farm"))

    result = run("verify", "-s", tmp_path / "lines", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[0])["first_seq"] == 3


# Passwords


@pytest.mark.parametrize("command", [["log"], ["stats"], ["verify"], ["state"], ["copy", "new"]])
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:{}@127.0.0.1:1/agents",
        "postgresql://ada:{}@127.0.0.1:1/agents?log=a&log=b",
        "postgresql://ada:{}/x@127.0.0.1:1/agents",
        "mysql://ada:{}@h/d",
    ],
)
def test_no_command_prints_a_password(command: list[str], url: str, run: Command) -> None:
    result = run(*command, "-s", url.format(SECRET))

    assert result.exit_code == 3
    assert only_line(result.stderr).startswith("fmemory: ")
    assert SECRET not in result.output
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (f"cannot reach postgresql://ada:{SECRET}@h/d", "cannot reach postgresql://ada:***@h/d"),
        (
            "expected postgresql://USER:PASSWORD@HOST/D",
            "expected postgresql://USER:PASSWORD@HOST/D",
        ),
        ("see http://h:80/x and ada@h", "see http://h:80/x and ada@h"),
    ],
)
def test_what_others_say_is_made_sure_of(told: str, shown: str) -> None:
    assert _PASSWORD.sub(r"\1:***@", told) == shown
