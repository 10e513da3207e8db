"""Ending a segment and beginning the next: the ordinary roll, and moving a tail that is in doubt.

A segment is on disk whole before its successor exists, so whoever syncs the active segment has
synced the log. docs/format.md sections 5 and 7 own the steps. Everything here runs under the
exclusive lock.
"""

from __future__ import annotations

import secrets

from fmemory_segments._append import cut_back
from fmemory_segments._catalog import (
    create_segment,
    half_made,
    open_segment,
    publish_segment,
    write_all,
    write_failed,
    writing,
)
from fmemory_segments._chain import ChainCache, checked_frames
from fmemory_segments._core import Core, Segment
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    frame_bytes,
    pack_frame,
)
from fmemory_segments._frames import read, read_frame
from fmemory_segments._header import (
    SEGMENT_HEADER_BYTES,
    SegmentFlag,
    SegmentHeader,
    pack_header,
)
from fmemory_segments._quarantine import cut
from fmemory_segments._seal import SealBuilder, pack_seal
from fmemory_segments._tail import Tail
from fmemory_segments._tip import Tip
from fmemory_segments.event import ZERO_CHAIN


def first_segment(core: Core) -> None:
    """Create the first segment of a new store."""
    header = SegmentHeader(
        secrets.token_bytes(16),
        segment_id=1,
        base_seq=1,
        generation=0,
        created_ns=core.options.clock(),
        prev_chain=ZERO_CHAIN,
        salt=secrets.randbits(32),
    )
    with writing(core.path):
        create_segment(core.fs, core.path, header)


def roll(core: Core, *, synced_to: int) -> None:
    """Seal the active segment, unless it is, and begin the next one.

    Raises:
        StoreFull, LogWriteFailed: Nothing is lost; the next append tries again.
        LogPoisoned: The sync of the segment failed.
        LogCorrupt: An event of the segment is damaged, so it cannot be sealed.
    """
    segment = core.active
    if segment.is_sealed:
        # Whoever sealed it may have died before its sync, and what follows rests on it.
        sync_segment(core, segment)
    else:
        seal(core, segment, synced_to=synced_to)
    header = SegmentHeader(
        core.store_id,
        segment_id=segment.header.segment_id + 1,
        base_seq=segment.next_seq,
        generation=0,
        created_ns=core.options.clock(),
        prev_chain=segment.chain,
        salt=secrets.randbits(32),
    )
    with writing(core.path):
        name = create_segment(core.fs, core.path, header)
        file, _ = open_segment(core.fs, core.path, name, write=True, store_id=core.store_id)
    with core.tail_lock:
        if core.active is segment:  # A reader of this process may have found it first.
            opened = Segment.begin(core.path / str(name), header, file, segment.time_ns)
            core.set_segments((*core.segments, opened))
            core.limit_files(opened)


def seal(core: Core, segment: Segment, *, synced_to: int) -> None:
    """Check every byte of a segment, write its SEAL, cut off its zeros and sync it.

    Raises:
        StoreFull, LogWriteFailed: The segment ends where it did.
        LogPoisoned: It could not be synced or cut back.
        LogCorrupt: An event of it is damaged.
    """
    builder = SealBuilder(segment.base_seq)
    chain = segment.header.prev_chain
    for frame in checked_frames(core, segment, segment.base_seq - 1, segment.next_seq - 1):
        builder.add(segment.index.frame_offset(frame.number), frame.batch)
        chain = frame.next_chain(chain)
    _, buffers = pack_seal(
        builder,
        chain,
        synced_to=min(synced_to, segment.next_seq - 1),
        prev_frame_bytes=segment.prev_frame_bytes,
        salt=segment.header.salt,
        offset=segment.frames_end,
    )
    packed = b"".join(buffers)
    start = segment.frames_end
    # Under the tail lock no reader of this process meets a SEAL that is taken back, and with the
    # zeros cut off first nothing can fail once it is whole.
    with core.tail_lock:
        try:
            core.fs.truncate(segment.fd, start)
            write_all(core.fs, segment.fd, packed, start)
        except BaseException as error:
            cut_back(core, segment, start)
            if isinstance(error, OSError):
                raise write_failed(error, segment.path, start) from error
            raise
        segment.end = start + len(packed)
        segment.chain = chain
        segment.is_sealed = True
    sync_segment(core, segment)
    segment.index.freeze()


def sync_segment(core: Core, segment: Segment) -> None:
    """Have a segment on disk.

    Raises:
        LogPoisoned: It may not be; TIP says from where on.
    """
    try:
        core.fs.datasync(segment.fd)
    except OSError as error:
        raise core.sync_failed(error) from error


def settle(core: Core, tail: Tail, tip: Tip) -> Tip:
    """Write anew what a failed sync left in doubt, in a new segment, and finish what was begun.

    Raises:
        StoreFull, LogWriteFailed: Nothing is lost; the next writer tries again.
        LogPoisoned: The sync of what was written anew failed as well.
    """
    first_seq = max(tip.suspect_from, core.active.base_seq)
    if not _is_moved(core, tip, first_seq):
        _move_tail(core, first_seq)
    with writing(core.path):
        with core.tail_lock:
            tail.load(tip=tip, may_cut=True)
        finish_move(core)
    core.note(f"events from seq {first_seq} on were written anew, as a sync of them had failed")
    assert core.tip is not None
    return core.tip.settle(
        synced_seq=core.head_seq,
        segment_base=core.active.base_seq,
        synced_offset=core.active.end,
    )


def finish_move(core: Core) -> None:
    """Cut and seal the segment whose tail the active one took over, unless that is done.

    Raises:
        OSError: The system failed; the next writer tries again.
    """
    if len(core.segments) < 2 or not core.active.header.took_tail:
        return
    previous = core.segments[-2]
    if previous.is_sealed:
        return
    if core.fs.size(previous.fd) > previous.frames_end:
        cut(core, previous, previous.frames_end, previous.next_seq, torn=False)
    if previous.index.event_count:
        seal(core, previous, synced_to=previous.next_seq - 1)


def _is_moved(core: Core, tip: Tip, first_seq: int) -> bool:
    """True if a writer moved the tail and then stopped before it told TIP."""
    active = core.active
    if not active.header.took_tail or active.base_seq != first_seq:
        return False
    if len(core.segments) < 2:
        return tip.segment_base < active.base_seq  # A compaction dropped the bare header before.
    previous = core.segments[-2]
    is_split = not previous.is_sealed and core.fs.size(previous.fd) > SEGMENT_HEADER_BYTES
    return is_split or tip.segment_base < active.base_seq


def _move_tail(core: Core, first_seq: int) -> None:
    """Copy the frames from a seq on to a new segment that is on disk when this returns."""
    source = core.active
    chain = ChainCache().head(core, first_seq - 1).chain if first_seq > 1 else ZERO_CHAIN
    takes_all = first_seq == source.base_seq
    header = SegmentHeader(
        core.store_id,
        segment_id=source.header.segment_id + 1,
        base_seq=first_seq,
        generation=source.header.generation + 1 if takes_all else 0,
        created_ns=core.options.clock(),
        prev_chain=chain,
        salt=secrets.randbits(32),
        flags=SegmentFlag.MOVED_TAIL,
    )
    with writing(core.path), half_made(core.fs, core.path) as (fd, path):
        write_all(core.fs, fd, pack_header(header), 0)
        _copy_frames(core, source, fd, header)
        core.fs.sync(fd)
        publish_segment(core.fs, core.path, path, header)


def _copy_frames(core: Core, source: Segment, fd: int, header: SegmentHeader) -> None:
    """Write the frames of a segment from `header.base_seq` on to a file, framed for it."""
    if header.base_seq >= source.next_seq:
        return
    offset, prev_frame_bytes = SEGMENT_HEADER_BYTES, 0
    for number in range(source.index.frame_of(header.base_seq), source.index.frame_count):
        start = source.index.frame_offset(number)
        batch, data = read_frame(core, source, number)
        frame = batch.header
        meta = read(core, source, frame.meta_bytes, start + FRAME_HEADER_BYTES)
        _, buffers = pack_frame(
            frame.kind,
            frame.flags,
            event_count=frame.event_count,
            prev_frame_bytes=prev_frame_bytes,
            first_seq=frame.first_seq,
            time_ns=frame.time_ns,
            synced_to=frame.synced_to,
            batch_offset=frame.batch_offset,
            meta=meta,
            data_parts=[data[: frame.data_bytes]],
            data_bytes=frame.data_bytes,
            salt=header.salt,
            offset=offset,
        )
        write_all(core.fs, fd, b"".join(buffers), offset)
        prev_frame_bytes = frame_bytes(frame)
        offset += prev_frame_bytes
