"""Events as they are stored, in order: the one door through which `fmemory.replay` reads a log.

A replay folds every event of a store to a few small facts. It needs envelopes and the bytes of
payloads, and no model of either, so this gives both as they lie there, some hundred at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fmemory._engine.reads import JournalReads
from fmemory._engine.work import payload_bytes
from fmemory.errors import LogCorrupt
from fmemory.journal import Blob, Envelope, Erased, Payload, Reader
from fmemory_segments import Stream

__all__ = ["RawEvent", "raw_events"]

_EVENTS_PER_READ = 512


class RawEvent(NamedTuple):
    """An envelope and what is stored beside it.

    Attributes:
        data: The payload's bytes; None where it holds records, was not asked for, or is gone.
        size: Bytes of the payload; 0 where it was not asked for.
        is_erased: The payload was taken out.
        problem: What is wrong with the payload, where it cannot be read.
    """

    envelope: Envelope
    data: bytes | None = None
    size: int = 0
    is_erased: bool = False
    problem: str | None = None


def raw_events(
    memory: JournalReads,
    *,
    stream: Stream | None = None,
    types: frozenset[str] | None = None,
    wanted: Callable[[Envelope], bool],
) -> Iterator[RawEvent]:
    """Every event up to now, or up to the moment of a view, by seq.

    Args:
        memory: A backend or a view of the engine.
        stream: Only this one.
        types: Only of these types; None = all.
        wanted: Whether an event's payload is to be read.

    Raises:
        LogCorrupt: Envelopes cannot be read. A payload that cannot is told in `problem`.

    Cost: about 5 µs an event and the bytes of what is wanted; holds some hundred events.
    """
    state = memory._state
    reader, upto = state.reader, state.upto()
    waiting: list[Envelope] = []
    for envelope in reader.envelopes(0, upto, stream=stream):
        if types is not None and envelope.type not in types:
            continue
        waiting.append(envelope)
        if len(waiting) == _EVENTS_PER_READ:
            yield from _with_payloads(reader, waiting, wanted)
            waiting = []
    yield from _with_payloads(reader, waiting, wanted)


def _with_payloads(
    reader: Reader, envelopes: Sequence[Envelope], wanted: Callable[[Envelope], bool]
) -> Iterator[RawEvent]:
    asked = [one.seq for one in envelopes if wanted(one)]
    payloads = _payloads(reader, asked)
    for envelope in envelopes:
        yield _raw(envelope, payloads.get(envelope.seq))


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
                found[seq] = str(error).partition(" (")[0]
        return found


def _raw(envelope: Envelope, payload: Payload | str | None) -> RawEvent:
    if payload is None:
        return RawEvent(envelope)
    if isinstance(payload, str):
        return RawEvent(envelope, problem=payload)
    if isinstance(payload, Blob):
        return RawEvent(envelope, payload.data, len(payload.data))
    return RawEvent(envelope, None, payload_bytes(payload), isinstance(payload, Erased))
