"""`fmemory stats`: how much a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmemory import Head, Health, Stats
    from fmemory_tools._damage import Damaged

EPILOG = examples(
    "fmemory stats",
    "fmemory stats --all",
    "fmemory stats --json | jq .record_count",
    note="Exit code: 0 fine, 1 an event is damaged and the head cannot be told.",
)
STREAMS_SHOWN = 10


def stats(
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all streams instead of the largest 10.")
    ] = False,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Show how much a store holds, and its head.

    Events, records and bytes by type and stream, segments, and the chain value to keep elsewhere.
    """
    from fmemory import LogCorrupt
    from fmemory_tools._console import print_json, progress
    from fmemory_tools._damage import damage_of
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._store import reading

    with reading(store) as memory, progress("reading"):
        found, health = memory.stats(), memory.health()
        head: Head | None = None
        damaged: Damaged | None = None
        try:
            head = memory.head()
        except LogCorrupt as error:
            damaged = damage_of(error)
            if damaged is None:
                raise
    if json:
        print_json(
            {
                **found.to_dict(),
                "head": None if head is None else str(head),
                "path": health.path,
                "notices": list(health.notices),
            }
        )
    else:
        _print(found, head, health, None if show_all else STREAMS_SHOWN)
    if damaged is not None:
        raise Failure(f"{damaged}; its head cannot be told", FINDING)


def _print(found: Stats, head: Head | None, health: Health, streams_max: int | None) -> None:
    from fmemory_tools._console import (
        FAINT,
        KIND,
        NUMBER,
        STRONG,
        Part,
        print_entry,
        print_line,
        print_table,
        print_text,
    )
    from fmemory_tools._summary import show_stream
    from fmemory_tools._values import show_bytes

    print_line(("store ", STRONG), health.path or found.kind, (f"  ({found.kind})", FAINT))
    facts: list[tuple[str, str]] = [
        ("events", f"{found.head_seq:,}"),
        ("records", f"{found.record_count:,}"),
        ("sessions", f"{found.session_count:,}"),
        ("streams", f"{found.stream_count:,}"),
    ]
    if found.stored_bytes is not None:
        facts.append(("on disk", show_bytes(found.stored_bytes)))
    if found.segment_count is not None:
        facts.append(("segments", f"{found.segment_count:,}"))
    for name, value in facts:
        print_line((f"{name:<10}", FAINT), (value, NUMBER), indent=2)
    print_entry((f"{'head':<10}", FAINT), text=str(head or "unknown"), indent=2, gap="")
    for notice in health.notices:
        print_text(notice, indent=2)
    if not found.by_type:
        return
    rows: list[Sequence[Part]] = [
        [(one.type, KIND), f"{one.event_count:,}", show_bytes(one.payload_bytes)]
        for one in found.by_type
    ]
    print_line()
    print_table(["type", "events", "data"], rows, right=[1, 2], narrowest={0: 6})
    shown = found.by_stream[:streams_max]
    rows = [
        [show_stream(one.stream), f"{one.event_count:,}", show_bytes(one.payload_bytes)]
        for one in shown
    ]
    print_line()
    print_table(["stream", "events", "data"], rows, right=[1, 2], narrowest={0: 6}, ids=[0])
    more = len(found.by_stream) - len(shown)
    if more:
        print_line((f"and {more:,} more streams (--all shows them)", FAINT))
