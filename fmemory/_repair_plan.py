"""Where lost events belong: which stream and revision takes each seq that is missing.

A stream whose revision jumps tells how many of its events were lost, and that they lay between its
two events around the jump. So lost seqs are given to the streams that miss some, the one whose next
event comes first before the others; that order serves all of them where anything does. What no
stream asks for goes to a stream of its own. This module reads envelopes and writes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from fmemory.journal import Envelope, Stream
from fmemory_segments.salvage import Found, Salvaged, Trouble, Witness

LOST: Final = "lost"


class _Missing(NamedTuple):
    """Revisions of a stream that were lost between two of its events.

    Attributes:
        next_seq: Of the event behind them.
        number: Of their jump; tells equal ones apart.
        after_seq: Of the event before them.
        first: First revision.
        last: Last revision.
    """

    next_seq: int
    number: int
    after_seq: int
    stream: Stream
    first: int
    last: int


@dataclass(slots=True)
class Survey:
    """What the envelopes of a salvage say, all of them.

    Attributes:
        missing: Jumps of revisions, in the order of the events before them.
        lost_stream: Takes what belongs to no stream; no event of the source is in it.
        last_seq: Newest event that is known to have been there.
    """

    missing: list[_Missing]
    lost_stream: Stream
    last_seq: int


def survey(found: Iterable[Found]) -> Survey:
    """Look at all envelopes of a salvage.

    Cost: O(events); memory of one entry a stream and a jump.
    """
    places: dict[Stream, tuple[int, int]] = {}
    missing: list[_Missing] = []
    seq, time_ns, last_seq = 0, 0, 0
    for one in found:
        if not isinstance(one, Salvaged):
            last_seq = max(last_seq, known_seq(one))
            continue
        envelope = one.event.envelope
        last_seq = max(last_seq, envelope.seq)
        revision, before = places.get(envelope.stream, (0, 0))
        if refusal_of(envelope, seq, time_ns, revision):
            continue
        if envelope.revision > revision + 1:
            missing.append(
                _Missing(
                    envelope.seq,
                    len(missing),
                    before,
                    envelope.stream,
                    revision + 1,
                    envelope.revision - 1,
                )
            )
        places[envelope.stream] = envelope.revision, envelope.seq
        seq, time_ns = envelope.seq, envelope.recorded_at_ns
    missing.sort(key=lambda one: one.after_seq)
    return Survey(missing, _unused(places), last_seq)


def known_seq(one: Trouble | Witness) -> int:
    """The newest event that was there once, as far as this tells."""
    if isinstance(one, Witness):
        return one.seq
    return (one.last_seq or one.first_seq or 0) if one.lost else 0


def refusal_of(envelope: Envelope, seq: int, time_ns: int, revision: int) -> str:
    """Why an event cannot follow others; empty if it can, also if some between are missing.

    Args:
        seq: Of the newest event before it.
        time_ns: When that was recorded.
        revision: The newest of its stream.
    """
    if envelope.seq <= seq:
        return f"it stands behind event {seq}"
    if envelope.recorded_at_ns < time_ns:
        return "it was recorded before the event that stands before it"
    if envelope.revision <= revision:
        return f"it has revision {envelope.revision} of its stream, which has {revision} already"
    if not envelope.stream or not envelope.stream[0]:
        return "it belongs to no stream"
    return ""


class Slots:
    """Gives lost seqs, ascending, to the streams that miss events."""

    def __init__(self, survey: Survey) -> None:
        self._waiting = survey.missing
        self._at = 0
        self._open: list[tuple[int, int, int, _Missing]] = []
        self._order = count()
        self.broken: set[Stream] = set()

    def take(self, seq: int) -> tuple[Stream, int] | None:
        """The stream and revision of a lost event; None if no stream asks for one."""
        while self._at < len(self._waiting) and self._waiting[self._at].after_seq < seq:
            missing = self._waiting[self._at]
            self._push(missing.first, missing)
            self._at += 1
        while self._open:
            next_seq, _, revision, missing = heapq.heappop(self._open)
            if next_seq <= seq or missing.stream in self.broken:
                continue
            if revision < missing.last:
                self._push(revision + 1, missing)
            return missing.stream, revision
        return None

    def _push(self, revision: int, missing: _Missing) -> None:
        heapq.heappush(self._open, (missing.next_seq, next(self._order), revision, missing))


def _unused(streams: Iterable[Stream]) -> Stream:
    """A stream that none of these is."""
    taken = set(streams)
    if (LOST,) not in taken:
        return (LOST,)
    return next((LOST, str(n)) for n in count(2) if (LOST, str(n)) not in taken)
