"""`fmemory report`: what a person wants to know first of a run that failed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import (
    DAMAGE_NOTE,
    JsonOption,
    StoreOption,
    UtcOption,
    WithinSessionOption,
    examples,
)

if TYPE_CHECKING:
    from fmemory import LogBackend
    from fmemory.replay import RunReport

EPILOG = examples(
    "fmemory report",
    "fmemory report run-7",
    "fmemory report run-1 --session login",
    "fmemory report login --json | jq .first_error",
    "fmemory report login --html login.html",
    note=DAMAGE_NOTE,
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
    session: WithinSessionOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write a page for a browser to a new file instead; see `fmemory html`.",
            show_default=False,
        ),
    ] = None,
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
    from fmemory_tools._damage import refuse_unreadable
    from fmemory_tools._html_file import tell_written, write_page
    from fmemory_tools._report_view import print_report
    from fmemory_tools._store import reading

    with reading(store) as memory:
        found = _report(memory, name, session, utc=utc)
        if html is not None:
            written = write_page(memory, found.run_id, found.session_id, html)
            tell_written(written, json=json)
            refuse_unreadable(written.damaged)
            return
    if json:
        print_json(found.to_dict())
    else:
        print_report(found, store=store, utc=utc)
    refuse_unreadable(found.unreadable)


def _report(memory: LogBackend, name: str | None, session: str | None, *, utc: bool) -> RunReport:
    """The report of what is named in full, or by a beginning that only one has."""
    from fmemory import replay
    from fmemory_tools._named import ask_by_name
    from fmemory_tools._sessions import choose_session

    if session or name is None:
        session = choose_session(memory, session, utc=utc)
    of = session
    return ask_by_name(memory, name, of, lambda one: replay.report(memory, one, session_id=of))
