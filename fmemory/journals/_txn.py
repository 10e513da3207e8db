"""What a plan sees of a journal whose reads show exactly what is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fmemory.journal import (
    Envelope,
    ErasedEvent,
    Payload,
    Reader,
    RowPage,
    RowRun,
    Stream,
    StreamInfo,
)
from fmemory_segments.event import UInt64Array, VectorArray


@dataclass(frozen=True, slots=True)
class JournalTxn:
    """A journal, while its one writer decides what to append."""

    _journal: Reader
    head_seq: int
    now_ns: int

    @property
    def store_id(self) -> bytes:
        return self._journal.store_id

    def refresh(self) -> int:
        return self.head_seq

    def fold(
        self, after: int, upto: int, stream: Stream | None = None
    ) -> Iterator[Envelope | RowRun]:
        return self._journal.fold(after, upto, stream)

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        return self._journal.envelopes(after, upto, stream=stream, backwards=backwards, limit=limit)

    def payloads(self, seqs: Sequence[int]) -> list[Payload]:
        return self._journal.payloads(seqs)

    def rows(self, locs: UInt64Array, *, notes: bool = True, vectors: bool = True) -> RowPage:
        return self._journal.rows(locs, notes=notes, vectors=vectors)

    def row(self, loc: int) -> tuple[bytes, VectorArray, str | None]:
        return self._journal.row(loc)

    def erased(self, after: int, upto: int, stream: Stream | None = None) -> Iterator[ErasedEvent]:
        return self._journal.erased(after, upto, stream)

    def find(self, stream: Stream, event_id: str) -> int | None:
        return self._journal.find(stream, event_id)

    def streams(
        self, prefix: Stream = (), before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        return self._journal.streams(prefix, before, limit)
