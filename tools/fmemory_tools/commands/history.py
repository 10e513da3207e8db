"""`fmemory history`: what happened to one session or one record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import (
    DAMAGE_NOTE,
    JsonOption,
    NamespaceOption,
    SessionOption,
    StoreOption,
    UtcOption,
    examples,
)

if TYPE_CHECKING:
    from fmemory import Event, LogBackend
    from fmemory_tools._damage import Damaged

EPILOG = examples(
    "fmemory history",
    "fmemory history --session login",
    "fmemory history --record note-7 --namespace users/ada",
    note=DAMAGE_NOTE,
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
            events = _of_session(memory, choose_session(memory, session))
        else:
            events = _of_record(memory, record, parse_namespace(namespace))
            first = next(events, None)
            if first is None:
                where = f"in namespace {namespace}" if namespace else "in the root namespace"
                raise Failure(f"no record {record!r} {where}; --namespace A/B names another one")
            events = chain([first], events)
        print_events(events, json=json, utc=utc)


def _of_session(memory: LogBackend, session_id: str) -> Iterator[Event | Damaged]:
    from fmemory_tools._damage import readable

    stream = ("session", session_id)
    return readable(lambda after, limit: memory.events(after, stream=stream, limit=limit))


def _of_record(
    memory: LogBackend, record_id: str, namespace: tuple[str, ...]
) -> Iterator[Event | Damaged]:
    from fmemory import LogCorrupt
    from fmemory_tools._damage import Damaged, readable

    try:
        yield from list(memory.history(record_id=record_id, namespace=namespace))
    except LogCorrupt:
        stream = ("records", *namespace)
        for event in readable(
            lambda after, limit: memory.events(after, stream=stream, limit=limit)
        ):
            if isinstance(event, Damaged) or _is_about(event, record_id):
                yield event


def _is_about(event: Event, record_id: str) -> bool:
    """Whether an event of a namespace puts, deletes or clears this record."""
    if event.type == "records_deleted" and isinstance(event.data, dict):
        ids = event.data.get("ids")
        return isinstance(ids, list) and record_id in ids
    return event.type == "records_cleared" or any(one.id == record_id for one in event.records)
