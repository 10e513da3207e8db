"""`fmemory copy`: a whole log into another store, of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, examples

if TYPE_CHECKING:
    from fmemory import CopyResult

EPILOG = examples(
    "fmemory copy sqlite:///memory.db -s ./memory",
    "fmemory copy jsonl:./readable",
    "PGPASSWORD=… fmemory copy 'postgresql://ada@db/agents?log=app'",
    note="Exit code: 0 fine, 1 the source or the copy is damaged, 2 the target holds other events,"
    " 3 cannot open.",
)


def copy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="Where to copy to: as -s takes it; created if not there."
        ),
    ],
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Copy a store into another, of any kind.

    All events with their numbers, times, actors, ids and streams, so that the copy has the same
    head. What is written meanwhile comes with the next copy. One that was interrupted is gone on
    with. The target must be empty, or hold the first of the same events. At the end it is verified.
    """
    from fmemory import LogCorrupt, copy_log
    from fmemory_tools._console import print_json, progress
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._sessions import newest_seq
    from fmemory_tools._store import check_target, find_store, reading, shown, writing

    origin = find_store(store)
    check_target(target, origin)
    with reading(origin) as source, writing(target) as copied:
        last = newest_seq(source)
        total = max(1, last - newest_seq(copied))
        try:
            with progress(f"copying to {shown(target)}", total) as advance:
                result = copy_log(source, copied, upto=last, progress=advance)
        except LogCorrupt as error:
            kept = newest_seq(copied)
            held = f"events 1 to {kept:,}" if kept else "no event"
            raise Failure(f"{error}; {shown(target)} holds {held}", FINDING) from error
        kinds = source.kind, copied.kind
    if json:
        print_json(
            {
                "source": shown(origin),
                "source_kind": kinds[0],
                "target": shown(target),
                "target_kind": kinds[1],
                **result.to_dict(),
            }
        )
    else:
        _print(result, shown(target))


def _print(result: CopyResult, target: str) -> None:
    from fmemory_tools._console import FAINT, GOOD, print_entry, print_text

    events = f"{result.copied:,} event{'' if result.copied == 1 else 's'}"
    if result.copied == 0:
        words = f"nothing to copy: {target} has all {result.present:,} events"
    elif result.present:
        words = f"{events} copied to {target}, {result.present:,} were there already"
    else:
        words = f"{events} copied to {target}"
    print_text(words)
    print_entry(("verified", GOOD), ("  head", FAINT), text=result.head)
