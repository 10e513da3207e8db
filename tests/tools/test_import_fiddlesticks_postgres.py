"""Fiddlesticks' table in PostgreSQL is imported, its server not changed, its password not told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmemory
from fmemory_tools.importers import BadSource
from fmemory_tools.importers._fiddlesticks_postgres import without_secrets
from fmemory_tools.importers.fiddlesticks import CannotRead, plan_fiddlesticks
from fmemory_tools.importers.fiddlesticks_apply import Fate
from tests.tools.fiddlesticks_sources import (
    FULL,
    IN_JSONB,
    TALK,
    import_into,
    stored_in,
    write_folder,
    write_table,
)
from tests.tools.helpers import Command, only_line

ROWS = "SELECT xmin::text, ctid::text, session_id, state_json FROM fmemory_session_state ORDER BY 1"


def rows(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(ROWS).fetchall()


def test_every_session_is_in_the_store_and_the_table_as_it_was(
    postgres_url: str, tmp_path: Path
) -> None:
    before = rows(write_table(postgres_url))

    with fmemory.open(tmp_path / "store") as memory:
        fates = import_into(memory, postgres_url)

    assert fates == {one.session_id: Fate.IMPORTED for one in IN_JSONB}
    assert rows(postgres_url) == before
    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        assert [stored_in(memory, one.session_id) for one in IN_JSONB] == list(IN_JSONB)


def test_the_same_table_twice_adds_nothing(postgres_url: str) -> None:
    write_table(postgres_url)
    with fmemory.open(":memory:") as memory:
        import_into(memory, postgres_url)
        before = memory.head()

        assert set(import_into(memory, postgres_url).values()) == {Fate.PRESENT}
        assert memory.head() == before


def test_the_source_is_named_without_user_and_password(postgres_url: str) -> None:
    write_table(postgres_url, [FULL])
    with fmemory.open(":memory:") as memory:
        import_into(memory, postgres_url)
        manifest = memory.load_bootstrap_state("login").manifest

    assert manifest is not None
    source = manifest.metadata["source"]
    assert isinstance(source, dict)
    with psycopg.connect(postgres_url) as connection:
        info = connection.info
        assert source["name"] == f"{info.host}:{info.port}/{info.dbname}"
    assert source["kind"] == "postgres"


def test_what_was_imported_from_a_folder_is_known_in_the_table(
    postgres_url: str, tmp_path: Path
) -> None:
    with fmemory.open(":memory:") as memory:
        import_into(memory, write_folder(tmp_path / "folder", IN_JSONB))

        fates = import_into(memory, write_table(postgres_url))

    assert set(fates.values()) == {Fate.PRESENT}


def test_an_account_that_may_only_read_is_enough(postgres_url: str) -> None:
    write_table(postgres_url, [TALK])
    with psycopg.connect(postgres_url) as connection:
        database = connection.info.dbname
        connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")

    with fmemory.open(":memory:") as memory:
        assert import_into(memory, postgres_url) == {TALK.session_id: Fate.IMPORTED}


def test_a_malformed_row_is_named(postgres_url: str) -> None:
    write_table(postgres_url, [FULL, TALK])
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "UPDATE fmemory_session_state"
            " SET state_json = jsonb_set(state_json, '{transcript,1,role}', '\"robot\"')"
            " WHERE session_id = 'login'"
        )
        connection.execute(
            "UPDATE fmemory_session_state SET state_json = '[]' WHERE session_id = 'only talk'"
        )

    with pytest.raises(BadSource) as caught:
        plan_fiddlesticks(postgres_url)

    assert [line.unit for line in caught.value.lines] == [
        "fmemory_session_state row of session 'only talk'",
        "fmemory_session_state row of session 'login': transcript item 2",
    ]
    with fmemory.open(":memory:") as memory:
        assert import_into(memory, postgres_url, skip_bad=True) == {"login": Fate.IMPORTED}


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("SELECT 1", "it has no table fmemory_session_state"),
        ("CREATE TABLE fmemory_session_state (a int)", "has not the columns"),
    ],
)
def test_a_database_of_another_program_is_one_line(
    statement: str, problem: str, postgres_url: str, tmp_path: Path, run: Command
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(statement.encode())

    result = run("import", "fiddlesticks", postgres_url, "-s", tmp_path / "store")

    assert result.exit_code == 2
    assert problem in only_line(result.stderr)
    assert not (tmp_path / "store").exists()


SECRETS = [
    "postgresql://ada:s3cr3t@127.0.0.1:1/agents",
    "postgresql://ada:or@s3cr3t@127.0.0.1:1/agents",
    "postgresql://ada:or/s3cr3t@127.0.0.1:1/agents",
    "postgresql://ada:%s3cr3t@127.0.0.1:1/agents",
    "postgresql://ada@127.0.0.1:1/agents?password=s3cr3t",
    "postgresql://ada:s3cr3t@127.0.0.1:1/agents?log=one",
    "postgresql://ada:s3cr3t@127.0.0.1:port/agents",
]


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_is_never_told(url: str, tmp_path: Path, run: Command) -> None:
    result = run("import", "fiddlesticks", url, "-s", tmp_path / "store")

    assert result.exit_code in (2, 3)
    assert "PostgreSQL" in only_line(result.stderr)
    assert "s3cr3t" not in result.output
    assert not (tmp_path / "store").exists()


def test_a_wrong_database_is_one_line_with_the_servers_words(
    postgres_url: str, tmp_path: Path, run: Command
) -> None:
    url = postgres_url.replace("fmemory_test_", "missing_")

    result = run("import", "fiddlesticks", url, "-s", tmp_path / "store")

    assert result.exit_code == 3
    assert "does not exist" in only_line(result.stderr)


def test_a_missing_package_names_the_extra_and_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Command
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    result = run("import", "fiddlesticks", "postgresql://ada@there/agents", "-s", tmp_path / "s")

    assert result.exit_code == 3
    assert only_line(result.stderr) == (
        "fmemory: importing from PostgreSQL needs psycopg, which is in the extra `postgres`:"
        " pip install 'fmemory[postgres]'; nothing was imported"
    )


def test_a_server_that_is_not_there_is_typed() -> None:
    with pytest.raises(CannotRead):
        plan_fiddlesticks("postgresql://ada@127.0.0.1:1/agents")


def test_pieces_of_a_password_are_taken_out_of_a_message() -> None:
    message = without_secrets("no host 'b@there',\n no 'a@x'", "postgresql://u:a%40x@b@there/d")

    assert message == "no host '***@there', no '***'"
