"""`fmemory tail`: events as they are written, also by other processes."""

from __future__ import annotations

from typing import Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, examples

EPILOG = examples("fmemory tail", "fmemory tail --from 812", "fmemory tail --json | jq .type")
EVENTS_BEFORE = 10


def tail(
    after: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="SEQ",
            min=1,
            help="Begin with this event instead of the last 10.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", metavar="N", min=1, help="Stop after N events.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show events as they are written, until Ctrl-C.

    Other processes may write them.
    """
    import sys
    from itertools import islice

    from fmemory_tools._console import print_json
    from fmemory_tools._event_list import EventColumns
    from fmemory_tools._sessions import newest_seq
    from fmemory_tools._store import reading

    with reading(store) as memory:
        newest = newest_seq(memory)
        begin = max(0, newest - EVENTS_BEFORE) if after is None else after - 1
        columns = None
        if not json:
            sample = list(memory.events(max(0, newest - EVENTS_BEFORE)))
            columns = EventColumns(sample, utc=utc, complete=False)
            columns.print_header()
        for event in islice(memory.follow(begin), count):
            if columns is None:
                print_json(event.to_dict())
            else:
                columns.print_event(event)
            sys.stdout.flush()
