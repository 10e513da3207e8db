"""One pass over the log: of every event the few facts that runs and reports are made of.

Nothing else in this package knows how events are stored; the blocks of their messages `_blocks.py`
reads. A backend of the engine is read through `_engine/raw_events.py`, any other through its public
`events()`. Both give the same facts, but for one that is not public: which messages a fork copied.
Payloads are decoded no further than needed: a message of a megabyte costs a copy of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, takewhile
from typing import Final, TypeAlias, cast

import msgspec

from fmemory._damage import problem_of
from fmemory._engine import stored
from fmemory._engine.raw_events import (
    Page,
    RawEvent,
    raw_event,
    raw_events,
    raw_pages,
    raw_payloads,
)
from fmemory._engine.reads import JournalReads
from fmemory._engine.stored import (
    StoredCheckpoint,
    StoredFeature,
    StoredManifest,
    StoredProgress,
    StoredSession,
)
from fmemory._engine.types import RECORDS, SESSION, EventType, session_stream
from fmemory._json_values import JsonObject, JsonValue
from fmemory.backend import LogBackend
from fmemory.errors import LogCorrupt
from fmemory.journal import Envelope
from fmemory.log_models import Event
from fmemory.replay._blocks import (
    WORDS_MAX,
    Block,
    Blocks,
    Call,
    answer_of,
    answers_of,
    text_in,
    with_call,
)
from fmemory.replay._failures import STEP_TYPE, Answer, step_of
from fmemory.session_models import (
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
)
from fmemory_segments import FORGOTTEN, Blob

__all__ = [
    "STEP_TYPE",
    "WORDS_MAX",
    "Call",
    "Detail",
    "Fact",
    "Features",
    "MessageFact",
    "State",
    "StepFact",
    "Wanted",
    "always",
    "copied_seqs",
    "copied_upto",
    "events_sieved",
    "facts",
    "facts_of",
    "never",
    "time_ns",
]


class State(StrEnum):
    """What is left of an event."""

    KEPT = "kept"
    ERASED = "erased"
    FORGOTTEN = "forgotten"
    LOST = "lost"
    DAMAGED = "damaged"


class MessageFact(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What matters of a message, as far as it is decoded; whoever keeps one keeps its payload.

    Attributes:
        role: As stored.
        content: Its text, as the field has it.
        blocks: What the provider said, as far as it calls tools or answers them.
        tool_calls: Those of its tool calls that do not stand in its blocks only.
        is_error: The message as a whole is marked as an error.
        created_at_us: When it was made, Unix microseconds, where it says so.
    """

    role: str
    content: str
    blocks: Blocks
    name: object
    tool_calls: tuple[Call, ...]
    tool_call_id: str | None
    is_error: bool
    id: object
    created_at_us: int | None

    @property
    def text(self) -> str:
        """Its text; where only its blocks hold one, theirs."""
        return self.content or text_in(self.blocks)

    @property
    def words(self) -> str:
        """The first `WORDS_MAX` characters of its text."""
        return self.text[:WORDS_MAX]

    @property
    def calls(self) -> tuple[Call, ...]:
        """Tool calls it makes, each once, whether in fields or in blocks."""
        return self.told()[0]

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Tool calls it answers, each with whether it failed."""
        return self.told()[1]

    def told(self) -> tuple[tuple[Call, ...], tuple[Answer, ...]]:
        """`calls` and `answers`, for whoever wants both."""
        results: tuple[Block, ...] = ()
        calls = self.tool_calls
        for block in self.blocks:
            if type(block) is Block:
                if block.type == "tool_use":
                    calls = with_call(calls, block)
                elif block.type == "tool_result":
                    results = (*results, block)
        if self.role == "assistant":
            # Whatever it repeats of results: it calls tools, and answers no call.
            return calls, ()
        call_id = self.tool_call_id
        if results:
            return calls, answers_of(results, call_id, is_error=self.is_error)
        if call_id is not None or self.role == "tool":
            return calls, (answer_of(call_id or "", self.text, is_error=self.is_error),)
        return calls, ()


class StepFact(msgspec.Struct, frozen=True, gc=False):
    """A step of a harness that keeps actions beside its messages: what was done, what it said."""

    action: str
    answer: Answer


class Features(msgspec.Struct, frozen=True, gc=False):
    """A feature list: all of it, as an event replaced it."""

    features: tuple[StoredFeature, ...]


Detail: TypeAlias = (
    tuple[MessageFact, ...]
    | StoredCheckpoint
    | StoredProgress
    | StoredManifest
    | StoredSession
    | Features
    | StepFact
    | None
)


class Fact(msgspec.Struct, frozen=True, gc=False):
    """An event and what matters of its payload.

    Attributes:
        event: Its envelope; `event.type` tells what `detail` is.
        size: Bytes of the payload; 0 where it was not read.
        state: What is left of it.
        detail: Messages, a checkpoint, …; None where there is none of interest, or it is gone.
        problem: What is wrong with the payload, where it is damaged.
    """

    event: Envelope
    size: int = 0
    state: State = State.KEPT
    detail: Detail = None
    problem: str | None = None


Wanted: TypeAlias = Callable[[Envelope], bool]
"""Whether the payload of an event is to be read."""


def facts(
    memory: LogBackend,
    *,
    session_id: str | None = None,
    upto: int | None = None,
    types: frozenset[str] | None = None,
    wanted: Wanted | None = None,
) -> Iterator[Fact]:
    """Facts of all events by seq, or of those of one session's stream.

    Args:
        types: Only of events of these types, and of what is forgotten, lost or not to be read.
        upto: None behind this one; None = all there are.
        wanted: Of which events payloads are read; None = all of sessions and runs but records.

    Raises:
        StorageError: The log cannot be read. What is damaged is a fact, not an error.

    Cost: O(events); about 8 µs each and the bytes of their payloads.
    """
    stream = None if session_id is None else session_stream(session_id)
    named = None if types is None else types | _GONE.keys()
    if isinstance(memory, JournalReads):
        read = wanted or _is_of_interest
        pages = raw_pages(memory, stream=stream, upto=upto, types=named, wanted=read)
        return chain.from_iterable(map(_facts_in, pages))
    types_named = None if named is None else tuple(named)
    events: Iterable[Event] = memory.events(stream=stream, types=types_named)
    if upto is not None:
        events = takewhile(lambda event: event.seq <= upto, events)
    return map(_fact, map(_raw, events))


def events_sieved(
    memory: LogBackend,
    *,
    session_id: str | None,
    types: frozenset[str] | None,
    wanted: Wanted,
    may: Callable[[bytes], bool],
) -> Iterator[Event | Fact]:
    """Events by seq without those that `may` tells of that nothing in them is looked for.

    Of what has no content, or is damaged, its fact. Of a backend that is not of the engine nothing
    is sieved.

    Args:
        types: Only of these types, and of what is forgotten, lost or not to be read.
        wanted: Whether an event is looked at.
        may: Told of stored bytes, whether they may hold what is looked for. Asked about messages,
            progress, checkpoints and types of others.

    Raises:
        StorageError: The log cannot be read. What is damaged is a fact, not an error.
    """
    stream = None if session_id is None else session_stream(session_id)
    named = None if types is None else types | _GONE.keys()
    if not isinstance(memory, JournalReads):
        for one in memory.events(stream=stream, types=None if named is None else tuple(named)):
            if one.type in _GONE or wanted(_raw(one).envelope):
                yield one
        return
    for raw in raw_events(memory, stream=stream, types=named, wanted=wanted):
        event = raw.envelope
        is_gone = event.type in _GONE or raw.problem is not None or raw.is_erased
        if is_gone:
            yield _fact(raw)
        elif wanted(event):
            sieved = raw.data is not None and (event.type in _SIEVED or "." in event.type)
            if not sieved or may(raw.data or b""):
                try:
                    yield memory.event(event.seq)
                except LogCorrupt as error:  # Rows, and frames whole, are looked at more closely.
                    yield Fact(event, state=State.DAMAGED, problem=problem_of(error))


def facts_of(memory: LogBackend, events: Iterable[Envelope]) -> Iterator[Fact]:
    """Facts of these events, ascending by seq, with the payloads of all of them."""
    if isinstance(memory, JournalReads):
        return map(_fact, raw_payloads(memory, events, always))
    return (_fact(_raw(memory.event(event.seq))) for event in events)


def copied_seqs(memory: LogBackend, session_id: str, upto: int) -> frozenset[int]:
    """The events of a session with the messages that forks copied: nobody said these again.

    Cost: O(events of the session), envelopes only.
    """
    forks = frozenset({EventType.SESSION_FORKED})
    found = facts(memory, session_id=session_id, upto=upto, types=forks, wanted=never)
    copies = (range(one.event.seq + 1, copied_upto(one.event) + 1) for one in found)
    return frozenset(chain.from_iterable(copies))


def copied_upto(event: Envelope) -> int:
    """The last of the events behind a fork that hold what it copied; 0 for all other events."""
    # Of a fork, bit 0 of the count tells of its manifest.
    return event.seq + (event.count >> 1) if event.type == EventType.SESSION_FORKED else 0


def always(event: Envelope) -> bool:
    """Every payload."""
    del event
    return True


def never(event: Envelope) -> bool:
    """No payload."""
    del event
    return False


def time_ns(event: Envelope) -> int:
    """When an event happened: as it says, else when it was recorded; Unix nanoseconds."""
    return event.recorded_at_ns if event.occurred_at_ns is None else event.occurred_at_ns


def _is_of_interest(event: Envelope) -> bool:
    """All but records: what was erased, or is damaged, is told, whatever its type."""
    return event.stream[0] == SESSION or (event.run_id is not None and event.stream[0] != RECORDS)


def _facts_in(page: Page) -> list[Fact]:
    """Facts of events that were read together: their messages are decoded together as well."""
    events, payloads = page
    found: list[Fact | None] = []
    places: list[int] = []
    joined: list[bytes] = []
    for event in events:
        payload = payloads.get(event.seq)
        if type(payload) is not Blob or event.type in _GONE:
            found.append(_fact(raw_event(event, payload)))
        elif event.type not in _DETAILS or event.stream[0] != SESSION:
            found.append(Fact(event, len(payload.data)))
        elif event.type == _MESSAGES and len(payload.data) <= _JOINED_MAX:
            places.append(len(found))
            joined.append(payload.data)
            found.append(None)
        else:
            found.append(_fact_of(event, payload.data))
    decoded = _decoded(joined)
    for place, data, messages in zip(places, joined, decoded, strict=True):
        event = events[place]
        if messages is None:
            found[place] = _fact(raw_event(event, payloads[event.seq]))
        else:
            found[place] = Fact(event, len(data), _KEPT, messages)
    return cast("list[Fact]", found)


def _fact(raw: RawEvent) -> Fact:
    event = raw.envelope
    if event.type in _GONE:
        return Fact(event, state=_GONE[event.type])
    if raw.problem is not None:
        return Fact(event, state=State.DAMAGED, problem=raw.problem)
    if raw.is_erased:
        return Fact(event, state=State.LOST if raw.is_lost else State.ERASED)
    if raw.data is None or event.type not in _DETAILS or event.stream[0] != SESSION:
        return Fact(event, raw.size)
    return _fact_of(event, raw.data)


def _fact_of(event: Envelope, data: bytes) -> Fact:
    """The fact of an event of which the payload is looked into."""
    try:
        return Fact(event, len(data), _KEPT, _DETAILS[event.type](data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = f"payload: expected that of {event.type}, got other bytes: {error}"
        return Fact(event, len(data), State.DAMAGED, None, problem)


_KEPT = State.KEPT
_SIEVED = frozenset(
    {
        EventType.TRANSCRIPT_APPENDED,
        EventType.PROGRESS_APPENDED,
        EventType.CHECKPOINT_RECORDED,
    }
)
_GONE = {FORGOTTEN: State.FORGOTTEN, EventType.EVENT_LOST: State.LOST}


# Messages


_MESSAGES: Final[str] = EventType.TRANSCRIPT_APPENDED
_JOINED_MAX = 1 << 12
"""Bytes of payloads that are copied to be decoded with others."""
_messages_decoder = msgspec.msgpack.Decoder(tuple[MessageFact, ...])
_joined_decoder = msgspec.msgpack.Decoder(list[tuple[MessageFact, ...] | None])
_encode = msgspec.msgpack.Encoder().encode


def _decoded(payloads: list[bytes]) -> Sequence[tuple[MessageFact, ...] | None]:
    """Messages of events by their payloads, in one call; only None if one of them is no such."""
    # The nil between two tells where a payload does not end as it should.
    head = b"\xdd" + (2 * len(payloads)).to_bytes(4, "big")
    nothing = (None,) * len(payloads)
    try:
        found = _joined_decoder.decode(b"".join((head, b"\xc0".join(payloads), b"\xc0")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return nothing
    return found[::2] if found[1::2].count(None) == len(payloads) else nothing


def _step(data: bytes) -> StepFact | None:
    found = step_of(stored.value_decoder.decode(data))
    if found is None:
        return None
    action, observation = found
    return StepFact(action, answer_of("", observation, is_error=False))


def _features(data: bytes) -> Features:
    return Features(tuple(stored.features_decoder.decode(data)))


_DETAILS: dict[str, Callable[[bytes], Detail]] = {
    EventType.TRANSCRIPT_APPENDED: _messages_decoder.decode,
    EventType.CHECKPOINT_RECORDED: stored.checkpoint_decoder.decode,
    EventType.PROGRESS_APPENDED: stored.progress_decoder.decode,
    EventType.MANIFEST_SAVED: stored.manifest_decoder.decode,
    EventType.FEATURES_REPLACED: _features,
    EventType.SESSION_INITIALIZED: stored.session_decoder.decode,
    EventType.SESSION_FORKED: stored.session_decoder.decode,
    STEP_TYPE: _step,
}


# Backends that are not of the engine


def _raw(event: Event) -> RawEvent:
    """An event of the public API in the form in which the engine stores it."""
    envelope = Envelope(
        event.seq,
        event.stream,
        event.revision,
        event.type,
        stored.to_ns(event.recorded_at, "recorded_at"),
        None if event.occurred_at is None else stored.to_ns(event.occurred_at, "occurred_at"),
        event.actor,
        event.run_id,
        event.reason,
        event.event_id,
        *_keys_and_count(event),
    )
    if event.stream[0] == RECORDS and event.records:
        return RawEvent(envelope)
    if event.erased:
        return RawEvent(envelope, is_erased=True, is_lost=event.lost)
    data = _data(event)
    return RawEvent(envelope, data, len(data))


def _keys_and_count(event: Event) -> tuple[tuple[str, ...], int]:
    if event.type == EventType.RECORDS_PUT:
        return tuple([one.id for one in event.records]), len(event.records)
    data = event.data if isinstance(event.data, dict) else {}
    if event.type == EventType.FEATURE_PASS_UPDATED:
        return (str(data.get("feature_id")),), int(data.get("passes") is True)
    if event.type == EventType.TRANSCRIPT_TRUNCATED:
        keep = data.get("keep")
        return (), keep if isinstance(keep, int) else 0
    messages = data.get("messages")
    if event.type == EventType.TRANSCRIPT_APPENDED and isinstance(messages, list):
        return (), len(messages)
    return (), 0


def _data(event: Event) -> bytes:
    plain = event.data
    if not isinstance(plain, dict):
        return _encode(plain)
    build = _PLAIN.get(event.type)
    return _encode(plain if build is None else build(plain))


def _objects(plain: JsonObject, key: str) -> list[JsonValue]:
    found = plain.get(key)
    return found if isinstance(found, list) else []


def _plain_messages(plain: JsonObject) -> object:
    return [stored.store_message(Message.from_dict(one)) for one in _objects(plain, "messages")]


def _plain_features(plain: JsonObject) -> list[StoredFeature]:
    return stored.store_features(
        [FeatureRecord.from_dict(one) for one in _objects(plain, "features")]
    )


def _plain_session(plain: JsonObject) -> StoredSession:
    manifest = plain.get("manifest")
    entries = [ProgressEntry.from_dict(one) for one in _objects(plain, "progress")]
    checkpoints = [RunCheckpoint.from_dict(one) for one in _objects(plain, "checkpoints")]
    return StoredSession(
        None if manifest is None else stored.store_manifest(SessionManifest.from_dict(manifest)),
        _plain_features(plain),
        [stored.store_progress(one) for one in entries],
        [stored.store_checkpoint(one) for one in checkpoints],
        *_origin(plain),
    )


def _origin(plain: JsonObject) -> tuple[str | None, int | None]:
    origin, seq = plain.get("origin"), plain.get("origin_seq")
    return origin if isinstance(origin, str) else None, seq if isinstance(seq, int) else None


_PLAIN: dict[str, Callable[[JsonObject], object]] = {
    EventType.TRANSCRIPT_APPENDED: _plain_messages,
    EventType.FEATURES_REPLACED: _plain_features,
    EventType.SESSION_INITIALIZED: _plain_session,
    EventType.SESSION_FORKED: _plain_session,
    EventType.CHECKPOINT_RECORDED: lambda plain: stored.store_checkpoint(
        RunCheckpoint.from_dict(plain)
    ),
    EventType.PROGRESS_APPENDED: lambda plain: stored.store_progress(
        ProgressEntry.from_dict(plain)
    ),
    EventType.MANIFEST_SAVED: lambda plain: stored.store_manifest(SessionManifest.from_dict(plain)),
}
