"""`fmemory report`: what a person wants to know first of a run that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, SessionOption, StoreOption, UtcOption, examples

if TYPE_CHECKING:
    from fmemory import LogBackend
    from fmemory.replay import RunReport

EPILOG = examples(
    "fmemory report",
    "fmemory report run-7",
    "fmemory report run-1 --session login",
    "fmemory report login --json | jq .first_error",
)


def report(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|SESSION]",
            help="Its id, or enough of its beginning. Not needed if there is only one session.",
            show_default=False,
        ),
    ] = None,
    session: SessionOption = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Tell what a run or session did and where it broke.

    Objective, outcome, the first error with the events around it, tool calls never answered,
    features that passed and then did not, who flipped what and why, gaps in time, notes, and what
    takes the bytes. Errors of sub-agents count as those of the session that called them.
    """
    from fmemory_tools._console import print_json
    from fmemory_tools._report_view import print_report
    from fmemory_tools._store import reading

    with reading(store) as memory:
        found = _report(memory, name, session, utc=utc)
    if json:
        print_json(found.to_dict())
    else:
        print_report(found, store=store, utc=utc)


def _report(memory: LogBackend, name: str | None, session: str | None, *, utc: bool) -> RunReport:
    """The report of what is named in full, or by a beginning that only one has."""
    from fmemory import NotFound, replay
    from fmemory_tools._failure import Failure
    from fmemory_tools._sessions import choose_session, name_some

    if session is not None or name is None:
        session = choose_session(memory, session, utc=utc)
    try:
        return replay.report(memory, name, session_id=session)
    except NotFound:
        if name is None:
            raise
    known = _names(memory, session)
    matching = [one for one in known if one.startswith(name)]
    # A sub-agent's id begins with its parent's: the parent is meant, it is the shortest.
    shortest = min(matching, key=len, default="")
    if matching and all(one.startswith(shortest) for one in matching):
        return replay.report(memory, shortest, session_id=session)
    if matching:
        raise Failure(f"{name!r} could be any of: {name_some(matching)}")
    there = f"there are: {name_some(known)}" if known else "there is none"
    raise Failure(f"no run or session {name!r}; {there}")


def _names(memory: LogBackend, session: str | None) -> list[str]:
    from fmemory import replay
    from fmemory_tools._sessions import all_sessions

    names = dict.fromkeys(
        [] if session is not None else [one.session_id for one in all_sessions(memory)]
    )
    names.update({one.run_id: None for one in replay.runs(memory, session_id=session)})
    return list(names)
