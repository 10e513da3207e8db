"""One segment file as far as it is intact: its frames, whatever stands between them.

A frame is believed when its own checksums are right, wherever it stands. A header with one flipped
bit is put right, as the checksum of what follows it then confirms. Where the header of the file is
lost, the salt that seeds all checksums is computed from a frame, and confirmed by its meta.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from fmemory_segments._batch import BatchMeta, decode_meta, payload_extent
from fmemory_segments._catalog import check_version
from fmemory_segments._chain import next_chain
from fmemory_segments._crc_inverse import flipped_bit, four_bytes_of, seed_of, with_bit_flipped
from fmemory_segments._event_meta import BlockRows
from fmemory_segments._files import OpenFile
from fmemory_segments._frame import (
    ALIGNMENT,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FrameDamage,
    FrameHeader,
    FrameKind,
    frame_bytes,
    frame_seed,
    meta_ok,
    pad8,
    scan_headers,
    unpack_header,
)
from fmemory_segments._header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from fmemory_segments._header import (
    unpack_header as unpack_segment_header,
)
from fmemory_segments._inspect import Damage, Inspector
from fmemory_segments._manifest import SegmentName
from fmemory_segments._salvage_blocks import Blocks
from fmemory_segments._salvage_payload import SalvagedPayload, salvage_payload
from fmemory_segments._salvage_types import Harm, Salvaged, Trouble, Witness
from fmemory_segments._seal import seal_chain
from fmemory_segments._walk import read_exactly
from fmemory_segments.event import Erased, StoredEvent
from fmemory_segments.filesystem import FileSystem
from fmemory_segments.recovery import Expected

SCAN_BYTES: Final = 1 << 20
SECTOR_BYTES: Final = 4096
CORRECTED_BYTES_MAX: Final = 1 << 18
"""In longer metas no flipped bit is looked for: it takes a second a megabyte."""
_CHECKED_BYTES: Final = 60
_SEGMENT_CHECKED_BYTES: Final = 124
_OFFSET: Final = Struct("<Q")
_CRC: Final = Struct("<I")
_LOST: Final = Erased(bytes(32))


class _Frame(NamedTuple):
    offset: int
    header: FrameHeader


def open_file(fs: FileSystem, folder: Path, name: SegmentName) -> SalvagedFile:
    """A segment file with what is known of its header.

    Raises:
        OSError: The file cannot be opened.
    """
    file = SalvagedFile(fs, folder / str(name), name)
    # A store has more segments than a process may have files open.
    file.close()
    return file


class SalvagedFile:
    """The events of one segment file that are intact.

    Attributes:
        name: Of the file.
        header: Its header; None where that is damaged beyond repair.
        order: Base seq and generation.
        is_last: No segment follows, so its end may be torn.
        is_held: It is one of those that hold the log, not one that a compaction has replaced or
            never finished.
    """

    def __init__(self, fs: FileSystem, path: Path, name: SegmentName) -> None:
        self._fs = fs
        self._path = path
        self.name = str(name)
        self._file: OpenFile | None = None
        self._size = fs.size(self._fd)
        self._untold: list[Trouble] = []
        self._put_right: set[int] = set()
        self.is_last = False
        self.is_held = True
        self._told: list[Trouble] = []
        self._corrected: dict[int, bytes] | None = None
        self.header = self._read_header()
        self._salt = self._find_salt() if self.header is None else self.header.salt
        of_header = name if self.header is None else (self.header.base_seq, self.header.generation)
        self.order = (of_header[0], of_header[1])

    @property
    def first_seq(self) -> int:
        """Its first event has this seq, as its header or its name says."""
        return self.order[0]

    def close(self) -> None:
        """Close the file until it is read again; twice is fine."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def found(self, synced_seq: int, *, payloads: bool) -> Iterator[Salvaged | Trouble | Witness]:
        """Its events, with what is wrong between; in the order of the file.

        Args:
            synced_seq: Every event up to it was acknowledged.
        """
        yield from self._told
        if self.header is not None and self.header.base_seq > 1:
            yield Witness(self.header.base_seq - 1, self.header.prev_chain, self.name)
        if self._salt is None:
            problem = "neither the file's header nor a frame can be read"
            yield Trouble(problem, self.name, 0, self.order[0], hides_end=self.is_last)
            return
        end = self._size
        for torn in self._torn(synced_seq):
            end = torn.offset or 0
            yield torn
        blocks = self._blocks(end) if payloads else Blocks(self._read)
        is_sealed = False
        for frame in self._frames(end):
            if isinstance(frame, Trouble):
                yield frame
            else:
                yield from self._content(frame, blocks, payloads=payloads)
                is_sealed = frame.header.kind == FrameKind.SEAL
            yield from self._take_untold()
        if self._is_compacted and not is_sealed:
            problem = "the file's end is missing"
            yield Trouble(problem, self.name, self._size, lost=False, hides_end=self.is_last)

    @property
    def _is_compacted(self) -> bool:
        """Whether it holds LEDGER frames; its first frame tells where the header is lost."""
        if self.header is not None:
            return self.header.is_compacted
        frames = (one for one in self._frames(self._size) if isinstance(one, _Frame))
        first = next(frames, None)
        return first is not None and first.header.kind in (FrameKind.LEDGER, FrameKind.BLOCK)

    # The header

    def _read_header(self) -> SegmentHeader | None:
        data = self._read(SEGMENT_HEADER_BYTES, 0)
        header = unpack_segment_header(data)
        if header is None and len(data) == SEGMENT_HEADER_BYTES:
            header = self._corrected_header(data)
        if header is None:
            self._told.append(Trouble("the file's header is damaged", self.name, 0, lost=False))
            return None
        check_version(header, self._path)
        return header

    def _corrected_header(self, data: bytes) -> SegmentHeader | None:
        """The header with its one flipped bit put right; frames confirm the salt in it."""
        crc = _CRC.unpack_from(data, _SEGMENT_CHECKED_BYTES)[0]
        bit = flipped_bit(data[:_SEGMENT_CHECKED_BYTES], crc)
        if bit is None:
            return None
        body = with_bit_flipped(data[:_SEGMENT_CHECKED_BYTES], bit)
        header = unpack_segment_header(body + _CRC.pack(crc32c(body)))
        if header is not None:
            problem = f"one bit of the file's header was flipped (bit {bit}), and was put right"
            self._told.append(Trouble(problem, self.name, bit >> 3, lost=False))
        return header

    def _find_salt(self) -> int | None:
        """The salt, computed from a frame that its meta confirms; None if there is none."""
        at = SEGMENT_HEADER_BYTES
        while at < self._size:
            view = self._read(SCAN_BYTES, at)
            place = view.find(FRAME_MAGIC)
            while place >= 0:
                if place % ALIGNMENT == 0:
                    salt = self._salt_at(at + place)
                    if salt is not None:
                        return salt
                place = view.find(FRAME_MAGIC, place + 1)
            if len(view) < SCAN_BYTES:
                return None
            at += SCAN_BYTES - ALIGNMENT
        return None

    def _salt_at(self, offset: int) -> int | None:
        head = self._read(FRAME_HEADER_BYTES, offset)
        if len(head) < FRAME_HEADER_BYTES:
            return None
        seed = seed_of(head[:_CHECKED_BYTES], _CRC.unpack_from(head, _CHECKED_BYTES)[0])
        salt: int = _CRC.unpack(four_bytes_of(seed_of(_OFFSET.pack(offset), seed)))[0]
        header = unpack_header(head, salt, offset)
        if header is None or not header.is_supported or not header.meta_bytes:
            return None
        meta = self._read(pad8(header.meta_bytes), offset + FRAME_HEADER_BYTES)
        return salt if meta_ok(header, meta, salt, offset) else None

    # The end

    def _torn(self, synced_seq: int) -> list[Trouble]:
        """Where an append was cut short that nobody was told of."""
        if not self.is_last or self._is_compacted or self._salt is None:
            return []
        seq = self.order[0]
        inspector = Inspector(
            self._fs,
            self._fd,
            salt=self._salt,
            size=self._size,
            synced_seq=synced_seq,
            offset=SEGMENT_HEADER_BYTES,
            expected=Expected(seq, 0, 0, seq),
        )
        try:
            found = [one for one in inspector.inspect(None) if isinstance(one, Damage) and one.torn]
        except OSError:
            return []  # Whoever reads it next says so.
        return [
            Trouble(
                f"{self._size - one.offset} bytes are of an append that was cut short and nobody"
                " was told of",
                self.name,
                one.offset,
                one.first_seq,
                lost=False,
            )
            for one in found
        ]

    # Frames

    def _frames(self, end: int) -> Iterator[_Frame | Trouble]:
        """Frames whose header can be believed, and what stands between."""
        at = SEGMENT_HEADER_BYTES
        while at < end:
            header = self._header_at(at)
            if header is None and self._is_blank(at, end):
                return
            if header is None:
                found = self._next_header(at, end)
                last = None if found is None else found[1].first_seq - 1
                yield Trouble("a frame's header is damaged", self.name, at, None, last)
                if found is None:
                    return
                at = found[0]
                continue
            if not header.is_supported:
                problem = f"a frame is of kind {header.kind}, which a newer version writes"
                yield Trouble(problem, self.name, at, header.first_seq)
            else:
                yield _Frame(at, header)
                if header.kind == FrameKind.SEAL:
                    return  # Only the trailer follows, which says nothing new.
            at += frame_bytes(header)

    def _header_at(self, at: int) -> FrameHeader | None:
        assert self._salt is not None
        head = self._read(FRAME_HEADER_BYTES, at)
        header = unpack_header(head, self._salt, at)
        if header is not None or len(head) < FRAME_HEADER_BYTES:
            return header
        seed = crc32c(_OFFSET.pack(at), crc32c(_CRC.pack(self._salt)))
        crc = _CRC.unpack_from(head, _CHECKED_BYTES)[0]
        bit = flipped_bit(head[:_CHECKED_BYTES], crc, seed)
        if bit is None:
            return None
        body = with_bit_flipped(head[:_CHECKED_BYTES], bit)
        header = unpack_header(body + _CRC.pack(crc32c(body, seed)), self._salt, at)
        if header is None or not header.is_supported:
            return None
        meta = self._read(pad8(header.meta_bytes), at + FRAME_HEADER_BYTES)
        if not meta_ok(header, meta, self._salt, at):
            return None
        self._tell_bit("header", at)
        return header

    def _next_header(self, at: int, end: int) -> tuple[int, FrameHeader] | None:
        assert self._salt is not None
        at += ALIGNMENT
        while at < end:
            view = self._read(min(SCAN_BYTES, end - at), at)
            found = next(scan_headers(view, self._salt, at), None)
            if found is not None or len(view) < SCAN_BYTES:
                return found
            at += SCAN_BYTES - FRAME_HEADER_BYTES
        return None

    def _is_blank(self, at: int, end: int) -> bool:
        while at < end:
            view = self._read(min(SCAN_BYTES, end - at), at)
            if view.strip(b"\0"):
                return False
            if not view:
                return True
            at += len(view)
        return True

    # What is in a frame

    def _content(
        self, frame: _Frame, blocks: Blocks, *, payloads: bool
    ) -> Iterator[Salvaged | Trouble | Witness]:
        header, offset = frame.header, frame.offset
        if header.kind == FrameKind.BLOCK:
            return
        meta = self._meta(frame)
        if header.kind == FrameKind.SEAL:
            chain = None if meta is None else seal_chain(header, meta)
            if meta is None:
                yield Trouble("the SEAL is damaged", self.name, offset, lost=False)
            yield Witness(header.last_seq, chain, self.name)
            return
        first, last = header.first_seq, header.last_seq
        if meta is None:
            yield Trouble("a frame's meta is damaged", self.name, offset, first, last)
            return
        try:
            batch = decode_meta(meta, header)
        except FrameDamage as damage:
            yield Trouble(f"a frame cannot be understood: {damage}", self.name, offset, first, last)
            return
        yield from self._events(frame, batch, blocks, payloads=payloads)

    def _events(
        self, frame: _Frame, batch: BatchMeta, blocks: Blocks, *, payloads: bool
    ) -> Iterator[Salvaged]:
        header = frame.header
        start = frame.offset + header.data_start
        data = memoryview(self._read(pad8(header.data_bytes), start) if payloads else b"")
        for envelope, meta in zip(batch.envelopes(), batch.events, strict=True):
            if not payloads:
                yield Salvaged(StoredEvent(envelope, _LOST), self.name, frame.offset)
                continue
            at, size = payload_extent(meta)
            if isinstance(meta.place, BlockRows):
                left = blocks.payload(envelope.seq, meta)
            else:
                left = salvage_payload(meta, data[at : at + size])
            yield Salvaged(
                StoredEvent(envelope, left.payload), self.name, start + at, harm_of(left, meta.keys)
            )

    def _blocks(self, end: int) -> Blocks:
        """The BLOCKs of a compacted file."""
        blocks = Blocks(self._read)
        for frame in self._frames(end) if self._is_compacted else ():
            if isinstance(frame, _Frame) and frame.header.kind == FrameKind.BLOCK:
                meta = self._meta(frame)
                if meta is not None:
                    blocks.add(frame.offset, frame.header, meta)
        return blocks

    def _meta(self, frame: _Frame) -> bytes | None:
        """A frame's meta; None where it is damaged and the chain does not prove a correction."""
        meta = self._raw_meta(frame)
        assert self._salt is not None
        if meta_ok(frame.header, meta, self._salt, frame.offset):
            return meta
        if self._corrected is None:
            self._corrected = {}
            self._corrected = self._corrections()
        return self._corrected.get(frame.offset)

    def _raw_meta(self, frame: _Frame) -> bytes:
        return self._read(pad8(frame.header.meta_bytes), frame.offset + FRAME_HEADER_BYTES)

    def _corrections(self) -> dict[int, bytes]:
        """Metas of which one bit was flipped, by offset of their frame.

        They are put right if the chain value in the SEAL is then that of all events of the file,
        which no other change would give. It takes reading the file once more.
        """
        chain: bytes | None = None
        found: dict[int, bytes] = {}
        for frame in self._frames(self._size):
            if isinstance(frame, Trouble):
                return {}
            meta = self._raw_meta(frame)
            assert self._salt is not None
            if meta_ok(frame.header, meta, self._salt, frame.offset):
                if frame.header.kind == FrameKind.SEAL:
                    chain = seal_chain(frame.header, meta)
                continue
            bit = None
            if len(meta) <= CORRECTED_BYTES_MAX:
                seed = frame_seed(self._salt, frame.offset)
                bit = flipped_bit(meta, frame.header.meta_crc, seed)
            if bit is None:
                return {}
            found[frame.offset] = with_bit_flipped(meta, bit)
        self._corrected = found
        if chain is None or self._chain() != chain:
            return {}
        for offset in found:
            self._tell_bit("meta", offset)
        return found

    def _chain(self) -> bytes | None:
        """Chain value after all events of the file; None if one of them is not whole."""
        if self.header is None:
            return None
        chain, seq = self.header.prev_chain, self.header.base_seq
        blocks = self._blocks(self._size)
        for frame in self._frames(self._size):
            if isinstance(frame, Trouble):
                return None
            for one in self._content(frame, blocks, payloads=True):
                if isinstance(one, Trouble):
                    return None
                if isinstance(one, Salvaged):
                    if one.harm or one.seq != seq:
                        return None
                    chain, seq = next_chain(chain, one.event), seq + 1
        return chain

    # Bytes

    @property
    def _fd(self) -> int:
        if self._file is None:
            fd = self._fs.open_file(self._path, write=False, create=False)
            self._file = OpenFile(fd, self._fs.close)
        return self._file.fd

    def _read(self, size: int, offset: int) -> bytes:
        """Bytes of the file, fewer only at its end; zeros where the system cannot read."""
        size = max(0, min(size, self._size - offset))
        try:
            return read_exactly(self._fs.pread, self._fd, size, offset)
        except OSError:
            return self._read_around(size, offset)

    def _read_around(self, size: int, offset: int) -> bytes:
        parts, end = [], offset + size
        while offset < end:
            count = min(SECTOR_BYTES - offset % SECTOR_BYTES, end - offset)
            try:
                part = read_exactly(self._fs.pread, self._fd, count, offset)
            except OSError as error:
                part = b""
                self._untold.append(
                    Trouble(f"the system cannot read: {error}", self.name, offset, lost=False)
                )
            parts.append(part.ljust(count, b"\0"))
            offset += count
        return b"".join(parts)

    def _take_untold(self) -> Iterator[Trouble]:
        """What could not be read or was put right since this was last asked."""
        told, self._untold = self._untold, []
        yield from told

    def _tell_bit(self, part: str, offset: int) -> None:
        """Have it told once that a bit was put right."""
        if offset not in self._put_right:
            self._put_right.add(offset)
            problem = f"one bit of a frame's {part} was flipped, and was put right"
            self._untold.append(Trouble(problem, self.name, offset, lost=False))


def harm_of(left: SalvagedPayload, keys: tuple[str, ...]) -> tuple[Harm, ...]:
    """What was lost of a payload, in words."""
    if not left.problem:
        return ()
    is_payload_lost = isinstance(left.payload, Erased)
    return (Harm(left.problem, tuple(keys[row] for row in left.rows), is_payload_lost),)
