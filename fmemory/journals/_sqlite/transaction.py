"""What the one writer of an SQLite file does in its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fmemory.journal import StreamInfo
from fmemory.journals._sqlite.erase import Pages, make_marks, replace_events
from fmemory.journals._tables.event_table import ErasedRow, EventRow, stream_of

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

    def append(self, rows: Sequence[EventRow], streams: Sequence[StreamInfo]) -> None:
        """Insert events and what is known of their streams."""
        keys = {row.stream: stream_of(row.stream) for row in rows}
        key_of = {stream: key for key, stream in keys.items()}
        self._database.executemany(
            _UPSERT_STREAM,
            [
                (
                    key_of[info.stream],
                    info.stream[0],
                    info.revision,
                    info.first_seq,
                    info.last_seq,
                    info.last_recorded_at_ns,
                )
                for info in streams
            ],
        )
        self._database.executemany(_INSERT, [row[:-1] for row in rows])
        erased = [(row.seq,) for row in rows if row.is_erased]
        if erased:
            make_marks(self._database)
            self._database.executemany(_MARK, erased)
        self.last_seq = rows[-1].seq

    def replace(self, rows: Sequence[ErasedRow]) -> None:
        """Update events, none of which then needs more room than before."""
        replace_events(self._database, self._pages, rows)
