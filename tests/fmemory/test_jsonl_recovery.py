"""A store whose text was changed opens with exactly the old events, or with a typed error.

Goal: no acknowledged event is lost or changed in silence, whatever a crash, an editor, git or a
disk does to the text. Method: a small store, one change at a time, with and without the witness.
What would have to break: a verdict that takes an edit for a torn end, a check that skips bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fmemory.errors import LogCorrupt, MemoryBackendError
from fmemory.journals import JsonlJournal
from fmemory.journals._jsonl.lines import line_salt
from fmemory.journals._jsonl.values import CRC_TAIL_BYTES, seal
from fmemory.testing._journal_base import blob, commit, put
from tests.fmemory.jsonl_tools import (
    batches,
    contents,
    damage,
    files_of,
    forget,
    lines_of,
    open_store,
    opened,
    small_store,
    snapshot,
    write_lines,
)

HEADS = (0, 1, 3, 4, 7, 8)
"""Seqs at which a batch of the small store ends."""

Edit = Callable[[list[bytes]], list[bytes]]

EDITS: dict[str, Edit] = {
    "a line was deleted": lambda lines: lines[:3] + lines[4:],
    "the first event was deleted": lambda lines: lines[:1] + lines[2:],
    "two lines were swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "a line was repeated": lambda lines: [*lines[:5], lines[4], *lines[5:]],
    "the last line was repeated": lambda lines: [*lines, lines[-1]],
    "a batch was repeated": lambda lines: [*lines, *lines[2:4]],
    "line ends were converted": lambda lines: [line[:-1] + b"\r\n" for line in lines],
    "the last line end was converted": lambda lines: [*lines[:-1], lines[-1][:-1] + b"\r\n"],
    "a byte order mark was added": lambda lines: [b"\xef\xbb\xbf" + lines[0], *lines[1:]],
    "a blank line was put inside": lambda lines: [*lines[:4], b"\n", *lines[4:]],
    "a comment was added": lambda lines: [*lines, b"# reviewed\n"],
    "a word was changed": lambda lines: [one.replace(b"text of c", b"text of C") for one in lines],
    "a number was changed": lambda lines: [
        one.replace(b'"count":2', b'"count":3') for one in lines
    ],
    "spaces were put in": lambda lines: [one.replace(b',"batch"', b', "batch"') for one in lines],
    "the header was deleted": lambda lines: lines[1:],
    "the header was changed": lambda lines: [lines[0].replace(b"first", b"fist"), *lines[1:]],
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def copies(store: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the store, and one without the witness."""
    with_tip, without = tmp_path / "with", tmp_path / "without"
    for target in (with_tip, without):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(store, target)
    forget(without)
    return with_tip, without


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("read_only", [False, True])
def test_edited_store_is_refused_with_or_without_a_witness(
    store: Path, tmp_path: Path, edit: str, read_only: bool
) -> None:
    small_store(store)
    write_lines(store, EDITS[edit](lines_of(store)))
    for copy in copies(store, tmp_path):
        before = snapshot(copy)
        assert isinstance(opened(copy, read_only=read_only), LogCorrupt)
        after = snapshot(copy)
        assert {name: after[name] for name in before if name != "events.tip"} == {
            name: data for name, data in before.items() if name != "events.tip"
        }


@pytest.mark.parametrize("edit", EDITS)
def test_verify_finds_what_was_edited(store: Path, edit: str) -> None:
    small_store(store)
    write_lines(store, EDITS[edit](lines_of(store)))
    assert damage(store) != []


def test_store_cut_at_any_byte_is_refused_by_its_witness(store: Path, tmp_path: Path) -> None:
    small_store(store)
    (file,) = files_of(store)
    whole = file.read_bytes()
    for size in range(len(lines_of(store)[0]), len(whole) - 1, 11):
        file.write_bytes(whole[:size])
        copy, _ = copies(store, tmp_path)
        assert isinstance(opened(copy), LogCorrupt), size


def test_store_cut_at_any_byte_of_its_last_line_keeps_whole_batches_without_a_witness(
    store: Path, tmp_path: Path
) -> None:
    old = small_store(store)
    lines = lines_of(store)
    (file,) = files_of(store)
    whole = file.read_bytes()
    ends = [len(b"".join(lines[: 1 + head])) for head in HEADS]
    last_line = len(b"".join(lines[:-1]))
    in_lines_before = range(len(b"".join(lines[:5])), last_line, 5)
    for size in (*in_lines_before, *range(last_line, len(whole))):
        file.write_bytes(whole[:size])
        _, copy = copies(store, tmp_path)
        kept = max(head for head, end in zip(HEADS, ends, strict=True) if end - 1 <= size)
        assert opened(copy, read_only=size % 3 != 0) == old[:kept], size
        if size % 5 == 0:
            assert damage(copy) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_any_flipped_bit_is_a_typed_error_and_never_another_event(
    store: Path, tmp_path: Path, read_only: bool
) -> None:
    old = small_store(store)
    (file,) = files_of(store)
    whole = file.read_bytes()
    for at in range(0, len(whole), 2 if read_only else 11):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        file.write_bytes(changed)
        copy = store if read_only else copies(store, tmp_path)[0]
        found = opened(copy, read_only=read_only)
        assert isinstance(found, MemoryBackendError) or found == old, at


def test_flipped_bit_is_found_without_a_witness_in_every_byte_of_the_last_line(
    store: Path,
) -> None:
    small_store(store)
    (file,) = files_of(store)
    whole = file.read_bytes()
    forget(store)
    for at in range(len(whole) - len(lines_of(store)[-1]), len(whole) - 1):
        changed = bytearray(whole)
        changed[at] ^= 2
        file.write_bytes(changed)
        assert isinstance(opened(store, read_only=True), LogCorrupt), at


def test_error_names_file_line_offset_and_seq(store: Path) -> None:
    small_store(store)
    lines = lines_of(store)
    lines[4] = lines[4].replace(b"text of c", b"text of C")
    write_lines(store, lines)
    error = opened(store)
    assert isinstance(error, LogCorrupt)
    assert (error.path, error.offset, error.seq) == (
        str(files_of(store)[0]),
        len(b"".join(lines[:4])),
        4,
    )
    assert "line 5" in str(error)


def test_verify_names_the_record_that_was_edited(store: Path) -> None:
    small_store(store)
    lines = lines_of(store)
    write_lines(store, [one.replace(b"text of b", b"text of B") for one in lines])
    (found,) = damage(store)
    assert (found.file, found.offset, found.first_seq, found.key) == (
        files_of(store)[0].name,
        len(lines[0]),
        1,
        "b",
    )


def test_verify_names_every_line_that_was_edited(store: Path) -> None:
    small_store(store)
    lines = lines_of(store)
    for number in (1, 3, 6):
        lines[number] = lines[number].replace(b'"type":"', b'"type":"x')
    write_lines(store, lines)
    assert [one.first_seq for one in damage(store)] == [1, 3, 6]


def test_missing_last_newline_is_put_back(store: Path, tmp_path: Path) -> None:
    old = small_store(store)
    (file,) = files_of(store)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    for copy in copies(store, tmp_path):
        assert opened(copy, read_only=True) == old
        assert opened(copy) == old
        assert files_of(copy)[0].read_bytes() == whole


@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b"  \n", b"\r\n", b" "])
def test_blank_lines_at_the_end_are_set_aside(store: Path, blank: bytes) -> None:
    old = small_store(store)
    (file,) = files_of(store)
    whole = file.read_bytes()
    file.write_bytes(whole + blank)
    assert opened(store, read_only=True) == old
    assert file.read_bytes() == whole + blank
    assert opened(store) == old
    assert file.read_bytes() == whole
    assert [one.read_bytes() for one in (store / "quarantine").iterdir()] == [blank]


@pytest.mark.parametrize("keep", [0, 1, 40])
def test_torn_end_is_kept_in_quarantine_and_reported(store: Path, keep: int) -> None:
    old = small_store(store)
    (file,) = files_of(store)
    whole = file.read_bytes()
    torn = lines_of(store)[-1][:keep] + bytes(3)
    file.write_bytes(whole + torn)
    journal = open_store(store)
    report = journal.recovery
    assert (contents(journal), file.read_bytes()) == (old, whole)
    assert (report.torn_bytes, report.offset, report.applied) == (len(torn), len(whole), True)
    assert report.quarantine is not None
    assert (store / "quarantine" / report.quarantine).read_bytes() == torn
    assert any(report.quarantine in one for one in journal.health().notices)
    assert commit(journal, blob(revision=5)).first_seq == 9
    journal.close()


def test_reader_reports_a_torn_end_and_changes_nothing(store: Path) -> None:
    old = small_store(store)
    with files_of(store)[0].open("ab") as file:
        file.write(b'{"seq":9,"ba')
    before = snapshot(store)
    journal = open_store(store, read_only=True)
    assert (contents(journal), journal.recovery.applied) == (old, False)
    assert journal.recovery.torn_bytes == 12
    journal.close()
    assert snapshot(store) == before


def unsynced_store(store: Path) -> list[object]:
    """A store whose last three batches no sync covers, as with durability="os"; its contents."""
    journal = open_store(store)
    for number, drafts in enumerate(batches()):
        commit(journal, *drafts, durability="fsync" if number < 2 else "os")
    found = contents(journal)
    journal.close()
    return found


def lose_line(store: Path, number: int) -> None:
    """A line reads as zeros, as a block does that a power cut lost."""
    lines = lines_of(store)
    write_lines(store, [*lines[:number], bytes(len(lines[number])), *lines[number + 1 :]])


@pytest.mark.parametrize("has_witness", [True, False])
def test_unsynced_batch_that_lost_a_block_is_torn_with_what_follows(
    store: Path, has_witness: bool
) -> None:
    old = unsynced_store(store)
    lose_line(store, 4)
    if not has_witness:
        forget(store)
    assert opened(store) == old[:3]
    assert opened(store, read_only=True) == old[:3]


def test_lost_block_is_damage_where_the_witness_says_it_was_on_disk(store: Path) -> None:
    unsynced_store(store)
    lose_line(store, 3)
    assert isinstance(opened(store), LogCorrupt)


def test_lost_block_is_damage_where_a_later_line_says_it_was_on_disk(store: Path) -> None:
    small_store(store)
    lose_line(store, 4)
    forget(store)
    assert isinstance(opened(store), LogCorrupt)


def test_one_zero_byte_in_a_line_is_damage_where_no_sync_covers_it(store: Path) -> None:
    unsynced_store(store)
    forget(store)
    write_lines(store, [one.replace(b"text of e", b"text\0of e") for one in lines_of(store)])
    assert isinstance(opened(store), LogCorrupt)


def test_edited_line_is_damage_where_no_sync_covers_it(store: Path) -> None:
    unsynced_store(store)
    forget(store)
    write_lines(store, [one.replace(b"text of c", b"text of C") for one in lines_of(store)])
    assert isinstance(opened(store), LogCorrupt)


def test_line_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    small_store(store)
    small_store(tmp_path / "other")
    lines, others = lines_of(store), lines_of(tmp_path / "other")
    write_lines(store, [*lines[:-1], others[-1]])
    forget(store)
    assert isinstance(opened(store), LogCorrupt)


def test_rewritten_line_with_a_new_checksum_is_found_by_its_chain(store: Path) -> None:
    journal = open_store(store)
    commit(journal, blob(b"\xa3tea"), blob(b"\xa3cup", revision=2))
    store_id = journal.store_id
    journal.close()
    lines = lines_of(store)
    text = lines[1][: -CRC_TAIL_BYTES - 1].replace(b'"tea"', b'"ale"') + b"}"
    lines[1] = seal(text, line_salt(store_id, 1)) + b"\n"
    write_lines(store, lines)
    assert isinstance(opened(store), list)
    assert [(one.reason.value, one.first_seq) for one in damage(store)] == [("chain", 1)]


def test_damage_that_comes_after_opening_is_found_when_the_line_is_read(store: Path) -> None:
    small_store(store)
    journal = open_store(store)
    (file,) = files_of(store)
    with file.open("r+b") as stream:
        stream.seek(len(lines_of(store)[0]) + 5)
        stream.write(b"#")
    with pytest.raises(LogCorrupt) as caught:
        journal.payloads([1])
    assert caught.value.seq == 1
    journal.close()


def large_store(store: Path) -> JsonlJournal:
    """A journal with one put of several lines."""
    journal = open_store(store)
    commit(journal, put(*(f"r{number:03}" for number in range(400)), dim=600))
    assert len(lines_of(store)) > 2
    return journal


def test_verify_names_a_record_in_a_later_line_of_its_put(store: Path) -> None:
    large_store(store).close()
    write_lines(store, [one.replace(b"text of r399", b"text of R399") for one in lines_of(store)])
    (found,) = damage(store)
    assert (found.first_seq, found.key) == (1, "r399")
    assert found.offset == len(b"".join(lines_of(store)[:-1]))


def test_record_that_is_read_alone_is_checked(store: Path) -> None:
    journal = large_store(store)
    place = (1 << 16) | 7
    before = journal.row(place)
    journal._reader._kept.clear()
    assert journal.row(place)[0] == before[0]
    (file,) = files_of(store)
    file.write_bytes(file.read_bytes().replace(b"text of r007", b"text of R007"))
    with pytest.raises(LogCorrupt):
        journal.row(place)
    journal.close()


def test_put_without_its_last_line_is_torn_whole(store: Path) -> None:
    journal = large_store(store)
    commit(journal, blob())
    journal.close()
    forget(store)
    write_lines(store, lines_of(store)[:-2])
    assert opened(store, read_only=True) == []
    assert opened(store) == []
