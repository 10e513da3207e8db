"""`fmemory html`: a replay as one file for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, WithinSessionOption, examples

EPILOG = examples(
    "fmemory html -o replay.html",
    "fmemory html login -o login.html",
    "fmemory html run-7 -o - | gzip > run-7.html.gz",
    note="Add #812 to the file's address in the browser, and it opens at event 812. Exit code: 0"
    " fine, 1 an event of the page is damaged, which the page shows in its place.",
)


def html(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION|RUN]",
            help="What to show: an id, or enough of its beginning. Default: all sessions.",
            show_default=False,
        ),
    ] = None,
    session: WithinSessionOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="HTML file to write; gzip if it ends in .gz; - = standard output.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Write a page for a browser: timeline, states, messages.

    It is one file that holds everything it shows, and loads nothing. Given a run, the page of its
    session is opened at that run. Whoever gets the file can read all of what it shows.
    """
    from fmemory_tools._damage import refuse_unreadable
    from fmemory_tools._failure import Failure
    from fmemory_tools._html_file import Written, tell_written, write_page
    from fmemory_tools._named import ask_by_name
    from fmemory_tools._sessions import choose_session
    from fmemory_tools._store import reading

    if output is None:
        raise Failure("where to? give -o FILE, such as -o replay.html, or -o - to print it")
    file = output
    with reading(store) as memory:
        of = None if session is None else choose_session(memory, session)

        def write(one: str | None) -> Written:
            return write_page(memory, one, of, file, force=force)

        written = ask_by_name(memory, name, of, write)
    tell_written(written, json=json)
    refuse_unreadable(written.damaged)
