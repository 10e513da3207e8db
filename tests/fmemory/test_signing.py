"""Signed heads: what is believed, what is refused and by which reason, and keys as text and files.

The forms are public ones. The vectors below were made apart from this code: the Ed25519 pair is
the first test vector of RFC 8032, and the ID of the key is a hash that the test computes itself.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

import fmemory
from fmemory import ContractError, Head, InvalidSignature, Reason
from fmemory.signing import PrivateKey, PublicKey, SignedHead, read_signed_head, sign_head

HEAD = Head(812, bytes(range(32)))
KEY = PrivateKey("audit", bytes(range(32)))
OTHER = PrivateKey("other", bytes(32))
NOTE = sign_head(HEAD, KEY, origin="ada's memory")

RFC_SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC_KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")


def refusal(call: Callable[[], object]) -> ContractError:
    with pytest.raises(ContractError) as caught:
        call()
    return caught.value


def resigned(body: str, key: PrivateKey = KEY) -> str:
    """A body of any form with a signature that is right."""
    signature = key.public_key().id + key.sign(body.encode())
    return f"{body}\n— {key.name} {b64encode(signature).decode()}\n"


# Signing and reading


def test_a_signed_head_is_read_as_it_was_signed() -> None:
    found = read_signed_head(NOTE, [OTHER.public_key(), KEY.public_key()])
    assert found == SignedHead("ada's memory", HEAD, "audit")


def test_a_signed_head_is_a_note_of_three_lines_and_a_signature() -> None:
    origin, seq, chain, blank, signature = NOTE.splitlines()
    assert (origin, seq, b64decode(chain), blank) == ("ada's memory", "812", HEAD.chain, "")
    dash, name, encoded = signature.split(" ")
    assert (dash, name) == ("—", "audit")
    assert len(b64decode(encoded)) == 4 + 64
    assert NOTE.endswith("\n")


def test_signing_again_gives_the_same_text() -> None:
    assert sign_head(HEAD, KEY, origin="ada's memory") == NOTE


def test_the_key_is_that_of_the_published_test_vector() -> None:
    assert PrivateKey("a", RFC_SEED).public_key().key == RFC_KEY


def test_keys_of_another_program_are_read() -> None:
    """The example pair in the documentation of Go's package for signed notes."""
    public = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    private = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
    assert str(PrivateKey.parse(private).public_key()) == public
    assert PublicKey.parse(public) == PrivateKey.parse(private).public_key()


def test_the_id_of_a_key_is_the_hash_that_the_form_asks_for() -> None:
    expected = sha256(b"audit\n\x01" + KEY.public_key().key).digest()[:4]
    assert KEY.public_key().id == expected
    assert b64decode(NOTE.split()[-1])[:4] == expected


def test_a_head_of_an_empty_log_can_be_signed() -> None:
    note = sign_head(Head(0, bytes(32)), KEY, origin="new")
    assert read_signed_head(note, [KEY.public_key()]).head == Head(0, bytes(32))


def test_a_missing_end_of_the_last_line_does_no_harm() -> None:
    """A shell cuts it off."""
    assert read_signed_head(NOTE.rstrip("\n"), [KEY.public_key()]).head == HEAD


def test_a_signed_head_is_what_verify_takes(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        memory.add_note("tea at four", id="n1")
        note = sign_head(memory.head(), KEY, origin="tea")
        memory.add_note("tea at five", id="n2")
        assert memory.verify(read_signed_head(note, [KEY.public_key()]).head) == ()


# What is refused


@pytest.mark.parametrize("at", range(NOTE.index("\n\n")))
def test_any_changed_character_of_the_text_is_found(at: int) -> None:
    changed = NOTE[:at] + ("x" if NOTE[at] != "x" else "y") + NOTE[at + 1 :]
    error = refusal(lambda: read_signed_head(changed, [KEY.public_key()]))
    assert (type(error), error.reason) == (InvalidSignature, Reason.SIGNATURE_WRONG)


@pytest.mark.parametrize("at", range(NOTE.index("\n\n"), len(NOTE) - 1))
def test_any_changed_character_of_the_signature_is_refused(at: int) -> None:
    changed = NOTE[:at] + ("A" if NOTE[at] != "A" else "B") + NOTE[at + 1 :]
    error = refusal(lambda: read_signed_head(changed, [KEY.public_key()]))
    assert isinstance(error, InvalidSignature)
    assert error.reason in InvalidSignature.REASONS


@pytest.mark.parametrize("kept", range(len(NOTE) - 1))
def test_any_part_of_a_signed_head_is_refused(kept: int) -> None:
    error = refusal(lambda: read_signed_head(NOTE[:kept], [KEY.public_key()]))
    assert isinstance(error, InvalidSignature)


def test_a_key_that_was_not_given_is_named() -> None:
    error = refusal(lambda: read_signed_head(NOTE, [OTHER.public_key()]))
    assert isinstance(error, InvalidSignature)
    assert (error.reason, error.key_name) == (Reason.KEY_UNKNOWN, "audit")
    assert "other" in error.problem and "audit" in error.problem


def test_another_key_of_the_same_name_is_not_known() -> None:
    namesake = PrivateKey("audit", bytes(32)).public_key()
    error = refusal(lambda: read_signed_head(NOTE, [namesake]))
    assert error.reason is Reason.KEY_UNKNOWN


def test_a_signature_under_the_id_of_a_known_key_must_be_its_own() -> None:
    """Somebody else's signature with the known key's name and ID put before it."""
    body = NOTE.partition("\n\n")[0] + "\n"
    forged = KEY.public_key().id + OTHER.sign(body.encode())
    note = f"{body}\n— audit {b64encode(forged).decode()}\n"
    error = refusal(lambda: read_signed_head(note, [KEY.public_key()]))
    assert error.reason is Reason.SIGNATURE_WRONG


def test_signatures_of_others_are_passed_over() -> None:
    cosigned = NOTE + resigned(NOTE.partition("\n\n")[0] + "\n", OTHER).partition("\n\n")[2]
    for key in (KEY, OTHER):
        assert read_signed_head(cosigned, [key.public_key()]).key_name == key.name


def test_every_known_key_must_have_signed_rightly() -> None:
    broken = resigned("something else\n", OTHER).partition("\n\n")[2]
    keys = [KEY.public_key(), OTHER.public_key()]
    assert refusal(lambda: read_signed_head(NOTE + broken, keys)).reason is Reason.SIGNATURE_WRONG


def test_two_signed_heads_in_one_text_are_none() -> None:
    error = refusal(lambda: read_signed_head(NOTE + NOTE, [KEY.public_key()]))
    assert error.reason is Reason.SIGNATURE_WRONG


CHAIN = b64encode(HEAD.chain).decode()


@pytest.mark.parametrize(
    "body",
    [
        "one line\n",
        f"origin\n812\n{CHAIN}\nmore\n",
        f"origin\n812\n\n{CHAIN}\n",
        f"origin\n0812\n{CHAIN}\n",
        f"origin\n 812\n{CHAIN}\n",
        f"origin\n-1\n{CHAIN}\n",
        f"origin\n٨\n{CHAIN}\n",
        f"origin\n{2**63}\n{CHAIN}\n",
        f"origin\n812\n{CHAIN[:-4]}\n",
        f"origin\n812\n{CHAIN} \n",
        f"origin\n812\n{CHAIN.rstrip('=')}\n",
        f"origin\n812\n{HEAD.chain.hex()}\n",
        f"origin\n0\n{CHAIN}\n",
        f"\n812\n{CHAIN}\n",
        f" origin\n812\n{CHAIN}\n",
        f"{'o' * 256}\n812\n{CHAIN}\n",
    ],
)
def test_what_is_signed_must_still_be_a_head(body: str) -> None:
    error = refusal(lambda: read_signed_head(resigned(body), [KEY.public_key()]))
    assert (type(error), error.reason) == (InvalidSignature, Reason.SIGNATURE_FORM)


@pytest.mark.parametrize(
    "text",
    [
        "",
        str(HEAD),
        NOTE.replace("\n", "\r\n"),
        NOTE.replace("\n\n", "\n"),
        NOTE.replace("— ", "- "),
        NOTE + "\n",
        NOTE.replace("audit ", "audit"),
        NOTE.replace("ada", "a\0da"),
        NOTE.replace("ada", "\ud800"),
        NOTE + NOTE.splitlines(keepends=True)[-1] * 100,
        "x" * 20_000 + NOTE,
    ],
    ids=range(11),
)
def test_another_form_is_told_as_such(text: str) -> None:
    error = refusal(lambda: read_signed_head(text, [KEY.public_key()]))
    assert (type(error), error.reason) == (InvalidSignature, Reason.SIGNATURE_FORM)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: sign_head(str(HEAD), KEY, origin="o"), "head"),  # type: ignore[arg-type]
        (lambda: sign_head(Head(-1, bytes(32)), KEY, origin="o"), "head"),
        (lambda: sign_head(HEAD, KEY.to_text(), origin="o"), "private_key"),  # type: ignore[arg-type]
        (lambda: sign_head(HEAD, KEY.public_key(), origin="o"), "private_key"),  # type: ignore[arg-type]
        (lambda: sign_head(HEAD, KEY, origin=""), "origin"),
        (lambda: sign_head(HEAD, KEY, origin="two\nlines"), "origin"),
        (lambda: sign_head(HEAD, KEY, origin=" o"), "origin"),
        (lambda: sign_head(HEAD, KEY, origin="o" * 256), "origin"),
        (lambda: sign_head(HEAD, KEY, origin="\ud800"), "origin"),
        (lambda: read_signed_head(NOTE.encode(), [KEY.public_key()]), "text"),  # type: ignore[arg-type]
        (lambda: read_signed_head(NOTE, []), "public_keys"),
        (lambda: read_signed_head(NOTE, KEY.public_key()), "public_keys"),  # type: ignore[arg-type]
        (lambda: read_signed_head(NOTE, str(KEY.public_key())), "public_keys"),  # type: ignore[arg-type]
        (lambda: read_signed_head(NOTE, [KEY]), "public_keys[0]"),  # type: ignore[list-item]
        (lambda: PrivateKey.generate("two words"), "name"),
        (lambda: PrivateKey.generate("a+b"), "name"),
        (lambda: PrivateKey.generate(""), "name"),
        (lambda: PublicKey("a", b"short"), "key"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], where: str) -> None:
    assert refusal(call).where == where


# Keys


def test_keys_survive_text() -> None:
    assert PrivateKey.parse(KEY.to_text()) == KEY
    assert PublicKey.parse(f" {KEY.public_key()}\n") == KEY.public_key()


def test_new_keys_differ() -> None:
    one, two = PrivateKey.generate("a"), PrivateKey.generate("a")
    assert one.public_key() != two.public_key()


def test_a_private_key_does_not_show_itself() -> None:
    key = PrivateKey.generate("a")
    secret = key.to_text().rpartition("+")[2]
    for shown in (repr(key), str(key), f"{key}"):
        assert secret not in shown
        assert repr(key.seed) not in shown and key.seed.hex() not in shown


def test_a_private_key_given_for_a_public_one_is_told_and_not_quoted() -> None:
    text = KEY.to_text()
    error = refusal(lambda: PublicKey.parse(text))
    assert error.reason is Reason.KEY_FORM
    assert "a private one" in error.problem
    assert text.rpartition("+")[2] not in str(error)


PUBLIC = str(KEY.public_key())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "audit",
        PUBLIC[:-4],
        PUBLIC + "A",
        PUBLIC.replace("audit", "other"),
        PUBLIC.replace("+", "+0", 1),
        PUBLIC.replace("+", "-"),
        "+" + PUBLIC.partition("+")[2],
        PUBLIC.partition("+")[0] + "+zzzzzzzz+" + PUBLIC.rpartition("+")[2],
        PUBLIC.rpartition("+")[0] + "+" + b64encode(b"\x02" + KEY.public_key().key).decode(),
    ],
)
def test_a_text_that_is_no_public_key_is_refused(text: str) -> None:
    error = refusal(lambda: PublicKey.parse(text))
    assert (type(error), error.reason) == (InvalidSignature, Reason.KEY_FORM)


@pytest.mark.parametrize("text", ["", "audit", PUBLIC, "PRIVATE+KEY+", KEY.to_text()[:-4]])
def test_a_text_that_is_no_private_key_is_refused(text: str) -> None:
    assert refusal(lambda: PrivateKey.parse(text)).reason is Reason.KEY_FORM


def test_a_private_key_whose_name_was_changed_signs_nothing() -> None:
    key = PrivateKey.parse(KEY.to_text().replace("audit", "other"))
    assert refusal(lambda: sign_head(HEAD, key, origin="o")).reason is Reason.KEY_FORM


def test_keys_survive_files_and_the_private_one_is_for_its_owner_alone(tmp_path: Path) -> None:
    private, public = tmp_path / "a.key", tmp_path / "a.key.pub"
    KEY.save(private)
    KEY.public_key().save(public)
    assert (PrivateKey.load(private), PublicKey.load(public)) == (KEY, KEY.public_key())
    assert private.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("key", [KEY, KEY.public_key()])
def test_a_file_that_is_there_is_never_replaced(
    tmp_path: Path, key: PrivateKey | PublicKey
) -> None:
    file = tmp_path / "a.key"
    file.write_text("mine")
    with pytest.raises(FileExistsError):
        key.save(file)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 5_000, b"a" * 4_097])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.key"
    file.write_bytes(content)
    assert refusal(lambda: PublicKey.load(file)).reason is Reason.KEY_FORM
    assert refusal(lambda: PrivateKey.load(file)).reason is Reason.KEY_FORM


# Without the extra


@pytest.mark.parametrize(
    "use",
    [
        lambda: PrivateKey.generate("a"),
        lambda: sign_head(HEAD, KEY, origin="o"),
        lambda: read_signed_head(NOTE, [PublicKey.parse(PUBLIC)]),
        lambda: KEY.to_text(),
    ],
)
def test_without_the_extra_its_name_and_the_command_are_told(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: object) -> object:
        if name.partition(".")[0] == "cryptography":
            raise ImportError("No module named 'cryptography'")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    error = refusal(use)
    assert error.reason is Reason.UNSUPPORTED
    assert "pip install 'fmemory[signing]'" in str(error)


def test_the_module_is_imported_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith(("cryptography", "fmemory.signing"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setattr(fmemory, "signing", None)

    assert importlib.import_module("fmemory.signing").__all__
