"""Screens with the keys of `less`: what they share, and the one that shows a text page by page."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from fmemory_tools._console import BAD, FAINT
from fmemory_tools.stepper.keys import HELP, Act, KeyReader
from fmemory_tools.stepper.lines import Line, Span, text_lines
from fmemory_tools.stepper.panes import Bar, TextPane
from fmemory_tools.stepper.search import BadPattern, compile_pattern


class LessScreen(Screen[None]):
    """Takes keys as `less` does: numbers before them, and a pattern after `/`."""

    CSS = """
    LessScreen { layout: vertical; overflow: hidden; }
    TextPane { height: 1fr; }
    #ask { height: 1; display: none; }
    #slash { width: 1; }
    #pattern { border: none; height: 1; padding: 0; width: 1fr; background: transparent; }
    """
    AUTO_FOCUS: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.pattern: re.Pattern[str] | None = None
        self._keys = KeyReader()

    def compose_bars(self) -> ComposeResult:
        """The last line of the screen: what goes on, or the pattern as it is typed."""
        yield Bar(id="bar")
        slash = Bar(id="slash")
        slash.say([("/", "")])
        yield Horizontal(slash, Input(id="pattern", compact=True), id="ask")

    @property
    @abstractmethod
    def is_laid_out(self) -> bool:
        """Whether what keys move has a place on the terminal."""

    def holds(self, act: Act | None) -> bool:
        """Whether a key must wait until what was asked for before it is there."""
        del act
        return False

    def is_shown(self, act: Act | None) -> bool:
        """Whether what a key acts on is on the screen; keys wait a moment for it."""
        del act
        return self.is_mounted and self.is_laid_out

    def on_key(self, event: events.Key) -> None:
        """Do what a key asks for, unless a pattern is being typed."""
        is_asking = self.focused is not None
        if is_asking and event.key not in ("escape", "ctrl+c"):
            return
        event.stop()
        event.prevent_default()
        if is_asking:
            self._end_asking()
            return
        act, number = self._keys.read(name_of(event))
        if act is None:
            self.tell(self._keys.digits and f":{self._keys.digits}")
        elif act is Act.SEARCH:
            self._ask()
        elif act in (Act.NEXT, Act.PREVIOUS):
            self._find_again(forward=act is Act.NEXT)
        elif act is Act.HELP:
            self.app.push_screen(Pager("keys", list(text_lines(HELP))))
        elif act is Act.SUSPEND:
            self.app.action_suspend_process()
        else:
            self.tell("")
            self.act(act, number)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Look for what was typed; the last pattern again if nothing was."""
        event.stop()
        text = event.value
        self._end_asking()
        if text:
            try:
                self.pattern = compile_pattern(text)
            except BadPattern as error:
                self.tell(f"no regular expression: {error}", BAD)
                return
        self._find_again(forward=True)

    @abstractmethod
    def act(self, act: Act, number: int | None) -> None:
        """Do what a key asks for; `number` was typed before it."""

    @abstractmethod
    def find(self, pattern: re.Pattern[str], *, forward: bool) -> None:
        """Go to the next place, or the one before, where a pattern is found."""

    @abstractmethod
    def tell(self, words: str, style: str = FAINT) -> None:
        """Say something in the last line."""

    def _find_again(self, *, forward: bool) -> None:
        if self.pattern is None:
            self.tell("there is no pattern yet; type / and one")
        else:
            self.find(self.pattern, forward=forward)

    def say(self, left: Sequence[Span], right: Sequence[Span] = ()) -> None:
        """Show these spans in the last line, if the screen has one: not before, and not after."""
        for bar in self.query("#bar").results(Bar):
            bar.say(left, right)

    def _ask(self) -> None:
        self.query_one("#bar").display = False
        self.query_one("#ask").display = True
        typed = self.query_one("#pattern", Input)
        typed.value = ""
        typed.focus()

    def _end_asking(self) -> None:
        self.set_focus(None)
        self.query_one("#ask").display = False
        self.query_one("#bar").display = True


class Pager(LessScreen):
    """A text of any length."""

    def __init__(
        self, title: str, lines: Sequence[Line], pattern: re.Pattern[str] | None = None
    ) -> None:
        super().__init__()
        self.pane = TextPane(title, id="page")
        self._title = title
        self._lines = lines
        self.pattern = pattern

    def compose(self) -> ComposeResult:
        """The text, and the last line."""
        yield self.pane
        yield from self.compose_bars()

    @property
    def is_laid_out(self) -> bool:
        """Whether the text is wrapped."""
        return self.pane.is_laid_out

    def on_mount(self) -> None:
        """Show the text from its start, or where the pattern is found."""
        self.pane.activate(is_active=True)
        self.pane.show(self._title, self._lines, mark=self.pattern)
        self.tell("")

    def act(self, act: Act, number: int | None) -> None:
        """Scroll, or go back to the events."""
        match act:
            case Act.QUIT | Act.OPEN | Act.STOP:
                # One that is gone already has nothing to go back from.
                if self.is_current:
                    self.dismiss()
            case _:
                scroll(self.pane, act, number)

    def find(self, pattern: re.Pattern[str], *, forward: bool) -> None:
        """Go to the next row with a match, or the one before."""
        start = self.pane.matched + (1 if forward else -1)
        if self.pane.mark is not pattern:
            self.pane.show(self._title, self._lines, mark=pattern)
            start = 0
        if start < 0 or not self.pane.go_to_match(start, forward=forward):
            self.tell("pattern not found", BAD)

    def tell(self, words: str, style: str = FAINT) -> None:
        """Say something in the last line."""
        hint = words or "q back  / search  space b  g G"
        self.say([(hint, style)])


def name_of(event: events.Key) -> str:
    """A key as `ACTS` has it: its character, or its name where that says more."""
    is_sign = event.is_printable and event.key != "space"
    return (event.character if is_sign else None) or event.key


def scroll(pane: TextPane, act: Act, number: int | None) -> None:
    """Do with a text what a key asks for; keys that ask for nothing of a text do nothing."""
    rows = {
        Act.DOWN: number or 1,
        Act.PAGE_DOWN: pane.page_rows,
        Act.HALF_DOWN: pane.page_rows // 2,
        Act.FIRST: -pane.row_count if number is None else number - 1 - pane.top,
        Act.LAST: pane.row_count,
        Act.PERCENT: pane.bottom * min(number or 0, 100) // 100 - pane.top,
    }
    opposite = {Act.UP: Act.DOWN, Act.PAGE_UP: Act.PAGE_DOWN, Act.HALF_UP: Act.HALF_DOWN}
    if act in rows:
        pane.scroll_rows(rows[act])
    elif act in opposite:
        pane.scroll_rows(-rows[opposite[act]])
