"""The new segments of a compaction, in `tmp/`: written, synced, and read back before they count."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fmemory_segments._catalog import HALF_COMPACTED, Listing, reading, writing
from fmemory_segments._chain import checked_frames
from fmemory_segments._choose import Share, outputs_of
from fmemory_segments._compacted_file import Written, write_compacted
from fmemory_segments._core import Core
from fmemory_segments._header import SegmentFlag, SegmentHeader
from fmemory_segments._load import open_sealed
from fmemory_segments._manifest import GENERATION_MAX, SegmentName
from fmemory_segments._stored import stored_events
from fmemory_segments.compaction import Erasure
from fmemory_segments.errors import LogCorrupt, LogReason, LogWriteFailed
from fmemory_segments.event import Blob, Rows, StoredEvent


@dataclass(slots=True)
class Output:
    """A new segment.

    Attributes:
        path: Where its file is now.
        header: Its first 128 bytes.
        written: What it came out as.
        may_hold: A manifest that lists it may be in use: it must not be removed.
    """

    path: Path
    header: SegmentHeader
    written: Written
    may_hold: bool = False

    @property
    def name(self) -> SegmentName:
        """What its file is called from the moment it counts."""
        return SegmentName(self.header.base_seq, self.header.generation)


def next_manifest_no(core: Core, listing: Listing) -> int:
    """A number that no manifest of the store ever had."""
    with reading(core.path):
        told = core.read_tip().manifest_no
    return max(*listing.manifests, told, 0) + 1


def next_generation(core: Core, listing: Listing) -> int:
    """A generation that no file of the store ever had.

    Raises:
        LogWriteFailed: There is none left.
    """
    names = [*listing.segments, *listing.obsolete, *listing.debris]
    # Files are removed when they were replaced, but manifests are never numbered twice.
    generation = max(*(name.generation + 1 for name in names), next_manifest_no(core, listing))
    if generation > GENERATION_MAX:
        raise LogWriteFailed(
            f"compaction: expected a generation up to {GENERATION_MAX}, got {generation} "
            f"({core.path}); nothing was written; copy the log to a new store",
            reason=LogReason.WRITE_FAILED,
            path=core.path,
        )
    return generation


def write_group(core: Core, group: list[Share], erasure: Erasure, generation: int) -> list[Output]:
    """What a group of neighbours becomes, on disk in `tmp/`; nothing for bare headers.

    Raises:
        LogCorrupt: A segment of the group is damaged. Nothing of the group is left in `tmp/`.
        StoreFull, LogWriteFailed, LogReadFailed: The system refused. As above.
    """
    outputs: list[Output] = []
    first = group[0].segment
    chain = first.header.prev_chain
    time_ns = max(
        (one.time_ns for one in core.segments if one.base_seq < first.base_seq), default=0
    )
    try:
        for first_seq, last_seq in outputs_of(group):
            header = SegmentHeader(
                core.store_id,
                segment_id=group[-1].segment.header.segment_id,
                base_seq=first_seq,
                generation=generation,
                created_ns=core.options.clock(),
                prev_chain=chain,
                salt=secrets.randbits(32),
                flags=SegmentFlag.COMPACTED,
            )
            given = _Counted(stored_events(core, first_seq, last_seq))
            outputs.append(_write(core, header, given, erasure, time_ns))
            _read_back(core, outputs[-1], given)
            chain, time_ns = outputs[-1].written.chain, given.time_ns
        _check_chain(group, chain)
    except BaseException:
        discard(core, outputs)
        raise
    return outputs


def discard(core: Core, outputs: Iterable[Output]) -> None:
    """Remove new segments that do not count; what cannot be removed is debris."""
    for output in outputs:
        if output.may_hold:
            continue
        with suppress(OSError):
            if core.fs.kind(output.path) is not None:
                core.fs.remove(output.path)


class _Counted:
    """Events on their way, with what is to be found of them afterwards."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        self._events = events
        self.last_seq = 0
        self.living = 0
        self.time_ns = 0

    def __iter__(self) -> Iterator[StoredEvent]:
        for event in self._events:
            self.last_seq = event.envelope.seq
            self.time_ns = event.envelope.recorded_at_ns
            self.living += _living(event)
            yield event


def _living(event: StoredEvent) -> int:
    """How many rows, or payloads without rows, of an event are not erased."""
    payload = event.payload
    if isinstance(payload, Rows):
        erased = 0 if payload.erased is None else int(payload.erased.sum())
        return len(payload) - erased
    return int(isinstance(payload, Blob))


def _write(
    core: Core, header: SegmentHeader, events: _Counted, erasure: Erasure, time_ns: int
) -> Output:
    """One new segment, on disk under a name of `tmp/`."""
    fs = core.fs
    path = core.tmp / f"{HALF_COMPACTED}{secrets.token_hex(8)}"
    with writing(core.path):
        fs.make_folders(core.tmp)
        fd = fs.create_file(path)
        try:
            written = write_compacted(
                fs,
                fd,
                header,
                events,
                erasure,
                synced_to=header.base_seq - 1,  # What is sealed is on disk.
                time_ns=time_ns,
            )
            fs.sync(fd)
        except BaseException:
            with suppress(OSError):
                fs.remove(path)
            raise
        finally:
            fs.close(fd)
    return Output(path, header, written)


def _read_back(core: Core, output: Output, given: _Counted) -> None:
    """Read a new segment as any reader would, and compare it with what it was made of.

    Raises:
        LogWriteFailed: It is not what was written.
    """
    written, header = output.written, output.header
    reader = Core(core.fs, core.path, core.options)
    reader.store_id = core.store_id
    try:
        segment = open_sealed(reader, output.path, header)
        reader.set_segments((segment,))
        reader.head_seq = last_seq = segment.next_seq - 1
        found, chain = segment.index.living_slots, header.prev_chain
        for frame in checked_frames(reader, segment, header.base_seq - 1, last_seq):
            chain = frame.next_chain(chain)
    except LogCorrupt as error:
        raise _not_as_written(output.path, str(error)) from error
    living = given.living - written.erased_rows - written.erased_events
    if (last_seq, found, chain) != (given.last_seq, living, written.chain):
        raise _not_as_written(
            output.path,
            f"{found} living rows and payloads up to seq {last_seq} with chain "
            f"{chain.hex()}, where {living} up to {given.last_seq} with {written.chain.hex()} "
            "were written",
        )


def _check_chain(group: list[Share], chain: bytes) -> None:
    """Raise if the events of a group are not those that their segments' SEALs vouch for."""
    last = group[-1].segment
    if last.chain and last.chain != chain:
        raise LogCorrupt(
            f"chain: expected {last.chain.hex()} after seq {last.next_seq - 1}, as the SEAL says, "
            f"got {chain.hex()} ({last.path}); what was there holds; run `fmemory verify` on the "
            "store",
            reason=LogReason.CHAIN,
            path=last.path,
            first_seq=group[0].segment.base_seq,
            last_seq=last.next_seq - 1,
        )


def _not_as_written(path: Path, got: str) -> LogWriteFailed:
    return LogWriteFailed(
        f"compaction, read back: expected the segment as it was written, got {got} ({path}); what "
        "was there holds; look at the disk, then compact again",
        reason=LogReason.WRITE_FAILED,
        path=path,
    )
