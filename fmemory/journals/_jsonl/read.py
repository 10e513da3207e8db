"""Reading payloads back from their lines: each line is read, checked and parsed when asked for.

Of a line with many records only those that are wanted are parsed: the others stay text.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from fmemory.journals._jsonl.core import Core, Entry
from fmemory.journals._jsonl.lines import PayloadFields, decode_payload, line_salt, payload_of
from fmemory.journals._jsonl.replaced import each, fresh
from fmemory.journals._jsonl.scan import Found
from fmemory.journals._jsonl.values import Row, is_sealed, row_of, vector_of
from fmemory_segments import (
    FORGOTTEN,
    Envelope,
    ErasedEvent,
    LogReason,
    Payload,
    RowPage,
    RowRun,
    Stream,
)
from fmemory_segments.errors import RowErased, UnknownEvent
from fmemory_segments.event import LOC_ROW_BITS, UInt64Array, VectorArray

_ROW_MASK = (1 << LOC_ROW_BITS) - 1
_ROWS_START = b',"rows":['
KEPT_BYTES_MAX = 16 * 1024 * 1024
GAP_BYTES_MAX = 8_192
SPAN_BYTES_MAX = 1 << 20
LOOKS_MAX = 4


class RowPlaces(NamedTuple):
    """Where the records of a line stand in it, so that one of them can be read alone.

    Attributes:
        starts: uint32, shape (n + 1,): each ends one byte before the next starts.
        dtype: Of their vectors.
        dim: Of their vectors.
    """

    starts: npt.NDArray[np.uint32]
    dtype: np.dtype[np.floating]
    dim: int


class Looks:
    """The entries that one call reads: each file is looked at once, so that it is the newest."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: set[int] = set()

    def entry(self, seq: int) -> Entry:
        """An event, at its place in the file that the path names now.

        Raises:
            UnknownEvent: There is no such event.
            LogCorrupt, LogReadFailed: Its file was replaced by one with other events, or cannot be
                read.
        """
        entry = self._core.entry(seq)
        first_seq = entry.file.first_seq
        if first_seq not in self._seen:
            self._seen.add(first_seq)
            if fresh(self._core, entry.file):
                entry = self._core.entry(seq)
        return entry


class LineReader:
    """Reads lines, and keeps those read last: a point read of one record parses a line of 1 MB.

    What is kept belongs to one reading of the index: once a file was replaced it is kept no more.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], tuple[Found, PayloadFields, int]] = OrderedDict()
        self._kept_bytes = 0
        self._places: dict[tuple[int, int], tuple[Found, RowPlaces]] = {}

    def fields(self, entry: Entry, number: int) -> PayloadFields:
        """A line of an event, checked.

        Raises:
            LogCorrupt, LogReadFailed: It is damaged or cannot be read.
        """
        seq = entry.found.envelope.seq
        key = (seq, number)
        for _ in range(LOOKS_MAX):
            found = entry.found
            with self._lock:
                kept = self._kept.get(key)
                if kept is not None and kept[0] is found:
                    self._kept.move_to_end(key)
                    return kept[1]
            offset, size, _ = found.lines[number]
            line = self._core.read(entry.file, offset, size)
            if len(line) == size and is_sealed(line, line_salt(self._core.store_id, seq)):
                fields = decode_payload(line)
                places = None
                if isinstance(fields.rows, list):
                    places = _row_places(line, fields.rows, fields)
                self._keep(key, found, fields, size, places)
                return fields
            if not fresh(self._core, entry.file, is_doubted=True):
                break
            entry = self._core.entry(seq)
        raise self._core.damaged(
            entry.file,
            LogReason.FRAME_CHECKSUM,
            "a line with its checksum, got one that was changed after it was written",
            offset,
            seq,
        )

    def forget(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()
            self._places.clear()
            self._kept_bytes = 0

    def _keep(
        self,
        key: tuple[int, int],
        found: Found,
        fields: PayloadFields,
        size: int,
        places: RowPlaces | None,
    ) -> None:
        with self._lock:
            if places is not None:
                self._places[key] = (found, places)
            if key in self._kept:
                self._kept_bytes -= self._kept.pop(key)[2]
            if size > KEPT_BYTES_MAX:
                return
            self._kept[key] = (found, fields, size)
            self._kept_bytes += size
            while self._kept_bytes > KEPT_BYTES_MAX:
                _, (_, _, dropped) = self._kept.popitem(last=False)
                self._kept_bytes -= dropped

    def payload(self, entry: Entry) -> Payload:
        """The payload of an event, checked.

        Raises:
            As `fields`.
        """
        found = entry.found
        lines = [self.fields(entry, number) for number in range(len(found.lines))]
        try:
            return payload_of(lines)
        except ValueError as error:
            raise self._core.damaged(
                entry.file,
                LogReason.FRAME_CONTENT,
                str(error),
                found.lines[0][0],
                found.envelope.seq,
            ) from error

    def row(self, looks: Looks, loc: int) -> tuple[Row, np.dtype[np.floating]]:
        """One record with the dtype of its vector.

        Raises:
            UnknownEvent: There is no record at the place.
            RowErased: Its data were taken out.
            LogCorrupt, LogReadFailed: It is damaged or cannot be read.
        """
        seq, number = loc >> LOC_ROW_BITS, loc & _ROW_MASK
        entry = looks.entry(seq)
        found = entry.found
        if found.envelope.type == FORGOTTEN:
            raise _row_erased(self._core, seq, number)
        if found.timestamps is None or number >= len(found.timestamps):
            raise _no_row(self._core, seq, number)
        line = _line_of(entry, number)
        row = number - found.lines[line][2]
        known, places = self._places.get((seq, line), (None, None))
        kept = self._kept.get((seq, line))
        if known is found and places is not None and (kept is None or kept[0] is not found):
            one = self._row_alone(entry, line, places, row)
            if one is not None:
                return self._living(one, seq, number), places.dtype
        fields = self.fields(entry, line)
        assert isinstance(fields.rows, list)
        dtype = fields.number_type
        return self._living(row_of(fields.rows[row], dtype, fields.dim), seq, number), dtype

    def _row_alone(self, entry: Entry, line: int, places: RowPlaces, row: int) -> Row | None:
        """One record of a line that was parsed before: its own bytes are read and checked.

        None if they are not there: what the whole line says then is what counts.
        """
        core, seq = self._core, entry.found.envelope.seq
        start, end = int(places.starts[row]), int(places.starts[row + 1]) - 1
        offset = entry.found.lines[line][0]
        text = core.read(entry.file, offset + start, end - start)
        if not is_sealed(text, line_salt(core.store_id, seq)):
            if fresh(core, entry.file, is_doubted=True):
                return None
            evidence = "a record with its checksum, got one that was changed after it was written"
            raise core.damaged(entry.file, LogReason.ROW_CHECKSUM, evidence, offset, seq)
        return row_of(text, places.dtype, places.dim)

    def _living(self, row: Row, seq: int, number: int) -> Row:
        if row.digest:
            raise _row_erased(self._core, seq, number)
        return row


def read_payloads(core: Core, reader: LineReader, seqs: Sequence[int]) -> list[Payload]:
    """The payloads of these events, in the order asked for; neighbours are read together."""
    looks = Looks(core)
    for seq in seqs:
        core.entry(seq)
    found: list[Payload] = []
    for group in _neighbours(looks.entry(seq) for seq in seqs):
        found += _payloads_of(core, reader, group)
    return found


def _neighbours(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries in groups, in their order, of which the lines lie close enough for one read."""
    group: list[Entry] = []
    start = end = 0
    for entry in entries:
        first, (last, size, _) = entry.found.lines[0][0], entry.found.lines[-1]
        is_near = 0 <= first - end <= GAP_BYTES_MAX and last + size - start <= SPAN_BYTES_MAX
        if group and not (is_near and entry.file is group[0].file):
            yield group
            group = []
        if not group:
            start = first
        end = last + size
        group.append(entry)
    if group:
        yield group


def _payloads_of(core: Core, reader: LineReader, group: list[Entry]) -> Iterator[Payload]:
    """The payloads of a group; one that is not as it should be is asked for alone."""
    if len(group) == 1:
        yield reader.payload(group[0])
        return
    start, (last, size, _) = group[0].found.lines[0][0], group[-1].found.lines[-1]
    data = core.read(group[0].file, start, last + size - start)
    for entry in group:
        found = entry.found
        salt = line_salt(core.store_id, found.envelope.seq)
        lines = [data[at - start : at - start + length] for at, length, _ in found.lines]
        payload = None
        if all(is_sealed(line, salt) for line in lines):
            with suppress(ValueError):
                payload = payload_of([decode_payload(line) for line in lines])
        yield reader.payload(entry) if payload is None else payload


def read_row(core: Core, reader: LineReader, loc: int) -> tuple[bytes, VectorArray, str | None]:
    """One record: its note body, its vector, its embedding id."""
    row, dtype = reader.row(Looks(core), loc)
    return row.body, vector_of(row, dtype), row.embedding_id


def read_rows(
    core: Core, reader: LineReader, locs: UInt64Array, *, notes: bool, vectors: bool
) -> RowPage:
    """The records at these places, in the order asked for."""
    looks = Looks(core)
    bodies = bytearray(b"\xdd" + (3 * len(locs)).to_bytes(4, "big")) if notes else bytearray()
    matrices: list[tuple[np.dtype[np.floating], int, list[bytes]]] = []
    embedding_ids: list[str | None] = []
    for loc in locs.tolist():
        row, dtype = reader.row(looks, loc)
        embedding_ids.append(row.embedding_id)
        if notes:
            bodies += row.body
        if vectors:
            dim = len(row.vector) // dtype.itemsize
            if not matrices or matrices[-1][:2] != (dtype, dim):
                matrices.append((dtype, dim, []))
            matrices[-1][2].append(row.vector)
    blocks: list[VectorArray] = [
        np.frombuffer(bytearray().join(group), dtype).reshape(len(group), dim)
        for dtype, dim, group in matrices
    ]
    return RowPage(bodies, blocks, embedding_ids)


def erased(core: Core, after: int, upto: int, stream: Stream | None) -> Iterator[ErasedEvent]:
    """Events of which data were taken out, by seq; from the index."""
    for found in core.entries_of(after, upto, stream):
        if found.erased is True:
            yield ErasedEvent(found.envelope.seq, None)
        elif found.erased is not False:
            yield ErasedEvent(found.envelope.seq, found.erased.copy())


def fold(core: Core, after: int, upto: int, stream: Stream | None) -> Iterator[Envelope | RowRun]:
    """What an index is built from: puts as runs, one an event, all else as envelopes."""
    for found in each(core, core.seqs(after, upto, stream)):
        envelope, timestamps = found.envelope, found.timestamps
        if timestamps is None:
            yield envelope
            continue
        seq = envelope.seq
        first = seq << LOC_ROW_BITS
        yield RowRun(
            envelope.stream,
            envelope.revision,
            1,
            seq,
            seq,
            list(envelope.keys),
            timestamps,
            np.arange(first, first + len(timestamps), dtype=np.uint64),
        )


def _row_places(line: bytes, rows: Sequence[msgspec.Raw], fields: PayloadFields) -> RowPlaces:
    # A quote inside a string is escaped, so this stands nowhere else.
    start = line.index(_ROWS_START) + len(_ROWS_START)
    starts = np.full(len(rows) + 1, start, np.uint32)
    starts[1:] += np.cumsum([len(bytes(row)) + 1 for row in rows], dtype=np.uint32)
    return RowPlaces(starts, fields.number_type, fields.dim)


def _line_of(entry: Entry, row: int) -> int:
    """The number of the line that holds a record."""
    return bisect_right(entry.found.lines, row, key=itemgetter(2)) - 1


def _row_erased(core: Core, seq: int, row: int) -> RowErased:
    return RowErased(
        f"row: expected its data, got row {row} of event {seq}, whose data a compaction took out "
        f"({core.path})",
        reason=LogReason.ERASED,
        path=core.path,
        first_seq=seq,
        last_seq=seq,
    )


def _no_row(core: Core, seq: int, row: int) -> UnknownEvent:
    return UnknownEvent(
        f"row: expected one that was put, got row {row} of event {seq} ({core.path})",
        reason=LogReason.UNKNOWN_EVENT,
        path=core.path,
        first_seq=seq,
        last_seq=seq,
    )
