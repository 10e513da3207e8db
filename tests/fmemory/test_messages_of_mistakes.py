"""What a mistake is answered with: where it is, and what to do instead.

To break: a message that names a class or a field the caller never wrote, or that leaves the caller
to guess the call that would have been right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmemory
from fmemory.backend import MemoryBackend
from fmemory.errors import ClosedStore, ContractError, NotFound, ReadOnlyStore
from fmemory.record_models import GetRequest, MemoryRecord, Note, PutRequest, TimeRange
from fmemory.session_models import FeatureRecord, Message, ProgressEntry, SessionManifest
from fmemory.testing._model_backend import ModelBackend

NOTE = Note("n", "tea", 1.0, {})
ANY: Any = None


@pytest.fixture(params=["contract", "engine"])
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryBackend]:
    with ModelBackend() if request.param == "contract" else fmemory.open(":memory:") as backend:
        yield backend


def note(**fields: Any) -> MemoryRecord:
    whole = {"id": "n", "text": "tea", "timestamp": 1.0, "metadata": {}, **fields}
    return MemoryRecord(Note(**whole), np.ones(2))


PUTS: list[tuple[MemoryRecord, str, str]] = [
    (note(timestamp=datetime.now(UTC)), "records[0].note.timestamp", "value.timestamp()"),
    (note(timestamp=np.int64(5)), "records[0].note.timestamp", "call float()"),
    (note(timestamp=Decimal(5)), "records[0].note.timestamp", "call float()"),
    (note(timestamp="5"), "records[0].note.timestamp", "call float()"),
    (note(timestamp=None), "records[0].note.timestamp", "use Note.create"),
    (note(metadata=None), "records[0].note.metadata", "use {} for none"),
    (note(metadata={1: "a"}), "records[0].note.metadata", "use str(key)"),
    (note(metadata={"a": {2: "b"}}), 'records[0].note.metadata["a"]', "use str(key)"),
    (MemoryRecord(NOTE, ANY), "records[0].vector", "use () for no embedding"),
    (MemoryRecord(NOTE, "[1, 2]"), "records[0].vector", "json.loads"),  # type: ignore[arg-type]
    (MemoryRecord(NOTE, b"12345678"), "records[0].vector", "frombuffer"),  # type: ignore[arg-type]
    (MemoryRecord(NOTE, 1.5), "records[0].vector", "put it into a list"),  # type: ignore[arg-type]
    (MemoryRecord(NOTE, np.ones(2), None, "ada"), "records[0].namespace", "into a tuple"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("record", "where", "advice"), PUTS, ids=range(len(PUTS)))
def test_a_bad_record_is_answered_with_its_place_and_advice(
    memory: MemoryBackend, record: MemoryRecord, where: str, advice: str
) -> None:
    with pytest.raises(ContractError) as caught:
        memory.put(memory.put_request([record]))
    assert caught.value.where == where
    assert advice in caught.value.problem


def test_a_text_as_vector_is_not_told_to_become_a_tuple(memory: MemoryBackend) -> None:
    with pytest.raises(ContractError) as caught:
        memory.add_note("tea", "12")  # type: ignore[arg-type]
    assert caught.value.where == "vector"
    assert "tuple" not in caught.value.problem


BUILDS: list[tuple[Callable[[], object], str, str]] = [
    (lambda: PutRequest(records=MemoryRecord(NOTE, np.ones(1))), "records", "put it into a list"),  # type: ignore[arg-type]
    (lambda: PutRequest(records=ANY), "records", "use () for none"),
    (lambda: PutRequest(records={1}), "records", "list or tuple"),  # type: ignore[arg-type]
    (lambda: PutRequest(records={}.values()), "records", "call list()"),  # type: ignore[arg-type]
    (lambda: GetRequest("n1"), "ids", "put it into a tuple"),
    (lambda: GetRequest(np.array(["a"])), "ids", "call .tolist()"),  # type: ignore[arg-type]
    (lambda: TimeRange(datetime.now(UTC)), "start", "value.timestamp()"),  # type: ignore[arg-type]
    (lambda: ProgressEntry("r", "s", 5.0), "created_at", "datetime.fromtimestamp"),  # type: ignore[arg-type]
    (lambda: ProgressEntry("r", "s", "2026-01-31"), "created_at", "fromisoformat"),  # type: ignore[arg-type]
    (lambda: ProgressEntry("r", "s", date(2026, 1, 31)), "created_at", "datetime"),  # type: ignore[arg-type]
    (lambda: FeatureRecord("f", "c", "d", "step"), "steps", "put it into a tuple"),
    (lambda: SessionManifest("s", "b", "o", np.int64(1)), "schema_version", "call int()"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("build", "where", "advice"), BUILDS, ids=range(len(BUILDS)))
def test_a_bad_field_is_answered_with_its_place_and_advice(
    build: Callable[[], object], where: str, advice: str
) -> None:
    with pytest.raises(ContractError) as caught:
        build()
    assert caught.value.where == where
    assert advice in caught.value.problem


CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda memory: memory.nearest([1.0], namespace="ada"), "namespace"),
    (lambda memory: memory.nearest([1.0], namespace=[""]), "namespace[0]"),
    (lambda memory: memory.nearest([1.0], time_range=(0, 1)), "time_range"),
    (lambda memory: memory.vectors(namespace="ada"), "namespace"),
    (lambda memory: memory.vectors(time_range=5), "time_range"),
    (lambda memory: memory.vectors(ids="n1"), "ids"),
    (lambda memory: memory.vectors(ids=[5]), "ids[0]"),
    (lambda memory: memory.iter_all(namespace="ada"), "namespace"),
    (lambda memory: memory.iter_all(page_size=0), "page_size"),
    (lambda memory: memory.iter_all(time_range=5), "time_range"),
    (lambda memory: memory.aiter_all(page_size=0), "page_size"),
    (lambda memory: memory.add_note("tea", namespace="ada"), "namespace"),
    (lambda memory: memory.add_note("tea", metadata={1: 2}), "metadata"),
    (lambda memory: memory.ensure_embedding_id("m", "ada"), "namespace"),
    (lambda memory: memory.dump("x", "ada"), "namespace"),
    (lambda memory: memory.load("x", "ada"), "namespace"),
]


@pytest.mark.parametrize(("call", "where"), CALLS, ids=range(len(CALLS)))
def test_an_argument_is_blamed_by_the_name_the_caller_wrote(
    memory: MemoryBackend, call: Callable[[Any], object], where: str
) -> None:
    with pytest.raises(ContractError) as caught:
        call(memory)
    assert (caught.value.owner, caught.value.where) == ("", where)


def wrong(value: Any) -> Any:
    return value


KEEPING: list[tuple[Callable[[fmemory.JournalBackend, str], object], str, str]] = [
    (lambda memory, _: memory.compact(forget_before=wrong("10")), "forget_before", "a seq"),
    (
        lambda memory, _: memory.compact(forget_before=wrong(date(2026, 1, 1))),
        "forget_before",
        "time",
    ),
    (lambda memory, _: memory.compact(exclusive=wrong("yes")), "exclusive", "bool"),
    (lambda memory, _: memory.auto_compact(wrong(True)), "rules", "use AutoCompact()"),
    (lambda memory, path: memory.backup(f"{path}/inside"), "target", "outside of the store"),
    (
        lambda memory, path: memory.backup(f"sqlite:///{path}/b.db"),
        "target",
        "outside of the store",
    ),
    (lambda memory, _: memory.backup(":memory:"), "target", "ends with the process"),
    (
        lambda _, path: fmemory.open(f"{path}-new", auto_compact=wrong("yes")),
        "auto_compact",
        "True, False or an AutoCompact",
    ),
]


@pytest.mark.parametrize(("call", "where", "advice"), KEEPING)
def test_mistake_around_compaction_and_backup_changes_nothing(
    tmp_path: Path,
    call: Callable[[fmemory.JournalBackend, str], object],
    where: str,
    advice: str,
) -> None:
    with fmemory.open(tmp_path / "log") as memory:
        with pytest.raises(ContractError) as caught:
            call(memory, str(tmp_path / "log"))
        assert caught.value.where == where
        assert advice in caught.value.problem
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_compaction_of_a_store_opened_for_reading_is_named_as_such(tmp_path: Path) -> None:
    fmemory.open(tmp_path / "log").close()

    with (
        fmemory.open(tmp_path / "log", read_only=True) as memory,
        pytest.raises(ReadOnlyStore) as caught,
    ):
        memory.compact()

    assert str(caught.value).startswith("compact: ")
    assert caught.value.path == str(tmp_path / "log")


def test_backup_of_a_closed_memory_makes_no_target(tmp_path: Path) -> None:
    memory = fmemory.open(tmp_path / "log")
    memory.close()

    with pytest.raises(ClosedStore):
        memory.backup(tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


def anything(value: object) -> Any:
    """The value, of a type that a type checker would refuse."""
    return value


MISUSES: list[tuple[Callable[[fmemory.JournalBackend], object], type[Exception], str]] = [
    (
        lambda memory: memory.at(anything("1h ago")),
        ContractError,
        "moment: expected a seq (int) or",
    ),
    (lambda memory: memory.at(anything(1.5)), ContractError, "call int() on it"),
    (
        lambda memory: memory.append_transcript_messages("s", anything(Message("user", "x"))),
        ContractError,
        "put one into a list",
    ),
    (
        lambda memory: memory.replace_feature_list("s", anything(FeatureRecord("f", "ui", "form"))),
        ContractError,
        "put one into a list",
    ),
    (
        lambda _: Message("user", anything([{"type": "text"}])),
        ContractError,
        "are passed as blocks",
    ),
    (lambda memory: memory.update_feature_pass("s", "form", True), NotFound, "it has none"),
    (lambda memory: memory.update_feature_pass("t", "from", True), NotFound, "it has 'form'"),
    (lambda memory: memory.nearest([1.0, 2.0]), ContractError, "got 2 (2), 3 (1), as one of 3"),
    (lambda memory: memory.event(99), NotFound, "expected a seq from 1 to "),
    (lambda _: fmemory.open(":memory:").event(1), NotFound, "a seq of a log that has events"),
]


@pytest.mark.parametrize(("misuse", "error", "told"), MISUSES)
def test_a_mistake_is_answered_with_what_would_be_right(
    misuse: Callable[[fmemory.JournalBackend], object], error: type[Exception], told: str
) -> None:
    with fmemory.open(":memory:") as memory:
        memory.replace_feature_list("t", [FeatureRecord("form", "ui", "a form")])
        for number, vector in enumerate(([1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 1.0])):
            memory.add_note("tea", vector, id=f"n{number}")
        before = memory.head()

        with pytest.raises(error) as caught:
            misuse(memory)

        assert told in str(caught.value)
        assert memory.head() == before
