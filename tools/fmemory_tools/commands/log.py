"""`fmemory log`: the events, newest last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import (
    JsonOption,
    NamespaceOption,
    SessionOption,
    StoreOption,
    UtcOption,
    examples,
)

if TYPE_CHECKING:
    from fmemory import Event

EPILOG = examples(
    "fmemory log --session login --type feature_pass_updated",
    "fmemory log --since '2h ago' --actor coder",
    "fmemory log --all --json | jq .type",
)
EVENTS_SHOWN = 50


def log(
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all events instead of the last 50.")
    ] = False,
    session: SessionOption = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", metavar="A/B", help="Only this stream, labels joined by '/'."),
    ] = None,
    namespace: NamespaceOption = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only events of this type; can be repeated."),
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="WHO", help="Only what this actor wrote.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Only events of this run.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Recorded at this time or later."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Recorded before this time."),
    ] = None,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=0, help="Only events after this one.")
    ] = 0,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show the events, the newest last.

    A time is like 2026-02-10T21:54 (local), 2026-02-10T21:54:53Z or '10m ago'.
    """
    from fmemory_tools._event_list import print_events
    from fmemory_tools._failure import Failure
    from fmemory_tools._sessions import choose_session
    from fmemory_tools._store import reading
    from fmemory_tools._summary import parse_namespace, parse_stream
    from fmemory_tools._times import parse_time

    if sum(one is not None for one in (session, stream, namespace)) > 1:
        raise Failure("--session, --stream and --namespace exclude each other: give one of them")
    from_time = None if since is None else parse_time(since, "--since")
    to_time = None if until is None else parse_time(until, "--until")
    with reading(store) as memory:
        streams: list[tuple[str, ...] | None] = [None]
        if session is not None:
            streams = [("session", choose_session(memory, session))]
        elif stream is not None:
            streams = [parse_stream(stream, "--stream")]
        elif namespace is not None:
            labels = parse_namespace(namespace)
            streams = [("records", *labels), ("meta", *labels)]
        found = [
            memory.events(
                after,
                stream=one,
                types=types or None,
                actor=actor,
                run_id=run,
                since=from_time,
                until=to_time,
                backwards=not show_all,
                limit=None if show_all else EVENTS_SHOWN,
            )
            for one in streams
        ]
        print_events(_in_order(found, show_all=show_all), json=json, utc=utc)


def _in_order(found: Sequence[Iterator[Event]], *, show_all: bool) -> Iterator[Event]:
    """The events of several streams by seq, from the first or the last 50."""
    if show_all:
        return merge(*found, key=lambda event: event.seq)
    newest_first = merge(*found, key=lambda event: event.seq, reverse=True)
    return reversed(list(islice(newest_first, EVENTS_SHOWN)))
