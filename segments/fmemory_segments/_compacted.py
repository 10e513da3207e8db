"""LEDGER and BLOCK: what compaction makes of events.

A LEDGER keeps the entry of every event, with digests in place of what was erased and payloads of
events without rows. A BLOCK holds living rows of one stream, dim and dtype, sorted by (timestamp,
loc), so that a scan reads them side by side. Seqs, locs, digests and the chain stay what they were.
docs/format.md section 6 owns the bytes. What is dead is for the caller to say; no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from fmemory_segments._block import BlockMeta
from fmemory_segments._deflate import deflate
from fmemory_segments._event_meta import (
    DTYPE_CODES,
    BlockRows,
    ErasedPlace,
    EventMeta,
    pack_bits,
)
from fmemory_segments._frame import (
    Buffer,
    FrameFlag,
    FrameHeader,
    FrameKind,
    FrameTooLarge,
    pack_frame,
)
from fmemory_segments._living import LivingRows
from fmemory_segments._packer import (
    FramePacker,
    PreparedFrame,
    place_payload,
)
from fmemory_segments._row_columns import check_rows
from fmemory_segments.compaction import Erasure, forgotten
from fmemory_segments.digest import (
    chain_step,
    event_digest,
    payload_digest,
    row_digests,
    rows_digest,
)
from fmemory_segments.event import (
    FORGOTTEN,
    FRAME_BYTES_MAX,
    LOC_ROW_BITS,
    BoolArray,
    Envelope,
    Erased,
    Rows,
    StoredEvent,
    Stream,
)

# Small: whoever wants one envelope decodes the LEDGER that it is in.
LEDGER_BYTES_TARGET: Final = 1 << 16
# Large: pages of a scan are few reads, and the system keeps what is written at once together.
BLOCK_BYTES_TARGET: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class FrameContent:
    """A LEDGER or BLOCK frame before it has a place.

    Attributes:
        says: What its meta says: an entry an event of a LEDGER, or the columns of a BLOCK.
    """

    kind: FrameKind
    event_count: int
    first_seq: int
    time_ns: int
    meta: bytes
    parts: list[Buffer]
    data_bytes: int
    says: list[EventMeta] | BlockMeta


class Folder:
    """Makes frames of events with consecutive seqs: LEDGER frames while they come, then BLOCKs.

    Args:
        erasure: What is to be left out of the events up to `erasure.upto`.
        chain: Chain value before the first event.
        ledger_bytes_target: A LEDGER gets larger only for one event that is larger alone.
        block_bytes_target: A BLOCK gets larger only for one row that is larger alone.

    Attributes:
        last_seq: Of the newest event; 0 = none yet.
        chain: Chain value after it.
        time_ns: When it was recorded.
        erased_rows: Rows that were left out and had data before.
        erased_events: Payloads of events without rows that were left out.
        forgotten_events: Events of which a stub was left.
    """

    def __init__(
        self,
        erasure: Erasure,
        chain: bytes,
        *,
        ledger_bytes_target: int = LEDGER_BYTES_TARGET,
        block_bytes_target: int = BLOCK_BYTES_TARGET,
    ) -> None:
        self.last_seq = 0
        self.chain = chain
        self.time_ns = 0
        self.erased_rows = 0
        self.erased_events = 0
        self.forgotten_events = 0
        self._erasure = erasure
        self._ends = dict(zip(erasure.forget.tolist(), erasure.ends.tolist(), strict=True))
        self._erased_seqs = frozenset(erasure.seqs.tolist())
        self._block_target = block_bytes_target
        self._packer = FramePacker(ledger_bytes_target)
        self._groups: dict[tuple[Stream, int, int], LivingRows] = {}
        self._first: Envelope | None = None
        self._ledger_seq = 0

    def add(self, event: StoredEvent) -> list[FrameContent]:
        """Take in an event; the LEDGER frames that are full by now.

        Raises:
            ValueError: The event does not follow, its payload contradicts itself, or the erasure
                names rows as an event without rows.
            FrameTooLarge: It does not fit a frame.

        Cost: O(bytes) of SHA-256; the rows that live stay in memory.
        """
        event = self._forget(event)
        envelope, payload = event.envelope, event.payload
        seq = envelope.seq
        if self._first is None:
            self._first = envelope
            self._ledger_seq = seq
        elif seq != self.last_seq + 1 or envelope.recorded_at_ns < self.time_ns:
            raise ValueError(
                f"compaction: expected event {self.last_seq + 1}, recorded at {self.time_ns} or "
                f"later, got {seq} of {envelope.recorded_at_ns}"
            )
        is_named = seq in self._erased_seqs and seq <= self._erasure.upto
        after_ns = envelope.recorded_at_ns - self._first.recorded_at_ns
        if isinstance(payload, Rows):
            if is_named:
                raise ValueError(f"erasure: expected an event without rows at seq {seq}, got rows")
            self._packer.add(envelope, self._add_rows(envelope, payload), [], 0, after_ns)
        else:
            digest = payload_digest(payload)
            self._step(envelope, digest)
            if is_named and not isinstance(payload, Erased):
                self.erased_events += 1
                self._packer.add(envelope, ErasedPlace(digest), [], 0, after_ns)
            else:
                self._packer.add(envelope, *place_payload(envelope, payload), after_ns)
        self.last_seq, self.time_ns = seq, envelope.recorded_at_ns
        return self._ledgers(self._packer.take())

    def finish(self) -> Iterator[FrameContent]:
        """The last LEDGER frame, then the BLOCK frames.

        Raises:
            ValueError: There was no event.
            FrameTooLarge: A row does not fit a frame.
        """
        yield from self._ledgers(self._packer.pack().frames)
        while self._groups:
            group = self._groups.pop(next(iter(self._groups)))
            for block in group.blocks(self._block_target):
                yield FrameContent(
                    FrameKind.BLOCK,
                    len(block.meta.row_locs),
                    block.first_seq,
                    0,
                    block.encoded,
                    block.parts,
                    block.data_bytes,
                    block.meta,
                )

    def _forget(self, event: StoredEvent) -> StoredEvent:
        """The event, or its stub if it is to be forgotten."""
        end = self._ends.get(event.envelope.seq)
        if end is None or event.envelope.type == FORGOTTEN:
            return event
        payload = event.payload
        if isinstance(payload, Rows):
            known = 0 if payload.erased is None else int(payload.erased.sum())
            self.erased_rows += len(payload) - known
        else:
            self.erased_events += not isinstance(payload, Erased)
        self.forgotten_events += 1
        return forgotten(event, end)

    def _add_rows(self, envelope: Envelope, rows: Rows) -> BlockRows:
        """The ledger's place for a record event; its living rows are kept for the blocks."""
        check_rows(rows, envelope.keys)
        digests, timestamps = row_digests(rows), rows.timestamps.tobytes()
        self._step(envelope, rows_digest(len(rows), timestamps, digests.tobytes()))
        dim, dtype = rows.vectors.shape[1], DTYPE_CODES[rows.vectors.dtype]
        erased = self._erased(envelope.seq, rows)
        living = None if erased is None else np.flatnonzero(~erased)
        if living is None or len(living):
            key = (envelope.stream, dim, dtype)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = LivingRows(*key)
            group.add(envelope.seq, rows, living)
        if erased is None:
            return BlockRows(dim, dtype, timestamps)
        return BlockRows(dim, dtype, timestamps, pack_bits(erased), digests[erased].tobytes())

    def _erased(self, seq: int, rows: Rows) -> BoolArray | None:
        """Which rows are erased from now on; None if none is."""
        before = rows.erased if rows.erased is not None and rows.erased.any() else None
        if seq > self._erasure.upto:
            return before
        locs = self._erasure.locs
        first = seq << LOC_ROW_BITS
        low, high = np.searchsorted(
            locs, np.array((first, first + len(rows)), np.uint64), "left"
        ).tolist()
        if low == high:
            return before
        erased = np.zeros(len(rows), np.bool_) if before is None else before.copy()
        known = int(erased.sum())
        erased[(locs[low:high] - np.uint64(first)).astype(np.int64)] = True
        self.erased_rows += int(erased.sum()) - known
        return erased

    def _step(self, envelope: Envelope, digest: bytes) -> None:
        self.chain = chain_step(self.chain, event_digest(envelope, digest))

    def _ledgers(self, frames: list[PreparedFrame]) -> list[FrameContent]:
        contents = []
        for frame in frames:
            assert self._first is not None
            contents.append(
                FrameContent(
                    FrameKind.LEDGER,
                    len(frame.events),
                    self._ledger_seq,
                    self._first.recorded_at_ns + frame.recorded_after_ns,
                    frame.meta,
                    frame.parts,
                    frame.data_bytes,
                    frame.events,
                )
            )
            self._ledger_seq += len(frame.events)
        return contents


def pack_content(
    content: FrameContent, *, synced_to: int, prev_frame_bytes: int, salt: int, offset: int
) -> tuple[FrameHeader, list[Buffer]]:
    """A frame at this offset of a file, as buffers to write.

    Args:
        synced_to: Every event up to this seq is known to be on disk.
        prev_frame_bytes: Size of the frame before, 0 for the first.
        salt: Of the segment.
        offset: A multiple of 8.

    Raises:
        FrameTooLarge: It would be larger than a frame may be, deflated or not.
    """
    meta, flags = content.meta, FrameFlag.BATCH_END
    if content.kind == FrameKind.LEDGER:
        if len(meta) > FRAME_BYTES_MAX:  # Nobody would inflate it.
            raise FrameTooLarge(len(meta), FRAME_BYTES_MAX)
        meta, flags = deflate((meta,)), flags | FrameFlag.DEFLATED
    return pack_frame(
        content.kind,
        flags,
        event_count=content.event_count,
        prev_frame_bytes=prev_frame_bytes,
        first_seq=content.first_seq,
        time_ns=content.time_ns,
        synced_to=min(synced_to, content.first_seq - 1),
        batch_offset=0,
        meta=meta,
        data_parts=content.parts,
        data_bytes=content.data_bytes,
        salt=salt,
        offset=offset,
    )
