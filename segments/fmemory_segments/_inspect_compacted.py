"""Looking at every byte of a compacted segment, and going on behind what is wrong.

Such a file was written whole, so there is no torn tail: whatever is not as written is damage. What
is lost or wrong is named down to the event and the record. The rows of an event lie apart from it,
so its frames are given out when all of the file was seen, with digests in place of payloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from crc32c import crc32c

from fmemory_segments._batch import BatchMeta, decode_meta, decode_payload, payload_extent
from fmemory_segments._block import (
    BlockMeta,
    damaged_block_rows,
    decode_block_meta,
    view_block,
)
from fmemory_segments._compacted_read import digests_of_block
from fmemory_segments._compacted_seal import CompactedSealBuilder
from fmemory_segments._core import Core, Segment
from fmemory_segments._event_meta import BlockRows, EventMeta, unpack_bits
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
from fmemory_segments._frames import find_seal, read_seal
from fmemory_segments._inspect import Damage, GoodFrame, Inspected, SealFound, next_header
from fmemory_segments._seal import Seal
from fmemory_segments._walk import read_exactly
from fmemory_segments.digest import payload_digest, rows_digest
from fmemory_segments.errors import LogReason
from fmemory_segments.event import (
    DIGEST_BYTES,
    LOC_ROW_BITS,
    BoolArray,
    Erased,
    StoredEvent,
    UInt8Array,
    UInt64Array,
)


@dataclass(slots=True)
class _Ledger:
    """A LEDGER frame whose meta can be read. Its entries are read again when they are wanted.

    Attributes:
        offset: Of the frame.
        header: Its header.
        digests: Of the payloads without rows; None where one is not as written, or has rows.
        is_whole: Every byte of the frame is as written.
    """

    offset: int
    header: FrameHeader
    digests: list[bytes | None]
    is_whole: bool


class CompactedInspector:
    """The frames of one compacted segment, good and bad.

    Args:
        core: For its file system.
        segment: Its file and header.
        time_ns: When the event before it was recorded.

    Attributes:
        builder: What its SEAL should say; None where a frame cannot be read.
    """

    def __init__(self, core: Core, segment: Segment, time_ns: int) -> None:
        self._fs = core.fs
        self._fd = segment.fd
        self._salt = segment.header.salt
        self._size = core.fs.size(segment.fd)
        self._expected_seq = segment.base_seq
        self._prev_frame_bytes = 0
        self._time_ns = time_ns
        self._in_blocks = False
        self._seal = self._read_seal(core, segment)
        self._found: list[Damage | _Ledger] = []
        self._ledgers: list[_Ledger] = []
        self._locs: list[UInt64Array] = []
        self._digests: list[bytes] = []
        self._lost_blocks = False
        self._start = segment.end
        self._builder: CompactedSealBuilder | None = CompactedSealBuilder(
            segment.base_seq, time_ns=time_ns
        )
        self.builder: CompactedSealBuilder | None = None

    def inspect(self) -> Iterator[Inspected]:
        """Damage and LEDGER frames, then the SEAL.

        The payload of each event is given as `Erased`, with the digest of what there is.

        Raises:
            OSError: The system could not read.

        Cost: O(bytes), SHA-256 over all of them; memory of the SEAL, one frame and 40 bytes a row.
        """
        seal = self._walk(self._start)
        self._find_missing()
        yield from self._give_out()
        if self._builder is not None:
            self._builder.finish()
            self.builder = self._builder
        if seal is not None:
            yield seal

    def _read_seal(self, core: Core, segment: Segment) -> Seal | None:
        """The SEAL if it is whole; what is wrong with it otherwise is found later."""
        offset = find_seal(core, segment, self._size)
        found = None if offset is None else read_seal(core, segment, offset, self._size)
        return found if isinstance(found, Seal) else None

    def _walk(self, at: int) -> SealFound | None:
        """Look at all frames in order; the SEAL, if there is one behind them."""
        while at < self._size:
            head = read_exactly(self._fs.pread, self._fd, FRAME_HEADER_BYTES, at)
            header = unpack_header(head, self._salt, at)
            if (
                header is None
                or not header.is_supported
                or header.kind == FrameKind.BATCH
                or at + frame_bytes(header) > self._size
            ):
                following = self._skip(at)
                if following is None:
                    break
                at = following
                continue
            self._check_order(at, header)
            if header.kind == FrameKind.SEAL:
                return SealFound(at, header)
            if header.kind == FrameKind.LEDGER:
                self._look_at_ledger(at, header)
            else:
                self._look_at_block(at, header)
            self._prev_frame_bytes = frame_bytes(header)
            at += self._prev_frame_bytes
        evidence = "frames and a SEAL up to the end of the file, got other bytes"
        self._add(LogReason.SEAL, evidence, at, self._expected_seq, None, lost=True)
        self._builder = None
        return None

    def _skip(self, at: int) -> int | None:
        """Tell what lies up to the next frame that can be recognised; where that is, if any is."""
        found = next_header(self._fs.pread, self._fd, self._salt, at, self._size)
        if found is None:
            return None
        self._builder = None
        reason, evidence = LogReason.FRAME_CHECKSUM, "a frame header, got other bytes"
        first: int = self._expected_seq
        last: int | None = None
        offset, header = found
        self._prev_frame_bytes = header.prev_frame_bytes
        if header.kind == FrameKind.LEDGER:
            last = header.first_seq - 1
        elif header.kind == FrameKind.SEAL:
            last = header.last_seq
        elif self._seal is not None:
            last = self._seal.index.last_seq
        if last is not None and last >= first and not self._in_blocks:
            self._add(reason, evidence, at, first, last, lost=True)
            self._expected_seq = last + 1
        else:
            self._lose_block(reason, evidence, at)
        return offset

    def _lose_block(self, reason: LogReason, evidence: str, at: int) -> None:
        """Tell of a BLOCK that cannot be read, by the rows that the SEAL says are in it."""
        self._lost_blocks = True
        self._in_blocks = True
        first: int = self._expected_seq
        last: int | None = None
        if self._seal is not None:
            index = self._seal.index
            offsets = index.frame_offsets
            number = int(np.searchsorted(offsets, at))
            if number < len(offsets) and int(offsets[number]) == at:
                first, last = index.seqs_of_frame(number)
        elif self._ledgers:
            first, last = self._ledgers[0].header.first_seq, self._ledgers[-1].header.last_seq
        self._add(reason, f"rows of these events, in a block: {evidence}", at, first, last)

    def _check_order(self, at: int, header: FrameHeader) -> None:
        """A frame against the one before it."""
        pairs = [
            ("previous frame's size", self._prev_frame_bytes, header.prev_frame_bytes),
            ("flag BATCH_END", True, header.ends_batch),
            ("batch offset", 0, header.batch_offset),
        ]
        first, last = header.first_seq, header.last_seq
        if header.kind == FrameKind.LEDGER:
            pairs += [
                ("first seq", self._expected_seq, first),
                ("LEDGER before any BLOCK", False, self._in_blocks),
                ("a time that does not decrease", True, header.time_ns >= self._time_ns),
            ]
        elif header.kind == FrameKind.BLOCK:
            pairs.append(("time of a BLOCK", 0, header.time_ns))
            last = self._expected_seq - 1
        elif self._builder is not None:
            pairs.append(("time of the last event", self._builder.time_ns, header.time_ns))
        for name, wanted, got in pairs:
            if wanted != got:
                evidence = f"{name} {wanted}, got {got}; frames are missing or out of order"
                low, high = sorted((self._expected_seq, first))
                if name != "first seq":
                    low, high = first, last + 1
                self._add(LogReason.FRAME_ORDER, evidence, at, low, max(low, high - 1))
                if header.kind != FrameKind.SEAL:
                    self._builder = None

    def _look_at_ledger(self, at: int, header: FrameHeader) -> None:
        first, last = header.first_seq, header.last_seq
        self._expected_seq = last + 1
        meta, data = self._read(at, header)
        batch = None
        if not meta_ok(header, meta, self._salt, at):
            reason, evidence = LogReason.META_CHECKSUM, "meta with its checksum, got other bytes"
        else:
            try:
                batch = decode_meta(meta, header)
            except FrameDamage as damage:
                reason, evidence = LogReason.FRAME_CONTENT, f"meta of these events, got {damage}"
        if batch is None:
            self._builder = None
            self._add(reason, evidence, at, first, last, lost=True)
            return
        self._time_ns = header.time_ns + batch.events[-1].recorded_after_ns
        digests, is_whole = self._payload_digests(at, batch, data)
        if is_whole and not data_ok(header, data, self._salt, at):
            is_whole = False
            evidence = "zeros between the payloads, which are intact, got other bytes"
            self._add(LogReason.DATA_CHECKSUM, evidence, at, first, last)
        if self._builder is not None:
            self._builder.add(at, batch)
        ledger = _Ledger(at, header, digests, is_whole)
        self._ledgers.append(ledger)
        self._found.append(ledger)

    def _payload_digests(
        self, at: int, batch: BatchMeta, data: memoryview
    ) -> tuple[list[bytes | None], bool]:
        """Digests of payloads without rows; whether all of them are as written."""
        digests: list[bytes | None] = []
        is_whole = True
        for seq, event in enumerate(batch.events, batch.header.first_seq):
            if event.has_rows:
                digests.append(None)
                continue
            offset, size = payload_extent(event)
            try:
                payload = decode_payload(event, data[offset : offset + size])
                digests.append(payload_digest(payload))
            except FrameDamage:
                is_whole = False
                digests.append(None)
                evidence = "its data as written, got other bytes"
                place = at + batch.header.data_start + offset
                self._add(LogReason.DATA_CHECKSUM, evidence, place, seq, seq)
        return digests, is_whole

    def _look_at_block(self, at: int, header: FrameHeader) -> None:
        self._in_blocks = True
        meta, data = self._read(at, header)
        if not meta_ok(header, meta, self._salt, at):
            self._builder = None
            evidence = "meta with its checksum, got other bytes"
            self._lose_block(LogReason.META_CHECKSUM, evidence, at)
            return
        try:
            content = decode_block_meta(header, meta)
        except FrameDamage as damage:
            self._builder = None
            self._lose_block(LogReason.FRAME_CONTENT, f"meta of these rows, got {damage}", at)
            return
        self._check_rows(at, header, content, data)
        if self._builder is None:
            return
        for loc in self._builder.add_block(at, header, content).tolist():
            self._add_row(
                LogReason.FRAME_CONTENT,
                "one place in the BLOCKs if it is alive, none if it was erased, got another",
                at,
                loc,
            )

    def _check_rows(
        self, at: int, header: FrameHeader, content: BlockMeta, data: memoryview
    ) -> None:
        """Every byte of a BLOCK's data, and the digests of the rows that are as written."""
        block = view_block(content, data)
        is_good = ~damaged_block_rows(content, block)
        for loc in block.locs[~is_good].tolist():
            self._add_row(LogReason.ROW_CHECKSUM, "note and vector as written, got others", at, loc)
        seqs = (block.locs >> np.uint64(LOC_ROW_BITS)).tolist()
        if min(seqs) != header.first_seq:
            evidence = f"first seq {min(seqs)} of its rows, got {header.first_seq}"
            self._add(LogReason.FRAME_CONTENT, evidence, at, min(seqs), max(seqs))
        if crc32c(block.nonces) != content.nonces_crc:
            evidence = "nonces of rows as written, got other bytes"
            self._add(LogReason.DATA_CHECKSUM, evidence, at, min(seqs), max(seqs))
            return
        if is_good.all() and not data_ok(header, data, self._salt, at):
            evidence = "zeros between notes and vectors, which are intact, got other bytes"
            self._add(LogReason.DATA_CHECKSUM, evidence, at, min(seqs), max(seqs))
        chosen = np.flatnonzero(is_good)
        self._locs.append(block.locs[chosen])
        self._digests.append(digests_of_block(block, chosen))

    def _find_missing(self) -> None:
        """Name living rows that are in no BLOCK, unless they are in one that cannot be read."""
        if self._builder is None or self._lost_blocks:
            return
        for loc in self._builder.missing().tolist():
            self._add_row(LogReason.FRAME_CONTENT, "a place in a BLOCK, got none", self._start, loc)

    def _give_out(self) -> Iterator[Damage | GoodFrame]:
        """Damage, then the LEDGER frames with the digests of rows, and what is lost between."""
        yield from (one for one in self._found if isinstance(one, Damage) and not one.lost)
        locs = np.concatenate([np.zeros(0, np.uint64), *self._locs])
        order = np.argsort(locs, kind="stable")
        table = np.frombuffer(b"".join(self._digests), np.uint8).reshape(-1, DIGEST_BYTES)
        locs, table = locs[order], table[order]
        for found in self._found:
            if isinstance(found, Damage):
                if found.lost:
                    yield found
                continue
            events = []
            batch = self._batch(found)
            for number, event in enumerate(batch.events):
                envelope = batch.envelope(number)
                digest = found.digests[number]
                if event.has_rows:
                    digest = _rows_digest(envelope.seq, event, locs, table)
                if digest is not None:
                    events.append(StoredEvent(envelope, Erased(digest)))
            is_whole = found.is_whole and len(events) == len(batch.events)
            yield GoodFrame(found.offset, batch, events, is_whole)

    def _batch(self, ledger: _Ledger) -> BatchMeta:
        """The entries of a LEDGER that was looked at before."""
        header = ledger.header
        start = ledger.offset + FRAME_HEADER_BYTES
        meta = read_exactly(self._fs.pread, self._fd, header.meta_bytes, start)
        return decode_meta(meta, header)

    def _read(self, at: int, header: FrameHeader) -> tuple[memoryview, memoryview]:
        whole = memoryview(read_exactly(self._fs.pread, self._fd, frame_bytes(header), at))
        return whole[FRAME_HEADER_BYTES : header.data_start], whole[header.data_start :]

    def _add(
        self,
        reason: LogReason,
        evidence: str,
        offset: int,
        first_seq: int,
        last_seq: int | None,
        *,
        key: str | None = None,
        lost: bool = False,
    ) -> None:
        self._found.append(Damage(reason, evidence, offset, first_seq, last_seq, key, lost))

    def _add_row(self, reason: LogReason, evidence: str, at: int, loc: int) -> None:
        """Tell of one row, with its key where that is known."""
        seq, row = loc >> LOC_ROW_BITS, loc & (1 << LOC_ROW_BITS) - 1
        self._add(reason, f"row {row}: {evidence}", at, seq, seq, key=self._key(seq, row))

    def _key(self, seq: int, row: int) -> str | None:
        """The key of a row; None if its LEDGER cannot be read, or has no such row."""
        for ledger in self._ledgers:
            if ledger.header.first_seq <= seq <= ledger.header.last_seq:
                keys = self._batch(ledger).events[seq - ledger.header.first_seq].keys
                return keys[row] if row < len(keys) else None
        return None


def _rows_digest(seq: int, event: EventMeta, locs: UInt64Array, table: UInt8Array) -> bytes | None:
    """The digest of a record event from those of its rows; None where one of them is not known."""
    place, count = event.place, len(event.keys)
    assert isinstance(place, BlockRows)
    erased: BoolArray | None = unpack_bits(place.erased, count)
    living = np.arange(count) if erased is None else np.flatnonzero(~erased)
    wanted = (living + (seq << LOC_ROW_BITS)).astype(np.uint64)
    found = np.searchsorted(locs, wanted)
    if len(wanted) and (int(found[-1]) >= len(locs) or (locs[found] != wanted).any()):
        return None
    digests = np.zeros((count, DIGEST_BYTES), np.uint8)
    digests[living] = table[found]
    if erased is not None:
        digests[erased] = np.frombuffer(place.digests, np.uint8).reshape(-1, DIGEST_BYTES)
    return rows_digest(count, place.timestamps, digests.tobytes())
