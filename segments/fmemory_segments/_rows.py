"""Pages of rows: their notes and vectors, checked, in few reads and few Python steps a row.

Rows that lie behind each other in the file come in one read, vectors straight into the matrix they
are returned in. Rows that lie near each other, as those of one-row frames do, are read as one span
into a scratch buffer and copied out by strides. docs/format.md sections 3 to 5 own the places.

A single row is checked by its own CRC, always. Of a page, frames that this process has not seen
before are checked first: whole by the CRC of their data where most of them is wanted, else row by
row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.lib.stride_tricks import sliding_window_view

from fmemory_segments._batch import array_header
from fmemory_segments._catalog import read_failed
from fmemory_segments._columns import Int64Array, RowPlace, RowPlaces
from fmemory_segments._core import Core, Segment
from fmemory_segments._event_meta import DTYPES
from fmemory_segments._frames import (
    frame_damage,
    frame_end,
    read,
    read_frame,
    seqs_of_frame,
    too_short,
)
from fmemory_segments.errors import LogCorrupt, LogError, LogReason, UnknownEvent
from fmemory_segments.event import LOC_ROW_BITS, RowPage, UInt64Array, VectorArray

GAP_BYTES_MAX: Final = 8_192
SPAN_BYTES_MAX: Final = 1 << 22
PART_BYTES_MAX: Final = 1 << 23
RUN_ROWS_MIN: Final = 8


def read_rows(core: Core, locs: UInt64Array, *, notes: bool, vectors: bool) -> RowPage:
    """The rows at these locs, in their order.

    Raises:
        LogCorrupt: A row is not what was written.
        LogReadFailed: The system could not read.
        UnknownEvent: There is no row at a loc.
    """
    count = len(locs)
    if count == 1:
        return _read_one(core, int(locs[0]), notes=notes, vectors=vectors)
    head = array_header(3 * count)
    if count == 0:
        return RowPage(head if notes else b"", [], [])
    pieces: list[_Piece] = []
    for segment, part in _by_segment(core, locs):
        try:
            places = segment.index.places(part)
        except KeyError as error:
            raise unknown_row(core, int(part[0])) from error
        pieces.append(_Piece(segment, places))
    bodies: list[bytes | memoryview] = [head]
    blocks: list[VectorArray] = []
    embedding_ids: list[str | None] = []
    for piece in pieces:
        _check_first_touch(core, piece)
        if notes:
            bodies += _read_notes(core, piece)
        embedding_ids += _embedding_ids(piece)
    if vectors:
        blocks = _read_blocks(core, pieces)
    return RowPage(b"".join(bodies) if notes else b"", blocks, embedding_ids)


class _Piece(NamedTuple):
    """Consecutive rows of a page that lie in one segment."""

    segment: Segment
    places: RowPlaces


def unknown_row(core: Core, loc: int) -> UnknownEvent:
    """The error for a loc that names no row."""
    seq = loc >> LOC_ROW_BITS
    return UnknownEvent(
        f"rows: expected a row at seq {seq}, row {loc & (1 << LOC_ROW_BITS) - 1}, got none "
        f"({core.path}); events up to seq {core.head_seq} are there",
        reason=LogReason.UNKNOWN_EVENT,
        path=core.path,
        first_seq=seq,
        last_seq=seq,
    )


def _by_segment(core: Core, locs: UInt64Array) -> Iterator[tuple[Segment, UInt64Array]]:
    """Consecutive locs of one segment, with the segment."""
    segments = core.segments
    if len(segments) == 1:
        yield segments[0], locs
        return
    bases = np.array([segment.base_seq for segment in segments], np.uint64)
    numbers = np.searchsorted(bases, locs >> np.uint64(LOC_ROW_BITS), "right") - 1
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        yield segments[max(int(numbers[0]), 0)], locs
        return
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(locs)]
    for start, end in pairwise(cuts):
        yield segments[max(int(numbers[start]), 0)], locs[start:end]


def _read_one(core: Core, loc: int, *, notes: bool, vectors: bool) -> RowPage:
    segment = core.segment_of(loc >> LOC_ROW_BITS)
    try:
        place = segment.index.place(loc)
    except KeyError as error:
        raise unknown_row(core, loc) from error
    note, vector = _read_checked(core, segment, place, loc)
    body = array_header(3) + note if notes else b""
    return RowPage(body, [vector] if vectors else [], [place.embedding_id])


def _read_checked(
    core: Core, segment: Segment, place: RowPlace, loc: int
) -> tuple[bytes, VectorArray]:
    """One row, checked by its CRC; the note and a matrix of one row."""
    dtype = DTYPES[place.dtype]
    vector = np.empty((1, place.dim), dtype)
    between = place.vector_offset - place.note_offset - place.note_bytes
    fd, pread = segment.file.fd, core.fs.pread
    size = place.dim * dtype.itemsize
    try:
        if 0 <= between < 8:
            total = place.note_bytes + between + size
            data = pread(fd, total, place.note_offset)
            if len(data) != total:
                data = read(core, segment, total, place.note_offset)
            note = data[: place.note_bytes]
            view = memoryview(data)[place.note_bytes + between :]
        else:
            note = read(core, segment, place.note_bytes, place.note_offset)
            view = memoryview(read(core, segment, size, place.vector_offset))
    except OSError as error:
        if isinstance(error, LogError):
            raise
        raise read_failed(error, segment.path, place.note_offset) from error
    if crc32c(view, crc32c(note)) != place.crc:
        raise row_damage(segment, place.note_offset, loc >> LOC_ROW_BITS, loc & 0xFFFF)
    if size:
        vector.data.cast("B")[:] = view
    return note, vector


def row_damage(segment: Segment, offset: int, seq: int, row: int) -> LogCorrupt:
    """The error for a row whose CRC is wrong."""
    return LogCorrupt(
        f"row checksum: expected note and vector as written, got other bytes ({segment.path}, byte "
        f"{offset}, seq {seq}, row {row}); other rows are intact and no file was changed; run "
        "`fmemory verify` on the store",
        reason=LogReason.ROW_CHECKSUM,
        path=segment.path,
        offset=offset,
        first_seq=seq,
        last_seq=seq,
    )


def _check_first_touch(core: Core, piece: _Piece) -> None:
    """Check the frames of a page that this process has not checked yet."""
    segment, places = piece
    checked = segment.index.checked
    fresh = checked[places.frames] == 0
    if not fresh.any():
        return
    numbers, counts = np.unique(places.frames[fresh], return_counts=True)
    row_by_row = []
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        size = frame_end(segment, number) - segment.index.frame_offset(number)
        first, last = seqs_of_frame(segment, number)
        slots = segment.index.slots
        events = segment.index.events
        start = int(events[first - segment.base_seq, 2])
        after = last - segment.base_seq + 1
        end = int(events[after, 2]) if after < len(events) else len(slots)
        if 2 * count >= end - start or size <= GAP_BYTES_MAX:
            read_frame(core, segment, number)
            segment.index.checked[number] = 1
        else:
            row_by_row.append(number)
    if row_by_row:
        wanted = np.isin(places.frames, np.array(row_by_row))
        for row in np.flatnonzero(wanted).tolist():
            _check_row(core, segment, places, row)


def _check_row(core: Core, segment: Segment, places: RowPlaces, row: int) -> None:
    offset = int(places.note_offsets[row])
    note = read(core, segment, int(places.note_bytes[row]), offset)
    size = int(places.vector_bytes[row])
    vector = read(core, segment, size, int(places.vector_offsets[row]))
    if crc32c(vector, crc32c(note)) != int(places.crcs[row]):
        number = int(places.frames[row])
        raise frame_damage(segment, number, LogReason.ROW_CHECKSUM, "a row with its checksum")


def _embedding_ids(piece: _Piece) -> list[str | None]:
    table, numbers = piece.segment.index.embedding_ids, piece.places.embeddings
    if len(table) == 1:
        return table * len(numbers)
    return [table[number] for number in numbers.tolist()]


def _read_notes(core: Core, piece: _Piece) -> list[bytes | memoryview]:
    """The note bodies of a piece, in its order, as few buffers as possible."""
    segment, places = piece
    starts, sizes = places.note_offsets, places.note_bytes.astype(np.int64)
    if bool((starts[1:] == starts[:-1] + sizes[:-1]).all()):
        first, last = int(starts[0]), int(starts[-1] + sizes[-1])
        if last - first <= PART_BYTES_MAX:
            return [read(core, segment, last - first, first)]
    bodies: list[bytes | memoryview] = []
    for part in _parts(sizes):
        scratch, at = _gather(core, segment, starts[part], sizes[part])
        view = memoryview(scratch)
        ends = (at + sizes[part]).tolist()
        bodies += [view[start:end] for start, end in zip(at.tolist(), ends, strict=True)]
    return bodies


def _read_blocks(core: Core, pieces: list[_Piece]) -> list[VectorArray]:
    """The vectors of all pieces: one block for consecutive rows of one dim and dtype."""
    shapes = np.concatenate([piece.places.shapes for piece in pieces])
    cuts = [0, *(np.flatnonzero(np.diff(shapes)) + 1).tolist(), len(shapes)]
    blocks = []
    for start, end in pairwise(cuts):
        shape = int(shapes[start])
        block = np.empty((end - start, shape >> 2), DTYPES[shape & 3])
        if block.size:
            _fill_block(core, pieces, start, end, block)
        blocks.append(block)
    return blocks


def _fill_block(core: Core, pieces: list[_Piece], start: int, end: int, block: VectorArray) -> None:
    """Read rows `start` to `end` of the page, which have one shape, into a block."""
    at = 0
    for segment, places in pieces:
        count = len(places.shapes)
        low, high = max(start - at, 0), min(end - at, count)
        if low < high:
            target = block[at + low - start : at + high - start]
            _fill(core, segment, places.vector_offsets[low:high], target)
        at += count


def _fill(core: Core, segment: Segment, offsets: Int64Array, target: VectorArray) -> None:
    """Read the vectors at these offsets into the rows of a matrix."""
    width = target.shape[1] * target.itemsize
    breaks = np.flatnonzero(offsets[1:] != offsets[:-1] + width) + 1
    if len(breaks) * RUN_ROWS_MIN <= len(offsets):
        cuts = [0, *breaks.tolist(), len(offsets)]
        raw = target.reshape(-1).view(np.uint8)
        for start, end in pairwise(cuts):
            _read_into(core, segment, raw[start * width : end * width].data, int(offsets[start]))
        return
    dim = target.shape[1]
    for part in _parts(np.full(len(offsets), width)):
        sizes = np.full(len(offsets[part]), width)
        scratch, at = _gather(core, segment, offsets[part], sizes)
        items = np.frombuffer(scratch, target.dtype, len(scratch) // target.itemsize)
        # Not `take`, which would copy all windows first.
        target[part] = sliding_window_view(items, dim)[at // target.itemsize]


def _parts(sizes: Int64Array) -> Iterator[slice]:
    """Slices of rows that fit a scratch buffer, about."""
    count = len(sizes)
    rows = max(1, PART_BYTES_MAX // max(1, int(sizes.max()) + GAP_BYTES_MAX // 4))
    for start in range(0, count, rows):
        yield slice(start, min(count, start + rows))


def _gather(
    core: Core, segment: Segment, starts: Int64Array, sizes: Int64Array
) -> tuple[bytearray, Int64Array]:
    """Read extents of a file, near ones together, into a scratch buffer.

    Returns:
        The buffer, and where in it each extent starts: at a multiple of 8 if it did in the file.
    """
    order = None
    if not bool((starts[1:] >= starts[:-1]).all()):
        order = np.argsort(starts, kind="stable")
        starts, sizes = starts[order], sizes[order]
    ends = np.maximum.accumulate(starts + sizes)
    heads = np.flatnonzero(starts[1:] > ends[:-1] + GAP_BYTES_MAX) + 1
    firsts = np.concatenate(([0], heads))
    lasts = np.concatenate((heads, [len(starts)])) - 1
    span_starts = starts[firsts] & -8
    span_ends = ends[lasts] + 7 & -8
    lengths = span_ends - span_starts
    bases = np.cumsum(lengths) - lengths
    scratch = bytearray(int(lengths.sum()))
    view = memoryview(scratch)
    for base, length, offset, end in zip(
        bases.tolist(), lengths.tolist(), span_starts.tolist(), ends[lasts].tolist(), strict=True
    ):
        _read_span(core, segment, view[base : base + length], offset, end - offset)
    at = starts - np.repeat(span_starts - bases, lasts - firsts + 1)
    if order is not None:
        placed = np.empty_like(at)
        placed[order] = at
        at = placed
    return scratch, at


def _read_span(core: Core, segment: Segment, target: memoryview, offset: int, needed: int) -> None:
    """Fill a buffer from an offset; the last bytes, which only round it up, may be missing."""
    try:
        got = core.fs.preadv(segment.file.fd, [target], offset)
        while got < needed:
            more = core.fs.preadv(segment.file.fd, [target[got:]], offset + got)
            if more == 0:
                raise too_short(segment, needed, got, offset)
            got += more
    except OSError as error:
        if isinstance(error, LogError):
            raise
        raise read_failed(error, segment.path, offset) from error


def _read_into(core: Core, segment: Segment, target: memoryview, offset: int) -> None:
    """Fill a buffer from an offset."""
    _read_span(core, segment, target, offset, len(target))
