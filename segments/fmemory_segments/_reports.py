"""What a log says of itself: sizes, usage, health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fmemory_segments._catalog import reading
from fmemory_segments._core import Core
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
        manifest_no: How many times a compaction took effect.
        compacted_at_ns: When the last one did; None = never.
        fragment_count: Sealed segments that were never compacted.
    """

    event_count: int
    stream_count: int
    segment_count: int
    stored_bytes: int
    index_bytes: int
    manifest_no: int = 0
    compacted_at_ns: int | None = None
    fragment_count: int = 0


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
        compaction_tried_ns: When this handle compacted last, or tried to; None = never.
        compaction_failure: What stopped it then; "" = nothing.
    """

    state: Literal["ok", "full", "poisoned", "closed"]
    head_seq: int
    durable_seq: int
    recoveries: tuple[RecoveryReport, ...]
    notices: tuple[str, ...]
    compaction_tried_ns: int | None = None
    compaction_failure: str = ""


def stats_of(core: Core) -> LogStats:
    """How large an open log is.

    Raises:
        LogReadFailed: The system does not say how large a file is.
    """
    segments, manifest = core.segments, core.manifest
    with reading(core.path):
        stored_bytes = sum(
            segment.end if segment.is_sealed else core.fs.size(segment.fd) for segment in segments
        )
    return LogStats(
        event_count=core.head_seq,
        stream_count=len(core.streams),
        segment_count=len(segments),
        stored_bytes=stored_bytes,
        index_bytes=sum(segment.index.size_bytes for segment in segments),
        manifest_no=core.manifest_no,
        compacted_at_ns=manifest.created_ns if manifest is not None else None,
        fragment_count=sum(
            segment.is_sealed and not segment.header.is_compacted and segment.index.event_count > 0
            for segment in segments
        ),
    )


def health_of(core: Core, durable_seq: int) -> LogHealth:
    """The state of a handle, whatever it is."""
    last = core.last_compaction
    return LogHealth(
        "closed" if core.state == "forked" else core.state,
        core.head_seq,
        durable_seq,
        tuple(core.recoveries),
        tuple(core.notices),
        last.time_ns if last is not None else None,
        last.failure if last is not None else "",
    )
