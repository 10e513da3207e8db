"""The events of a session by row: only those that are asked for are read.

An event's row follows from its revision, its number in the session, so no index is made: a place
is found by asking what the first event after some seq is. What is kept are the short facts of the
pages that were shown last, never their data.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from fmemory_tools._damage import Damaged, readable
from fmemory_tools._event_list import shown_time
from fmemory_tools.stepper.brief import brief

if TYPE_CHECKING:
    from fmemory import Event, LogBackend

PAGE_ROWS: Final = 64
PAGES_KEPT: Final = 32
_PLACES_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class EventRow:
    """What a list shows of an event.

    Attributes:
        number: Row, from 0: its revision less one.
        seq: Its number in the log; of a damaged event the number where the damage begins.
        at: When it happened; None of a damaged event, whose time cannot be read.
        kind: What it is, in a word.
        what: What happened, on one line.
        who: Actor, if any.
        run: Run, if any.
        why: The reason, where it is not that of the row before.
        style: One of `lines.STYLES`, for what should be seen at once.
    """

    number: int
    seq: int
    at: datetime | None
    kind: str
    what: str
    who: str = ""
    run: str = ""
    why: str = ""
    style: str = ""


class Timeline:
    """The events of one session, by row.

    One thread at a time may read; `row`, `missing` and `count` may be asked meanwhile.
    """

    def __init__(self, memory: LogBackend, session_id: str) -> None:
        self.session_id = session_id
        self._memory = memory
        self._stream = ("session", session_id)
        self._pages: OrderedDict[int, tuple[EventRow, ...]] = OrderedDict()
        # Places that are known: revision and seq, both ascending. Before the first event is 0, 0.
        self._revisions = [0]
        self._seqs = [0]
        self._count = 0
        self.refresh()

    @property
    def count(self) -> int:
        """Rows that are known of."""
        return self._count

    @property
    def is_moved(self) -> bool:
        """Whether the store is not where it was opened: what comes, comes elsewhere."""
        return self._memory.health().state == "moved"

    @property
    def last_seq(self) -> int:
        """The newest event that is known of; 0 if there is none."""
        return self._seqs[-1]

    def refresh(self) -> None:
        """Look how long the session is now.

        Cost: one question to the index of streams.
        """
        cursor = None
        while True:
            page = self._memory.list_streams(self._stream, cursor=cursor)
            for one in page.streams:
                if one.stream == self._stream:
                    self._place(1, one.first_seq)
                    self.grow(one.revision, one.last_seq)
                    return
            cursor = page.next_cursor
            if cursor is None:
                return

    def grow(self, revision: int, seq: int) -> None:
        """Take in that the session has an event of this revision and seq."""
        if revision > self._count:
            self._place(revision, seq)
            self._count = revision

    def row(self, number: int) -> EventRow | None:
        """The row of this number if it is loaded."""
        page = self._pages.get(number // PAGE_ROWS)
        at = number % PAGE_ROWS
        return page[at] if page is not None and at < len(page) else None

    def missing(self, rows: range) -> int | None:
        """The first page that these rows need and that is not loaded; None if all are there."""
        for number in rows:
            if number < self._count and self.row(number) is None:
                return number // PAGE_ROWS
        return None

    def load(self, page: int) -> None:
        """Read a page of rows.

        Raises:
            StorageError: The store failed. Damaged events are rows, not errors.

        Cost: reads `PAGE_ROWS` events, and about as many single ones as finding their place takes.
        """
        first = page * PAGE_ROWS
        stop = min(self._count, first + PAGE_ROWS)
        self._pages[page] = tuple(self._rows(first, stop))
        self._pages.move_to_end(page)
        while len(self._pages) > PAGES_KEPT:
            self._pages.popitem(last=False)

    def events(self, first: int, stop: int) -> Iterator[Event | Damaged]:
        """The events of these rows by seq, each read when it is asked for by pages.

        Damaged ones are in their places; there may be more of them than rows, since a damaged
        event does not tell which session it is of.
        """
        stop = min(stop, self._count)
        after = self._seq_before(first)
        while after is not None and first < stop:
            for event in self._read(after):
                after = event.seq
                if isinstance(event, Damaged):
                    yield event
                    continue
                if event.revision > stop:
                    return
                if event.revision > first:
                    first = event.revision
                    yield event
            if after >= self.last_seq:
                return

    def event(self, number: int) -> Event | Damaged | None:
        """The event of a row whole; None if there is none."""
        damaged = None
        for event in self.events(number, number + 1):
            if not isinstance(event, Damaged):
                return event
            damaged = damaged or event
        return damaged

    def row_after(self, seq: int) -> int:
        """The row of the session's first event after a seq; one more than there are if none is."""
        found = self._first_event(seq)
        return self._count if found is None else found - 1

    def row_at(self, seq: int) -> int:
        """The row of a seq or of the session's last event before it; the first row before all."""
        return max(0, self.row_after(seq) - 1)

    def forget(self) -> None:
        """Read everything anew that is asked for from now on, as an erasure may have changed it."""
        self._pages.clear()

    # Private

    def _rows(self, first: int, stop: int) -> Iterator[EventRow]:
        """Every row from first to stop, also those whose events cannot be read."""
        damaged: list[Damaged] = []
        number = first
        reason = None
        for event in self.events(first, stop):
            if isinstance(event, Damaged):
                damaged.append(event)
                continue
            while number < event.revision - 1:
                yield _damaged_row(number, damaged)
                number += 1
            damaged.clear()
            # The reason of many events in a row, as those of an import, is said once.
            yield _row_of(event, "" if event.reason == reason else event.reason or "")
            number, reason = event.revision, event.reason
        for missing in range(number, stop):
            yield _damaged_row(missing, damaged)

    def _read(self, after: int, count: int = PAGE_ROWS) -> Iterator[Event | Damaged]:
        def events(seq: int, limit: int | None) -> Iterator[Event]:
            return self._memory.events(seq, stream=self._stream, limit=limit or count)

        for event in readable(events, after):
            if not isinstance(event, Damaged):
                self._place(event.revision, event.seq)
            yield event

    def _first_event(self, after: int) -> int | None:
        """The revision of the first event after a seq that can be read; None if there is none."""
        for event in self._read(after, 1):
            if not isinstance(event, Damaged):
                return event.revision
        return None

    def _seq_before(self, revision: int) -> int:
        """A seq after which there are a few events up to this revision, and then the next ones.

        Looks between the known places around it; where events lie as close as their revisions
        there is nothing to look for.
        """
        while True:
            (low, low_seq), above = self._places_around(revision)
            if above is None or revision - low < PAGE_ROWS:
                return low_seq
            high, high_seq = above
            if high - low == high_seq - low_seq:
                return low_seq + revision - low
            if not self._look_between(revision, (low, low_seq), (high, high_seq)):
                return low_seq

    def _look_between(self, revision: int, low: tuple[int, int], high: tuple[int, int]) -> bool:
        """Learn a place between two known ones; whether there was one to learn."""
        low_seq, stop = low[1], high[1]
        share = (revision - low[0]) / (high[0] - low[0])
        guess = low_seq + int((stop - low_seq) * share)
        while stop - low_seq > 1:
            guess = min(max(guess, low_seq + 1), stop - 1)
            found = self._first_event(guess - 1)
            if found is not None and low[0] < found < high[0]:
                return True
            # Nothing lies between the guess and the place that is known above it.
            stop = guess
            guess = (low_seq + stop) // 2
        return False

    def _places_around(self, revision: int) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """The nearest known places: at or before a revision, and after it if there is one."""
        at = bisect_right(self._revisions, revision)
        below = self._revisions[at - 1], self._seqs[at - 1]
        if at == len(self._revisions):
            return below, None
        return below, (self._revisions[at], self._seqs[at])

    def _place(self, revision: int, seq: int) -> None:
        """Remember where an event lies."""
        at = bisect_left(self._revisions, revision)
        if at < len(self._revisions) and self._revisions[at] == revision:
            return
        self._revisions.insert(at, revision)
        self._seqs.insert(at, seq)
        if len(self._revisions) > _PLACES_KEPT:
            # Every other one is as good a start as all.
            del self._revisions[1:-1:2], self._seqs[1:-1:2]


def _row_of(event: Event, why: str) -> EventRow:
    kind, what, style = brief(event)
    return EventRow(
        number=event.revision - 1,
        seq=event.seq,
        at=shown_time(event),
        kind=kind,
        what=what,
        who=event.actor or "",
        run=event.run_id or "",
        why=why,
        style=style,
    )


def _damaged_row(number: int, damaged: Sequence[Damaged]) -> EventRow:
    """A row whose event cannot be read."""
    first = damaged[0] if damaged else Damaged(0, "it cannot be read")
    return EventRow(number, first.seq, None, "damaged", str(first), style="red")
