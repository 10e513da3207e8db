"""Whether the columns of a SEAL fit together: every number points at something that is there.

Their CRC was right before, so what contradicts itself was written so. docs/format.md section 5.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fmemory_segments._columns import SHAPE_BLOB, SHAPE_ERASED, Int64Array
from fmemory_segments._compacted_index import NO_FRAME
from fmemory_segments._frame import ALIGNMENT, FrameDamage
from fmemory_segments.event import FRAME_BYTES_MAX, LOC_ROW_BITS, Stream, UInt32Array

_FRAME, _STREAM, _SLOT, _MATRIX, _SHAPE = range(5)
_START, _LENGTH, _CRC, _EMBEDDING, _SLOT_FRAME, _VECTOR = range(6)


class SealCounts(Protocol):
    """What the meta of a SEAL says about its columns."""

    @property
    def row_count(self) -> int: ...
    @property
    def put_count(self) -> int: ...
    @property
    def streams(self) -> tuple[Stream, ...]: ...
    @property
    def embedding_ids(self) -> tuple[str | None, ...]: ...


def check_columns(
    content: SealCounts,
    events: UInt32Array,
    frames: UInt32Array,
    slots: UInt32Array,
    streams: Int64Array,
) -> None:
    """Check what SEALs of every layout have in common.

    Raises:
        FrameDamage: The columns contradict each other.
    """
    expect(_ascends(frames, strictly=True), "frame offsets")
    expect(len(set(content.streams)) == len(streams), "streams")
    expect(int(streams[:, 2].sum()) == len(events), "event counts of streams")
    if not len(events):
        expect(not content.row_count and not content.put_count and not len(slots), "counts")
        return
    expect(_ascends(events[:, _FRAME]), "frames of events")
    expect(int(events[-1, _FRAME]) < len(frames), "frames of events")
    expect(int(events[:, _STREAM].max()) < len(content.streams), "streams of events")
    expect(int(events[0, _SLOT]) == 0, "slots of events")
    expect(_ascends(events[:, _SLOT], strictly=True), "slots of events")
    expect(int(events[-1, _SLOT]) < len(slots), "slots of events")
    kinds = events[:, _SHAPE] & 3
    has_rows = (kinds + 1 & 2).astype(np.bool_)
    counts = np.diff(events[:, _SLOT].astype(np.int64), append=len(slots))
    expect(int(has_rows.sum()) == content.put_count, "number of record events")
    expect(int(counts[has_rows].sum()) == content.row_count, "number of rows")
    expect(bool((counts[~has_rows] == 1).all()), "slots of events without rows")
    expect(int(counts.max()) <= 1 << LOC_ROW_BITS, "rows of an event")
    expect(int(slots[:, _EMBEDDING].max()) < max(1, len(content.embedding_ids)), "embedding ids")


def check_batches(content: SealCounts) -> None:
    """Check what only holds where every row lies in the frame of its event.

    Raises:
        FrameDamage: The columns contradict each other.
    """
    expect(bool(content.embedding_ids) or not content.put_count, "embedding ids")


def check_placed(
    content: SealCounts, events: UInt32Array, frames: UInt32Array, slots: UInt32Array
) -> None:
    """Check the columns of a compacted segment: LEDGER frames, BLOCK frames, places in them.

    Raises:
        FrameDamage: The columns contradict each other.
    """
    expect(len(events) > 0, "events of a compacted segment")
    steps = np.diff(events[:, _FRAME].astype(np.int64), prepend=-1)
    expect(int(steps[0]) == 1 and int(steps.max()) <= 1, "frames of events")
    expect(not events[:, _MATRIX].any(), "matrices of events")
    ledgers = int(events[-1, _FRAME]) + 1
    counts = np.append(events[1:, _SLOT], np.uint32(len(slots))) - events[:, _SLOT]
    shapes = np.repeat(events[:, _SHAPE], counts)
    kinds = shapes & 3
    holders = slots[:, _SLOT_FRAME].astype(np.int64)
    is_row, is_blob = (kinds + 1 & 2).astype(np.bool_), kinds == SHAPE_BLOB
    is_gone = holders == NO_FRAME
    of_event = np.repeat(events[:, _FRAME], counts)
    expect(bool((holders[is_blob] == of_event[is_blob]).all()), "frames of payloads")
    expect(bool(is_gone[kinds == SHAPE_ERASED].all()), "frames of erased payloads")
    others = [_START, _LENGTH, _CRC, _EMBEDDING, _VECTOR]
    expect(not slots[is_gone][:, others].any(), "slots of what was erased")
    expect(not slots[is_blob][:, [_EMBEDDING, _VECTOR]].any(), "slots of payloads")
    expect(bool(slots[~is_gone, _START].all()), "places of notes and payloads")
    living = is_row & ~is_gone
    expect(bool(content.embedding_ids) or not living.any(), "embedding ids")
    # Counting makes an array as long as the largest number says, so that is looked at first.
    expect(bool((holders[living] < len(frames)).all()), "frames of rows")
    in_blocks = np.bincount(holders[living], minlength=len(frames))
    expect(not in_blocks[:ledgers].any() and bool(in_blocks[ledgers:].all()), "frames of rows")
    _check_extents(frames, slots[~is_gone], np.where(is_blob, 0, shapes)[~is_gone])


def _check_extents(frames: UInt32Array, slots: UInt32Array, shapes: UInt32Array) -> None:
    """Notes, payloads and vectors lie inside the frame that holds them."""
    sizes = np.diff(frames.astype(np.int64) * ALIGNMENT, append=0)
    sizes[-1] = FRAME_BYTES_MAX  # Where the last one ends is not among the columns.
    room = sizes[slots[:, _SLOT_FRAME]]
    ends = slots[:, _START].astype(np.int64) + slots[:, _LENGTH]
    expect(bool((ends <= room).all()), "places of notes and payloads")
    widths = (shapes >> 2).astype(np.int64) << (shapes & 3) + 1
    expect(bool((slots[:, _VECTOR] + widths <= room).all()), "places of vectors")
    items = np.where(shapes & 3 == 1, 4, 8)
    expect(not (slots[:, _VECTOR] % items).any(), "places of vectors")


def expect(claim: bool, name: str) -> None:
    """Raise FrameDamage, naming the columns, unless the claim is true."""
    if not claim:
        raise FrameDamage("content", f"seal, {name}: the columns contradict each other")


def _ascends(column: npt.NDArray[Any], *, strictly: bool = False) -> bool:
    later, earlier = column[1:], column[:-1]
    return bool((later > earlier).all() if strictly else (later >= earlier).all())
