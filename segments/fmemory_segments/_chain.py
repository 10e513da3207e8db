"""The chain over all events, computed when somebody asks for it.

A segment's header says what the chain was before its first event, so nobody hashes more than one
segment for a head, and what was hashed last is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import NamedTuple

from fmemory_segments._batch import BatchMeta, decode_payload, payload_extent
from fmemory_segments._core import Core, Segment
from fmemory_segments._frame import FrameDamage
from fmemory_segments._frames import frame_damage, read_frame
from fmemory_segments.digest import chain_step, event_digest, payload_digest
from fmemory_segments.errors import LogReason
from fmemory_segments.event import ZERO_CHAIN, Head, StoredEvent


class ChainCache:
    """The chain value that was computed last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known = Head(0, ZERO_CHAIN)

    def head(self, core: Core, upto: int) -> Head:
        """The chain value after event `upto`.

        Raises:
            LogCorrupt, LogReadFailed: An event on the way is damaged or cannot be read.

        Cost: O(bytes) of SHA-256 over the events since the last call, or since the segment began.
        """
        known = self._known
        if known.seq == upto:
            return known
        segment = core.segment_of(upto)
        if upto == segment.next_seq - 1 and segment.chain:
            return Head(upto, segment.chain)
        if not segment.base_seq - 1 <= known.seq < upto:
            known = Head(segment.base_seq - 1, segment.header.prev_chain)
        chain = known.chain
        for stored in stored_events(core, segment, known.seq, upto):
            chain = next_chain(chain, stored)
        found = Head(upto, chain)
        with self._lock:
            if found.seq > self._known.seq:
                self._known = found
        return found


class WholeFrame(NamedTuple):
    """A frame whose bytes were all checked, with its events decoded."""

    number: int
    batch: BatchMeta
    events: list[StoredEvent]


def whole_frames(core: Core, segment: Segment, after: int, upto: int) -> Iterator[WholeFrame]:
    """The frames that hold events `after < seq <= upto` of one segment.

    Raises:
        LogCorrupt, LogReadFailed: One is damaged or cannot be read.
    """
    if upto < segment.base_seq or after >= upto:
        return
    first = segment.index.frame_of(max(after + 1, segment.base_seq))
    last = segment.index.frame_of(min(upto, segment.next_seq - 1))
    for number in range(first, last + 1):
        batch, data = read_frame(core, segment, number)
        yield WholeFrame(number, batch, decode_events(segment, number, batch, data))


def decode_events(
    segment: Segment, number: int, batch: BatchMeta, data: memoryview
) -> list[StoredEvent]:
    """The events of a frame, each payload checked against its own CRCs.

    Raises:
        LogCorrupt: A payload is not what was written.
    """
    events = []
    for envelope, meta in zip(batch.envelopes(), batch.events, strict=True):
        offset, size = payload_extent(meta)
        try:
            payload = decode_payload(meta, data[offset : offset + size])
        except FrameDamage as damage:
            raise frame_damage(
                segment,
                number,
                LogReason.ROW_CHECKSUM,
                "payloads with their checksums",
                str(damage),
            ) from damage
        events.append(StoredEvent(envelope, payload))
    return events


def stored_events(core: Core, segment: Segment, after: int, upto: int) -> Iterator[StoredEvent]:
    """The events `after < seq <= upto` of one segment, whole and checked."""
    for frame in whole_frames(core, segment, after, upto):
        for stored in frame.events:
            if after < stored.envelope.seq <= upto:
                yield stored


def next_chain(chain: bytes, stored: StoredEvent) -> bytes:
    """The chain value after one more event."""
    digest = event_digest(stored.envelope, payload_digest(stored.payload))
    return chain_step(chain, digest)
