"""What deletions killed, and by which event: what a compaction may take out, and what it took.

A row dies by a delete that names its id or by a clear; what is in a session, in a caller's stream
or in the metadata of a namespace dies when that is deleted or cleared. All of it is told from the
log alone, so `compact`, `verify` and the floors of the past cannot disagree.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np

from fmemory._engine.record_index import RecordIndex
from fmemory._engine.types import RECORDS, SESSION, EventType
from fmemory.errors import LogCorrupt
from fmemory.journal import Envelope, Erased, Erasure, Finding, Reader, RowRun, Rows, Stream
from fmemory_segments import FORGOTTEN, LOC_ROW_BITS, LogReason
from fmemory_segments.event import UInt64Array

_ENDS: Final = frozenset(
    {EventType.SESSION_DELETED, EventType.STREAM_DELETED, EventType.META_CLEARED}
)
_TOMBSTONES: Final = frozenset({EventType.RECORDS_DELETED, EventType.RECORDS_CLEARED})
_DELETIONS: Final = _ENDS | _TOMBSTONES
_NOTHING: UInt64Array = np.zeros(0, np.uint64)
_FINDINGS_MAX: Final = 100


class Deaths(NamedTuple):
    """What is dead, each with the event that deleted it; all uint64.

    Attributes:
        locs: Rows, ascending.
        loc_ends: The event that deleted each.
        seqs: Events without rows, ascending.
        seq_ends: The event that deleted each.
        living: How many rows and events without rows are not dead.
    """

    locs: UInt64Array
    loc_ends: UInt64Array
    seqs: UInt64Array
    seq_ends: UInt64Array
    living: int


def deaths_at(reader: Reader, upto: int, stream: Stream | None = None) -> Deaths:
    """What is dead as of a seq, in one stream or in all. What is dead stays so.

    Cost: O(events and rows) of the index, no payload; a dict of the ids of each namespace that
    deletes.
    """
    known: dict[Stream, _RecordsTaken | _EventsTaken] = {}
    for item in reader.fold(0, upto, stream):
        taken = known.get(item.stream)
        if taken is None:
            taken = _RecordsTaken() if item.stream[0] == RECORDS else _EventsTaken()
            known[item.stream] = taken
        taken.apply(item)
    rows = [taken for taken in known.values() if isinstance(taken, _RecordsTaken)]
    events = [taken for taken in known.values() if isinstance(taken, _EventsTaken)]
    locs, loc_ends = _sorted([one.found for one in rows])
    seqs, seq_ends = _sorted([one.found for one in events])
    living = sum(one.living for one in rows) + sum(one.living for one in events)
    return Deaths(locs, loc_ends, seqs, seq_ends, living)


def erasure_at(reader: Reader, upto: int, forget_before: int = 0) -> Erasure:
    """Everything that a compaction may take out as of a seq.

    Args:
        forget_before: Events of a smaller seq of which all is dead are forgotten.
    """
    deaths = deaths_at(reader, upto)
    if not forget_before:
        return Erasure(upto, deaths.locs, deaths.seqs)
    forget, ends = forgettable(reader, min(forget_before, upto + 1), deaths)
    return Erasure(upto, deaths.locs, deaths.seqs, forget, ends)


def garbage_at(reader: Reader, upto: int) -> tuple[int, int]:
    """Rows and events that are dead and not erased yet, and those that live.

    Cost: as `deaths_at`.
    """
    deaths = deaths_at(reader, upto)
    locs, seqs = _erased(reader, upto, None)
    # What a repair found lost is erased and not dead.
    gone = int(np.isin(locs, deaths.locs).sum()) + int(np.isin(seqs, deaths.seqs).sum())
    return len(deaths.locs) + len(deaths.seqs) - gone, deaths.living


def floor_of(reader: Reader, stream: Stream, upto: int) -> int:
    """The smallest seq of which a stream's past can still be shown; 0 if all of it can.

    It is the newest event that deleted something of the stream that was erased since.
    """
    locs, seqs = _erased(reader, upto, stream)
    if not len(locs) and not len(seqs):
        return 0
    deaths = deaths_at(reader, upto, stream)
    # What was lost before a repair was not deleted: no later moment shows it either.
    lost_locs, lost_seqs = _lost(
        reader, locs[~np.isin(locs, deaths.locs)], seqs[~np.isin(seqs, deaths.seqs)]
    )
    locs, seqs = locs[~np.isin(locs, lost_locs)], seqs[~np.isin(seqs, lost_seqs)]
    if not len(locs) and not len(seqs):
        return 0
    ends = _ends(seqs, deaths.seqs, deaths.seq_ends, upto + 1)
    if (ends > upto).any():
        stubs, stub_ends = _stubs(reader, upto, stream)
        ends = np.minimum(ends, _ends(seqs, stubs, stub_ends, upto))
    row_ends = _ends(locs, deaths.locs, deaths.loc_ends, upto)
    return int(np.concatenate((row_ends, ends)).max())


def gone(reader: Reader, seq: int) -> LogCorrupt:
    """The error of an event without data that no deletion took."""
    if _is_lost(reader, seq):
        (event,) = reader.envelopes(seq - 1, seq)
        got = f"none: they were damaged before a repair; {_rest_of(event.stream, seq)}"
    else:
        got = (
            "data that were erased although nothing deletes them; run `fmemory verify`, restore a"
            " backup"
        )
    return LogCorrupt(f"event {seq}: expected its data, got {got}", seq=seq, last_seq=seq)


def undeleted(reader: Reader, upto: int) -> list[Finding]:
    """A finding for each event of which data are erased that nothing in the log deletes.

    What was forgotten is told as such, and is no damage, unless the event that is said to have
    deleted it is there and did not.
    """
    locs, seqs = _erased(reader, upto, None)
    if not len(locs) and not len(seqs):
        return []
    stubs, _ = _stubs(reader, upto, None)
    wrong = _not_deleted(reader, upto)
    if wrong:  # Others may have erased or forgotten between two reads: only what stays so counts.
        again = _not_deleted(reader, upto)
        wrong = {seq: count for seq, count in wrong.items() if seq in again}
    findings: list[Finding] = []
    if len(stubs):
        findings.append(
            Finding(
                LogReason.FORGOTTEN,
                f"{len(stubs)} events up to event {stubs[-1]} were forgotten by a compaction:"
                " their places in the log and its chain are proven, who and what they were"
                " about is not kept",
                damage=False,
                first_seq=int(stubs[0]),
                last_seq=int(stubs[-1]),
            )
        )
    return findings + [
        Finding(LogReason.NOT_DELETED, _undeleted(reader, seq, count), first_seq=seq, last_seq=seq)
        for seq, count in sorted(wrong.items())[:_FINDINGS_MAX]
    ]


def _not_deleted(reader: Reader, upto: int) -> dict[int, int]:
    """Events of which data are erased that nothing deletes, with how much of each."""
    locs, seqs = _erased(reader, upto, None)
    deaths = deaths_at(reader, upto)
    rows = locs[~np.isin(locs, deaths.locs)] >> np.uint64(LOC_ROW_BITS)
    events = seqs[~np.isin(seqs, deaths.seqs)]
    events = events[~np.isin(events, _believable(reader, upto))]
    wrong, counts = np.unique(np.concatenate((rows, events)), return_counts=True)
    return dict(zip(wrong.tolist(), counts.tolist(), strict=True))


def _believable(reader: Reader, upto: int) -> UInt64Array:
    """Stubs that a deletion of their stream may have left, or one that is not in this log."""
    stubs: list[tuple[int, int, Stream]] = []
    deletions: dict[int, Stream] = {}
    for event in reader.envelopes(0, upto):
        if event.type == FORGOTTEN:
            stubs.append((event.seq, event.count, event.stream))
        if event.type in _DELETIONS or (event.type == FORGOTTEN and event.count == event.seq):
            deletions[event.seq] = event.stream
    return np.array(
        [
            seq
            for seq, end, stream in stubs
            if end > upto or (end >= seq and deletions.get(end) == stream)
        ],
        np.uint64,
    )


def forgettable(reader: Reader, before: int, deaths: Deaths) -> tuple[UInt64Array, UInt64Array]:
    """Events `seq < before` of which nothing is needed any more, and which event deleted each.

    Puts whose rows are all dead, other events that are dead, and deletions of which everything that
    they deleted is forgotten. The newest event of a session or a caller's stream stays, so that it
    is known to have ended.

    Cost: as `deaths_at`.
    """
    bits = np.uint64(LOC_ROW_BITS)
    rows_of: list[UInt64Array] = [_NOTHING]
    deletions: list[int] = []
    for item in reader.fold(0, before - 1):
        if isinstance(item, RowRun):
            rows_of.append(item.locs >> bits)
        elif item.type in _TOMBSTONES or (item.type in _ENDS and not _is_newest(reader, item)):
            deletions.append(item.seq)
    puts, row_counts = np.unique(np.concatenate(rows_of), return_counts=True)
    dead_puts, first, dead_counts = np.unique(
        deaths.locs >> bits, return_index=True, return_counts=True
    )
    last_ends = np.maximum.reduceat(deaths.loc_ends, first) if len(first) else _NOTHING
    at = np.searchsorted(dead_puts, puts)
    inside = np.flatnonzero(at < len(dead_puts))
    inside = inside[
        (dead_puts[at[inside]] == puts[inside]) & (dead_counts[at[inside]] == row_counts[inside])
    ]
    early = deaths.seqs < before
    forget = np.concatenate((puts[inside], deaths.seqs[early]))
    # A deletion is needed as long as anything that it deleted is not forgotten.
    needed = np.concatenate(
        (
            deaths.loc_ends[~np.isin(deaths.locs >> bits, forget)],
            deaths.seq_ends[~np.isin(deaths.seqs, forget)],
        )
    )
    ended = np.array(deletions, np.uint64)
    ended = ended[~np.isin(ended, needed)]
    seqs = np.concatenate((forget, ended))
    ends = np.concatenate((last_ends[at[inside]], deaths.seq_ends[early], ended))
    order = np.argsort(seqs, kind="stable")
    return seqs[order], ends[order]


def _is_newest(reader: Reader, event: Envelope) -> bool:
    """Whether no event of its stream follows."""
    upto = reader.refresh()
    newest = reader.envelopes(event.seq, upto, stream=event.stream, backwards=True, limit=1)
    return next(iter(newest), None) is None


def _undeleted(reader: Reader, seq: int, count: int) -> str:
    """What is said of an event of which data are erased that nothing deletes."""
    if _is_placeholder(reader, seq):
        return (
            f"event {seq}: expected an event, got the placeholder of one that was lost before a"
            " repair; restore a backup, if one has it"
        )
    if _is_lost(reader, seq):
        return (
            f"event {seq}: expected its data, got none: they were damaged before a repair; restore"
            " a backup, if one has them"
        )
    return (
        f"event {seq}: expected its data, or a later event that deletes them, got {count} erased"
        " and nothing that deletes them; restore a backup"
    )


def _is_placeholder(reader: Reader, seq: int) -> bool:
    """Whether an event has the number of one that a repair found lost."""
    (envelope,) = reader.envelopes(seq - 1, seq)
    return envelope.type == EventType.EVENT_LOST


class _Found:
    """Places, and the event that ended each."""

    __slots__ = ("ends", "places")

    def __init__(self) -> None:
        self.places: list[UInt64Array] = []
        self.ends: list[UInt64Array] = []

    def add(self, places: UInt64Array, end: int) -> None:
        if len(places):
            self.places.append(places)
            self.ends.append(np.full(len(places), end, np.uint64))


class _RecordsTaken:
    """The rows of one namespace that deletes and clears took."""

    __slots__ = ("_index", "found")

    def __init__(self) -> None:
        self._index = RecordIndex()
        self.found = _Found()

    def apply(self, item: Envelope | RowRun) -> None:
        if isinstance(item, RowRun):
            self._index.put(item.ids, item.timestamps, item.locs)
        elif item.type == EventType.RECORDS_DELETED:
            row_of = self._index.row_of
            rows = [row_of[key] for key in item.keys if key in row_of]
            self.found.add(self._index.locs_of(rows), item.seq)
            self._index.delete(item.keys)
        elif item.type == EventType.RECORDS_CLEARED:
            self.found.add(self._index.live_locs(), item.seq)
            self._index = RecordIndex()

    @property
    def living(self) -> int:
        return len(self._index)


class _EventsTaken:
    """The events of a stream without rows that its ends took."""

    __slots__ = ("_living", "found")

    def __init__(self) -> None:
        self._living = array("Q")
        self.found = _Found()

    def apply(self, item: Envelope | RowRun) -> None:
        if isinstance(item, RowRun) or item.type == FORGOTTEN:
            return
        if item.type in _ENDS:
            self.found.add(np.array(self._living, np.uint64), item.seq)
            self._living = array("Q")
        else:
            self._living.append(item.seq)

    @property
    def living(self) -> int:
        return len(self._living)


def _sorted(all_found: list[_Found]) -> tuple[UInt64Array, UInt64Array]:
    places = np.concatenate([_NOTHING, *[part for one in all_found for part in one.places]])
    ends = np.concatenate([_NOTHING, *[part for one in all_found for part in one.ends]])
    order = np.argsort(places, kind="stable")
    return places[order], ends[order]


def _erased(reader: Reader, upto: int, stream: Stream | None) -> tuple[UInt64Array, UInt64Array]:
    """Locs of erased rows and seqs of other erased events, ascending."""
    locs: list[UInt64Array] = [_NOTHING]
    seqs = array("Q")
    for event in reader.erased(0, upto, stream):
        if event.rows is None:
            seqs.append(event.seq)
        else:
            rows = np.flatnonzero(event.rows).astype(np.uint64)
            locs.append(rows + np.uint64(event.seq << LOC_ROW_BITS))
    return np.concatenate(locs), np.array(seqs, np.uint64)


def _rest_of(stream: Stream, seq: int) -> str:
    """What can be read beside data of an event that were lost, and what to do about them."""
    if stream[0] != SESSION:
        return "all else can be read; delete or write anew what lost them, or restore a backup"
    return (
        f"`fmemory log`, `fmemory history` and `fmemory transcript` show what is left of session"
        f" {stream[1]!r}, `at({seq - 1})` its state before; restore a backup, or delete the session"
        " with a reason"
    )


def _is_lost(reader: Reader, seq: int) -> bool:
    """Whether an event has data that were damaged before a repair, rather than erased."""
    (payload,) = reader.payloads([seq])
    if isinstance(payload, Erased):
        return payload.is_lost
    return isinstance(payload, Rows) and len(payload.lost) > 0


def _lost(reader: Reader, locs: UInt64Array, seqs: UInt64Array) -> tuple[UInt64Array, UInt64Array]:
    """Those of these places of erased data that a repair found lost. Cost: reads their events."""
    lost = [_NOTHING]
    for seq in np.unique(locs >> np.uint64(LOC_ROW_BITS)).tolist():
        (payload,) = reader.payloads([seq])
        if isinstance(payload, Rows):
            lost.append(payload.lost.astype(np.uint64) + np.uint64(seq << LOC_ROW_BITS))
    lost_seqs = [seq for seq in seqs.tolist() if _is_lost(reader, seq)]
    return np.concatenate(lost), np.array(lost_seqs, np.uint64)


def _stubs(reader: Reader, upto: int, stream: Stream | None) -> tuple[UInt64Array, UInt64Array]:
    """Seqs of events that were forgotten, and which event deleted each. Cost: O(events)."""
    seqs, ends = array("Q"), array("Q")
    for event in reader.envelopes(0, upto, stream=stream):
        if event.type == FORGOTTEN:
            seqs.append(event.seq)
            ends.append(event.count)
    return np.array(seqs, np.uint64), np.array(ends, np.uint64)


def _ends(places: UInt64Array, dead: UInt64Array, ends: UInt64Array, unknown: int) -> UInt64Array:
    """Which event ended each of these places; `unknown` for those that none did."""
    at = np.searchsorted(dead, places)
    found = np.full(len(places), unknown, np.uint64)
    inside = np.flatnonzero(at < len(dead))
    inside = inside[dead[at[inside]] == places[inside]]
    found[inside] = ends[at[inside]]
    return found
