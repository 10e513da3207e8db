"""`fmemory tail`: events as they are written, also by other processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, examples
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from fmemory import Event, LogBackend
    from fmemory_tools._damage import Damaged

EPILOG = examples(
    "fmemory tail",
    "fmemory tail --from 812",
    "fmemory tail --json | jq .type",
    "fmemory tail --until error || echo 'it broke'",
    note="Exit code: 0 --count was reached, 1 what --until names has come, 130 Ctrl-C ended it.",
)
EVENTS_BEFORE = 10
ERROR = "error"


def tail(
    after: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="SEQ",
            parser=whole_number("--from"),
            help="Begin with this event instead of the last 10.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            metavar="N",
            parser=whole_number("--count"),
            help="Stop after N events. Without --from they begin with the last N, of 10 at most.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--until",
            metavar="TYPE|error",
            help="Stop at an event of this type, or one that tells of an error: a failed tool"
            " call, or a run that failed. Looks at events written from now on, or from --from on."
            " Can be repeated.",
        ),
    ] = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show events as they are written, until Ctrl-C.

    Other processes may write them. With --until a script can wait for what it names.
    """
    import sys
    from itertools import islice

    from fmemory_tools._console import print_whole
    from fmemory_tools._damage import Damaged, readable
    from fmemory_tools._event_list import EventColumns, check_types, print_event
    from fmemory_tools._failure import FINDING, tell
    from fmemory_tools._sessions import newest_seq
    from fmemory_tools._store import reading, store_option

    awaited = frozenset(until or ())
    # The wait for a type that no event can have would never end.
    check_types(awaited, "--until", also=ERROR)
    with reading(store) as memory:
        newest = newest_seq(memory)
        if after is not None and after > newest + 1:
            tell(f"waiting for event {after}: the newest is {newest}")
        before = EVENTS_BEFORE if count is None else min(count, EVENTS_BEFORE)
        begin = max(0, newest - before) if after is None else after - 1
        columns = None
        if not json:
            sample = readable(
                lambda seq, limit: memory.events(seq, limit=limit), max(0, newest - EVENTS_BEFORE)
            )
            whole = [event for event in sample if not isinstance(event, Damaged)]
            columns = EventColumns(whole, utc=utc, complete=False)
            columns.print_header()
        looked_at = newest if after is None else begin
        for event in islice(_following(memory, begin), count):
            print_event(event, columns)
            sys.stdout.flush()
            if event.seq > looked_at and _is_awaited(event, awaited):
                if not json:
                    print_whole(f"fmemory show {event.seq}{store_option(store)}", indent=2)
                raise typer.Exit(FINDING)


def _is_awaited(event: Event | Damaged, awaited: frozenset[str]) -> bool:
    from fmemory import replay
    from fmemory_tools._damage import Damaged

    if isinstance(event, Damaged):
        return False
    return event.type in awaited or (ERROR in awaited and replay.tells_error(event))


def _following(memory: LogBackend, after: int) -> Iterator[Event | Damaged]:
    """The events that are there, also the damaged ones, and then each new one."""
    from fmemory import LogCorrupt
    from fmemory_tools._damage import readable

    while True:
        for event in readable(lambda seq, limit: memory.events(seq, limit=limit), after):
            after = event.seq
            yield event
        try:
            for event in memory.follow(after):
                after = event.seq
                yield event
        except LogCorrupt as error:
            if error.seq is None or error.seq <= after:
                raise
