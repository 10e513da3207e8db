"""Events one a line, in columns that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING

from fmemory_tools._console import (
    BAD,
    FAINT,
    KIND,
    NUMBER,
    STRONG,
    WHO,
    Part,
    cells_of,
    fit,
    fit_ends,
    print_json,
    print_line,
    print_text,
    width,
)
from fmemory_tools._damage import Damaged, refuse_damage
from fmemory_tools._failure import Failure
from fmemory_tools._summary import describe, short_stream, show_stream

if TYPE_CHECKING:
    from fmemory import Event

SAMPLE_EVENTS = 500
WHAT_CELLS_MIN = 30

_HEADERS = {"stream": "stream", "type": "type", "who": "who", "run": "run"}
_STYLES = {"stream": "", "type": KIND, "who": WHO, "run": WHO}
_IDS = frozenset({"stream", "run"})
# Room is taken from these columns, in this order, down to these widths, until `what` has enough.
_NARROWEST = (("stream", 10), ("run", 6), ("who", 6), ("type", 12))
# Widths for events that are yet to come.
_TYPICAL = {"stream": 12, "type": 20, "who": 6, "run": 6}
_WIDEST = {"stream": 28, "type": 22, "who": 18, "run": 14}


def print_events(events: Iterable[Event | Damaged], *, json: bool, utc: bool) -> int:
    """Print events in the order given, and how many there were; nothing is said of none as JSON.

    Raises:
        Failure: Some are damaged. All others, and which are damaged, are printed before.
    """
    damaged: list[Damaged] = []
    count = 0
    rest = iter(events)
    sample = [] if json else list(islice(rest, SAMPLE_EVENTS))
    following = list(islice(rest, 1))
    columns = None
    if sample:
        whole = [one for one in sample if not isinstance(one, Damaged)]
        columns = EventColumns(whole, utc=utc, complete=not following)
        columns.print_header()
    elif not json:
        print_line(("no events", FAINT))
    for event in chain(sample, following, rest):
        count += 1
        if isinstance(event, Damaged):
            damaged.append(event)
        print_event(event, columns)
    refuse_damage(damaged)
    return count


def check_types(names: Iterable[str], option: str, *, also: str | None = None) -> None:
    """Refuse a type that no event can have.

    Args:
        also: Another word that may stand there.

    Raises:
        Failure: It has no dot, and fmemory has none of that name.
    """
    from fmemory import replay

    for name in sorted(set(names) - {also}):
        if "." not in name and name not in replay.EVENT_TYPES:
            others = "" if also is None else f"{also}, "
            raise Failure(
                f"{option}: expected {others}a type with a dot, or one of"
                f" {', '.join(sorted(replay.EVENT_TYPES))}, got {name!r}"
            )


def print_event(event: Event | Damaged, columns: EventColumns | None) -> None:
    """An event in columns or, without, as JSON; what is damaged is said so in its place."""
    if isinstance(event, Damaged):
        if columns is None:
            print_json({"seq": event.seq, "damaged": event.problem})
        else:
            print_text(str(event), indent=2, style=BAD)
    elif columns is None:
        print_json(event.to_dict())
    else:
        columns.print_event(event)


class EventColumns:
    """The columns of a list of events: their widths are chosen once, from a sample.

    Args:
        complete: The sample is all there is, so what all its events share is said once, above.
    """

    def __init__(self, sample: Sequence[Event], *, utc: bool, complete: bool) -> None:
        self._utc = utc
        self._day: date | None = None
        self._reason: str | None = None
        self._seq_cells = max((len(str(event.seq)) for event in sample), default=3)
        self._seq_cells = max(self._seq_cells, 3)
        self._shared: list[str] = []
        self._cells: dict[str, int] = {}
        if any(event.occurred_at is not None for event in sample):
            self._shared.append("times of imported events are those when they happened")
        for name in _HEADERS:
            values = {_value(event, name) for event in sample}
            if complete and values == {""}:
                continue
            if complete and name == "run" and all(_is_run_of_session(event) for event in sample):
                continue
            if complete and len(values) == 1 and len(sample) > 1 and name != "type":
                self._shared.append(_shared_words(sample[0], name))
                continue
            least = len(name) if complete else _TYPICAL[name]
            self._cells[name] = min(max(map(cells_of, values), default=least), _WIDEST[name])
            self._cells[name] = max(self._cells[name], least)
        self._streams_whole = True
        self._make_room(sample)

    def print_header(self) -> None:
        """The names of the columns, after what all events share."""
        if self._shared:
            print_line(("; ".join(self._shared), FAINT))
        time = fit("time", self._time_cells)
        names = [fit(_HEADERS[name], cells) for name, cells in self._cells.items()]
        line = "  ".join(["seq".rjust(self._seq_cells), time, *names, "what"])
        print_line((line, FAINT))

    def print_event(self, event: Event) -> None:
        """One line; before it the day, where another one begins."""
        at = _zoned(shown_time(event), utc=self._utc)
        if at.date() != self._day:
            self._day = at.date()
            print_line((f"{at:%A, %Y-%m-%d}{' UTC' if self._utc else ''}", STRONG))
        time = f"{at:%H:%M:%S}" + ("Z" if self._utc else "")
        parts: list[Part] = [(str(event.seq).rjust(self._seq_cells), NUMBER), "  ", (time, FAINT)]
        for name, cells in self._cells.items():
            value = _value(event, name, self._streams_whole)
            shown = fit_ends(value, cells) if name in _IDS else fit(value, cells)
            parts += ["  ", (shown, _STYLES[name])]
        # The reason of many events in a row, as those of an import, is said once.
        print_line(*parts, "  ", describe(event, with_reason=event.reason != self._reason))
        self._reason = event.reason

    @property
    def _time_cells(self) -> int:
        return 9 if self._utc else 8

    def _make_room(self, sample: Sequence[Event]) -> None:
        if self._what_cells() < WHAT_CELLS_MIN and "stream" in self._cells:
            self._streams_whole = False
            short = max((cells_of(short_stream(event.stream)) for event in sample), default=0)
            self._cells["stream"] = min(max(short, len("stream")), self._cells["stream"])
        for name, narrowest in _NARROWEST:
            missing = WHAT_CELLS_MIN - self._what_cells()
            if missing > 0 and self._cells.get(name, 0) > narrowest:
                self._cells[name] = max(narrowest, self._cells[name] - missing)

    def _what_cells(self) -> int:
        taken = self._seq_cells + 2 + self._time_cells + 2
        return width() - taken - sum(cells + 2 for cells in self._cells.values())


def shown_time(event: Event) -> datetime:
    """When it happened, where that is known, as for imported events; else when it was recorded."""
    return event.occurred_at or event.recorded_at


def _value(event: Event, name: str, whole: bool = True) -> str:
    match name:
        case "stream":
            return show_stream(event.stream) if whole else short_stream(event.stream)
        case "type":
            return event.type
        case "who":
            return event.actor or ""
        case _:
            return event.run_id or ""


def _shared_words(event: Event, name: str) -> str:
    value = _value(event, name)
    return {"stream": f"stream {value}", "who": f"by {value}", "run": f"in run {value}"}[name]


def _is_run_of_session(event: Event) -> bool:
    """Whether the run is called as the session, as importers do: the stream tells it already."""
    return event.run_id is None or event.stream[1:] == (event.run_id,)


def _zoned(time: datetime, *, utc: bool) -> datetime:
    return time.astimezone(UTC) if utc else time.astimezone()
