"""The first 128 bytes of a segment: which store, which seqs, which version, which salt.

docs/format.md section 2 owns the bytes. This module packs and unpacks them and does no I/O; unknown
versions and features are reported with the header, never guessed at.
"""

from __future__ import annotations

from enum import IntFlag
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from fmemory_segments._frame import Buffer

SEGMENT_MAGIC = b"\x89FML\r\n\x1a\n"
SEGMENT_HEADER_BYTES = 128
FORMAT_MAJOR = 1
FORMAT_MINOR = 0
INCOMPATIBLE_KNOWN = 0

_HEADER = Struct("<8sHHI16sQQQqII32sII12sI")
_HEAD = Struct("<8sHHI16sQQQqII32sII12s")
_CRC = Struct("<I")


class SegmentFlag(IntFlag):
    """Bits of a segment header's flags."""

    MOVED_TAIL = 1
    COMPACTED = 2


# Members of enums are slow to come by.
_MOVED_TAIL = int(SegmentFlag.MOVED_TAIL)
_COMPACTED = int(SegmentFlag.COMPACTED)


class SegmentHeader(NamedTuple):
    """A segment's header without magic, size, reserved bytes and CRC.

    Attributes:
        store_id: 16 bytes, equal in all segments of a store.
        segment_id: Number of the segment, from 1, never used twice.
        base_seq: Seq of the first event.
        generation: 0, larger in compacted segments.
        created_ns: When it was made; informs only.
        prev_chain: 32 bytes, the chain value after event `base_seq - 1`.
        salt: 32 random bits that seed every CRC of its frames.
        flags: `SegmentFlag` bits.
    """

    store_id: bytes
    segment_id: int
    base_seq: int
    generation: int
    created_ns: int
    prev_chain: bytes
    salt: int
    flags: int = 0
    major: int = FORMAT_MAJOR
    minor: int = FORMAT_MINOR
    compatible: int = 0
    incompatible: int = 0

    @property
    def is_supported(self) -> bool:
        """False if a version that this one cannot read wrote the segment."""
        return self.major == FORMAT_MAJOR and not self.incompatible & ~INCOMPATIBLE_KNOWN

    @property
    def took_tail(self) -> bool:
        """True if the segment took over its predecessor's tail from `base_seq` on."""
        return bool(self.flags & _MOVED_TAIL)

    @property
    def is_compacted(self) -> bool:
        """True if it holds LEDGER and BLOCK frames; it counts where a manifest lists it."""
        return bool(self.flags & _COMPACTED)


def pack_header(header: SegmentHeader) -> bytes:
    """The header's 128 bytes.

    >>> header = SegmentHeader(bytes(16), 1, 1, 0, 0, bytes(32), salt=7)
    >>> unpack_header(pack_header(header)) == header
    True
    """
    if len(header.store_id) != 16 or len(header.prev_chain) != 32:
        raise ValueError("segment header: expected a store id of 16 bytes and a chain of 32")
    head = _HEAD.pack(
        SEGMENT_MAGIC,
        header.major,
        header.minor,
        SEGMENT_HEADER_BYTES,
        header.store_id,
        header.segment_id,
        header.base_seq,
        header.generation,
        header.created_ns,
        header.compatible,
        header.incompatible,
        header.prev_chain,
        header.salt,
        header.flags,
        b"",
    )
    return head + _CRC.pack(crc32c(head))


def unpack_header(view: Buffer) -> SegmentHeader | None:
    """The header at the start of the view, or None if it is too short, or magic or CRC are wrong.

    A header of another version is returned: ask its `is_supported` before anything else, as only
    magic, version, feature bits and CRC keep their places for ever.
    """
    if len(view) < SEGMENT_HEADER_BYTES or view[:8] != SEGMENT_MAGIC:
        return None
    if crc32c(view[:124]) != _CRC.unpack_from(view, 124)[0]:
        return None
    (
        _magic,
        major,
        minor,
        _size,
        store_id,
        segment_id,
        base_seq,
        generation,
        created_ns,
        compatible,
        incompatible,
        prev_chain,
        salt,
        flags,
        _reserved,
        _crc,
    ) = _HEADER.unpack_from(view)
    return SegmentHeader(
        store_id,
        segment_id,
        base_seq,
        generation,
        created_ns,
        prev_chain,
        salt,
        flags,
        major,
        minor,
        compatible,
        incompatible,
    )
