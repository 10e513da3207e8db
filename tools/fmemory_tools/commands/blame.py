"""`fmemory blame`: who set each feature and manifest field, when, in which run and why."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import DAMAGE_NOTE, JsonOption, StoreOption, UtcOption, examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fmemory import LogBackend, LogView
    from fmemory._json_values import JsonValue
    from fmemory.replay import Attribution
    from fmemory_tools._console import Part

EPILOG = examples(
    "fmemory blame login",
    "fmemory blame login form --all",
    "fmemory blame login current_objective",
    "fmemory blame login --json | jq 'select(.after == true)'",
    note=DAMAGE_NOTE,
)
VALUE_CHARACTERS = 200
NAME_CELLS_MAX = 30


def blame(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION]",
            help="Session id, or enough of its beginning. Not needed if there is only one: NAME may"
            " stand alone.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Only this feature or manifest field, also one that was removed.",
            show_default=False,
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all that ever set them, oldest first.")
    ] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="SEQ|TIME", help="As of this event, or time of recording."),
    ] = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show which event set each feature and field last.

    With who wrote it, in which run and why. A value that was written again unchanged was set by
    the event before. What a fork copied is traced into the session it came from.
    """
    from fmemory import replay
    from fmemory_tools._console import print_json, print_session
    from fmemory_tools._sessions import newest_seq, tell_if_deleted, view_at
    from fmemory_tools._store import reading

    with reading(store) as memory:
        view, moment = view_at(
            memory, str(newest_seq(memory)) if at is None else at, "--at", utc=utc
        )
        then = None if at is None else view
        session_id, target = _chosen(memory, session, target, then, utc=utc)
        seq = None if at is None else view.seq
        found = replay.blame(memory, session_id, target, every=show_all, at=seq)
        if show_all or not found:
            tell_if_deleted(memory, view, session_id, utc=utc)
    if json:
        for one in found:
            print_json(one.to_dict())
    else:
        print_session(session_id, "" if at is None else f"as of {moment}")
        _print(found, session_id, utc=utc, every=show_all)
    _refuse_damage(found)


def _chosen(
    memory: LogBackend, given: str | None, target: str | None, then: LogView | None, *, utc: bool
) -> tuple[str, str | None]:
    """Session and name that are meant: one word names what the only session has, if no session."""
    from fmemory import NotFound, replay
    from fmemory_tools._failure import Failure
    from fmemory_tools._sessions import all_sessions, choose_session

    try:
        return choose_session(memory, given, then, place="SESSION", utc=utc), target
    except Failure:
        ids = [one.session_id for one in islice(all_sessions(memory), 2)]
        if given is None or target is not None or len(ids) != 1:
            raise
        with suppress(NotFound):
            replay.blame(memory, ids[0], given, every=True)
            return ids[0], given
        raise


def _print(found: Sequence[Attribution], session_id: str, *, utc: bool, every: bool) -> None:
    """Each event with what it set; consecutive values of one event stand together."""
    from fmemory_tools._console import FAINT, cells_of, print_line

    if not found:
        print_line(("no features and no manifest", FAINT))
    shown = found if every else sorted(found, key=_definitions_last)
    cells = min(max((cells_of(_name(one)) for one in shown), default=0), NAME_CELLS_MAX)
    seq = None
    for one in shown:
        if one.gap is not None:
            print_line(*_gap_words(one))
            continue
        if one.seq != seq:
            seq = one.seq
            _print_event(one, session_id, utc=utc)
        print_line(*_name_words(one, cells), *_value_words(one, every=every), indent=2)


def _definitions_last(one: Attribution) -> int:
    """Whether features pass is what is mostly asked, so it comes before how they are described."""
    return ("passes", "definition").index(one.field) if one.part == "feature" else 2


def _print_event(one: Attribution, session_id: str, *, utc: bool) -> None:
    from fmemory_tools._console import FAINT, NUMBER, WHO, print_entry
    from fmemory_tools._failure import one_line
    from fmemory_tools._times import show_time

    when = "" if one.time is None else show_time(one.time, utc=utc)
    parts: list[Part] = [("event ", FAINT), (str(one.seq), NUMBER), (f"  {when}", FAINT)]
    if one.actor is not None:
        parts += [(" by ", FAINT), (one.actor, WHO)]
    if one.run_id is not None and one.run_id != session_id:
        parts += [(" in run ", FAINT), (one.run_id, WHO)]
    if one.session_id is not None and one.session_id != session_id:
        parts += [(" in session ", FAINT), one.session_id]
    print_entry(*parts, text=one_line(one.reason or ""))


def _name(one: Attribution) -> str:
    return one.name if one.field in ("passes", one.name) else f"{one.name} {one.field}"


def _name_words(one: Attribution, cells: int) -> list[Part]:
    from fmemory_tools._console import FAINT, KIND, fit

    part: Part = (f"{one.part.value:<8}  ", FAINT)
    return [part, (fit(_name(one), cells), KIND), "  "]


def _value_words(one: Attribution, *, every: bool) -> list[Part]:
    from fmemory_tools._console import BAD, GOOD, arrow, check_mark

    if one.change == "removed":
        return [("removed", BAD), f", was {_short(one.before)}"]
    if one.field == "passes":
        words = "passes" if one.after is True else "does not pass"
        return [(f"{check_mark(one.after is True)} {words}", GOOD if one.after is True else BAD)]
    if every and one.change == "changed":
        return [f"{_short(one.before)} {arrow()} {_short(one.after)}"]
    return [_short(one.after)]


def _gap_words(one: Attribution) -> list[Part]:
    from fmemory_tools._console import BAD, NUMBER

    assert one.gap is not None
    words = f"{one.gap.state}: it may have set anything"
    return [("event ", ""), (str(one.seq), NUMBER), (f"  {words}", BAD)]


def _short(value: JsonValue) -> str:
    import json

    from fmemory_tools._summary import shorten

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shorten(text, VALUE_CHARACTERS) if text else '""'


def _refuse_damage(found: Iterable[Attribution]) -> None:
    from fmemory_tools._damage import Damaged, refuse_damage

    gaps = [one.gap for one in found if one.gap is not None]
    refuse_damage([Damaged(one.seq, one.problem) for one in gaps if one.problem is not None])
