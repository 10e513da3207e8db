"""`fmemory keygen`: a pair of keys to sign heads with."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fmemory_tools._options import JsonOption, examples

EPILOG = examples(
    "fmemory keygen audit.key",
    "fmemory keygen ~/keys/memory.key --name ada.example/memory",
    note="Exit code: 0 fine, 2 a file is there already and was left as it is, 3 cannot write.",
)
PUBLIC_SUFFIX = ".pub"


def keygen(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Where the private key goes; the public one goes to FILE.pub."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of the signer, seen by whoever verifies. Default: FILE without its ending.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a key pair to sign heads with.

    FILE is the private key, which only you can read: whoever has it can sign in your name. FILE.pub
    is for those who verify. A file that is there is never replaced.
    """
    from fmemory.errors import ContractError, Reason
    from fmemory.signing import PrivateKey
    from fmemory_tools._console import print_entry, print_json, print_whole
    from fmemory_tools._failure import Failure

    public_file = file.with_name(file.name + PUBLIC_SUFFIX)
    for one in (file, public_file):
        if one.exists() or one.is_symlink():
            raise Failure(f"{one} is there already, and keys are never replaced: name another file")
    try:
        key = PrivateKey.generate(file.stem if name is None else name)
    except ContractError as error:
        if error.reason is Reason.UNSUPPORTED:
            raise
        raise Failure(f"--name: {error.problem}") from None
    public_key = key.public_key()
    try:
        key.save(file)
        try:
            public_key.save(public_file)
        except BaseException:
            # Half a pair is of no use; nobody has signed with it yet.
            with suppress(OSError):
                file.unlink()
            raise
    except FileExistsError as error:
        raise Failure(f"{error.filename} is there already: name another file") from None
    if json:
        files = {"private_file": str(file), "public_file": str(public_file)}
        print_json({"name": key.name, "public_key": str(public_key), **files})
        return
    print_entry("private key", text=f"{file}, which only you can read: never give it away")
    print_entry("public key ", text=f"{public_file}, for those who verify:")
    print_whole(str(public_key))
