"""TIP: a witness of what was acknowledged, apart from the log itself.

A log that was cut looks like a log that ended there. TIP is the second record: it names a seq that
was on disk, and it is written after the fdatasync that put it there and never synced, so it may be
behind but is never ahead. Losing it costs nothing; being shorter than it says is damage.

Two slots in different sectors are written in turn. All writers do so under a lock on TIP itself,
held for two system calls, and what it says only moves forward. docs/format.md owns the bytes.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from fmemory_segments._lock import FileLock, store_moved
from fmemory_segments.errors import LogNotFound
from fmemory_segments.filesystem import FileSystem

FIELDS = struct.Struct("<6Q12x")
CHECK = struct.Struct("<I")
SLOT_BYTES: Final = 64
SLOT_OFFSETS: Final = (0, 512)
TIP_BYTES: Final = 1024
TIP_LOCK_TIMEOUT_S: Final = 1.0


class Tip(msgspec.Struct, frozen=True, gc=False):
    """What TIP says.

    Attributes:
        counter: Number of this value; the higher of two valid slots holds.
        synced_seq: Every event up to it was on disk.
        segment_base: Base seq of the segment that was active then.
        synced_offset: End of that event's frame in that segment.
        manifest_no: Newest manifest, 0 before the first compaction.
        suspect_from: First seq that a failed fdatasync may have lost; 0 = none.
    """

    counter: int = 0
    synced_seq: int = 0
    segment_base: int = 0
    synced_offset: int = 0
    manifest_no: int = 0
    suspect_from: int = 0


def pack_slot(tip: Tip) -> bytes:
    """The 64 bytes of a slot."""
    body = FIELDS.pack(
        tip.counter,
        tip.synced_seq,
        tip.segment_base,
        tip.synced_offset,
        tip.manifest_no,
        tip.suspect_from,
    )
    return body + CHECK.pack(crc32c(body))


def unpack_slot(data: bytes) -> Tip | None:
    """The value of a slot; None if it was never written or its bytes are not whole.

    >>> unpack_slot(pack_slot(Tip(counter=1, synced_seq=7))).synced_seq
    7
    >>> unpack_slot(bytes(64)) is None
    True
    """
    if len(data) != SLOT_BYTES:
        return None
    body, check = data[: FIELDS.size], data[FIELDS.size :]
    fields = FIELDS.unpack(body)
    if fields[0] == 0 or check != CHECK.pack(crc32c(body)):
        return None
    return Tip(*fields)


def parse_tip(data: bytes) -> Tip:
    """The newer valid slot of a TIP file; a value that claims nothing if there is none."""
    slots = (unpack_slot(data[at : at + SLOT_BYTES]) for at in SLOT_OFFSETS)
    return max((slot for slot in slots if slot), key=lambda tip: tip.counter, default=Tip())


def damaged_slots(data: bytes) -> list[int]:
    """Offsets of slots that were written once and are not whole any more."""
    return [
        at
        for at in SLOT_OFFSETS
        if any(slot := data[at : at + SLOT_BYTES]) and unpack_slot(slot) is None
    ]


class TipFile:
    """The TIP of an open log. Not thread-safe by itself: each method takes the lock it needs."""

    def __init__(self, fs: FileSystem, fd: int, path: Path, *, write: bool) -> None:
        self._fs = fs
        self._fd = fd
        self._path = path
        self._identity = fs.identity(fd)
        self._lock = FileLock(fs, fd, path, TIP_LOCK_TIMEOUT_S) if write else None
        self._raw = b""
        self._tip = Tip()

    def read(self) -> Tip:
        """What TIP says now. Cost: one pread; parsing only if the bytes changed."""
        raw = self._fs.pread(self._fd, TIP_BYTES, 0)
        if raw != self._raw:
            self._tip = parse_tip(raw)
            self._raw = raw
        return self._tip

    def moved(self) -> LogNotFound | None:
        """The error of a store that was taken away; None if TIP is in its place. Cost: one stat."""
        if self._fs.is_at(self._identity, self._path):
            return None
        return store_moved(self._path)

    def advance(self, *, synced_seq: int, segment_base: int, synced_offset: int) -> Tip:
        """Record that events up to `synced_seq` are on disk, unless TIP says so already.

        While `suspect_from` is set nothing from there on counts as synced: the error may have been
        reported to another descriptor than the one that synced well.
        """

        with self._exclusive():
            now = self.read()
            if synced_seq <= now.synced_seq or 0 < now.suspect_from <= synced_seq:
                return now
            return self._write(
                Tip(
                    now.counter + 1,
                    synced_seq,
                    segment_base,
                    synced_offset,
                    now.manifest_no,
                    now.suspect_from,
                )
            )

    def suspect(self) -> Tip:
        """Record that a sync failed: what TIP does not call synced may be lost."""

        with self._exclusive():
            now = self.read()
            if now.suspect_from:
                return now
            return self._write(
                msgspec.structs.replace(
                    now, counter=now.counter + 1, suspect_from=now.synced_seq + 1
                )
            )

    def settle(self, *, synced_seq: int, segment_base: int, synced_offset: int) -> Tip:
        """Record that the suspect tail was written anew and synced. Under the lock of the log."""

        with self._exclusive():
            now = self.read()
            return self._write(
                Tip(
                    now.counter + 1,
                    max(now.synced_seq, synced_seq),
                    segment_base,
                    synced_offset,
                    now.manifest_no,
                )
            )

    def tell_manifest(self, number: int) -> Tip:
        """Record that a manifest is on disk, for those who have the log open."""

        with self._exclusive():
            now = self.read()
            if number <= now.manifest_no:
                return now
            return self._write(
                msgspec.structs.replace(now, counter=now.counter + 1, manifest_no=number)
            )

    def close(self, *, wait: bool = True) -> None:
        """Close the descriptor, when no thread writes any more; see `FileLock.close`."""
        if self._lock is not None:
            self._lock.close(wait=wait)
        elif self._fd >= 0:
            self._fs.close(self._fd)
        self._fd = -1

    def _exclusive(self) -> FileLock:
        """The lock of TIP, to be held for a block."""
        assert self._lock is not None, "TIP was opened for reading"
        return self._lock

    def _write(self, changed: Tip) -> Tip:
        """Replace the older slot."""
        at = SLOT_OFFSETS[changed.counter % 2]
        slot = pack_slot(changed)
        if self._fs.pwrite(self._fd, slot, at) != SLOT_BYTES:
            raise OSError(errno.EIO, "short write of a TIP slot")
        # What the next read will find if nobody else writes: then there is nothing to parse.
        raw = self._raw.ljust(at, b"\0")
        self._raw = raw[:at] + slot + raw[at + SLOT_BYTES :]
        self._tip = changed
        return changed
