"""Opening the segments of a store: sealed ones by their SEAL, the last one by a walk.

It reads and never writes. What the walk of the last segment stopped at is handed back: whether that
is a clean end, a torn tail to cut off or damage is decided by whoever knows if a lock is held.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fmemory_segments._batch import WrittenFrame
from fmemory_segments._catalog import Listing, open_segment, reading
from fmemory_segments._core import Core, Segment
from fmemory_segments._files import OpenFile
from fmemory_segments._frame import frame_bytes
from fmemory_segments._frames import find_seal, read_seal
from fmemory_segments._header import SEGMENT_HEADER_BYTES, SegmentHeader, unpack_header
from fmemory_segments._manifest import ListedSegment, SegmentName
from fmemory_segments._recent import Recent
from fmemory_segments._seal import Seal
from fmemory_segments._stream_index import RevisionGap, StreamIndex
from fmemory_segments._walk import Stop, Walk, read_exactly
from fmemory_segments.errors import LogCorrupt, LogReason
from fmemory_segments.event import ZERO_CHAIN
from fmemory_segments.recovery import CLEAN, Expected, Judgement, Verdict


class Loaded(NamedTuple):
    """The segments of a store as they are on disk.

    Attributes:
        segments: All of them, in order.
        streams: Of all of their events.
        recent: Metas of the frames that were walked.
        time_ns: When the last event was recorded.
        stop: Where the walk of the last segment ended.
        is_split: True if a moved tail was not finished: the segment before the last is unsealed.
    """

    segments: list[Segment]
    streams: StreamIndex
    recent: Recent
    time_ns: int
    stop: Stop
    is_split: bool

    @property
    def head_seq(self) -> int:
        """The newest event."""
        return self.segments[-1].next_seq - 1


class Loader:
    """Builds `Loaded` segment by segment."""

    def __init__(self, core: Core, *, synced_seq: int) -> None:
        self._core = core
        self._synced_seq = synced_seq
        self._store_id = core.store_id or None
        self._streams = StreamIndex()
        self._recent = Recent()
        self._segments: list[Segment] = []
        self._time_ns = 0
        self._is_split = False

    def load(self, listing: Listing) -> Loaded:
        """All segments of the listing, which must name at least one.

        Raises:
            LogCorrupt: One is missing, damaged or of another store.
            UnsupportedFormat: A newer version wrote one.
            LogReadFailed: The system could not read.
        """
        self._core.forget_files()
        manifest = listing.manifest
        listed = {one.name: one for one in manifest.segments} if manifest else {}
        stop = Stop(0, 1, CLEAN)
        segment = self._open(listing.segments[0])
        for name in [*listing.segments[1:], None]:
            successor = None if name is None else self._open(name)
            stop = self._load(segment, successor)
            if segment.path.name in listed:
                check_listed(segment, listed[segment.path.name])
            self._segments.append(segment)
            self._time_ns = max(self._time_ns, segment.time_ns)
            self._core.limit_files(segment)
            segment = successor or segment
        return Loaded(
            self._segments, self._streams, self._recent, self._time_ns, stop, self._is_split
        )

    def _open(self, name: SegmentName) -> Segment:
        core = self._core
        file, header = open_segment(
            core.fs, core.path, name, write=not core.options.read_only, store_id=self._store_id
        )
        self._store_id = header.store_id
        return Segment.begin(core.path / str(name), header, file, 0)

    def _load(self, segment: Segment, successor: Segment | None) -> Stop:
        core = self._core
        check_place(segment, self._segments[-1] if self._segments else None)
        with reading(segment.path):
            size = core.fs.size(segment.fd)
        seal_offset = find_seal(core, segment, size)
        if seal_offset is not None:
            found = read_seal(core, segment, seal_offset, size)
            if isinstance(found, Seal) and (
                segment.header.is_compacted or self._stands(found, successor)
            ):
                self._take_seal(segment, found, seal_offset, size)
                return Stop(size, segment.next_seq, CLEAN)
            if segment.header.is_compacted:
                raise self._no_seal(segment, seal_offset, str(found))
            if successor is not None and not successor.header.took_tail:
                evidence = found if isinstance(found, str) else "the last segment, got one behind"
                raise self._no_seal(segment, seal_offset, evidence)
        elif segment.header.is_compacted or (
            successor is not None and not successor.header.took_tail
        ):
            raise self._no_seal(segment, size, "a SEAL, got none")
        if successor is None:
            return self._walk(segment, size, None)
        stop = self._walk(segment, size, successor.base_seq - 1)
        # A segment that was taken over whole stays as a bare header; any other needs its SEAL.
        self._is_split = segment.index.event_count > 0 or size != segment.end
        return stop

    def _stands(self, seal: Seal, successor: Segment | None) -> bool:
        """True if what a SEAL says may be believed without looking at the frames before it.

        A successor is begun when the SEAL is on disk; without one only TIP vouches for the frames,
        as a power cut may leave the SEAL and not them. And a successor may have taken over events
        that a SEAL, whose sync failed, counts as its own.
        """
        if successor is None:
            return seal.index.last_seq <= self._synced_seq
        return not successor.header.took_tail or successor.base_seq > seal.index.last_seq

    def _take_seal(self, segment: Segment, seal: Seal, offset: int, size: int) -> None:
        take_seal(segment, seal, offset, size)
        try:
            self._streams.apply_segment(seal.stream_infos(), seal.event_ids())
        except (RevisionGap, ValueError) as error:
            raise self._no_seal(segment, size, str(error)) from error
        self._recent.clear()

    def _walk(self, segment: Segment, size: int, upto: int | None) -> Stop:
        """Index the frames of an unsealed segment, up to a seq where its successor took over."""
        if upto is not None and upto < segment.base_seq:
            return Stop(segment.end, segment.base_seq, CLEAN)
        walk = Walk(
            self._core.fs,
            segment.fd,
            salt=segment.header.salt,
            offset=segment.end,
            expected=Expected(segment.base_seq, 0, self._time_ns, segment.base_seq),
            size=size,
            data_from_seq=self._synced_seq + 1,
            to_end=True,
        )
        with reading(segment.path):
            for frames in walk.batches():
                try:
                    apply_frames(segment, frames, self._streams, self._recent)
                except RevisionGap as gap:
                    offset, seq = frames[0].offset, frames[0].batch.header.first_seq
                    judgement = Judgement(Verdict.DAMAGED, LogReason.FRAME_CONTENT, str(gap))
                    raise self._core.corrupt(judgement, segment, offset, seq) from gap
                if upto is not None and segment.next_seq > upto:
                    break
        if upto is not None:
            if segment.next_seq != upto + 1:
                stop = walk.stop
                raise self._core.corrupt(
                    stop.judgement
                    if stop is not None and stop.judgement.reason
                    else Judgement(Verdict.DAMAGED, LogReason.FRAME_ORDER, f"events up to {upto}"),
                    segment,
                    segment.end,
                    segment.next_seq,
                )
            return Stop(segment.end, segment.next_seq, CLEAN)
        stop = walk.stop
        assert stop is not None
        if stop.seal is None:
            return stop
        found = read_seal(self._core, segment, stop.offset, size)
        if isinstance(found, str):
            return unfinished_seal(stop, found)
        segment.end = size
        segment.chain = found.chain
        segment.is_sealed = True
        return Stop(size, segment.next_seq, CLEAN)

    def _no_seal(self, segment: Segment, offset: int, evidence: str) -> LogCorrupt:
        judgement = Judgement(Verdict.DAMAGED, LogReason.SEAL, evidence)
        return self._core.corrupt(judgement, segment, offset, segment.base_seq)


def load_sealed(core: Core, name: SegmentName) -> Segment:
    """A segment as its SEAL says it is; streams and the newest event stay what they were.

    Raises:
        LogCorrupt: It is damaged, or of another store.
        LogReadFailed: The system could not read.
        Vanished: It is not there any more.
    """
    file, header = open_segment(
        core.fs, core.path, name, write=not core.options.read_only, store_id=core.store_id
    )
    segment = Segment.begin(core.path / str(name), header, file, 0)
    _finish_sealed(core, segment)
    core.limit_files(segment)
    return segment


def open_sealed(core: Core, path: Path, header: SegmentHeader) -> Segment:
    """A finished segment that has not got its name yet.

    Raises:
        LogCorrupt: It does not begin with this header, or is damaged.
        LogReadFailed: The system could not read.
    """
    with reading(path):
        file = OpenFile(core.fs.open_file(path, write=False, create=False), core.fs.close)
        data = read_exactly(core.fs.pread, file.fd, SEGMENT_HEADER_BYTES, 0)
    segment = Segment.begin(path, header, file, 0)
    if unpack_header(data) != header:
        judgement = Judgement(Verdict.DAMAGED, LogReason.SEGMENT_HEADER, "the header, got another")
        raise core.corrupt(judgement, segment, 0, header.base_seq)
    _finish_sealed(core, segment)
    return segment


def _finish_sealed(core: Core, segment: Segment) -> None:
    """Take what the SEAL of a segment says."""
    with reading(segment.path):
        size = core.fs.size(segment.fd)
    offset = find_seal(core, segment, size)
    found = "a SEAL, got none" if offset is None else read_seal(core, segment, offset, size)
    if isinstance(found, str) or offset is None:
        judgement = Judgement(Verdict.DAMAGED, LogReason.SEAL, str(found))
        raise core.corrupt(judgement, segment, offset or size, segment.base_seq)
    take_seal(segment, found, offset, size)


def take_seal(segment: Segment, seal: Seal, offset: int, size: int) -> None:
    """Have a segment be what its SEAL says; nobody uses it yet."""
    segment.index = seal.index
    segment.chain = seal.chain
    segment.time_ns = seal.time_ns
    segment.end = size
    segment.frames_end = offset
    segment.is_sealed = True


def check_place(segment: Segment, previous: Segment | None) -> None:
    """Raise unless a segment follows the one before it, or begins the log.

    Raises:
        LogCorrupt: Events between are missing, or it continues another chain.
    """
    expected = previous.next_seq if previous is not None else 1
    if segment.base_seq != expected:
        raise LogCorrupt(
            f"segments: expected one with base seq {expected}, got {segment.base_seq} "
            f"({segment.path}); no file was changed; put the missing file back",
            reason=LogReason.MISSING_SEGMENT,
            path=segment.path,
            first_seq=min(expected, segment.base_seq),
            last_seq=max(expected, segment.base_seq) - 1,
        )
    chain = previous.chain if previous is not None else ZERO_CHAIN
    if chain and segment.header.prev_chain != chain:
        raise LogCorrupt(
            f"chain: expected the segment to continue {chain.hex()}, got "
            f"{segment.header.prev_chain.hex()} ({segment.path}, seq {segment.base_seq}); no "
            "file was changed; run `fmemory verify` on the store",
            reason=LogReason.CHAIN,
            path=segment.path,
            offset=0,
            first_seq=segment.base_seq,
        )


def check_listed(segment: Segment, listed: ListedSegment) -> None:
    """Raise unless a segment is the one that the manifest lists.

    Raises:
        LogCorrupt: It holds other events.
    """
    got = segment.next_seq - 1
    if got != listed.last_seq or (segment.chain and segment.chain != listed.chain):
        raise LogCorrupt(
            f"manifest: expected events up to seq {listed.last_seq} with chain "
            f"{listed.chain.hex()}, got {got} with {segment.chain.hex()} ({segment.path}); no file "
            "was changed; put the file back that the manifest lists",
            reason=LogReason.MANIFEST,
            path=segment.path,
            first_seq=segment.base_seq,
            last_seq=listed.last_seq,
        )


def apply_frames(
    segment: Segment,
    frames: list[WrittenFrame],
    streams: StreamIndex,
    recent: Recent,
    core: Core | None = None,
) -> None:
    """Take the frames of a whole batch into the index of their segment.

    Args:
        core: The open log whose newest events these are; None while a log is being loaded.

    Raises:
        RevisionGap: An event does not follow in its stream.
    """
    try:
        _apply(segment, frames, streams, recent)
    except RevisionGap:
        raise
    except BaseException as error:
        if core is not None:  # Interrupted half-way: what this handle knows is not to be trusted.
            core.poisoned("index", error, LogReason.INTERRUPTED)
        raise
    offset, batch = frames[-1]
    size = frame_bytes(batch.header)
    segment.prev_frame_bytes = size
    segment.time_ns = batch.header.time_ns + batch.events[-1].recorded_after_ns
    if core is not None:
        core.time_ns = segment.time_ns
        core.head_seq = batch.header.last_seq
    # Last of all: whoever finds nothing behind the end takes the head for the newest event.
    segment.end = segment.frames_end = offset + size


def _apply(
    segment: Segment, frames: list[WrittenFrame], streams: StreamIndex, recent: Recent
) -> None:
    apply = streams.apply
    for _, batch in frames:
        time_ns = batch.header.time_ns
        for seq, event in enumerate(batch.events, batch.header.first_seq):
            apply(
                event.stream,
                seq=seq,
                revision=event.revision,
                recorded_at_ns=time_ns + event.recorded_after_ns,
                event_id=event.event_id,
            )
    index = segment.index
    for offset, batch in frames:
        index.append_frame(offset, batch)
        recent.add(batch)


def unfinished_seal(stop: Stop, evidence: str) -> Stop:
    """Where a walk met a SEAL that is not whole: torn, or damaged."""
    return Stop(stop.offset, stop.seq, Judgement(Verdict.CANDIDATE, LogReason.SEAL, evidence))


def expected_after(segment: Segment, time_ns: int) -> Expected:
    """What the next frame of a segment must continue."""
    seq = segment.next_seq
    return Expected(seq, segment.prev_frame_bytes, time_ns, seq)
