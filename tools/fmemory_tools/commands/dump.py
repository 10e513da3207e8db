"""`fmemory dump`: the records of a namespace as a memory file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import NamespaceOption, StoreOption, examples

if TYPE_CHECKING:
    from fmemory import LogBackend

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
    from fmemory_tools._sessions import namespaces
    from fmemory_tools._store import reading
    from fmemory_tools._summary import parse_namespace

    labels = parse_namespace(namespace)
    with reading(store) as memory:
        if labels and not any(one == labels for one in namespaces(memory, labels)):
            raise Failure(_no_namespace(memory, namespace or ""), FINDING)
        if str(file) == "-":
            memory.dump(sys.stdout, labels)
        elif file.exists() and not force:
            raise Failure(f"{file} is there already: give another name, or --force to replace it")
        else:
            with progress(f"dumping to {file.name}"):
                count = memory.dump(file, labels)
            print_text(f"{count} record{'' if count == 1 else 's'} written to {file}")
        if namespace is None:
            _tell_others(memory)


def _no_namespace(memory: LogBackend, given: str) -> str:
    from fmemory_tools._sessions import name_some, namespaces
    from fmemory_tools._summary import show_stream

    names = sorted(show_stream(one) for one in namespaces(memory) if one)
    alike = [name for name in names if name.startswith(given)] or names
    there = f"there are: {name_some(alike)}" if alike else "there is only the root namespace"
    return f"no namespace {given!r}, so nothing was written; {there}"


def _tell_others(memory: LogBackend) -> None:
    """On stderr: which records are not in the file, because they are in other namespaces."""
    from fmemory_tools._sessions import name_some, namespaces
    from fmemory_tools._summary import show_stream

    counts = {
        show_stream(one): memory.count(memory.count_request(namespace=one)).count
        for one in namespaces(memory)
        if one
    }
    named = [f"{name} ({count:,})" for name, count in sorted(counts.items()) if count]
    if named:
        total = sum(counts.values())
        records = f"{total:,} record{'' if total == 1 else 's'}"
        where = f"namespace{'' if len(named) == 1 else 's'} {name_some(named)}"
        words = f"{records} of {where} not dumped; --namespace A/B dumps one of them"
        typer.echo(f"fmemory: {words}", err=True)
