"""What a batch offers: the writes of the backend, with their parameters."""

from __future__ import annotations

import inspect

import pytest

import fmemory
from fmemory.backend import LogBackend
from fmemory.errors import ContractError, DuplicateRecord
from fmemory.log import Batch

NAMES = [name for name, _ in inspect.getmembers(Batch, inspect.isfunction) if name[0] != "_"]


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_of_a_batch_has_the_parameters_of_the_backends(name: str) -> None:
    of_batch = inspect.signature(getattr(Batch, name)).parameters
    of_backend = inspect.signature(getattr(LogBackend, name)).parameters
    assert list(of_batch.values()) == list(of_backend.values())


def test_a_batch_has_every_write_but_those_of_whole_stores() -> None:
    assert set(NAMES) == {
        *("put", "add_note", "delete", "set_meta", "clear", "append"),
        *("initialize_session_if_missing", "save_manifest", "append_progress_entry"),
        *("replace_feature_list", "update_feature_pass", "record_run_checkpoint"),
        *("append_transcript_messages", "truncate_transcript", "delete_session"),
    }


def test_a_note_of_a_batch_is_given_at_once_and_stored_at_the_end() -> None:
    with fmemory.open(":memory:") as memory:
        with memory.batch() as batch:
            first = batch.add_note("tea", [1.0], metadata={"a": 1}, namespace=["u"])
            second = batch.add_note("milk", id="m", timestamp=5, namespace=["u"])
            assert memory.count(memory.count_request(namespace=("u",))).count == 0
        found = memory.get(memory.get_request((first.id, "m"), ("u",))).records
    assert [record.note for record in found] == [first, second]
    assert [record.vector.tolist() for record in found] == [[1.0], []]
    assert batch.receipt is not None


def test_a_bad_note_is_refused_at_once_and_a_taken_id_at_the_end() -> None:
    with fmemory.open(":memory:") as memory:
        memory.add_note("tea", id="n")
        with pytest.raises(DuplicateRecord), memory.batch() as batch:
            batch.add_note("milk", id="m")
            batch.add_note("tea", id="n")
        with pytest.raises(ContractError) as caught, memory.batch() as batch:
            batch.add_note("tea", metadata={1: 2})  # type: ignore[dict-item]
        assert caught.value.where == "metadata"
        assert memory.count(memory.count_request()).count == 1
