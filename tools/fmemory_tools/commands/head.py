"""`fmemory head`: the newest event and the chain value up to it, to be kept elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, PathArgument, StoreOption, examples
from fmemory_tools._usage import existing_file

if TYPE_CHECKING:
    from fmemory import Head

EPILOG = examples(
    "fmemory head >> heads.txt                              keep it elsewhere",
    "fmemory verify --head heads.txt                        and look later",
    "fmemory head --sign audit.key --origin mine > head.note",
    "fmemory verify --head head.note --key audit.key.pub",
    note="Exit code: 0 fine, 1 an event is damaged and the head cannot be told.",
)


def head(
    path: PathArgument = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign",
            metavar="FILE",
            help="Sign it with the private key in this file (fmemory keygen makes one).",
            parser=existing_file("--sign"),
            show_default=False,
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--origin",
            metavar="NAME",
            help="With --sign: a name for this log, which is signed with it.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Print the head: keep it elsewhere, to find tampering later.

    SEQ:CHAIN is the number of the newest event and a digest of all events up to it. Whoever changes
    one of them cannot bring about the same head. With --sign it is a text that only the holder of
    the key can have made.
    """
    from fmemory_tools._console import print_json, print_whole, progress, write_exactly
    from fmemory_tools._failure import Failure
    from fmemory_tools._store import chosen_store

    if sign is None and origin is not None:
        raise Failure("--origin is the name that is signed: it needs --sign FILE")
    target = chosen_store(path, store)
    if sign is None:
        with progress("reading"):
            found = _head_of(target)
        if json:
            print_json(_plain(found))
        else:
            print_whole(str(found))
        return
    if origin is None:
        raise Failure("--sign needs --origin NAME: a name that tells this log from your others")
    note, key_name, found = _signed(target, sign, origin)
    if json:
        print_json({**_plain(found), "origin": origin, "key_name": key_name, "signed": note})
    else:
        write_exactly(note)


def _head_of(target: str) -> Head:
    from fmemory import LogCorrupt
    from fmemory_tools._damage import damage_of
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._store import reading

    with reading(target) as memory:
        try:
            return memory.head()
        except LogCorrupt as error:
            damaged = damage_of(error)
            if damaged is None:
                raise
            raise Failure(f"{damaged}; its head cannot be told", FINDING) from error


def _signed(target: str, sign: Path, origin: str) -> tuple[str, str, Head]:
    """The signed head, the key's name, and the head."""
    from fmemory.errors import ContractError
    from fmemory.signing import PrivateKey, check_origin, sign_head
    from fmemory_tools._console import progress
    from fmemory_tools._failure import Failure

    try:
        check_origin(origin)
        key = PrivateKey.load(sign)
        key.public_key()
    except ContractError as error:
        option = "--origin" if error.where == "origin" else f"--sign {sign}"
        raise Failure(f"{option}: {error.problem}") from None
    with progress("reading"):
        found = _head_of(target)
    return sign_head(found, key, origin=origin), key.name, found


def _plain(found: Head) -> dict[str, str | int]:
    return {"seq": found.seq, "chain": found.chain.hex(), "head": str(found)}
