"""Options that several commands share, each worded once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fmemory_tools._usage import existing_file

STORE_HELP = (
    "The store: a folder, a database file or a URL (sqlite:///FILE, jsonl:FOLDER,"
    " postgresql://USER@HOST/DATABASE?log=NAME). Default: $FMEMORY_STORE, else the nearest"
    " .fmemory folder upwards."
)
DAMAGE_NOTE = "Exit code: 0 fine, 1 an event is damaged and the rest is shown."

StoreOption = Annotated[
    str | None, typer.Option("-s", "--store", metavar="PATH", help=STORE_HELP, show_default=False)
]
PathArgument = Annotated[
    str | None,
    typer.Argument(metavar="[PATH]", help="The store, as -s names it.", show_default=False),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object a line, for programs.")
]
UtcOption = Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of local time.")]
SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Session id, or enough of its beginning. Not needed if there is only one.",
        show_default=False,
    ),
]
WithinSessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Only this session: its id, or enough of its beginning.",
        show_default=False,
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="A/B",
        help="Namespace, its labels joined by '/'.",
        show_default=False,
    ),
]
SkipBadOption = Annotated[
    bool,
    typer.Option("--skip-bad", help="Leave malformed lines out instead of importing nothing."),
]


def file_to_read(what: str) -> Any:
    """The FILE argument of a command that reads one."""
    return typer.Argument(metavar="FILE", help=what, parser=existing_file("FILE"))


def examples(*lines: str, note: str = "") -> str:
    """An epilog that keeps one example a line, and a note below."""
    text = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    return f"{text}\n\n{note}" if note else text
