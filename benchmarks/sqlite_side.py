"""SQLite, set up twice as its documentation advises: with the defaults, and tuned for this work.

Default: a rowid table, 4 KiB pages, write-ahead log, an index on (namespace, timestamp, seq), a
unique index on (namespace, id), the note as one MessagePack blob decoded row by row, the vector as
a blob. Tuned: 16 KiB pages and a memory map (a row of 3 KiB fits a page), the table clustered by
(namespace, timestamp, seq) `WITHOUT ROWID`, note bodies decoded with one call a page. Vectors are
read-only views of the blob that SQLite copied out, the cheapest way to an array of their own.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.dataset import NAMESPACE
from benchmarks.side import Matrix, Side, Vectors
from fmemory import MemoryRecord, Note

MMAP_BYTES = 8 * 1024**3
BUSY_TIMEOUT_S = 30.0
STREAM = "/".join(NAMESPACE)

_ROW_HEADER = b"\x93"  # MessagePack array of three: id, text, metadata

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode

_DEFAULT_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, id TEXT NOT NULL, ts REAL NOT NULL,
    body BLOB NOT NULL, vector BLOB NOT NULL, embedding_id TEXT
);
CREATE INDEX IF NOT EXISTS records_by_time ON records (ns, ts, seq);
CREATE UNIQUE INDEX IF NOT EXISTS records_by_id ON records (ns, id);
"""
_TUNED_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    ns TEXT NOT NULL, ts REAL NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL,
    body BLOB NOT NULL, vector BLOB NOT NULL, embedding_id TEXT,
    PRIMARY KEY (ns, ts, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS records_by_id ON records (ns, id);
"""
_INSERT = (
    "INSERT INTO records (ns, seq, ts, id, body, vector, embedding_id) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_PAGE = (
    "SELECT seq, ts, body, vector, embedding_id FROM records"
    " WHERE ns = ? AND (ts, seq) > (?, ?) ORDER BY ts, seq LIMIT ?"
)
_GET = "SELECT ts, body, vector, embedding_id FROM records WHERE ns = ? AND id = ?"
_COUNT = "SELECT count(*) FROM records WHERE ns = ?"
_VECTORS = "SELECT id, ts, vector FROM records WHERE ns = ? ORDER BY ts, seq"
_PRAGMAS = ("journal_mode", "synchronous", "page_size", "mmap_size", "cache_size")


class SqliteSide:
    """One connection with the default schema, shared by threads under a lock."""

    schema = _DEFAULT_SCHEMA
    page_bytes = 4096
    mmap_bytes = 0

    def __init__(self, path: Path, *, dim: int, dtype: str, durable: bool) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._dim = dim
        self._dtype = np.dtype(dtype)
        self._database = sqlite3.connect(
            path / "records.db",
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        self._database.execute(f"PRAGMA page_size = {self.page_bytes}")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        self._database.execute(f"PRAGMA mmap_size = {self.mmap_bytes}")
        self._database.executescript(self.schema)

    def put(self, records: Sequence[MemoryRecord]) -> None:
        rows = [self._row(record, seq) for record, seq in zip(records, self._seqs(), strict=False)]
        with self._lock:
            if len(rows) == 1:
                # One statement is a transaction of its own; BEGIN and COMMIT only add two calls.
                self._database.execute(_INSERT, rows[0])
                return
            self._database.execute("BEGIN IMMEDIATE")
            with self._database:  # commits, or rolls back if a row is refused
                self._database.executemany(_INSERT, rows)

    def pages(self, limit: int) -> Iterator[Sequence[MemoryRecord]]:
        place = (float("-inf"), 0)
        while rows := self._database.execute(_PAGE, (STREAM, *place, limit)).fetchall():
            place = (rows[-1][1], rows[-1][0])
            yield self._records(rows)

    def get(self, record_id: str) -> MemoryRecord:
        row = self._database.execute(_GET, (STREAM, record_id)).fetchone()
        return self._record(*row)

    def vectors(self) -> Vectors:
        matrix = self._empty_matrix()
        ids: list[str] = []
        timestamps: list[float] = []
        for i, (record_id, timestamp, blob) in enumerate(
            self._database.execute(_VECTORS, (STREAM,))
        ):
            matrix[i] = np.frombuffer(blob, self._dtype)
            ids.append(record_id)
            timestamps.append(timestamp)
        return Vectors(ids, timestamps, matrix)

    def settings(self) -> str:
        values = [
            f"{name}={self._database.execute(f'PRAGMA {name}').fetchone()[0]}" for name in _PRAGMAS
        ]
        return f"SQLite {sqlite3.sqlite_version}, {', '.join(values)}"

    def close(self) -> None:
        self._database.execute("PRAGMA optimize")
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()

    def _seqs(self) -> Iterator[int | None]:
        return repeat(None)  # SQLite draws the next rowid

    def _row(self, record: MemoryRecord, seq: int | None) -> tuple[object, ...]:
        note = record.note
        return (
            STREAM,
            seq,
            note.timestamp,
            note.id,
            self._body(note),
            record.vector,  # bound through the buffer protocol, without a copy in Python
            record.embedding_id,
        )

    def _body(self, note: Note) -> bytes:
        return _encode((note.id, note.text, note.metadata))

    def _records(self, rows: list[tuple[Any, ...]]) -> list[MemoryRecord]:
        dtype = self._dtype
        records: list[MemoryRecord] = []
        for _, timestamp, body, blob, embedding_id in rows:
            record_id, text, metadata = _decode(body)
            note = Note(record_id, text, timestamp, metadata)
            vector = np.frombuffer(blob, dtype)
            records.append(MemoryRecord(note, vector, embedding_id, NAMESPACE))
        return records

    def _record(
        self, timestamp: float, body: bytes, blob: bytes, embedding_id: str | None
    ) -> MemoryRecord:
        record_id, text, metadata = _decode(body)
        note = Note(record_id, text, timestamp, metadata)
        return MemoryRecord(note, np.frombuffer(blob, self._dtype), embedding_id, NAMESPACE)

    def _empty_matrix(self) -> Matrix:
        count = self._database.execute(_COUNT, (STREAM,)).fetchone()[0]
        return np.empty((count, self._dim), self._dtype)


class TunedSqliteSide(SqliteSide):
    """One connection with the tuned schema and pragmas."""

    schema = _TUNED_SCHEMA
    page_bytes = 16_384
    mmap_bytes = MMAP_BYTES

    def __init__(self, path: Path, *, dim: int, dtype: str, durable: bool) -> None:
        super().__init__(path, dim=dim, dtype=dtype, durable=durable)
        last = self._database.execute("SELECT max(seq) FROM records").fetchone()[0]
        self._next_seqs = itertools.count((last or 0) + 1)

    def vectors(self) -> Vectors:
        matrix = self._empty_matrix()
        target = matrix.data.cast("B") if matrix.size else memoryview(bytearray())
        width = self._dim * self._dtype.itemsize
        ids: list[str] = []
        timestamps: list[float] = []
        start = 0
        for record_id, timestamp, blob in self._database.execute(_VECTORS, (STREAM,)):
            target[start : start + width] = blob
            start += width
            ids.append(record_id)
            timestamps.append(timestamp)
        return Vectors(ids, timestamps, matrix)

    def _seqs(self) -> Iterator[int | None]:
        return self._next_seqs

    def _body(self, note: Note) -> bytes:
        return super()._body(note)[1:]  # without the array header: bodies of a page are joined

    def _records(self, rows: list[tuple[Any, ...]]) -> list[MemoryRecord]:
        _, timestamps, bodies, blobs, embedding_ids = zip(*rows, strict=True)
        header = b"\xdd" + (3 * len(rows)).to_bytes(4, "big")
        fields = _decode(header + b"".join(bodies))
        notes = map(Note, fields[0::3], fields[1::3], timestamps, fields[2::3])
        vectors = map(np.frombuffer, blobs, repeat(self._dtype))
        return list(map(MemoryRecord, notes, vectors, embedding_ids, repeat(NAMESPACE)))

    def _record(
        self, timestamp: float, body: bytes, blob: bytes, embedding_id: str | None
    ) -> MemoryRecord:
        return super()._record(timestamp, _ROW_HEADER + body, blob, embedding_id)


@dataclass(frozen=True, slots=True)
class Sqlite:
    """SQLite with the defaults of its documentation."""

    name: str = "SQLite"
    persistent: bool = True

    def open(self, path: Path, *, dim: int, dtype: str, durable: bool) -> Side:
        return SqliteSide(path, dim=dim, dtype=dtype, durable=durable)


@dataclass(frozen=True, slots=True)
class TunedSqlite:
    """SQLite with the pragmas and the schema that suit this work best."""

    name: str = "SQLite tuned"
    persistent: bool = True

    def open(self, path: Path, *, dim: int, dtype: str, durable: bool) -> Side:
        return TunedSqliteSide(path, dim=dim, dtype=dtype, durable=durable)
