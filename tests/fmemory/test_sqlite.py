"""SQLite files: whose tables they hold, what is read of them, what damage and waiting look like."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmemory import (
    GetRequest,
    LogCorrupt,
    MemoryRecord,
    Message,
    Note,
    NotFound,
    PutRequest,
    ReadOnlyStore,
    Reason,
    ScanRequest,
    SqliteMemoryBackend,
    StorageError,
    StoreBusy,
)
from fmemory.journals._sqlite import SqliteTable
from fmemory.journals._tables.event_table import Part
from fmemory.journals._tables.journal import TableJournal

FIDDLESTICKS = """
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, active_branch TEXT);
CREATE TABLE transcript_messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT);
CREATE TABLE features (id INTEGER PRIMARY KEY, session_id TEXT, feature_id TEXT);
INSERT INTO sessions VALUES ('s1', 'main');
INSERT INTO transcript_messages VALUES (1, 's1', 'user', 'hello');
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def records(count: int, dim: int = 4) -> list[MemoryRecord]:
    return [
        MemoryRecord(
            Note(f"r{number}", f"note {number}", float(number), {"n": number}),
            np.arange(dim, dtype=np.float64) + number,
        )
        for number in range(count)
    ]


def query(path: Path, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement, arguments).fetchall()


class TestPlace:
    def test_parents_are_made(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "memory.db"
        with SqliteMemoryBackend(path) as memory:
            memory.add_note("x", id="n1")
        assert path.is_file()

    def test_missing_file_is_not_made_when_that_was_not_asked_for(self, path: Path) -> None:
        with pytest.raises(NotFound) as caught:
            SqliteMemoryBackend(path, create=False)
        assert (caught.value.reason, path.exists()) == (Reason.STORE_NOT_FOUND, False)

    def test_missing_file_is_not_made_by_a_reader(self, path: Path) -> None:
        with pytest.raises(NotFound):
            SqliteMemoryBackend(path, read_only=True)
        assert list(path.parent.iterdir()) == []

    @pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 2\0"])
    def test_file_of_another_kind_is_refused_and_left_alone(
        self, path: Path, content: bytes
    ) -> None:
        path.write_bytes(content)
        with pytest.raises(StorageError) as caught:
            SqliteMemoryBackend(path)
        assert caught.value.reason is Reason.NOT_A_STORE
        assert (path.read_bytes(), list(path.parent.iterdir())) == (content, [path])

    def test_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="expected a file, got a folder"):
            SqliteMemoryBackend(tmp_path)

    def test_file_that_ends_in_the_middle_is_told_as_damage(self, path: Path) -> None:
        with SqliteMemoryBackend(path) as memory:
            memory.put(PutRequest(records=records(50, 64)))
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(LogCorrupt):
            SqliteMemoryBackend(path)

    def test_tables_of_a_newer_version_are_refused(self, path: Path) -> None:
        SqliteMemoryBackend(path).close()
        query(path, "UPDATE fmemory_log SET value = 2 WHERE key = 'schema_version'")
        with pytest.raises(StorageError, match="expected version 1, got 2") as caught:
            SqliteMemoryBackend(path)
        assert caught.value.reason is Reason.UNKNOWN_FORMAT

    def test_folder_nobody_may_write_to_opens_for_reading(self, path: Path) -> None:
        with SqliteMemoryBackend(path) as memory:
            memory.add_note("x", id="n1")
        before = path.read_bytes()
        path.parent.chmod(0o555)
        try:
            with SqliteMemoryBackend(path, read_only=True) as memory:
                assert memory.get(GetRequest(("n1",))).records[0].note.text == "x"
                with pytest.raises(ReadOnlyStore):
                    memory.add_note("y")
        finally:
            path.parent.chmod(0o755)
        assert path.read_bytes() == before

    def test_file_that_was_moved_away_is_not_written_any_more(self, path: Path) -> None:
        with SqliteMemoryBackend(path) as memory:
            memory.add_note("x", id="n1")
            path.rename(path.with_name("moved.db"))
            with pytest.raises(NotFound, match="moved, removed or made anew"):
                memory.add_note("y", id="n2")
            path.write_bytes(b"")
            with pytest.raises(NotFound, match="moved, removed or made anew"):
                memory.add_note("y", id="n2")

    def test_log_without_a_name_is_told_as_damage(self, path: Path) -> None:
        SqliteMemoryBackend(path).close()
        query(path, "DELETE FROM fmemory_log WHERE key = 'store_id'")
        with pytest.raises(LogCorrupt, match="got None"):
            SqliteMemoryBackend(path)


class TestNeighbours:
    """A log lives beside the tables of others."""

    def test_tables_of_others_are_untouched(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.executescript(FIDDLESTICKS)
        with SqliteMemoryBackend(path) as memory:
            memory.append_transcript_messages("s1", [Message("user", "ours")])
            memory.delete_session("s1")
        assert query(path, "SELECT * FROM sessions") == [("s1", "main")]
        assert query(path, "SELECT * FROM transcript_messages") == [(1, "s1", "user", "hello")]

    def test_all_our_tables_and_indexes_carry_our_name(self, path: Path) -> None:
        SqliteMemoryBackend(path).close()
        names = [name for (name,) in query(path, "SELECT name FROM sqlite_master")]
        assert [name for name in names if "fmemory_" not in str(name)] == []

    def test_one_line_says_how_to_import_what_fiddlesticks_wrote(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.executescript(FIDDLESTICKS)
        with caplog.at_level(logging.WARNING, "fmemory"):
            SqliteMemoryBackend(path).close()
            SqliteMemoryBackend(path).close()
        (told,) = [record.getMessage() for record in caplog.records]
        assert f"import fiddlesticks {path}" in told

    def test_reader_of_a_database_without_a_log_says_that_there_is_none(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.executescript(FIDDLESTICKS)
        before = path.read_bytes()
        with pytest.raises(NotFound):
            SqliteMemoryBackend(path, read_only=True)
        with pytest.raises(NotFound):
            SqliteMemoryBackend(path, create=False)
        assert path.read_bytes() == before


class CountingTable(SqliteTable):
    """A table that notes how many bytes of data were read."""

    read_bytes = 0

    def data_of(self, checks: Mapping[int, int]) -> dict[int, bytes]:
        found = super().data_of(checks)
        self.read_bytes += sum(map(len, found.values()))
        return found

    def parts(self, parts: Sequence[Part]) -> list[bytes]:
        found = super().parts(parts)
        self.read_bytes += sum(map(len, found))
        return found


class TestReads:
    @pytest.fixture
    def table(self, path: Path) -> Iterator[CountingTable]:
        with SqliteMemoryBackend(path) as memory:
            memory.put(PutRequest(records=records(500, 384)))
        table = CountingTable(path)
        yield table
        table.close()

    def test_one_row_of_a_large_batch_reads_that_row_only(self, table: CountingTable) -> None:
        note, vector, _ = TableJournal(table).row(1 << 16 | 321)
        assert vector.tolist() == records(500, 384)[321].vector.tolist()
        assert table.read_bytes == len(note) + 384 * 8

    def test_rows_out_of_order_are_read_in_pieces(self, table: CountingTable) -> None:
        locs = np.array([1 << 16 | row for row in (400, 401, 7)], np.uint64)
        page = TableJournal(table).rows(locs)
        assert page.blocks[0][:, 0].tolist() == [400.0, 401.0, 7.0]
        assert table.read_bytes < 4 * 384 * 8

    def test_counting_reads_no_data(self, table: CountingTable) -> None:
        journal = TableJournal(table)
        runs = list(journal.fold(0, 1, ("records",)))
        assert ([len(run.ids) for run in runs], table.read_bytes) == ([500], 0)  # type: ignore[union-attr]


class TestDamage:
    def test_changed_row_is_told_by_reads_and_named_by_verify(self, path: Path) -> None:
        with SqliteMemoryBackend(path) as memory:
            memory.put(PutRequest(records=records(3)))
            memory.put(PutRequest(records=[MemoryRecord(Note("z", "z", 9.0, {}), np.zeros(4))]))
        (row,) = query(path, "SELECT data FROM fmemory_events WHERE seq = 1")
        data = bytearray(row[0])
        data[len(data.rstrip(b"\0")) - 1] ^= 1  # of the last vector; zeros may follow
        query(path, "UPDATE fmemory_events SET data = ? WHERE seq = 1", bytes(data))
        with SqliteMemoryBackend(path) as memory:
            with pytest.raises(LogCorrupt, match="event 1, row 2") as caught:
                memory.scan(ScanRequest())
            assert (caught.value.seq, caught.value.last_seq) == (1, 1)
            assert memory.get(GetRequest(("z", "r0"))).missing == ()
            assert [(one.first_seq, one.last_seq) for one in memory.verify()] == [(1, 1)]

    @pytest.mark.parametrize(
        ("change", "found"),
        [
            ("UPDATE fmemory_events SET meta = x'00' WHERE seq = 2", [(2, 2)]),
            ("UPDATE fmemory_events SET meta = 'text', data = 'text' WHERE seq = 2", [(2, 2)]),
            ("UPDATE fmemory_events SET data = 'text' WHERE seq = 2", [(2, 2)]),
            ("UPDATE fmemory_events SET recorded_at_ns = 5 WHERE seq = 2", [(2, 2)]),
            ("UPDATE fmemory_events SET data = x'' WHERE seq = 2", [(2, 2)]),
            ("DELETE FROM fmemory_events WHERE seq = 2", [(2, 2)]),
            ("UPDATE fmemory_streams SET revision = 7 WHERE last_seq = 3", [(1, 3)]),
            ("DELETE FROM fmemory_streams WHERE last_seq = 3", [(1, 3)]),
        ],
    )
    def test_changes_are_named_by_verify(
        self, path: Path, change: str, found: list[tuple[int, int]]
    ) -> None:
        with SqliteMemoryBackend(path) as memory:
            for word in ("one", "two", "three"):
                memory.append_transcript_messages("s", [Message("user", word)])
        query(path, change)
        with SqliteMemoryBackend(path) as memory:
            assert [(one.first_seq, one.last_seq) for one in memory.verify()] == found

    @pytest.mark.parametrize("seq", [1, 2])
    def test_removed_event_is_told_by_every_read_over_its_place(self, path: Path, seq: int) -> None:
        with SqliteMemoryBackend(path) as memory:
            for word in ("one", "two", "three"):
                memory.append_transcript_messages("s", [Message("user", word)])
        query(path, f"DELETE FROM fmemory_events WHERE seq = {seq}")
        with SqliteMemoryBackend(path) as memory:
            with pytest.raises(LogCorrupt, match=f"event {seq}: expected it before {seq + 1}"):
                list(memory.events())
            with pytest.raises(LogCorrupt, match=f"revision {seq}: expected it before {seq + 1}"):
                memory.load_transcript_messages("s")
            with pytest.raises(LogCorrupt, match="were removed"):
                memory.head()
        with SqliteMemoryBackend(path) as memory, pytest.raises(LogCorrupt, match="were removed"):
            memory.append_transcript_messages("s", [Message("user", "four")])


class TestWaiting:
    def test_lock_held_elsewhere_gives_store_busy_after_the_stated_wait(self, path: Path) -> None:
        with (
            SqliteMemoryBackend(path, lock_timeout_s=0.2) as memory,
            closing(sqlite3.connect(path, isolation_level=None)) as other,
        ):
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy, match=r"0\.2 s") as caught:
                memory.add_note("x", id="n1")
            assert caught.value.timeout_s == 0.2
            other.execute("ROLLBACK")
            memory.add_note("x", id="n1")
            assert memory.get(GetRequest(("n1",))).missing == ()

    def test_transaction_that_fails_to_begin_keeps_nobody_out(self, path: Path) -> None:
        SqliteMemoryBackend(path).close()
        table = SqliteTable(path)
        # Its content is gone behind its back: the first look inside the transaction fails.
        query(path, "ALTER TABLE fmemory_events RENAME TO elsewhere")
        with pytest.raises(StorageError), table.transaction(None, None):
            pass
        query(path, "ALTER TABLE elsewhere RENAME TO fmemory_events")
        with table.transaction(None, None) as transaction:
            assert transaction.head_seq == 0
        table.close()

    def test_what_a_watcher_raises_does_not_undo_a_commit(self, path: Path) -> None:
        told: list[str] = []
        hook, threading.excepthook = (
            threading.excepthook,
            lambda one: told.append(str(one.exc_value)),
        )
        try:
            with SqliteMemoryBackend(path) as memory:
                memory.journal.watch(lambda: 1 // 0)  # type: ignore[arg-type]
                memory.add_note("x", id="n1")
                assert memory.get(GetRequest(("n1",))).missing == ()
        finally:
            threading.excepthook = hook
        assert told
        assert set(told) == {"integer division or modulo by zero"}

    def test_second_thread_waits_no_longer_than_asked(self, path: Path) -> None:
        inside, go_on = threading.Event(), threading.Event()
        table = SqliteTable(path, lock_timeout_s=0.1)

        def hold() -> None:
            with table.transaction(None, 5.0):
                inside.set()
                assert go_on.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        assert inside.wait(20)
        with pytest.raises(StoreBusy), table.transaction(None, None):
            pass
        go_on.set()
        thread.join(20)
        table.close()

    def test_readers_do_not_wait_for_a_writer(self, path: Path) -> None:
        with (
            SqliteMemoryBackend(path, lock_timeout_s=0.1) as memory,
            closing(sqlite3.connect(path, isolation_level=None)) as other,
        ):
            memory.add_note("x", id="n1")
            other.execute("BEGIN IMMEDIATE")
            assert memory.get(GetRequest(("n1",))).missing == ()
            other.execute("ROLLBACK")


class TestDurability:
    def test_fsync_is_the_default_and_the_receipt_says_so(self, path: Path) -> None:
        with SqliteMemoryBackend(path) as memory:
            memory.add_note("x", id="n1")
            result = memory.put(PutRequest(records=records(1)))
            assert result.receipt is not None
            assert result.receipt.durable
            assert memory.health().durable_seq == 2

    @pytest.mark.parametrize("durability", ["os", "interval"])
    def test_other_policies_acknowledge_before(self, path: Path, durability: str) -> None:
        with SqliteMemoryBackend(path, durability=durability) as memory:  # type: ignore[arg-type]
            result = memory.put(PutRequest(records=records(1)))
            assert result.receipt is not None
            assert not result.receipt.durable
            assert memory.sync() == 1
            assert memory.health().durable_seq == 1


def test_document_names_every_table_and_column(path: Path) -> None:
    SqliteMemoryBackend(path).close()
    document = (Path(__file__).parents[2] / "docs" / "sqlite.md").read_text(encoding="utf-8")
    tables = [name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type='table'")]
    columns = [row[1] for table in tables for row in query(path, f"PRAGMA table_info({table})")]
    assert sorted(tables) == ["fmemory_events", "fmemory_log", "fmemory_streams"]
    assert [name for name in {*tables, *columns} if f"`{name}`" not in document] == []
