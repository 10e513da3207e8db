"""`fmemory records`: the records of a namespace, by time, by text or by likeness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, NamespaceOption, StoreOption, UtcOption, examples
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from datetime import datetime

    from fmemory import TimeRange
    from fmemory.replay import FoundRecords

EPILOG = examples(
    "fmemory records",
    "fmemory records --namespace users/ada --since '2d ago'",
    "fmemory records --text tokens --limit 5 --json",
    "fmemory records --near note-7 --limit 5",
    note="Exit code: 0 fine, 1 there is no such namespace.",
)
RECORDS_SHOWN = 50


def records(
    namespace: NamespaceOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only records of this time or later."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only records before this time.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", metavar="TEXT", help="Only notes with this text, in whatever capitals."
        ),
    ] = None,
    near: Annotated[
        str | None,
        typer.Option(
            "--near",
            metavar="ID",
            help="The most similar to this record's vector first, with their cosine.",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", parser=whole_number("--limit"), help="At most N."),
    ] = RECORDS_SHOWN,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="SEQ|TIME", help="As of this event, or time of recording."),
    ] = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """List records: notes and vectors, by their own time.

    Of one namespace; without --namespace of the root namespace, and others are counted on stderr.
    """
    from fmemory import replay
    from fmemory_tools._console import print_json
    from fmemory_tools._failure import FINDING, Failure, tell
    from fmemory_tools._namespaces import no_namespace, tell_others
    from fmemory_tools._sessions import namespaces, view_at
    from fmemory_tools._store import reading
    from fmemory_tools._summary import parse_namespace
    from fmemory_tools._times import parse_time

    labels = parse_namespace(namespace)
    when = _range(
        None if since is None else parse_time(since, "--since"),
        None if until is None else parse_time(until, "--until"),
    )
    with reading(store) as memory:
        if labels and not any(one == labels for one in namespaces(memory, labels)):
            raise Failure(
                no_namespace(memory, namespace or "", "there is nothing to list"), FINDING
            )
        view = memory if at is None else view_at(memory, at, "--at", utc=utc)[0]
        found = replay.records(
            view, namespace=labels, time_range=when, text=text, near=near, limit=limit
        )
        for one in found.records if json else ():
            print_json(one.to_dict())
        if not json:
            _print(found, utc=utc)
        if not found.complete:
            tell("there are more; a greater --limit shows them")
        if namespace is None:
            tell_others(memory, "shown", "lists")


def _range(since: datetime | None, until: datetime | None) -> TimeRange | None:
    from fmemory import TimeRange

    if since is None and until is None:
        return None
    return TimeRange(
        None if since is None else since.timestamp(), None if until is None else until.timestamp()
    )


def _print(found: FoundRecords, *, utc: bool) -> None:
    from fmemory_tools._console import FAINT, print_line
    from fmemory_tools._values import print_record

    if not found.records:
        print_line(("no records", FAINT))
    for one in found.records:
        if one.score is not None:
            print_line((f"{one.score:+.4f}", FAINT))
        print_record(one.record, indent=0 if one.score is None else 2, utc=utc)
