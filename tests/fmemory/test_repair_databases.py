"""Repairs of logs in databases, whose own pages may be damaged too, and of any journal."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

import fmemory
from fmemory import LogCorrupt, MemoryRecord, NewEvent, Note, PutRequest
from fmemory.journal import Payload
from fmemory.journals import MemoryJournal
from fmemory.journals._sqlite.pages import LEAF_TABLE
from fmemory.journals._sqlite.salvage import SqliteSalvage
from fmemory_segments.salvage import Salvaged
from tests.fmemory.copy_tools import plain
from tests.fmemory.repair_tools import (
    Events,
    bytes_at,
    changed,
    check_memory,
    events_of,
    fill,
    salvaged,
    small_store,
)

PAGE = 4096
ROUNDS = int(os.environ.get("FMEMORY_TEST_ROUNDS", "1"))


def left_open(folder: Path, *, rounds: int = 3) -> tuple[str, Events]:
    """A database whose write-ahead log holds all of it, as a process that was killed leaves it."""
    target = f"sqlite:///{folder}/source.db"
    with fmemory.open(f"sqlite:///{folder}/live.db") as memory:
        fill(memory, rounds=rounds)
        events = events_of(memory)
        for suffix in ("", "-wal"):
            (folder / f"source.db{suffix}").write_bytes((folder / f"live.db{suffix}").read_bytes())
    return target, events


def test_what_only_the_write_ahead_log_holds_is_salvaged(tmp_path: Path) -> None:
    source, events = left_open(tmp_path)
    assert (tmp_path / "source.db-wal").stat().st_size > 0

    result = salvaged(source, events)

    assert (result.salvaged, result.is_whole) == (len(events), True)


def test_a_damaged_page_of_the_write_ahead_log_costs_at_most_what_is_in_it(tmp_path: Path) -> None:
    source, events = left_open(tmp_path)
    wal = tmp_path / "source.db-wal"
    whole = wal.read_bytes()

    for at in range(0, len(whole), PAGE):
        wal.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        result = salvaged(source, events)
        is_counted = result.salvaged + result.lost_events == len(events)
        assert is_counted or not result.is_end_known, at


def test_a_write_ahead_log_without_its_header_is_read(tmp_path: Path) -> None:
    source, events = left_open(tmp_path)
    changed(tmp_path / "source.db-wal", lambda data: data.__setitem__(slice(16), bytes(16)))

    assert salvaged(source, events).salvaged == len(events)


def test_pages_that_lead_to_rows_are_not_needed_to_read_them(tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/source.db"
    with fmemory.open(target, durability="os") as memory:
        for number in range(60):
            memory.append(("own",), [NewEvent("tool.said", "x" * 400 + str(number))])
        events = events_of(memory)
    path = tmp_path / "source.db"
    data = bytearray(path.read_bytes())
    inner = [at for at in range(PAGE, len(data), PAGE) if data[at] == 5]
    assert inner, "a table of this size has pages above its leaves"
    for at in inner:
        data[at : at + PAGE] = bytes(PAGE)
    path.write_bytes(data)

    result = salvaged(target, events)

    assert (result.salvaged, result.is_whole) == (60, True)


def test_events_larger_than_a_page_come_back(tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/source.db"
    with fmemory.open(target) as memory:
        memory.append(("own",), [NewEvent("tool.said", "y" * size) for size in (100, 9000, 70_000)])
        memory.put(
            PutRequest(
                [MemoryRecord(Note(f"n{n}", "z" * 500, 0.0, {}), np.ones(64)) for n in range(40)]
            )
        )
        events = events_of(memory)

    assert salvaged(target, events).salvaged == len(events)


def test_a_zeroed_leaf_loses_its_rows_and_the_streams_tell_how_many(tmp_path: Path) -> None:
    source, events = small_store("sqlite", tmp_path, rounds=4)
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as database:
        root = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'fmemory_events'"
        ).fetchone()[0]
    data = bytearray(path.read_bytes())
    at = (root - 1) * PAGE
    assert data[at] == LEAF_TABLE, "all events fit into one leaf"
    data[at : at + PAGE] = bytes(PAGE)
    path.write_bytes(data)

    result = salvaged(source, events)

    assert (result.salvaged, result.lost_events) == (0, len(events))


def test_an_empty_log_is_whole_and_one_whose_rows_are_gone_is_not(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    fmemory.open(source).close()
    assert salvaged(source, []).is_whole
    changed(
        tmp_path / "source.db", lambda data: data.__setitem__(slice(5000, 20_000), b"x" * 15_000)
    )

    result = salvaged(source, [])

    assert not result.is_end_known


def test_a_number_of_pages_that_is_damaged_is_not_believed(tmp_path: Path) -> None:
    source, events = small_store("sqlite", tmp_path)
    changed(tmp_path / "source.db", lambda data: data.__setitem__(slice(28, 32), b"\xff" * 4))

    assert salvaged(source, events).salvaged == len(events)


def test_other_peoples_tables_are_no_events(tmp_path: Path) -> None:
    source, events = small_store("sqlite", tmp_path)
    with closing(sqlite3.connect(tmp_path / "source.db")) as database, database:
        database.execute(
            "CREATE TABLE mine (id INTEGER PRIMARY KEY, a INT, b INT, c TEXT, d TEXT, e INT,"
            " f BLOB, g INT, h BLOB)"
        )
        rows = [(n, 1, 2, "type", None, 5, b"meta", 7, b"data") for n in range(1, 30)]
        database.executemany("INSERT INTO mine VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    result = salvaged(source, events)

    assert (result.salvaged, result.lost) == (len(events), ())


def test_reading_makes_no_file_beside_the_database(tmp_path: Path) -> None:
    source, _ = small_store("sqlite", tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())

    found = list(SqliteSalvage(Path(source.removeprefix("sqlite:///"))).found())

    assert any(isinstance(one, Salvaged) for one in found)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_garbage_in_any_page_is_never_taken_for_an_event(tmp_path: Path) -> None:
    source, events = small_store("sqlite", tmp_path, rounds=4)
    path = tmp_path / "source.db"
    whole = path.read_bytes()
    seed = 7
    print(f"seed {seed}")
    random = Random(seed)
    for _ in range(40 * ROUNDS):
        data = bytearray(whole)
        for _ in range(random.choice((1, 5, 50))):
            at = random.randrange(len(data) - 64)
            data[at : at + 64] = random.randbytes(64)
        path.write_bytes(data)
        result = salvaged(source, events)
        assert result.salvaged + result.lost_events == len(events) or not result.is_end_known


# PostgreSQL

CHANGES = {
    "data": "UPDATE fmemory_events SET data = set_byte(data, 40, 255) WHERE seq = 3",
    "no data": "UPDATE fmemory_events SET data = '' WHERE seq = 3",
    "meta": "UPDATE fmemory_events SET meta = set_byte(meta, 3, 255) WHERE seq = 3",
    "removed": "DELETE FROM fmemory_events WHERE seq = 3",
}


def execute(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize("change", ["nothing", *CHANGES])
def test_a_log_in_postgres_loses_only_what_was_changed(postgres_url: str, change: str) -> None:
    with fmemory.open(postgres_url) as memory:
        fill(memory)
        events = events_of(memory)
    if change in CHANGES:
        execute(postgres_url, CHANGES[change])

    with fmemory.open(":memory:") as target:
        result = fmemory.repair(postgres_url, target)
        check_memory(target, result, events)

    lost = [seq for one in result.lost for seq in range(one.first_seq, one.last_seq + 1)]
    assert lost == ([3] if change in ("meta", "removed") else [])
    assert [one.seq for one in result.damaged] == ([3] if "data" in change else [])
    assert result.head_matches is (True if change == "nothing" else None)


def test_a_log_in_postgres_is_a_target(postgres_url: str, tmp_path: Path) -> None:
    source, events = small_store("segments", tmp_path)
    before = bytes_at(source)

    fmemory.repair(source, postgres_url)

    with fmemory.open(postgres_url) as memory:
        assert [one for one, _ in events_of(memory)] == [one for one, _ in events]
    assert bytes_at(source) == before


# Any journal


class Damaged(MemoryJournal):
    """A journal that cannot give out some payloads as a whole, and some rows of them."""

    damaged_seqs: tuple[int, ...] = ()
    damaged_locs: tuple[int, ...] = ()

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        if bad := [seq for seq in seqs if seq in self.damaged_seqs]:
            raise LogCorrupt("expected a payload, got damage", seq=bad[0])
        return super().payloads(seqs)

    def row(self, loc: int):  # type: ignore[no-untyped-def]
        if loc in self.damaged_locs:
            raise LogCorrupt("expected a row, got damage", seq=loc >> 16)
        return super().row(loc)


def test_of_any_journal_the_rows_that_can_be_read_live(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "source") as memory:
        fill(memory, rounds=3)
        events = events_of(memory)
    put = next(one.seq for one, _ in reversed(events) if one.type == "records_put")
    journal = Damaged()
    journal.import_exact([fmemory.journal.StoredEvent(*one) for one in events])
    journal.damaged_seqs, journal.damaged_locs = (2, put), (put << 16 | 1,)

    with fmemory.open(":memory:") as target:
        result = fmemory.repair(journal, target)
        found = events_of(target)

    assert [(one.seq, one.keys, one.is_payload_lost) for one in result.damaged] == [
        (2, (), True),
        (put, ("n2-1",), False),
    ]
    assert [one for one, _ in found] == [one for one, _ in events]
    assert all(
        plain(payload) == plain(was)
        for (one, payload), (_, was) in zip(found, events, strict=True)
        if one.seq not in (2, put)
    )
