"""Frames: the one unit that is written, checked and recovered.

A frame is a 64-byte header, meta and data, each padded with zeros to a multiple of 8.
docs/format.md section 3 owns the bytes. This module packs, checks and finds frames in buffers and
does no I/O; it gives no meaning to meta and data, and believes no length before the header's CRC
has vouched for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, IntFlag
from struct import Struct
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from fmemory_segments.event import FRAME_BYTES_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview

FRAME_MAGIC = b"\xf3\xa7\xc0\x5d"
FRAME_HEADER_BYTES = 64
ALIGNMENT = 8
REGION_BYTES_MAX = (1 << 32) - ALIGNMENT
ZEROS = bytes(ALIGNMENT)

_HEADER = Struct("<4sBBHIIQqQIIIIII")
_HEAD = Struct("<4sBBHIIQqQIIIII")
_CRC = Struct("<I")
_SEED = Struct("<IQ")


class FrameKind(IntEnum):
    """What a frame holds."""

    BATCH = 1
    SEAL = 2
    LEDGER = 3
    BLOCK = 4


class FrameFlag(IntFlag):
    """Bits of a frame header's flags."""

    BATCH_END = 1
    DEFLATED = 2


# Plain numbers: comparing with the member of an enum takes several times as long.
_SEAL = int(FrameKind.SEAL)
_MAY_BE_DEFLATED = (_SEAL, int(FrameKind.LEDGER))
_KNOWN = int(FrameFlag.BATCH_END)
_KNOWN_IF_DEFLATED = int(FrameFlag.BATCH_END | FrameFlag.DEFLATED)


class FrameDamage(Exception):  # noqa: N818 - names what was found, as LogCorrupt does
    """Bytes of a frame that are not what a writer of this format writes.

    Attributes:
        part: What is wrong: "meta", "data", "row" (one row of a payload) or, where all CRCs are
            right, "content".
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"frame {part}: {message}")
        self.part = part


class FrameTooLarge(ValueError):  # noqa: N818 - as StoreFull and the others
    """An event that does not fit a frame. Nothing was written.

    Attributes:
        frame_bytes: What it would take.
        frame_bytes_max: What a frame may take.
    """

    def __init__(self, frame_bytes: int, frame_bytes_max: int) -> None:
        super().__init__(
            f"frame size: expected at most {frame_bytes_max} bytes, got {frame_bytes}; "
            "store less in one event"
        )
        self.frame_bytes = frame_bytes
        self.frame_bytes_max = frame_bytes_max


class FrameHeader(NamedTuple):
    """A frame's header, as on disk. Sizes are without padding."""

    magic: bytes
    kind: int
    flags: int
    reserved: int
    event_count: int
    prev_frame_bytes: int
    first_seq: int
    time_ns: int
    synced_to: int
    batch_offset: int
    meta_bytes: int
    data_bytes: int
    meta_crc: int
    data_crc: int
    head_crc: int

    @property
    def is_supported(self) -> bool:
        """False if a newer version wrote this: its kind, a flag or a reserved bit is unknown."""
        if self.reserved or not 1 <= self.kind <= 4:
            return False
        return self.flags <= _KNOWN or (
            self.flags <= _KNOWN_IF_DEFLATED and self.kind in _MAY_BE_DEFLATED
        )

    @property
    def is_deflated(self) -> bool:
        """True for a LEDGER whose meta, or a SEAL whose data, is one deflated stream."""
        return bool(self.flags & 2)

    @property
    def ends_batch(self) -> bool:
        """True for the last frame of a batch."""
        return bool(self.flags & 1)

    @property
    def last_seq(self) -> int:
        """Seq of the last event of the frame."""
        return self.first_seq + self.event_count - 1

    @property
    def data_start(self) -> int:
        """Offset of data from the start of the frame."""
        return FRAME_HEADER_BYTES + (self.meta_bytes + 7 & -8)


def pad8(size: int) -> int:
    """The size rounded up to a multiple of 8.

    >>> [pad8(0), pad8(1), pad8(8)]
    [0, 8, 8]
    """
    return size + 7 & -8


def frame_seed(salt: int, offset: int) -> int:
    """What every CRC of the frame at this offset of a file with this salt starts from."""
    return crc32c(_SEED.pack(salt, offset))


def frame_bytes(header: FrameHeader) -> int:
    """The size of the whole frame, padding included."""
    return FRAME_HEADER_BYTES + (header.meta_bytes + 7 & -8) + (header.data_bytes + 7 & -8)


def pack_frame(
    kind: int,
    flags: int,
    *,
    event_count: int,
    prev_frame_bytes: int,
    first_seq: int,
    time_ns: int,
    synced_to: int,
    batch_offset: int,
    meta: bytes,
    data_parts: Sequence[Buffer],
    data_bytes: int,
    salt: int,
    offset: int,
) -> tuple[FrameHeader, list[Buffer]]:
    """The header, and the frame as buffers for one `writev`; data parts are passed on uncopied.

    Args:
        kind: A `FrameKind`.
        flags: `FrameFlag` bits.
        meta: Unpadded.
        data_parts: C-contiguous buffers of bytes that make up data in this order.
        data_bytes: Their size together.
        salt: Of the segment.
        offset: Where in the file the frame will start, a multiple of 8.

    Raises:
        FrameTooLarge: The frame would be larger than its kind may be.

    Cost: O(bytes), two CRC passes over what is written; about 2 µs for a small frame.
    """
    meta_bytes = len(meta)
    padded_meta = meta + ZEROS[: -meta_bytes & 7]
    size = FRAME_HEADER_BYTES + len(padded_meta) + pad8(data_bytes)
    if size > FRAME_BYTES_MAX and (kind != _SEAL or max(meta_bytes, data_bytes) > REGION_BYTES_MAX):
        raise FrameTooLarge(size, FRAME_BYTES_MAX)
    seed = crc32c(_SEED.pack(salt, offset))
    data_crc = seed
    for part in data_parts:
        data_crc = crc32c(part, data_crc)
    padding = -data_bytes & 7
    if padding:
        data_crc = crc32c(ZEROS[:padding], data_crc)
    fields = (
        FRAME_MAGIC,
        kind,
        flags,
        0,
        event_count,
        prev_frame_bytes,
        first_seq,
        time_ns,
        synced_to,
        batch_offset,
        meta_bytes,
        data_bytes,
        crc32c(padded_meta, seed),
        data_crc,
    )
    head = _HEAD.pack(*fields)
    head_crc = crc32c(head, seed)
    buffers: list[Buffer] = [head + _CRC.pack(head_crc) + padded_meta, *data_parts]
    if padding:
        buffers.append(ZEROS[:padding])
    return FrameHeader(*fields, head_crc), buffers


def unpack_header(view: Buffer, salt: int, offset: int) -> FrameHeader | None:
    """The header at the start of the view, or None if no header of this file and place is there.

    None means: fewer than 64 bytes, wrong magic, wrong CRC, or a size beyond the limit of its kind.
    A header that a newer version wrote is returned; ask its `is_supported`. That the file holds the
    frame to its end is for the caller to check.

    Args:
        view: Bytes from the start of the frame on, more than the header are ignored.
        salt: Of the segment.
        offset: Where in the file the view starts.

    Cost: about 1 µs.
    """
    if len(view) < FRAME_HEADER_BYTES:
        return None
    header = FrameHeader._make(_HEADER.unpack_from(view))
    if header.magic != FRAME_MAGIC:
        return None
    if crc32c(view[:60], crc32c(_SEED.pack(salt, offset))) != header.head_crc:
        return None
    if header.kind == _SEAL:
        fits = max(header.meta_bytes, header.data_bytes) <= REGION_BYTES_MAX
    else:
        fits = frame_bytes(header) <= FRAME_BYTES_MAX
    return header if fits else None


def meta_ok(header: FrameHeader, meta: Buffer, salt: int, offset: int) -> bool:
    """True if these are the frame's meta, padding included."""
    return (
        len(meta) == pad8(header.meta_bytes)
        and crc32c(meta, frame_seed(salt, offset)) == header.meta_crc
    )


def data_ok(header: FrameHeader, data: Buffer | Iterable[Buffer], salt: int, offset: int) -> bool:
    """True if these are the frame's data, padding included; several buffers are taken as joined."""
    parts = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    crc = frame_seed(salt, offset)
    size = 0
    for part in parts:
        crc = crc32c(part, crc)
        size += len(part)
    return size == pad8(header.data_bytes) and crc == header.data_crc


def scan_headers(
    view: bytes | bytearray, salt: int, offset: int, start: int = 0
) -> Iterator[tuple[int, FrameHeader]]:
    """Every place in the buffer where a header with a right CRC is, with that header.

    Args:
        view: Bytes of a file.
        salt: Of the segment.
        offset: Where in the file the view starts, a multiple of 8.
        start: Where in the view to begin.

    Returns:
        Pairs of the offset in the file and the header, ascending.

    Cost: O(bytes), at the speed of a byte search.
    """
    found = view.find(FRAME_MAGIC, start)
    while found >= 0:
        if found % ALIGNMENT == 0:
            head = bytes(view[found : found + FRAME_HEADER_BYTES])
            header = unpack_header(head, salt, offset + found)
            if header is not None:
                yield offset + found, header
        found = view.find(FRAME_MAGIC, found + 1)
