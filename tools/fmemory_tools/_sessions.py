"""Which session a command means, and the state of one at a place in the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from fmemory_tools._failure import Failure
from fmemory_tools._times import parse_place, show_time

if TYPE_CHECKING:
    from fmemory import LogBackend, LogView, SessionInfo
    from fmemory.sessions import SessionListing

_NAMED_MAX = 8
_PAGE = 200


def all_sessions(view: SessionListing) -> Iterator[SessionInfo]:
    """Every session, the most recently written first."""
    cursor = None
    while True:
        page = view.list_sessions(_PAGE, cursor)
        yield from page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return


def choose_session(view: LogBackend | LogView, given: str | None) -> str:
    """The id of the session a command means: named, by its beginning, or the only one.

    Raises:
        Failure: There is none, or it is not clear which; the message says which exist.
    """
    if given is not None and view.load_bootstrap_state(given).revision > 0:
        return given
    ids = [info.session_id for info in all_sessions(view)]
    if given is None:
        if len(ids) == 1:
            return ids[0]
        if not ids:
            raise Failure("there is no session here; `fmemory log` shows what there is")
        raise Failure(f"which session? give --session ID, one of: {_named(ids)}")
    matching = [one for one in ids if one.startswith(given)]
    # A sub-agent's id begins with its parent's: the parent is meant, it is the shortest.
    shortest = min(matching, key=len, default=None)
    if shortest is not None and all(one.startswith(shortest) for one in matching):
        return shortest
    if matching:
        raise Failure(f"session {given!r} could be any of: {_named(matching)}")
    known = f"there are: {_named(ids)}" if ids else "there is none"
    raise Failure(f"no session {given!r}; {known}")


def view_at(memory: LogBackend, text: str, option: str, *, utc: bool) -> tuple[LogView, str]:
    """The memory as of a seq or time, and words for a heading.

    Raises:
        Failure: The text is neither, or the log is not that long.
    """
    place = parse_place(text, option)
    if isinstance(place, datetime):
        view = memory.at(place)
        return view, f"{show_time(place, utc=utc)} (event {view.seq})"
    newest = newest_seq(memory)
    if place > newest:
        raise Failure(f"{option}: {no_such_seq(place, newest)}")
    return memory.at(place), f"event {place}"


def newest_seq(memory: LogBackend) -> int:
    """The newest event's number, without the digests that `head()` needs."""
    return memory.health().head_seq


def no_such_seq(seq: int, newest: int) -> str:
    """What to say about a sequence number that is not in the log."""
    there = f"the log has events 1 to {newest}" if newest else "the log is empty"
    return f"there is no event {seq}; {there}"


def _named(ids: list[str]) -> str:
    more = len(ids) - _NAMED_MAX
    return ", ".join(ids[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
