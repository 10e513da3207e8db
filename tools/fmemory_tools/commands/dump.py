"""`fmemory dump`: the records of a namespace as a memory file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmemory_tools._options import NamespaceOption, StoreOption, examples

EPILOG = examples(
    "fmemory dump notes.jsonl",
    "fmemory dump ada.jsonl.gz --namespace users/ada",
    "fmemory dump -",
    note="Exit code: 0 fine, 1 there is no such namespace and no file was written.",
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

    The records of one namespace, with their vectors, as portable JSON Lines. Without --namespace
    it is the root namespace; records of others are counted on stderr.
    """
    import sys

    from fmemory_tools._console import print_text, progress
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._namespaces import no_namespace, tell_others
    from fmemory_tools._sessions import namespaces
    from fmemory_tools._store import reading
    from fmemory_tools._summary import parse_namespace

    labels = parse_namespace(namespace)
    with reading(store) as memory:
        if labels and not any(one == labels for one in namespaces(memory, labels)):
            raise Failure(no_namespace(memory, namespace or "", "nothing was written"), FINDING)
        if str(file) == "-":
            memory.dump(sys.stdout, labels)
        elif file.exists() and not force:
            raise Failure(f"{file} is there already: give another name, or --force to replace it")
        else:
            with progress(f"dumping to {file.name}"):
                count = memory.dump(file, labels)
            print_text(f"{count} record{'' if count == 1 else 's'} written to {file}")
        if namespace is None:
            tell_others(memory, "dumped", "dumps")
