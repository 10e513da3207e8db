"""Errors: the tree, its reasons, the document that lists them, and pickling."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from fmemory import errors
from fmemory.errors import (
    ClosedStore,
    CommitUnknown,
    Conflict,
    ContractError,
    DuplicateRecord,
    ForkedStore,
    HistoryCompacted,
    InvalidCursor,
    InvalidSignature,
    LogCorrupt,
    LogPoisoned,
    MemoryBackendError,
    MemoryErrorKind,
    MemoryFileError,
    NotFound,
    ReadOnlyStore,
    Reason,
    StorageError,
    StoreBusy,
    StoreFull,
    UnsupportedPlatform,
    brief,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"
CLASSES = [
    getattr(errors, name)
    for name in errors.__all__
    if name not in ("MemoryBackendError", "MemoryErrorKind", "Reason")
]
EXAMPLES: list[MemoryBackendError] = [
    ContractError("expected str, got int", where="ids[2]", reason=Reason.WRONG_TYPE, owner="X"),
    InvalidSignature("none", where="text", reason=Reason.KEY_UNKNOWN, key_name="audit"),
    DuplicateRecord(("a", "b"), ("n",), reason=Reason.RECORD_REPEATED),
    InvalidCursor("expected one of this store", cursor="zz", reason=Reason.CURSOR_FOREIGN),
    MemoryFileError("bad", reason=Reason.FILE_RECORD, path="a.jsonl", line=3),
    NotFound("no feature", reason=Reason.FEATURE_NOT_FOUND, key="f1"),
    Conflict("revision", reason=Reason.REVISION_MISMATCH, stream=("s",), expected=1, actual=2),
    ReadOnlyStore("write", path="/x"),
    HistoryCompacted("at(3)", seq=3, floor=7),
    ClosedStore("closed", path="/x"),
    StorageError("failed", path="/x", offset=1, seq=2, reason=Reason.NOT_A_STORE),
    StoreFull("full", path="/x"),
    StoreBusy("busy", timeout_s=5.0, path="/x"),
    LogPoisoned("poisoned"),
    LogCorrupt("corrupt", path="/x", offset=4096, seq=3, last_seq=9),
    CommitUnknown("unknown", path="/x", seq=4, batch_id="00" * 16),
    ForkedStore("forked"),
    UnsupportedPlatform("nfs", reason=Reason.NETWORK_FILE_SYSTEM),
]


def table(heading: str) -> list[list[str]]:
    """Rows of the first table below a heading of the document, without its head."""
    section = DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_document_lists_exactly_the_classes_with_their_kinds() -> None:
    listed = {row[0].strip("`"): row[1].strip("`") for row in table("Classes")}
    assert listed == {kind.__name__: kind.kind.value for kind in CLASSES}


def test_the_document_lists_exactly_the_reasons_with_their_classes() -> None:
    listed = [(row[1].strip("`"), row[0].strip("`")) for row in table("Reasons")]
    assert sorted(listed) == sorted(
        (kind.__name__, reason.value) for kind in CLASSES for reason in kind.REASONS
    )


def test_every_reason_belongs_to_one_class() -> None:
    given = [reason for kind in CLASSES for reason in kind.REASONS]
    assert sorted(given) == sorted(Reason)


def test_the_document_lists_exactly_the_kinds() -> None:
    assert {row[0].strip("`") for row in table("Kinds")} == {kind.value for kind in MemoryErrorKind}


def test_the_document_draws_the_tree_of_the_module() -> None:
    drawn = re.findall(r"[├└]── (\w+)", DOCUMENT.read_text())
    assert drawn == re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(kind.__name__ for kind in CLASSES)


@pytest.mark.parametrize("row", table("Classes"), ids=lambda row: row[0])
def test_the_document_names_fields_that_exist(row: list[str]) -> None:
    example = next(one for one in EXAMPLES if type(one).__name__ == row[0].strip("`"))
    for name in re.findall(r"`(\w+)`", row[2]):
        assert hasattr(example, name)


def test_there_is_an_example_of_every_class() -> None:
    assert [type(example) for example in EXAMPLES] == sorted(
        CLASSES, key=[type(example) for example in EXAMPLES].index
    )


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling_with_its_fields(
    error: MemoryBackendError, protocol: int
) -> None:
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_notes_survive_pickling() -> None:
    error = StorageError("failed")
    error.add_note("and then")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["and then"]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_gives_a_reason_of_its_class(error: MemoryBackendError) -> None:
    assert error.reason in type(error).REASONS


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (MemoryBackendError, RuntimeError),
        (ContractError, ValueError),
        (NotFound, LookupError),
        (StoreBusy, TimeoutError),
    ],
)
def test_an_error_is_the_builtin_that_a_caller_expects(
    kind: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)


def test_a_path_grows_from_the_inside() -> None:
    inner = ContractError("expected str, got int", where='["a"]', reason=Reason.NOT_JSON)
    outer = inner.within("note.metadata").within("records[3]", owner="PutRequest")
    assert outer.where == 'records[3].note.metadata["a"]'
    assert str(outer) == 'PutRequest.records[3].note.metadata["a"]: expected str, got int'
    assert outer.reason is Reason.NOT_JSON


def test_a_message_names_only_some_of_many_ids() -> None:
    error = DuplicateRecord(tuple(f"id-{n}" for n in range(1000)))
    assert "995 more" in str(error)
    assert len(error.ids) == 1000


def test_a_message_can_be_printed_whatever_the_value_was() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    assert brief(Broken()) == "<Broken, whose repr raised ZeroDivisionError>"
    assert brief("\ud800").encode()
