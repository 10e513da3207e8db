"""`fmemory load`: the records of a memory file into a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fmemory_tools._options import NamespaceOption, StoreOption, examples, file_to_read

EPILOG = examples(
    "fmemory load notes.jsonl -s ./memory", "fmemory load ada.jsonl.gz --namespace ada"
)


def load(
    file: Annotated[Path, file_to_read("Memory file, as dump writes it; gzip if it ends in .gz.")],
    namespace: NamespaceOption = None,
    store: StoreOption = None,
) -> None:
    """Store the records of a memory file.

    All of them, or none if anything is wrong with the file.

    The store named by -s is created if it is not there. With --namespace all records go there.
    """
    from fmemory import MemoryFileError
    from fmemory.memory_file import MemoryFileReader
    from fmemory_tools._console import print_text, progress
    from fmemory_tools._failure import Failure
    from fmemory_tools._store import find_store, is_there, writing
    from fmemory_tools._summary import parse_namespace
    from fmemory_tools.commands.imports import advice_on
    from fmemory_tools.importers._shape import MEMORY_FILE, shape_of

    labels = None if namespace is None else parse_namespace(namespace)
    try:
        if not is_there(find_store(store)):
            # A file that is wrong must not leave a store behind.
            with progress(f"checking {file.name}"), MemoryFileReader(file, labels):
                pass
        with writing(store) as memory, progress(f"loading {file.name}"):
            count = memory.load(file, labels)
    except MemoryFileError as error:
        found = shape_of(file.read_bytes()) if error.line == 1 else None
        if found is None or found == MEMORY_FILE:
            raise
        raise Failure(f"{file.name}: {advice_on(found, file)}; nothing was loaded") from error
    print_text(f"{count} record{'' if count == 1 else 's'} loaded from {file}")
