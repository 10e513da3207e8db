"""Pages of rows: their notes and vectors, checked, in few reads and few Python steps a row.

Rows that lie behind each other in the file come in one read, vectors straight into the matrix they
are returned in. Rows that lie near each other, as those of one-row frames do, are read as one span
into a scratch buffer and copied out by strides. docs/format.md sections 3 to 5 own the places.

A row that is read alone is checked by its own CRC, always. Of a page, frames that this process has
not seen before are checked first: by the CRC of their data where most of their rows are wanted,
else row by row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from fmemory_segments._batch import array_header
from fmemory_segments._catalog import read_failed
from fmemory_segments._compacted_index import CompactedIndex
from fmemory_segments._core import Core, Segment
from fmemory_segments._event_meta import DTYPES, ITEM_BYTES
from fmemory_segments._events import envelopes
from fmemory_segments._frame import Buffer
from fmemory_segments._frames import read, read_block, read_frame, row_damage
from fmemory_segments._places import Int64Array, RowPlaces, RunPlace
from fmemory_segments._spans import (
    fresh_bytes,
    gather_extents,
    gather_rows,
    notes_of,
    read_into,
    row_parts,
)
from fmemory_segments.errors import LogReason, RowErased, UnknownEvent
from fmemory_segments.event import (
    FORGOTTEN,
    LOC_ROW_BITS,
    BoolArray,
    RowPage,
    UInt32Array,
    UInt64Array,
    VectorArray,
)

FEW_ROWS_MAX = 10
RUN_ROWS_MIN = 8
NEIGHBOURS_MIN = 32
WANTED_ROWS_MIN = 64
WANTED_SHARE = 16
ROW_MASK = (1 << LOC_ROW_BITS) - 1

_NEXT = np.uint64(1)


def read_rows(core: Core, locs: UInt64Array, *, notes: bool, vectors: bool) -> RowPage:
    """The rows at these locs, in their order.

    Raises:
        LogCorrupt: A row is not what was written.
        LogReadFailed: The system could not read.
        UnknownEvent: There is no row at a loc.
        RowErased: The row at a loc was erased.
    """
    count = len(locs)
    if count <= FEW_ROWS_MAX:
        return _read_few(core, locs.tolist(), notes=notes, vectors=vectors)
    page = _read_neighbours(core, locs, notes=notes, vectors=vectors)
    if page is not None:
        return page
    groups = _by_segment(core, locs)
    shapes = _shapes(groups, count)
    if (shapes == shapes[0]).all():
        bodies, block = _read_groups(core, groups, count, notes=notes, vectors=vectors)
        page_notes = b"".join((array_header(3 * count), *bodies)) if notes else b""
        return RowPage(page_notes, [] if block is None else [block], _embedding_ids(groups, count))
    parts: list[Buffer] = [array_header(3 * count)]
    blocks: list[VectorArray] = []
    for low, high in _equal_runs(shapes):
        run = _by_segment(core, locs[low:high])
        bodies, block = _read_groups(core, run, high - low, notes=notes, vectors=vectors)
        parts += bodies
        if block is not None:
            blocks.append(block)
    return RowPage(b"".join(parts) if notes else b"", blocks, _embedding_ids(groups, count))


def read_row(core: Core, loc: int) -> tuple[bytes, VectorArray, str | None]:
    """One row, checked by its CRC: its note, its vector and its embedding id.

    Raises:
        LogCorrupt, LogReadFailed, UnknownEvent, RowErased: As `read_rows`.
    """
    segments, bases, _ = core.by_base
    if not segments:
        core.check()
    segment = segments[bisect_right(bases, loc >> LOC_ROW_BITS) - 1]
    try:
        place = segment.index.place(loc)
    except KeyError as error:
        raise _missing(core, segment, loc) from error
    offset, note_bytes, vector_offset = place.note_offset, place.note_bytes, place.vector_offset
    vector = np.empty(place.dim, DTYPES[place.dtype])
    data = vector.data
    between = vector_offset - offset - note_bytes
    try:
        # Held while it is read from: another thread may close what was opened first.
        file = segment.file or core.file_of(segment)
        fs, fd = core.fs, file.fd
        if 0 <= between < 8:
            # One row in its event: note, zeros and vector lie behind each other.
            head = bytearray(note_bytes + between)
            got = fs.preadv(fd, (head, data), offset) - between
            note = bytes(head[:note_bytes])
        else:
            note = fs.pread(fd, note_bytes, offset)
            got = len(note) + (fs.preadv(fd, (data,), vector_offset) if place.dim else 0)
    except OSError as error:
        raise read_failed(error, segment.path, offset) from error
    if got != note_bytes + data.nbytes:
        note = read(core, segment, note_bytes, offset)
        if place.dim:
            read_into(core, segment, data.cast("B"), vector_offset)
    if crc32c(data, crc32c(note)) != place.crc:
        raise row_damage(segment, offset, loc)
    return note, vector, place.embedding_id


def _read_neighbours(
    core: Core, locs: UInt64Array, *, notes: bool, vectors: bool
) -> RowPage | None:
    """A page of few runs of neighbours, placed run by run; None if it is not one.

    So pages of batches and of one compacted segment come, and this spares them most of what does
    not depend on the rows.
    """
    count = len(locs)
    runs = _runs_in_blocks(core, locs) or _runs_in_events(core, locs)
    if runs is None:
        return None
    shape = runs[0].place.shape
    width = (shape >> 2) * ITEM_BYTES[shape & 3]
    embedding_ids: list[str | None] = []
    for run in runs:
        embedding_ids += _embedding_ids_of(run.segment, run.place.embeddings)
    blocks: list[VectorArray] = []
    if vectors:
        data = fresh_bytes(count * width, runs[0].place.vector_offset)
        for segment, place, low, high in runs:
            read_into(core, segment, data[low * width : high * width].data, place.vector_offset)
        blocks = [data.view(DTYPES[shape & 3]).reshape(count, shape >> 2)]
    if not notes:
        return RowPage(b"", blocks, embedding_ids)
    head = array_header(3 * count)
    end = len(head)
    joined = np.empty(end + sum([run.place.note_bytes for run in runs]), np.uint8).data
    joined[:end] = head
    for segment, place, _, _ in runs:
        start, end = end, end + place.note_bytes
        read_into(core, segment, joined[start:end], place.note_offset)
    return RowPage(joined, blocks, embedding_ids)


class _Run(NamedTuple):
    """Rows `low` to `high - 1` of a page, which are neighbours in a frame of a segment."""

    segment: Segment
    place: RunPlace
    low: int
    high: int


def _runs_in_events(core: Core, locs: UInt64Array) -> list[_Run] | None:
    """The runs of a page of few events; None if they must be looked at by row."""
    breaks = np.flatnonzero(locs[1:] != locs[:-1] + _NEXT) + 1
    if len(breaks) * NEIGHBOURS_MIN > len(locs):
        return None
    runs: list[_Run] = []
    for low, high in pairwise([0, *breaks.tolist(), len(locs)]):
        loc = int(locs[low])
        segment = core.segment_of(loc >> LOC_ROW_BITS)
        place = segment.index.run(loc, high - low)
        if place is None or not segment.index.checked[place.frame] or place.shape < 4:
            return None
        if runs and place.shape != runs[0].place.shape:
            return None
        runs.append(_Run(segment, place, low, high))
    return runs


def _runs_in_blocks(core: Core, locs: UInt64Array) -> list[_Run] | None:
    """The runs of a page of one compacted segment; None if they must be looked at by row."""
    segment = core.segment_of(int(locs[0]) >> LOC_ROW_BITS)
    index = segment.index
    if not isinstance(index, CompactedIndex):
        return None
    runs: list[_Run] = []
    for place, low, high in index.runs(locs, len(locs) // NEIGHBOURS_MIN):
        if not index.checked[place.frame]:
            return None
        runs.append(_Run(segment, place, low, high))
    return runs or None


class _Group(NamedTuple):
    """The rows of a page that lie in one segment.

    Attributes:
        segment: The segment.
        at: Their numbers in the page, ascending; None = all of the page.
        places: Where they are.
        locs: uint64: their locs.
    """

    segment: Segment
    at: Int64Array | None
    places: RowPlaces
    locs: UInt64Array


def _by_segment(core: Core, locs: UInt64Array) -> list[_Group]:
    """The rows of a page by segment."""
    segments, _, bases = core.by_base
    if not segments:
        core.check()
    number = 0
    if len(segments) > 1:
        numbers = bases.searchsorted(locs >> np.uint64(LOC_ROW_BITS), "right") - 1
        number = max(int(numbers[0]), 0)
        if not (numbers == number).all():
            return [
                _group(core, segments[max(chosen, 0)], at, locs[at])
                for chosen in np.unique(numbers).tolist()
                for at in (np.flatnonzero(numbers == chosen),)
            ]
    return [_group(core, segments[number], None, locs)]


def _group(core: Core, segment: Segment, at: Int64Array | None, locs: UInt64Array) -> _Group:
    try:
        places = segment.index.places(locs)
    except KeyError as error:
        for loc in locs.tolist():
            try:
                segment.index.place(loc)
            except KeyError:
                raise _missing(core, segment, loc) from error
        raise
    return _Group(segment, at, places, locs)


def _missing(core: Core, segment: Segment, loc: int) -> UnknownEvent | RowErased:
    """The error for a loc that names no row that can be read."""
    seq = loc >> LOC_ROW_BITS
    if segment.index.slot_of(loc) is not None:
        return _row_erased(segment, loc)
    if segment.base_seq <= seq < segment.next_seq:
        (event,) = envelopes(core, seq - 1, seq, stream=None, backwards=False, limit=1)
        if event.type == FORGOTTEN:  # How many rows it had is not kept.
            return _row_erased(segment, loc)
    return _unknown(core, loc)


def _row_erased(segment: Segment, loc: int) -> RowErased:
    seq = loc >> LOC_ROW_BITS
    return RowErased(
        f"rows: expected a row that is alive, got one that was erased ({segment.path}, seq {seq}, "
        f"row {loc & ROW_MASK}); its id, time and digest are kept",
        reason=LogReason.ERASED,
        path=segment.path,
        first_seq=seq,
        last_seq=seq,
    )


def _unknown(core: Core, loc: int) -> UnknownEvent:
    seq = loc >> LOC_ROW_BITS
    return UnknownEvent(
        f"rows: expected a row at seq {seq}, row {loc & ROW_MASK}, got none "
        f"({core.path}); events up to seq {core.head_seq} are there",
        reason=LogReason.UNKNOWN_EVENT,
        path=core.path,
        first_seq=seq,
        last_seq=seq,
    )


def _shapes(groups: list[_Group], count: int) -> UInt32Array:
    """Shapes of the rows in the order of the page."""
    if groups[0].at is None:
        return groups[0].places.shapes
    whole = np.empty(count, np.uint32)
    for _, at, places, _ in groups:
        whole[at] = places.shapes
    return whole


def _equal_runs(values: UInt32Array) -> Iterator[tuple[int, int]]:
    return pairwise([0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)])


def _read_groups(
    core: Core, groups: list[_Group], count: int, *, notes: bool, vectors: bool
) -> tuple[Sequence[Buffer], VectorArray | None]:
    """Notes, in few pieces, and the matrix of rows of one shape."""
    for group in groups:
        _check_first_touch(core, group)
    if groups[0].at is None:
        segment, _, places, _ = groups[0]
        return _read_run(core, segment, places, notes=notes, vectors=vectors)
    shape = int(groups[0].places.shapes[0])
    block = np.empty((count, shape >> 2), DTYPES[shape & 3]) if vectors else None
    bodies: list[Buffer] = [b""] * count if notes else []
    for segment, at, places, _ in groups:
        read_notes, matrix = _read_run(core, segment, places, notes=notes, vectors=vectors)
        if block is not None and matrix is not None:
            block[at] = matrix
        if notes and at is not None:
            ends = places.note_bytes.cumsum(dtype=np.int64).tolist()
            view = memoryview(b"".join(read_notes))
            for number, low, high in zip(at.tolist(), [0, *ends], ends, strict=False):
                bodies[number] = view[low:high]
    return bodies, block


def _read_few(core: Core, locs: list[int], *, notes: bool, vectors: bool) -> RowPage:
    """A page of few rows, each read and checked by itself."""
    bodies = [array_header(3 * len(locs))]
    blocks: list[VectorArray] = []
    embedding_ids: list[str | None] = []
    for loc in locs:
        note, row, embedding_id = read_row(core, loc)
        bodies.append(note)
        embedding_ids.append(embedding_id)
        if not vectors:
            continue
        vector = row[np.newaxis]
        if blocks and blocks[-1].dtype == vector.dtype and blocks[-1].shape[1] == vector.shape[1]:
            blocks[-1] = np.concatenate((blocks[-1], vector))
        else:
            blocks.append(vector)
    return RowPage(b"".join(bodies) if notes else b"", blocks, embedding_ids)


def _check_first_touch(core: Core, group: _Group) -> None:
    """Check the frames of rows that this process has not checked yet.

    Of a BLOCK a few rows are reason enough to check all of it: who scans will ask for the others.
    """
    index, frames = group.segment.index, group.places.frames
    fresh = index.checked[frames] == 0
    if not fresh.any():
        return
    numbers, counts = np.unique(frames[fresh], return_counts=True)
    slot_counts = index.slot_counts(numbers)
    is_compacted = isinstance(index, CompactedIndex)
    if is_compacted:
        is_whole = (counts >= WANTED_ROWS_MIN) | (WANTED_SHARE * counts >= slot_counts)
    else:
        is_whole = (slot_counts > 1) & (2 * counts >= slot_counts)
    for number in numbers[is_whole].tolist():
        if is_compacted:
            read_block(core, group.segment, number)
        else:
            read_frame(core, group.segment, number)
        index.checked[number] = 1
    by_row = fresh & ~np.isin(frames, numbers[is_whole])
    if by_row.any():
        _check_rows(core, group, by_row)
        index.checked[numbers[slot_counts == 1]] = 1


def _check_rows(core: Core, group: _Group, chosen: BoolArray) -> None:
    """Check rows by their own CRCs."""
    segment, _, places, locs = group
    note_offsets, note_bytes = places.note_offsets[chosen], places.note_bytes[chosen]
    vector_offsets, vector_bytes = places.vector_offsets[chosen], places.vector_bytes[chosen]
    crcs = places.crcs[chosen].tolist()
    starts = np.concatenate((note_offsets, vector_offsets))
    sizes = np.concatenate((note_bytes.astype(np.int64), vector_bytes))
    count = len(note_offsets)
    for part in row_parts(note_bytes + vector_bytes):
        both = np.r_[part, slice(count + part.start, count + part.stop)]
        scratch, at = gather_extents(core, segment, starts[both], sizes[both])
        view = scratch.data
        ends = at + sizes[both]
        pieces = [view[low:high] for low, high in zip(at.tolist(), ends.tolist(), strict=True)]
        half = part.stop - part.start
        for row, (note, vector) in enumerate(
            zip(pieces[:half], pieces[half:], strict=True), part.start
        ):
            if crc32c(vector, crc32c(note)) != crcs[row]:
                raise row_damage(segment, int(note_offsets[row]), int(locs[chosen][row]))


def _embedding_ids(groups: list[_Group], count: int) -> list[str | None]:
    if groups[0].at is None:
        return _embedding_ids_of(groups[0].segment, groups[0].places.embeddings)
    parts = [_embedding_ids_of(group.segment, group.places.embeddings) for group in groups]
    values = {value for part in parts for value in part}
    if len(values) == 1:
        return [*values] * count
    whole: list[str | None] = [None] * count
    for group, found in zip(groups, parts, strict=True):
        assert group.at is not None
        for number, embedding_id in zip(group.at.tolist(), found, strict=True):
            whole[number] = embedding_id
    return whole


def _embedding_ids_of(segment: Segment, numbers: UInt32Array) -> list[str | None]:
    table = segment.index.embedding_ids
    first = int(numbers[0])
    if len(table) == 1 or (numbers == first).all():
        return [table[first]] * len(numbers)
    return [table[number] for number in numbers.tolist()]


def _read_run(
    core: Core, segment: Segment, places: RowPlaces, *, notes: bool, vectors: bool
) -> tuple[list[bytes], VectorArray | None]:
    """Notes of rows of one segment and shape, in few pieces, and their vectors."""
    starts, sizes = places.note_offsets, places.note_bytes.astype(np.int64)
    count, places_of, width = len(starts), places.vector_offsets, int(places.vector_bytes[0])
    shape = int(places.shapes[0])
    dim, dtype = shape >> 2, DTYPES[shape & 3]
    if not width:
        matrix = np.empty((count, dim), dtype) if vectors else None
        return (_read_notes(core, segment, starts, sizes) if notes else []), matrix
    breaks = np.flatnonzero(places_of[1:] != places_of[:-1] + width) + 1
    if len(breaks) * RUN_ROWS_MIN <= count:
        cuts = [0, *breaks.tolist(), count]
        matrix = None
        if vectors:
            matrix = np.empty((count, dim), dtype)
            raw = matrix.reshape(-1).view(np.uint8).data
            for low, high in pairwise(cuts):
                place = int(places_of[low])
                read_into(core, segment, raw[low * width : high * width], place)
        return (_read_note_runs(core, segment, starts, sizes, cuts) if notes else []), matrix
    lead = places_of - starts
    if notes and vectors and bool(((lead >= sizes) & (lead < sizes + 8)).all()):
        # One-row events: note and vector of each are one extent of the file.
        return gather_rows(core, segment, starts, sizes, lead, dim, dtype)
    bodies = _read_notes(core, segment, starts, sizes) if notes else []
    if not vectors:
        return bodies, None
    lead = np.zeros_like(sizes)
    return bodies, gather_rows(core, segment, places_of, None, lead, dim, dtype)[1]


def _read_notes(core: Core, segment: Segment, starts: Int64Array, sizes: Int64Array) -> list[bytes]:
    """Note bodies wherever they lie."""
    bodies = []
    for part in row_parts(sizes):
        scratch, at = gather_extents(core, segment, starts[part], sizes[part])
        bodies.append(notes_of(scratch, at, sizes[part]))
    return bodies


def _read_note_runs(
    core: Core, segment: Segment, starts: Int64Array, sizes: Int64Array, cuts: list[int]
) -> list[bytes]:
    """Note bodies that lie behind each other between the cuts, and perhaps elsewhere not."""
    bodies = []
    for low, high in pairwise(cuts):
        start, end = int(starts[low]), int(starts[high - 1] + sizes[high - 1])
        if end - start == int(sizes[low:high].sum()):
            bodies.append(read(core, segment, end - start, start))
            continue
        bodies += _read_notes(core, segment, starts[low:high], sizes[low:high])
    return bodies
