"""Looking at every byte of a segment's frames, and going on behind what is wrong.

Opening stops at the first bad frame; here the walk names what cannot be read, finds the next frame
that can be recognised, and goes on, so that one damaged byte does not hide another. It judges by
the same rules (docs/format.md section 7) and decides nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from fmemory_segments._batch import BatchMeta, decode_meta, decode_payload, payload_extent
from fmemory_segments._event_meta import DTYPES, EventMeta, RowsPlace
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
from fmemory_segments._walk import Pread, later_headers, read_exactly
from fmemory_segments.errors import LogReason
from fmemory_segments.event import NONCE_BYTES, StoredEvent
from fmemory_segments.filesystem import FileSystem
from fmemory_segments.recovery import Expected, Judgement, Verdict, judge_candidate, judge_header

SCAN_BYTES: Final = 1 << 20
HELD_BYTES_MAX: Final = 16 << 20
"""Frames of a batch beyond this size are read again when its end was seen."""


@dataclass(frozen=True, slots=True)
class GoodFrame:
    """A frame of a whole batch whose meta can be read.

    Attributes:
        offset: Of the frame.
        batch: Its header and entries.
        events: Those whose payload is as written; all of them if `is_whole`.
        is_whole: Every byte is as written.
    """

    offset: int
    batch: BatchMeta
    events: list[StoredEvent]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not as written.

    Attributes:
        reason: What is wrong.
        evidence: "expected X, got Y".
        offset: Where.
        first_seq: First event concerned.
        last_seq: Last one; None if it is not known.
        key: Record id of the row concerned.
        lost: Events cannot be read, so the chain cannot be followed.
        torn: A crash cut an append short that nobody was told about: no damage.
    """

    reason: LogReason
    evidence: str
    offset: int
    first_seq: int
    last_seq: int | None = None
    key: str | None = None
    lost: bool = False
    torn: bool = False


class _Held:
    """Frames of a batch whose end was not seen yet: the first, and where the others stand.

    A batch may be as large as memory, so of a large one not all is kept.
    """

    def __init__(self) -> None:
        self.frames: list[GoodFrame] = []
        self.later: list[tuple[int, FrameHeader]] = []
        self.last_seq = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.frames)

    def add(self, frame: GoodFrame) -> None:
        """Keep the next frame."""
        header = frame.batch.header
        self.last_seq = header.last_seq
        self._bytes += frame_bytes(header)
        if self.frames and self._bytes > HELD_BYTES_MAX:
            self.later.append((frame.offset, header))
        else:
            self.frames.append(frame)


class SealFound(NamedTuple):
    """A SEAL ends the frames."""

    offset: int
    header: FrameHeader


Inspected = GoodFrame | Damage | SealFound


class Inspector:
    """The frames of one segment file, good and bad.

    Args:
        fs: The file system.
        fd: The file.
        salt: Of its header.
        size: Of the file.
        synced_seq: What TIP says was on disk.

    Attributes:
        offset: Behind the last batch that was given out.
        expected: What the next frame must continue.
    """

    def __init__(
        self,
        fs: FileSystem,
        fd: int,
        *,
        salt: int,
        size: int,
        synced_seq: int,
        offset: int,
        expected: Expected,
    ) -> None:
        self._fs = fs
        self._pread: Pread = fs.pread
        self._fd = fd
        self._salt = salt
        self._size = size
        self._synced_seq = synced_seq
        self.offset = offset
        self.expected = expected

    def inspect(self, upto: int | None) -> Iterator[Inspected]:
        """Frames, damage, and the SEAL if there is one.

        Args:
            upto: Seq where another segment took over, or None.

        Raises:
            OSError: The system could not read.
        """
        batch = _Held()
        at, expected = self.offset, replace(self.expected)
        while at < self._size and (upto is None or expected.seq < upto):
            found = self._look(at, expected)
            if isinstance(found, SealFound) and not batch:
                yield found
                return
            if found is None or isinstance(found, SealFound):
                break
            good, damages = found
            problem = next((damage for damage in damages if damage.lost or damage.torn), None)
            if problem is not None and (
                problem.torn or not self._is_covered(at, expected.batch_first_seq)
            ):
                yield self._torn(problem.evidence, expected.batch_first_seq)
                return
            yield from damages
            if good is None:
                # What was read of the batch is whole by itself; the batch is not.
                yield from self._given(batch)
                batch = _Held()
                at = self._resume(at, expected)
                self.offset, self.expected = at, replace(expected)
                continue
            header = good.batch.header
            batch.add(good)
            expected.advance(header)
            at += frame_bytes(header)
            if header.ends_batch:
                yield from self._given(batch)
                batch = _Held()
                self.offset, self.expected = at, replace(expected)
        if batch:
            yield self._unfinished(batch)

    def _given(self, batch: _Held) -> Iterator[Inspected]:
        """The frames of a batch, in order."""
        yield from batch.frames
        for at, header in batch.later:
            good, damages = self._read(at, header)
            if good is not None:
                yield good  # What is wrong with its rows was told.
            else:
                yield from damages

    def _look(
        self, at: int, expected: Expected
    ) -> tuple[GoodFrame | None, list[Damage]] | SealFound | None:
        """What stands at an offset; None for a clean end."""
        head = read_exactly(self._pread, self._fd, FRAME_HEADER_BYTES, at)
        header = unpack_header(head, self._salt, at)
        if header is None and self._is_blank(at):
            return None
        damages: list[Damage] = []
        judgement = judge_header(header, expected, self._size - at)
        if header is not None and judgement.verdict is Verdict.DAMAGED:
            damages.append(self._disorder(at, header, expected, judgement))
            _take_place(expected, header)
            judgement = judge_header(header, expected, self._size - at)
        if header is None or judgement.verdict is not Verdict.ACCEPTED:
            assert judgement.reason is not None
            is_newer = judgement.verdict is Verdict.NEWER
            seq = expected.seq
            following = (
                None if is_newer else next_header(self._pread, self._fd, self._salt, at, self._size)
            )
            last = None if following is None else following[1].first_seq - 1
            damages.append(
                Damage(
                    judgement.reason,
                    judgement.evidence,
                    at,
                    seq,
                    last if last is None or last >= seq else None,
                    lost=True,
                )
            )
            return None, damages
        if header.kind == FrameKind.SEAL:
            return SealFound(at, header)
        good, found = self._read(at, header)
        return good, damages + found

    def _read(self, at: int, header: FrameHeader) -> tuple[GoodFrame | None, list[Damage]]:
        """A frame whose header is right."""
        whole = memoryview(read_exactly(self._pread, self._fd, frame_bytes(header), at))
        meta, data = whole[FRAME_HEADER_BYTES : header.data_start], whole[header.data_start :]
        first, last = header.first_seq, header.last_seq
        if not meta_ok(header, meta, self._salt, at):
            evidence = "meta with its checksum, got other bytes"
            return None, [Damage(LogReason.META_CHECKSUM, evidence, at, first, last, lost=True)]
        try:
            batch = decode_meta(meta, header)
        except FrameDamage as error:
            evidence = f"meta that describes its events and data, got {error}"
            return None, [Damage(LogReason.FRAME_CONTENT, evidence, at, first, last, lost=True)]
        events, damages = self._payloads(at, batch, data)
        if not damages and not data_ok(header, data, self._salt, at):
            evidence = "zeros between the payloads, which are intact, got other bytes"
            damages.append(Damage(LogReason.DATA_CHECKSUM, evidence, at, first, last))
        lost = not data_ok(header, data, self._salt, at) and not self._is_covered(at, first)
        if lost:
            evidence = "data with its checksum, got other bytes"
            return None, [Damage(LogReason.DATA_CHECKSUM, evidence, at, first, last, torn=True)]
        return GoodFrame(at, batch, events, not damages), damages

    def _payloads(
        self, at: int, batch: BatchMeta, data: memoryview
    ) -> tuple[list[StoredEvent], list[Damage]]:
        """The events of a frame whose payload is as written, and what is wrong with the others."""
        events: list[StoredEvent] = []
        damages: list[Damage] = []
        for envelope, meta in zip(batch.envelopes(), batch.events, strict=True):
            offset, size = payload_extent(meta)
            region = data[offset : offset + size]
            place = at + batch.header.data_start + offset
            try:
                events.append(StoredEvent(envelope, decode_payload(meta, region)))
            except FrameDamage as error:
                rows = damaged_rows(meta, region)
                for row in rows:
                    evidence = f"row {row} as written, got other bytes"
                    damages.append(
                        Damage(
                            LogReason.ROW_CHECKSUM,
                            evidence,
                            place,
                            envelope.seq,
                            envelope.seq,
                            meta.keys[row],
                        )
                    )
                if not rows:
                    reason = LogReason.DATA_CHECKSUM
                    seq = envelope.seq
                    evidence = f"{_named(error)} as written, got other bytes"
                    damages.append(Damage(reason, evidence, place, seq, seq))
        return events, damages

    def _disorder(
        self, at: int, header: FrameHeader, expected: Expected, judgement: Judgement
    ) -> Damage:
        low, high = sorted((expected.seq, header.first_seq))
        return Damage(
            LogReason.FRAME_ORDER,
            f"{judgement.evidence}; events are missing, repeated or out of order",
            at,
            low,
            max(low, high - 1),
            lost=False,
        )

    def _resume(self, at: int, expected: Expected) -> int:
        """Make the next header that can be recognised the expected one; where it is."""
        found = self._next_header(at)
        if found is None:
            return self._size
        offset, header = found
        if header.kind == FrameKind.SEAL:
            expected.seq = expected.batch_first_seq = header.last_seq + 1
            expected.prev_frame_bytes = header.prev_frame_bytes
        else:
            _take_place(expected, header)
        return offset

    def _next_header(self, at: int) -> tuple[int, FrameHeader] | None:
        return next_header(self._pread, self._fd, self._salt, at, self._size)

    def _is_covered(self, at: int, seq: int) -> bool:
        """True if TIP or a later frame says that an event was on disk."""
        later = later_headers(self._fs, self._fd, salt=self._salt, offset=at, size=self._size)
        found = judge_candidate(
            Judgement(Verdict.CANDIDATE, LogReason.TORN_TAIL),
            expected_seq=seq,
            later=later,
            synced_seq=self._synced_seq,
        )
        return found.verdict is Verdict.DAMAGED

    def _torn(self, evidence: str, seq: int) -> Damage:
        return Damage(LogReason.TORN_TAIL, evidence, self.offset, seq, torn=True)

    def _unfinished(self, batch: _Held) -> Damage:
        seq = batch.frames[0].batch.header.first_seq
        evidence = "the rest of a batch, got zeros or the end"
        if self._is_covered(self.offset, seq):
            last = batch.last_seq
            return Damage(LogReason.FRAME_CHECKSUM, evidence, self.offset, seq, last, lost=True)
        return self._torn(evidence, seq)

    def _is_blank(self, at: int) -> bool:
        while at < self._size:
            data = read_exactly(self._pread, self._fd, min(SCAN_BYTES, self._size - at), at)
            if data.strip(b"\0"):
                return False
            if not data:
                return True
            at += len(data)
        return True


def next_header(
    pread: Pread, fd: int, salt: int, at: int, size: int
) -> tuple[int, FrameHeader] | None:
    """The next place behind an offset where a header with a right CRC is."""
    at += 8
    while at < size:
        view = read_exactly(pread, fd, SCAN_BYTES, at)
        found = next(scan_headers(view, salt, at), None)
        if found is not None:
            return found
        if len(view) < SCAN_BYTES:
            return None
        at += SCAN_BYTES - FRAME_HEADER_BYTES
    return None


def _take_place(expected: Expected, header: FrameHeader) -> None:
    """Expect just this frame."""
    expected.seq = header.first_seq
    expected.batch_first_seq = header.first_seq - header.batch_offset
    expected.prev_frame_bytes = header.prev_frame_bytes
    expected.time_ns = min(expected.time_ns, header.time_ns)


def damaged_rows(meta: EventMeta, region: memoryview) -> list[int]:
    """Rows of an event whose CRC is wrong; none if it has no rows or they are all right."""
    place = meta.place
    if not isinstance(place, RowsPlace):
        return []
    count = len(meta.keys)
    offsets = np.frombuffer(place.note_offsets, "<u4").tolist()
    crcs = np.frombuffer(place.row_crcs, "<u4").tolist()
    start = NONCE_BYTES * count
    matrix = pad8(start + offsets[-1])
    width = place.dim * DTYPES[place.dtype].itemsize
    found = []
    for row in range(count):
        note = region[start + offsets[row] : start + offsets[row + 1]]
        vector = region[matrix + row * width : matrix + (row + 1) * width]
        if crc32c(vector, crc32c(note)) != crcs[row]:
            found.append(row)
    return found


def _named(damage: FrameDamage) -> str:
    """Which part of an event's payload is damaged."""
    return "its nonces" if "nonces" in str(damage) else "its data"
