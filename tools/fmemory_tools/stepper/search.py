"""Looking through a session for a pattern, from an event on or back."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fmemory_tools._damage import Damaged
from fmemory_tools.stepper.brief import matches
from fmemory_tools.stepper.timeline import Timeline

if TYPE_CHECKING:
    from fmemory import Event

ROWS_AT_A_TIME: Final = 64


class BadPattern(ValueError):  # noqa: N818 - what was typed, told in the status line
    """The text is no regular expression; the message says why."""


def compile_pattern(text: str) -> re.Pattern[str]:
    """The pattern of a text: case counts only if the text has capitals, as with `less -i`.

    >>> bool(compile_pattern("error").search("AssertionError"))
    True
    >>> bool(compile_pattern("Error").search("error"))
    False

    Raises:
        BadPattern: It is no regular expression.
    """
    flags = re.IGNORECASE if text == text.lower() else re.NOFLAG
    try:
        with warnings.catch_warnings():
            # What a later Python may read otherwise is no concern of who types a pattern.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPattern(str(error)) from error


def look(
    timeline: Timeline, pattern: re.Pattern[str], start: int, *, forward: bool
) -> Iterator[tuple[int, bool]]:
    """Each row that is looked at, beginning with `start`, and whether its event matches.

    Raises:
        StorageError: The store failed. Damaged events are passed by.

    Cost: reads the events by pages, as rows are asked for.
    """
    events = _forward(timeline, start) if forward else _backward(timeline, start)
    for event in events:
        yield event.revision - 1, matches(event, pattern)


def _forward(timeline: Timeline, start: int) -> Iterator[Event]:
    for event in timeline.events(start, timeline.count):
        if not isinstance(event, Damaged):
            yield event


def _backward(timeline: Timeline, start: int) -> Iterator[Event]:
    stop = min(start + 1, timeline.count)
    while stop > 0:
        first = max(0, stop - ROWS_AT_A_TIME)
        found = [one for one in timeline.events(first, stop) if not isinstance(one, Damaged)]
        yield from reversed(found)
        stop = first
