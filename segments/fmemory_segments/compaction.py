"""What a compaction is told to take out of a log, and what it says it did: shared by all journals.

A log knows no domain: which rows and events are dead is for its caller to say. What is dead as of
some seq stays dead, because a row's place is never used again, so the choice needs no lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from fmemory_segments.event import BoolArray, UInt64Array


@dataclass(frozen=True, slots=True, eq=False)
class Erasure:
    """Data to take out. What was taken out before may be named again and is not counted.

    Attributes:
        upto: Newest seq that the choice rests on; later events are left alone.
        locs: uint64, ascending: rows whose note, vector and embedding id go.
        seqs: uint64, ascending: events without rows whose payload goes.
    """

    upto: int
    locs: UInt64Array
    seqs: UInt64Array


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did.

    Attributes:
        upto: As the erasure said.
        erased_rows: Rows whose data this call took out.
        erased_events: Payloads of events without rows that it took out.
        bytes_before: What the log occupied; None where that cannot be told.
        bytes_after: What it occupies now.
        pending: What is still to do before no byte of the erased data is left, and why; empty =
            nothing.
        notices: What else a person should know: files that were removed.
    """

    upto: int
    erased_rows: int
    erased_events: int
    bytes_before: int | None = None
    bytes_after: int | None = None
    pending: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ErasedEvent:
    """An event of which data were taken out.

    Attributes:
        seq: Its seq.
        rows: Which of its rows were, shape (n,); None = the payload of an event without rows.
    """

    seq: int
    rows: BoolArray | None
