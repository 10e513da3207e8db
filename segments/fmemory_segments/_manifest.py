"""Manifests: which segment files hold a compacted store, and which they took the place of.

A manifest is written whole under a number of its own and never changed, so it is either as it was
written or known not to be: none of the half-states of a pointer file exist. docs/format.md section
9 owns the bytes; this module packs and unpacks them, and does no I/O.
"""

from __future__ import annotations

import re
from hashlib import sha256
from struct import Struct
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from fmemory_segments.event import DIGEST_BYTES

MANIFEST_NAME: Final = re.compile(r"manifest-([0-9]{12})\.mf")
MANIFEST_MAGIC: Final = b"\x89FMMF\r\n\n"
MANIFEST_HEAD: Final = Struct("<8sII")
MANIFEST_BYTES_MAX: Final = 64 * 1024 * 1024
SEGMENT_NAME: Final = re.compile(r"seg-([0-9]{20})-([0-9]{6})\.log")
GENERATION_MAX: Final = 999_999

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Digest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
StoreId: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class SegmentName(NamedTuple):
    """The name of a segment file, which sorts as its events do."""

    base_seq: int
    generation: int

    def __str__(self) -> str:
        return f"seg-{self.base_seq:020}-{self.generation:06}.log"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """The meaning of a file's name; None if it is not one of a segment.

        >>> SegmentName.parse("seg-00000000000000000007-000001.log")
        SegmentName(base_seq=7, generation=1)
        """
        found = SEGMENT_NAME.fullmatch(name)
        return cls(int(found[1]), int(found[2])) if found else None


class ListedSegment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A segment that holds.

    Attributes:
        name: Of its file.
        base_seq: First event.
        last_seq: Last one; `base_seq - 1` if it holds none.
        bytes: Size of the file.
        chain: Chain value after its last event.
    """

    name: str
    base_seq: Natural
    last_seq: Natural
    bytes: Natural
    chain: Digest


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What holds from the moment that this is on disk.

    Attributes:
        number: Of the manifest, from 1; never used twice.
        prev_number: Of the one before; 0 = there was none.
        prev_sha256: Of the file of the one before; zeros = there was none.
        store_id: Of the store.
        created_ns: When the compaction took effect.
        segments: All events from seq 1 on, without a gap; what comes behind is found by listing.
        obsolete: Names of files whose events are in `segments`, and which may be removed.
        frozen_seq: The compaction took out data of events up to here only.
    """

    number: Natural
    prev_number: Natural
    prev_sha256: Digest
    store_id: StoreId
    created_ns: int
    segments: tuple[ListedSegment, ...]
    obsolete: tuple[str, ...]
    frozen_seq: Natural

    @property
    def name(self) -> str:
        """Of its file."""
        return manifest_name(self.number)

    @property
    def last_seq(self) -> int:
        """The last event of the segments that it lists."""
        return self.segments[-1].last_seq

    def names(self) -> list[SegmentName]:
        """Of the segments that hold, in order."""
        return [_name(listed.name) for listed in self.segments]


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Manifest).decode


def manifest_name(number: int) -> str:
    """The name of the file of a manifest.

    >>> manifest_name(7)
    'manifest-000000000007.mf'
    """
    return f"manifest-{number:012}.mf"


def pack_manifest(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    body = _ENCODE(manifest)
    whole = MANIFEST_HEAD.pack(MANIFEST_MAGIC, len(body), 0) + body
    assert len(whole) + DIGEST_BYTES <= MANIFEST_BYTES_MAX, "fewer segments than that"
    return whole + sha256(whole).digest()


def unpack_manifest(data: bytes, number: int) -> Manifest | str:
    """The manifest in the bytes of a file; words for what is wrong if it is not whole.

    Nothing of the body is looked at before its checksum was found to be right, and no length is
    believed, so memory stays within a small multiple of the file's size.

    Args:
        data: All bytes of the file.
        number: That its name says.
    """
    least = MANIFEST_HEAD.size + DIGEST_BYTES
    if len(data) < least:
        return f"at least {least} bytes, got {len(data)}"
    magic, body_bytes, reserved = MANIFEST_HEAD.unpack_from(data)
    if magic != MANIFEST_MAGIC or reserved:
        return "the head of a manifest, got other bytes"
    if len(data) != least + body_bytes:
        return f"{least + body_bytes} bytes, got {len(data)}"
    if sha256(memoryview(data)[:-DIGEST_BYTES]).digest() != data[-DIGEST_BYTES:]:
        return "a manifest with its checksum, got other bytes"
    try:
        manifest = _DECODE(memoryview(data)[MANIFEST_HEAD.size : -DIGEST_BYTES])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"the body of a manifest, got another: {error}"
    return _contradiction(manifest, number) or manifest


def _contradiction(manifest: Manifest, number: int) -> str:
    """What contradicts itself in a manifest whose checksum is right; "" if nothing does."""
    if manifest.number != number or not 0 <= manifest.prev_number < number:
        return f"manifest {number}, got {manifest.number} behind {manifest.prev_number}"
    if not manifest.segments:
        return "segments, got none"
    expected, known = 1, set[str]()
    for listed in manifest.segments:
        name = SegmentName.parse(listed.name)
        if name is None or name.base_seq != listed.base_seq or listed.name in known:
            return f"segments by their names, got {listed.name!r} for seq {listed.base_seq}"
        if listed.base_seq != expected or listed.last_seq < expected - 1:
            return f"a segment from seq {expected} on, got {listed.base_seq} to {listed.last_seq}"
        expected = listed.last_seq + 1
        known.add(listed.name)
    for one in manifest.obsolete:
        if SegmentName.parse(one) is None or one in known:
            return f"obsolete segments, got {one!r}"
    return ""


def _name(text: str) -> SegmentName:
    name = SegmentName.parse(text)
    assert name is not None, "checked when it was unpacked"
    return name
