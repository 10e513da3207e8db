"""`put`: all or nothing, ids unique in their namespace, everything kept as given."""

from __future__ import annotations

from typing import cast

import pytest

from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, DuplicateRecord, Reason
from fmemory.record_models import MemoryRecord, Note, PutRequest
from fmemory.testing._backend_base import BackendSuiteBase
from fmemory.testing._samples import UNTYPED, count, get_ids, record, records, scan, scan_ids


class PutPart(BackendSuiteBase):
    """What `put` promises."""

    def test_put_returns_the_number_written(self, memory: MemoryBackend) -> None:
        assert self.put(memory, *records(1, 2, 3)).written == 3

    def test_put_of_no_records_writes_nothing(self, memory: MemoryBackend) -> None:
        with self.nothing_written(memory):
            assert self.put(memory).written == 0

    def test_put_record_can_be_read(self, memory: MemoryBackend) -> None:
        one = record("a", 2.5, embedding_id="model", metadata={"k": [1, None]})
        self.put(memory, one)
        assert scan(memory) == [one]

    def test_put_accepts_a_list_of_records(self, memory: MemoryBackend) -> None:
        request = cast("PutRequest", self.untyped(memory, "put_request", records(1, 2)))
        assert memory.put(request).written == 2

    def test_put_of_an_existing_id_is_refused(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.refused(memory, DuplicateRecord, Reason.RECORD_EXISTS):
            self.put(memory, record("a", 9.0))

    def test_put_of_an_equal_record_is_refused(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.refused(memory, DuplicateRecord, Reason.RECORD_EXISTS):
            self.put(memory, record("a"))

    def test_put_that_repeats_an_id_is_refused(self, memory: MemoryBackend) -> None:
        with self.refused(memory, DuplicateRecord, Reason.RECORD_REPEATED):
            self.put(memory, record("a", 1.0), record("b"), record("a", 2.0))

    def test_one_duplicate_among_many_refuses_all(self, memory: MemoryBackend) -> None:
        self.put(memory, record("r3"))
        with self.refused(memory, DuplicateRecord, Reason.RECORD_EXISTS):
            self.put(memory, *records(1, 2, 3, 4, 5))

    def test_duplicate_in_one_namespace_refuses_all_namespaces(self, memory: MemoryBackend) -> None:
        self.put(memory, record("taken", namespace=("a",)))
        with self.refused(memory, DuplicateRecord, Reason.RECORD_EXISTS):
            self.put(
                memory,
                record("new", namespace=("user1",)),
                record("taken", namespace=("a",)),
                record("new"),
            )

    def test_repeat_in_one_namespace_refuses_all_namespaces(self, memory: MemoryBackend) -> None:
        with self.refused(memory, DuplicateRecord, Reason.RECORD_REPEATED):
            self.put(
                memory,
                record("new", namespace=("user1",)),
                record("b", namespace=("a",)),
                record("b", namespace=("a",)),
            )

    def test_duplicate_error_names_the_ids_in_call_order(self, memory: MemoryBackend) -> None:
        self.put(memory, record("r1"), record("r2"))
        with self.refused(memory, DuplicateRecord, Reason.RECORD_EXISTS) as caught:
            self.put(memory, record("r2"), record("x"), record("r1"))
        assert caught.value.ids == ("r2", "r1")

    def test_duplicate_error_names_the_namespace(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x", namespace=("a", "b")))
        with self.refused(memory, DuplicateRecord, Reason.RECORD_EXISTS) as caught:
            self.put(memory, record("x", namespace=("a", "b")))
        assert caught.value.namespace == ("a", "b")

    def test_repeated_error_names_the_id(self, memory: MemoryBackend) -> None:
        with self.refused(memory, DuplicateRecord, Reason.RECORD_REPEATED) as caught:
            self.put(memory, record("a"), record("b"), record("b"), record("a"), record("b"))
        assert set(caught.value.ids) == {"a", "b"}

    def test_same_id_in_two_namespaces_is_fine(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x", 1.0), record("x", 2.0, namespace=("a",)))
        self.put(memory, record("x", 3.0, namespace=("a", "b")))
        found = [scan(memory, one)[0].note.timestamp for one in ((), ("a",), ("a", "b"))]
        assert found == [1.0, 2.0, 3.0]

    def test_deleted_id_can_be_put_again(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", 1.0))
        self.delete(memory, "a")
        self.put(memory, record("a", 2.0))
        assert [one.note.timestamp for one in scan(memory)] == [2.0]

    def test_id_put_again_has_nothing_of_the_old_record(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", vector=[1.0, 2.0], embedding_id="m", metadata={"old": 1}))
        self.delete(memory, "a")
        again = record("a", vector=[], metadata={})
        self.put(memory, again)
        assert scan(memory) == [again]

    def test_put_after_a_refused_put_works(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with pytest.raises(DuplicateRecord):
            self.put(memory, record("b"), record("a"))
        self.put(memory, record("b"))
        assert sorted(scan_ids(memory)) == ["a", "b"]

    def test_put_of_several_namespaces_lands_in_each(self, memory: MemoryBackend) -> None:
        spaces = ((), ("a",), ("a", "b"))
        self.put(memory, *(record(f"x{i % 3}", i, namespace=spaces[i % 3]) for i in range(3)))
        assert [scan_ids(memory, one) for one in spaces] == [["x0"], ["x1"], ["x2"]]

    def test_put_keeps_interleaved_namespaces_in_write_order(self, memory: MemoryBackend) -> None:
        spaces = ((), ("a",))
        self.put(memory, *(record(f"x{i}", 5.0, namespace=spaces[i % 2]) for i in range(10)))
        assert scan_ids(memory) == [f"x{i}" for i in range(0, 10, 2)]
        assert scan_ids(memory, ("a",)) == [f"x{i}" for i in range(1, 10, 2)]

    def test_put_of_two_thousand_records_keeps_each(self, memory: MemoryBackend) -> None:
        many = records(*range(2000))
        self.put(memory, *many)
        assert scan(memory, limit=700) == many

    def test_put_of_more_rows_than_an_event_may_hold_is_one_put(
        self, memory: MemoryBackend
    ) -> None:
        shared = record("shared", vector=[])
        many = [MemoryRecord(Note(f"r{i}", "", float(i), {}), shared.vector) for i in range(70_000)]
        assert self.put(memory, *many).written == 70_000
        assert count(memory) == 70_000
        assert get_ids(memory, ["r0", "r65535", "r69999"]) == ["r0", "r65535", "r69999"]

    def test_put_of_another_type_than_its_request_is_refused(self, memory: MemoryBackend) -> None:
        self.refuses_each(memory, "put", UNTYPED)

    def test_put_of_another_request_is_refused(self, memory: MemoryBackend) -> None:
        with self.refused(memory, ContractError, Reason.WRONG_TYPE):
            self.untyped(memory, "put", memory.get_request(("a",)))
