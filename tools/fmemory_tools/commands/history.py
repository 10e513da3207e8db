"""`fmemory history`: what happened to one session or one record."""

from __future__ import annotations

from collections.abc import Iterator
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
    "fmemory history",
    "fmemory history --session login",
    "fmemory history --record note-7 --namespace users/ada",
)


def history(
    session: SessionOption = None,
    record: Annotated[
        str | None, typer.Option("--record", metavar="ID", help="A record instead of a session.")
    ] = None,
    namespace: NamespaceOption = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show all that happened to a session or record."""
    from itertools import chain

    from fmemory_tools._event_list import print_events
    from fmemory_tools._failure import Failure
    from fmemory_tools._sessions import choose_session
    from fmemory_tools._store import reading
    from fmemory_tools._summary import parse_namespace

    if session is not None and record is not None:
        raise Failure("--session and --record exclude each other: give one of them")
    if namespace is not None and record is None:
        raise Failure("--namespace belongs to --record: name the record")
    with reading(store) as memory:
        if record is None:
            events: Iterator[Event] = memory.history(session_id=choose_session(memory, session))
        else:
            labels = parse_namespace(namespace)
            events = memory.history(record_id=record, namespace=labels)
            first = next(events, None)
            if first is None:
                where = f"in namespace {namespace}" if namespace else "in the root namespace"
                raise Failure(f"no record {record!r} {where}; --namespace A/B names another one")
            events = chain([first], events)
        print_events(events, json=json, utc=utc)
