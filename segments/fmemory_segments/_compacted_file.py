"""Writing one compacted segment: header, LEDGER frames, BLOCK frames, SEAL and trailer.

It writes into an empty file of `tmp/` and neither syncs nor names it: until a manifest lists the
file it means nothing. Which events it gets, and what of them is dead, is for the caller to say.
docs/format.md sections 2, 5 and 6 own the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fmemory_segments._batch import BatchMeta
from fmemory_segments._block import BlockMeta
from fmemory_segments._catalog import write_all
from fmemory_segments._compacted import (
    BLOCK_BYTES_TARGET,
    LEDGER_BYTES_TARGET,
    Folder,
    FrameContent,
    pack_content,
)
from fmemory_segments._compacted_seal import CompactedSealBuilder
from fmemory_segments._frame import Buffer, frame_bytes
from fmemory_segments._header import SEGMENT_HEADER_BYTES, SegmentHeader, pack_header
from fmemory_segments._seal import pack_seal
from fmemory_segments.compaction import Erasure
from fmemory_segments.event import StoredEvent
from fmemory_segments.filesystem import IOVEC_COUNT_MAX, FileSystem


class Written(NamedTuple):
    """What a compacted segment came out as.

    Attributes:
        last_seq: Of its last event.
        chain: Chain value after it, computed from the events as they were given.
        size_bytes: Of the file.
        erased_rows: Rows whose data were left out now.
        erased_events: Payloads of events without rows that were left out now.
        forgotten_events: Events of which a stub was left.
    """

    last_seq: int
    chain: bytes
    size_bytes: int
    erased_rows: int
    erased_events: int
    forgotten_events: int = 0


def write_compacted(
    fs: FileSystem,
    fd: int,
    header: SegmentHeader,
    events: Iterable[StoredEvent],
    erasure: Erasure,
    *,
    synced_to: int,
    time_ns: int,
    ledger_bytes_target: int = LEDGER_BYTES_TARGET,
    block_bytes_target: int = BLOCK_BYTES_TARGET,
) -> Written:
    """Write events as a compacted segment into an empty file.

    Args:
        fd: Open for writing, empty.
        header: Flag COMPACTED, a generation above 0, the seq of the first event as base seq, and
            the chain value before it.
        events: At least one, with consecutive seqs; what was erased before stays so.
        erasure: What is to be left out of them.
        synced_to: Every event up to this seq is known to be on disk.
        time_ns: When the event before the first was recorded; 0 = there is none.

    Returns:
        What was written; `chain` is for the caller to compare with what it knows.

    Raises:
        ValueError: The header is not of a compacted segment, or the events do not follow.
        FrameTooLarge: An event or row does not fit a frame, or all columns a SEAL.
        OSError: The system failed. What the file holds is worth nothing.

    Durability: none; sync the file before it gets a name.
    Cost: O(bytes), SHA-256 over all of them, about 20 µs an event; memory of the living rows.
    """
    if not header.is_compacted or header.generation < 1:
        raise ValueError(
            f"compacted segment: expected flag COMPACTED and a generation above 0, got flags "
            f"{header.flags} and generation {header.generation}"
        )
    folder = Folder(
        erasure,
        header.prev_chain,
        ledger_bytes_target=ledger_bytes_target,
        block_bytes_target=block_bytes_target,
    )
    writer = _FileWriter(fs, fd, header, synced_to=synced_to, time_ns=time_ns)
    for event in events:
        if not folder.last_seq:
            _check_first(event, header, time_ns)
        for content in folder.add(event):
            writer.write(content)
    for content in folder.finish():
        writer.write(content)
    size = writer.seal(folder.chain, folder.last_seq)
    return Written(
        folder.last_seq,
        folder.chain,
        size,
        folder.erased_rows,
        folder.erased_events,
        folder.forgotten_events,
    )


def _check_first(event: StoredEvent, header: SegmentHeader, time_ns: int) -> None:
    envelope = event.envelope
    if envelope.seq != header.base_seq or envelope.recorded_at_ns < time_ns:
        raise ValueError(
            f"compacted segment: expected event {header.base_seq}, recorded at {time_ns} or later,"
            f" got {envelope.seq} of {envelope.recorded_at_ns}"
        )


class _FileWriter:
    """Puts frames one behind the other into a file, and keeps what its SEAL will say."""

    def __init__(
        self, fs: FileSystem, fd: int, header: SegmentHeader, *, synced_to: int, time_ns: int
    ) -> None:
        self._fs = fs
        self._fd = fd
        self._salt = header.salt
        self._synced_to = synced_to
        self._offset = SEGMENT_HEADER_BYTES
        self._prev_frame_bytes = 0
        self._builder = CompactedSealBuilder(header.base_seq, time_ns=time_ns)
        write_all(fs, fd, pack_header(header), 0)

    def write(self, content: FrameContent) -> None:
        """Write a frame."""
        header, buffers = pack_content(
            content,
            synced_to=self._synced_to,
            prev_frame_bytes=self._prev_frame_bytes,
            salt=self._salt,
            offset=self._offset,
        )
        says = content.says
        if isinstance(says, BlockMeta):
            misplaced = self._builder.add_block(self._offset, header, says)
            assert not len(misplaced), "a BLOCK holds living rows of its stream, each once"
        else:
            self._builder.add(self._offset, BatchMeta(header, says))
        self._append(buffers)
        self._prev_frame_bytes = frame_bytes(header)

    def seal(self, chain: bytes, last_seq: int) -> int:
        """Write SEAL and trailer; the size of the file."""
        assert not len(self._builder.missing()), "every living row is in a BLOCK"
        self._builder.finish()
        _, buffers = pack_seal(
            self._builder,
            chain,
            synced_to=min(self._synced_to, last_seq),
            prev_frame_bytes=self._prev_frame_bytes,
            salt=self._salt,
            offset=self._offset,
        )
        self._append(buffers)
        return self._offset

    def _append(self, buffers: Sequence[Buffer]) -> None:
        """Write buffers at the end of the file, all of them."""
        for start in range(0, len(buffers), IOVEC_COUNT_MAX):
            part = buffers[start : start + IOVEC_COUNT_MAX]
            size = sum(map(len, part))
            written = self._fs.pwritev(self._fd, part, self._offset)
            if written < size:
                rest = memoryview(b"".join(part))[written:]
                write_all(self._fs, self._fd, bytes(rest), self._offset + written)
            self._offset += size
