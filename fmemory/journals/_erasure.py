"""Taking the data of rows and of whole payloads out of events, as every journal keeps them.

A digest stays where data were, so the digest of the event and the chain stay what they are. The
nonce goes with the data: a digest that is left cannot confirm a guess. No I/O happens here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmemory.journal import Blob, Erased, ErasedEvent, Erasure, Payload, Rows
from fmemory_segments import payload_digest
from fmemory_segments._erase import without_rows
from fmemory_segments.event import (
    LOC_ROW_BITS,
    BoolArray,
    UInt64Array,
)

_ROW_MASK = np.uint64((1 << LOC_ROW_BITS) - 1)
_ROW_BITS = np.uint64(LOC_ROW_BITS)


class Left(NamedTuple):
    """What is left of a payload, and how much was taken out of it just now."""

    payload: Payload
    erased_rows: int
    erased_events: int


def named_seqs(erasure: Erasure) -> UInt64Array:
    """Seqs of the events that an erasure names, rows or all: uint64, ascending, none twice."""
    seqs = np.union1d(np.union1d(erasure.locs >> _ROW_BITS, erasure.seqs), erasure.forget)
    return seqs[seqs <= np.uint64(max(erasure.upto, 0))].astype(np.uint64, copy=False)


def named_rows(erasure: Erasure, seq: int, count: int) -> BoolArray:
    """Which of the rows of an event an erasure names: bool, shape (count,)."""
    bounds = np.array([seq << LOC_ROW_BITS, (seq << LOC_ROW_BITS) + count], np.uint64)
    first, stop = np.searchsorted(erasure.locs, bounds)
    named = np.zeros(count, np.bool_)
    named[(erasure.locs[first:stop] & _ROW_MASK).astype(np.int64)] = True
    return named


def names_event(erasure: Erasure, seq: int) -> bool:
    """Whether an erasure names the payload of an event without rows."""
    at = int(np.searchsorted(erasure.seqs, np.uint64(seq)))
    return at < len(erasure.seqs) and int(erasure.seqs[at]) == seq


def end_of(erasure: Erasure, seq: int) -> int | None:
    """The event that deleted this one, if an erasure says that it is to be forgotten."""
    at = int(np.searchsorted(erasure.forget, np.uint64(seq)))
    if at < len(erasure.forget) and int(erasure.forget[at]) == seq:
        return int(erasure.ends[at])
    return None


def living_of(payload: Payload) -> tuple[int, int]:
    """How much data a payload holds: rows, and 1 where it is one of an event without rows."""
    if isinstance(payload, Rows):
        gone = 0 if payload.erased is None else int(payload.erased.sum())
        return len(payload) - gone, 0
    return 0, int(isinstance(payload, Blob))


def erase(seq: int, payload: Payload, erasure: Erasure) -> Left | None:
    """The payload of an event without what an erasure names; None if nothing of it is to go.

    Cost: SHA-256 over the rows of the event, or over its bytes.
    """
    if isinstance(payload, Rows):
        named = named_rows(erasure, seq, len(payload))
        if payload.erased is not None:
            named &= ~payload.erased
        if not named.any():
            return None
        return Left(without_rows(payload, named), int(named.sum()), 0)
    if isinstance(payload, Blob) and names_event(erasure, seq):
        return Left(Erased(payload_digest(payload)), 0, 1)
    return None


def erased_of(seq: int, payload: Payload) -> ErasedEvent | None:
    """What was taken out of an event; None if nothing was."""
    if isinstance(payload, Erased):
        return ErasedEvent(seq, None)
    if isinstance(payload, Rows) and payload.erased is not None and payload.erased.any():
        return ErasedEvent(seq, payload.erased.copy())
    return None
