"""`fmemory show`: everything of one event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, examples
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from fmemory import Event
    from fmemory_tools._console import Part

EPILOG = examples("fmemory show 812", "fmemory show 812 --json | jq .data")


def show(
    seq: Annotated[
        int, typer.Argument(metavar="SEQ", help="Number of the event.", parser=whole_number("SEQ"))
    ],
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show one event: who, when, why, and its data."""
    from fmemory_tools._console import print_json
    from fmemory_tools._failure import Failure
    from fmemory_tools._sessions import newest_seq, no_such_seq
    from fmemory_tools._store import reading

    with reading(store) as memory:
        newest = newest_seq(memory)
        if seq > newest:
            raise Failure(no_such_seq(seq, newest))
        event = memory.event(seq)
    if json:
        print_json(event.to_dict())
    else:
        _print(event, utc=utc)


def _print(event: Event, *, utc: bool) -> None:
    from fmemory_tools._console import FAINT, KIND, NUMBER, STRONG, WHO, print_line
    from fmemory_tools._summary import show_stream
    from fmemory_tools._times import show_time

    print_line(("event ", STRONG), (str(event.seq), NUMBER), "  ", (event.type, KIND))
    occurred = event.occurred_at
    fields: list[tuple[str, str | None, str]] = [
        ("stream", f"{show_stream(event.stream)} (revision {event.revision})", ""),
        ("recorded", show_time(event.recorded_at, utc=utc), ""),
        ("occurred", None if occurred is None else show_time(occurred, utc=utc), ""),
        ("who", event.actor, WHO),
        ("run", event.run_id, WHO),
        ("why", event.reason, STRONG),
        ("event id", event.event_id, FAINT),
    ]
    for name, value, style in fields:
        if value is not None:
            label: Part = (f"{name:<10}", FAINT)
            print_line(label, (value, style))
    _print_content(event, utc=utc)


def _print_content(event: Event, *, utc: bool) -> None:
    from fmemory import MemoryRecord
    from fmemory_tools._console import BAD, FAINT, print_line, print_text
    from fmemory_tools._summary import FORGOTTEN_TYPE
    from fmemory_tools._values import print_record, print_value

    if event.type == FORGOTTEN_TYPE:
        print_line(("a compaction forgot who and what it was; it was deleted before that", FAINT))
    elif event.lost:
        print_line(("its data is lost: a repair found it damaged", BAD))
    elif event.erased:
        print_line(("its data was erased; what it was is known by its digest only", FAINT))
    for record in event.records:
        if isinstance(record, MemoryRecord):
            print_record(record, indent=0, utc=utc)
        else:
            print_line(record.id, ("  lost", BAD) if record.lost else ("  erased", FAINT))
    if isinstance(event.data, bytes):
        print_line((f"data: {len(event.data)} bytes", FAINT))
        print_text(event.data.hex(" ", 4), indent=2, lines_max=20)
    elif event.data is not None:
        print_line(("data:", FAINT))
        print_value(event.data, indent=2)
