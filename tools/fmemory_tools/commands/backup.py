"""`fmemory backup`: a verified copy to fall back on, brought up to date each time."""

from __future__ import annotations

from typing import Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, examples
from fmemory_tools.commands.copy import copy

EPILOG = examples(
    "fmemory backup /mnt/disk/memory",
    "fmemory backup sqlite:////mnt/disk/memory.db -s ./memory",
    note="Exit code: 0 fine, 1 the source or the backup is damaged, 2 the target holds other"
    " events, 3 cannot open.",
)


def backup(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Where to: as -s takes it; created if not there."),
    ],
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Back a store up while others write to it.

    The same target again brings what came since. The backup is verified, has the same head and is
    a store like any other: to restore, back it up to where the lost one was. What is erased here
    later is still in it; docs/erasure.md says what to do about that.
    """
    copy(target, json=json, store=store)
