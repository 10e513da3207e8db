"""Heads as people give them: texts, files of one a line, and signed ones, which need a key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fmemory_tools._failure import FINDING, Failure

if TYPE_CHECKING:
    from fmemory import Head
    from fmemory.signing import PublicKey, SignedHead

HEAD_FILE_BYTES_MAX = 1 << 20

_BEGINS_LIKE_A_HEAD = re.compile(r"\s*\d+:")


def load_public_keys(paths: Sequence[Path]) -> list[PublicKey]:
    """The public keys in these files.

    Raises:
        Failure: One of them holds something else.
    """
    from fmemory.errors import ContractError
    from fmemory.signing import PublicKey

    keys = []
    for path in paths:
        try:
            keys.append(PublicKey.load(path))
        except ContractError as error:
            raise Failure(f"--key {path}: {error.problem}") from None
    return keys


def heads_of(
    values: Sequence[str], keys: Sequence[PublicKey], origin: str | None
) -> tuple[list[Head], list[SignedHead]]:
    """All heads that were given, and those of them that were signed.

    Args:
        values: Of the option --head: a head, a signed head, or the name of a file of either.
        keys: Public keys; with some, every head must be signed by one of them.
        origin: The log that signed heads must be of; None = any.

    Raises:
        Failure: A value is none of those, or its signature is not right.
    """
    heads: list[Head] = []
    signed: list[SignedHead] = []
    for value in values:
        text, place = _text_of(value)
        if _looks_signed(text):
            signed.append(_signed_head(text, keys, origin, place))
            heads.append(signed[-1].head)
        elif keys:
            raise Failure(
                f"{place}: expected a signed head, because of --key, got one without a signature"
            )
        else:
            heads += _plain_heads(text, place)
    return heads, signed


def _text_of(value: str) -> tuple[str, str]:
    """The text that a value stands for, and how an error names it."""
    if not value.strip():
        raise Failure("--head: expected a head, or the name of a file that holds one, got nothing")
    if _looks_signed(value) or _BEGINS_LIKE_A_HEAD.match(value):
        return value, "--head"
    path = Path(value).expanduser()
    if path.is_dir():
        raise Failure(f"--head: expected a head or a file, and {value} is a folder")
    if not path.is_file():
        raise Failure(
            f"--head: expected a head (SEQ:CHAIN, as `fmemory head` prints it) or the name of a"
            f" file that holds one, got {value!r}, and there is no such file"
        )
    with path.open("rb") as file:
        data = file.read(HEAD_FILE_BYTES_MAX + 1)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if len(data) > HEAD_FILE_BYTES_MAX or not text.strip():
        raise Failure(f"--head: expected a file of heads, and {value} holds none")
    return text, value


def _plain_heads(text: str, place: str) -> list[Head]:
    from fmemory import Head

    heads = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            heads.append(Head.parse(line))
        except ValueError as error:
            where = place if place == "--head" else f"{place}, line {number}"
            raise Failure(f"{where}: {error}") from None
    return heads


def _signed_head(
    text: str, keys: Sequence[PublicKey], origin: str | None, place: str
) -> SignedHead:
    from fmemory.errors import InvalidSignature, Reason
    from fmemory.signing import read_signed_head

    if not keys:
        raise Failure(
            f"{place}: the head is signed: give the signer's public key with --key FILE, so that"
            " the signature can be checked"
        )
    try:
        found = read_signed_head(text, keys)
    except InvalidSignature as error:
        is_changed = error.reason is Reason.SIGNATURE_WRONG
        raise Failure(f"{place}: {error.problem}", *([FINDING] if is_changed else [])) from None
    if origin is not None and found.origin != origin:
        raise Failure(
            f"{place}: expected a head of the log {origin!r}, got one of {found.origin!r}, signed"
            f" by {found.key_name}",
            FINDING,
        )
    return found


def _looks_signed(text: str) -> bool:
    from fmemory.signing import looks_signed

    return looks_signed(text)
