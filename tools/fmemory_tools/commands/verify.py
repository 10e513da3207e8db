"""`fmemory verify`: is everything as it was written?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, examples

if TYPE_CHECKING:
    from fmemory import Finding, Head

EPILOG = examples(
    "fmemory verify",
    "fmemory verify --head $(cat head.txt)    a head kept elsewhere",
    note="Exit code: 0 all is as it was written, 1 damage was found.",
)


def verify(
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="SEQ:CHAIN",
            help="A head kept elsewhere: also find edits and rollbacks that fit together.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Check every byte of a store, and say what is damaged.

    A folder need not open for that. Nothing is changed.
    """
    from fmemory import Head
    from fmemory_tools._console import GOOD, print_json, print_line, progress
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._store import check_there, find_store, shown

    try:
        pinned = None if head is None else Head.parse(head)
    except ValueError as error:
        raise Failure(f"--head: {error}") from None
    target = find_store(store)
    check_there(target)
    with progress(f"verifying {shown(target)}"):
        findings = findings_of(target, pinned)
    for finding in findings if json else ():
        print_json(_plain(finding))
    damaged = any(one.damage for one in findings)
    if not json and findings:
        _print(findings)
    if not json and not damaged:
        print_line(("fine", GOOD), f": every event in {shown(target)} is as it was written")
    raise typer.Exit(FINDING if damaged else 0)


def findings_of(target: str, pinned: Head | None) -> Sequence[Finding]:
    """What is wrong with a store; a folder need not open for that.

    Raises:
        Failure: It names no store, or a database that does not open.
    """
    from fmemory.config import FilesystemConfig, SegmentsConfig
    from fmemory.journals._jsonl.verify import verify_folder
    from fmemory_segments.filesystem import PosixFileSystem
    from fmemory_segments.verify import verify_store
    from fmemory_tools._store import config_of, reading

    match config_of(target):
        case SegmentsConfig(root=root):
            return verify_store(PosixFileSystem(), Path(root), pinned)
        case FilesystemConfig(root=root):
            return verify_folder(PosixFileSystem(), Path(root), pinned)
    with reading(target) as memory:
        return memory.verify(pinned)


def _print(findings: Sequence[Finding]) -> None:
    from fmemory_tools._console import BAD, FAINT, NUMBER, Part, print_table, print_text

    rows: list[Sequence[Part]] = [
        [
            (show_events(one), NUMBER),
            (one.reason.value.replace("_", " "), BAD if one.damage else ""),
            (one.file or "", FAINT),
            "" if one.offset is None else f"{one.offset:,}",
        ]
        for one in findings
    ]
    print_table(["event", "finding", "file", "byte"], rows, right=[3])
    for one in findings:
        print_text(one.message)


def show_events(finding: Finding) -> str:
    """The events concerned: a number, a range, or nothing."""
    first, last = finding.first_seq, finding.last_seq
    if first is None:
        return ""
    if last is None:
        return f"{first} on"
    return str(first) if first == last else f"{first}-{last}"


def _plain(finding: Finding) -> dict[str, str | int | bool | None]:
    return {
        "reason": finding.reason.value,
        "damage": finding.damage,
        "message": finding.message,
        "file": finding.file,
        "offset": finding.offset,
        "first_seq": finding.first_seq,
        "last_seq": finding.last_seq,
        "key": finding.key,
    }
