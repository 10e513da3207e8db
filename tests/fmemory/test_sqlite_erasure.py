"""Erasure in SQLite files: what is left of what was erased is nothing, and the rest is as it was.

The histories and what is compared are those of `table_erasure`. Seeds are in the names of tests.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fmemory.errors import ContractError, LogCorrupt, ReadOnlyStore, StoreBusy
from fmemory.journal import Blob, DataErased, Erasure
from fmemory.journals._sqlite import SqliteTable
from fmemory.journals._sqlite.erase import Pages, _Row, _zeros_wanted
from fmemory.journals._sqlite.transaction import SqliteTransaction
from fmemory.journals._tables import erase
from fmemory.journals._tables.event_table import ErasedRow
from fmemory.journals._tables.journal import TableJournal
from tests.fmemory.table_erasure import History, Seen, found_in

NOTHING = np.array([], np.uint64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def journal(path: Path) -> Iterator[TableJournal]:
    opened = TableJournal(SqliteTable(path, durability="os"))
    yield opened
    opened.close()


def query(path: Path, statement: str, *arguments: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement, arguments).fetchall()


def traces_left(history: History, path: Path) -> list[bytes]:
    """What the files of a store still hold of what was erased."""
    files = [one for one in path.parent.iterdir() if one.name.startswith(path.name)]
    return found_in(history.traces(erased=True), files)


@pytest.mark.parametrize("page_bytes", [512, 4096, 65536])
@pytest.mark.parametrize("seed", range(3))
def test_erased_bytes_are_gone_and_all_else_is_as_it_was(
    path: Path, seed: int, page_bytes: int
) -> None:
    query(path, f"PRAGMA page_size = {page_bytes}")
    query(path, "CREATE TABLE others (name TEXT)")
    journal = TableJournal(SqliteTable(path, durability="os"))
    history = History(journal, Random(seed))
    for _ in range(4):
        history.grow(25)
        seen = Seen.of(journal, journal.refresh())
        erasure = history.choose(0.3)
        counts = history.note(erasure)
        done = journal.compact(erasure)
        assert (done.erased_rows, done.erased_events) == counts
        assert (done.upto, done.pending, done.notices) == (erasure.upto, (), ())
        assert traces_left(history, path) == []
        assert Seen.of(journal, seen.head.seq) == seen
        history.check()
    journal.close()
    assert traces_left(history, path) == []
    living = list(history.traces(erased=False))
    assert len(found_in(living, [path])) > len(living) / 2  # all but those across two pages
    reopened = TableJournal(SqliteTable(path, read_only=True))
    history.check(reopened)
    assert reopened.head() == seen.head
    reopened.close()


def test_neighbours_of_erased_rows_are_not_copied_about_the_file(
    path: Path, journal: TableJournal
) -> None:
    history = History(journal, Random(5))
    history.grow(150)
    for _ in range(6):
        erasure = history.choose(0.2)
        history.note(erasure)
        assert journal.compact(erasure).pending == ()
        assert unused_parts(path) == []


def test_erased_row_never_takes_more_of_its_page_whatever_its_size_was() -> None:
    """One byte can decide whether a row takes all of a page or 500 bytes of it."""
    pages = Pages(4096)
    taken = ErasedRow(15, bytes(250), 1 << 31, bytes(2000))
    for size in range(8000, 16_400):
        old = _Row(1, 15, 11, None, 1 << 60, 300, 1 << 31, size, None)
        zeros = _zeros_wanted(pages, taken, old)
        assert zeros is not None
        new = old._replace(meta=250, data=2000 + zeros, erased=1)
        # Its record may have the column of the mark, which takes a byte, or be older than that.
        before = [pages.cell_bytes(old.record_bytes() + more, 15) for more in (0, 1)]
        assert pages.cell_bytes(new.record_bytes(), 15) <= min(before), size


def unused_parts(path: Path) -> list[bytes]:
    """What is left between cells and their pointers, but for pointers and heads of free blocks."""
    content = path.read_bytes()
    size = int.from_bytes(content[16:18], "big")
    found = []
    for start in range(0, len(content), size):
        page, head = content[start : start + size], 100 if start == 0 else 0
        if page[head] != 13:
            continue
        cells = int.from_bytes(page[head + 3 : head + 5], "big")
        gap = page[head + 8 + 2 * cells : int.from_bytes(page[head + 5 : head + 7], "big")]
        found += re.findall(rb"[^\0]{16,}", gap)
    return found


def test_what_was_erased_before_is_not_counted_again(journal: TableJournal) -> None:
    history = History(journal, Random(1))
    history.grow(20)
    erasure = history.choose(0.5)
    first = journal.compact(erasure)
    again = journal.compact(erasure)
    assert (first.erased_rows, first.erased_events) == history.note(erasure)
    assert (again.erased_rows, again.erased_events, again.pending) == (0, 0, ())


def test_events_behind_upto_are_left_alone(journal: TableJournal) -> None:
    history = History(journal, Random(2))
    history.grow(20)
    erasure = history.choose(1.0)
    upto = journal.refresh() // 2
    done = journal.compact(Erasure(upto, erasure.locs, erasure.seqs))
    of_rows, of_events = (
        erasure.locs[erasure.locs >> 16 <= upto],
        erasure.seqs[erasure.seqs <= upto],
    )
    counts = history.note(Erasure(upto, of_rows, of_events))
    assert (done.erased_rows, done.erased_events) == counts
    history.check()


def test_reader_that_blocks_the_checkpoint_is_told_and_a_later_call_finishes(
    path: Path, journal: TableJournal
) -> None:
    history = History(journal, Random(3))
    history.grow(20)
    erasure = history.choose(0.5)
    history.note(erasure)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT max(seq) FROM fmemory_events").fetchone()
        done = journal.compact(erasure, timeout_s=0.0)
        assert done.erased_rows > 0
        (told,) = done.pending
        assert f"{path}-wal" in told
        assert traces_left(history, path) != []
        reader.execute("COMMIT")
    assert journal.compact(erasure).pending == ()
    assert traces_left(history, path) == []


def test_file_shrinks_when_it_may_be_rebuilt(path: Path, journal: TableJournal) -> None:
    history = History(journal, Random(4))
    history.grow(60)
    erasure = history.choose(0.95)
    history.note(erasure)
    kept = journal.compact(erasure)
    rebuilt = journal.compact(erasure, exclusive=True)
    assert kept.bytes_after is not None
    assert rebuilt.bytes_after is not None
    assert rebuilt.bytes_after < kept.bytes_after * 0.7
    assert rebuilt.bytes_after == path.stat().st_size
    assert traces_left(history, path) == []
    history.check()


def test_handle_that_read_an_event_before_serves_what_is_there_now(
    path: Path, journal: TableJournal
) -> None:
    history = History(journal, Random(6))
    history.grow(40)
    other = TableJournal(SqliteTable(path))
    history.check(other)
    for _ in range(3):
        erasure = history.choose(0.3)
        history.note(erasure)
        journal.compact(erasure)
        history.check(other)
        page = other.rows(history.locs(erased=False))
        assert sum(map(len, page.blocks)) == len(history.locs(erased=False))
    with pytest.raises(DataErased):
        other.rows(history.locs(erased=True))
    other.close()


def test_iterator_that_began_before_goes_on(path: Path, journal: TableJournal) -> None:
    history = History(journal, Random(7))
    history.grow(40)
    seen = Seen.of(journal, journal.refresh())
    other = TableJournal(SqliteTable(path))
    envelopes, folded = other.envelopes(0, seen.head.seq), other.fold(0, seen.head.seq)
    first = next(envelopes), next(folded)
    erasure = history.choose(0.5)
    history.note(erasure)
    journal.compact(erasure)
    assert [first[0], *envelopes] == seen.envelopes
    assert len([first[1], *folded]) == len(seen.folded)
    assert other.head() == seen.head
    other.close()


def test_writers_get_in_between_two_transactions(
    path: Path, journal: TableJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(journal, Random(8))
    history.grow(40)
    other = TableJournal(SqliteTable(path, durability="os", lock_timeout_s=0.1))
    erasure = history.choose(0.5)
    history.note(erasure)
    written = History(other, Random(9), revisions=history.revisions)
    replace = SqliteTransaction.replace
    refused = []

    def replace_and_try(self: SqliteTransaction, rows: Sequence[ErasedRow]) -> None:
        replace(self, rows)
        try:
            other.commit(lambda _txn: None)
        except StoreBusy:
            refused.append(rows)

    monkeypatch.setattr(SqliteTransaction, "replace", replace_and_try)
    monkeypatch.setattr(erase, "GROUP_EVENTS_MAX", 4)
    forget = journal._reads.forget

    def forget_and_write(seqs: Sequence[int]) -> None:
        forget(seqs)
        written.grow(1)

    monkeypatch.setattr(journal._reads, "forget", forget_and_write)
    journal.compact(erasure)
    assert len(refused) > 3
    assert journal.refresh() == len(history.originals) + len(written.originals)
    assert len(written.originals) >= len(refused)
    history.originals |= written.originals
    history.gone |= written.gone
    history.check()
    other.close()


@pytest.mark.parametrize("stop_at", range(4))
def test_erasure_that_was_stopped_leaves_a_whole_log_and_is_finished_later(
    path: Path, journal: TableJournal, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    history = History(journal, Random(10))
    history.grow(30)
    seen = Seen.of(journal, journal.refresh())
    erasure = history.choose(0.5)
    replace, calls = SqliteTransaction.replace, []

    def replace_or_stop(self: SqliteTransaction, rows: Sequence[ErasedRow]) -> None:
        replace(self, rows)
        calls.append(len(rows))
        if len(calls) > stop_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(erase, "GROUP_EVENTS_MAX", 5)
    monkeypatch.setattr(SqliteTransaction, "replace", replace_or_stop)
    with pytest.raises(KeyboardInterrupt):
        journal.compact(erasure)
    monkeypatch.undo()
    copy = path.with_name("copy.db")
    for end in ("", "-wal"):  # what a killed process leaves
        shutil.copy(f"{path}{end}", f"{copy}{end}")
    killed = TableJournal(SqliteTable(copy))
    assert killed.verify(seen.head) == []
    assert len(list(killed.erased(0, seen.head.seq))) == 5 * stop_at
    rows, events = history.note(erasure)
    done = killed.compact(erasure)
    assert 0 < done.erased_rows + done.erased_events <= rows + events
    assert Seen.of(killed, seen.head.seq) == seen
    history.check(killed)
    killed.close()
    assert traces_left(history, copy) == []


def test_tables_without_the_mark_get_it_when_they_are_opened_for_writing(path: Path) -> None:
    journal = TableJournal(SqliteTable(path))
    history = History(journal, Random(11))
    history.grow(20)
    journal.close()
    query(path, "DROP INDEX fmemory_events_erased")
    query(path, "DROP INDEX fmemory_events_erased_by_stream")
    query(path, "ALTER TABLE fmemory_events DROP COLUMN erased")
    reader = TableJournal(SqliteTable(path, read_only=True))
    history.check(reader)
    writer = TableJournal(SqliteTable(path, create=False))
    erasure = history.choose(0.5)
    history.note(erasure)
    assert writer.compact(erasure).erased_rows > 0
    history.check(writer)
    history.check(reader)
    reader.close()
    writer.close()
    names = {str(name) for (name,) in query(path, "SELECT name FROM sqlite_master")}
    assert {"fmemory_events_erased", "fmemory_events_erased_by_stream"} <= names


def test_event_without_room_asks_for_a_rebuild_until_it_was_made(
    path: Path, journal: TableJournal
) -> None:
    history = History(journal, Random(12))
    history.grow(80)
    # As it was stored before data had room at its end.
    empty = [
        seq for seq, one in history.originals.items() if isinstance(one, Blob) and not one.data
    ]
    query(path, f"UPDATE fmemory_events SET data = substr(data, 1, 16) WHERE seq = {empty[0]}")
    erasure = history.choose(1.0)
    history.note(erasure)
    (told,) = journal.compact(erasure).pending
    assert "exclusive=True" in told
    assert journal.compact(erasure).pending == (told,)
    assert journal.compact(erasure, exclusive=True).pending == ()
    assert journal.compact(erasure).pending == ()
    assert traces_left(history, path) == []


class TestRefused:
    @pytest.fixture
    def history(self, journal: TableJournal) -> History:
        history = History(journal, Random(13))
        history.grow(20)
        return history

    def test_reader_may_not_compact(self, path: Path, history: History) -> None:
        reader = TableJournal(SqliteTable(path, read_only=True))
        with pytest.raises(ReadOnlyStore):
            reader.compact(history.choose(1.0))
        reader.close()
        history.check()

    @pytest.mark.parametrize("wrong", ["row", "event", "rows", "no rows"])
    def test_what_is_not_there_is_refused_before_anything_is_erased(
        self, journal: TableJournal, history: History, wrong: str
    ) -> None:
        chosen = history.choose(1.0)
        head = journal.refresh()
        of_rows = int(history.locs(erased=False)[-1]) >> 16
        locs = {"row": of_rows << 16 | 999, "no rows": int(chosen.seqs[0]) << 16}.get(wrong)
        seqs = {"event": head + 1, "rows": of_rows}.get(wrong)
        erasure = Erasure(
            head + 1,
            chosen.locs if locs is None else np.append(chosen.locs, np.uint64(locs)),
            chosen.seqs if seqs is None else np.append(chosen.seqs, np.uint64(seqs)),
        )
        with pytest.raises(ContractError):
            journal.compact(erasure)
        history.check()

    def test_damaged_event_is_left_alone(
        self, path: Path, journal: TableJournal, history: History
    ) -> None:
        seq = int(history.locs(erased=False)[0]) >> 16
        query(path, "UPDATE fmemory_events SET data = x'00' WHERE seq = ?", seq)
        with pytest.raises(LogCorrupt) as caught:
            journal.compact(Erasure(seq, np.array([seq << 16], np.uint64), NOTHING))
        assert caught.value.seq == seq
        assert list(journal.erased(0, journal.refresh())) == []


@pytest.mark.parametrize("mark", ["NULL", "1"])
def test_wrong_mark_is_named_by_verify(path: Path, journal: TableJournal, mark: str) -> None:
    history = History(journal, Random(14))
    history.grow(10)
    erasure = history.choose(0.4)
    history.note(erasure)
    journal.compact(erasure)
    (seq, *_) = [seq for seq, gone in history.gone.items() if gone.any() == (mark == "NULL")]
    query(path, f"UPDATE fmemory_events SET erased = {mark} WHERE seq = ?", seq)
    assert [(one.first_seq, one.last_seq) for one in journal.verify()] == [(seq, seq)]


def test_erased_events_of_one_stream(journal: TableJournal) -> None:
    history = History(journal, Random(15))
    history.grow(20)
    erasure = history.choose(0.5)
    history.note(erasure)
    journal.compact(erasure)
    head = journal.refresh()
    of_stream = {one.stream: [] for one in journal.streams()}  # type: dict[tuple[str, ...], list[int]]
    for envelope in journal.envelopes(0, head):
        if history.gone[envelope.seq].any():
            of_stream[envelope.stream].append(envelope.seq)
    for stream, seqs in of_stream.items():
        assert [one.seq for one in journal.erased(0, head, stream)] == seqs
        assert [one.seq for one in journal.erased(seqs[0], seqs[-1] - 1, stream)] == seqs[1:-1]


def test_erased_events_are_found_by_an_index(path: Path, journal: TableJournal) -> None:
    statement = (
        "EXPLAIN QUERY PLAN SELECT seq, meta FROM fmemory_events WHERE erased AND seq > 0"
        " AND seq <= 9 {} ORDER BY seq LIMIT 5"
    )
    (told,) = query(path, statement.format(""))
    assert "fmemory_events_erased" in str(told[-1])
    (told,) = query(path, statement.format("AND stream = 3"))
    assert "fmemory_events_erased_by_stream" in str(told[-1])
    assert journal.refresh() == 0
