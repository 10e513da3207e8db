"""Checking a store to the last byte, whether it opens or not; nothing is changed.

Opening trusts SEALs and checks what it needs. Here every frame of every segment is walked, every
CRC, seq, time, revision and place checked, every digest computed, and the chain compared with what
segment headers, SEALs and a head pinned elsewhere say. Behind damage the walk goes on at the next
frame that can be recognised, so that one finding does not hide another. docs/format.md owns the
rules.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from crc32c import crc32c

from fmemory_segments._batch import (
    BatchMeta,
    decode_meta,
    decode_payload,
    payload_extent,
)
from fmemory_segments._catalog import (
    LOCK_NAME,
    TIP_NAME,
    Listing,
    SegmentName,
    list_store,
    open_segment,
    reading,
)
from fmemory_segments._chain import next_chain
from fmemory_segments._core import Core, Options, Segment
from fmemory_segments._event_meta import DTYPES, EventMeta, RowsPlace
from fmemory_segments._frame import (
    FRAME_HEADER_BYTES,
    FrameDamage,
    FrameHeader,
    FrameKind,
    data_ok,
    frame_bytes,
    meta_ok,
    unpack_header,
)
from fmemory_segments._frames import read_seal
from fmemory_segments._header import SEGMENT_HEADER_BYTES
from fmemory_segments._lock import FileLock
from fmemory_segments._seal import Seal, SealBuilder
from fmemory_segments._tip import SLOT_BYTES, TIP_BYTES, Tip, damaged_slots, parse_tip
from fmemory_segments._walk import later_headers, read_exactly
from fmemory_segments.errors import LogCorrupt, LogError, LogReason, StoreBusy, UnsupportedFormat
from fmemory_segments.event import NONCE_BYTES, ZERO_CHAIN, Head, StoredEvent, Stream
from fmemory_segments.filesystem import FileKind, FileSystem
from fmemory_segments.finding import Finding
from fmemory_segments.recovery import (
    Expected,
    Judgement,
    Verdict,
    judge_candidate,
    judge_end,
    judge_header,
)

QUIET_TIMEOUT_S: Final = 5.0
SCAN_BYTES: Final = 1 << 20


def verify_store(fs: FileSystem, path: Path, pinned: Head | None = None) -> list[Finding]:
    """What is wrong with the store in a folder, in the order of its files.

    Args:
        fs: The file system.
        path: The folder.
        pinned: A head that was kept elsewhere: also find edits and rollbacks that fit together.

    Returns:
        Findings; those with `damage=False` are only to be known. Empty = every byte is as written.

    Raises:
        LogReadFailed: The folder cannot be listed.

    Cost: O(bytes), SHA-256 over all of them; memory of one segment's index and one frame.
    """
    return _Verifier(fs, path, pinned).run()


@dataclass(slots=True)
class _Place:
    """Where the walk through the store is.

    Attributes:
        seq: Seq expected next.
        time_ns: Of the event before.
        chain: Value after the event before; None where damage lies before it.
    """

    seq: int = 1
    time_ns: int = 0
    chain: bytes | None = ZERO_CHAIN


class _Verifier:
    def __init__(self, fs: FileSystem, path: Path, pinned: Head | None) -> None:
        options = Options(
            read_only=True,
            durability="os",
            interval_s=0,
            lock_timeout_s=QUIET_TIMEOUT_S,
            segment_bytes_max=0,
            segment_frames_max=0,
            clock=time.time_ns,
        )
        self._core = Core(fs, path, options)
        self._fs = fs
        self._path = path
        self._pinned = pinned
        self._findings: list[Finding] = []
        self._place = _Place()
        self._revisions: dict[Stream, int] = {}
        self._pinned_seen: bytes | None = ZERO_CHAIN if pinned and pinned.seq == 0 else None
        self._store_id: bytes | None = None
        self._tip = Tip()

    def run(self) -> list[Finding]:
        with reading(self._path):
            if self._fs.kind(self._path) is not FileKind.FOLDER:
                self._add(LogReason.MISSING, f"store: expected a folder, got none ({self._path})")
                return self._findings
            try:
                listing = list_store(self._fs, self._path)
            except UnsupportedFormat as error:
                self._add(error.reason, str(error), damage=False)
                return self._findings
        self._check_tip()
        self._check_names(listing)
        for number, name in enumerate(listing.segments):
            following = listing.segments[number + 1 :]
            self._check_file(name, following[0] if following else None)
        self._check_end(listing)
        return self._findings

    # The folder

    def _check_tip(self) -> None:
        path = self._path / TIP_NAME
        try:
            if self._fs.kind(path) is None:
                return
            fd = self._fs.open_file(path, write=False, create=False)
            try:
                data = read_exactly(self._fs.pread, fd, TIP_BYTES, 0)
            finally:
                self._fs.close(fd)
        except OSError as error:
            self._add(LogReason.READ_FAILED, f"TIP: {error}", file=TIP_NAME)
            return
        self._tip = parse_tip(data)
        for offset in damaged_slots(data):
            self._add(
                LogReason.WITNESS,
                f"TIP: expected a whole slot at byte {offset}, got others; the other slot holds; "
                f"the next append writes it anew ({SLOT_BYTES} bytes)",
                file=TIP_NAME,
                offset=offset,
                damage=False,
            )
        if self._tip.suspect_from:
            self._add(
                LogReason.UNSYNCED_TAIL,
                f"sync: expected all to be on disk, got a failed sync; events from seq "
                f"{self._tip.suspect_from} on are in doubt until the next append writes them anew",
                file=TIP_NAME,
                first_seq=self._tip.suspect_from,
                damage=False,
            )

    def _check_names(self, listing: Listing) -> None:
        for name in listing.foreign:
            self._add(
                LogReason.FOREIGN_FILE,
                f"folder: expected files of the log, got {name}; it was left alone",
                file=name,
                damage=False,
            )
        if not listing.segments:
            self._add(
                LogReason.MISSING_SEGMENT if self._tip.synced_seq else LogReason.MISSING,
                f"store: expected segments, got none ({self._path})",
                first_seq=1 if self._tip.synced_seq else None,
                last_seq=self._tip.synced_seq or None,
            )

    def _check_end(self, listing: Listing) -> None:
        """The end of the log against TIP and the pinned head."""
        head_seq = self._place.seq - 1
        end = judge_end(head_seq=head_seq, synced_seq=self._tip.synced_seq)
        if end.verdict is Verdict.DAMAGED and listing.segments:
            self._add(
                LogReason.ACKNOWLEDGED_LOSS,
                f"log end: expected {end.evidence}; restore a backup",
                file=str(listing.segments[-1]),
                first_seq=head_seq + 1,
                last_seq=self._tip.synced_seq,
            )
        pinned = self._pinned
        if pinned is None:
            return
        if pinned.seq > head_seq:
            self._findings.append(Finding.behind_pinned(pinned, head_seq))
        elif self._pinned_seen is not None and self._pinned_seen != pinned.chain:
            self._findings.append(
                Finding.chain_differs(pinned, Head(pinned.seq, self._pinned_seen))
            )
        elif self._pinned_seen is None:
            self._add(
                LogReason.PINNED_HEAD,
                f"pinned head: expected to compute the chain up to seq {pinned.seq}, got damage "
                "before it",
                last_seq=pinned.seq,
            )

    # A segment

    def _check_file(self, name: SegmentName, successor: SegmentName | None) -> None:
        try:
            file, header = open_segment(
                self._fs, self._path, name, write=False, store_id=self._store_id
            )
        except (LogCorrupt, UnsupportedFormat) as error:
            self._add(error.reason, str(error), file=str(name), offset=0, first_seq=name.base_seq)
            self._lose_track(successor.base_seq if successor else None)
            return
        except LogError as error:
            self._add(error.reason, str(error), file=str(name), first_seq=name.base_seq)
            self._lose_track(successor.base_seq if successor else None)
            return
        self._store_id = header.store_id
        segment = Segment.begin(self._path / str(name), header, file, self._place.time_ns)
        self._check_start(segment)
        try:
            self._check_segment(segment, successor)
        except OSError as error:
            self._add(
                LogReason.READ_FAILED,
                f"read: expected bytes, got {error}; nothing is known of events from seq "
                f"{self._place.seq} on in this file",
                file=str(name),
                first_seq=self._place.seq,
            )
            self._lose_track(successor.base_seq if successor else None)

    def _check_start(self, segment: Segment) -> None:
        """The header against what came before."""
        place, base_seq = self._place, segment.base_seq
        if base_seq != place.seq:
            self._add(
                LogReason.MISSING_SEGMENT,
                f"segments: expected one with base seq {place.seq}, got {base_seq}; events between "
                "are missing or there twice; put the missing file back",
                file=segment.path.name,
                offset=0,
                first_seq=min(place.seq, base_seq),
                last_seq=max(place.seq, base_seq) - 1,
            )
            self._lose_track(base_seq)
        if place.chain is None:
            place.chain = segment.header.prev_chain
        elif place.chain != segment.header.prev_chain:
            self._add(
                LogReason.CHAIN,
                f"chain: expected {place.chain.hex()} before seq {base_seq}, got "
                f"{segment.header.prev_chain.hex()} in the header; an event before was edited, "
                "removed or reordered",
                file=segment.path.name,
                offset=0,
                last_seq=base_seq - 1,
            )
            place.chain = segment.header.prev_chain

    def _check_segment(self, segment: Segment, successor: SegmentName | None) -> None:
        """All frames of a segment, its SEAL or its end."""
        upto = self._moved_from(successor)
        walk = _Walk(self, segment)
        builder = SealBuilder(segment.base_seq)
        size = self._fs.size(segment.file.fd)
        while walk.offset < size and (upto is None or self._place.seq < upto):
            found = walk.next_frame(size)
            if found is None:
                break
            header, batch, events, is_whole = found
            if header.kind == FrameKind.SEAL:
                self._check_seal(segment, walk, builder, header, size)
                return
            assert batch is not None
            try:
                builder.add(walk.offset, batch)
            except AssertionError:
                is_whole = False
            self._take(segment, walk.offset, events, header, is_whole=is_whole)
            walk.advance(header)
        if successor is not None and upto is None and not walk.is_lost:
            self._add(
                LogReason.SEAL,
                f"seal: expected one at byte {walk.offset}, got none, although a segment follows",
                file=segment.path.name,
                offset=walk.offset,
                first_seq=self._place.seq,
            )
        elif walk.in_batch:
            self._check_tail(segment, walk, size, Judgement(Verdict.CANDIDATE, LogReason.TORN_TAIL))

    def _moved_from(self, successor: SegmentName | None) -> int | None:
        """Base seq of the successor if it took over the tail of the segment before it."""
        if successor is None:
            return None
        try:
            _, header = open_segment(self._fs, self._path, successor, write=False, store_id=None)
        except LogError:
            return None  # Its own check names what is wrong with it.
        return header.base_seq if header.took_tail else None

    def _check_seal(
        self, segment: Segment, walk: _Walk, builder: SealBuilder, header: FrameHeader, size: int
    ) -> None:
        """The SEAL against what the frames before it say."""
        offset, chain = walk.offset, self._place.chain
        found = read_seal(self._core, segment, offset, size)
        evidence = found if isinstance(found, str) else ""
        if isinstance(found, Seal) and chain is not None and not walk.is_lost:
            segment.index = builder.index
            content = builder.pack(chain)
            start = offset + FRAME_HEADER_BYTES
            body = read_exactly(
                self._fs.pread, segment.file.fd, frame_bytes(header) - FRAME_HEADER_BYTES, start
            )
            wanted = _padded(content.meta) + b"".join(content.parts)
            if found.chain != chain:
                self._add(
                    LogReason.CHAIN,
                    f"chain: expected {chain.hex()} after seq {self._place.seq - 1}, got "
                    f"{found.chain.hex()} in the SEAL; an event of this segment was edited, removed"
                    " or reordered",
                    file=segment.path.name,
                    offset=offset,
                    first_seq=segment.base_seq,
                    last_seq=self._place.seq - 1,
                )
            elif wanted != body:
                evidence = "the columns of the frames before it, got others"
        if (
            isinstance(found, Seal)
            and found.index.event_count + segment.base_seq != self._place.seq
        ):
            evidence = f"a SEAL up to seq {self._place.seq - 1}, got {found.index.last_seq}"
        if evidence:
            self._add(
                LogReason.SEAL,
                f"seal: expected {evidence}; the events before it are intact",
                file=segment.path.name,
                offset=offset,
                first_seq=segment.base_seq,
                last_seq=self._place.seq - 1,
            )

    def _take(
        self,
        segment: Segment,
        offset: int,
        events: list[StoredEvent],
        header: FrameHeader,
        *,
        is_whole: bool,
    ) -> None:
        """Move past a frame: revisions, times, chain."""
        place = self._place
        for stored in events:
            envelope = stored.envelope
            expected = self._revisions.get(envelope.stream, 0) + 1
            if envelope.revision != expected and not self._is_behind_damage():
                self._add(
                    LogReason.FRAME_CONTENT,
                    f"event {envelope.seq}: expected revision {expected} of {envelope.stream}, got "
                    f"{envelope.revision}",
                    file=segment.path.name,
                    offset=offset,
                    first_seq=envelope.seq,
                    last_seq=envelope.seq,
                )
            self._revisions[envelope.stream] = envelope.revision
            place.time_ns = max(place.time_ns, envelope.recorded_at_ns)
            if place.chain is not None and is_whole:
                place.chain = next_chain(place.chain, stored)
                if self._pinned is not None and self._pinned.seq == envelope.seq:
                    self._pinned_seen = place.chain
        if not is_whole:
            place.chain = None
        place.seq = header.first_seq + header.event_count

    def _is_behind_damage(self) -> bool:
        return any(finding.damage for finding in self._findings)

    def _lose_track(self, seq: int | None) -> None:
        """Go on at a seq whose predecessors are not known."""
        self._place.chain = None
        if seq is not None:
            self._place.seq = seq

    # Damage

    def check_tail(self, segment: Segment, walk: _Walk, size: int, found: Judgement) -> bool:
        """Judge a place where no frame is; True if the walk can go on behind it."""
        return self._check_tail(segment, walk, size, found)

    def _check_tail(self, segment: Segment, walk: _Walk, size: int, found: Judgement) -> bool:
        fd, salt = segment.file.fd, segment.header.salt
        offset, seq = (
            (walk.batch_offset, walk.expected.batch_first_seq)
            if walk.in_batch
            else (walk.offset, self._place.seq)
        )
        later = list(later_headers(self._fs, fd, salt=salt, offset=walk.offset, size=size))
        with self._quiet() as is_quiet:
            now = self._fs.size(fd)
            head = self._fs.pread(fd, FRAME_HEADER_BYTES, walk.offset)
            changed = now != size or unpack_header(head, salt, walk.offset) is not None
            if is_quiet and changed and found.reason is LogReason.FRAME_CHECKSUM:
                return False  # A writer finished meanwhile; what it appended came after we began.
        judgement = judge_candidate(
            found, expected_seq=seq, later=later, synced_seq=self._tip.synced_seq
        )
        if judgement.verdict is Verdict.TORN and not later:
            used = self._used_bytes(fd, offset, size)
            self._add(
                LogReason.TORN_TAIL,
                f"tail: expected a whole batch, got {used} bytes that a crash cut short; no "
                "acknowledged event is concerned; the next writer sets them aside",
                file=segment.path.name,
                offset=offset,
                first_seq=seq,
                damage=False,
            )
            return False
        following = next((header for header in later if header.kind == FrameKind.BATCH), None)
        last_seq = following.first_seq - 1 if following else self._tip.synced_seq or None
        if last_seq is not None and last_seq < seq:
            last_seq = None
        self._add(
            judgement.reason or LogReason.FRAME_CHECKSUM,
            f"frame: expected {judgement.evidence or found.evidence}; events from seq {seq}"
            + (f" to {last_seq}" if last_seq else "")
            + " cannot be read",
            file=segment.path.name,
            offset=offset,
            first_seq=seq,
            last_seq=last_seq,
        )
        return bool(later)

    def _used_bytes(self, fd: int, start: int, size: int) -> int:
        end = size
        while end > start:
            at = max(start, end - SCAN_BYTES)
            used = len(read_exactly(self._fs.pread, fd, end - at, at).rstrip(b"\0"))
            if used:
                return at + used - start
            end = at
        return 0

    @contextmanager
    def _quiet(self) -> Iterator[bool]:
        """Whether nobody writes for the length of a block."""
        path = self._path / LOCK_NAME
        if self._fs.kind(path) is None:
            yield True
            return
        fd = self._fs.open_file(path, write=False, create=False)
        try:
            lock = FileLock(self._fs, fd, path)
            try:
                lock.acquire(QUIET_TIMEOUT_S, shared=True)
            except StoreBusy:
                yield False
                return
            try:
                yield True
            finally:
                lock.release()
        finally:
            self._fs.close(fd)

    def _add(
        self,
        reason: LogReason,
        message: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        first_seq: int | None = None,
        last_seq: int | None = None,
        key: str | None = None,
        damage: bool = True,
    ) -> None:
        where = ", ".join(
            part
            for part in (
                file,
                None if offset is None else f"byte {offset}",
                None if first_seq is None else f"seq {first_seq}",
            )
            if part
        )
        self._findings.append(
            Finding(
                reason,
                f"{message} ({where})" if where and where not in message else message,
                damage,
                file,
                offset,
                first_seq,
                last_seq,
                key,
            )
        )

    add = _add

    @property
    def place(self) -> _Place:
        """Where the walk is."""
        return self._place

    @property
    def fs(self) -> FileSystem:
        """The file system."""
        return self._fs


class _Walk:
    """The frames of one segment, good and bad."""

    def __init__(self, verifier: _Verifier, segment: Segment) -> None:
        self._verifier = verifier
        self._segment = segment
        self.offset = SEGMENT_HEADER_BYTES
        self.batch_offset = self.offset
        seq = verifier.place.seq
        self.expected = Expected(seq, 0, verifier.place.time_ns, seq)
        self.is_lost = False
        self._skips = False

    @property
    def in_batch(self) -> bool:
        """The last frame did not end its batch."""
        return self.expected.seq != self.expected.batch_first_seq

    def advance(self, header: FrameHeader) -> None:
        """Move past a frame."""
        self.offset += frame_bytes(header)
        self.expected.advance(header)
        if header.ends_batch:
            self.batch_offset = self.offset

    def next_frame(
        self, size: int
    ) -> tuple[FrameHeader, BatchMeta | None, list[StoredEvent], bool] | None:
        """The frame at the offset, behind damage if need be; None at the end."""
        segment, fs = self._segment, self._verifier.fs
        fd, salt = segment.file.fd, segment.header.salt
        while True:
            view = memoryview(read_exactly(fs.pread, fd, FRAME_HEADER_BYTES, self.offset))
            header = unpack_header(view, salt, self.offset)
            if header is None and self._is_blank(size):
                return None
            judgement = judge_header(header, self.expected, size - self.offset)
            if header is not None and judgement.verdict is Verdict.DAMAGED:
                self._tell_order(header, judgement)
                self._resume(header)
                judgement = judge_header(header, self.expected, size - self.offset)
            if header is None or judgement.verdict is not Verdict.ACCEPTED:
                if not self._skip(judgement, size):
                    return None
                continue
            if header.kind != FrameKind.BATCH:
                return header, None, [], True
            whole = memoryview(read_exactly(fs.pread, fd, frame_bytes(header), self.offset))
            meta, data = whole[FRAME_HEADER_BYTES : header.data_start], whole[header.data_start :]
            found = self._check_content(header, meta, data, size)
            if found is not None:
                return found
            if self.offset >= size:
                return None

    def _check_content(
        self, header: FrameHeader, meta: memoryview, data: memoryview, size: int
    ) -> tuple[FrameHeader, BatchMeta | None, list[StoredEvent], bool] | None:
        """The events of a frame whose header is right; None if its meta is damaged."""
        segment = self._segment
        salt = segment.header.salt
        batch: BatchMeta | None = None
        evidence = "meta with its checksum, got other bytes"
        reason = LogReason.META_CHECKSUM
        if meta_ok(header, meta, salt, self.offset):
            try:
                batch = decode_meta(meta, header)
            except FrameDamage as damage:
                evidence, reason = f"meta of its events: {damage}", LogReason.FRAME_CONTENT
        is_right = data_ok(header, data, salt, self.offset)
        is_last = not self._has_later(size)
        if (batch is None or not is_right) and is_last and self._may_be_torn(header):
            found = Judgement(Verdict.CANDIDATE, reason, evidence)
            if batch is not None:
                found = Judgement(
                    Verdict.CANDIDATE,
                    LogReason.DATA_CHECKSUM,
                    "data with its checksum, got other bytes",
                )
            self._verifier.check_tail(segment, self, size, found)
            self.offset = size
            self.expected.batch_first_seq = self.expected.seq
            return None
        if batch is None:
            self._verifier.add(
                reason,
                f"frame: expected {evidence}; events from seq {header.first_seq} to "
                f"{header.last_seq} cannot be read",
                file=segment.path.name,
                offset=self.offset,
                first_seq=header.first_seq,
                last_seq=header.last_seq,
            )
            self._lose(header)
            return None
        events, is_whole = self._check_payloads(batch, data)
        if is_whole and not is_right:
            is_whole = False
            self._verifier.add(
                LogReason.DATA_CHECKSUM,
                "frame: expected data with its checksum, got other bytes; every payload is intact, "
                "so it is in the zeros between them",
                file=segment.path.name,
                offset=self.offset,
                first_seq=header.first_seq,
                last_seq=header.last_seq,
            )
        return header, batch, events, is_whole

    def _lose(self, header: FrameHeader) -> None:
        """Move past a frame whose events cannot be read."""
        self.is_lost = True
        self.advance(header)
        self._verifier.place.chain = None
        self._verifier.place.seq = self.expected.seq

    def _may_be_torn(self, header: FrameHeader) -> bool:
        return header.last_seq > self._verifier._tip.synced_seq

    def _has_later(self, size: int) -> bool:
        segment = self._segment
        start = self.offset + FRAME_HEADER_BYTES - 8
        later = later_headers(
            self._verifier.fs,
            segment.file.fd,
            salt=segment.header.salt,
            offset=start,
            size=size,
        )
        return next(later, None) is not None

    def _check_payloads(self, batch: BatchMeta, data: memoryview) -> tuple[list[StoredEvent], bool]:
        """The events whose payload is right, and whether that is all of them."""
        events, is_whole = [], True
        for envelope, meta in zip(batch.envelopes(), batch.events, strict=True):
            offset, size = payload_extent(meta)
            region = data[offset : offset + size]
            try:
                events.append(StoredEvent(envelope, decode_payload(meta, region)))
            except FrameDamage as damage:
                is_whole = False
                rows: list[int | None] = [*_damaged_rows(meta, region)]
                for row in rows or [None]:
                    key = None if row is None else meta.keys[row]
                    name = f"event {envelope.seq}" + (
                        "" if row is None else f", row {row} (record {key!r})"
                    )
                    self._verifier.add(
                        LogReason.ROW_CHECKSUM if row is not None else LogReason.DATA_CHECKSUM,
                        f"{name}: expected the payload as written, got other bytes: {damage}",
                        file=self._segment.path.name,
                        offset=self.offset + batch.header.data_start + offset,
                        first_seq=envelope.seq,
                        last_seq=envelope.seq,
                        key=key,
                    )
        return events, is_whole

    def _is_blank(self, size: int) -> bool:
        at, fs, fd = self.offset, self._verifier.fs, self._segment.file.fd
        while at < size:
            data = read_exactly(fs.pread, fd, min(SCAN_BYTES, size - at), at)
            if data.strip(b"\0"):
                return False
            if not data:
                return True
            at += len(data)
        return True

    def _tell_order(self, header: FrameHeader, judgement: Judgement) -> None:
        self._verifier.add(
            LogReason.FRAME_ORDER,
            f"frame: expected {judgement.evidence}; events are missing, repeated or out of order",
            file=self._segment.path.name,
            offset=self.offset,
            first_seq=min(self.expected.seq, header.first_seq),
            last_seq=max(self.expected.seq - 1, header.first_seq - 1) or None,
        )

    def _resume(self, header: FrameHeader) -> None:
        """Take a frame as the place to go on from."""
        self.is_lost = True
        self._verifier.place.chain = None
        self._verifier.place.seq = header.first_seq
        self.expected = Expected(
            header.first_seq,
            header.prev_frame_bytes,
            min(header.time_ns, self.expected.time_ns),
            header.first_seq - header.batch_offset,
        )

    def _skip(self, judgement: Judgement, size: int) -> bool:
        """Move to the next header that can be recognised; False if there is none."""
        segment, verifier = self._segment, self._verifier
        if judgement.verdict is Verdict.NEWER:
            verifier.add(
                LogReason.UNKNOWN_FEATURE,
                f"frame: expected {judgement.evidence}; a newer version wrote it",
                file=segment.path.name,
                offset=self.offset,
                first_seq=self.expected.seq,
            )
            return False
        if not verifier.check_tail(segment, self, size, judgement):
            self.expected.batch_first_seq = self.expected.seq
            return False
        salt = segment.header.salt
        at = self.offset + 8
        while at < size:
            data = read_exactly(verifier.fs.pread, segment.file.fd, SCAN_BYTES, at)
            found = _next_header(data, salt, at)
            if found is not None:
                offset, header = found
                self.offset = offset
                if header.kind == FrameKind.SEAL:
                    self.expected.seq = header.last_seq + 1
                    self.expected.prev_frame_bytes = header.prev_frame_bytes
                    verifier.place.seq = self.expected.seq
                    verifier.place.chain = None
                    self.is_lost = True
                else:
                    self._resume(header)
                return True
            if len(data) < SCAN_BYTES:
                return False
            at += SCAN_BYTES - FRAME_HEADER_BYTES
        return False


def _next_header(data: bytes, salt: int, offset: int) -> tuple[int, FrameHeader] | None:
    from fmemory_segments._frame import scan_headers

    return next(iter(scan_headers(data, salt, offset)), None)


def _damaged_rows(meta: EventMeta, region: memoryview) -> list[int]:
    """Rows of an event whose CRC is wrong; none if it has no rows or they are right."""
    place = meta.place
    if not isinstance(place, RowsPlace):
        return []
    count = len(meta.keys)
    offsets = np.frombuffer(place.note_offsets, "<u4").tolist()
    crcs = np.frombuffer(place.row_crcs, "<u4").tolist()
    start = NONCE_BYTES * count
    matrix = start + offsets[-1] + 7 & -8
    width = place.dim * DTYPES[place.dtype].itemsize
    found = []
    for row in range(count):
        note = region[start + offsets[row] : start + offsets[row + 1]]
        vector = region[matrix + row * width : matrix + (row + 1) * width]
        if crc32c(vector, crc32c(note)) != crcs[row]:
            found.append(row)
    return found


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) & 7)
