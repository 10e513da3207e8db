"""`get`, `delete`, `count` and `clear`."""

from __future__ import annotations

from itertools import combinations_with_replacement

from fmemory.backend import MemoryBackend
from fmemory.record_models import TimeRange
from fmemory.testing._backend_base import BackendSuiteBase
from fmemory.testing._samples import UNTYPED, count, get_ids, record, records, scan, scan_ids


class GetPart(BackendSuiteBase):
    """What `get` promises."""

    def test_get_gives_the_record_that_was_put(self, memory: MemoryBackend) -> None:
        one = record("a", 3.5, embedding_id="m")
        self.put(memory, one)
        assert list(memory.get(memory.get_request(("a",))).records) == [one]

    def test_get_keeps_request_order(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(3, 1, 2))
        assert get_ids(memory, ["r2", "r0", "r1"]) == ["r2", "r0", "r1"]

    def test_get_reports_unknown_ids_in_request_order(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        assert memory.get(memory.get_request(("z", "a", "y"))).missing == ("z", "y")

    def test_get_of_unknown_ids_only_finds_nothing(self, memory: MemoryBackend) -> None:
        result = memory.get(memory.get_request(("x",)))
        assert (list(result.records), result.missing) == ([], ("x",))

    def test_get_gives_a_repeated_id_once_at_its_first_place(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2))
        assert get_ids(memory, ["r1", "r0", "r1", "r0"]) == ["r1", "r0"]

    def test_get_reports_a_repeated_unknown_id_once(self, memory: MemoryBackend) -> None:
        assert memory.get(memory.get_request(("x", "y", "x"))).missing == ("x", "y")

    def test_get_of_no_ids_finds_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        result = memory.get(memory.get_request(()))
        assert (list(result.records), result.missing) == ([], ())

    def test_get_does_not_find_a_deleted_record(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2))
        self.delete(memory, "r0")
        assert memory.get(memory.get_request(("r0", "r1"))).missing == ("r0",)

    def test_get_reads_its_namespace_only(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x", namespace=("a",)))
        assert memory.get(memory.get_request(("x",))).missing == ("x",)

    def test_get_of_a_thousand_ids_keeps_request_order(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(*range(1000)))
        wanted = [f"r{(i * 7) % 1000}" for i in range(1000)]
        assert get_ids(memory, wanted) == wanted

    def test_get_writes_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.nothing_written(memory):
            get_ids(memory, ["a", "b"])

    def test_get_of_another_type_than_its_request_is_refused(self, memory: MemoryBackend) -> None:
        self.refuses_each(memory, "get", UNTYPED)


class DeletePart(BackendSuiteBase):
    """What `delete` promises."""

    def test_delete_returns_the_number_deleted(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2, 3))
        assert self.delete(memory, "r0", "r2").deleted == 2

    def test_deleted_record_is_in_no_answer(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2, 3))
        self.delete(memory, "r1")
        assert scan_ids(memory) == ["r0", "r2"]
        assert count(memory) == 2
        assert get_ids(memory, ["r1"]) == []

    def test_delete_reports_unknown_ids_in_request_order(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        assert self.delete(memory, "z", "a", "y").missing == ("z", "y")

    def test_delete_counts_a_repeated_id_once(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        result = self.delete(memory, "a", "x", "a", "x")
        assert (result.deleted, result.missing) == (1, ("x",))

    def test_second_delete_finds_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        self.delete(memory, "a")
        result = self.delete(memory, "a")
        assert (result.deleted, result.missing) == (0, ("a",))

    def test_delete_of_unknown_ids_writes_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.nothing_written(memory):
            self.delete(memory, "x", "y")

    def test_delete_of_no_ids_writes_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.nothing_written(memory):
            result = self.delete(memory)
        assert (result.deleted, result.missing) == (0, ())

    def test_delete_reaches_its_namespace_only(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x"), record("x", namespace=("a",)))
        self.delete(memory, "x")
        assert (scan_ids(memory), scan_ids(memory, ("a",))) == ([], ["x"])

    def test_delete_of_every_second_record_keeps_the_others(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(*range(500)))
        self.delete(memory, *(f"r{i}" for i in range(0, 500, 2)))
        assert scan_ids(memory, limit=33) == [f"r{i}" for i in range(1, 500, 2)]

    def test_delete_of_another_type_than_its_request_is_refused(
        self, memory: MemoryBackend
    ) -> None:
        self.refuses_each(memory, "delete", UNTYPED)


class CountPart(BackendSuiteBase):
    """What `count` promises."""

    def test_count_of_an_empty_namespace_is_zero(self, memory: MemoryBackend) -> None:
        assert count(memory) == 0

    def test_count_follows_puts_and_deletes(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2, 3))
        self.delete(memory, "r0")
        self.put(memory, record("x"))
        assert count(memory) == 3

    def test_count_is_half_open(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(10, 20, 30))
        assert count(memory, time_range=TimeRange(10, 30)) == 2

    def test_count_is_the_length_of_the_scan(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(3, 1, 4, 1, 5, 9, 2, 6, 5, 3))
        self.delete(memory, "r0", "r5")
        bounds = (-1.0, 1.0, 3.0, 3.5, 5.0, 6.0, 9.0, 99.0)
        open_ended = [
            (None, None),
            *((one, None) for one in bounds),
            *((None, one) for one in bounds),
        ]
        for start, end in (*open_ended, *combinations_with_replacement(bounds, 2)):
            chosen = TimeRange(start, end)
            assert count(memory, time_range=chosen) == len(scan(memory, time_range=chosen))

    def test_count_reads_its_namespace_only(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x", namespace=("a",)), record("y", namespace=("a", "b")))
        assert [count(memory, one) for one in ((), ("a",), ("a", "b"), ("b",))] == [0, 1, 1, 0]

    def test_count_of_another_type_than_its_request_is_refused(self, memory: MemoryBackend) -> None:
        self.refuses_each(memory, "count", UNTYPED)


class ClearPart(BackendSuiteBase):
    """What `clear` promises."""

    def test_clear_returns_the_number_of_records_deleted(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2, 3))
        assert self.clear(memory).deleted == 3

    def test_cleared_namespace_has_no_records(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2, 3))
        self.clear(memory)
        assert (scan_ids(memory), count(memory), get_ids(memory, ["r0"])) == ([], 0, [])

    def test_cleared_namespace_has_no_meta(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "k", 1)
        self.clear(memory)
        assert self.get_meta(memory, "k") is None

    def test_clear_of_meta_alone_deletes_no_records(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "k", 1)
        assert self.clear(memory).deleted == 0

    def test_clear_keeps_records_of_other_namespaces(self, memory: MemoryBackend) -> None:
        spaces = ((), ("a",), ("a", "b"), ("a.b",))
        self.put(memory, *(record("x", namespace=one) for one in spaces))
        self.clear(memory, ("a",))
        assert [scan_ids(memory, one) for one in spaces] == [["x"], [], ["x"], ["x"]]

    def test_clear_keeps_meta_of_other_namespaces(self, memory: MemoryBackend) -> None:
        for one in ((), ("a",), ("a", "b")):
            self.set_meta(memory, "k", 1, one)
        self.clear(memory, ("a",))
        found = [self.get_meta(memory, "k", one) for one in ((), ("a",), ("a", "b"))]
        assert found == [1, None, 1]

    def test_ids_can_be_put_again_after_a_clear(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", 1.0))
        self.clear(memory)
        self.put(memory, record("a", 2.0))
        assert [one.note.timestamp for one in scan(memory)] == [2.0]

    def test_clear_of_an_empty_namespace_writes_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.nothing_written(memory):
            assert self.clear(memory, ("a", "b")).deleted == 0

    def test_second_clear_writes_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        self.clear(memory)
        with self.nothing_written(memory):
            assert self.clear(memory).deleted == 0

    def test_clear_of_another_type_than_its_request_is_refused(self, memory: MemoryBackend) -> None:
        self.refuses_each(memory, "clear", UNTYPED)
