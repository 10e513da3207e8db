"""What the one writer of an SQLite file does in its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from fmemory.journal import StreamInfo
from fmemory.journals._sqlite.erase import Pages, make_marks, replace_events
from fmemory.journals._tables.event_table import ErasedRow, EventRow, stream_key

STREAM_ID = "(SELECT id FROM fmemory_streams WHERE key = ?)"

_UPSERT_STREAM = """
INSERT INTO fmemory_streams (key, kind, revision, first_seq, last_seq, last_recorded_at_ns)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET revision = excluded.revision,
    last_seq = excluded.last_seq, last_recorded_at_ns = excluded.last_recorded_at_ns
"""
_INSERT = f"""
INSERT INTO fmemory_events
    (seq, stream, revision, type, event_id, recorded_at_ns, meta, checksum, data)
VALUES (?, {STREAM_ID}, ?, ?, ?, ?, ?, ?, ?)
"""
_MARK = "UPDATE fmemory_events SET erased = 1 WHERE seq = ?"


class SqliteTransaction:
    """The transaction of the one writer."""

    def __init__(
        self, database: sqlite3.Connection, pages: Pages, head_seq: int, head_ns: int
    ) -> None:
        self._database = database
        self._pages = pages
        self.head_seq = head_seq
        self.head_ns = head_ns
        self.last_seq = head_seq

    def append(self, rows: Iterable[EventRow], streams: Sequence[StreamInfo]) -> None:
        """Insert events and what is known of their streams."""
        self._database.executemany(
            _UPSERT_STREAM,
            [
                (
                    stream_key(info.stream),
                    info.stream[0],
                    info.revision,
                    info.first_seq,
                    info.last_seq,
                    info.last_recorded_at_ns,
                )
                for info in streams
            ],
        )
        erased: list[tuple[int]] = []
        self._database.executemany(_INSERT, self._values(rows, erased))
        if erased:
            make_marks(self._database)
            self._database.executemany(_MARK, erased)

    def _values(
        self, rows: Iterable[EventRow], erased: list[tuple[int]]
    ) -> Iterator[tuple[object, ...]]:
        """What is inserted for each event; of those that are erased the seq is noted."""
        for row in rows:
            if row.is_erased:
                erased.append((row.seq,))
            self.last_seq = row.seq
            yield row[:-1]

    def replace(self, rows: Sequence[ErasedRow]) -> None:
        """Update events, none of which then needs more room than before."""
        replace_events(self._database, self._pages, rows)
