"""What a log says of itself: sizes, usage, health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fmemory_segments.event import Stream
from fmemory_segments.recovery import RecoveryReport


@dataclass(frozen=True, slots=True)
class LogStats:
    """How large a log is.

    Attributes:
        event_count: Events ever appended.
        stream_count: Streams with at least one event.
        segment_count: Segment files.
        stored_bytes: Their size, zeros ahead included.
        index_bytes: Memory of the places of events and rows in this process.
    """

    event_count: int
    stream_count: int
    segment_count: int
    stored_bytes: int
    index_bytes: int


@dataclass(frozen=True, slots=True)
class LogUsage:
    """How much one type of event of one stream holds.

    Attributes:
        stream: The stream.
        type: Of the events.
        event_count: How many.
        payload_bytes: What their payloads take, nonces and padding included.
    """

    stream: Stream
    type: str
    event_count: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class LogHealth:
    """The state of a handle.

    Attributes:
        state: `ok`, `full` (appends are refused until there is room), `poisoned` (reopen),
            or `closed` (also for a handle that was carried over a fork).
        head_seq: Newest event seen.
        durable_seq: Everything up to here is known to be on disk.
        recoveries: Torn tails that this handle cut off, or saw.
        notices: Sentences about what a person should know.
    """

    state: Literal["ok", "full", "poisoned", "closed"]
    head_seq: int
    durable_seq: int
    recoveries: tuple[RecoveryReport, ...]
    notices: tuple[str, ...]
