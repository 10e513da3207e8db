"""Reading frames of a segment whose index says where they are: metas, whole frames, SEALs.

Every byte that is returned was checked: the head and the meta of a frame by their CRCs, its data
where the data are returned. A wrong CRC here is damage, never a torn tail: the frame was accepted
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

from fmemory_segments._batch import BatchMeta, decode_meta
from fmemory_segments._catalog import read_failed
from fmemory_segments._core import Core, Segment
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    FrameDamage,
    FrameHeader,
    FrameKind,
    data_ok,
    frame_bytes,
    meta_ok,
    pad8,
    unpack_header,
)
from fmemory_segments._seal import TRAILER_BYTES, Seal, decode_seal, seal_end, unpack_trailer
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import LogCorrupt, LogReason
from fmemory_segments.event import LOC_ROW_BITS, NONCE_BYTES

GROUP_BYTES_MAX: Final = 1 << 18
GAP_BYTES_MAX: Final = 1 << 13
GUESS_BYTES: Final = 1 << 14
# Members of enums are slow to come by.
_BATCH = int(FrameKind.BATCH)
_LEDGER = int(FrameKind.LEDGER)


def read_metas(core: Core, segment: Segment, numbers: Sequence[int]) -> Iterator[BatchMeta]:
    """What the frames with these numbers say of their events; neighbours share a read.

    Args:
        numbers: Frame numbers, ascending or descending.

    Raises:
        LogCorrupt: A head or meta is not what was written.
        LogReadFailed: The system could not read.
    """
    for at, stop, low, high in _groups(segment, numbers):
        if stop == at + 1:
            yield _read_meta(core, segment, numbers[at], low, high - low)
            continue
        view = memoryview(read(core, segment, high - low, low))
        for number in numbers[at:stop]:
            offset = segment.index.frame_offset(number)
            yield _parse_meta(segment, number, view[offset - low :], offset)


def read_frames(
    core: Core, segment: Segment, numbers: range
) -> Iterator[tuple[int, BatchMeta, memoryview]]:
    """Frames one behind the other, by number: meta and data, all checked; small ones share a read.

    Raises:
        LogCorrupt, LogReadFailed: As `read_metas`.
    """
    for at, stop, start, end in _groups(segment, numbers):
        view = memoryview(read(core, segment, end - start, start))
        for number in numbers[at:stop]:
            low = segment.index.frame_offset(number) - start
            high = frame_end(segment, number) - start
            yield number, *_parse_frame(segment, number, view[low:high], start + low)


def read_frame(core: Core, segment: Segment, number: int) -> tuple[BatchMeta, memoryview]:
    """A frame's meta and its data, all checked.

    Raises:
        LogCorrupt, LogReadFailed: As `read_metas`.
    """
    offset = segment.index.frame_offset(number)
    view = memoryview(read(core, segment, frame_end(segment, number) - offset, offset))
    return _parse_frame(segment, number, view, offset)


def read_block(
    core: Core, segment: Segment, number: int
) -> tuple[FrameHeader, memoryview, memoryview]:
    """The header, the meta and the data of a BLOCK frame, all checked.

    Raises:
        LogCorrupt, LogReadFailed: As `read_metas`.
    """
    offset = segment.index.frame_offset(number)
    view = memoryview(read(core, segment, frame_end(segment, number) - offset, offset))
    header = _block_header(segment, number, view, len(view))
    data = view[header.data_start :]
    if not data_ok(header, data, segment.header.salt, offset):
        raise frame_damage(segment, number, LogReason.DATA_CHECKSUM, "data with its checksum")
    return header, view[FRAME_HEADER_BYTES : header.data_start], data


def read_block_front(
    core: Core, segment: Segment, number: int
) -> tuple[FrameHeader, memoryview, memoryview]:
    """The header and the meta of a BLOCK frame, checked, and the nonces, which are not.

    Raises:
        LogCorrupt, LogReadFailed: As `read_metas`.
    """
    offset = segment.index.frame_offset(number)
    size = frame_end(segment, number) - offset
    view = memoryview(read(core, segment, min(size, GUESS_BYTES), offset))
    head = unpack_header(view[:FRAME_HEADER_BYTES], segment.header.salt, offset)
    if head is not None:
        wanted = min(size, head.data_start + NONCE_BYTES * head.event_count)
        if wanted > len(view):
            rest = read(core, segment, wanted - len(view), offset + len(view))
            view = memoryview(b"".join((view, rest)))
    header = _block_header(segment, number, view, size)
    nonces_end = header.data_start + NONCE_BYTES * header.event_count
    return (
        header,
        view[FRAME_HEADER_BYTES : header.data_start],
        view[header.data_start : nonces_end],
    )


def _block_header(segment: Segment, number: int, view: memoryview, size: int) -> FrameHeader:
    """The header of a BLOCK that takes so many bytes, once it and the meta behind it are right."""
    salt, offset = segment.header.salt, segment.index.frame_offset(number)
    header = unpack_header(view[:FRAME_HEADER_BYTES], salt, offset)
    if header is None or header.kind != FrameKind.BLOCK or frame_bytes(header) != size:
        raise frame_damage(segment, number, LogReason.FRAME_CHECKSUM, "a frame header")
    if not meta_ok(header, view[FRAME_HEADER_BYTES : header.data_start], salt, offset):
        raise frame_damage(segment, number, LogReason.META_CHECKSUM, "meta with its checksum")
    return header


def frame_end(segment: Segment, number: int) -> int:
    """Offset in the file behind the frame with this number."""
    index = segment.index
    if number + 1 < index.frame_count:
        return index.frame_offset(number + 1)
    return segment.frames_end


def read(core: Core, segment: Segment, size: int, offset: int) -> bytes:
    """Exactly these bytes of a segment.

    Raises:
        LogCorrupt: The file ends before.
        LogReadFailed: The system could not read.
    """
    try:
        file = core.file_of(segment)
        data = read_exactly(core.fs.pread, file.fd, size, offset)
    except OSError as error:
        raise read_failed(error, segment.path, offset) from error
    if len(data) != size:
        raise too_short(segment, size, len(data), offset)
    return data


def too_short(segment: Segment, size: int, got: int, offset: int) -> LogCorrupt:
    """The error for a file that ends before bytes that were there once."""
    return LogCorrupt(
        f"segment size: expected {size} bytes, got {got} ({segment.path}, byte {offset}); the file "
        "was cut; no file was changed; run `fmemory verify` on the store",
        reason=LogReason.ACKNOWLEDGED_LOSS,
        path=segment.path,
        offset=offset,
    )


def frame_damage(
    segment: Segment, number: int, reason: LogReason, expected: str, got: str = "other bytes"
) -> LogCorrupt:
    """The error for a frame that is not what was written."""
    first, last = segment.index.seqs_of_frame(number)
    offset = segment.index.frame_offset(number)
    return _damage(segment, offset, first, last, reason, f"{expected}, got {got}")


def event_damage(
    segment: Segment,
    seq: int,
    reason: LogReason,
    expected: str,
    got: str = "other bytes",
    *,
    offset: int | None = None,
) -> LogCorrupt:
    """The error for an event that is not what was written, in a frame that else is.

    Args:
        offset: Where in the file it is wrong; None = at its frame.
    """
    if offset is None:
        offset = segment.index.frame_offset(segment.index.frame_of(seq))
    return _damage(segment, offset, seq, seq, reason, f"{expected}, got {got}")


def _damage(
    segment: Segment, offset: int, first: int, last: int, reason: LogReason, evidence: str
) -> LogCorrupt:
    seqs = f"seq {first}" if first == last else f"seq {first} to {last}"
    return LogCorrupt(
        f"{reason.value.replace('_', ' ')}: expected {evidence} ({segment.path}, byte {offset}, "
        f"{seqs}); other events are intact and no file was changed; run `fmemory verify` on the "
        "store",
        reason=reason,
        path=segment.path,
        offset=offset,
        first_seq=first,
        last_seq=last,
    )


def row_damage(segment: Segment, offset: int, loc: int) -> LogCorrupt:
    """The error for a row whose note or vector is not what was written."""
    seq, row = loc >> LOC_ROW_BITS, loc & (1 << LOC_ROW_BITS) - 1
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


def find_seal(core: Core, segment: Segment, size: int) -> int | None:
    """Where the SEAL of a file of this size stands, by its trailer; None if there is none."""
    tail = read_exactly_checked(core, segment, TRAILER_BYTES, max(0, size - TRAILER_BYTES))
    return unpack_trailer(tail, size)


def read_seal(core: Core, segment: Segment, offset: int, size: int) -> Seal | str:
    """The SEAL at this offset of a file of this size; words for what is wrong if it is not whole.

    Raises:
        LogReadFailed: The system could not read.
    """
    salt = segment.header.salt
    head = read_exactly_checked(core, segment, FRAME_HEADER_BYTES, offset)
    header = unpack_header(head, salt, offset)
    if header is None or header.kind != FrameKind.SEAL or not header.is_supported:
        return "a SEAL frame, got other bytes"
    if seal_end(header, offset) != size:
        return f"the file to end at byte {seal_end(header, offset)}, got {size}"
    body = memoryview(
        read_exactly_checked(
            core, segment, frame_bytes(header) - FRAME_HEADER_BYTES, offset + FRAME_HEADER_BYTES
        )
    )
    trailer = read_exactly_checked(core, segment, TRAILER_BYTES, size - TRAILER_BYTES)
    if unpack_trailer(trailer, size) != offset:
        return "a trailer behind the SEAL, got other bytes"
    return parse_seal(segment, header, offset, body)


def parse_seal(segment: Segment, header: FrameHeader, offset: int, body: memoryview) -> Seal | str:
    """The SEAL with this header and these bytes behind it; words for what is wrong."""
    salt = segment.header.salt
    meta, data = body[: pad8(header.meta_bytes)], body[pad8(header.meta_bytes) :]
    if not meta_ok(header, meta, salt, offset):
        return "meta of the SEAL with its checksum, got other bytes"
    if not data_ok(header, data, salt, offset):
        return "data of the SEAL with its checksum, got other bytes"
    if header.first_seq != segment.header.base_seq:
        return f"a SEAL of base seq {segment.header.base_seq}, got {header.first_seq}"
    try:
        return decode_seal(header, meta, data)
    except FrameDamage as damage:
        return str(damage)


def read_exactly_checked(core: Core, segment: Segment, size: int, offset: int) -> bytes:
    """At most these bytes of a segment, with errors of the system given a meaning."""
    try:
        file = core.file_of(segment)
        return read_exactly(core.fs.pread, file.fd, size, offset)
    except OSError as error:
        raise read_failed(error, segment.path, offset) from error


def _groups(segment: Segment, numbers: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Frames, ascending or descending, that lie close enough together for one read.

    Returns:
        Of each group, first and end in `numbers`, and first and end in the file.
    """
    at = low = high = 0
    for place, (start, end) in enumerate(map(_extent, repeat(segment), numbers)):
        if place == at:
            low, high = start, end
            continue
        is_behind = start >= low
        gap, size = (start - high, end - low) if is_behind else (low - end, high - start)
        # What lies between two is read along where that is cheaper than another read.
        if gap > GAP_BYTES_MAX or size > GROUP_BYTES_MAX:
            yield at, place, low, high
            at, low, high = place, start, end
        elif is_behind:
            high = end
        else:
            low = start
    if numbers:
        yield at, len(numbers), low, high


def _extent(segment: Segment, number: int) -> tuple[int, int]:
    """Where in the file a frame starts and ends."""
    return segment.index.frame_offset(number), frame_end(segment, number)


def _read_meta(core: Core, segment: Segment, number: int, offset: int, size: int) -> BatchMeta:
    view = read(core, segment, min(size, GUESS_BYTES), offset)
    if len(view) < size:
        header = unpack_header(view, segment.header.salt, offset)
        if header is not None and len(view) < header.data_start <= size:
            view += read(core, segment, header.data_start - len(view), offset + len(view))
    return _parse_meta(segment, number, memoryview(view), offset)


def _parse_frame(
    segment: Segment, number: int, view: memoryview, offset: int
) -> tuple[BatchMeta, memoryview]:
    batch = _parse_meta(segment, number, view, offset)
    data = view[batch.header.data_start :]
    if not data_ok(batch.header, data, segment.header.salt, offset):
        raise frame_damage(segment, number, LogReason.DATA_CHECKSUM, "data with its checksum")
    return batch, data


def _parse_meta(segment: Segment, number: int, view: memoryview, offset: int) -> BatchMeta:
    salt = segment.header.salt
    header = unpack_header(view, salt, offset)
    kind = _LEDGER if segment.header.is_compacted else _BATCH
    if header is None or header.kind != kind:
        raise frame_damage(segment, number, LogReason.FRAME_CHECKSUM, "a frame header")
    if not segment.index.holds(number, header.first_seq, header.last_seq):
        first, last = segment.index.seqs_of_frame(number)
        got = f"{header.first_seq} to {header.last_seq}"
        raise frame_damage(segment, number, LogReason.FRAME_ORDER, f"seqs {first} to {last}", got)
    meta = view[FRAME_HEADER_BYTES : header.data_start]
    if not meta_ok(header, meta, salt, offset):
        raise frame_damage(segment, number, LogReason.META_CHECKSUM, "meta with its checksum")
    try:
        return decode_meta(meta, header)
    except FrameDamage as damage:
        raise frame_damage(
            segment, number, LogReason.FRAME_CONTENT, "meta of these events", str(damage)
        ) from damage
