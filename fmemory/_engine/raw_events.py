"""Events as they are stored, in order: the one door through which `fmemory.replay` reads a log.

A replay folds every event of a store to a few small facts. It needs envelopes and the bytes of
payloads, and no model of either, so this gives both as they lie there, some hundred at a time.
What is damaged is told in its place; everything else of the log is still read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from fmemory._damage import problem_of
from fmemory._engine.pace import Pace
from fmemory._engine.reads import JournalReads
from fmemory._engine.work import payload_bytes
from fmemory.errors import LogCorrupt
from fmemory.journal import Blob, Envelope, Erased, Payload, Reader
from fmemory_segments import Stream

__all__ = [
    "UNKNOWN",
    "Page",
    "RawEvent",
    "raw_event",
    "raw_events",
    "raw_pages",
    "raw_payloads",
]

UNKNOWN: Final = ""
"""Type, and only label of the stream, of an event whose envelope cannot be read."""

_EVENTS_PER_READ = 256


class RawEvent(msgspec.Struct, frozen=True, gc=False):
    """An envelope and what is stored beside it.

    Attributes:
        data: The payload's bytes; None where it holds records, was not asked for, or is gone.
        size: Bytes of the payload; 0 where it was not asked for.
        is_erased: The payload was taken out.
        is_lost: It was damaged, and a repair found that; nobody took it out.
        problem: What is wrong with the event, where it cannot be read.
    """

    envelope: Envelope
    data: bytes | None = None
    size: int = 0
    is_erased: bool = False
    is_lost: bool = False
    problem: str | None = None


Page: TypeAlias = tuple[list[Envelope], Mapping[int, Payload | str]]
"""Events by seq, and the payloads of those that were wanted; what is wrong, in place of a payload
that cannot be read."""


def raw_events(
    memory: JournalReads,
    *,
    stream: Stream | None = None,
    upto: int | None = None,
    types: frozenset[str] | None = None,
    wanted: Callable[[Envelope], bool],
) -> Iterator[RawEvent]:
    """Every event up to now, or up to the moment of a view, by seq.

    Args:
        memory: A backend or a view of the engine.
        stream: Only this one.
        upto: None behind this one; None = all there are.
        types: Only of these types, and what cannot be told; None = all.
        wanted: Whether an event's payload is to be read.

    Raises:
        StorageError: The store failed. What is damaged is told in `problem`.

    Cost: about 5 µs an event and the bytes of what is wanted; holds the envelopes of a segment and
        about 8 MB of payloads.
    """
    pages = raw_pages(memory, stream=stream, upto=upto, types=types, wanted=wanted)
    return _apart(pages)


def raw_pages(
    memory: JournalReads,
    *,
    stream: Stream | None = None,
    upto: int | None = None,
    types: frozenset[str] | None = None,
    wanted: Callable[[Envelope], bool],
) -> Iterator[Page]:
    """What `raw_events` gives, some hundred at a time, as their payloads are read."""
    problems: dict[int, str] = {}
    found = _envelopes(memory, stream, upto, problems)
    if types is not None:
        named = types | {UNKNOWN}
        found = ([one for one in some if one.type in named] for some in found)
    return _pages(memory, found, wanted, problems)


def raw_payloads(
    memory: JournalReads, events: Iterable[Envelope], wanted: Callable[[Envelope], bool]
) -> Iterator[RawEvent]:
    """These events, with the payloads of those that are wanted."""
    return _apart(_pages(memory, _some(events), wanted, {}))


def raw_event(event: Envelope, payload: Payload | str | None) -> RawEvent:
    """An event of a page, and what the page has of its payload."""
    if type(payload) is Blob:
        return RawEvent(event, payload.data, len(payload.data))
    if payload is None:
        return RawEvent(event)
    if isinstance(payload, str):
        return RawEvent(event, problem=payload)
    if isinstance(payload, Erased):
        return RawEvent(event, is_erased=True, is_lost=payload.is_lost)
    return RawEvent(event, None, payload_bytes(payload))


def _apart(pages: Iterable[Page]) -> Iterator[RawEvent]:
    for events, payloads in pages:
        for event in events:
            yield raw_event(event, payloads.get(event.seq))


def _envelopes(
    memory: JournalReads, stream: Stream | None, upto: int | None, problems: dict[int, str]
) -> Iterator[list[Envelope]]:
    """Envelopes by seq, some together; of those that cannot be read a stand-in, and in `problems`
    why.
    """
    state = memory._state
    reader, after, newest = state.reader, 0, state.upto()
    upto = newest if upto is None else min(upto, newest)
    time_ns = 0
    # Reading ahead meets damage early: the events before it are still to come. The nearest is last.
    ahead: list[tuple[range, str]] = []
    while after < upto:
        if ahead and ahead[-1][0].start <= after + 1:
            damaged, problem = ahead.pop()
            for start in range(after + 1, damaged.stop, _EVENTS_PER_READ):
                seqs = range(start, min(damaged.stop, start + _EVENTS_PER_READ))
                problems.update(dict.fromkeys(seqs, problem))
                yield [Envelope(seq, (UNKNOWN,), 0, UNKNOWN, time_ns) for seq in seqs]
            after = max(after, damaged.stop - 1)
            continue
        last = ahead[-1][0].start - 1 if ahead else upto
        envelopes = reader.envelopes(after, last, stream=stream)
        while after < last:
            found: list[Envelope] = []
            try:
                found.extend(islice(envelopes, _EVENTS_PER_READ))
            except LogCorrupt as error:
                after = found[-1].seq if found else after
                ahead.append((_damaged_seqs(error, after, last), problem_of(error)))
                last = after  # What was read before the damage is given, then the way goes on.
            else:
                after = found[-1].seq if len(found) == _EVENTS_PER_READ else last
            if found:
                time_ns = found[-1].recorded_at_ns
                yield found


def _pages(
    memory: JournalReads,
    events: Iterable[list[Envelope]],
    wanted: Callable[[Envelope], bool],
    problems: Mapping[int, str],
) -> Iterator[Page]:
    reader = memory._state.reader
    pace = Pace(_EVENTS_PER_READ)
    for some in events:
        start = 0
        while start < len(some):
            page = some[start : start + pace.count]
            start += len(page)
            asked = [one.seq for one in filter(wanted, page)]
            if problems:
                asked = [seq for seq in asked if seq not in problems]
            payloads = _payloads(reader, asked)
            pace.took(len(page), _bytes_of(payloads.values()))
            if problems:
                told = [one.seq for one in page if one.seq in problems]
                payloads.update((seq, problems[seq]) for seq in told)
            yield page, payloads
        del some  # before the next are read


def _bytes_of(payloads: Collection[Payload | str]) -> int:
    sizes = [len(one.data) for one in payloads if type(one) is Blob]
    if len(sizes) < len(payloads):
        sizes += [payload_bytes(one) for one in payloads if not isinstance(one, Blob | str)]
    return sum(sizes)


def _some(events: Iterable[Envelope]) -> Iterator[list[Envelope]]:
    waiting = iter(events)
    while page := list(islice(waiting, _EVENTS_PER_READ)):
        yield page


def _damaged_seqs(error: LogCorrupt, after: int, upto: int) -> range:
    """The events behind `after` that an error is about.

    Raises:
        LogCorrupt: It is about something else.
    """
    if error.seq is None:
        raise error
    first, last = max(error.seq, after + 1), min(upto, max(error.seq, error.last_seq or 0))
    if first > last:
        raise error
    return range(first, last + 1)


def _payloads(reader: Reader, seqs: Sequence[int]) -> dict[int, Payload | str]:
    """The payloads by seq; in place of one that is damaged, what is wrong with it."""
    if not seqs:
        return {}
    try:
        return dict(zip(seqs, reader.payloads(seqs), strict=True))
    except LogCorrupt:
        found: dict[int, Payload | str] = {}
        for seq in seqs:
            try:
                (found[seq],) = reader.payloads([seq])
            except LogCorrupt as error:
                found[seq] = problem_of(error)
        return found
