"""Which streams there are: the newest revision and event of each, and its event ids.

Shared by the segment log and by journals in memory. Applying an event costs the same however many
streams there are; the order by recency is brought up to date only when somebody lists streams.
Callers hold their own lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sortedcontainers import SortedList

from fmemory_segments.event import Envelope, Stream, StreamInfo

PREFIX_VIEWS_MAX: Final = 8


class RevisionGap(ValueError):  # noqa: N818 - names what was found, as LogCorrupt does
    """An event whose revision does not follow the one before it in its stream. Nothing changed.

    Attributes:
        stream: The stream.
        expected: The revision that would follow.
        revision: The one it has.
    """

    def __init__(self, stream: Stream, expected: int, revision: int) -> None:
        super().__init__(f"stream {stream}: expected revision {expected}, got {revision}")
        self.stream = stream
        self.expected = expected
        self.revision = revision


class _Entry:
    """One stream."""

    __slots__ = (
        "event_ids",
        "first_seq",
        "last_recorded_at_ns",
        "last_seq",
        "revision",
        "stream",
    )

    def __init__(self, stream: Stream, first_seq: int) -> None:
        self.stream = stream
        self.revision = 0
        self.first_seq = first_seq
        self.last_seq = 0
        self.last_recorded_at_ns = 0
        self.event_ids: dict[str, int] | None = None

    def info(self) -> StreamInfo:
        return StreamInfo(
            self.stream,
            self.revision,
            self.revision,
            self.first_seq,
            self.last_seq,
            self.last_recorded_at_ns,
        )


class _Recency:
    """The streams under one prefix, ordered by their last seq."""

    __slots__ = ("_entries", "_listed", "_seqs", "prefix")

    def __init__(self, prefix: Stream, entries: Iterable[_Entry]) -> None:
        self.prefix = prefix
        self.rebuild(entries)

    def __len__(self) -> int:
        return len(self._seqs)

    def holds(self, entry: _Entry) -> bool:
        return entry.stream[: len(self.prefix)] == self.prefix

    def rebuild(self, entries: Iterable[_Entry]) -> None:
        """Order all streams anew."""
        self._entries = {entry.last_seq: entry for entry in entries if self.holds(entry)}
        self._listed = {entry.stream: seq for seq, entry in self._entries.items()}
        self._seqs: SortedList[int] = SortedList(self._entries)

    def move(self, entry: _Entry) -> None:
        """Put a stream where its last seq belongs now."""
        listed = self._listed.get(entry.stream)
        if listed == entry.last_seq:
            return
        if listed is not None:
            self._seqs.remove(listed)
            del self._entries[listed]
        self._seqs.add(entry.last_seq)
        self._entries[entry.last_seq] = entry
        self._listed[entry.stream] = entry.last_seq

    def page(self, before: int | None, limit: int | None) -> list[StreamInfo]:
        """Streams with the newest first."""
        end = len(self._seqs) if before is None else self._seqs.bisect_left(before)
        start = 0 if limit is None else max(0, end - limit)
        chosen = self._seqs.islice(start, end, reverse=True)
        return [self._entries[seq].info() for seq in chosen]


class StreamIndex:
    """Streams with their newest revision and event, and event ids.

    >>> index = StreamIndex()
    >>> index.apply(("session", "s1"), seq=1, revision=1, recorded_at_ns=7, event_id="start")
    >>> index.revision(("session", "s1")), index.find(("session", "s1"), "start")
    (1, 1)
    """

    def __init__(self) -> None:
        self._entries: dict[Stream, _Entry] = {}
        self._views: dict[Stream, _Recency] = {}
        self._touched: set[_Entry] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, stream: object) -> bool:
        return stream in self._entries

    def revision(self, stream: Stream) -> int:
        """The stream's newest revision, 0 for an unknown stream."""
        entry = self._entries.get(stream)
        return 0 if entry is None else entry.revision

    def info(self, stream: Stream) -> StreamInfo | None:
        """What is known of the stream; None if it has no event."""
        entry = self._entries.get(stream)
        return None if entry is None else entry.info()

    def find(self, stream: Stream, event_id: str) -> int | None:
        """Seq of the event with this id in this stream."""
        entry = self._entries.get(stream)
        if entry is None or entry.event_ids is None:
            return None
        return entry.event_ids.get(event_id)

    def streams(
        self, prefix: Stream = (), *, before: int | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams, the one with the newest event first.

        Args:
            prefix: Only streams that begin with these labels.
            before: Only streams whose newest event has a smaller seq: the last of the page before.
            limit: At most so many; None = all.

        Cost: O(limit + log streams + streams written since the last call); O(streams · log streams)
            the first time for a prefix, of which the last 8 asked for stay ordered.
        """
        self._settle()
        view = self._views.pop(prefix, None)
        if view is None:
            while len(self._views) >= PREFIX_VIEWS_MAX:
                del self._views[next(iter(self._views))]
            view = _Recency(prefix, self._entries.values())
        self._views[prefix] = view
        return view.page(before, limit)

    def apply(
        self,
        stream: Stream,
        *,
        seq: int,
        revision: int,
        recorded_at_ns: int,
        event_id: str | None = None,
    ) -> None:
        """Take in one event, the newest of its stream.

        Raises:
            RevisionGap: Its revision does not follow. Nothing changed.

        Cost: O(1), about 0.5 µs.
        """
        entry = self._entries.get(stream)
        if entry is None:
            if revision != 1:
                raise RevisionGap(stream, 1, revision)
            entry = self._entries[stream] = _Entry(stream, seq)
        elif revision != entry.revision + 1:
            raise RevisionGap(stream, entry.revision + 1, revision)
        entry.revision = revision
        entry.last_seq = seq
        entry.last_recorded_at_ns = recorded_at_ns
        if event_id is not None:
            self._remember(entry, event_id, seq)
        if self._views:
            self._touched.add(entry)

    def apply_envelope(self, envelope: Envelope) -> None:
        """The same from an envelope."""
        self.apply(
            envelope.stream,
            seq=envelope.seq,
            revision=envelope.revision,
            recorded_at_ns=envelope.recorded_at_ns,
            event_id=envelope.event_id,
        )

    def apply_segment(
        self, infos: Iterable[StreamInfo], event_ids: Iterable[tuple[Stream, str, int]]
    ) -> None:
        """Take in the events of a whole segment, newer than all before.

        Args:
            infos: Of its streams: counts and first seq within the segment.
            event_ids: Stream, event id and seq of the events that have one; streams as in `infos`.

        Raises:
            RevisionGap: The revisions of a stream do not follow.
        """
        for info in infos:
            entry = self._entries.get(info.stream)
            known = 0 if entry is None else entry.revision
            first = info.revision - info.event_count + 1
            if first != known + 1:
                raise RevisionGap(info.stream, known + 1, first)
            if entry is None:
                entry = self._entries[info.stream] = _Entry(info.stream, info.first_seq)
            entry.revision = info.revision
            entry.last_seq = info.last_seq
            entry.last_recorded_at_ns = info.last_recorded_at_ns
            if self._views:
                self._touched.add(entry)
        for stream, event_id, seq in event_ids:
            self._remember(self._entries[stream], event_id, seq)

    def _remember(self, entry: _Entry, event_id: str, seq: int) -> None:
        """The first event with an id keeps it."""
        if entry.event_ids is None:
            entry.event_ids = {}
        entry.event_ids.setdefault(event_id, seq)

    def _settle(self) -> None:
        """Bring the kept orders up to date."""
        touched, self._touched = self._touched, set()
        for view in self._views.values():
            if 4 * len(touched) > len(view):
                view.rebuild(self._entries.values())
            else:
                for entry in touched:
                    if view.holds(entry):
                        view.move(entry)
