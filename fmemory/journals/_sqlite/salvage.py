"""Salvaging an SQLite file: every row of the log that its own checksum proves, wherever it stands.

Rows are found in the pages themselves, so neither a damaged schema nor a damaged page above them
hides them, and nothing is made beside the file. docs/repair.md owns the rules.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from fmemory.errors import NotFound, Reason, StorageError
from fmemory.journals._sqlite.file import refuse_newer
from fmemory.journals._sqlite.pages import Cell, Pages, end_of_column, values_of
from fmemory.journals._tables.event_table import stream_key, stream_of
from fmemory_segments import Erased, StoredEvent
from fmemory_segments._salvage_file import harm_of
from fmemory_segments._salvage_payload import LOST_DIGEST, salvage_payload
from fmemory_segments.event_bytes import BytesDamage, StoredMeta
from fmemory_segments.salvage import Found, Salvaged, Trouble, Witness

EVENT_COLUMNS: Final = 9
"""Up to the data. In tables that were made with the mark of erased events, that comes before."""
STREAM_COLUMNS: Final = 7
STREAM_BYTES_MAX: Final = 1 << 16
TABLES_NAMED: Final = b"fmemory_"
EVENT_BYTES_MIN: Final = 40
"""No event takes less of a file, so a file tells how many events it may have had."""

_TIME, _META, _CHECK, _DATA = 5, 6, 7, 8
_HEAD_BYTES: Final = 256


class SqliteSalvage:
    """What can be read of the log in an SQLite file, whether SQLite reads it or not."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def found(self, *, payloads: bool = True) -> Iterator[Found]:
        """Its events by seq, with what is wrong and what the file says of itself between.

        Raises:
            NotFound: No log ever lived in it.
            StorageError: The file cannot be opened, or a newer version made its tables.

        Cost: O(bytes); memory of 32 bytes an event, and one event.
        """
        refuse_newer(self._path)
        try:
            pages = Pages(self._path)
        except OSError as error:
            raise StorageError(
                f"repair: expected to read the file, got {error.strerror} ({self._path})",
                path=str(self._path),
            ) from error
        try:
            yield from self._found(pages, payloads=payloads)
        finally:
            pages.close()

    def _found(self, pages: Pages, *, payloads: bool) -> Iterator[Found]:
        name = self._path.name
        seqs, places = array("q"), array("q")
        claims: dict[str, int] = {}
        for cell in pages.cells():
            head = pages.payload(cell, _HEAD_BYTES)
            if _is_event(head):
                seqs.append(cell.rowid)
                places.extend((cell.page, cell.start, cell.size))
            else:
                claims.update(_claim_of(pages, cell))
        if not seqs and not claims and not pages.holds(TABLES_NAMED):
            raise NotFound(
                f"repair: expected a log in an SQLite file, got none ({self._path}); check the"
                " path",
                reason=Reason.STORE_NOT_FOUND,
                key=str(self._path),
            )
        order = np.argsort(np.frombuffer(seqs, np.int64), kind="stable")
        at, last_seqs = 0, dict[str, int]()
        while at < len(order):
            seq, cells = seqs[order[at]], []
            while at < len(order) and seqs[order[at]] == seq:
                place = 3 * int(order[at])
                cells.append(Cell(seq, *places[place : place + 3]))
                at += 1
            event = self._event(pages, cells, payloads=payloads)
            if isinstance(event, Salvaged):
                last_seqs[stream_key(event.event.envelope.stream)] = seq
            yield event
        for problem in pages.problems:
            yield Trouble(problem, name, lost=False, hides_end=pages.is_end_torn)
        last_seq = max(last_seqs.values(), default=0)
        claimed = max(claims.values(), default=0)
        if last_seq < claimed <= last_seq + pages.stored_bytes // EVENT_BYTES_MIN:
            yield Witness(claimed, None, name)
        is_behind = any(claims.get(key, 0) < seq for key, seq in last_seqs.items())
        is_nothing_left = not claims and (bool(pages.problems) or not pages.look_sound())
        if is_behind or is_nothing_left:
            problem = "the table of streams, which tells of the newest events, is damaged"
            yield Trouble(problem, name, lost=False, hides_end=True)

    def _event(self, pages: Pages, cells: list[Cell], *, payloads: bool) -> Salvaged | Trouble:
        """The event of a seq: of several rows that claim to be it, one that is whole."""
        best: Salvaged | None = None
        for cell in cells:
            found = self._row(pages, cell, payloads=payloads)
            if found is not None and not found.harm:
                return found
            best = best or found
        if best is not None:
            return best
        first = cells[0]
        problem = f"its row in page {first.page} is damaged"
        return Trouble(problem, self._path.name, None, None, None)

    def _row(self, pages: Pages, cell: Cell, *, payloads: bool) -> Salvaged | None:
        head = pages.payload(cell, _HEAD_BYTES)
        size = end_of_column(head, _CHECK)
        payload = pages.payload(cell, None if payloads else size)
        values = values_of(payload, EVENT_COLUMNS + 1) or values_of(payload, EVENT_COLUMNS)
        if values is None:
            return None
        time, meta, check = values[_TIME], values[_META], values[_CHECK]
        data = next((one for one in values[_DATA:] if isinstance(one, bytes)), b"")
        if not isinstance(time, int) or not isinstance(meta, bytes) or not isinstance(check, int):
            return None
        try:
            stored = StoredMeta(cell.rowid, time, meta, check)
        except (BytesDamage, struct.error):
            return None
        if not payloads:
            return Salvaged(StoredEvent(stored.envelope, Erased(LOST_DIGEST)))
        region = stored.region(data)
        left = salvage_payload(stored.event, region)
        return Salvaged(
            StoredEvent(stored.envelope, left.payload),
            self._path.name,
            None,
            harm_of(left, stored.event.keys),
        )


def _is_event(head: bytes) -> bool:
    """Whether the beginning of a row looks as one of the table of events; its check tells."""
    values = values_of(head, _TIME + 1)
    return (
        values is not None
        and end_of_column(head, _DATA) > 0
        and values[0] is None
        and isinstance(values[1], int)
        and isinstance(values[2], int)
        and isinstance(values[_TIME], int)
    )


def _claim_of(pages: Pages, cell: Cell) -> dict[str, int]:
    """The stream that a row of the table of streams names, with its newest event.

    Nothing for any other row.
    """
    if cell.size > STREAM_BYTES_MAX:
        return {}
    values = values_of(pages.payload(cell), STREAM_COLUMNS)
    if values is None or values[0] is not None:
        return {}
    _, key, kind, revision, first_seq, last_seq, _ = values
    if not isinstance(key, str) or not isinstance(kind, str):
        return {}
    if not isinstance(revision, int) or not isinstance(first_seq, int):
        return {}
    if not isinstance(last_seq, int) or not 1 <= first_seq <= last_seq - revision + 1:
        return {}
    try:
        stream = stream_of(key)
    except (msgspec.MsgspecError, ValueError):
        return {}
    return {key: last_seq} if stream and stream[0] == kind else {}
