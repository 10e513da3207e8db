"""`fmemory compact`: take deleted data out for good, and give their space back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, examples

if TYPE_CHECKING:
    from fmemory import CompactResult

EPILOG = examples(
    "fmemory compact",
    "fmemory compact --forget-before '90d ago'",
    "fmemory compact --exclusive -s sqlite:///memory.db    also shrink the file",
    note="Exit code: 0 done, 1 deleted data are still in the store (it says why), 3 cannot open.",
)


def compact(
    forget_before: Annotated[
        str | None,
        typer.Option(
            "--forget-before",
            metavar="SEQ|TIME",
            help="Of events before it that are erased whole, also forget who and why.",
            show_default=False,
        ),
    ] = None,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Also do what keeps others out meanwhile: VACUUM in a database.",
        ),
    ] = False,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Erase what was deleted, and store the rest more compactly.

    Notes, vectors and metadata of deleted records, and all of deleted sessions and streams, leave
    the store. Who put and deleted them, when and why, stays, and the log still proves itself.
    Others may read and write meanwhile.
    """
    from fmemory_tools._console import print_json, progress
    from fmemory_tools._failure import FINDING
    from fmemory_tools._store import check_there, find_store, shown, writing
    from fmemory_tools._times import parse_place

    before = None if forget_before is None else parse_place(forget_before, "--forget-before")
    target = find_store(store)
    check_there(target)
    with writing(target, create=False) as memory, progress(f"compacting {shown(target)}"):
        result = memory.compact(forget_before=before, exclusive=exclusive)
    if json:
        print_json({**result.to_dict(), "freed_bytes": result.freed_bytes})
    else:
        print_result(result)
    raise typer.Exit(FINDING if result.pending else 0)


def print_result(result: CompactResult) -> None:
    """Print what a compaction did, for people."""
    from fmemory_tools._console import BAD, print_entry, print_text
    from fmemory_tools._values import show_bytes

    records, events = result.erased_records, result.erased_events
    if records or events:
        things = [
            f"{count:,} {word}{'' if count == 1 else 's'}"
            for count, word in ((records, "record"), (events, "other event"))
            if count
        ]
        print_text(f"erased the data of {' and '.join(things)}")
    else:
        print_text("nothing was deleted since the last time: no data were erased")
    if result.forgotten_events:
        count = result.forgotten_events
        print_text(f"forgot who and why of {count:,} event{'' if count == 1 else 's'}")
    before, after = result.bytes_before, result.bytes_after
    if before is not None and after is not None:
        share = f" ({after / before:.0%} of before)" if before and after != before else ""
        what = "its events took " if before != after else ""
        print_text(f"{what}{show_bytes(before)} before, {show_bytes(after)} now{share}")
    for notice in result.notices:
        print_text(notice)
    for sentence in result.pending:
        # The library names its argument, and a person here has an option.
        print_entry(("pending", BAD), text=sentence.replace("exclusive=True", "--exclusive"))
