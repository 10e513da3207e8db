"""`fmemory verify`: is everything as it was written?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, PathArgument, StoreOption, examples
from fmemory_tools._usage import existing_file

if TYPE_CHECKING:
    from fmemory import Finding, Head
    from fmemory.signing import SignedHead

EPILOG = examples(
    "fmemory verify",
    "fmemory verify --head heads.txt                      heads kept elsewhere",
    "fmemory verify --head $(tail -1 heads.txt)           the newest of them",
    "fmemory verify --head head.note --key audit.key.pub  a signed one",
    note="Exit code: 0 all is as it was written, 1 damage was found, or a head was changed after it"
    " was signed, 2 wrong usage, 3 cannot open.",
)

_OF_MEANING = frozenset({"not_deleted", "pinned_head"})
"""Findings about bytes that are as they were written: a repair finds nothing to salvage."""


def verify(
    path: PathArgument = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            "--head",
            metavar="HEAD",
            help="A head kept elsewhere (SEQ:CHAIN or a signed one), or a file that holds it: also"
            " find edits and rollbacks that fit together. Several narrow down where.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="Public key of whoever signed; then every head must be signed.",
            parser=existing_file("--key"),
            show_default=False,
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--origin",
            metavar="NAME",
            help="With --key: the name of this log that must be signed.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Check every byte of a store, and say what is damaged.

    A folder need not open for that. Nothing is changed.
    """
    from fmemory_tools._console import (
        GOOD,
        print_json,
        print_line,
        print_text,
        print_whole,
        progress,
    )
    from fmemory_tools._failure import CANNOT_OPEN, FINDING, Failure
    from fmemory_tools._heads import heads_of, load_public_keys
    from fmemory_tools._store import check_there, chosen_store, shown

    if key and not head:
        raise Failure("--key is for signed heads: give one with --head FILE")
    if origin is not None and not key:
        raise Failure("--origin is checked in signed heads: it needs --key FILE and --head FILE")
    heads, signed = heads_of(head or (), load_public_keys(key or ()), origin)
    target = chosen_store(path, store)
    check_there(target)
    with progress(f"verifying {shown(target)}"):
        findings = findings_of(target, heads)
    if not heads and any(one.reason == "missing" for one in findings):
        raise Failure(f"no store in {shown(target)}: it holds no events", CANNOT_OPEN)
    for finding in findings if json else ():
        print_json(_plain(finding))
    damaged = any(one.damage for one in findings)
    if not json:
        _print_signers(signed)
        if findings:
            _print(findings)
        if any(one.damage and one.reason not in _OF_MEANING for one in findings):
            from fmemory._shell import shell_word

            print_text("to salvage what is intact into a new store:")
            print_whole(f"fmemory repair NEW -s {shell_word(shown(target))}", indent=2)
        if not damaged:
            print_line(("fine", GOOD), f": every event in {shown(target)} is as it was written")
            _print_proven(heads)
    raise typer.Exit(FINDING if damaged else 0)


def findings_of(target: str, heads: Sequence[Head] = ()) -> Sequence[Finding]:
    """What is wrong with a store; a folder need not open for that.

    Raises:
        Failure: It names no store, or a database that does not open.
        StorageError: It cannot be read, or a newer version wrote it.
    """
    from fmemory._engine.erasure import undeleted
    from fmemory.config import FilesystemConfig, SegmentsConfig
    from fmemory.journals._jsonl.verify import verify_folder
    from fmemory.journals._segments import raise_translated
    from fmemory_segments.errors import LogError
    from fmemory_segments.filesystem import PosixFileSystem
    from fmemory_segments.verify import verify_store
    from fmemory_tools._store import config_of, reading

    found: Sequence[Finding]
    try:
        match config_of(target):
            case SegmentsConfig(root=root):
                found = verify_store(PosixFileSystem(), Path(root), heads)
            case FilesystemConfig(root=root):
                found = verify_folder(PosixFileSystem(), Path(root), heads)
            case _:
                with reading(target) as memory:
                    return memory.verify(heads or None)
    except LogError as error:
        raise_translated(error)
    if any(one.damage for one in found):
        return found
    # Whole bytes may still lack data that nothing deletes: that only the log's meaning tells.
    with reading(target) as memory:
        return [*found, *undeleted(memory.journal, memory.journal.refresh())]


def _print_signers(signed: Sequence[SignedHead]) -> None:
    from fmemory_tools._console import print_text

    for one in signed:
        seq = one.head.seq
        print_text(f"the head of event {seq} was signed by {one.key_name} for {one.origin}")


def _print_proven(heads: Sequence[Head]) -> None:
    from fmemory_tools._console import print_text

    if heads:
        newest = max(one.seq for one in heads)
        print_text(f"event {newest} and all before are as they were when it was pinned")


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
