"""The terminal view of a session: a list of its events, and what is known of the selected one.

What is stored is read by one worker, in small jobs in a thread, so that keys never wait: the rows
in view first, then the selected event, then a search, then whether the log has grown.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container
from textual.widget import Widget

from fmemory.errors import StorageError
from fmemory_tools._console import BAD, FAINT, KIND, NUMBER, STRONG
from fmemory_tools._damage import Damaged
from fmemory_tools._event_list import shown_time
from fmemory_tools.stepper.content import PANE_CHARACTERS_MAX, event_lines, limited, state_lines
from fmemory_tools.stepper.cursor import Cursor
from fmemory_tools.stepper.keys import ACTS, Act
from fmemory_tools.stepper.lines import Span
from fmemory_tools.stepper.panes import Bar, EventList, TextPane
from fmemory_tools.stepper.screens import LessScreen, Pager, name_of, scroll
from fmemory_tools.stepper.search import look
from fmemory_tools.stepper.states import States
from fmemory_tools.stepper.timeline import Timeline

if TYPE_CHECKING:
    from fmemory import Event, LogBackend

LOOK_S: Final = 0.3
"""So often the log is asked whether it has grown."""
JOB_S: Final = 0.1
"""So long a search goes on before anything else is read."""
EARLY_S: Final = 0.005
"""So often a key that was typed ahead looks whether it is its turn."""
LAYOUT_S_MAX: Final = 1.0
"""So long keys wait at most for a screen to be laid out: a terminal may have no room for it."""
NARROW_CELLS: Final = 64
"""Below this width one pane is shown beside the list; above it, both."""
TALL_LIST_CELLS: Final = 140
"""From this width on the list stands at the left, as high as the screen."""

Show: TypeAlias = Callable[[], None]
"""Shows what a job has read."""
Job: TypeAlias = Callable[[], Show]
"""Reads something, in a thread."""


class StepApp(App[None]):
    """The view of one session.

    Args:
        at: The event that is selected first, or the session's last one before it; None = the first.
        follows: Begin at the end, and stay there while events come.
    """

    TITLE = "fmemory step"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        memory: LogBackend,
        session_id: str,
        *,
        at: int | None = None,
        follows: bool = False,
        utc: bool = False,
    ) -> None:
        super().__init__(ansi_color=True)
        self.events = EventsScreen(memory, session_id, at=at, follows=follows, utc=utc)
        self._typed: deque[events.Key | events.Paste] = deque()
        self._has_typed = asyncio.Event()
        self._has_all = asyncio.Event()

    def on_mount(self) -> None:
        """Show the events, and take keys."""
        self.push_screen(self.events)
        self.run_worker(self._type(), name="keys")

    async def on_event(self, event: events.Event) -> None:
        """Keep what is typed until what was typed before it is done.

        Textual gives a key to what has the focus when the key comes: one that is typed ahead would
        go past the screen or the pattern that the key before it opens.
        """
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        if isinstance(event, events.Key) and event.key == "ctrl+c":
            self._typed.clear()  # As in a terminal: it ends what goes on, and what was to follow.
        if isinstance(event, events.Key) and event.key == "ctrl+j":
            # Enter, as the terminal gives it when it is typed before the screen is there.
            event = events.Key("enter", "\r")
        self._typed.append(event)
        self._has_all.clear()
        self._has_typed.set()

    async def all_typed(self) -> None:
        """Wait until everything that was typed is done with, or the app ends."""
        await self._has_all.wait()

    async def _type(self) -> None:
        """Give on what is typed, one after the other, for as long as the app is there."""
        while self.return_code is None:
            while not self._typed:
                self._has_all.set()
                self._has_typed.clear()
                await self._has_typed.wait()
            until = monotonic() + LAYOUT_S_MAX
            while self._typed and self._is_early(self._typed[0], is_late=monotonic() > until):
                await asyncio.sleep(EARLY_S)
            # Ctrl-C may have come meanwhile.
            if self._typed:
                target = self.focused or self.screen
                await super().on_event(self._typed.popleft())
                await self._taken(target)
        self._has_all.set()

    def _is_early(self, event: events.Key | events.Paste, *, is_late: bool) -> bool:
        """Whether the screen is not ready for what was typed."""
        screen = self.screen
        if not isinstance(screen, LessScreen):
            return not is_late
        act = None
        if isinstance(event, events.Key) and screen.focused is None:
            act = ACTS.get(name_of(event))
        return screen.holds(act) or not (is_late or screen.is_shown(act))

    async def _taken(self, target: Widget) -> None:
        """Wait until a key is done with: it went up to the app, and what it led to as well."""
        for node in [*target.ancestors_with_self] * 2:
            done = asyncio.Event()
            if node.call_later(done.set):
                # What is closed while it is asked does not answer.
                with suppress(TimeoutError):
                    await asyncio.wait_for(done.wait(), LAYOUT_S_MAX)


class EventsScreen(LessScreen):
    """A list of events, the selected one, and the state after it."""

    CSS = (
        LessScreen.CSS
        + """
    EventsScreen {
        #list { height: 45%; min-height: 4; }
        #texts { height: 1fr; layout: horizontal; }
        #event { width: 1fr; }
        #state { width: 1fr; margin-left: 1; }
        &.-narrow #state { display: none; margin-left: 0; }
        &.-narrow.states #state { display: block; }
        &.-narrow.states #event { display: none; }
        &.-wide #main { layout: horizontal; }
        &.-wide #list { width: 1fr; height: 100%; }
        &.-wide #texts { layout: vertical; width: 1fr; height: 100%; margin-left: 1; }
        &.-wide #event { width: 100%; height: 1fr; }
        &.-wide #state { width: 100%; height: 1fr; margin-left: 0; }
    }
    """
    )

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - declared so by textual
        (0, "-narrow"),
        (NARROW_CELLS, "-normal"),
        (TALL_LIST_CELLS, "-wide"),
    ]

    def __init__(
        self, memory: LogBackend, session_id: str, *, at: int | None, follows: bool, utc: bool
    ) -> None:
        super().__init__()
        self.timeline = Timeline(memory, session_id)
        self.states = States(memory, self.timeline)
        self.cursor = Cursor(self.timeline.count)
        self.list = EventList(self.timeline, self.cursor, utc=utc)
        self.panes = (TextPane("event", id="event"), TextPane("state", id="state"))
        self.active: TextPane | None = None
        self.follows = follows
        self.shown: int | None = None
        """The row that the panes tell of."""
        self._session_id = session_id
        self._utc = utc
        self._at: datetime | None = None
        self._said: Span = ("", FAINT)
        self._searched = ""
        self._marked: int | None = None
        self._search: Iterator[tuple[int, bool]] | None = None
        self._asked: deque[Job] = deque()
        self._is_due = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        if follows:
            self.cursor.go(self.timeline.count)
        elif at is not None:
            self.cursor.go(self.timeline.row_at(at))

    def compose(self) -> ComposeResult:
        """The title, the list, the panes and the last line."""
        yield Bar(id="title")
        with Container(id="main"):
            yield self.list
            with Container(id="texts"):
                yield from self.panes
        yield from self.compose_bars()

    def on_mount(self) -> None:
        """Begin to read, and to look for what is new."""
        self.set_interval(LOOK_S, self.look)
        self.run_worker(self._read(), name="reader")
        self._refresh()

    def on_event_list_resized(self) -> None:
        """Other rows are in view."""
        self._refresh()

    def on_event_list_clicked(self, message: EventList.Clicked) -> None:
        """Select the event that was clicked."""
        self._activate(None)
        self._go(message.row)

    def on_event_list_wheeled(self, message: EventList.Wheeled) -> None:
        """Go on or back."""
        self._go(self.cursor.selected + message.rows)

    @property
    def is_laid_out(self) -> bool:
        """Whether the list has rows; the panes are wrapped when they are shown."""
        return self.list.size.height > 0

    def holds(self, act: Act | None) -> bool:
        """Keys wait for what was asked for, and all but those that end it for a search."""
        ends = act in (Act.STOP, Act.QUIT)
        return bool(self._asked) or (self._search is not None and not ends)

    def is_shown(self, act: Act | None) -> bool:
        """Keys that scroll a pane wait until the selected event is in it."""
        scrolls = act in (Act.TEXT_DOWN, Act.TEXT_UP)
        is_told = not scrolls or self.shown == self.cursor.selected
        return super().is_shown(act) and is_told

    async def settled(self) -> None:
        """Wait until all is read that the screen tells."""
        while self._job() is not None:
            self._idle.clear()
            await self._idle.wait()

    def look(self) -> None:
        """Ask whether the log has grown, as soon as there is nothing else to read."""
        self._is_due = True
        self._wake.set()

    # Keys

    def act(self, act: Act, number: int | None) -> None:
        """Move the list, or the pane that keys go to; or do what is the same for both."""
        match act:
            case Act.QUIT:
                self.app.exit()
            case Act.OPEN:
                self._open()
            case Act.NEXT_PANE | Act.LAST_PANE:
                order = [None, *self.panes]
                step = 1 if act is Act.NEXT_PANE else -1
                self._activate(order[(order.index(self.active) + step) % len(order)])
            case Act.TEXT_DOWN:
                scroll(self.active or self.panes[0], Act.DOWN, number)
            case Act.TEXT_UP:
                scroll(self.active or self.panes[0], Act.UP, number)
            case Act.FOLLOW:
                self._follow()
            case Act.RELOAD:
                self._reload()
            case Act.STOP:
                self._stop()
            case _ if self.active is not None:
                scroll(self.active, act, number)
            case _:
                self._move(act, number)

    def find(self, pattern: re.Pattern[str], *, forward: bool) -> None:
        """Look for the next event that matches, or the one before."""
        self.follows = False
        start = self.cursor.selected + (1 if forward else -1)
        self._search = look(self.timeline, pattern, start, forward=forward)
        self._searched = "further on" if forward else "before"
        self._refresh()

    def tell(self, words: str, style: str = FAINT) -> None:
        """Say something in the last line, until the next key."""
        self._said = (words, style)
        self._refresh_bars()

    def _move(self, act: Act, number: int | None) -> None:
        cursor = self.cursor
        match act:
            case Act.DOWN:
                cursor.move(number or 1)
            case Act.UP:
                cursor.move(-(number or 1))
            case Act.PAGE_DOWN | Act.PAGE_UP:
                cursor.page((number or 1) * (1 if act is Act.PAGE_DOWN else -1))
            case Act.HALF_DOWN | Act.HALF_UP:
                cursor.page(0.5 if act is Act.HALF_DOWN else -0.5)
            case Act.PERCENT:
                cursor.go((cursor.count - 1) * min(number or 0, 100) // 100)
            case Act.FIRST if number is None:
                cursor.go(0)
            case Act.LAST if number is None:
                cursor.go(cursor.count)
            case _:
                self._go_to_seq(number or 0)
                return
        self._go(cursor.selected)

    def _go(self, row: int) -> None:
        """Select a row; a search or following ends."""
        self.follows = False
        self._search = None
        self.cursor.go(row)
        self._refresh()

    def _go_to_seq(self, seq: int) -> None:
        def find() -> Show:
            row = self.timeline.row_at(seq)
            return lambda: self._go(row)

        self._ask_for(find)

    def _follow(self) -> None:
        self._activate(None)
        self._go(self.cursor.count)
        self.follows = True
        self._refresh()

    def _stop(self) -> None:
        self._activate(None)
        if self._search is not None:
            self.tell("search ended")
        self._go(self.cursor.selected)

    def _reload(self) -> None:
        def forget() -> Show:
            self.timeline.forget()
            self.states.forget()
            self.shown = None
            return self._refresh

        self._ask_for(forget)

    def _activate(self, pane: TextPane | None) -> None:
        self.active = pane
        for one in self.panes:
            one.activate(one is pane)
        self.set_class(pane is self.panes[1], "states")

    # Reading

    async def _read(self) -> None:
        """Do the jobs, one at a time, for as long as the screen is there."""
        while True:
            self._wake.clear()
            job = self._job()
            if job is None:
                self._idle.set()
                await self._wake.wait()
                continue
            try:
                show = await asyncio.to_thread(job)
            except StorageError as error:
                self._search = None
                self.tell(str(error), BAD)
                await asyncio.sleep(LOOK_S)
            else:
                show()
            if self._asked and job is self._asked[0]:
                self._asked.popleft()

    def _ask_for(self, job: Job) -> None:
        """Have something read before what only the screen needs, in the order of the keys."""
        self._asked.append(job)
        self._wake.set()

    def _job(self) -> Job | None:
        """What is to be read next; None if all is there."""
        if self._asked:
            return self._asked[0]
        page = self.timeline.missing(self.cursor.visible)
        if page is not None:
            return lambda: self._load(page)
        if self.shown != self.cursor.selected:
            row = self.cursor.selected
            return lambda: self._tell_of(row)
        if self._search is not None:
            search = self._search
            return lambda: self._look_on(search)
        return self._look_for_more if self._is_due else None

    def _load(self, page: int) -> Show:
        self.timeline.load(page)
        return self._refresh

    def _tell_of(self, row: int) -> Show:
        event = self.timeline.event(row)
        told = self.states.told(row)
        more = "… Enter shows all of it"
        whole = event_lines(event, told, utc=self._utc)
        held = limited(whole, PANE_CHARACTERS_MAX, more=more)
        state = list(state_lines(told.state, told))

        def show() -> None:
            self.shown = row
            self._at = None if event is None or isinstance(event, Damaged) else shown_time(event)
            mark = self.pattern if self._marked == row else None
            self.panes[0].show(_title(event), held, mark=mark)
            self.panes[1].show_again(_state_title(event), state)
            self._refresh()

        return show

    def _look_on(self, search: Iterator[tuple[int, bool]]) -> Show:
        """Look at more events for a while."""
        until = monotonic() + JOB_S
        row, is_match = next(search, (None, False))
        while row is not None and not is_match and monotonic() < until:
            row, is_match = next(search, (None, False))

        def show() -> None:
            if search is not self._search:
                return
            if row is None:
                self._search = None
                self.tell(f"pattern not found {self._searched}", BAD)
            elif is_match:
                self._found(row)
            else:
                self.tell(
                    f"searching … {row * 100 // max(1, self.timeline.count)}%; Ctrl-C ends it"
                )

        return show

    def _found(self, row: int) -> None:
        self._marked = row
        self.list.mark = self.pattern
        self.shown = None
        self._activate(None)
        self._said = ("", FAINT)
        self._go(row)

    def _look_for_more(self) -> Show:
        self.timeline.refresh()
        is_moved = self.timeline.is_moved

        def show() -> None:
            self._is_due = False
            if is_moved:
                self.follows = False
                self.tell("the store was moved, removed or made anew; q quits", BAD)
            if self.timeline.count != self.cursor.count:
                self.cursor.resize(count=self.timeline.count)
                if self.follows:
                    self.cursor.go(self.timeline.count)
                self._refresh()

        return show

    # Showing

    def _open(self) -> None:
        """Show the event, or the state if its pane is active, page by page."""
        is_state = self.active is self.panes[1]

        def read() -> Show:
            row = self.cursor.selected
            event, told = self.timeline.event(row), self.states.told(row)
            title = _state_title(event) if is_state else _title(event)
            lines = list(
                state_lines(told.state, told)
                if is_state
                else event_lines(event, told, utc=self._utc)
            )
            mark = self.pattern if self._marked == row else None
            return lambda: self._show_page(Pager(title, lines, mark))

        self._ask_for(read)

    def _show_page(self, pager: Pager) -> None:
        self.app.push_screen(pager)

    def _refresh(self) -> None:
        self._wake.set()
        self.list.refresh()
        self._refresh_bars()

    def _refresh_bars(self) -> None:
        count, selected = self.cursor.count, self.cursor.selected
        when = "" if self._at is None else _moment(self._at, utc=self._utc)
        for title in self.query("#title").results(Bar):
            title.say([("session ", FAINT), (self._session_id, STRONG)], [(f"  {when}", FAINT)])
        words = self._said
        if not words[0]:
            words = ("? keys  q quit", FAINT)
            if self.follows:
                words = ("waiting for events; Ctrl-C ends that", KIND)
        share = (selected + 1) * 100 // count if count else 100
        place = f"{min(selected + 1, count):,} of {count:,}  {share}%"
        self.say([words], [(f"  {place}", NUMBER)])


def _title(event: Event | Damaged | None) -> str:
    return "event" if event is None else f"event {event.seq}"


def _state_title(event: Event | Damaged | None) -> str:
    return "state" if event is None else f"state after {event.seq}"


def _moment(at: datetime, *, utc: bool) -> str:
    return (
        f"{at.astimezone(UTC):%a %Y-%m-%d %H:%M:%SZ}"
        if utc
        else f"{at.astimezone():%a %Y-%m-%d %H:%M:%S}"
    )
