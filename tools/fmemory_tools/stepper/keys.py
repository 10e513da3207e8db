"""Keys as in `less`: what each asks for, and the number that may be typed before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NUMBER_MAX: Final = 10**18


class Act(StrEnum):
    """What a key asks for."""

    DOWN = "down"
    UP = "up"
    PAGE_DOWN = "page down"
    PAGE_UP = "page up"
    HALF_DOWN = "half a page down"
    HALF_UP = "half a page up"
    FIRST = "first"
    LAST = "last"
    PERCENT = "percent"
    FOLLOW = "follow"
    SEARCH = "search"
    NEXT = "next match"
    PREVIOUS = "previous match"
    OPEN = "open"
    NEXT_PANE = "next pane"
    LAST_PANE = "last pane"
    TEXT_DOWN = "text down"
    TEXT_UP = "text up"
    HELP = "help"
    RELOAD = "reload"
    STOP = "stop"
    SUSPEND = "suspend"
    QUIT = "quit"


_KEYS: Final = {
    Act.DOWN: "j down e ctrl+e ctrl+n",
    Act.UP: "k up y ctrl+y ctrl+p",
    Act.PAGE_DOWN: "space f pagedown ctrl+f ctrl+v",
    Act.PAGE_UP: "b pageup ctrl+b",
    Act.HALF_DOWN: "d ctrl+d",
    Act.HALF_UP: "u ctrl+u",
    Act.FIRST: "g < home",
    Act.LAST: "G > end",
    Act.PERCENT: "p %",
    Act.FOLLOW: "F",
    Act.SEARCH: "/",
    Act.NEXT: "n",
    Act.PREVIOUS: "N",
    Act.OPEN: "enter",
    Act.NEXT_PANE: "tab",
    Act.LAST_PANE: "shift+tab",
    Act.TEXT_DOWN: "J",
    Act.TEXT_UP: "K",
    Act.HELP: "? h",
    Act.RELOAD: "R",
    Act.STOP: "escape ctrl+c",
    Act.SUSPEND: "ctrl+z",
    Act.QUIT: "q Q ctrl+q",
}
ACTS: Final = {key: act for act, keys in _KEYS.items() for key in keys.split()}
"""Key, by its character or by name, and what it asks for."""


@dataclass(slots=True)
class KeyReader:
    """Collects the digits of a number and gives it with the key that follows.

    >>> reader = KeyReader()
    >>> [reader.read(key) for key in "812g"][-1]
    (<Act.FIRST: 'first'>, 812)
    """

    digits: str = ""

    def read(self, key: str) -> tuple[Act | None, int | None]:
        """What a key asks for and the number typed before it; None where there is neither."""
        if len(key) == 1 and key in "0123456789":
            self.digits = str(min(int(self.digits + key), NUMBER_MAX))
            return None, None
        if key == "backspace" and self.digits:
            self.digits = self.digits[:-1]
            return None, None
        number = int(self.digits) if self.digits else None
        self.digits = ""
        return ACTS.get(key), number


HELP: Final = """\
KEYS, AS IN LESS

  j  k  down  up       the next or previous event; 10j goes ten on
  space  b             a page on or back; d and u half a page
  g  G                 the first or the last event
  812g                 event 812, or the session's last one before it
  50p                  half way through the session
  F                    go to the end and follow it; any move ends that
  /pattern             the next event in which a regular expression is found
  n  N                 the same again, on or back
  Enter                the whole event, page by page
  Tab                  keys go to the next pane; Esc brings them back
  J  K                 scroll what the event holds
  R                    read again what was read, as after an erasure
  Ctrl-C               end a search, or following
  ?  h                 these keys
  q                    quit

WHAT IS SHOWN

  The list has the events of the session: seq, time, and what happened. Below
  it, or beside it, stands what the selected event changed and holds, and the
  session as it was right after that event: ▸ marks what the event changed.

  A pattern is looked for in everything that an event tells: type, who, run,
  why, and every text in its data. Case counts if the pattern has capitals.

  Erased, forgotten, lost and damaged events are in the list and say so. What
  they held is left out of the state. Nothing here writes to the store.
"""
