"""Opening a log in PostgreSQL: what is made, what is refused, what is left alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from fmemory import ContractError, NotFound, Reason, StorageError, UnsupportedPlatform
from fmemory.journals import PostgresMemoryBackend
from fmemory.testing._backend_processes import open_and_put
from fmemory.testing._processes import Job, run_together
from tests.postgres import Postgres

DOCUMENT = Path(__file__).parents[2] / "docs" / "postgres.md"
Open: TypeAlias = Callable[[str], PostgresMemoryBackend]
UNASKED: list[Open] = [
    partial(PostgresMemoryBackend.from_url, create=False),
    partial(PostgresMemoryBackend.from_url, read_only=True),
]


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def tables(url: str) -> list[str]:
    found = execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    return [str(row[0]) for row in found]


def log_url(url: str, log: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}log={log}"


def put(memory: PostgresMemoryBackend, record_id: str) -> None:
    memory.add_note("tea", [1.0], id=record_id)


def test_tables_are_those_of_the_document(postgres_url: str) -> None:
    PostgresMemoryBackend.from_url(postgres_url).close()
    query = "SELECT table_name, column_name FROM information_schema.columns"
    found = execute(postgres_url, f"{query} WHERE table_schema = 'public'")
    assert sorted(found) == sorted(documented_columns())


def documented_columns() -> list[tuple[str, str]]:
    """Table and column of each row of the document's table."""
    section = DOCUMENT.read_text().split("## Tables\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")][1:]
    columns, table = [], ""
    for first, second in rows:
        table = first.strip(" `") or table
        columns.append((table, second.strip(" `")))
    return columns


def test_processes_that_make_the_tables_at_once_all_succeed(postgres_url: str) -> None:
    target = partial(PostgresMemoryBackend.from_url, postgres_url)
    run_together([Job(open_and_put, (target, f"p{number}")) for number in range(8)])
    with target() as memory:
        assert sorted(one.id for one in memory.iter_all()) == [f"p{number}" for number in range(8)]
        assert memory.head().seq == 8


def test_two_logs_of_one_database_are_apart(postgres_url: str) -> None:
    with (
        PostgresMemoryBackend.from_url(log_url(postgres_url, "one")) as one,
        PostgresMemoryBackend.from_url(log_url(postgres_url, "two")) as two,
    ):
        put(one, "same")
        put(two, "same")
        put(two, "more")
        assert [event.seq for event in one.events()] == [1]
        assert [event.seq for event in two.events()] == [1, 2]
        assert one.journal.store_id != two.journal.store_id


def test_log_that_is_held_does_not_hold_another(postgres_url: str) -> None:
    with (
        PostgresMemoryBackend.from_url(log_url(postgres_url, "one")) as one,
        PostgresMemoryBackend.from_url(log_url(postgres_url, "two")) as two,
    ):
        one.journal.commit(lambda _txn: put(two, "a"))
        assert [event.seq for event in two.events()] == [1]


@pytest.mark.parametrize("unasked", UNASKED)
def test_missing_tables_are_not_made_unasked(postgres_url: str, unasked: Open) -> None:
    with pytest.raises(NotFound) as caught:
        unasked(postgres_url)
    assert (caught.value.reason, tables(postgres_url)) == (Reason.STORE_NOT_FOUND, [])


@pytest.mark.parametrize("unasked", UNASKED)
def test_missing_log_is_not_made_unasked(postgres_url: str, unasked: Open) -> None:
    PostgresMemoryBackend.from_url(postgres_url).close()
    with pytest.raises(NotFound) as caught:
        unasked(log_url(postgres_url, "other"))
    names = execute(postgres_url, "SELECT name FROM fmemory_logs")
    assert (caught.value.reason, names) == (Reason.STORE_NOT_FOUND, [("default",)])


def test_tables_of_a_newer_version_are_refused(postgres_url: str) -> None:
    PostgresMemoryBackend.from_url(postgres_url).close()
    execute(postgres_url, "UPDATE fmemory_format SET version = 2")
    with pytest.raises(StorageError) as caught:
        PostgresMemoryBackend.from_url(postgres_url)
    assert caught.value.reason is Reason.UNKNOWN_FORMAT


def test_database_that_cannot_hold_all_text_is_refused(postgres_server: Postgres) -> None:
    execute(
        postgres_server.url,
        "CREATE DATABASE fmemory_latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
        " TEMPLATE template0",
    )
    url = postgres_server.database_url("fmemory_latin")
    try:
        with pytest.raises(UnsupportedPlatform):
            PostgresMemoryBackend.from_url(url)
        assert tables(url) == []
    finally:
        postgres_server.drop_database(url)


def test_tables_of_others_are_left_alone(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE fmemory_session_state (session_id TEXT PRIMARY KEY)")
    execute(postgres_url, "INSERT INTO fmemory_session_state VALUES ('s1')")
    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        put(memory, "a")
    assert execute(postgres_url, "SELECT * FROM fmemory_session_state") == [("s1",)]


def test_dropped_tables_are_told_as_a_store_that_is_not_there(postgres_url: str) -> None:
    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        execute(postgres_url, "DROP TABLE fmemory_events, fmemory_logs CASCADE")
        with pytest.raises(NotFound) as caught:
            put(memory, "a")
    assert caught.value.reason is Reason.STORE_NOT_FOUND


def test_every_transaction_is_read_committed_whatever_the_database_says(postgres_url: str) -> None:
    name = execute(postgres_url, "SELECT current_database()")[0][0]
    execute(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
    seen: list[str] = []

    with PostgresMemoryBackend.from_url(postgres_url) as memory:

        def look() -> None:
            query = b"SHOW transaction_isolation"
            connections = memory.journal.table._connections  # type: ignore[attr-defined]
            seen.append(connections.read(lambda one: one.execute(query).fetchone()[0]))

        look()
        memory.journal.commit(lambda _txn: look())
    assert seen == ["read committed"] * 2


def test_read_only_handle_uses_read_only_transactions(postgres_url: str) -> None:
    PostgresMemoryBackend.from_url(postgres_url).close()
    with PostgresMemoryBackend.from_url(postgres_url, read_only=True) as memory:
        connections = memory.journal.table._connections  # type: ignore[attr-defined]
        query = b"SHOW transaction_read_only"
        assert connections.read(lambda one: one.execute(query).fetchone()) == ("on",)


def test_role_that_may_only_read_can_open_to_read(postgres_url: str) -> None:
    with PostgresMemoryBackend.from_url(postgres_url) as memory:
        put(memory, "a")
    execute(postgres_url, "CREATE ROLE fmemory_reader LOGIN")
    try:
        execute(postgres_url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO fmemory_reader")
        url = re.sub("//[^/@]*@", "//fmemory_reader@", postgres_url)
        with PostgresMemoryBackend.from_url(url, read_only=True) as memory:
            assert [one.id for one in memory.iter_all()] == ["a"]
    finally:
        execute(postgres_url, "DROP OWNED BY fmemory_reader; DROP ROLE fmemory_reader")


def test_data_is_stored_so_that_parts_can_be_read(postgres_url: str) -> None:
    PostgresMemoryBackend.from_url(postgres_url).close()
    query = (
        "SELECT attstorage::text FROM pg_attribute"
        " WHERE attrelid = 'fmemory_events'::regclass AND attname = 'data'"
    )
    assert execute(postgres_url, query) == [("e",)]


def test_package_imports_without_the_driver_and_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fmemory.journals import PostgresMemoryBackend\n"
        "try:\n    PostgresMemoryBackend('there')\n"
        "except ValueError as error:\n    print(error.reason, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert done.stdout.startswith("unsupported ")
    assert "pip install 'fmemory[postgres]'" in done.stdout


@pytest.mark.usefixtures("postgres_server")
@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("log", {"log": ""}),
        ("log", {"log": "x" * 201}),
        ("log", {"log": "a\0b"}),
        ("log", {"log": "\ud800"}),
        ("port", {"port": 0}),
        ("port", {"port": "5432"}),
        ("database", {"database": ""}),
        ("host", {"host": 5}),
        ("parameters", {"parameters": {"dbname": "x"}}),
        ("durability", {"durability": "sync"}),
        ("lock_timeout_s", {"lock_timeout_s": -1}),
        ("lock_timeout_s", {"lock_timeout_s": float("nan")}),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(where: str, options: dict[str, object]) -> None:
    arguments: dict[str, object] = {"host": "there", **options}
    with pytest.raises(ContractError) as caught:
        PostgresMemoryBackend(**arguments)  # type: ignore[arg-type]
    assert caught.value.where == where
