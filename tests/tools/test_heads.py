"""`head`, `keygen` and `verify --head`: heads printed, signed, kept in files and found again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmemory
from fmemory import NewEvent
from tests.tools.helpers import Command, bytes_of, change_one_byte, only_line


def head_of(store: Path) -> str:
    with fmemory.open(store, read_only=True) as memory:
        return str(memory.head())


def write_another(store: Path, text: str = "later") -> None:
    with fmemory.open(store) as memory:
        memory.append(("jobs",), [NewEvent("job.done", text)])


@pytest.fixture
def key(run: Command) -> Path:
    """A private key with its public one beside it."""
    assert run("keygen", "audit.key").exit_code == 0
    return Path("audit.key")


@pytest.fixture
def note(store: Path, key: Path, run: Command) -> Path:
    """The signed head of the store, in a file."""
    result = run("head", store, "--sign", key, "--origin", "ada's memory")
    assert result.exit_code == 0, result.output
    Path("head.note").write_bytes(result.stdout_bytes)
    return Path("head.note")


# head


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_head_is_one_line_and_changes_nothing(
    arguments: list[str], store: Path, run: Command
) -> None:
    before = bytes_of(store)

    result = run("head", "-s", store, *arguments)

    assert (result.exit_code, bytes_of(store)) == (0, before)
    assert head_of(store) in only_line(result.stdout)


def test_head_is_printed_as_it_is_taken(store: Path, run: Command) -> None:
    printed = run("head", store).stdout

    assert printed == f"{head_of(store)}\n"
    assert len(only_line(printed)) <= 80
    assert run("verify", store, "--head", printed).exit_code == 0


def test_head_as_json_has_its_parts(store: Path, run: Command) -> None:
    found = json.loads(run("head", "--json", store).stdout)

    assert found["head"] == f"{found['seq']}:{found['chain']}" == head_of(store)


def test_head_of_a_damaged_store_names_the_event(store: Path, run: Command) -> None:
    (segment,) = store.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"the form works")] ^= 1
    segment.write_bytes(content)

    result = run("head", "-s", store)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "event 5 is damaged" in only_line(result.stderr)


@pytest.mark.parametrize("command", ["head", "stats"])
def test_of_a_damaged_batch_no_event_is_named_that_may_be_intact(
    command: str, tmp_path: Path, run: Command
) -> None:
    with fmemory.open(tmp_path / "m") as memory:
        memory.append(("jobs",), [NewEvent("job.done", {"number": n}) for n in range(1000, 1009)])
    change_one_byte(tmp_path / "m", b"\xcd\x03\xec")  # 1004, of event 5

    result = run(command, "-s", tmp_path / "m")

    assert result.exit_code == 1
    assert "one or more of the events 1 to 9 are damaged" in " ".join(result.stderr.split())


# verify --head


def test_a_file_of_heads_narrows_down_where_an_event_was_changed(store: Path, run: Command) -> None:
    heads = Path("heads.txt")
    heads.write_text(f"{head_of(store)}\n\n")
    rewritten = Path("rewritten")
    with fmemory.open(rewritten) as memory, fmemory.open(store, read_only=True) as old:
        fmemory.copy_log(old, memory)
    write_another(store, "as it was")
    heads.write_text(heads.read_text() + head_of(store) + "\n")
    write_another(rewritten, "as it was not")

    result = run("verify", rewritten, "--head", heads, "--json")

    found = json.loads(only_line(result.stdout))
    assert (found["reason"], found["first_seq"], found["last_seq"]) == ("pinned_head", 12, 12)
    assert result.exit_code == 1
    shown = run("verify", rewritten, "--head", heads).stdout
    assert "event 11 and all before it are as they were pinned" in " ".join(shown.split())
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_heads_may_be_given_one_by_one(store: Path, run: Command) -> None:
    first = head_of(store)
    write_another(store)
    other = f"12:{'0' * 64}"

    result = run("verify", store, "--head", other, "--head", first, "--json")

    found = json.loads(only_line(result.stdout))
    assert (found["first_seq"], found["last_seq"]) == (12, 12)


def test_heads_that_fit_are_told(store: Path, run: Command) -> None:
    result = run("verify", store, "--head", head_of(store))

    assert "event 11 and all before are as they were when it was pinned" in result.stdout


# Signing


def test_a_signed_head_is_checked_and_told(
    store: Path, note: Path, key: Path, run: Command
) -> None:
    write_another(store)
    public = key.with_name("audit.key.pub")

    result = run("verify", store, "--head", note, "--key", public, "--origin", "ada's memory")

    assert result.exit_code == 0, result.output
    assert "the head of event 11 was signed by audit for ada's memory" in result.stdout
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_a_signed_head_may_be_given_as_text(
    store: Path, note: Path, key: Path, run: Command
) -> None:
    text = note.read_text().rstrip("\n")  # as $(cat head.note) is
    assert run("verify", store, "--head", text, "--key", f"{key}.pub").exit_code == 0


def test_a_signed_head_finds_a_rolled_back_store(store: Path, key: Path, run: Command) -> None:
    older = Path("older")
    with fmemory.open(older) as memory, fmemory.open(store, read_only=True) as old:
        fmemory.copy_log(old, memory, upto=9)
    signed = run("head", store, "--sign", key, "--origin", "o").stdout

    result = run("verify", older, "--head", signed, "--key", f"{key}.pub")

    assert result.exit_code == 1
    assert "ends at event 9" in " ".join(result.stdout.split())


def test_signing_as_json_has_the_text(store: Path, key: Path, run: Command) -> None:
    result = run("head", store, "--sign", key, "--origin", "o", "--json")

    found = json.loads(only_line(result.stdout))
    assert (found["origin"], found["key_name"], found["head"]) == ("o", "audit", head_of(store))
    assert run("verify", store, "--head", found["signed"], "--key", f"{key}.pub").exit_code == 0


def test_a_changed_signed_head_is_a_finding(
    store: Path, note: Path, key: Path, run: Command
) -> None:
    note.write_text(note.read_text().replace("\n11\n", "\n10\n"))

    result = run("verify", store, "--head", note, "--key", f"{key}.pub")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "head.note: expected the text that audit signed" in only_line(result.stderr)


def test_a_head_of_another_log_is_a_finding(
    store: Path, note: Path, key: Path, run: Command
) -> None:
    result = run("verify", store, "--head", note, "--key", f"{key}.pub", "--origin", "bob's")

    assert (result.exit_code, result.stdout) == (1, "")
    assert 'of the log "bob\'s", got one of "ada\'s memory"' in only_line(result.stderr)


# keygen


def test_keygen_makes_a_pair_of_which_one_is_for_the_owner_alone(run: Command) -> None:
    result = run("keygen", "audit.key")

    private, public = Path("audit.key"), Path("audit.key.pub")
    assert private.stat().st_mode & 0o777 == 0o600
    assert private.read_text().startswith("PRIVATE+KEY+audit+")
    assert public.read_text().strip() in result.stdout
    assert private.read_text().strip().rpartition("+")[2] not in result.output
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_keygen_takes_a_name(run: Command) -> None:
    found = json.loads(run("keygen", "my audit.key", "--name", "ada.example/x", "--json").stdout)

    assert found["name"] == "ada.example/x"
    assert found["public_key"] == Path("my audit.key.pub").read_text().strip()


@pytest.mark.parametrize("there", ["audit.key", "audit.key.pub"])
def test_keygen_never_replaces_a_file(there: str, run: Command) -> None:
    Path(there).write_text("mine")

    result = run("keygen", "audit.key")

    assert result.exit_code == 2
    assert f"{there} is there already" in only_line(result.stderr)
    assert {one.name: one.read_text() for one in Path().iterdir()} == {there: "mine"}


# A beginner's mistakes


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["keygen"], "FILE is missing"),
        (["keygen", "my audit.key"], "--name: expected 1 to 255 characters without blanks"),
        (["keygen", "k", "--name", "a+b"], "--name: expected 1 to 255 characters"),
        (["head", "--sign", "audit.key"], "--sign needs --origin NAME"),
        (["head", "--origin", "o"], "it needs --sign FILE"),
        (["head", "--sign", "nofile", "--origin", "o"], "there is no file nofile"),
        (["head", "--sign", "audit.key.pub", "--origin", "o"], "expected a private key"),
        (["head", "--sign", "notes.txt", "--origin", "o"], "expected a private key"),
        (["head", "--sign", "audit.key", "--origin", ""], "--origin: expected one line"),
        (["verify", "--key", "audit.key.pub"], "give one with --head FILE"),
        (["verify", "--origin", "o"], "it needs --key FILE and --head FILE"),
        (["verify", "--head", "head.note"], "head.note: the head is signed: give"),
        (["verify", "--head", "head.note", "--key", "audit.key"], "expected a public key, got a"),
        (["verify", "--head", "head.note", "--key", "notes.txt"], "expected a public key"),
        (["verify", "--head", "head.note", "--key", "other.pub"], "give the public key of that"),
        (["verify", "--head", "head.note", "--key", "nofile"], "there is no file nofile"),
        (["verify", "--head", "notes.txt"], "notes.txt, line 1: head: expected SEQ:CHAIN"),
        (["verify", "--head", "empty.txt"], "empty.txt holds none"),
        (["verify", "--head", "binary"], "binary holds none"),
        (["verify", "--head", "nofile"], "got 'nofile', and there is no such file"),
        (["verify", "--head", ""], "got nothing"),
        (["verify", "--head", "."], ". is a folder"),
        (["verify", "--head", "12"], "got '12', and there is no such file"),
        (["verify", "--head", "12:ab"], "--head: head: expected SEQ:CHAIN"),
        (["verify", "--head", f"12:{'A' * 64}"], "upper-case digits"),
        (["verify", "--head", f"12:{'a' * 16}…"], "got 16 digits"),
        (["verify", "--head", f"12:{'a' * 64}", "--key", "audit.key.pub"], "without a signature"),
        (["verify", "another"], "expected one store, got two"),
        (["head", "another"], "expected one store, got two"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
@pytest.mark.usefixtures("note")
def test_wrong_usage_is_one_line_that_says_what_to_do(
    line: list[str], told: str, store: Path, run: Command
) -> None:
    Path("notes.txt").write_text("the parser rejects empty input")
    Path("empty.txt").write_text(" \n")
    Path("binary").write_bytes(b"\xff\xfe\0")
    run("keygen", "other")

    where = [] if line[0] == "keygen" else ["-s", store]
    result = run(*line, *where)

    assert (result.exit_code, result.stdout) == (2, "")
    assert told in only_line(result.stderr)


@pytest.mark.parametrize("command", ["head", "verify"])
def test_the_store_may_be_named_as_the_argument(command: str, store: Path, run: Command) -> None:
    assert run(command, store).exit_code == 0
    assert run(command, store, "-s", store).exit_code == 0
    assert run(command, "nowhere").exit_code == 3


def test_a_key_that_cannot_be_written_is_told(run: Command) -> None:
    result = run("keygen", "no/such/folder/audit.key")

    assert result.exit_code == 3
    assert "no/such/folder/audit.key: No such file" in only_line(result.stderr)
