"""Writing a batch at the end of the active segment: whole, or as if it had never been tried.

The segment is filled with zeros ahead of its end, because a file that grows at every append costs a
file-system journal commit at every sync. After a failure the segment is cut back to where it ended;
only if that fails too is the handle poisoned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fmemory_segments._batch import FinishedBatch, PreparedBatch, finish, prepare, prepare_stored
from fmemory_segments._catalog import write_failed
from fmemory_segments._core import Core, Segment
from fmemory_segments._frame import FRAME_HEADER_BYTES, Buffer, FrameTooLarge
from fmemory_segments.errors import InvalidDraft, LogReason, StoreFull
from fmemory_segments.event import (
    EVENT_BYTES_MAX,
    Blob,
    Draft,
    Payload,
    Rows,
    StoredEvent,
    Stream,
)
from fmemory_segments.filesystem import IOVEC_COUNT_MAX, WRITE_BYTES_MAX

ZERO_AHEAD_BYTES: Final = 1 << 18
ZEROS_MIN_BYTES: Final = FRAME_HEADER_BYTES
_ZEROS: Final = bytes(ZERO_AHEAD_BYTES)


def prepare_drafts(core: Core, drafts: Sequence[Draft]) -> PreparedBatch:
    """The drafts as frames without a place, checked against the streams they go to.

    Raises:
        InvalidDraft: One cannot be stored as it is. Nothing was written.
    """
    expected: dict[Stream, int] = {}
    for number, draft in enumerate(drafts):
        stream = draft.stream
        revision = expected.get(stream)
        if revision is None:
            revision = core.streams.revision(stream) + 1
        if draft.revision != revision:
            raise InvalidDraft(
                f"draft {number}: expected revision {revision} of stream {stream}, got "
                f"{draft.revision} ({core.path}); nothing was written",
                reason=LogReason.NOT_NEXT,
                path=core.path,
            )
        expected[stream] = revision + 1
        _check_size(core, draft.payload, f"draft {number}")
    try:
        return prepare(drafts, random=core.random.take)
    except (ValueError, OverflowError, msgspec.MsgspecError, TypeError) as error:
        raise _invalid(core, error) from error


def prepare_import(core: Core, events: Sequence[StoredEvent]) -> PreparedBatch:
    """Events of another journal as frames that keep seqs, revisions, times and nonces.

    Raises:
        InvalidDraft: They do not follow the head, or one cannot be stored. Nothing was written.
    """
    expected: dict[Stream, int] = {}
    seq, time_ns = core.head_seq, core.time_ns
    for event in events:
        seq += 1
        envelope = event.envelope
        revision = expected.get(envelope.stream)
        if revision is None:
            revision = core.streams.revision(envelope.stream) + 1
        found = (envelope.seq, envelope.revision)
        if found != (seq, revision) or envelope.recorded_at_ns < time_ns:
            raise InvalidDraft(
                f"import: expected seq {seq}, revision {revision}, a time from {time_ns} on, got "
                f"{envelope.seq}, {envelope.revision} and {envelope.recorded_at_ns} ({core.path}); "
                "nothing was written",
                reason=LogReason.NOT_NEXT,
                path=core.path,
                first_seq=envelope.seq,
            )
        time_ns = envelope.recorded_at_ns
        expected[envelope.stream] = revision + 1
        _check_size(core, event.payload, f"event {seq}")
    try:
        return prepare_stored(events)
    except (ValueError, OverflowError, msgspec.MsgspecError, TypeError) as error:
        raise _invalid(core, error) from error


def finish_batch(
    core: Core, segment: Segment, prepared: PreparedBatch, *, time_ns: int, synced_to: int
) -> FinishedBatch:
    """The batch with its seqs and its place at the end of the segment."""
    return finish(
        prepared,
        first_seq=core.head_seq + 1,
        recorded_at_ns=time_ns,
        synced_to=min(synced_to, core.head_seq),
        prev_frame_bytes=segment.prev_frame_bytes,
        salt=segment.header.salt,
        offset=segment.end,
    )


def write_batch(core: Core, segment: Segment, finished: FinishedBatch) -> None:
    """Write a batch at the end of the segment, with zeros ahead of the next one.

    Raises:
        StoreFull: There is no room. The segment was cut back to where it ended.
        LogWriteFailed: The system failed to write; the same holds.
        LogPoisoned: It could not be cut back.
    """
    start, end = segment.end, finished.end
    size = end - start
    ahead = 0
    if end + ZEROS_MIN_BYTES > segment.zero_end:
        ahead = ZERO_AHEAD_BYTES if size < ZERO_AHEAD_BYTES else ZEROS_MIN_BYTES
    buffers: list[Buffer] = finished.buffers
    if ahead:
        buffers = [*buffers, _ZEROS[:ahead]]
    try:
        written = _write_buffers(core, segment.fd, buffers, start, size, size + ahead)
    except BaseException as error:
        cut_back(core, segment, start)
        if not isinstance(error, OSError):
            raise
        failed = write_failed(error, segment.path, start)
        if isinstance(failed, StoreFull):
            core.state = "full"
        raise failed from error
    if ahead:
        segment.zero_end = start + written
    if core.state == "full":
        core.state = "ok"


def cut_back(core: Core, segment: Segment, start: int) -> None:
    """Take away what a failed write left behind the end of a segment.

    Raises:
        LogPoisoned: The system refused; the bytes are still there, and never acknowledged.
    """
    try:
        core.fs.truncate(segment.fd, start)
    except OSError as error:
        raise core.poisoned("truncate", error, LogReason.TRUNCATE_FAILED) from error
    segment.zero_end = start


def _write_buffers(
    core: Core, fd: int, buffers: list[Buffer], offset: int, needed: int, total: int
) -> int:
    """Write all buffers; the bytes written, which are fewer only if `needed` of them are there."""
    if len(buffers) <= IOVEC_COUNT_MAX and total <= WRITE_BYTES_MAX:
        written = core.fs.pwritev(fd, buffers, offset)
        if written == total:
            return written
    else:
        written = 0
    while written < total:
        part = _part(buffers, written)
        try:
            got = core.fs.pwritev(fd, part, offset + written)
        except OSError:
            if written < needed:
                raise
            break  # The events are whole; only the zeros ahead found no room.
        if got == 0 and written >= needed:
            break
        written += got
    return written


def _part(buffers: list[Buffer], skip: int) -> list[Buffer]:
    """Buffers behind the first `skip` bytes, as many as one call takes."""
    part: list[Buffer] = []
    left = WRITE_BYTES_MAX
    for buffer in buffers:
        size = len(buffer)
        if skip >= size:
            skip -= size
            continue
        view = memoryview(buffer)[skip : skip + left]
        skip = 0
        part.append(view)
        left -= len(view)
        if left == 0 or len(part) == IOVEC_COUNT_MAX:
            break
    return part


def _check_size(core: Core, payload: Payload, name: str) -> None:
    """Raise if a payload is larger than one event may be."""
    if isinstance(payload, Blob):
        size = len(payload.data)
    elif isinstance(payload, Rows):
        size = len(payload.notes) + payload.vectors.nbytes
    else:
        return
    if size > EVENT_BYTES_MAX:
        raise InvalidDraft(
            f"{name}: expected a payload of at most {EVENT_BYTES_MAX} bytes, got {size} "
            f"({core.path}); nothing was written; store less in one event",
            reason=LogReason.INVALID_DRAFT,
            path=core.path,
        )


def _invalid(core: Core, error: Exception) -> InvalidDraft:
    hint = "store less in one event" if isinstance(error, FrameTooLarge) else "correct the event"
    return InvalidDraft(
        f"draft: {error} ({core.path}); nothing was written; {hint}",
        reason=LogReason.INVALID_DRAFT,
        path=core.path,
    )
