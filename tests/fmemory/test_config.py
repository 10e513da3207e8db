"""Configs: data that chooses a backend, which shows everything but a password."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import rich.console
import rich.pretty

import fmemory
from fmemory import (
    ContractError,
    FilesystemMemoryBackend,
    JournalBackend,
    MemoryBackendConfig,
    Reason,
    SegmentMemoryBackend,
    SqliteMemoryBackend,
    StorageError,
    config,
)
from fmemory.config import (
    FilesystemConfig,
    InMemoryConfig,
    PostgresConfig,
    SegmentsConfig,
    SqliteConfig,
)

SECRET = "s3cr3t-p4ss"
POSTGRES = MemoryBackendConfig.Postgres(
    "db.example", 5433, "agents", "ada", SECRET, "app", {"sslmode": "require"}
)
CONFIGS: list[MemoryBackendConfig] = [
    MemoryBackendConfig.Segments("memory"),
    MemoryBackendConfig.Sqlite("memory.db"),
    POSTGRES,
    MemoryBackendConfig.Filesystem(Path("lines")),
    MemoryBackendConfig.InMemory(),
]
PLAIN: list[dict[str, object]] = [
    {"kind": "segments", "root": "memory"},
    {"kind": "sqlite", "path": "memory.db"},
    {
        "kind": "postgres",
        "host": "db.example",
        "port": 5433,
        "database": "agents",
        "username": "ada",
        "log": "app",
        "parameters": {"sslmode": "require"},
    },
    {"kind": "filesystem", "root": "lines"},
    {"kind": "in_memory"},
]


class Spy:
    """Stands in for a backend's class: keeps what it was called with."""

    def __init__(self, *arguments: object, **options: object) -> None:
        self.arguments = arguments
        self.options = options


# Data


@pytest.mark.parametrize(("one", "plain"), list(zip(CONFIGS, PLAIN, strict=True)))
def test_plain_data_has_the_kind_and_the_fields(
    one: MemoryBackendConfig, plain: dict[str, object]
) -> None:
    assert one.to_dict() == plain
    assert json.loads(one.to_json()) == plain
    assert one.kind == plain["kind"]


@pytest.mark.parametrize("one", CONFIGS)
def test_a_config_comes_back_from_its_data_and_its_password(one: MemoryBackendConfig) -> None:
    secret = {"password": SECRET} if isinstance(one, PostgresConfig) else {}
    for kind in (MemoryBackendConfig, type(one)):
        assert kind.from_dict({**one.to_dict(), **secret}) == one
        assert kind.from_json(json.dumps({**one.to_dict(), **secret})) == one


def test_data_without_the_password_is_another_config() -> None:
    back = MemoryBackendConfig.from_dict(POSTGRES.to_dict())
    assert isinstance(back, PostgresConfig)
    assert back.password == ""
    assert back != POSTGRES


def test_the_kind_may_be_left_out_where_the_class_says_it() -> None:
    assert SqliteConfig.from_dict({"path": "x.db"}) == MemoryBackendConfig.Sqlite("x.db")


def test_the_kind_of_another_class_is_refused() -> None:
    with pytest.raises(ContractError) as caught:
        SqliteConfig.from_dict({"kind": "segments", "path": "x.db"})
    assert (caught.value.where, caught.value.reason) == ("kind", Reason.BAD_VALUE)


@pytest.mark.parametrize(
    ("data", "where", "reason"),
    [
        ({}, "kind", Reason.MISSING_FIELD),
        ({"kind": "mysql"}, "kind", Reason.BAD_VALUE),
        ({"kind": ["sqlite"]}, "kind", Reason.BAD_VALUE),
        ({"kind": "sqlite"}, "path", Reason.MISSING_FIELD),
        ({"kind": "sqlite", "path": ""}, "path", Reason.EMPTY),
        ({"kind": "sqlite", "path": "a\0b"}, "path", Reason.BAD_VALUE),
        ({"kind": "in_memory", "root": "x"}, "", Reason.UNKNOWN_FIELD),
        (["sqlite"], "", Reason.WRONG_TYPE),
        ({"kind": "postgres", "host": "h", "port": 0}, "port", Reason.OUT_OF_RANGE),
        ({"kind": "postgres", "host": "h", "port": "5432"}, "port", Reason.WRONG_TYPE),
        ({"kind": "postgres", "host": "h", "username": "u"}, "database", Reason.EMPTY),
        ({"kind": "postgres", "host": "h", "database": "d", "log": ""}, "log", Reason.EMPTY),
        (
            {"kind": "postgres", "host": "h", "database": "d", "parameters": {"sslmode": 1}},
            'parameters["sslmode"]',
            Reason.WRONG_TYPE,
        ),
    ],
    ids=str,
)
def test_data_that_is_no_config_names_what_is_wrong(
    data: object, where: str, reason: Reason
) -> None:
    with pytest.raises(ContractError) as caught:
        MemoryBackendConfig.from_dict(data)
    assert (caught.value.where, caught.value.reason) == (where, reason)


@pytest.mark.parametrize("value", [None, 5, ["x"]], ids=str)
def test_a_path_of_another_type_is_refused(value: object) -> None:
    for make in (
        MemoryBackendConfig.Segments,
        MemoryBackendConfig.Sqlite,
        MemoryBackendConfig.Filesystem,
    ):
        with pytest.raises(ContractError) as caught:
            make(value)  # type: ignore[arg-type]
        assert caught.value.reason is Reason.WRONG_TYPE


def test_the_port_is_5432_and_the_log_default_unless_given() -> None:
    one = MemoryBackendConfig.Postgres(host="h", database="d", username="u", password="p")
    assert (one.port, one.log, one.password) == (5432, "default", "p")


def test_the_schema_has_all_five_and_marks_the_password() -> None:
    schema = MemoryBackendConfig.json_schema()
    assert [one["$ref"] for one in schema["oneOf"]] == [  # type: ignore[union-attr,index,call-overload]
        f"#/$defs/{type(one).__name__}" for one in CONFIGS
    ]
    own = PostgresConfig.json_schema()["$defs"]["PostgresConfig"]  # type: ignore[index,call-overload]
    assert own["properties"]["password"] == {"type": "string", "writeOnly": True}  # type: ignore[index,call-overload]
    assert own["properties"]["kind"] == {"const": "postgres"}  # type: ignore[index,call-overload]


# Passwords


def test_no_way_of_showing_a_config_shows_its_password() -> None:
    out = StringIO()
    rich.console.Console(file=out, width=200).print(POSTGRES, rich.pretty.pretty_repr(POSTGRES))
    shown = [repr(POSTGRES), str(POSTGRES), f"{POSTGRES}", f"{POSTGRES!a}", out.getvalue()]
    shown += [str(POSTGRES.to_dict()), POSTGRES.to_json(), repr([POSTGRES])]
    assert [text for text in shown if SECRET in text] == []
    assert all("ada" in text for text in shown)


def test_the_password_is_compared_hashed_and_pickled() -> None:
    other = MemoryBackendConfig.from_dict({**POSTGRES.to_dict(), "password": "other"})
    assert other != POSTGRES
    assert len({POSTGRES, other, pickle.loads(pickle.dumps(other))}) == 2
    assert pickle.loads(pickle.dumps(POSTGRES)) == POSTGRES


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"password": [SECRET]}, Reason.WRONG_TYPE),
        ({"password": SECRET.encode()}, Reason.WRONG_TYPE),
        ({"password": SECRET + "\ud800"}, Reason.LONE_SURROGATE),
        ({"password": SECRET + "\0"}, Reason.BAD_VALUE),
        ({"password": SECRET, "user": "ada"}, Reason.UNKNOWN_FIELD),
        ({"password": SECRET, "port": 70_000}, Reason.OUT_OF_RANGE),
        ({"password": SECRET, "host": "\ud800"}, Reason.LONE_SURROGATE),
    ],
    ids=lambda value: "" if isinstance(value, Reason) else ",".join(value),
)
def test_an_error_about_a_config_does_not_show_its_password(
    change: dict[str, object], reason: Reason
) -> None:
    with pytest.raises(ContractError) as caught:
        MemoryBackendConfig.from_dict({**POSTGRES.to_dict(), **change})
    assert caught.value.reason is reason
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# Opening


def test_postgres_gets_the_config_and_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "PostgresMemoryBackend", Spy)
    made = fmemory.create_memory_backend(
        POSTGRES, create=False, durability="interval", lock_timeout_s=0.5
    )
    assert isinstance(made, Spy)
    assert made.arguments == ("db.example", 5433, "agents", "ada", SECRET)
    assert made.options == {
        "create": False,
        "read_only": False,
        "durability": "interval",
        "lock_timeout_s": 0.5,
        "log": "app",
        "parameters": {"sslmode": "require"},
    }


def test_what_is_opened_for_reading_is_never_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "PostgresMemoryBackend", Spy)
    made = fmemory.create_memory_backend(POSTGRES, read_only=True)
    assert isinstance(made, Spy)
    assert (made.options["create"], made.options["read_only"]) == (False, True)


@pytest.mark.parametrize("value", [None, "memory", {"kind": "in_memory"}, InMemoryConfig], ids=str)
def test_what_is_no_config_is_refused(value: object) -> None:
    with pytest.raises(ContractError) as caught:
        fmemory.create_memory_backend(value)  # type: ignore[arg-type]
    assert (caught.value.where, caught.value.reason) == ("config", Reason.WRONG_TYPE)


def test_a_missing_driver_names_the_extra_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ContractError) as caught:
        fmemory.create_memory_backend(POSTGRES)
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "psycopg" in str(caught.value)
    assert "pip install 'fmemory[postgres]'" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_driver_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, fmemory; fmemory.open(':memory:').close();"
        "assert not [one for one in sys.modules if one.startswith('psycopg')]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# The default


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without anything in it."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv(config.SQLITE_PATH_VARIABLE, raising=False)
    return tmp_path / "home"


def test_the_default_is_fiddlesticks_file_with_its_folders(home: Path) -> None:
    with fmemory.create_default_memory_backend() as memory:
        assert memory.kind == "sqlite"
        memory.add_note("kept", id="n1")
    assert (home / ".fiddlesticks" / "fmemory.sqlite3").is_file()
    with fmemory.create_default_memory_backend() as memory:
        assert memory.get(memory.get_request(["n1"])).records[0].note.text == "kept"


@pytest.mark.parametrize("given", ["a/b/memory.db", "~/x/memory.db"])
def test_the_variable_names_another_file(
    given: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(config.SQLITE_PATH_VARIABLE, given)
    fmemory.create_default_memory_backend().close()
    assert Path(given).expanduser().is_file()
    assert not (home / ".fiddlesticks").exists()


def test_an_empty_variable_counts_as_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.SQLITE_PATH_VARIABLE, "")
    fmemory.create_default_memory_backend().close()
    assert (home / ".fiddlesticks" / "fmemory.sqlite3").is_file()


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        fmemory.create_memory_backend(MemoryBackendConfig.Sqlite(tmp_path / "file" / "x" / "a.db"))


def test_a_folder_that_may_not_be_made_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StorageError) as caught:
        fmemory.create_memory_backend(MemoryBackendConfig.Sqlite(tmp_path / "x" / "a.db"))
    assert caught.value.path == str(tmp_path / "x")


def test_segments_and_memory_open_from_their_configs(tmp_path: Path) -> None:
    for one in (SegmentsConfig(root=str(tmp_path / "s")), InMemoryConfig()):
        with fmemory.create_memory_backend(one) as memory:
            assert memory.kind == one.kind
            assert memory.add_note("x", id="a").id == "a"


def test_filesystem_configs_take_any_path_like(tmp_path: Path) -> None:
    assert MemoryBackendConfig.Filesystem(tmp_path) == FilesystemConfig(root=str(tmp_path))


@pytest.mark.parametrize("options", [{"durability": "sync"}, {"lock_timeout_s": -1}])
@pytest.mark.parametrize(
    "backend", [SegmentMemoryBackend, SqliteMemoryBackend, FilesystemMemoryBackend]
)
def test_constructors_refuse_what_open_refuses(
    tmp_path: Path, backend: Callable[..., JournalBackend], options: dict[str, object]
) -> None:
    with pytest.raises(ContractError) as caught:
        backend(tmp_path / "store", **options)
    assert (caught.value.where, list(tmp_path.iterdir())) == (next(iter(options)), [])
