"""The panes: a list of events, a text, and a bar of one line.

They draw cells themselves, row by row, and only rows that are in view. Text reaches the screen as
segments, so nothing in it is ever read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fmemory_tools._console import BAD, FAINT, GOOD, KIND, NUMBER, STRONG, WHO
from fmemory_tools._failure import one_line
from fmemory_tools.stepper.cursor import Cursor
from fmemory_tools.stepper.lines import (
    MATCH,
    PLAIN,
    Line,
    Row,
    Span,
    clean,
    marked,
    wrap,
)
from fmemory_tools.stepper.timeline import EventRow, Timeline

PAINT: Final = {
    PLAIN: Style.null(),
    FAINT: Style(dim=True),
    NUMBER: Style(color="cyan"),
    GOOD: Style(color="green"),
    BAD: Style(color="red"),
    STRONG: Style(bold=True),
    WHO: Style(color="magenta"),
    KIND: Style(color="yellow"),
    MATCH: Style(color="black", bgcolor="yellow"),
}
SELECTED: Final = Style(reverse=True)
WIDE_LIST_CELLS: Final = 100
"""From here on a list has a column for who wrote an event."""
_WHO_CELLS: Final = 12
_KIND_CELLS: Final = 12
_WHEEL_ROWS: Final = 3


def strip_of(spans: Sequence[Span], cells: int, base: Style = PAINT[PLAIN]) -> Strip:
    """Spans as exactly that many cells, cut or padded."""
    segments = [Segment(text, base + PAINT[style]) for text, style in spans]
    return Strip(segments).adjust_cell_length(cells, base)


def fit(text: str, cells: int) -> str:
    """The text in exactly that many cells, its end cut off with an ellipsis."""
    if cell_len(text) <= cells:
        return set_cell_size(text, cells)
    return set_cell_size(text, cells - 1) + "…" if cells > 0 else ""


def fit_end(text: str, cells: int) -> str:
    """The same, with its beginning cut off: what tells types with dots apart is their end."""
    if cell_len(text) <= cells:
        return set_cell_size(text, cells)
    return set_cell_size("…" + text[-(cells - 1) :], cells) if cells > 1 else "…"[:cells]


class Bar(Widget):
    """One line: spans at its left, and spans at its right that are cut last."""

    DEFAULT_CSS = "Bar { height: 1; }"

    def __init__(self, *, id: str) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._left: Sequence[Span] = ()
        self._right: Sequence[Span] = ()

    @property
    def text(self) -> str:
        """What it says, without styles; for tests and for whoever reads it aloud."""
        return "".join(text for text, _ in [*self._left, ("  ", PLAIN), *self._right])

    def say(self, left: Sequence[Span], right: Sequence[Span] = ()) -> None:
        """Show these spans; their text is made safe here."""
        self._left = [(one_line_keeping(text), style) for text, style in left]
        self._right = [(one_line_keeping(text), style) for text, style in right]
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        del y
        width = self.size.width
        right_cells = min(width, sum(cell_len(text) for text, _ in self._right))
        left = strip_of(self._left, max(0, width - right_cells))
        return Strip([*left, *strip_of(self._right, right_cells)])


class EventList(Widget):
    """The events around the selected one; rows that are not loaded yet are dots."""

    ALLOW_SELECT: ClassVar[bool] = False

    class Resized(Message):
        """The list has another height."""

    class Clicked(Message):
        """A row was clicked."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    class Wheeled(Message):
        """The wheel was turned by so many rows."""

        def __init__(self, rows: int) -> None:
            super().__init__()
            self.rows = rows

    def __init__(self, timeline: Timeline, cursor: Cursor, *, utc: bool) -> None:
        super().__init__(id="list")
        self._timeline = timeline
        self._cursor = cursor
        self._utc = utc
        self.mark: re.Pattern[str] | None = None

    def on_resize(self, event: events.Resize) -> None:
        """Keep the selected row in view."""
        self._cursor.resize(height=event.size.height)
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        """Select the row that was clicked."""
        row = self._cursor.top + event.y
        if row < self._cursor.count:
            self.post_message(self.Clicked(row))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go on."""
        event.stop()
        self.post_message(self.Wheeled(_WHEEL_ROWS))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go back."""
        event.stop()
        self.post_message(self.Wheeled(-_WHEEL_ROWS))

    def render_line(self, y: int) -> Strip:
        """One event."""
        width = self.size.width
        number = self._cursor.top + y
        if number >= self._cursor.count:
            return Strip.blank(width)
        row = self._timeline.row(number)
        spans = [(" ·", FAINT)] if row is None else self._spans(row, width)
        if number != self._cursor.selected:
            return strip_of(spans, width)
        return strip_of([(text, PLAIN) for text, _ in spans], width, SELECTED)

    def _spans(self, row: EventRow, width: int) -> list[Span]:
        seq_cells = max(3, len(str(self._timeline.last_seq)))
        spans: list[Span] = [
            (str(row.seq).rjust(seq_cells), NUMBER),
            (f"  {self._time(row)}  ", FAINT),
        ]
        if width >= WIDE_LIST_CELLS:
            spans.append((fit(one_line(row.who), _WHO_CELLS) + "  ", WHO))
        cut = fit_end if "." in row.kind else fit
        spans.append((cut(one_line(row.kind), _KIND_CELLS) + "  ", row.style or STRONG))
        left = width - sum(cell_len(text) for text, _ in spans)
        why = f" ({one_line(row.why)})" if row.why else ""
        words = fit(clean(one_line(row.what)) + why, max(0, left)).rstrip()
        told = [(words, row.style)]
        return spans + (told if self.mark is None else marked(told, self.mark))

    def _time(self, row: EventRow) -> str:
        if row.at is None:
            return "--:--:--"
        return f"{row.at.astimezone(UTC if self._utc else None):%H:%M:%S}"


class TextPane(Widget):
    """A heading and lines of text that can be scrolled."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._title = title
        self._lines: Sequence[Line] = ()
        self._rows: list[Row] = []
        self._new = range(0)
        self.mark: re.Pattern[str] | None = None
        self._width = 0
        self.top = 0
        self.matched = 0
        self.is_active = False

    @property
    def text(self) -> str:
        """What it says, without styles and as wrapped."""
        return "\n".join("".join(text for text, _ in row) for row in self._rows)

    @property
    def is_laid_out(self) -> bool:
        """Whether it has a width, and so rows."""
        return self._width > 0

    @property
    def row_count(self) -> int:
        """Rows of text at the present width."""
        return len(self._rows)

    def show(
        self, title: str, lines: Sequence[Line], *, mark: re.Pattern[str] | None = None
    ) -> None:
        """Show a text from its start, or from where a match is in view."""
        self._title, self._lines, self.mark = title, lines, mark
        self._wrap()
        self.top = 0
        if mark is not None:
            self.go_to_match(0)
        self.refresh()

    def show_again(self, title: str, lines: Sequence[Line]) -> None:
        """Show another version of a text: what is new in it comes into view, if need be."""
        self._title, self._lines = title, lines
        self._wrap()
        self._show_new()
        self.scroll_rows(0)

    def _show_new(self) -> None:
        new, rows = self._new, self.page_rows
        if not new or (self.top < new.start and new.stop <= self.top + rows):
            return
        # All of it, below the line that says what it is part of; of more than fits, its beginning.
        is_above = new.start <= self.top or new.stop - new.start >= rows
        self.top = new.start - 1 if is_above else max(self.top, new.stop - rows)

    def activate(self, is_active: bool) -> None:
        """Show whether keys go here."""
        self.is_active = is_active
        self.refresh()

    @property
    def page_rows(self) -> int:
        """Rows of text in view."""
        return max(1, self.size.height - 1)

    @property
    def bottom(self) -> int:
        """The greatest row that can be the first in view."""
        return max(0, len(self._rows) - self.page_rows)

    def scroll_rows(self, rows: int) -> None:
        """Scroll on, or back."""
        self.top = min(max(0, self.top + rows), self.bottom)
        self.refresh()

    def go_to_match(self, start: int, *, forward: bool = True) -> bool:
        """Bring the nearest row with a match, from a row on or back, into view; if there is one."""
        numbers = (
            range(start, len(self._rows))
            if forward
            else range(min(start, len(self._rows) - 1), -1, -1)
        )
        for number in numbers:
            if any(style == MATCH for _, style in self._rows[number]):
                # With a few rows of what stands before it, unless it is in view anyway.
                before = self.page_rows // 4
                self.top = number - before if number >= self.page_rows else 0
                self.top = min(self.top, self.bottom)
                self.matched = number
                self.refresh()
                return True
        return False

    def on_resize(self) -> None:
        """Wrap the text anew if the width is another one."""
        if not self._width:
            self._wrap()
            self._show_new()
            self.go_to_match(0)
        elif self._width != self.size.width:
            self._wrap()
        self.scroll_rows(0)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll on."""
        event.stop()
        self.scroll_rows(_WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll back."""
        event.stop()
        self.scroll_rows(-_WHEEL_ROWS)

    def render_line(self, y: int) -> Strip:
        """The heading, or a row of text."""
        width = self.size.width
        if y == 0:
            return self._heading(width)
        number = self.top + y - 1
        if number >= len(self._rows):
            return Strip.blank(width)
        return strip_of(self._rows[number], width)

    def _heading(self, width: int) -> Strip:
        style = STRONG if self.is_active else FAINT
        more = " ↑" * (self.top > 0) + " ↓" * (self.top < self.bottom)
        more += " " * bool(more)
        title = fit(f"─ {one_line(self._title)} ", min(width, cell_len(one_line(self._title)) + 3))
        rule = "─" * max(0, width - cell_len(title) - len(more) - 1)
        return strip_of([(title, style), (rule + more + "─", style)], width)

    def _wrap(self) -> None:
        # Before there is a width there are no rows: a long text would have one a character.
        self._width = self.size.width
        lines = self._lines if self._width else ()
        self._rows, self._new = wrap(lines, self._width, self.mark)


def one_line_keeping(text: str) -> str:
    """The text on one line with its spaces, as it may be drawn."""
    return clean(text).replace("\n", " ")
