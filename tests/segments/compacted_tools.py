"""Stores of compacted segments made by hand, and an independent way to read their frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from fmemory_segments import (
    Blob,
    Envelope,
    Erased,
    Log,
    PosixFileSystem,
    Rows,
    StoredEvent,
    payload_digest,
    row_digests,
)
from fmemory_segments._batch import BatchMeta, decode_payload, payload_extent
from fmemory_segments._block import Block
from fmemory_segments._compacted import Folder, FrameContent
from fmemory_segments._compacted_file import Written, write_compacted
from fmemory_segments._event_meta import DTYPES, BlockRows, unpack_bits, unpack_digests
from fmemory_segments._header import SegmentFlag, SegmentHeader
from fmemory_segments._manifest import ListedSegment, Manifest, SegmentName, pack_manifest
from fmemory_segments.compaction import Erasure
from fmemory_segments.filesystem import FileSystem
from tests.segments.event_strategies import SALT, History

STORE_ID = bytes(range(16))


def erasure_of(history: History) -> Erasure:
    """What a compaction of all of a history leaves out."""
    return Erasure(
        len(history.events),
        np.array(sorted(history.erased_locs), np.uint64),
        np.array(sorted(history.erased_seqs), np.uint64),
    )


NOTHING = Erasure(0, np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def compact_events(
    path: Path,
    events: Sequence[StoredEvent],
    erasure: Erasure,
    *,
    prev_chain: bytes = bytes(32),
    segment_id: int = 1,
    time_ns: int = 0,
    fs: FileSystem | None = None,
    **targets: int,
) -> tuple[Path, Written]:
    """A compacted segment of these events under its final name in a folder."""
    fs = fs or PosixFileSystem()
    base_seq = events[0].envelope.seq
    header = SegmentHeader(
        STORE_ID, segment_id, base_seq, 1, 0, prev_chain, SALT, SegmentFlag.COMPACTED
    )
    file = path / f"seg-{base_seq:020}-000001.log"
    fd = fs.create_file(file)
    try:
        written = write_compacted(
            fs, fd, header, events, erasure, synced_to=0, time_ns=time_ns, **targets
        )
    finally:
        fs.close(fd)
    return file, written


def compacted_store(
    path: Path,
    events: Sequence[StoredEvent],
    erasure: Erasure,
    cuts: Sequence[int] = (),
    **targets: int,
) -> list[Written]:
    """A folder with these events in compacted segments; each cut is the first seq of one."""
    path.mkdir(exist_ok=True)
    (path / "LOCK").touch()
    bounds = [0, *(cut - 1 for cut in cuts), len(events)]
    chain, time_ns, found = bytes(32), 0, []
    for number in range(len(bounds) - 1):
        part = events[bounds[number] : bounds[number + 1]]
        _, written = compact_events(
            path,
            part,
            erasure,
            prev_chain=chain,
            segment_id=number + 1,
            time_ns=time_ns,
            fs=None,
            **targets,
        )
        chain, time_ns = written.chain, part[-1].envelope.recorded_at_ns
        found.append(written)
    list_segments(path, bounds[:-1], found)
    return found


def list_segments(path: Path, starts: Sequence[int], found: Sequence[Written]) -> None:
    """The manifest that makes compacted segments count; each starts behind so many events."""
    manifest = Manifest(
        number=1,
        prev_number=0,
        prev_sha256=bytes(32),
        store_id=STORE_ID,
        created_ns=0,
        segments=tuple(
            ListedSegment(
                str(SegmentName(start + 1, 1)),
                start + 1,
                written.last_seq,
                written.size_bytes,
                written.chain,
            )
            for start, written in zip(starts, found, strict=True)
        ),
        obsolete=(),
        frozen_seq=0,
    )
    (path / manifest.name).write_bytes(pack_manifest(manifest))


def erased(events: Sequence[StoredEvent], erasure: Erasure) -> list[StoredEvent]:
    """These events with the erasure applied, row by row."""
    locs, seqs = set(erasure.locs.tolist()), set(erasure.seqs.tolist())
    found = []
    for event in events:
        seq, payload = event.envelope.seq, event.payload
        if seq > erasure.upto:
            pass
        elif isinstance(payload, Rows):
            named = [seq << 16 | row in locs for row in range(len(payload))]
            payload = erase_rows(payload, named)
        elif seq in seqs:
            payload = Erased(payload_digest(payload))
        found.append(StoredEvent(event.envelope, payload))
    return found


def erase_rows(rows: Rows, named: Sequence[bool]) -> Rows:
    """These rows without the data of those that are named."""
    count = len(rows)
    before = [False] * count if rows.erased is None else rows.erased.tolist()
    flags = np.array([one or other for one, other in zip(named, before, strict=True)])
    if not flags.any():
        return rows
    digests = row_digests(rows).copy()
    digests[~flags] = 0
    offsets = rows.note_offsets.tolist()
    notes = [
        b"" if flags[row] else rows.notes[offsets[row] : offsets[row + 1]] for row in range(count)
    ]
    vectors = rows.vectors.copy()
    vectors[flags] = 0
    return msgspec.structs.replace(
        rows,
        notes=b"".join(notes),
        note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
        vectors=vectors,
        embedding_ids=tuple(
            None if flags[row] else rows.embedding_ids[row] for row in range(count)
        ),
        nonces=b"".join(
            bytes(16) if flags[row] else rows.nonces[16 * row : 16 * row + 16]
            for row in range(count)
        ),
        erased=flags,
        digests=digests,
    )


def events_of(log: Log) -> list[StoredEvent]:
    """All events as a reader gets them."""
    head = log.refresh()
    return [
        StoredEvent(envelope, payload)
        for envelope, payload in zip(
            log.envelopes(0, head), log.payloads(range(1, head + 1)), strict=True
        )
    ]


def fold_frames(
    events: Iterable[StoredEvent], erasure: Erasure, target: int = 4 << 20
) -> list[FrameContent]:
    """The frames that a compaction makes of events."""
    folder = Folder(erasure, bytes(32), ledger_bytes_target=target, block_bytes_target=target)
    contents = [content for event in events for content in folder.add(event)]
    return [*contents, *folder.finish()]


def unfold_frames(
    ledgers: Iterable[tuple[BatchMeta, bytes]], blocks: Sequence[Block]
) -> list[StoredEvent]:
    """The events of these frames, put together row by row as docs/format.md section 6 says."""
    found = []
    places = {loc: (block, at) for block in blocks for at, loc in enumerate(block.locs.tolist())}
    assert len(places) == sum(len(block.locs) for block in blocks)
    for batch, data in ledgers:
        for number, event in enumerate(batch.events):
            envelope, place = batch.envelope(number), event.place
            if not isinstance(place, BlockRows):
                offset, size = payload_extent(event)
                payload = decode_payload(event, data[offset : offset + size])
                found.append(StoredEvent(envelope, payload))
                continue
            rows = [places.pop(envelope.seq << 16 | row, None) for row in range(len(envelope.keys))]
            found.append(StoredEvent(envelope, _put_together(envelope, place, rows)))
    assert not places
    return found


def _put_together(
    envelope: Envelope, place: BlockRows, rows: Sequence[tuple[Block, int] | None]
) -> Rows:
    notes: list[bytes] = []
    nonces: list[bytes] = []
    embedding_ids: list[str | None] = []
    vectors = np.zeros((len(rows), place.dim), DTYPES[place.dtype])
    for row, found in enumerate(rows):
        if found is None:
            notes.append(b"")
            nonces.append(bytes(16))
            embedding_ids.append(None)
            continue
        block, at = found
        assert block.stream == envelope.stream and block.vectors.dtype == vectors.dtype
        start, end = block.note_offsets[at : at + 2].tolist()
        notes.append(block.notes[start:end])
        nonces.append(block.nonces[16 * at : 16 * (at + 1)])
        embedding_ids.append(block.embedding_ids[at])
        vectors[row] = block.vectors[at]
    erased = unpack_bits(place.erased, len(rows))
    flags = [False] * len(rows) if erased is None else erased.tolist()
    assert flags == [row is None for row in rows]
    return Rows(
        timestamps=np.frombuffer(place.timestamps, "<f8"),
        notes=b"".join(notes),
        note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
        vectors=vectors,
        embedding_ids=tuple(embedding_ids),
        nonces=b"".join(nonces),
        erased=erased,
        digests=unpack_digests(place.digests, erased),
    )


def blob(seq: int, data: bytes) -> Blob:
    """A payload whose nonce follows from its seq."""
    return Blob(data, seq.to_bytes(16, "little"))
