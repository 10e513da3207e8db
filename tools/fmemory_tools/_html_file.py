"""Writing a replay as an HTML file, for the commands that give one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from fmemory_tools._failure import Failure

if TYPE_CHECKING:
    from fmemory import LogBackend
    from fmemory.replay import UnreadableEvent


@dataclass(frozen=True, slots=True)
class Written:
    """A page that was written, how large it is, and which of its events are damaged."""

    file: Path
    size: int
    damaged: tuple[UnreadableEvent, ...] = ()

    def __str__(self) -> str:
        opened = "open it in a browser"
        if self.file.suffix == ".gz":
            opened = "unpack it to open it in a browser"
        return f"{self.size / 1000:,.0f} kB written to {self.file}; {opened}"


def write_page(
    memory: LogBackend, name: str | None, session: str | None, file: Path, *, force: bool = False
) -> Written:
    """Write the page of a session, of a run's session, or of all sessions to a file.

    The file is whole under its name or not there, readable by its owner only, and gzip if its name
    ends in `.gz`. `-` is standard output.

    Raises:
        Failure: It is there already, and may not be replaced.
        NotFound: There is no such session or run.
        ContractError: The name stands for several.
        MemoryFileError: The file cannot be written. What was there before is as it was.
    """
    import sys

    from fmemory._file_writer import FileWriter
    from fmemory.replay._page import page_pieces
    from fmemory_tools._console import progress

    is_stream = str(file) == "-"
    if not is_stream and file.exists() and not force:
        advice = "give another name, remove it, or write it with `fmemory html --force`"
        raise Failure(f"{file} is there already: {advice}")
    if not is_stream and not file.parent.is_dir():
        raise Failure(f"there is no folder {file.parent}: make it first, or give another -o FILE")
    damaged: list[UnreadableEvent] = []
    with progress(f"writing {file.name}"):
        pieces = page_pieces(memory, name, session, damaged.append)
        piece = next(pieces)  # What cannot be shown is told before anything is written.
        size = 0
        with FileWriter(sys.stdout if is_stream else file, what="page") as writer:
            for one in chain([piece], pieces):
                writer.write(one)
                size += len(one)
    if not is_stream:
        size = file.stat().st_size  # What was written may be compressed.
    return Written(file, size, tuple(damaged))


def tell_written(written: Written, *, json: bool) -> None:
    """Say what was written, unless the page itself went to standard output."""
    from fmemory_tools._console import print_json, print_text

    if str(written.file) == "-":
        return
    if json:
        print_json({"file": str(written.file), "bytes": written.size})
    else:
        print_text(str(written))
