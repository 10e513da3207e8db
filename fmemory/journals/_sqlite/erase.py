"""Taking data out of an SQLite file for good: rows stored anew where they lie, and what is behind.

`secure_delete` overwrites what a row or a page gives up, but not what SQLite leaves behind when it
moves neighbours to other pages: a copy of them stays in the unused middle of a page, where nothing
overwrites it when they are erased later. So nothing is ever moved here. SQLite moves rows when one
of them needs more of its page than before; an event that is stored anew gets as many zeros behind
its data as it takes not to. Where that cannot be had, the log remembers that its file wants VACUUM.

Sizes are those of https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from fmemory.errors import StoreBusy
from fmemory.journals._sqlite.descriptors import HEADER_BYTES, read_header
from fmemory.journals._sqlite.file import PAUSE_S_MAX, polled
from fmemory.journals._tables.event_table import ErasedRow
from fmemory_segments import FORGOTTEN

PENDING_VACUUM: Final = (
    "VACUUM: unused parts of pages may hold copies of erased rows; compact with exclusive=True"
)
UNCLEAN: Final = "unclean"
"""Key of `fmemory_log`: since the last VACUUM, unused parts of pages may hold copies of rows."""

_MARKS = """
ALTER TABLE fmemory_events ADD COLUMN erased INTEGER;
CREATE INDEX IF NOT EXISTS fmemory_events_erased ON fmemory_events (seq) WHERE erased;
CREATE INDEX IF NOT EXISTS fmemory_events_erased_by_stream ON fmemory_events (stream, seq)
    WHERE erased
"""
_SIZES = """
SELECT stream, revision, length(CAST(type AS BLOB)), length(CAST(event_id AS BLOB)), recorded_at_ns,
    length(meta), checksum, length(data), erased
FROM fmemory_events WHERE seq = ?
"""
_REPLACE = "UPDATE fmemory_events SET meta = ?, checksum = ?, data = ?, erased = 1 WHERE seq = ?"
_FORGET = f"UPDATE fmemory_events SET type = '{FORGOTTEN}', event_id = NULL WHERE seq = ?"
SPARE_BYTES: Final = 8
_INTEGER_BYTES: Final = ((0x7F, 1), (0x7FFF, 2), (0x7FFFFF, 3), (0x7FFFFFFF, 4), ((1 << 47) - 1, 6))


class Pages(NamedTuple):
    """Pages of a file.

    Attributes:
        usable: Bytes of each that SQLite uses.
    """

    usable: int

    def cell_bytes(self, payload: int, seq: int) -> int:
        """What a row with a record of this size takes of its page.

        >>> Pages(4096).cell_bytes(4061, 1), Pages(4096).cell_bytes(4062, 1)
        (4064, 496)
        """
        local = payload
        if payload > self.most:
            local = self._tail(payload)
            local = (local if local <= self.most else self._least) + 4
        return _varint(payload) + _varint(seq) + local

    def to_next_fall(self, payload: int) -> int:
        """How much larger a record must be to take less of its page.

        >>> Pages(4096).to_next_fall(4000)
        62
        """
        return self.most + 1 - (payload if payload <= self.most else self._tail(payload))

    @property
    def most(self) -> int:
        """The largest record that lies in its page as a whole."""
        return self.usable - 35

    @property
    def _least(self) -> int:
        return (self.usable - 12) * 32 // 255 - 23

    def _tail(self, payload: int) -> int:
        return self._least + (payload - self._least) % (self.usable - 4)


class _Row(NamedTuple):
    """An event's row, as far as sizes go; texts and blobs by their length in bytes."""

    stream: int
    revision: int
    type: int
    event_id: int | None
    recorded_at_ns: int
    meta: int
    checksum: int
    data: int
    erased: int | None

    def record_bytes(self) -> int:
        """Size of its record, at least: a row may be older than the column of the mark."""
        integers = (self.stream, self.revision, self.recorded_at_ns, self.checksum)
        strings = (self.type, self.meta, self.data)
        head = 1 if self.erased is None else 2  # seq and mark, which take no room themselves
        head += len(integers) + sum(_varint(13 + 2 * size) for size in strings)
        body = sum(map(_integer_bytes, integers)) + sum(strings)
        head += 1 if self.event_id is None else _varint(13 + 2 * self.event_id)
        body += self.event_id or 0
        return head + (1 if head < 127 else 2) + body


def has_marks(database: sqlite3.Connection) -> bool:
    """Whether the table of events has the column that marks erased ones."""
    columns = database.execute("PRAGMA table_info(fmemory_events)").fetchall()
    return any(column[1] == "erased" for column in columns)


def add_marks(database: sqlite3.Connection, path: Path, timeout_s: float) -> None:
    """Add that column to tables that were made before there was one.

    Raises:
        StoreBusy: Others were writing all the time.
        sqlite3.Error: The file cannot be written.
    """
    if has_marks(database):
        return
    polled(lambda: database.execute("BEGIN IMMEDIATE").close(), path, timeout_s)
    try:
        make_marks(database)
        database.execute("COMMIT").close()
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK").close()
        raise


def make_marks(database: sqlite3.Connection) -> None:
    """Add the column within a transaction; it takes no room in a row."""
    if not has_marks(database):
        for statement in _MARKS.split(";\n"):
            database.execute(statement).close()


def pages_of(database: sqlite3.Connection, path: Path) -> Pages:
    """Pages of a database."""
    (size,) = database.execute("PRAGMA page_size").fetchone()
    header = read_header(path)
    return Pages(size - (header[20] if len(header) == HEADER_BYTES else 0))


def replace_events(database: sqlite3.Connection, pages: Pages, rows: Sequence[ErasedRow]) -> None:
    """Store events anew within a transaction, each where it is."""
    make_marks(database)
    is_clean = True
    for row in rows:
        old = _Row(*database.execute(_SIZES, (row.seq,)).fetchone())
        zeros = _zeros_wanted(pages, row, old)
        is_clean = is_clean and zeros is not None
        data = row.data + bytes(zeros or 0)
        database.execute(_REPLACE, (row.meta, row.check, data, row.seq)).close()
        if row.is_stub:
            database.execute(_FORGET, (row.seq,)).close()
            # Entries of the index of ids are moved as SQLite likes.
            is_clean = is_clean and old.event_id is None
    if not is_clean:
        database.execute(
            "INSERT OR REPLACE INTO fmemory_log (key, value) VALUES (?, 1)", (UNCLEAN,)
        ).close()


def is_unclean(database: sqlite3.Connection) -> bool:
    """Whether rows were moved since the last VACUUM."""
    row = database.execute("SELECT value FROM fmemory_log WHERE key = ?", (UNCLEAN,)).fetchone()
    return row is not None


def rebuild(database: sqlite3.Connection, path: Path, timeout_s: float) -> tuple[str, ...]:
    """VACUUM; a sentence if others were writing all the time."""
    try:
        polled(lambda: database.execute("VACUUM").close(), path, timeout_s)
        polled(
            lambda: database.execute("DELETE FROM fmemory_log WHERE key = ?", (UNCLEAN,)).close(),
            path,
            timeout_s,
        )
    except StoreBusy:
        told = f"VACUUM: another connection was writing for {timeout_s:g} s ({path}); compact again"
        return (f"{told} with exclusive=True",)
    return ()


def truncate_wal(database: sqlite3.Connection, path: Path, timeout_s: float) -> tuple[str, ...]:
    """Write the write-ahead log into the file and empty it; a sentence if a reader is in the way.

    Writers are not kept waiting for the reader: it is tried again and again.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        (is_blocked, _, _) = _checkpoint(database)
        if not is_blocked:
            return ()
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            told = (
                f"checkpoint: for {timeout_s:g} s another connection read or wrote, so the"
                f" write-ahead log may still hold erased data ({path}-wal); compact again when it"
                " has ended"
            )
            return (told,)
        time.sleep(min(PAUSE_S_MAX, left_s))


def _checkpoint(database: sqlite3.Connection) -> tuple[int, int, int]:
    try:
        blocked, size, done = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return 1, 0, 0
    return blocked, size, done


def _zeros_wanted(pages: Pages, row: ErasedRow, old: _Row) -> int | None:
    """How many zeros behind its data keep a row from needing more of its page; None if none do."""
    most = old.record_bytes()
    # Of a row that is not marked, nobody tells whether its record has the column: one byte more
    # may be the one with which it takes much less of its page.
    sizes = (most, most + 1) if old.erased is None else (most,)
    room = min(pages.cell_bytes(size, row.seq) for size in sizes)
    new = old._replace(meta=len(row.meta), checksum=row.check, erased=1)
    if row.is_stub:
        new = new._replace(type=len(FORGOTTEN), event_id=None)

    def size_with(zeros: int) -> int:
        return new._replace(data=len(row.data) + zeros).record_bytes()

    def fits(zeros: int) -> bool:
        size = size_with(zeros)
        return zeros >= 0 and size <= most and pages.cell_bytes(size, row.seq) <= room

    # For the next time: a longer number of its checksum then, a longer one of the size of meta.
    zeros = _INTEGER_BYTES[-1][1] - _integer_bytes(row.check) + 3 - _varint(13 + 2 * new.meta)
    while (size := size_with(zeros)) <= most:
        fall = zeros + pages.to_next_fall(size)
        same = zeros + most - size
        # A size of data that is a byte longer to write makes up for one zero.
        for one in (zeros, fall + SPARE_BYTES, fall, fall - 1, same, same - 1):
            if fits(one):
                return one
        zeros = max(fall, zeros + 1)
    return 0 if fits(0) else None


def _varint(value: int) -> int:
    """Bytes of a number as SQLite writes it.

    >>> _varint(127), _varint(128), _varint(1 << 60)
    (1, 2, 9)
    """
    return min(9, max(1, (value.bit_length() + 6) // 7))


def _integer_bytes(value: Any) -> int:
    """Bytes of a column that holds a number.

    >>> [_integer_bytes(value) for value in (0, 1, 2, -129, 1 << 31, 1 << 50)]
    [0, 0, 1, 2, 6, 8]
    """
    if value in (0, 1):
        return 0
    magnitude = value if value >= 0 else ~value
    return next((size for most, size in _INTEGER_BYTES if magnitude <= most), 8)
