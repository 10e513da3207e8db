"""The log seen from outside: events, receipts, streams, and what is known of a store.

`Head` and `Finding` come from `fmemory_segments`, which owns the chain.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self, TypeAlias, cast

from fmemory._json_values import JsonObject, JsonValue, check_text
from fmemory._model import Model, Rule, as_tuple, build_bytes
from fmemory._receipt import (
    EVENT_ID_CHARACTERS_MAX,
    EventId,
    Receipt,
    Revision,
    check_length,
)
from fmemory.errors import ContractError, Reason, brief
from fmemory.record_models import MemoryRecord
from fmemory_segments.event import Stream

__all__ = [
    "APPEND_EVENTS_MAX",
    "EVENT_ID_CHARACTERS_MAX",
    "STREAM_LABELS_MAX",
    "TYPE_CHARACTERS_MAX",
    "AutoCompact",
    "CompactResult",
    "Durability",
    "ErasedRecord",
    "Event",
    "EventId",
    "Health",
    "NewEvent",
    "Receipt",
    "Revision",
    "Stats",
    "StreamName",
    "StreamPage",
    "StreamStats",
    "StreamSummary",
    "TypeStats",
    "check_stream",
]

APPEND_EVENTS_MAX = 65_535
"""Most events in one append."""
STREAM_LABELS_MAX = 33
"""A namespace's labels and the word before them."""
LABEL_CHARACTERS_MAX = 4096
TYPE_CHARACTERS_MAX = 200

_RANGE = Reason.OUT_OF_RANGE

Durability: TypeAlias = Literal["fsync", "interval", "os"]


def check_stream(value: object, where: str = "") -> Stream:
    """The stream's labels as a tuple: at least one, the first not empty.

    Raises:
        ContractError: Not a sequence of str, no label, an empty first one, too many, or too long.
    """
    try:
        labels = as_tuple(value, "str labels")
        if not labels:
            raise ContractError("expected at least one label, got ()", reason=Reason.EMPTY)
        if len(labels) > STREAM_LABELS_MAX:
            raise ContractError(
                f"expected at most {STREAM_LABELS_MAX} labels, got {len(labels)}",
                reason=Reason.TOO_LARGE,
            )
        for index, label in enumerate(labels):
            check_length(check_text(label, f"[{index}]", empty=index > 0), LABEL_CHARACTERS_MAX)
    except ContractError as error:
        raise error.within(where) from None
    return cast("Stream", labels)


def _check_type(value: object) -> str:
    name = check_length(check_text(value), TYPE_CHARACTERS_MAX)
    if "." not in name:
        raise ContractError(
            f"expected a type with a dot, such as tool.finished, got {brief(name)}: types without"
            " one are fmemory's own",
            reason=Reason.BAD_VALUE,
        )
    return name


StreamName: TypeAlias = Annotated[tuple[str, ...], Rule(check_stream)]
_EventType: TypeAlias = Annotated[
    str, Rule(_check_type, {"maxLength": TYPE_CHARACTERS_MAX, "pattern": r"\."})
]


class NewEvent(Model, frozen=True):
    """An event of the caller's own.

    Attributes:
        type: What happened; contains a dot.
        data: A JSON value, or bytes.
        event_id: Idempotency key, unique in its stream.
        occurred_at: When it happened, if not when it is written; an aware time.
    """

    type: _EventType
    data: JsonValue | bytes = None
    event_id: EventId | None = None
    occurred_at: datetime | None = None

    def to_dict(self) -> JsonObject:
        """Plain JSON data; bytes go under `data_base64` instead of `data`."""
        return _with_bytes_named(super().to_dict(), self.data)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """The value of plain data as `to_dict` gives it.

        Raises:
            ContractError: A field is unknown, missing or breaks a rule; `where` is its path.
        """
        return super().from_dict(_with_bytes_decoded(data, cls.__name__))

    @classmethod
    def _schema(cls, defs: JsonObject) -> JsonObject:
        return _with_bytes_described(super()._schema(defs))


class ErasedRecord(Model, frozen=True):
    """What is left of a record whose note and vector were erased.

    Attributes:
        id: Its id.
        timestamp: Its own time, Unix seconds.
        lost: Nobody erased them: they were damaged, and a repair found that.
    """

    id: str
    timestamp: float
    lost: bool = False


class Event(Model, frozen=True):
    """An event as it was recorded.

    Attributes:
        seq: Number in the log, from 1, without gaps.
        stream: The key it belongs to.
        revision: Number in its stream, from 1.
        type: What happened; types without a dot are fmemory's own.
        recorded_at: When it was written; UTC.
        occurred_at: When it happened, where that differs; UTC.
        actor: Who wrote it.
        run_id: The run it belongs to.
        reason: Why it was written.
        event_id: Its idempotency key.
        data: A JSON value, or bytes; None for `records_put`.
        records: The records of `records_put`; erased ones as id and timestamp.
        erased: Whether the data was erased, or lost.
        lost: Nobody erased it: it was damaged, and a repair found that.
    """

    seq: int
    stream: StreamName
    revision: int
    type: str
    recorded_at: datetime
    occurred_at: datetime | None = None
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    event_id: str | None = None
    data: JsonValue | bytes = None
    records: tuple[MemoryRecord | ErasedRecord, ...] = ()
    erased: bool = False
    lost: bool = False

    def to_dict(self) -> JsonObject:
        """Plain JSON data; bytes go under `data_base64` instead of `data`."""
        return _with_bytes_named(super().to_dict(), self.data)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """The value of plain data as `to_dict` gives it.

        Raises:
            ContractError: A field is unknown, missing or breaks a rule; `where` is its path.
        """
        return super().from_dict(_with_bytes_decoded(data, cls.__name__))

    @classmethod
    def _schema(cls, defs: JsonObject) -> JsonObject:
        return _with_bytes_described(super()._schema(defs))


class StreamSummary(Model, frozen=True):
    """A stream without its events.

    Attributes:
        stream: Its key.
        revision: Revision of its newest event.
        event_count: Number of its events.
        first_seq: Its first event.
        last_seq: Its newest event.
        updated_at: When that was recorded; UTC.
    """

    stream: StreamName
    revision: int
    event_count: int
    first_seq: int
    last_seq: int
    updated_at: datetime


class StreamPage(Model, frozen=True):
    """Streams, the most recently written first, and the cursor of the next page."""

    streams: tuple[StreamSummary, ...]
    next_cursor: str | None = None


class TypeStats(Model, frozen=True):
    """Events of one type: how many, and the bytes of their payloads."""

    type: str
    event_count: int
    payload_bytes: int


class StreamStats(Model, frozen=True):
    """Events of one stream: how many, and the bytes of their payloads."""

    stream: StreamName
    event_count: int
    payload_bytes: int


class Stats(Model, frozen=True):
    """How much a store holds.

    Attributes:
        kind: The journal's name, such as `segments`.
        head_seq: Number of the newest event = number of events.
        stream_count: Number of streams.
        session_count: Number of sessions, with a manifest or without.
        record_count: Number of records that are there now.
        stored_bytes: Bytes on disk; None where they cannot be told.
        segment_count: Number of segment files; None where there are none.
        by_type: Events by type, the largest first.
        by_stream: Events by stream, the largest first.
    """

    kind: str
    head_seq: int
    stream_count: int
    session_count: int
    record_count: int
    stored_bytes: int | None = None
    segment_count: int | None = None
    by_type: tuple[TypeStats, ...] = ()
    by_stream: tuple[StreamStats, ...] = ()


def _check_share(value: float) -> float:
    if not 0 < value <= 1:
        raise ContractError(f"expected more than 0, at most 1, got {value}", reason=_RANGE)
    return value


def _check_count(value: int) -> int:
    if value < 1:
        raise ContractError(f"expected 1 or more, got {value}", reason=_RANGE)
    return value


def _check_pause(value: float) -> float:
    if not 0 <= value < float("inf"):
        raise ContractError(f"expected seconds, 0 or more, got {value}", reason=_RANGE)
    return value


class AutoCompact(Model, frozen=True):
    """When a store is compacted by itself.

    Attributes:
        garbage_share: Dead records and events, as a share of all whose data are there.
        garbage_min: And at least so many.
        fragments: Or so many files that compaction would make into fewer.
        pause_s: Least time between two compactions of a handle, seconds.
    """

    garbage_share: Annotated[float, Rule(_check_share)] = 0.5
    garbage_min: Annotated[int, Rule(_check_count)] = 1000
    fragments: Annotated[int, Rule(_check_count)] = 16
    pause_s: Annotated[float, Rule(_check_pause)] = 30.0


class CompactResult(Model, frozen=True):
    """What a compaction did.

    Attributes:
        upto: The newest event that was looked at: what was deleted later is left to the next one.
        erased_records: Records whose note and vector were taken out.
        erased_events: Other events whose data were: of deleted sessions and streams, and of
            metadata that was cleared.
        forgotten_events: Events of which only place, time and digest are left, because
            `forget_before` asked for it.
        bytes_before: What the store occupied; None where that cannot be told.
        bytes_after: What it occupies now.
        pending: What is to be done before no byte of deleted data is left in the store, and why;
            () = nothing.
        notices: What else a person should know: files that were removed.
    """

    upto: int
    erased_records: int
    erased_events: int
    forgotten_events: int = 0
    bytes_before: int | None = None
    bytes_after: int | None = None
    pending: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def freed_bytes(self) -> int | None:
        """Bytes that came back; None where that cannot be told."""
        if self.bytes_before is None or self.bytes_after is None:
            return None
        return self.bytes_before - self.bytes_after


class Health(Model, frozen=True):
    """The state of a handle, for monitoring.

    Attributes:
        state: `ok`, `full` (no space: writes are refused), `poisoned` (reopen), `moved` (the
            store was moved, removed or made anew: open it where it is now) or `closed`.
        kind: The journal's name.
        path: Where the store is; None if it has no place.
        read_only: Whether writes are refused.
        durability: The default of writes.
        head_seq: Newest event; 0 for a handle that is closed, or of which the store was moved.
        durable_seq: Everything up to here is known to be on disk.
        notices: Sentences a person should read: recovered tails, foreign files.
    """

    state: str
    kind: str
    path: str | None
    read_only: bool
    durability: str
    head_seq: int
    durable_seq: int
    notices: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether reads and writes are expected to work."""
        return self.state == "ok"


def _with_bytes_named(plain: JsonObject, data: JsonValue | bytes) -> JsonObject:
    if not isinstance(data, bytes):
        return plain
    return {"data_base64" if name == "data" else name: value for name, value in plain.items()}


def _with_bytes_described(schema: JsonObject) -> JsonObject:
    properties = cast("JsonObject", schema["properties"])
    encoded: JsonObject = {"type": "string", "contentEncoding": "base64"}
    return {**schema, "properties": {**properties, "data": {}, "data_base64": encoded}}


def _with_bytes_decoded(plain: object, owner: str) -> object:
    if not isinstance(plain, dict) or "data_base64" not in plain:
        return plain
    if "data" in plain:
        raise ContractError(
            "expected data or data_base64, got both", reason=Reason.UNKNOWN_FIELD, owner=owner
        )
    renamed = dict(plain)
    try:
        renamed["data"] = build_bytes(renamed.pop("data_base64"))
    except ContractError as error:
        raise error.within("data_base64", owner=owner) from None
    return renamed
