"""Which session a command means, and the state of one at a place in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fmemory._shell import shell_word
from fmemory_tools._failure import Failure, tell
from fmemory_tools._times import parse_place, show_time

if TYPE_CHECKING:
    from fmemory import LogBackend, LogView, SessionInfo
    from fmemory.sessions import SessionListing

_NAMED_MAX = 8
_PAGE = 200
_SUB_AGENT = ".agent-"
"""What imports put between the id of a session and that of its sub-agent."""


def all_sessions(view: SessionListing) -> Iterator[SessionInfo]:
    """Every session, the most recently written first."""
    cursor = None
    while True:
        page = view.list_sessions(_PAGE, cursor)
        yield from page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return


def choose_session(
    memory: LogBackend,
    given: str | None,
    view: LogView | None = None,
    *,
    place: str = "--session ID",
    utc: bool = False,
) -> str:
    """The id of the session a command means: named, by its beginning, or the only one.

    Args:
        view: The moment at which the session must be there; None = now.
        place: Where the command takes the session, as its help calls it.
        utc: How the message shows times.

    Raises:
        Failure: There is none, or it is not clear which, or it is not there at that moment; the
            message says which exist.
    """
    then = memory if view is None else view
    if given is not None and _is_known(memory, view, given, deleted=view is None):
        return given
    ids = _ids(memory, then)
    matching = ids if given is None else meant_by(ids, given)
    if len(matching) == 1:
        return matching[0]
    if given is None and ids:
        raise Failure(f"which session? give {place}, one of: {name_some(ids)}")
    if matching:
        raise Failure(f"session {given!r} could be any of: {name_some(matching)}")
    if view is not None:
        now = [info.session_id for info in all_sessions(memory)]
        later = now if given is None else meant_by(now, given)
        if not later and given is not None and _is_known(memory, None, given, deleted=True):
            later = [given]
        if len(later) == 1:
            raise Failure(_not_there(memory, later[0], view.seq, utc=utc))
        if given is None and later:
            raise Failure(f"at event {view.seq} there is no session yet; now: {name_some(now)}")
    if given is None:
        raise Failure("there is no session here; `fmemory log` shows what there is")
    when = "" if view is None else f" as of event {view.seq}"
    known = f"there are: {name_some(ids)}" if ids else "there is none"
    called = [] if view is not None else _sessions_of_run(memory, given)
    hint = f", but a run of {name_some(called)} is called so" if called else ""
    raise Failure(f"no session {given!r}{when}{hint}; {known}")


def tell_if_deleted(memory: LogBackend, view: LogView, session_id: str, *, utc: bool) -> None:
    """On stderr that a session is deleted as of a moment, if it is."""
    if not _is_known(memory, view, session_id, deleted=False):
        tell(_not_there(memory, session_id, view.seq, utc=utc))


def check_run(memory: LogBackend, run: str, session_id: str | None = None) -> None:
    """Refuse a run that is nowhere, rather than find nothing in it; reads the whole log.

    Raises:
        Failure: There is no such run; the message says which exist.
    """
    from fmemory import replay

    ids = list(dict.fromkeys(one.run_id for one in replay.runs(memory, session_id=session_id)))
    if run not in ids:
        known = f"there are: {name_some(ids)}" if ids else "there is none"
        where = "" if session_id is None else f" in session {session_id!r}"
        raise Failure(f"no run {run!r}{where}; {known}")


def _sessions_of_run(memory: LogBackend, run: str) -> list[str]:
    """The sessions that have a run of this id."""
    from fmemory import replay

    found = [one.session_id for one in replay.runs(memory) if one.run_id == run]
    return list(dict.fromkeys(one for one in found if one is not None))


def meant_by(ids: Sequence[str], given: str) -> list[str]:
    """The id that is given in full; else all that begin so, without sub-agents of others of them.

    An id that a table has shortened stands for all that begin and end as it does.

    >>> meant_by(["login", "login-2", "a", "a.agent-1"], "lo"), meant_by(["a", "a.agent-1"], "a")
    (['login', 'login-2'], ['a'])
    >>> meant_by(["491e126e", "491e77"], "49…26e")
    ['491e126e']
    """
    if given in ids:
        return [given]
    start, _, end = given.partition("…")
    matching = [one for one in ids if one.startswith(start) and one[len(start) :].endswith(end)]
    known = frozenset(matching)
    return [one for one in matching if known.isdisjoint(_callers(one))]


def _callers(session_id: str) -> Iterator[str]:
    """Sessions that a sub-agent was called from, by its id, which begins with theirs."""
    while _SUB_AGENT in session_id:
        session_id = session_id.rpartition(_SUB_AGENT)[0]
        yield session_id


def _ids(memory: LogBackend, then: LogBackend | LogView) -> list[str]:
    """The sessions of a moment; those of now where it is not kept which there were."""
    from fmemory import HistoryCompacted

    try:
        return [info.session_id for info in all_sessions(then)]
    except HistoryCompacted:
        return [info.session_id for info in all_sessions(memory)]


def _is_known(memory: LogBackend, view: LogView | None, session_id: str, *, deleted: bool) -> bool:
    """Whether there is such a session at a moment; a deleted one still has its history.

    Other sessions are not asked: of one that is forgotten nobody could say whether it was there.
    """
    from fmemory import LogCorrupt

    try:
        found = (view or memory).load_bootstrap_state(session_id)
    except LogCorrupt:
        return True
    if found.revision == 0 or found.manifest is not None or deleted:
        return found.revision > 0
    ends = memory.events(stream=("session", session_id), types=("session_deleted",))
    last = max((one.revision for one in ends if one.revision <= found.revision), default=0)
    return last < found.revision


def _not_there(memory: LogBackend, session_id: str, seq: int, *, utc: bool) -> str:
    """Why a session that exists now is not there at an event."""
    first = next(memory.events(stream=("session", session_id), limit=1), None)
    if first is None or first.seq <= seq:
        advice = f"`fmemory history --session {shell_word(session_id)}` shows what it was"
        return f"session {session_id} is deleted as of event {seq}; {advice}"
    recorded = show_time(first.recorded_at, utc=utc)
    begins = f"session {session_id} begins at event {first.seq} (recorded {recorded})"
    text = f"{begins}; at event {seq} there is nothing of it"
    if first.occurred_at is None:
        return text
    return (
        f"{text}. It was imported: its own times, from {show_time(first.occurred_at, utc=utc)} on,"
        " are when things happened, and a time asked for here is when they were recorded"
    )


def view_at(memory: LogBackend, text: str, option: str, *, utc: bool) -> tuple[LogView, str]:
    """The memory as of a seq or time, and words for a heading.

    Raises:
        Failure: The text is neither, or the log is not that long.
    """
    place = parse_place(text, option)
    newest = newest_seq(memory)
    if isinstance(place, datetime):
        view = memory.at(place)
        is_future = place > datetime.now(UTC)
        words = f"the newest event, {view.seq}" if is_future else f"event {view.seq}"
        return view, f"{show_time(place, utc=utc)} ({words})"
    if place > newest:
        raise Failure(f"{option}: {no_such_seq(place, newest)}")
    return memory.at(place), f"event {place}"


def namespaces(memory: LogBackend, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every namespace that has or had records, the most recently written first."""
    return (stream[1:] for stream in all_streams(memory, ("records", *prefix)))


def all_streams(memory: LogBackend, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every stream whose first labels are these, the most recently written first."""
    cursor = None
    while True:
        page = memory.list_streams(prefix, _PAGE, cursor)
        yield from (one.stream for one in page.streams)
        cursor = page.next_cursor
        if cursor is None:
            return


def newest_seq(memory: LogBackend) -> int:
    """The newest event's number, without the digests that `head()` needs."""
    return memory.health().head_seq


def no_such_seq(seq: int, newest: int) -> str:
    """What to say about a sequence number that is not in the log."""
    there = f"the log has events 1 to {newest}" if newest else "the log is empty"
    return f"there is no event {seq}; {there}"


def name_some(ids: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(ids) - _NAMED_MAX
    return ", ".join(ids[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def ranges_of(seqs: Sequence[int]) -> list[str]:
    """Ascending numbers in words, those that follow each other as one range.

    >>> ranges_of([3, 5, 6, 9, 10, 11])
    ['3', '5 to 6', '9 to 11']
    """
    ranges: list[tuple[int, int]] = []
    for seq in seqs:
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return [str(first) if first == last else f"{first} to {last}" for first, last in ranges]
