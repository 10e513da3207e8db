"""Reading payloads back from their lines: each line is read, checked and parsed when asked for.

Of a line with many records only those that are wanted are parsed: the others stay text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np

from fmemory.journals._jsonl_core import Core, Entry
from fmemory.journals._jsonl_lines import PayloadFields, decode_payload, line_salt, payload_of
from fmemory.journals._jsonl_values import Row, is_sealed, row_of, vector_of
from fmemory_segments import Envelope, LogReason, Payload, RowPage, RowRun, Stream
from fmemory_segments.errors import UnknownEvent
from fmemory_segments.event import LOC_ROW_BITS, UInt64Array, VectorArray

_ROW_MASK = (1 << LOC_ROW_BITS) - 1


class LineReader:
    """Reads lines for one call, and keeps the last one: neighbours ask for it again."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._kept: tuple[tuple[int, int], PayloadFields] | None = None

    def fields(self, seq: int, number: int) -> PayloadFields:
        """A line of an event, checked.

        Raises:
            UnknownEvent: There is no such event.
            LogCorrupt, LogReadFailed: It is damaged or cannot be read.
        """
        if self._kept is not None and self._kept[0] == (seq, number):
            return self._kept[1]
        entry = self._core.entry(seq)
        offset, size, _ = entry.found.lines[number]
        line = self._core.read(entry.file, offset, size)
        if len(line) != size or not is_sealed(line, line_salt(self._core.store_id, seq)):
            raise self._core.damaged(
                entry.file,
                LogReason.FRAME_CHECKSUM,
                "a line with its checksum, got one that was changed after it was written",
                offset,
                seq,
            )
        fields = decode_payload(line)
        self._kept = ((seq, number), fields)
        return fields

    def payload(self, seq: int) -> Payload:
        """The payload of an event, checked.

        Raises:
            As `fields`.
        """
        entry = self._core.entry(seq)
        lines = [self.fields(seq, number) for number in range(len(entry.found.lines))]
        try:
            return payload_of(lines)
        except ValueError as error:
            offset = entry.found.lines[0][0]
            raise self._core.damaged(
                entry.file, LogReason.FRAME_CONTENT, str(error), offset, seq
            ) from error

    def row(self, loc: int) -> tuple[Row, np.dtype[np.floating]]:
        """One record with the dtype of its vector.

        Raises:
            UnknownEvent: There is no record at the place.
            LogCorrupt, LogReadFailed: It is damaged or cannot be read.
        """
        seq, number = loc >> LOC_ROW_BITS, loc & _ROW_MASK
        entry = self._core.entry(seq)
        if entry.found.timestamps is None or number >= len(entry.found.timestamps):
            raise _no_row(self._core, seq, number)
        line = _line_of(entry, number)
        fields = self.fields(seq, line)
        assert isinstance(fields.rows, list)
        dtype = fields.number_type
        text = fields.rows[number - entry.found.lines[line][2]]
        return row_of(text, dtype, fields.dim), dtype


def read_payloads(core: Core, seqs: Sequence[int]) -> list[Payload]:
    """The payloads of these events, in the order asked for."""
    for seq in seqs:
        core.entry(seq)
    reader = LineReader(core)
    return [reader.payload(seq) for seq in seqs]


def read_row(core: Core, loc: int) -> tuple[bytes, VectorArray, str | None]:
    """One record: its note body, its vector, its embedding id."""
    row, dtype = LineReader(core).row(loc)
    return row.body, vector_of(row, dtype), row.embedding_id


def read_rows(core: Core, locs: UInt64Array, *, notes: bool, vectors: bool) -> RowPage:
    """The records at these places, in the order asked for."""
    reader = LineReader(core)
    bodies = bytearray(b"\xdd" + (3 * len(locs)).to_bytes(4, "big")) if notes else bytearray()
    matrices: list[tuple[np.dtype[np.floating], int, list[bytes]]] = []
    embedding_ids: list[str | None] = []
    for loc in locs.tolist():
        row, dtype = reader.row(loc)
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


def fold(core: Core, after: int, upto: int, stream: Stream | None) -> Iterator[Envelope | RowRun]:
    """What an index is built from: puts as runs, one an event, all else as envelopes."""
    for found in core.entries_of(after, upto, stream):
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


def _line_of(entry: Entry, row: int) -> int:
    """The number of the line that holds a record."""
    return bisect_right(entry.found.lines, row, key=itemgetter(2)) - 1


def _no_row(core: Core, seq: int, row: int) -> UnknownEvent:
    return UnknownEvent(
        f"row: expected one that was put, got row {row} of event {seq} ({core.path})",
        reason=LogReason.UNKNOWN_EVENT,
        path=core.path,
        first_seq=seq,
        last_seq=seq,
    )
