"""`fmemory repair`: what is intact of a damaged store, in a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, examples

if TYPE_CHECKING:
    from fmemory import RepairResult

EPILOG = examples(
    "fmemory repair ./repaired -s ./damaged",
    "fmemory repair sqlite:///repaired.db -s sqlite:///damaged.db",
    note="Exit code: 0 nothing was lost, 1 something was lost, 2 the target is not empty, 3 the"
    " store cannot be read.",
)


def repair(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A new store: as -s takes it; nothing may be there."),
    ],
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Salvage every intact event of a damaged store into a new one.

    The damaged store is only read, and need not open. Events keep their numbers; where one was
    lost, a placeholder has its number. Each gap is told. Stop what writes to the store before.
    """
    import fmemory
    from fmemory_tools._console import print_json, progress
    from fmemory_tools._failure import CANNOT_OPEN, FINDING, USAGE, Failure
    from fmemory_tools._store import check_target, find_store, shown

    source = find_store(store)
    check_target(target, source)
    try:
        with progress(f"salvaging into {shown(target)}"):
            result = fmemory.repair(source, target)
    except (fmemory.Conflict, fmemory.ContractError) as error:
        raise Failure(str(error), USAGE) from error
    except (fmemory.MemoryBackendError, OSError) as error:
        raise Failure(str(error), CANNOT_OPEN) from error
    if json:
        print_json({"source": shown(source), "target": shown(target), **result.to_dict()})
    else:
        _print(result, shown(target))
    raise typer.Exit(0 if result.is_whole else FINDING)


def _print(result: RepairResult, target: str) -> None:
    from fmemory_tools._console import (
        BAD,
        FAINT,
        GOOD,
        NUMBER,
        Part,
        print_entry,
        print_table,
        print_text,
    )

    print_text(f"{_count(result.salvaged, 'event')} salvaged into {target}")
    rows: list[Sequence[Part]] = [
        [
            (_range(one.first_seq, one.last_seq), NUMBER),
            ("lost", BAD),
            (one.file or "", FAINT),
            "" if one.offset is None else f"{one.offset:,}",
        ]
        for one in result.lost
    ]
    rows += [
        [
            (str(one.seq), NUMBER),
            (_what(one.keys, is_payload_lost=one.is_payload_lost), BAD),
            (one.file or "", FAINT),
            "" if one.offset is None else f"{one.offset:,}",
        ]
        for one in result.damaged
    ]
    if rows:
        print_table(["event", "what", "file", "byte"], rows, right=[3])
    for gap in result.lost:
        print_text(f"{_count(gap.event_count, 'event')} lost, {gap.first_seq} on: {gap.reason}")
        for stream in gap.streams:
            print_text(f"  of stream {'/'.join(stream)}")
    for event in result.damaged:
        lost = f" (records {', '.join(event.keys)})" if event.keys else ""
        print_text(f"event {event.seq}: {event.reason}{lost}")
    for notice in result.notices:
        print_text(notice)
    if not result.is_end_known:
        print_entry(("unknown", BAD), text="whether newer events were there, and how many")
    if result.is_whole:
        words = " and the head is the same" if result.head_matches else ""
        print_entry(("nothing was lost", GOOD), text=words)
    print_entry(("  head", FAINT), text=result.head)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _range(first_seq: int, last_seq: int) -> str:
    return str(first_seq) if first_seq == last_seq else f"{first_seq}-{last_seq}"


def _what(keys: Sequence[str], *, is_payload_lost: bool) -> str:
    if keys:
        return f"{_count(len(keys), 'record')} lost"
    return "content lost" if is_payload_lost else "nonces lost"
