"""Checking a store to the last byte, whether it opens or not; nothing is changed.

Opening trusts SEALs and checks what it needs. Here every frame of every segment is looked at, every
CRC, seq, time and revision checked, every digest computed, and the chain compared with what segment
headers, SEALs and a head pinned elsewhere say. docs/format.md owns the rules.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmemory_segments._catalog import (
    LOCK_NAME,
    Listing,
    Vanished,
    list_store,
    missing_file,
    open_segment,
    read_failed,
    reading,
)
from fmemory_segments._chain import next_chain
from fmemory_segments._core import Core, Options, Segment
from fmemory_segments._frame import FRAME_HEADER_BYTES, frame_bytes
from fmemory_segments._frames import read_seal
from fmemory_segments._inspect import Damage, GoodFrame, Inspector, SealFound
from fmemory_segments._inspect_compacted import CompactedInspector
from fmemory_segments._lock import shared_lock
from fmemory_segments._manifest import SegmentName
from fmemory_segments._seal import Seal, SealBuilder
from fmemory_segments._tip import Tip
from fmemory_segments._verify_folder import check_listed, check_names, check_tip
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import LogCorrupt, LogError, LogReason, UnsupportedFormat
from fmemory_segments.event import ZERO_CHAIN, Head, Stream
from fmemory_segments.filesystem import FileKind, FileSystem
from fmemory_segments.finding import Finding
from fmemory_segments.pinned import Pinned, PinnedHeads
from fmemory_segments.recovery import Expected, Verdict, judge_end

QUIET_TIMEOUT_S: Final = 5.0
RUNS_MAX: Final = 4


def verify_store(fs: FileSystem, path: Path, pinned: Pinned = None) -> list[Finding]:
    """What is wrong with the store in a folder, in the order of its files.

    Args:
        fs: The file system.
        path: The folder.
        pinned: Heads that were kept elsewhere: also find edits and rollbacks that fit together.

    Returns:
        Findings; those with `damage=False` are only to be known. Empty = every byte is as written.

    Raises:
        LogReadFailed: The folder cannot be listed.
        UnsupportedFormat: A newer version wrote a segment; nothing is known of what is in it.

    Cost: O(bytes), SHA-256 over all of them; memory of one segment's index and one frame.
    """
    for _ in range(RUNS_MAX - 1):
        # A compaction may remove a file before its turn: what took its place is looked at then.
        with suppress(Vanished):
            return _Verifier(fs, path, pinned).run()
    try:
        return _Verifier(fs, path, pinned).run()
    except Vanished as gone:
        raise read_failed(FileNotFoundError(str(gone)), gone.path) from gone


@dataclass(slots=True)
class _Place:
    """Where the check is.

    Attributes:
        seq: Seq expected next.
        time_ns: Of the event before.
        chain: Value after the event before; None where damage lies before it.
    """

    seq: int = 1
    time_ns: int = 0
    chain: bytes | None = ZERO_CHAIN


class _Verifier:
    def __init__(self, fs: FileSystem, path: Path, pinned: Pinned) -> None:
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
        self._pins = PinnedHeads(pinned)
        self._findings: list[Finding] = []
        self._place = _Place()
        self._revisions: dict[Stream, int] = {}
        self._store_id: bytes | None = None
        self._tip = Tip()

    def run(self) -> list[Finding]:
        with reading(self._path):
            if self._fs.kind(self._path) is not FileKind.FOLDER:
                self._add(LogReason.MISSING, f"store: expected a folder, got none ({self._path})")
                return self._findings
            try:
                listing = list_store(self._fs, self._path)
            except LogCorrupt as error:
                file = None if error.path is None else error.path.name
                self._add(error.reason, str(error), file=file)
                return self._findings
        self._check_folder(listing)
        manifest = listing.manifest
        listed = {one.name: one for one in manifest.segments} if manifest is not None else {}
        for number, name in enumerate(listing.segments):
            following = listing.segments[number + 1 :]
            before = len(self._findings)
            try:
                self._check_file(name, following[0] if following else None)
            except Vanished as gone:
                if list_store(self._fs, self._path) != listing:
                    raise
                self._miss(gone, following[0].base_seq if following else None)
            place = self._place
            if place.chain is not None and str(name) in listed and len(self._findings) == before:
                got = Head(place.seq - 1, place.chain)
                self._findings += check_listed(listed[str(name)], got)
        self._check_end(listing)
        return self._findings

    # The folder

    def _check_folder(self, listing: Listing) -> None:
        self._tip, found = check_tip(self._fs, self._path)
        self._findings += found + check_names(self._fs, self._path, listing, self._tip)
        if not listing.segments:
            synced_seq = self._tip.synced_seq
            self._add(
                LogReason.MISSING_SEGMENT if synced_seq else LogReason.MISSING,
                f"store: expected segments, got none ({self._path})",
                first_seq=1 if synced_seq else None,
                last_seq=synced_seq or None,
            )

    def _check_end(self, listing: Listing) -> None:
        """The end of the log against TIP and the pinned heads."""
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
        self._findings += self._pins.findings(head_seq)

    # A segment

    def _miss(self, gone: Vanished, next_base: int | None) -> None:
        """A segment that the manifest lists is not there."""
        error = missing_file(gone.path)
        last = None if next_base is None else next_base - 1
        self._add(
            error.reason,
            str(error),
            file=gone.path.name,
            first_seq=error.first_seq,
            last_seq=last,
        )
        self._lose_track(next_base)

    def _check_file(self, name: SegmentName, successor: SegmentName | None) -> None:
        next_base = None if successor is None else successor.base_seq
        try:
            file, header = open_segment(
                self._fs, self._path, name, write=False, store_id=self._store_id
            )
        except UnsupportedFormat:
            raise  # Nobody here can tell what is wrong with it.
        except LogError as error:
            last = None if next_base is None else next_base - 1
            self._add(
                error.reason,
                str(error),
                file=str(name),
                offset=0,
                first_seq=name.base_seq,
                last_seq=last,
            )
            self._lose_track(next_base)
            return
        self._store_id = header.store_id
        segment = Segment.begin(self._path / str(name), header, file, self._place.time_ns)
        self._check_start(segment)
        try:
            self._check_frames(segment, successor)
        except OSError as error:
            self._add(
                LogReason.READ_FAILED,
                f"read: expected bytes, got {error}; nothing is known of the events that follow in "
                "this file",
                file=str(name),
                first_seq=self._place.seq,
            )
            self._lose_track(next_base)

    def _check_start(self, segment: Segment) -> None:
        """A segment's header against what came before."""
        place, base_seq, file = self._place, segment.base_seq, segment.path.name
        if base_seq != place.seq:
            self._add(
                LogReason.MISSING_SEGMENT,
                f"segments: expected one with base seq {place.seq}, got {base_seq}; events between "
                "are missing, or there twice; put the missing file back",
                file=file,
                offset=0,
                first_seq=min(place.seq, base_seq),
                last_seq=max(place.seq, base_seq) - 1,
            )
            self._lose_track(base_seq)
        prev_chain = segment.header.prev_chain
        if place.chain is not None and place.chain != prev_chain:
            self._add(
                LogReason.CHAIN,
                f"chain: expected {place.chain.hex()} before seq {base_seq}, got "
                f"{prev_chain.hex()}; an event before was edited, removed or reordered",
                file=file,
                offset=0,
                last_seq=base_seq - 1,
            )
        place.chain = prev_chain

    def _check_frames(self, segment: Segment, successor: SegmentName | None) -> None:
        """All frames of a segment, and its SEAL or its end."""
        if segment.header.is_compacted:
            self._check_compacted(segment)
            return
        upto = self._taken_from(successor)
        builder = SealBuilder(segment.base_seq)
        sees_all = True
        for found in self._inspect(segment, upto, is_last=successor is None):
            if isinstance(found, SealFound):
                if self._is_torn_seal(segment, found, is_last=successor is None):
                    return
                self._check_seal(segment, found, builder if sees_all else None)
                return
            if isinstance(found, Damage):
                sees_all = sees_all and not (found.lost or found.torn)
                self._tell(segment, found)
                continue
            if found.batch.header.first_seq != self._place.seq:
                sees_all = False
                self._lose_track(found.batch.header.first_seq)
            if sees_all:
                builder.add(found.offset, found.batch)
            self._take(segment, found)
        if upto is not None and self._place.seq < upto:
            self._lose_track(upto)
        if successor is not None and upto is None:
            self._add(
                LogReason.SEAL,
                "seal: expected one, as a segment follows, got none",
                file=segment.path.name,
                first_seq=segment.base_seq,
                last_seq=successor.base_seq - 1,
            )

    def _check_compacted(self, segment: Segment) -> None:
        """All frames of a compacted segment, and its SEAL."""
        inspector = CompactedInspector(self._core, segment, self._place.time_ns)
        for found in inspector.inspect():
            if isinstance(found, SealFound):
                self._check_seal(segment, found, inspector.builder)
            elif isinstance(found, Damage):
                self._tell(segment, found)
            else:
                if found.batch.header.first_seq != self._place.seq:
                    self._lose_track(found.batch.header.first_seq)
                self._take(segment, found)

    def _inspect(
        self, segment: Segment, upto: int | None, *, is_last: bool
    ) -> Iterator[GoodFrame | Damage | SealFound]:
        """What is in a segment; the end of the last one is looked at while nobody writes."""
        fd = segment.fd
        inspector = Inspector(
            self._fs,
            fd,
            salt=segment.header.salt,
            size=self._fs.size(fd),
            synced_seq=self._tip.synced_seq,
            offset=segment.end,
            expected=Expected(self._place.seq, 0, self._place.time_ns, self._place.seq),
        )
        for found in inspector.inspect(upto):
            if isinstance(found, Damage) and is_last:
                break
            yield found
        else:
            return
        with shared_lock(self._fs, self._path / LOCK_NAME, QUIET_TIMEOUT_S) as is_quiet:
            if not is_quiet:
                self._add(
                    LogReason.LOCK_TIMEOUT,
                    f"tail: expected nobody to write for {QUIET_TIMEOUT_S:g} s, got a writer; "
                    "events that follow were not checked",
                    file=segment.path.name,
                    offset=inspector.offset,
                    first_seq=inspector.expected.seq,
                    damage=False,
                )
                return
            again = Inspector(
                self._fs,
                fd,
                salt=segment.header.salt,
                size=self._fs.size(fd),
                synced_seq=self._tip.synced_seq,
                offset=inspector.offset,
                expected=inspector.expected,
            )
            yield from again.inspect(upto)

    def _taken_from(self, successor: SegmentName | None) -> int | None:
        """Base seq of the successor if it took over the tail of the segment before it."""
        if successor is None:
            return None
        try:
            _, header = open_segment(self._fs, self._path, successor, write=False, store_id=None)
        except (LogError, Vanished):
            return None  # The check of that file says what is wrong with it.
        return header.base_seq if header.took_tail else None

    def _is_torn_seal(self, segment: Segment, found: SealFound, *, is_last: bool) -> bool:
        """Report a last SEAL that is not whole: it holds no event, and nothing was built on it."""
        size, offset = self._fs.size(segment.fd), found.offset
        seal = read_seal(self._core, segment, offset, size)
        if isinstance(seal, Seal) or not is_last:
            return False
        damage = Damage(LogReason.TORN_TAIL, seal, offset, self._place.seq, torn=True)
        self._tell(segment, damage)
        return True

    def _check_seal(self, segment: Segment, found: SealFound, builder: SealBuilder | None) -> None:
        """The SEAL against what the frames before it say."""
        size, offset = self._fs.size(segment.fd), found.offset
        seal = read_seal(self._core, segment, offset, size)
        evidence = seal if isinstance(seal, str) else ""
        place = self._place
        if isinstance(seal, Seal):
            if seal.index.last_seq != place.seq - 1:
                evidence = f"a SEAL up to seq {place.seq - 1}, got {seal.index.last_seq}"
                self._lose_track(seal.index.last_seq + 1)
            elif place.chain is not None and seal.chain != place.chain:
                self._add(
                    LogReason.CHAIN,
                    f"chain: expected {place.chain.hex()} after seq {place.seq - 1}, got "
                    f"{seal.chain.hex()} in the SEAL; an event of this segment was edited, removed "
                    "or reordered",
                    file=segment.path.name,
                    offset=offset,
                    first_seq=segment.base_seq,
                    last_seq=place.seq - 1,
                )
            elif builder is not None and place.chain is not None:
                body_bytes = frame_bytes(found.header) - FRAME_HEADER_BYTES
                start = offset + FRAME_HEADER_BYTES
                got = read_exactly(self._fs.pread, segment.fd, body_bytes, start)
                if not builder.pack(place.chain).is_in(found.header, got):
                    evidence = "the columns of the frames before it, got others"
        if evidence:
            self._add(
                LogReason.SEAL,
                f"seal: expected {evidence}; the events before it are intact",
                file=segment.path.name,
                offset=offset,
                first_seq=segment.base_seq,
                last_seq=place.seq - 1,
            )

    def _take(self, segment: Segment, frame: GoodFrame) -> None:
        """Move past a frame: revisions, times, chain."""
        place = self._place
        for stored in frame.events:
            envelope = stored.envelope
            expected = self._revisions.get(envelope.stream, 0) + 1
            if envelope.revision != expected and not self._is_behind_damage():
                self._add(
                    LogReason.FRAME_CONTENT,
                    f"event {envelope.seq}: expected revision {expected} of {envelope.stream}, got "
                    f"{envelope.revision}",
                    file=segment.path.name,
                    offset=frame.offset,
                    first_seq=envelope.seq,
                    last_seq=envelope.seq,
                )
            self._revisions[envelope.stream] = envelope.revision
            place.time_ns = max(place.time_ns, envelope.recorded_at_ns)
            if place.chain is not None and frame.is_whole:
                place.chain = next_chain(place.chain, stored)
                self._pins.see(envelope.seq, place.chain)
        if not frame.is_whole:
            place.chain = None
        place.seq = frame.batch.header.last_seq + 1

    def _tell(self, segment: Segment, damage: Damage) -> None:
        """Report damage of a segment's frames."""
        if damage.torn:
            self._add(
                LogReason.TORN_TAIL,
                f"tail: expected {damage.evidence}; a crash cut an append short that nobody was "
                "told of; the next writer sets it aside",
                file=segment.path.name,
                offset=damage.offset,
                first_seq=damage.first_seq,
                damage=False,
            )
            return
        if damage.lost:
            self._place.chain = None
            if damage.last_seq is not None:
                self._place.seq = damage.last_seq + 1
        seqs = f"event {damage.first_seq}"
        if damage.last_seq != damage.first_seq:
            last = "the end" if damage.last_seq is None else damage.last_seq
            seqs = f"events {damage.first_seq} to {last}"
        if damage.key is not None:
            seqs += f", record {damage.key!r}"
        self._add(
            damage.reason,
            f"{seqs}: expected {damage.evidence}",
            file=segment.path.name,
            offset=damage.offset,
            first_seq=damage.first_seq,
            last_seq=damage.last_seq,
            key=damage.key,
        )

    def _is_behind_damage(self) -> bool:
        return any(finding.damage for finding in self._findings)

    def _lose_track(self, seq: int | None) -> None:
        """Go on at a seq whose predecessors are not known."""
        self._place.chain = None
        if seq is not None:
            self._place.seq = seq

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
        if file is not None and file not in message:
            place = file if offset is None else f"{file}, byte {offset}"
            message = f"{message} ({place})"
        self._findings.append(
            Finding(reason, message, damage, file, offset, first_seq, last_seq, key)
        )
