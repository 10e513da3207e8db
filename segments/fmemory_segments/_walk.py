"""Walking the frames of a segment, batch by batch, from a place where one begins.

The one parser for all paths: opening, catching up, sealing and verifying see the same frames and
stop at the same place. It reads, checks and judges; what to do about the place where it stopped is
decided by whoever walks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fmemory_segments._batch import BatchMeta, WrittenFrame, decode_meta
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    FrameDamage,
    FrameHeader,
    FrameKind,
    data_ok,
    frame_bytes,
    meta_ok,
    pad8,
    scan_headers,
    unpack_header,
)
from fmemory_segments.errors import LogReason
from fmemory_segments.filesystem import FileSystem
from fmemory_segments.recovery import (
    CLEAN,
    Expected,
    Judgement,
    Verdict,
    judge_candidate,
    judge_header,
)

WINDOW_BYTES: Final = 1 << 14
WINDOW_BYTES_MAX: Final = 1 << 18
SCAN_BYTES: Final = 1 << 24
ALWAYS: Final = 0
NEVER: Final = 1 << 63

Pread = Callable[[int, int, int], bytes]


class Stop(NamedTuple):
    """Why a walk ended.

    Attributes:
        offset: End of the last whole batch, or where the SEAL stands.
        seq: Seq expected there.
        judgement: CLEAN, CANDIDATE, DAMAGED or NEWER.
        seal: Header of the SEAL that stands at the offset, where one does.
    """

    offset: int
    seq: int
    judgement: Judgement
    seal: FrameHeader | None = None


def read_exactly(pread: Pread, fd: int, size: int, offset: int) -> bytes:
    """`size` bytes at `offset`, fewer only where the file ends."""
    data = pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    got = len(data)
    while got < size:
        data = pread(fd, size - got, offset + got)
        if not data:
            break
        parts.append(data)
        got += len(data)
    return b"".join(parts)


class Window:
    """A part of a file in memory that follows a walk: small at first, as most walks are short."""

    def __init__(self, pread: Pread, fd: int) -> None:
        self._pread = pread
        self._fd = fd
        self._start = 0
        self._data = memoryview(b"")
        self._size = WINDOW_BYTES

    def view(self, offset: int, size: int) -> memoryview:
        """The bytes at the offset, fewer only where the file ends."""
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            follows = offset <= self._start + len(self._data)
            # Frames larger than the window leave holes: reading ahead would read vectors in vain.
            self._size = min(2 * self._size, WINDOW_BYTES_MAX) if follows else WINDOW_BYTES
            data = read_exactly(self._pread, self._fd, max(size, self._size), offset)
            self._start, self._data, at = offset, memoryview(data), 0
        return self._data[at : at + size]


class Walk:
    """The batches of a segment from an offset on; `stop` says where and why they ended.

    Args:
        fs: The file system.
        fd: The segment's file.
        salt: Of its header.
        offset: Where a batch begins, or the segment ends.
        expected: What the frame there must continue.
        size: Of the file.
        data_from_seq: Events from this seq on have the CRC of their frame's data checked too.
        to_end: A clean end is zeros to the end of the file, not only where a frame would begin.
    """

    def __init__(
        self,
        fs: FileSystem,
        fd: int,
        *,
        salt: int,
        offset: int,
        expected: Expected,
        size: int,
        data_from_seq: int,
        to_end: bool,
    ) -> None:
        self._window = Window(fs.pread, fd)
        self._salt = salt
        self._size = size
        self._data_from_seq = data_from_seq
        self._to_end = to_end
        self.offset = offset
        self.expected = expected
        self.stop: Stop | None = None

    def batches(self) -> Iterator[list[WrittenFrame]]:
        """Whole batches in order. Afterwards `offset` is the end of the last one."""
        frames: list[WrittenFrame] = []
        expected = self.expected
        offset = self.offset
        while True:
            found = self._frame(offset)
            if isinstance(found, Judgement):
                self._end(found, bool(frames))
                return
            header = found.batch.header
            if header.kind != FrameKind.BATCH:
                self._end_other(found, bool(frames))
                return
            frames.append(found)
            expected.advance(header)
            offset += expected.prev_frame_bytes
            if header.ends_batch:
                self.offset = offset
                yield frames
                frames = []

    def _frame(self, offset: int) -> WrittenFrame | Judgement:
        """The valid frame at the offset, or what stands there instead."""
        window = self._window
        head = window.view(offset, FRAME_HEADER_BYTES)
        left = self._size - offset
        header = unpack_header(head, self._salt, offset)
        if header is None and self._is_blank(offset):
            return CLEAN
        if header is None or not self.expected.is_met_by(header, frame_bytes(header), left):
            judgement = judge_header(header, self.expected, left)
            if header is None or judgement.verdict is not Verdict.ACCEPTED:
                return judgement
            if header.kind != FrameKind.BATCH:
                return WrittenFrame(offset, BatchMeta(header, []))
        meta_end = header.data_start
        meta = window.view(offset, meta_end)[FRAME_HEADER_BYTES:]
        if not meta_ok(header, meta, self._salt, offset):
            evidence = "meta with its checksum, got other bytes"
            return Judgement(Verdict.CANDIDATE, LogReason.META_CHECKSUM, evidence)
        if header.last_seq >= self._data_from_seq:
            data = window.view(offset + meta_end, pad8(header.data_bytes))
            if not data_ok(header, data, self._salt, offset):
                evidence = "data with its checksum, got other bytes"
                return Judgement(Verdict.CANDIDATE, LogReason.DATA_CHECKSUM, evidence)
        try:
            return WrittenFrame(offset, decode_meta(meta, header))
        except FrameDamage as damage:
            return Judgement(Verdict.DAMAGED, LogReason.FRAME_CONTENT, str(damage))

    def _is_blank(self, offset: int) -> bool:
        """True if there are only zeros from here on."""
        end = self._size if self._to_end else min(self._size, offset + FRAME_HEADER_BYTES)
        while offset < end:
            data = self._window.view(offset, min(WINDOW_BYTES_MAX, end - offset))
            if data.tobytes().count(0) != len(data):
                return False
            if not data:
                return True
            offset += len(data)
        return True

    def _end(self, judgement: Judgement, in_batch: bool) -> None:
        seq = self.expected.batch_first_seq
        if in_batch and judgement.verdict is Verdict.CLEAN:
            judgement = Judgement(
                Verdict.CANDIDATE,
                LogReason.FRAME_CHECKSUM,
                "the rest of a batch, got zeros or the end",
            )
        self.stop = Stop(self.offset, seq, judgement)

    def _end_other(self, frame: WrittenFrame, in_batch: bool) -> None:
        """Stop at a frame that is no BATCH."""
        header = frame.batch.header
        if header.kind != FrameKind.SEAL:
            judgement = Judgement(
                Verdict.NEWER, LogReason.COMPACTED_STORE, f"BATCH or SEAL, got kind {header.kind}"
            )
        elif in_batch or header.last_seq + 1 != self.expected.seq:
            judgement = Judgement(
                Verdict.DAMAGED,
                LogReason.FRAME_ORDER,
                f"a SEAL of events up to {self.expected.seq - 1}, got {header.last_seq}",
            )
        else:
            self.stop = Stop(self.offset, self.expected.seq, CLEAN, header)
            return
        self.stop = Stop(self.offset, self.expected.batch_first_seq, judgement)


def later_headers(
    fs: FileSystem, fd: int, *, salt: int, offset: int, size: int
) -> Iterator[FrameHeader]:
    """Frame headers with right CRCs at 8-byte steps behind the offset, to the end of the file."""
    overlap = FRAME_HEADER_BYTES - 8
    offset += 8
    while offset < size:
        view = read_exactly(fs.pread, fd, SCAN_BYTES, offset)
        if not view:
            return
        for _, header in scan_headers(view, salt, offset):
            yield header
        if len(view) < SCAN_BYTES:
            return
        offset += SCAN_BYTES - overlap


def judge_stop(
    fs: FileSystem, fd: int, *, salt: int, stop: Stop, size: int, synced_seq: int
) -> Judgement:
    """The final verdict on the place where a walk stopped: CLEAN, TORN, DAMAGED or NEWER."""
    if stop.judgement.verdict is not Verdict.CANDIDATE:
        return stop.judgement
    later = later_headers(fs, fd, salt=salt, offset=stop.offset, size=size)
    return judge_candidate(
        stop.judgement, expected_seq=stop.seq, later=later, synced_seq=synced_seq
    )
