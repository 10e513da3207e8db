"""Which events had data taken out: answered from the indexes of segments alone.

A slot whose start is 0 is that of a row or payload that was erased, in batches that were imported
so as in compacted segments. Nothing is read, and where nothing was erased a segment costs one look
over a column.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fmemory_segments._core import Core, Segment
from fmemory_segments._places import Int64Array
from fmemory_segments.compaction import ErasedEvent
from fmemory_segments.event import Stream

_STREAM, _SLOT = 1, 2


def erased_events(
    core: Core, after: int, upto: int, stream: Stream | None
) -> Iterator[ErasedEvent]:
    """Events `after < seq <= upto` of which something was erased, by seq.

    Cost: O(rows) array steps, about 0.1 ms for 100,000 rows; Python only by erased event.
    """
    for segment in core.segments:
        if segment.base_seq > upto or segment.next_seq - 1 <= after:
            continue
        index = segment.index
        for seq in _erased_seqs(segment, after, upto, stream).tolist():
            if not index.has_rows(seq):
                yield ErasedEvent(seq, None)
                continue
            low, high = index.slot_range(seq, seq)
            yield ErasedEvent(seq, index.slots[low:high, 0] == 0)


def _erased_seqs(segment: Segment, after: int, upto: int, stream: Stream | None) -> Int64Array:
    index = segment.index
    first, last = max(after + 1, index.base_seq), min(upto, index.last_seq)
    if first > last or (stream is not None and not index.has_stream(stream)):
        return np.zeros(0, np.int64)
    low, high = index.slot_range(first, last)
    erased = np.flatnonzero(index.slots[low:high, 0] == 0) + low
    events = index.events
    numbers = np.unique(np.searchsorted(events[:, _SLOT], erased, "right") - 1)
    if stream is not None:
        numbers = numbers[events[numbers, _STREAM] == index.streams.index(stream)]
    return numbers + index.base_seq
