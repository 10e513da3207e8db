"""What a compaction is told to take out of a log, and what it says it did: shared by all journals.

A log knows no domain: which rows and events are dead is for its caller to say. What is dead as of
some seq stays dead, because a row's place is never used again, so the choice needs no lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fmemory_segments.digest import event_digest, payload_digest
from fmemory_segments.event import (
    FORGOTTEN,
    BoolArray,
    Envelope,
    Erased,
    StoredEvent,
    UInt64Array,
)


def _none() -> UInt64Array:
    return np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class Erasure:
    """Data to take out. What was taken out before may be named again and is not counted.

    Attributes:
        upto: Newest seq that the choice rests on; later events are left alone.
        locs: uint64, ascending: rows whose note, vector and embedding id go.
        seqs: uint64, ascending: events without rows whose payload goes.
        forget: uint64, ascending: events of which all data go, and of their envelope all but
            stream, revision and time; see `forgotten`.
        ends: uint64, one for each of `forget`: the event that deleted it.
    """

    upto: int
    locs: UInt64Array
    seqs: UInt64Array
    forget: UInt64Array = field(default_factory=_none)
    ends: UInt64Array = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did.

    Attributes:
        upto: As the erasure said.
        erased_rows: Rows whose data this call took out.
        erased_events: Payloads of events without rows that it took out.
        forgotten_events: Events that it made into stubs.
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
    forgotten_events: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ErasedEvent:
    """An event of which data were taken out.

    Attributes:
        seq: Its seq.
        rows: Which of its rows were, shape (n,); None = the payload of an event without rows.
    """

    seq: int
    rows: BoolArray | None


def forgotten(event: StoredEvent, end: int) -> StoredEvent:
    """What is left of an event that is forgotten: a stub that keeps the log and the chain whole.

    Seq, stream, revision and time stay; type, keys, who and why go with the payload. Its `count` is
    the event that deleted it, and its payload the digest of the whole event, so that the chain goes
    on as before.

    Args:
        event: With or without its data; one that is forgotten already stays as it is.
        end: The event that deleted it.

    >>> from fmemory_segments.event import Blob
    >>> said = Envelope(7, ("own",), 1, "word.said", 5, actor="ada")
    >>> stub = forgotten(StoredEvent(said, Blob(b"x", bytes(16))), 9).envelope
    >>> stub.type, stub.seq, stub.stream, stub.actor, stub.count
    ('event_forgotten', 7, ('own',), None, 9)
    """
    envelope = event.envelope
    if envelope.type == FORGOTTEN:
        return event
    stub = Envelope(
        envelope.seq,
        envelope.stream,
        envelope.revision,
        FORGOTTEN,
        envelope.recorded_at_ns,
        count=end,
    )
    return StoredEvent(stub, Erased(event_digest(envelope, payload_digest(event.payload))))
