"""Reading events: folds for an index, envelopes in order, payloads by seq.

No lock is held between items. Everything up to `upto` stays what it is, but not the files it is in:
an iterator knows the seq it has come to and no more, so where a compaction takes a file away it
goes on in the one that took its place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from fmemory_segments._batch import BatchMeta, decode_payload, payload_extent
from fmemory_segments._catalog import Vanished
from fmemory_segments._columns import SHAPE_BLOB, Int64Array, SegmentIndex
from fmemory_segments._compacted_index import CompactedIndex
from fmemory_segments._compacted_read import read_row_payloads
from fmemory_segments._core import Core, Segment
from fmemory_segments._event_meta import BlockRows, EventMeta, RowsPlace
from fmemory_segments._frame import ALIGNMENT, FrameDamage
from fmemory_segments._frames import (
    event_damage,
    find_seal,
    read,
    read_metas,
    read_seal,
)
from fmemory_segments._runs import rows_flags
from fmemory_segments._seal import Seal
from fmemory_segments.errors import LogCorrupt, LogReason, UnknownEvent
from fmemory_segments.event import (
    LOC_ROW_BITS,
    NONCE_BYTES,
    Blob,
    Envelope,
    Payload,
    RowRun,
    Stream,
    UInt64Array,
)
from fmemory_segments.recovery import Judgement, Verdict

GAP_BYTES_MAX: Final = 8_192
SPAN_BYTES_MAX: Final = 1 << 20
COLUMNS_MIN: Final = 16
"""From so many events on their places are looked up column by column."""
FRAME_COST: Final = 8
"""So many envelopes of a SEAL are decoded while one frame is read."""
_SEQ = attrgetter("seq")

_FRAME, _STREAM, _SLOT, _MATRIX, _SHAPE = range(5)
_START, _LENGTH, _CRC = range(3)


def fold(core: Core, after: int, upto: int, stream: Stream | None) -> Iterator[Envelope | RowRun]:
    """Events `after < seq <= upto` without payloads, in an order that is right in each stream."""
    if after >= upto:
        return iter(())
    with core.tail_lock:
        recent = core.recent.since(after, upto)
        if recent is not None and stream is None:
            core.recent.folded(upto)
    if recent is None:
        return _fold_segments(core, after, upto, stream)
    if len(recent) == 1 and len(recent[0].events) == 1:
        event = recent[0].events[0]
        if event.has_rows and (stream is None or stream == event.stream):
            return iter((_run_of_one(upto, event),))  # as after every commit of one put
    return _fold_metas(recent, after, upto, stream)


def _fold_segments(
    core: Core, after: int, upto: int, stream: Stream | None
) -> Iterator[Envelope | RowRun]:
    position = max(after, 0)
    while position < upto:
        segment = _segment_after(core, position)
        last = min(upto, segment.next_seq - 1)
        try:
            # All that is read is read before the first item: nothing is yielded twice.
            items = _fold_segment(core, segment, position, last, stream)
        except Vanished as gone:
            core.find_again(gone.path)
            continue
        yield from items
        position = last
    if stream is None:
        with core.tail_lock:
            core.recent.folded(upto)


def _segment_after(core: Core, position: int) -> Segment:
    """The segment that holds the event behind a position, as they are now.

    Raises:
        LogClosed: The log was closed meanwhile.
    """
    if not core.segments:
        core.check()
    return core.segment_of(position + 1)


def _fold_segment(
    core: Core, segment: Segment, after: int, upto: int, stream: Stream | None
) -> Iterator[Envelope | RowRun]:
    """The events of one segment. Its file is read before this returns, and not any more then."""
    if stream is not None and not segment.index.has_stream(stream):
        return iter(())
    if segment.is_sealed:
        return load_seal(core, segment).fold(after, upto, stream)
    start = max(after, segment.base_seq - 1)
    with core.tail_lock:
        recent = core.recent.since(start, upto)
    metas = recent if recent is not None else list(_metas(core, segment, start, upto, stream))
    return _fold_metas(metas, after, upto, stream)


def load_seal(core: Core, segment: Segment) -> Seal:
    """The SEAL of a sealed segment, read anew.

    Raises:
        LogCorrupt: It is not what was written.
    """
    offset = find_seal(core, segment, segment.end)
    found = read_seal(core, segment, offset, segment.end) if offset is not None else "got none"
    if isinstance(found, Seal):
        return found
    judgement = Judgement(Verdict.DAMAGED, LogReason.SEAL, found)
    raise core.corrupt(judgement, segment, segment.frames_end, segment.base_seq)


class _Run:
    """Consecutive puts of one stream on their way to a `RowRun`."""

    def __init__(self, seq: int, event: EventMeta) -> None:
        self.first_seq = seq
        self.event = event
        self.seqs: list[int] = []
        self.counts: list[int] = []
        self.ids: list[str] = []
        self.timestamps: list[bytes] = []

    def add(self, seq: int, event: EventMeta) -> None:
        assert isinstance(event.place, RowsPlace)
        self.seqs.append(seq)
        self.counts.append(len(event.keys))
        self.ids += event.keys
        self.timestamps.append(event.place.timestamps)

    def build(self) -> RowRun:
        return RowRun(
            self.event.stream,
            self.event.revision,
            len(self.seqs),
            self.first_seq,
            self.seqs[-1],
            self.ids,
            np.frombuffer(b"".join(self.timestamps), "<f8"),
            self._locs(),
        )

    def _locs(self) -> UInt64Array:
        seqs = np.array(self.seqs, np.uint64) << np.uint64(LOC_ROW_BITS)
        if len(self.ids) == len(seqs):
            return seqs
        counts = np.array(self.counts)
        starts = np.cumsum(counts) - counts
        within = np.arange(len(self.ids)) - np.repeat(starts, counts)
        locs: UInt64Array = np.repeat(seqs, counts) + within.astype(np.uint64)
        return locs


def _run_of_one(seq: int, event: EventMeta) -> RowRun:
    """One put, without the gathering."""
    assert isinstance(event.place, RowsPlace)
    ids, first = list(event.keys), seq << LOC_ROW_BITS
    return RowRun(
        event.stream,
        event.revision,
        1,
        seq,
        seq,
        ids,
        np.frombuffer(event.place.timestamps, "<f8"),
        np.arange(first, first + len(ids), dtype=np.uint64),
    )


def _fold_metas(
    metas: Sequence[BatchMeta], after: int, upto: int, stream: Stream | None
) -> Iterator[Envelope | RowRun]:
    """Puts of each stream gathered into runs, cut where another event of it lies between."""
    runs: dict[Stream, _Run] = {}
    for header, events in metas:
        for seq, event in enumerate(events, header.first_seq):
            if not after < seq <= upto or (stream is not None and event.stream != stream):
                continue
            run = runs.get(event.stream)
            if event.has_rows:
                if run is None:
                    run = runs[event.stream] = _Run(seq, event)
                run.add(seq, event)
                continue
            if run is not None:
                yield runs.pop(event.stream).build()
            yield event.envelope(seq, header.time_ns)
    for run in runs.values():
        yield run.build()


def _metas(
    core: Core,
    segment: Segment,
    after: int,
    upto: int,
    stream: Stream | None,
    *,
    backwards: bool = False,
) -> Iterator[BatchMeta]:
    """The metas of the frames of one segment that hold these events of this stream."""
    numbers = _frame_numbers(segment, after, upto, stream)
    yield from read_metas(core, segment, numbers[::-1] if backwards else numbers)


def _frame_numbers(segment: Segment, after: int, upto: int, stream: Stream | None) -> Sequence[int]:
    index = segment.index
    low, high = max(after + 1, segment.base_seq), min(upto, segment.next_seq - 1)
    if low > high:
        return ()
    if stream is None:
        return range(index.frame_of(low), index.frame_of(high) + 1)
    seqs = index.seqs_of(stream, low, high)
    frames = index.events[seqs - segment.base_seq, 0]
    # Ascending; and np.unique would import numpy.ma, which takes as long as many a read.
    return list(dict.fromkeys(frames.tolist()))


def envelopes(
    core: Core,
    after: int,
    upto: int,
    *,
    stream: Stream | None,
    backwards: bool,
    limit: int | None,
) -> Iterator[Envelope]:
    """Envelopes with `after < seq <= upto`, by seq."""
    left = limit if limit is not None else upto - after
    while left > 0 and after < upto:
        segment = _segment_after(core, upto - 1 if backwards else after)
        low, high = max(after, segment.base_seq - 1), min(upto, segment.next_seq - 1)
        try:
            is_large = limit is None and not backwards
            seal = _seal_for(core, segment, low, high, stream) if is_large else None
            if seal is not None:
                for some in _from_seal(core, segment, seal, low, high, stream):
                    yield from some
                    after = some[-1].seq
                after = high
                continue
            for header, events in _frames_of(core, segment, low, high, stream, backwards=backwards):
                pairs = list(enumerate(events, header.first_seq))
                for seq, event in reversed(pairs) if backwards else pairs:
                    if after < seq <= upto and (stream is None or event.stream == stream):
                        yield event.envelope(seq, header.time_ns)
                        left -= 1
                        if not left:
                            return
                if backwards:
                    upto = min(upto, header.first_seq - 1)
                else:
                    after = max(after, header.last_seq)
        except Vanished as gone:
            core.find_again(gone.path)
            continue
        if backwards:
            upto = min(upto, low)
        else:
            after = max(after, high)


def _seal_for(
    core: Core, segment: Segment, after: int, upto: int, stream: Stream | None
) -> Seal | None:
    """The SEAL, which has all envelopes but those of records, where it is the shorter way to them.

    None also where it is damaged: what it says stands in the frames as well.
    """
    if not segment.is_sealed:
        return None
    index = segment.index
    count = upto - after if stream is None else len(index.seqs_of(stream, after + 1, upto))
    if not count or count * FRAME_COST < index.event_count:
        return None
    try:
        seal = load_seal(core, segment)
        seal.envelopes()
    except (LogCorrupt, FrameDamage):
        return None
    return seal


def _from_seal(
    core: Core, segment: Segment, seal: Seal, after: int, upto: int, stream: Stream | None
) -> Iterator[list[Envelope]]:
    """Envelopes of a sealed segment by seq, some together, none empty.

    Those of record events stand in front of their rows only, and are read there.
    """
    index, base_seq, others = segment.index, segment.base_seq, seal.envelopes()
    others = others[bisect_right(others, after, key=_SEQ) : bisect_right(others, upto, key=_SEQ)]
    if stream is not None:
        others = [envelope for envelope in others if envelope.stream == stream]
    puts = np.flatnonzero(rows_flags(index)[after + 1 - base_seq : upto + 1 - base_seq])
    puts += after + 1 - base_seq
    if stream is not None:
        puts = puts[index.events[puts, _STREAM] == index.streams.index(stream)]
    numbers = list(dict.fromkeys(index.events[puts, _FRAME].tolist()))
    wanted = iter((puts + base_seq).tolist())
    seq = next(wanted, 0)
    at = 0
    for header, events in read_metas(core, segment, numbers):
        while header.first_seq <= seq <= header.last_seq:
            end = bisect_left(others, seq, at, key=_SEQ)
            some = others[at:end]
            some.append(events[seq - header.first_seq].envelope(seq, header.time_ns))
            yield some
            at = end
            seq = next(wanted, 0)
    if at < len(others):
        yield others[at:]


def _frames_of(
    core: Core,
    segment: Segment,
    after: int,
    upto: int,
    stream: Stream | None,
    *,
    backwards: bool,
) -> Iterator[BatchMeta]:
    """Metas from memory where they are still there, else from the file."""
    if not segment.is_sealed:
        start = max(after, segment.base_seq - 1)
        with core.tail_lock:
            recent = core.recent.since(start, upto)
        if recent is not None:
            yield from reversed(recent) if backwards else recent
            return
    yield from _metas(core, segment, after, upto, stream, backwards=backwards)


def count_usage(core: Core, upto: int) -> dict[tuple[Stream, str], tuple[int, int]]:
    """Events and payload bytes by stream and type, of all events up to a seq."""
    found: dict[tuple[Stream, str], tuple[int, int]] = {}
    position = 0
    while position < upto:
        segment = _segment_after(core, position)
        last, index = min(upto, segment.next_seq - 1), segment.index
        try:
            for header, events in _frames_of(core, segment, position, last, None, backwards=False):
                for seq, event in enumerate(events, header.first_seq):
                    if not position < seq <= last:
                        continue
                    name = (event.stream, event.type)
                    count, size = found.get(name, (0, 0))
                    payload = payload_extent(event)[1]
                    if isinstance(index, CompactedIndex) and event.has_rows:
                        payload = index.payload_bytes(seq)
                    found[name] = (count + 1, size + payload)
                position = min(last, header.last_seq)
        except Vanished as gone:
            core.find_again(gone.path)
            continue
        position = last
    return found


def payloads(core: Core, seqs: Sequence[int]) -> list[Payload]:
    """The payloads of these events, checked, in their order.

    Raises:
        LogCorrupt: One is not what was written.
        LogReadFailed: The system could not read.
        UnknownEvent: There is no such event.
    """
    found: dict[int, Payload] = {}
    wanted = sorted(set(seqs))
    for seq in wanted[:1] + wanted[-1:]:
        if not 1 <= seq <= core.head_seq:
            raise unknown_event(core, seq)
    at = 0
    while at < len(wanted):
        segment = core.segment_of(wanted[at])
        end = bisect_left(wanted, segment.next_seq, at)
        _read_payloads(core, segment, wanted[at:end], found)
        at = end
    return list(map(found.__getitem__, seqs))


def _read_payloads(
    core: Core, segment: Segment, seqs: list[int], found: dict[int, Payload]
) -> None:
    """Read payloads of one segment, ascending, into `found`."""
    index = segment.index
    if len(seqs) < COLUMNS_MIN:
        blobs, others = _few_blob_places(index, seqs)
    else:
        blobs, others = _blob_places(index, np.array(seqs, np.int64))
    _read_blobs(core, segment, blobs, found)
    puts: list[tuple[int, EventMeta]] = []
    batch: BatchMeta | None = None
    for seq in others:
        if batch is None or not batch.header.first_seq <= seq <= batch.header.last_seq:
            batch = next(iter(read_metas(core, segment, (index.frame_of(seq),))))
        event = batch.events[seq - batch.header.first_seq]
        if isinstance(event.place, BlockRows):
            puts.append((seq, event))
        else:
            found[seq] = _payload(core, segment, batch, seq)
    found.update(read_row_payloads(core, segment, puts))


class _Blobs(NamedTuple):
    """Payloads of bytes, ascending in the file, column by column: int64, shape (n,) each.

    Attributes:
        starts: Offset in the file of nonce and bytes.
        ends: Offset behind them.
        crcs: Of both.
    """

    seqs: Int64Array
    starts: Int64Array
    ends: Int64Array
    crcs: Int64Array


def _few_blob_places(index: SegmentIndex, seqs: list[int]) -> tuple[_Blobs, list[int]]:
    """As `_blob_places`, in fewer steps for few events."""
    places = [(seq, index.blob(seq)) for seq in seqs]
    rows = [
        (seq, place.offset, place.offset + NONCE_BYTES + place.length, place.crc)
        for seq, place in places
        if place is not None
    ]
    return _Blobs(*np.array(rows, np.int64).reshape(-1, 4).T), [
        seq for seq, place in places if place is None
    ]


def _blob_places(index: SegmentIndex, seqs: Int64Array) -> tuple[_Blobs, list[int]]:
    """Where the bytes of these events are; and those that are records, or were erased."""
    events = index.events.take(seqs - index.base_seq, 0)
    are_blobs = events[:, _SHAPE] & 3 == SHAPE_BLOB
    events = events[are_blobs]
    # Both kinds of index have the same first three columns.
    slots = index.slots.take(events[:, _SLOT], 0)
    frames = index.packed_frame_offsets.take(events[:, _FRAME]).astype(np.int64)
    starts = frames * ALIGNMENT + slots[:, _START]
    ends = starts + (slots[:, _LENGTH] + np.int64(NONCE_BYTES))
    blobs = _Blobs(seqs[are_blobs], starts, ends, slots[:, _CRC].astype(np.int64))
    return blobs, seqs[~are_blobs].tolist()


def _read_blobs(core: Core, segment: Segment, blobs: _Blobs, found: dict[int, Payload]) -> None:
    """Read payloads of bytes, near ones together, by the index alone."""
    for low, high in _spans(blobs):
        seqs, starts, ends, crcs = [column[low:high] for column in blobs]
        first = starts.item(0)
        data = read(core, segment, ends.item(-1) - first, first)
        heads, ends = starts - first, ends - first
        middles = (heads + NONCE_BYTES).tolist()
        nonces = [data[start:end] for start, end in zip(heads.tolist(), middles, strict=True)]
        bodies = [data[start:end] for start, end in zip(middles, ends.tolist(), strict=True)]
        got, wanted = list(map(crc32c, bodies, map(crc32c, nonces))), crcs.tolist()
        if got != wanted:
            wrong = next(at for at, crc in enumerate(got) if crc != wanted[at])
            raise _payload_damage(segment, seqs.item(wrong), starts.item(wrong), "other bytes")
        found.update(zip(seqs.tolist(), map(Blob, bodies, nonces), strict=True))


def _spans(blobs: _Blobs) -> Iterator[tuple[int, int]]:
    """Which blobs lie close enough together for one read: number of the first, and the end."""
    starts, ends, low = blobs.starts, blobs.ends, 0
    cuts = (np.flatnonzero(starts[1:] - ends[:-1] > GAP_BYTES_MAX) + 1).tolist()
    for stop in (*cuts, len(ends)) if len(ends) else ():
        while low + 1 < stop and ends[stop - 1] - starts[low] > SPAN_BYTES_MAX:
            fitting = ends.searchsorted(starts[low] + SPAN_BYTES_MAX, "right")
            cut = max(low + 1, int(fitting))
            yield low, cut
            low = cut
        yield low, stop
        low = stop


def _payload(core: Core, segment: Segment, batch: BatchMeta, seq: int) -> Payload:
    number = segment.index.frame_of(seq)
    event = batch.events[seq - batch.header.first_seq]
    offset, size = payload_extent(event)
    start = segment.index.frame_offset(number) + batch.header.data_start + offset
    region = read(core, segment, size, start)
    try:
        return decode_payload(event, region)
    except FrameDamage as damage:
        raise _payload_damage(segment, seq, start, str(damage)) from damage


def _payload_damage(segment: Segment, seq: int, offset: int, evidence: str) -> LogCorrupt:
    reason, expected = LogReason.DATA_CHECKSUM, "a payload with its checksum"
    return event_damage(segment, seq, reason, expected, evidence, offset=offset)


def unknown_event(core: Core, seq: int) -> UnknownEvent:
    """The error for a seq that names no event."""
    return UnknownEvent(
        f"event: expected a seq from 1 to {core.head_seq}, got {seq} ({core.path})",
        reason=LogReason.UNKNOWN_EVENT,
        path=core.path,
        first_seq=seq,
        last_seq=seq,
    )
