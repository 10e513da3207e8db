"""Signed heads: a head with a name for the log, in a small text that only one key can have made.

The text is a signed note (https://c2sp.org/signed-note) of three lines, with Ed25519 signatures:

    ORIGIN                  a name for the log
    SEQ                     of its newest event
    CHAIN                   the chain value up to it, base64
                            an empty line
    — NAME SIGNATURE        the key's name; its ID and the signature, base64

A signature proves that the holder of the key vouched for this head, and not that it is the newest
one. docs/tampering.md says what that means. This module can be imported without the extra
`signing`; signing and reading need it.

>>> key = PrivateKey.generate("audit")
>>> text = sign_head(Head(0, bytes(32)), key, origin="ada's memory")
>>> read_signed_head(text, [key.public_key()]).origin
"ada's memory"
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from fmemory._engine.pinned import check_head
from fmemory._json_values import type_name
from fmemory._keys import ID_BYTES, PrivateKey, PublicKey, decode, encode
from fmemory.errors import ContractError, InvalidSignature, Reason, brief
from fmemory_segments import DIGEST_BYTES, Head

__all__ = ["PrivateKey", "PublicKey", "SignedHead", "read_signed_head", "sign_head"]

ORIGIN_CHARACTERS_MAX: Final = 255
NOTE_CHARACTERS_MAX: Final = 16_384
SIGNATURES_MAX: Final = 100

_SIGNER: Final = "— "
_FIRST_PRINTABLE: Final = " "


@dataclass(frozen=True, slots=True)
class SignedHead:
    """What a signed head says, once its signature was found right.

    Attributes:
        origin: The name that the signer gave the log.
        head: The head, for `verify`.
        key_name: Name of the key that signed it.
    """

    origin: str
    head: Head
    key_name: str


def sign_head(head: Head, private_key: PrivateKey, *, origin: str) -> str:
    """A head as a signed text, to be kept or published elsewhere.

    Args:
        head: As `memory.head()` gave it.
        private_key: Who signs.
        origin: A name for the log, one line of 1 to 255 characters: what tells heads of several
            logs apart that one key signs.

    Returns:
        Five lines, the last one ended; UTF-8 when written to a file. The same head, key and origin
        give the same text.

    Raises:
        ContractError: An argument is none of those, or the extra `signing` is not installed.

    Cost: 50 µs.
    """
    checked = check_head(head, "head")
    if not isinstance(private_key, PrivateKey):
        _wrong_type("a PrivateKey", private_key, "private_key")
    body = f"{check_origin(origin)}\n{checked.seq}\n{encode(checked.chain)}\n"
    signature = private_key.public_key().id + private_key.sign(body.encode("utf-8"))
    return f"{body}\n{_SIGNER}{private_key.name} {encode(signature)}\n"


def read_signed_head(text: str, public_keys: Iterable[PublicKey]) -> SignedHead:
    """What a signed head says; it is believed only when a known key has signed it.

    Signatures of keys that were not given are passed over; each one of a key that was given must be
    right.

    Args:
        text: As `sign_head` gave it; the end of the last line may be missing.
        public_keys: The keys to be trusted, one or more.

    Raises:
        InvalidSignature: The text has another form (`signature_form`), none of the keys signed it
            (`key_unknown`), or it was changed after one did (`signature_wrong`).
        ContractError: An argument is none of those, or the extra `signing` is not installed.

    Cost: 100 µs.
    """
    keys = _by_name_and_id(public_keys)
    body, signatures = _divided(text)
    key_name = _check_signatures(body, signatures, keys)
    origin, seq, encoded = _three_lines(body)
    chain = decode(encoded)
    if chain is None or len(chain) != DIGEST_BYTES:
        _malformed(f"the chain value as base64 in line 3, got {brief(encoded)}")
    try:
        head = Head.parse(f"{seq}:{chain.hex()}")
    except ValueError as error:
        _malformed(f"a head in lines 2 and 3: {error}")
    if f"{head.seq}" != seq or not _is_origin(origin):
        _malformed(f"an origin and a seq in lines 1 and 2, got {brief(origin)} and {brief(seq)}")
    return SignedHead(origin, head, key_name)


def check_origin(origin: object) -> str:
    """The origin itself, when a log can have it.

    Raises:
        ContractError: It is not one line of 1 to 255 printable characters.
    """
    if not isinstance(origin, str) or not _is_origin(origin):
        raise ContractError(
            f"expected one line of 1 to {ORIGIN_CHARACTERS_MAX} printable characters, with no blank"
            f" at its ends, got {brief(origin)}",
            where="origin",
            reason=Reason.BAD_VALUE,
        )
    return origin


def looks_signed(text: str) -> bool:
    """Whether a text is meant to be a signed head, right or wrong."""
    return f"\n{_SIGNER}" in text


def _is_origin(origin: str) -> bool:
    return (
        0 < len(origin) <= ORIGIN_CHARACTERS_MAX
        and origin.isprintable()
        and origin == origin.strip()
    )


def _by_name_and_id(public_keys: Iterable[PublicKey]) -> dict[tuple[str, bytes], PublicKey]:
    if isinstance(public_keys, (PublicKey, str)) or not isinstance(public_keys, Iterable):
        _wrong_type("several PublicKeys, such as [key]", public_keys, "public_keys")
    keys = list(public_keys)
    for number, key in enumerate(keys):
        if not isinstance(key, PublicKey):
            _wrong_type("a PublicKey", key, f"public_keys[{number}]")
    if not keys:
        raise ContractError(
            "expected the public key of whoever signed, got none",
            where="public_keys",
            reason=Reason.EMPTY,
        )
    return {(key.name, key.id): key for key in keys}


def _divided(text: object) -> tuple[str, list[str]]:
    """The signed text, and the lines of signatures below it."""
    if not isinstance(text, str):
        _wrong_type("the text of a signed head", text, "text")
    if len(text) > NOTE_CHARACTERS_MAX:
        _malformed(f"at most {NOTE_CHARACTERS_MAX} characters, got {len(text)}")
    if "\r" in text:
        _malformed("lines that end as they were written, got carriage returns")
    if any(one < _FIRST_PRINTABLE and one != "\n" for one in text):
        _malformed("text without control characters, got some")
    body, blank, below = text.rpartition("\n\n")
    lines = below.removesuffix("\n").split("\n")
    if not blank or not all(line.startswith(_SIGNER) for line in lines):
        _malformed("a text, an empty line and lines of signatures that begin with —")
    if len(lines) > SIGNATURES_MAX:
        _malformed(f"at most {SIGNATURES_MAX} signatures, got {len(lines)}")
    return f"{body}\n", lines


def _check_signatures(body: str, lines: list[str], keys: dict[tuple[str, bytes], PublicKey]) -> str:
    """Name of the first known key; all known ones must have signed the text."""
    try:
        content = body.encode("utf-8")
    except UnicodeEncodeError:
        _malformed("text that UTF-8 can carry, got a lone surrogate")
    first, others = "", []
    for line in lines:
        name, _, encoded = line.removeprefix(_SIGNER).partition(" ")
        signature = decode(encoded)
        if not name or signature is None or len(signature) <= ID_BYTES:
            _malformed(f"a name and a signature as base64, got {brief(line)}")
        key = keys.get((name, signature[:ID_BYTES]))
        if key is None:
            others.append(f"{name}+{signature[:ID_BYTES].hex()}")
        elif not key.verifies(signature[ID_BYTES:], content):
            raise InvalidSignature(
                f"expected the text that {name} signed, got another: it was changed, or the"
                " signature was; do not use it",
                where="text",
                reason=Reason.SIGNATURE_WRONG,
                key_name=name,
            )
        else:
            first = first or name
    if not first:
        known = ", ".join(f"{name}+{key_id.hex()}" for name, key_id in keys)
        raise InvalidSignature(
            f"expected a signature of {brief(known)}, got {brief(', '.join(others))}: give the"
            " public key of that signer if you trust it",
            where="text",
            reason=Reason.KEY_UNKNOWN,
            key_name=others[0].partition("+")[0],
        )
    return first


def _three_lines(body: str) -> tuple[str, str, str]:
    lines = body.removesuffix("\n").split("\n")
    if len(lines) != 3:
        _malformed(f"three lines (origin, seq and chain), got {len(lines)}")
    return lines[0], lines[1], lines[2]


def _malformed(expected: str) -> NoReturn:
    raise InvalidSignature(
        f"signed head: expected {expected}", where="text", reason=Reason.SIGNATURE_FORM
    )


def _wrong_type(expected: str, value: object, where: str) -> NoReturn:
    raise ContractError(
        f"expected {expected}, got {type_name(value)}", where=where, reason=Reason.WRONG_TYPE
    )
