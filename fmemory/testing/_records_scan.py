"""`scan`, its cursors, and `iter_all`: exact at every page size, whatever happens in between."""

from __future__ import annotations

import random

import pytest

from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, InvalidCursor, Reason
from fmemory.record_models import MemoryRecord, TimeRange
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._samples import (
    UNTYPED,
    page_of,
    pages,
    record,
    records,
    scan,
    scan_ids,
)

TEN_THIRTY = TimeRange(10, 30)


class ScanPart(BackendSuiteBase):
    """What `scan` promises."""

    def test_three_records_in_a_half_open_range_by_pages_of_one(
        self, memory: MemoryBackend
    ) -> None:
        self.put(memory, *records(10, 20, 30))
        first, cursor = page_of(memory, limit=1, time_range=TEN_THIRTY)
        assert first == ["r0"]
        assert cursor is not None
        assert page_of(memory, cursor, limit=1, time_range=TEN_THIRTY) == (["r1"], None)

    def test_scan_of_an_empty_namespace_is_an_empty_page(self, memory: MemoryBackend) -> None:
        assert page_of(memory) == ([], None)

    def test_scan_orders_by_timestamp(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(3, -1, 2.5, 0))
        assert scan_ids(memory) == ["r1", "r3", "r2", "r0"]

    def test_scan_orders_equal_timestamps_by_write_order(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(name, 7.0) for name in "dbca"))
        self.put(memory, record("A", 7.0))
        assert scan_ids(memory) == ["d", "b", "c", "a", "A"]

    def test_hundred_records_of_one_timestamp_keep_write_order(self, memory: MemoryBackend) -> None:
        for number in range(100):
            self.put(memory, record(f"x{number}", 1.0))
        assert scan_ids(memory, limit=9) == [f"x{number}" for number in range(100)]

    def test_record_put_again_comes_last_of_its_timestamp(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(name, 7.0) for name in "abc"))
        self.delete(memory, "a")
        self.put(memory, record("a", 7.0))
        assert scan_ids(memory) == ["b", "c", "a"]

    def test_minus_zero_and_zero_are_one_timestamp(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", 0.0), record("b", -0.0), record("c", 0.0))
        assert scan_ids(memory) == ["a", "b", "c"]

    def test_extreme_timestamps_are_in_order(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(5e-324, -1e308, 1.7e308, 0, -5e-324, 2**53 + 2))
        assert scan_ids(memory) == ["r1", "r4", "r3", "r0", "r5", "r2"]

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (10, 30, ["r0", "r1"]),
            (None, 20, ["r0"]),
            (20, None, ["r1", "r2"]),
            (None, None, ["r0", "r1", "r2"]),
            (10.5, 19.5, []),
            (20, 20, []),
            (31, 99, []),
            (-5, 10, []),
        ],
    )
    def test_range_is_half_open(
        self, memory: MemoryBackend, start: float | None, end: float | None, expected: list[str]
    ) -> None:
        self.put(memory, *records(10, 20, 30))
        assert scan_ids(memory, time_range=TimeRange(start, end)) == expected

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 8, 9, 500])
    def test_pages_of_every_size_are_the_whole(self, memory: MemoryBackend, limit: int) -> None:
        times = [5, 1, 1, 3, 5, 1, 2, 8]
        self.put(memory, *records(*times))
        expected = sorted(range(8), key=lambda number: times[number])
        assert scan_ids(memory, limit=limit) == [f"r{number}" for number in expected]

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 7, 12, 13])
    def test_every_page_but_the_last_is_full_and_none_is_empty(
        self, memory: MemoryBackend, limit: int
    ) -> None:
        self.put(memory, *records(*range(12)))
        sizes = [len(page) for page in pages(memory, limit=limit)]
        assert sizes == [limit] * (12 // limit) + ([12 % limit] if 12 % limit else [])

    @pytest.mark.parametrize("limit", [1, 3, 7])
    def test_pages_of_a_range_end_without_a_cursor(self, memory: MemoryBackend, limit: int) -> None:
        self.put(memory, *records(*range(20)))
        chosen = TimeRange(4, 11)
        sizes = [len(page) for page in pages(memory, limit=limit, time_range=chosen)]
        assert sizes == [limit] * (7 // limit) + ([7 % limit] if 7 % limit else [])

    def test_random_times_come_sorted_at_random_page_sizes(self, memory: MemoryBackend) -> None:
        chance = random.Random(self.seed())
        many = [record(f"x{i}", float(chance.randrange(40))) for i in range(300)]
        for at in range(0, 300, 50):
            self.put(memory, *many[at : at + 50])
        for _ in range(12):
            start, end = sorted((chance.uniform(-1, 41), chance.uniform(-1, 41)))
            chosen = [one for one in many if start <= one.note.timestamp < end]
            expected = [one.id for one in sorted(chosen, key=lambda one: one.note.timestamp)]
            limit = chance.randint(1, 90)
            found = scan_ids(memory, limit=limit, time_range=TimeRange(start, end))
            assert found == expected, (start, end, limit)

    def test_page_holds_whole_records(self, memory: MemoryBackend) -> None:
        many = [record(f"x{i}", i, embedding_id="m" if i % 2 else None) for i in range(20)]
        self.put(memory, *many)
        assert scan(memory, limit=6) == many

    def test_default_limit_is_500(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(*range(501)))
        assert len(memory.scan(memory.scan_request()).records) == 500

    def test_scan_writes_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2))
        with self.nothing_written(memory):
            page_of(memory, limit=1)

    def test_scan_of_another_type_than_its_request_is_refused(self, memory: MemoryBackend) -> None:
        self.refuses_each(memory, "scan", UNTYPED)


class CursorPart(BackendSuiteBase):
    """What a cursor promises when the store changes between pages."""

    def cursor_after_r1(self, memory: MemoryBackend) -> str:
        """Five records at 0, 10, …, 40; the cursor after the first two."""
        self.put(memory, *records(0, 10, 20, 30, 40))
        ids, cursor = page_of(memory, limit=2)
        assert (ids, cursor is None) == (["r0", "r1"], False)
        return str(cursor)

    def rest(self, memory: MemoryBackend, cursor: str) -> list[str]:
        return page_of(memory, cursor)[0]

    def test_cursor_resumes_after_its_page(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        assert self.rest(memory, cursor) == ["r2", "r3", "r4"]

    def test_cursor_can_be_used_twice(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        assert self.rest(memory, cursor) == self.rest(memory, cursor)

    def test_cursor_works_with_another_limit(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        assert page_of(memory, cursor, limit=1)[0] == ["r2"]

    def test_cursor_resumes_when_its_own_record_was_deleted(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        self.delete(memory, "r1")
        assert self.rest(memory, cursor) == ["r2", "r3", "r4"]

    def test_cursor_resumes_when_the_next_record_was_deleted(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        self.delete(memory, "r2")
        assert self.rest(memory, cursor) == ["r3", "r4"]

    def test_cursor_resumes_when_all_read_records_were_deleted(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        self.delete(memory, "r0", "r1")
        assert self.rest(memory, cursor) == ["r2", "r3", "r4"]

    def test_cursor_ends_when_all_further_records_were_deleted(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        self.delete(memory, "r2", "r3", "r4")
        assert page_of(memory, cursor) == ([], None)

    def test_record_inserted_before_the_cursor_is_not_read(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        self.put(memory, record("new", 5))
        assert self.rest(memory, cursor) == ["r2", "r3", "r4"]

    def test_record_inserted_after_the_cursor_is_read(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        self.put(memory, record("new", 15))
        assert self.rest(memory, cursor) == ["new", "r2", "r3", "r4"]

    def test_record_inserted_at_the_cursors_own_time_is_read(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        self.put(memory, record("new", 10))
        assert self.rest(memory, cursor) == ["new", "r2", "r3", "r4"]

    def test_records_put_again_after_a_clear_are_read_from_the_cursor_on(
        self, memory: MemoryBackend
    ) -> None:
        cursor = self.cursor_after_r1(memory)
        self.clear(memory)
        self.put(memory, record("early", 5), record("late", 25))
        assert self.rest(memory, cursor) == ["late"]

    def test_no_record_is_read_twice_while_others_come_and_go(self, memory: MemoryBackend) -> None:
        chance = random.Random(self.seed())
        self.put(memory, *(record(f"s{i}", float(i % 7)) for i in range(60)))
        seen, cursor, turn = list[str](), None, 0
        while True:
            ids, cursor = page_of(memory, cursor, limit=5)
            seen += ids
            if cursor is None:
                break
            turn += 1
            self.put(memory, record(f"n{turn}", float(chance.randrange(7))))
            self.delete(memory, f"n{turn - 1}")
        assert len(seen) == len(set(seen))
        assert {one for one in seen if one.startswith("s")} == {f"s{i}" for i in range(60)}

    def test_empty_cursor_is_refused(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.refused(memory, InvalidCursor, Reason.CURSOR_MALFORMED):
            page_of(memory, "")

    @pytest.mark.parametrize(
        "cursor", ["x", "0", "r1", "====", "\x00", "ü", "a" * 5000, '{"seq": 1}', "None", "-1"]
    )
    def test_malformed_cursor_is_refused(self, memory: MemoryBackend, cursor: str) -> None:
        self.put(memory, record("a"))
        with self.refused(memory, InvalidCursor, Reason.CURSOR_MALFORMED):
            page_of(memory, cursor)

    def test_every_cut_of_a_cursor_is_refused(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        for length in range(len(cursor)):
            with pytest.raises(InvalidCursor):
                page_of(memory, cursor[:length])

    def test_lengthened_cursor_is_refused(self, memory: MemoryBackend) -> None:
        cursor = self.cursor_after_r1(memory)
        with self.refused(memory, InvalidCursor, Reason.CURSOR_MALFORMED):
            page_of(memory, cursor + "AAAA")

    def test_cursor_error_holds_the_cursor(self, memory: MemoryBackend) -> None:
        with self.refused(memory, InvalidCursor, Reason.CURSOR_MALFORMED) as caught:
            page_of(memory, "nonsense")
        assert caught.value.cursor == "nonsense"

    def test_cursor_of_another_type_is_refused(self, memory: MemoryBackend) -> None:
        with self.refused(memory, ContractError, Reason.WRONG_TYPE):
            self.untyped(memory, "scan_request", cursor=7)

    @pytest.mark.parametrize("namespace", [("a",), ("a", "b"), ("records",)])
    def test_cursor_of_another_namespace_is_refused(
        self, memory: MemoryBackend, namespace: tuple[str, ...]
    ) -> None:
        cursor = self.cursor_after_r1(memory)
        self.put(memory, record("x", namespace=namespace))
        with self.refused(memory, InvalidCursor, Reason.CURSOR_FOREIGN):
            page_of(memory, cursor, namespace=namespace)

    def test_cursor_of_a_namespace_joined_otherwise_is_refused(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i, namespace=("a", "b")) for i in range(3)))
        _ids, cursor = page_of(memory, limit=1, namespace=("a", "b"))
        with self.refused(memory, InvalidCursor, Reason.CURSOR_FOREIGN):
            page_of(memory, cursor, namespace=("a.b",))

    def test_cursor_of_another_store_is_refused(self, stores: Stores) -> None:
        cursor = self.cursor_after_r1(stores.open("one"))
        other = stores.open("two")
        self.put(other, *records(0, 10, 20))
        with self.refused(other, InvalidCursor, Reason.CURSOR_FOREIGN):
            page_of(other, cursor)

    @needs(Capability.PERSISTENT)
    def test_cursor_survives_a_reopen(self, stores: Stores) -> None:
        memory = stores.open()
        cursor = self.cursor_after_r1(memory)
        assert self.rest(stores.reopen(memory), cursor) == ["r2", "r3", "r4"]

    @needs(Capability.SHARED)
    def test_cursor_of_one_handle_works_with_another(self, stores: Stores) -> None:
        cursor = self.cursor_after_r1(stores.open())
        assert self.rest(stores.open(), cursor) == ["r2", "r3", "r4"]


class IterAllPart(BackendSuiteBase):
    """What `iter_all` promises."""

    @pytest.mark.parametrize("page_size", [1, 3, 500])
    def test_iter_all_gives_every_record_in_scan_order(
        self, memory: MemoryBackend, page_size: int
    ) -> None:
        self.put(memory, *records(5, 1, 4, 1, 3))
        found: list[MemoryRecord] = list(memory.iter_all(page_size=page_size))
        assert [one.id for one in found] == ["r1", "r3", "r4", "r2", "r0"]

    def test_iter_all_keeps_to_its_range(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(10, 20, 30))
        assert [one.id for one in memory.iter_all(TEN_THIRTY, page_size=1)] == ["r0", "r1"]

    def test_iter_all_keeps_to_its_namespace(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x"), record("y", namespace=("a",)))
        assert [one.id for one in memory.iter_all(namespace=("a",))] == ["y"]

    def test_paused_iter_all_hinders_no_write(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2, 3))
        reading = iter(memory.iter_all(page_size=1))
        next(reading)
        self.put(memory, record("late", 9.0))
        assert [one.id for one in reading] == ["r1", "r2", "late"]

    @pytest.mark.parametrize("page_size", [0, -1, True, 1.5, "10", None])
    def test_page_size_that_is_no_positive_int_is_refused(
        self, memory: MemoryBackend, page_size: object
    ) -> None:
        with pytest.raises(ContractError):
            self.untyped(memory, "iter_all", page_size=page_size)
