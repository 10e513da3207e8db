"""Ed25519 keys with a name, as text and in files: what heads are signed with.

The texts are those of signed notes (https://c2sp.org/signed-note): a public key is NAME+ID+KEY, a
private one PRIVATE+KEY+NAME+ID+SEED, where ID is eight hexadecimal digits of a hash of name and
public key, and KEY and SEED are base64. Reading and writing them needs nothing; the mathematics
comes with the extra `signing`, which is asked for when a key is first made or used.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from fmemory._json_values import type_name
from fmemory.errors import ContractError, InvalidSignature, Reason, brief

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_NAME_CHARACTERS_MAX: Final = 255
KEY_FILE_BYTES_MAX: Final = 4096
KEY_BYTES: Final = 32
ID_BYTES: Final = 4

_ED25519: Final = b"\x01"
_PRIVATE: Final = "PRIVATE+KEY+"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The half of a key that everybody may have: it tells whether the other half signed a head.

    Attributes:
        name: Of the signer: no blanks and no plus sign.
        key: 32 bytes.

    >>> PublicKey("audit", bytes(32)) == PublicKey.parse(str(PublicKey("audit", bytes(32))))
    True
    """

    name: str
    key: bytes

    def __post_init__(self) -> None:
        check_key_name(self.name)
        _check_bytes(self.key, "key")

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{encode(_ED25519 + self.key)}"

    @property
    def id(self) -> bytes:
        """Four bytes that tell keys of one name apart."""
        return sha256(self.name.encode() + b"\n" + _ED25519 + self.key).digest()[:ID_BYTES]

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """The key that `str()` printed; blanks and line ends around it are left out.

        Raises:
            InvalidSignature: The text is no public key, or is a private one.
        """
        text = _key_text(text)
        if text.startswith(_PRIVATE):
            _malformed(
                "a public key", "a private one; keep it to yourself, and give its public key"
            )
        name, key_id, key = _parts(text, "a public key")
        found = cls(name, key)
        if found.id != key_id:
            _malformed("a public key", f"one whose ID is {key_id.hex()} and not {found.id.hex()}")
        return found

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PublicKey:
        """The key in a file.

        Raises:
            InvalidSignature: The file holds something else.
            OSError: It cannot be read.
        """
        return cls.parse(_read(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file.

        Raises:
            FileExistsError: There is a file of this name; it is as it was.
            OSError: It cannot be written; there is no such file.
        """
        _write_new(path, f"{self}\n", 0o644)

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Whether the private half made this signature of this content.

        Raises:
            ContractError: The extra `signing` is not installed.
        """
        _check_installed()
        from cryptography.exceptions import InvalidSignature as Wrong
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(signature, content)
        except (Wrong, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """The half of a key that signs. Its `repr` does not show it; whoever has it can sign heads.

    Attributes:
        name: Of the signer: no blanks and no plus sign.
        seed: 32 random bytes.
        key_id: As its text said, to be compared with that of its public key; empty if it is new.
    """

    name: str
    seed: bytes = field(repr=False)
    key_id: bytes = field(default=b"", repr=False, compare=False)

    def __post_init__(self) -> None:
        check_key_name(self.name)
        _check_bytes(self.seed, "seed")

    @classmethod
    def generate(cls, name: str) -> PrivateKey:
        """A new key.

        Args:
            name: Of the signer, 1 to 255 characters without blanks and plus signs. Whoever checks
                a signature sees it.

        Raises:
            ContractError: The name cannot be one, or the extra `signing` is not installed.
        """
        check_key_name(name)
        _check_installed()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def parse(cls, text: str) -> PrivateKey:
        """The key that `to_text()` gave; blanks and line ends around it are left out.

        Raises:
            InvalidSignature: The text is no private key, or is a public one.
        """
        text = _key_text(text)
        if not text.startswith(_PRIVATE):
            _malformed("a private key", f"a text that does not begin with {_PRIVATE}")
        name, key_id, seed = _parts(text.removeprefix(_PRIVATE), "a private key")
        return cls(name, seed, key_id)

    def to_text(self) -> str:
        """The key as text, for a file that nobody else may read.

        Raises:
            ContractError: The extra `signing` is not installed.
        """
        return f"{_PRIVATE}{self.name}+{self.public_key().id.hex()}+{encode(_ED25519 + self.seed)}"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivateKey:
        """The key in a file.

        Raises:
            InvalidSignature: The file holds something else.
            OSError: It cannot be read.
        """
        return cls.parse(_read(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file that only this user may read.

        Raises:
            ContractError: The extra `signing` is not installed.
            FileExistsError: There is a file of this name; it is as it was.
            OSError: It cannot be written; there is no such file.
        """
        _write_new(path, f"{self.to_text()}\n", 0o600)

    def public_key(self) -> PublicKey:
        """The half that may be given away.

        Raises:
            InvalidSignature: The text that this was read from had the ID of another key.
            ContractError: The extra `signing` is not installed.
        """
        found = PublicKey(self.name, self._private().public_key().public_bytes_raw())
        if self.key_id not in (b"", found.id):
            _malformed("a private key", "one whose name or seed was changed: its ID is another's")
        return found

    def sign(self, content: bytes) -> bytes:
        """A signature of 64 bytes; the same content gives the same.

        Raises:
            ContractError: The extra `signing` is not installed.
        """
        return self._private().sign(content)

    def _private(self) -> Ed25519PrivateKey:
        _check_installed()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)


def check_key_name(name: object) -> str:
    """The name itself, when a key can have it.

    Raises:
        ContractError: It is empty, too long, or has blanks, a plus sign or control characters.
    """
    is_one = (
        isinstance(name, str)
        and 0 < len(name) <= KEY_NAME_CHARACTERS_MAX
        and name.isprintable()
        and not any(one == "+" or one.isspace() for one in name)
    )
    if not is_one:
        raise ContractError(
            f"expected 1 to {KEY_NAME_CHARACTERS_MAX} characters without blanks and plus signs, got"
            f" {brief(name)}",
            where="name",
            reason=Reason.BAD_VALUE,
        )
    return str(name)


def encode(data: bytes) -> str:
    """Bytes as base64."""
    return b64encode(data).decode("ascii")


def decode(text: str) -> bytes | None:
    """The bytes that `encode` wrote; None if the text is not exactly what it writes."""
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if encode(data) == text else None


def _parts(text: str, what: str) -> tuple[str, bytes, bytes]:
    """Name, ID and the 32 bytes of a key's text."""
    name, plus, rest = text.partition("+")
    digits, plus, encoded = rest.partition("+")
    data = decode(encoded)
    if not plus or data is None or len(digits) != 2 * ID_BYTES:
        _malformed(what, "a text that is not NAME+ID+BASE64")
    try:
        key_id = bytes.fromhex(digits)
    except ValueError:
        _malformed(what, "a text whose ID is not hexadecimal")
    if data[:1] != _ED25519 or len(data) != 1 + KEY_BYTES:
        _malformed(what, "one of another kind than Ed25519")
    try:
        return check_key_name(name), key_id, data[1:]
    except ContractError:
        _malformed(what, "one with a name that no key can have")


def _key_text(text: object) -> str:
    if not isinstance(text, str):
        raise ContractError(
            f"expected the text of a key, got {type_name(text)}",
            where="text",
            reason=Reason.WRONG_TYPE,
        )
    return text.strip()


def _malformed(what: str, got: str) -> NoReturn:
    """Never quotes the text: it may be a private key."""
    raise InvalidSignature(f"expected {what}, got {got}", where="key", reason=Reason.KEY_FORM)


def _check_bytes(value: object, where: str) -> None:
    if not isinstance(value, bytes) or len(value) != KEY_BYTES:
        raise ContractError(
            f"expected {KEY_BYTES} bytes, got {type_name(value)}",
            where=where,
            reason=Reason.BAD_VALUE,
        )


def _read(path: str | os.PathLike[str]) -> str:
    with Path(path).open("rb") as file:
        data = file.read(KEY_FILE_BYTES_MAX + 1)
    try:
        return data[:KEY_FILE_BYTES_MAX].decode("utf-8") if len(data) <= KEY_FILE_BYTES_MAX else ""
    except UnicodeDecodeError:
        return ""


def _write_new(path: str | os.PathLike[str], text: str, mode: int) -> None:
    """A new file, whole and synced, or none."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            Path(path).unlink()
        raise


def _check_installed() -> None:
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError as error:
        raise ContractError(
            f"signed heads need the package cryptography: {error}; it comes with the extra"
            " `signing`: pip install 'fmemory[signing]'",
            where="signing",
            reason=Reason.UNSUPPORTED,
        ) from error
