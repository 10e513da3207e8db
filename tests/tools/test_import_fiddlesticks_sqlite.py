"""A SQLite file is read as of one moment, whatever lies beside it, and left as it is."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import fmemory
from fmemory_tools.importers import BadSource
from fmemory_tools.importers import _fiddlesticks_sqlite as sqlite_reader
from fmemory_tools.importers.fiddlesticks import plan_fiddlesticks
from tests.tools.fiddlesticks_sources import import_into, insert, write_sqlite
from tests.tools.helpers import bytes_of


def test_rows_are_read_in_the_order_of_their_ids(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "source", [])
    with closing(sqlite3.connect(source)) as connection, connection:
        for number in (3, 1, 2):
            row = {"id": number, "session_id": "s", "role": "user", "content": str(number)}
            insert(connection, "transcript_messages", row)

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)

        assert [one.content for one in memory.load_transcript_messages("s")] == ["1", "2", "3"]


def add_message(connection: sqlite3.Connection, content: str) -> None:
    row = {"session_id": "s", "role": "user", "content": content}
    insert(connection, "transcript_messages", row)


def contents_of(source: Path) -> list[str]:
    with fmemory.open(":memory:") as memory:
        import_into(memory, source)
        return [one.content for one in memory.load_transcript_messages("s")]


@pytest.mark.parametrize("with_shm", [True, False])
def test_what_only_the_wal_holds_is_read_and_stays_there(with_shm: bool, tmp_path: Path) -> None:
    live = write_sqlite(tmp_path / "live", [])
    with closing(sqlite3.connect(live)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        with connection:
            add_message(connection, "in the WAL")
        folder = tmp_path / "left by a crash"
        folder.mkdir()
        for ending in ("", "-wal", "-shm") if with_shm else ("", "-wal"):
            shutil.copy(f"{live}{ending}", f"{folder / 'source'}{ending}")
    before = bytes_of(folder)

    found = contents_of(folder / "source")

    assert found == ["in the WAL"]
    assert bytes_of(folder) == before


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_database_that_is_being_written_gives_what_is_committed(
    mode: str, tmp_path: Path
) -> None:
    source = write_sqlite(tmp_path / "in", [], mode)
    with closing(sqlite3.connect(source)) as connection:
        with connection:
            add_message(connection, "committed")
        add_message(connection, "not yet")
        before = bytes_of(tmp_path)

        found = contents_of(source)

        assert bytes_of(tmp_path) == before
        connection.commit()
    assert found == ["committed"]
    assert contents_of(source) == ["committed", "not yet"]


def test_a_transaction_that_a_crash_interrupted_is_rolled_back_in_the_copy_only(
    tmp_path: Path,
) -> None:
    live = write_sqlite(tmp_path / "live", [], "DELETE")
    folder = tmp_path / "left by a crash"
    folder.mkdir()
    with closing(sqlite3.connect(live)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        with connection:
            add_message(connection, "committed")
        for _ in range(200):
            add_message(connection, "x" * 2000)
        for ending in ("", "-journal"):
            shutil.copy(f"{live}{ending}", f"{folder / 'source'}{ending}")
        connection.rollback()
    before = bytes_of(folder)
    assert len(before["source"]) > 100_000

    assert contents_of(folder / "source") == ["committed"]
    assert bytes_of(folder) == before


def test_a_write_while_the_file_is_copied_is_not_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_sqlite(tmp_path / "source", [])
    digests, writes = sqlite_reader._digests, iter(["first", "second"])

    def digests_after_a_write(path: Path) -> list[str | None]:
        for content in writes:
            with closing(sqlite3.connect(path)) as connection, connection:
                add_message(connection, content)
            break
        return digests(path)

    monkeypatch.setattr(sqlite_reader, "_digests", digests_after_a_write)

    assert contents_of(source) == ["first", "second"]


def test_a_file_that_never_rests_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_sqlite(tmp_path / "source", [])
    monkeypatch.setattr(sqlite_reader, "_digests", lambda _: [])

    with pytest.raises(BadSource, match="written to all the while"):
        plan_fiddlesticks(str(source))
