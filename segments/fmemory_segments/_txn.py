"""What a plan reads: the log as it is under the lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fmemory_segments.compaction import ErasedEvent
from fmemory_segments.event import (
    Envelope,
    Payload,
    RowPage,
    RowRun,
    Stream,
    StreamInfo,
    UInt64Array,
    VectorArray,
)

if TYPE_CHECKING:
    from fmemory_segments.log import Log


class LogTxn:
    """What a plan sees: the newest state of the log, which nobody else can change meanwhile."""

    __slots__ = ("_log", "head_seq", "now_ns")

    def __init__(self, log: Log, head_seq: int, now_ns: int) -> None:
        self._log = log
        self.head_seq = head_seq
        self.now_ns = now_ns

    @property
    def store_id(self) -> bytes:
        """16 bytes that name the log."""
        return self._log.store_id

    def refresh(self) -> int:
        """The newest seq; it does not change while the plan runs."""
        return self.head_seq

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        """As `Log.fold`."""
        return self._log.fold(after, upto, stream)

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """As `Log.envelopes`."""
        return self._log.envelopes(after, upto, stream=stream, backwards=backwards, limit=limit)

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        """As `Log.payloads`."""
        return self._log.payloads(seqs)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        """As `Log.rows`."""
        return self._log.rows(locs, notes=notes, vectors=vectors)

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        """As `Log.row`."""
        return self._log.row(loc)

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        """As `Log.erased`."""
        return self._log.erased(after, upto, stream)

    def find(self, stream: Stream, event_id: str) -> int | None:
        """As `Log.find`."""
        return self._log.find(stream, event_id)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """As `Log.streams`."""
        return self._log.streams(prefix, before, limit)
