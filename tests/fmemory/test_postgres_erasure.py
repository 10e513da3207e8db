"""Erasure in PostgreSQL: what is erased, what stays, and what is left in the server's files.

The histories and what is compared are those of `table_erasure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fmemory.errors import ContractError, StoreBusy
from fmemory.journal import DataErased, Erasure
from fmemory.journals._postgres import open_table
from fmemory.journals._postgres.commit import Committer, PostgresTransaction
from fmemory.journals._postgres.connections import Connection, Connections
from fmemory.journals._postgres.target import PostgresTarget
from fmemory.journals._tables import erase
from fmemory.journals._tables.event_table import ErasedRow
from fmemory.journals._tables.journal import TableJournal
from tests.fmemory.table_erasure import History, Seen, found_in
from tests.postgres import own_server


def opened(url: str, *, read_only: bool = False, lock_timeout_s: float = 5.0) -> TableJournal:
    target = PostgresTarget.from_url(url)
    return TableJournal(open_table(target, read_only=read_only, lock_timeout_s=lock_timeout_s))


@pytest.fixture
def journal(postgres_url: str) -> Iterator[TableJournal]:
    journal = opened(postgres_url)
    yield journal
    journal.close()


def execute(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize("seed", range(3))
def test_what_is_erased_is_gone_and_all_else_is_as_it_was(
    journal: TableJournal, postgres_url: str, seed: int
) -> None:
    history = History(journal, Random(seed))
    for _ in range(3):
        history.grow(15)
        seen = Seen.of(journal, journal.refresh())
        erasure = history.choose(0.3)
        counts = history.note(erasure)
        done = journal.compact(erasure)
        assert (done.erased_rows, done.erased_events) == counts
        assert Seen.of(journal, seen.head.seq) == seen
        history.check()
    reader = opened(postgres_url, read_only=True)
    history.check(reader)
    assert reader.head() == seen.head
    reader.close()


def test_no_byte_is_in_the_tables_of_the_server_after_an_exclusive_compaction() -> None:
    with own_server() as server:
        url = server.postgres.create_database()
        journal = opened(url)
        history = History(journal, Random(3))
        history.grow(30)
        erasure = history.choose(0.6)
        history.note(erasure)
        (told,) = journal.compact(erasure).pending
        assert "exclusive=True" in told
        execute(url, "CHECKPOINT")
        assert traces_left(history, server._folder) != []
        done = journal.compact(erasure, exclusive=True)
        assert (done.erased_rows, done.erased_events, done.pending) == (0, 0, ())
        assert done.bytes_after is not None
        assert done.bytes_before is not None
        assert done.bytes_after < done.bytes_before
        history.check()
        journal.close()
        execute(url, "CHECKPOINT")
        assert traces_left(history, server._folder) == []
        living = list(history.traces(erased=False))
        assert len(found_in(living, table_files(server._folder))) > len(living) / 2


def table_files(folder: Path) -> list[Path]:
    """Files of tables; the server's log of writes is its administrator's."""
    return [one for one in (folder / "base").rglob("*") if one.is_file()]


def traces_left(history: History, folder: Path) -> list[bytes]:
    return found_in(history.traces(erased=True), table_files(folder))


def test_transaction_that_may_still_see_old_versions_is_told(
    journal: TableJournal, postgres_url: str
) -> None:
    import psycopg

    history = History(journal, Random(4))
    history.grow(10)
    erasure = history.choose(0.5)
    with psycopg.connect(postgres_url) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        # Its snapshot is older than the erasure, and it holds no lock on the table of events.
        other.execute("SELECT count(*) FROM fmemory_logs")
        (told,) = journal.compact(erasure, exclusive=True).pending
        assert "a transaction that began before" in told
        other.execute("ROLLBACK")
    assert journal.compact(erasure, exclusive=True).pending == ()


def test_reader_that_holds_the_table_makes_the_rebuild_pending(
    journal: TableJournal, postgres_url: str
) -> None:
    import psycopg

    history = History(journal, Random(5))
    history.grow(10)
    erasure = history.choose(0.5)
    counts = history.note(erasure)
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT count(*) FROM fmemory_events")
        done = journal.compact(erasure, timeout_s=0.1, exclusive=True)
        assert (done.erased_rows, done.erased_events) == counts
        assert "VACUUM FULL could not run" in done.pending[0]
    assert journal.compact(erasure, exclusive=True).pending == ()


def test_log_that_erased_nothing_has_nothing_pending(journal: TableJournal) -> None:
    History(journal, Random(6)).grow(3)
    nothing = Erasure(journal.refresh(), np.array([], np.uint64), np.array([], np.uint64))
    assert journal.compact(nothing).pending == ()


def test_handle_that_read_an_event_before_serves_what_is_there_now(
    journal: TableJournal, postgres_url: str
) -> None:
    history = History(journal, Random(7))
    history.grow(20)
    other = opened(postgres_url)
    history.check(other)
    for _ in range(2):
        erasure = history.choose(0.3)
        history.note(erasure)
        journal.compact(erasure)
        page = other.rows(history.locs(erased=False))
        assert sum(map(len, page.blocks)) == len(history.locs(erased=False))
        history.check(other)
    with pytest.raises(DataErased):
        other.rows(history.locs(erased=True))
    other.close()


@pytest.mark.parametrize("stop_at", range(3))
def test_erasure_that_was_stopped_leaves_a_whole_log_and_is_finished_later(
    journal: TableJournal, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    history = History(journal, Random(8))
    history.grow(20)
    seen = Seen.of(journal, journal.refresh())
    erasure = history.choose(0.5)
    replace, calls = PostgresTransaction.replace, []

    def replace_or_stop(self: PostgresTransaction, rows: Sequence[ErasedRow]) -> None:
        replace(self, rows)
        calls.append(len(rows))
        if len(calls) > stop_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(erase, "GROUP_EVENTS_MAX", 5)
    monkeypatch.setattr(PostgresTransaction, "replace", replace_or_stop)
    with pytest.raises(KeyboardInterrupt):
        journal.compact(erasure)
    monkeypatch.undo()
    assert journal.verify(seen.head) == []
    assert len(list(journal.erased(0, seen.head.seq))) == 5 * stop_at
    rows, events = history.note(erasure)
    done = journal.compact(erasure)
    assert 0 < done.erased_rows + done.erased_events <= rows + events
    assert Seen.of(journal, seen.head.seq) == seen
    history.check()


@pytest.mark.parametrize("is_committed", [False, True])
def test_connection_lost_around_commit_is_settled_and_counted_right(
    journal: TableJournal, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    import psycopg

    from fmemory.errors import StorageError

    history = History(journal, Random(9))
    history.grow(10)
    erasure = history.choose(0.5)
    send = Committer._send

    def send_and_lose(
        self: Committer, connection: psycopg.Connection, transaction: PostgresTransaction
    ) -> str | None:
        monkeypatch.undo()
        if is_committed:
            send(self, connection, transaction)
        connection.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(Committer, "_send", send_and_lose)
    if is_committed:
        done = journal.compact(erasure)
        assert (done.erased_rows, done.erased_events) == history.note(erasure)
    else:
        with pytest.raises(StorageError):
            journal.compact(erasure)
        history.check()
        history.note(erasure)
        journal.compact(erasure)
    history.check()


def test_writer_goes_on_between_transactions_and_is_kept_out_of_them(
    journal: TableJournal, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(journal, Random(10))
    history.grow(20)
    other = opened(postgres_url, lock_timeout_s=0.05)
    written = History(other, Random(11), revisions=history.revisions)
    erasure = history.choose(0.5)
    history.note(erasure)
    replace, refused, forget = PostgresTransaction.replace, [], journal._reads.forget

    def replace_and_try(self: PostgresTransaction, rows: Sequence[ErasedRow]) -> None:
        replace(self, rows)
        try:
            other.commit(lambda _txn: None)
        except StoreBusy:
            refused.append(rows)

    def forget_and_write(seqs: Sequence[int]) -> None:
        forget(seqs)
        written.grow(1)

    monkeypatch.setattr(PostgresTransaction, "replace", replace_and_try)
    monkeypatch.setattr(erase, "GROUP_EVENTS_MAX", 5)
    monkeypatch.setattr(journal._reads, "forget", forget_and_write)
    journal.compact(erasure)
    assert len(refused) > 2
    assert len(written.originals) >= len(refused)
    history.originals |= written.originals
    history.gone |= written.gone
    history.check()
    other.close()


def test_logs_of_one_database_are_apart(journal: TableJournal, postgres_url: str) -> None:
    sign = "&" if "?" in postgres_url else "?"
    other = opened(f"{postgres_url}{sign}log=other")
    history, untouched = History(journal, Random(12)), History(other, Random(13))
    history.grow(10)
    untouched.grow(10)
    erasure = history.choose(1.0)
    history.note(erasure)
    journal.compact(erasure, exclusive=True)
    history.check()
    untouched.check()
    other.close()


def test_tables_without_the_mark_get_it_when_they_are_opened_for_writing(
    postgres_url: str,
) -> None:
    journal = opened(postgres_url)
    history = History(journal, Random(14))
    history.grow(10)
    journal.close()
    execute(postgres_url, "ALTER TABLE fmemory_events DROP COLUMN erased")
    reader = opened(postgres_url, read_only=True)
    history.check(reader)
    writer = opened(postgres_url)
    erasure = history.choose(0.5)
    history.note(erasure)
    writer.compact(erasure)
    history.check(writer)
    history.check(reader)
    reader.close()
    writer.close()


def test_what_is_not_there_is_refused_before_anything_is_erased(journal: TableJournal) -> None:
    history = History(journal, Random(15))
    history.grow(10)
    erasure = history.choose(1.0)
    head = journal.refresh()
    with pytest.raises(ContractError):
        journal.compact(
            Erasure(head + 1, erasure.locs, np.append(erasure.seqs, np.uint64(head + 1)))
        )
    history.check()


@pytest.mark.parametrize("mark", ["NULL", "true"])
def test_wrong_mark_is_named_by_verify(journal: TableJournal, postgres_url: str, mark: str) -> None:
    history = History(journal, Random(16))
    history.grow(10)
    erasure = history.choose(0.4)
    history.note(erasure)
    journal.compact(erasure)
    (seq, *_) = [seq for seq, gone in history.gone.items() if gone.any() == (mark == "NULL")]
    execute(postgres_url, f"UPDATE fmemory_events SET erased = {mark} WHERE seq = {seq}")
    assert [(one.first_seq, one.last_seq) for one in journal.verify()] == [(seq, seq)]


def test_someone_who_may_not_vacuum_is_told(
    journal: TableJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(journal, Random(17))
    history.grow(10)
    erasure = history.choose(0.5)
    counts = history.note(erasure)
    connect = Connections.connect

    def connect_as_reader(self: Connections) -> Connection:
        connection = connect(self)
        connection.execute("SET ROLE pg_read_all_data")
        return connection

    # What is connected already goes on as the owner; VACUUM has a connection of its own.
    monkeypatch.setattr(Connections, "connect", connect_as_reader)
    done = journal.compact(erasure, exclusive=True)
    assert (done.erased_rows, done.erased_events) == counts
    assert "VACUUM FULL was refused" in done.pending[0]
    history.check()
