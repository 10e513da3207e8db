"""Targets: every form of path and URL, what lies at a path, and URLs that are wrong."""

from __future__ import annotations

import asyncio
import sqlite3
import traceback
from contextlib import closing
from pathlib import Path

import pytest

import fmemory
from fmemory import ContractError, MemoryBackendConfig, NotFound, Reason
from fmemory._target import config_of, masked, shown, sqlite_url

SECRET = "s3cr3t-p4ss"
Postgres = MemoryBackendConfig.Postgres
Sqlite = MemoryBackendConfig.Sqlite


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def refused(target: object) -> ContractError:
    with pytest.raises(ContractError) as caught:
        fmemory.open(target)  # type: ignore[arg-type]
    assert caught.value.where == "target"
    assert list(Path().iterdir()) == []
    return caught.value


# Forms


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (":memory:", MemoryBackendConfig.InMemory()),
        ("notes", MemoryBackendConfig.Segments("notes")),
        ("a:b", MemoryBackendConfig.Segments("a:b")),
        ("notes:old", MemoryBackendConfig.Segments("notes:old")),
        ("sqlite:///notes.db", Sqlite("notes.db")),
        ("SQLite:///notes.db", Sqlite("notes.db")),
        ("sqlite:///./sub/notes", Sqlite("sub/notes")),
        ("sqlite:////srv/notes.db", Sqlite("/srv/notes.db")),
        ("sqlite:///my%20notes%3F%25.db", Sqlite("my notes?%.db")),
        ("sqlite:///ä.db", Sqlite("ä.db")),
        ("jsonl:notes", MemoryBackendConfig.Filesystem("notes")),
        ("jsonl:/srv/notes", MemoryBackendConfig.Filesystem("/srv/notes")),
        ("jsonl:///srv/notes", MemoryBackendConfig.Filesystem("/srv/notes")),
        ("jsonl:50% off?", MemoryBackendConfig.Filesystem("50% off?")),
        ("postgresql://u:p@h/d", Postgres("h", 5432, "d", "u", "p")),
        ("postgres://u:p@h:99/d?log=x", Postgres("h", 99, "d", "u", "p", "x")),
        ("postgresql://u@h/d", Postgres("h", 5432, "d", "u")),
        ("postgresql://u:@h/d", Postgres("h", 5432, "d", "u", "")),
        ("postgresql://u:p:q@[::1]:99/d", Postgres("::1", 99, "d", "u", "p:q")),
        ("postgresql://u:p@[::1]/d", Postgres("::1", 5432, "d", "u", "p")),
        ("postgresql://u:p@%2Frun%2Fpg/d", Postgres("/run/pg", 5432, "d", "u", "p")),
        (
            "postgresql://a%40b:%40%3A%2F%3F%23%25@h/d%2Fe?log=50%25%20%26%C3%A4",
            Postgres("h", 5432, "d/e", "a@b", "@:/?#%", "50% &ä"),
        ),
        ("postgresql://u:a+b@h/d", Postgres("h", 5432, "d", "u", "a+b")),
        ("postgresql://h/d", Postgres("h", 5432, "d")),
        ("postgresql://u@h", Postgres("h", 5432, "u", "u")),
        ("postgresql:///d?host=/run/pg", Postgres("/run/pg", 5432, "d")),
        (
            "postgresql://u@h/d?sslmode=require&log=x",
            Postgres("h", 5432, "d", "u", "", "x", {"sslmode": "require"}),
        ),
    ],
)
def test_a_target_names_its_backend(target: str, expected: MemoryBackendConfig) -> None:
    assert config_of(target) == expected


def test_a_home_folder_is_put_in(here: Path) -> None:
    home = str(here / "home")
    assert config_of("~/notes") == MemoryBackendConfig.Segments(f"{home}/notes")
    assert config_of("sqlite:///~/notes.db") == Sqlite(f"{home}/notes.db")
    assert config_of("jsonl:~/notes") == MemoryBackendConfig.Filesystem(f"{home}/notes")
    assert config_of(Path("~/notes")) == MemoryBackendConfig.Segments(f"{home}/notes")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("", Reason.EMPTY),
        (None, Reason.WRONG_TYPE),
        (5, Reason.WRONG_TYPE),
        (b"notes", Reason.WRONG_TYPE),
        ("a\0b", Reason.BAD_VALUE),
        ("~nobody-of-this-name/x", Reason.BAD_VALUE),
        ("sqlite:notes.db", Reason.BAD_VALUE),
        ("sqlite:/notes.db", Reason.BAD_VALUE),
        ("sqlite://notes.db", Reason.BAD_VALUE),
        ("sqlite:///", Reason.BAD_VALUE),
        ("sqlite://", Reason.BAD_VALUE),
        ("sqlite:///:memory:", Reason.BAD_VALUE),
        ("sqlite:///a.db?mode=ro", Reason.UNKNOWN_FIELD),
        ("sqlite:///a.db?", Reason.UNKNOWN_FIELD),
        ("sqlite:///a#b.db", Reason.BAD_VALUE),
        ("sqlite:///50%.db", Reason.BAD_VALUE),
        ("sqlite:///%FF.db", Reason.BAD_VALUE),
        ("sqlite:///a%00.db", Reason.BAD_VALUE),
        ("jsonl:", Reason.BAD_VALUE),
        ("jsonl://notes", Reason.BAD_VALUE),
        ("redis://host/0", Reason.BAD_VALUE),
        ("file:///srv/notes", Reason.BAD_VALUE),
        (Path("sqlite:/notes.db"), Reason.BAD_VALUE),
        (Path("jsonl:notes"), Reason.BAD_VALUE),
    ],
    ids=repr,
)
def test_a_target_that_names_nothing_is_refused(target: object, reason: Reason) -> None:
    assert refused(target).reason is reason


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("//:{}@h", Reason.EMPTY),
        ("//u:{}", Reason.BAD_VALUE),
        ("//h:{}/d", Reason.BAD_VALUE),
        ("//u:{}@h:0/d", Reason.OUT_OF_RANGE),
        ("//u:{}@h:70000/d", Reason.OUT_OF_RANGE),
        ("//u:{}@h:port/d", Reason.BAD_VALUE),
        ("//u:{}@[::1/d", Reason.BAD_VALUE),
        ("//u:{}/x@h/d", Reason.BAD_VALUE),
        ("//u:{}?x@h/d", Reason.BAD_VALUE),
        ("//u:{}#x@h/d", Reason.BAD_VALUE),
        ("//u:{}%00@h/d", Reason.BAD_VALUE),
        ("//u:x@h/d?password={}", Reason.UNSUPPORTED),
        ("//u:{}@h/d?sslmod=require", Reason.UNSUPPORTED),
        ("//u:{}@h/d?log=a&log=a", Reason.BAD_VALUE),
        ("//u:{}@h/d?log=a&log=b", Reason.BAD_VALUE),
        ("//u:{}@h/d?log=a&%6Cog=b", Reason.BAD_VALUE),
        ("//u:{}@h/d?sslmode=a&log=b&sslmode=c", Reason.BAD_VALUE),
        ("//u:{}@h/d?log=", Reason.EMPTY),
    ],
)
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_wrong_postgres_url_is_refused_without_its_password(
    scheme: str, rest: str, reason: Reason
) -> None:
    url = f"{scheme}:{rest.format(SECRET)}"
    error = refused(url)
    assert error.reason is reason
    assert SECRET not in "".join(traceback.format_exception(error))
    assert SECRET not in masked(url)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("notes", "notes"),
        ("a:b@c", "a:b@c"),
        (":memory:", ":memory:"),
        ("sqlite:///a@b:c.db", "sqlite:///a@b:c.db"),
        ("jsonl:a@b", "jsonl:a@b"),
        ("postgresql://u:p@h:99/d?log=x", "postgresql://u:***@h:99/d?log=x"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p@q@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p/q@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p?q@h/d", "postgresql://u:***@h/d"),
        ("postgresql:u:p", "postgresql:u:***"),
        ("postgresql:u:p@h", "postgresql:u:***@h"),
        ("postgresql://u:p", "postgresql://u:***"),
        ("postgresql://u@h/d?log=x&password=p", "postgresql://u@h/d?log=x&password=***"),
        ("postgresql:///d?host=/run&x=p", "postgresql:///d?host=/run&x=***"),
        ("postgresql://u@[::1]:9/d", "postgresql://u@[::1]:9/d"),
        ("mysql://u:p@h/d", "mysql://u:***@h/d"),
    ],
)
def test_a_masked_target_has_no_password(target: str, expected: str) -> None:
    assert masked(target) == expected


@pytest.mark.parametrize(
    "config",
    [
        MemoryBackendConfig.InMemory(),
        MemoryBackendConfig.Segments("notes"),
        Sqlite("50% off?#.db"),
        Sqlite("/srv/ä.db"),
        MemoryBackendConfig.Filesystem("lines"),
        Postgres("::1", 99, "d/e", "a@b:c", "", "50%&x=ä"),
        Postgres("/run/pg", 5432, "d", "u", log="x"),
    ],
    ids=repr,
)
def test_what_is_shown_of_a_config_names_the_same(config: MemoryBackendConfig) -> None:
    assert config_of(shown(config)) == config


# What lies at a path


def make_tables(path: Path, *names: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for name in names:
            database.execute(f"CREATE TABLE {name} (x)")
        database.commit()


@pytest.mark.parametrize("name", ["notes.db", "notes.SQLITE3", "a/notes.sqlite", "notes.db3"])
def test_a_database_file_that_is_not_there_names_the_url(name: str) -> None:
    error = refused(name)
    assert error.reason is Reason.UNSUPPORTED
    assert f"sqlite:///{name}" in str(error)
    assert f"sqlite:///{Path.cwd() / name}" in str(refused(Path.cwd() / name))


def test_an_empty_file_with_the_name_of_a_database_names_the_url() -> None:
    Path("new.db").touch()
    with pytest.raises(ContractError) as caught:
        fmemory.open("new.db")
    assert "sqlite:///new.db" in str(caught.value)
    with fmemory.open("sqlite:///new.db") as memory:
        assert memory.kind == "sqlite"


@pytest.mark.parametrize("names", [(), ("customers",), ("fmemory_log",), ("sessions", "features")])
def test_a_database_without_a_memory_names_the_url_and_is_left_alone(names: tuple[str]) -> None:
    make_tables(Path("app.db"), "x", *names)
    before = Path("app.db").read_bytes()
    with pytest.raises(ContractError) as caught:
        fmemory.open("app.db")
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "sqlite:///app.db" in str(caught.value)
    assert [one.name for one in Path().iterdir()] == ["app.db"]
    assert Path("app.db").read_bytes() == before


def test_a_database_of_fiddlesticks_opens_and_logs_how_to_import(
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_tables(Path("old"), "sessions", "transcript_messages", "features")
    with fmemory.open("old") as memory:
        assert memory.kind == "sqlite"
    (line,) = [one.getMessage() for one in caplog.records if one.name == "fmemory"]
    assert "import fiddlesticks" in line
    assert "\n" not in line


@pytest.mark.parametrize("target", ["sqlite:///memory.db", "jsonl:memory", "memory"])
def test_a_path_opens_what_a_url_made(target: str) -> None:
    with fmemory.open(target) as made:
        made.add_note("kept", id="n1")
    path = Path("memory.db" if "db" in target else "memory")
    for one in (str(path), path, f"./{path}", path.absolute()):
        with fmemory.open(one, create=False) as memory:
            assert memory.kind == made.kind
            assert memory.get(memory.get_request(["n1"])).missing == ()


def test_aopen_takes_the_same_targets() -> None:
    async def kinds() -> list[str]:
        found = []
        for target in ("sqlite:///memory.db", "memory.db", "jsonl:lines", "lines", ":memory:"):
            async with await fmemory.aopen(target) as memory:
                found.append(memory.kind)
        return found

    assert asyncio.run(kinds()) == ["sqlite", "sqlite", "filesystem", "filesystem", "in_memory"]


def test_a_damaged_folder_of_lines_is_still_known_as_one() -> None:
    fmemory.open("jsonl:lines").close()
    (file,) = Path("lines").glob("events-*.jsonl")
    file.write_text("edited\n")
    assert config_of("lines") == MemoryBackendConfig.Filesystem("lines")
    file.unlink()
    assert config_of("lines") == MemoryBackendConfig.Filesystem("lines")


def test_a_folder_of_fiddlesticks_names_the_import() -> None:
    Path("old", "sessions").mkdir(parents=True)
    Path("old", "sessions", "6162.json").write_text("{}")
    with pytest.raises(ContractError) as caught:
        fmemory.open("old")
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "fmemory import fiddlesticks old" in str(caught.value)


def test_a_folder_of_other_json_lines_is_not_taken_for_a_memory() -> None:
    Path("lines").mkdir()
    Path("lines", "run.jsonl").write_text('{"type": "user"}\n')
    assert config_of("lines") == MemoryBackendConfig.Segments("lines")


def test_looking_at_a_database_leaves_no_files_beside_it() -> None:
    with closing(sqlite3.connect("app.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE customers (x)")
    with pytest.raises(ContractError):
        fmemory.open("app.db")
    assert [one.name for one in Path().iterdir()] == ["app.db"]


def test_a_folder_with_the_name_of_a_database_is_a_folder() -> None:
    Path("notes.db").mkdir()
    with fmemory.open("notes.db") as memory:
        assert memory.kind == "segments"


@pytest.mark.parametrize("text", [sqlite_url("none.db"), "jsonl:none", "none"])
def test_nothing_is_created_for_one_who_only_reads(text: str) -> None:
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(NotFound):
            fmemory.open(text, **options)  # type: ignore[arg-type]
        assert list(Path().iterdir()) == []
