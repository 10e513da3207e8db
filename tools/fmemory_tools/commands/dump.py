"""`fmemory dump`: the records of a namespace as a memory file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmemory_tools._options import NamespaceOption, StoreOption, examples

EPILOG = examples(
    "fmemory dump notes.jsonl", "fmemory dump ada.jsonl.gz --namespace users/ada", "fmemory dump -"
)


def dump(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Memory file to write; gzip if it ends in .gz; - = standard output.",
        ),
    ],
    namespace: NamespaceOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Write records to a memory file.

    The records of one namespace, with their vectors, as portable JSON Lines.
    """
    import sys

    from fmemory_tools._console import print_text, progress
    from fmemory_tools._failure import Failure
    from fmemory_tools._store import reading
    from fmemory_tools._summary import parse_namespace

    labels = parse_namespace(namespace)
    with reading(store) as memory:
        if str(file) == "-":
            memory.dump(sys.stdout, labels)
            return
        if file.exists() and not force:
            raise Failure(f"{file} is there already: give another name, or --force to replace it")
        with progress(f"dumping to {file.name}"):
            count = memory.dump(file, labels)
    print_text(f"{count} record{'' if count == 1 else 's'} written to {file}")
