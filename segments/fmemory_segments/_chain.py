"""The chain over all events, computed when somebody asks for it.

A segment's header says what the chain was before its first event, so nobody hashes more than one
segment for a head, and what was hashed last is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from fmemory_segments._batch import BatchMeta, decode_payload, payload_extent
from fmemory_segments._compacted_read import RowDigests
from fmemory_segments._core import Core, Segment
from fmemory_segments._event_meta import ITEM_BYTES, EventMeta, RowsPlace
from fmemory_segments._frame import FrameDamage, pad8
from fmemory_segments._frames import frame_damage, read_frames
from fmemory_segments.digest import (
    chain_step,
    event_digest,
    payload_digest,
    row_digest,
    rows_digest,
)
from fmemory_segments.errors import LogReason
from fmemory_segments.event import NONCE_BYTES, ZERO_CHAIN, Head, StoredEvent


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
        for frame in checked_frames(core, segment, known.seq, upto):
            for envelope, digest in zip(
                frame.batch.envelopes(), frame.payload_digests, strict=True
            ):
                if known.seq < envelope.seq <= upto:
                    chain = chain_step(chain, event_digest(envelope, digest))
        found = Head(upto, chain)
        with self._lock:
            if found.seq > self._known.seq:
                self._known = found
        return found


class CheckedFrame(NamedTuple):
    """A frame whose bytes were all checked, with the digests of its payloads.

    Of a LEDGER only those in the range that was asked for: the others are empty.
    """

    number: int
    batch: BatchMeta
    payload_digests: list[bytes]

    def next_chain(self, chain: bytes) -> bytes:
        """The chain value after the events of this frame."""
        for envelope, digest in zip(self.batch.envelopes(), self.payload_digests, strict=True):
            chain = chain_step(chain, event_digest(envelope, digest))
        return chain


def checked_frames(core: Core, segment: Segment, after: int, upto: int) -> Iterator[CheckedFrame]:
    """The frames that hold events `after < seq <= upto` of one segment.

    Raises:
        LogCorrupt, LogReadFailed: One is damaged or cannot be read.

    Cost: O(bytes) of SHA-256, and about 15 µs a frame.
    """
    if upto < segment.base_seq or after >= upto:
        return
    first = segment.index.frame_of(max(after + 1, segment.base_seq))
    last = segment.index.frame_of(min(upto, segment.next_seq - 1))
    is_compacted = segment.header.is_compacted
    rows = RowDigests(core, segment, after, upto) if is_compacted else None
    for number, batch, data in read_frames(core, segment, range(first, last + 1)):
        try:
            digests = [
                _payload_digest(meta, data)
                if rows is None or not meta.has_rows
                else (rows.payload_digest(seq, meta) if after < seq <= upto else b"")
                for seq, meta in enumerate(batch.events, batch.header.first_seq)
            ]
        except FrameDamage as damage:
            raise frame_damage(
                segment,
                number,
                LogReason.ROW_CHECKSUM,
                "payloads with their checksums",
                str(damage),
            ) from damage
        yield CheckedFrame(number, batch, digests)


def next_chain(chain: bytes, stored: StoredEvent) -> bytes:
    """The chain value after one more event."""
    digest = event_digest(stored.envelope, payload_digest(stored.payload))
    return chain_step(chain, digest)


def _payload_digest(event: EventMeta, data: memoryview) -> bytes:
    """The digest of one event's payload, which is checked against its own CRCs."""
    offset, size = payload_extent(event)
    region, place = data[offset : offset + size], event.place
    if isinstance(place, RowsPlace) and len(event.keys) == 1 and not place.erased:
        return _digest_of_one_row(place, region)
    return payload_digest(decode_payload(event, region))


def _digest_of_one_row(place: RowsPlace, region: memoryview) -> bytes:
    """As for any other payload, without making arrays: segments are full of these."""
    notes_end = NONCE_BYTES + int.from_bytes(place.note_offsets[4:], "little")
    vector_start = pad8(notes_end)
    nonce, note = region[:NONCE_BYTES], region[NONCE_BYTES:notes_end]
    vector = region[vector_start : vector_start + place.dim * ITEM_BYTES[place.dtype]]
    if crc32c(nonce) != place.nonces_crc:
        raise FrameDamage("data", "payload: wrong checksum of nonces")
    if crc32c(vector, crc32c(note)) != int.from_bytes(place.row_crcs, "little"):
        raise FrameDamage("row", "payload: wrong checksum of row 0")
    row = row_digest(nonce, note, place.embedding_ids[0], place.dtype, place.dim, vector)
    return rows_digest(1, place.timestamps, row)
