"""`vectors`, `nearest`, `add_note` and `ensure_embedding_id`: convenience under the contract."""

from __future__ import annotations

import numpy as np
import pytest

from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, DuplicateRecord, Reason
from fmemory.record_models import Metric, TimeRange
from fmemory.testing._backend_base import BackendSuiteBase
from fmemory.testing._samples import record, scan, scan_ids


class VectorsPart(BackendSuiteBase):
    """What `vectors` promises."""

    def test_rows_are_in_scan_order(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{at}", at, vector=[at, 1.0]) for at in (3, 1, 2)))
        block = memory.vectors()
        assert block.ids == ("x1", "x2", "x3")
        assert block.timestamps.tolist() == [1.0, 2.0, 3.0]
        assert block.matrix.tolist() == [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]

    def test_rows_are_the_vectors_of_the_records(self, memory: MemoryBackend) -> None:
        many = [record(f"x{i}", i % 5, vector=np.sin(np.arange(8.0) + i)) for i in range(50)]
        for at in range(0, 50, 10):
            self.put(memory, *many[at : at + 10])
        expected = {one.id: one.vector.tolist() for one in scan(memory)}
        block = memory.vectors()
        found = dict(zip(block.ids, block.matrix.tolist(), strict=True))
        assert (list(block.ids), found) == (scan_ids(memory), expected)

    def test_float32_stays_float32(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i, vector=np.ones(3, np.float32)) for i in range(3)))
        assert memory.vectors().matrix.dtype == np.float32

    def test_mixed_float_types_become_float64(self, memory: MemoryBackend) -> None:
        small = np.array([0.1, 0.2], np.float32)
        self.put(memory, record("a", 1, vector=small), record("b", 2, vector=[0.1, 0.2]))
        matrix = memory.vectors().matrix
        assert matrix.dtype == np.float64
        assert matrix.tolist() == [small.astype(np.float64).tolist(), [0.1, 0.2]]

    def test_mixed_widths_are_refused(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", vector=[1.0]), record("b", vector=[1.0, 2.0]))
        with self.refused(memory, ContractError, Reason.WRONG_DIMENSION):
            memory.vectors()

    def test_records_without_embedding_are_left_out(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", 1, vector=[]), record("b", 2, vector=[1.0]))
        assert memory.vectors().ids == ("b",)

    def test_no_records_give_a_matrix_of_no_rows(self, memory: MemoryBackend) -> None:
        block = memory.vectors()
        assert (block.ids, block.timestamps.shape, block.matrix.shape) == ((), (0,), (0, 0))

    def test_range_and_namespace_select_rows(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i * 10, namespace=("a",)) for i in range(5)))
        self.put(memory, record("other", 15))
        assert memory.vectors(TimeRange(10, 30), ("a",)).ids == ("x1", "x2")

    def test_ids_select_rows_in_scan_order(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i) for i in range(5)))
        assert memory.vectors(ids=["x4", "nowhere", "x1", "x4"]).ids == ("x1", "x4")

    def test_deleted_records_are_no_rows(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i) for i in range(5)))
        self.delete(memory, "x0", "x2")
        assert memory.vectors().ids == ("x1", "x3", "x4")

    def test_received_matrix_can_be_changed(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", vector=[1.0, 2.0]))
        memory.vectors().matrix[:] = 99.0
        assert memory.vectors().matrix.tolist() == [[1.0, 2.0]]

    def test_vectors_write_nothing(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        with self.nothing_written(memory):
            memory.vectors()


class NearestPart(BackendSuiteBase):
    """What `nearest` promises."""

    @pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
    def test_nearest_agrees_with_a_plain_search(
        self, memory: MemoryBackend, metric: Metric
    ) -> None:
        chance = np.random.default_rng(self.seed())
        matrix, query = chance.normal(size=(60, 6)), chance.normal(size=6)
        self.put(memory, *(record(f"x{i}", i, vector=row) for i, row in enumerate(matrix)))
        scores = {
            "dot": matrix @ query,
            "cosine": matrix @ query / np.linalg.norm(matrix, axis=1) / np.linalg.norm(query),
            "euclidean": -np.linalg.norm(matrix - query, axis=1),
        }[metric]
        found = memory.nearest(query, 7, metric=metric)
        best = np.argsort(-scores)[:7]
        assert [one.record.id for one in found] == [f"x{i}" for i in best]
        assert np.allclose([one.score for one in found], scores[best])

    def test_nearest_gives_whole_records(self, memory: MemoryBackend) -> None:
        one = record("a", vector=[1.0, 2.0], embedding_id="m", metadata={"k": 1})
        self.put(memory, one)
        assert memory.nearest([1.0, 0.0])[0].record == one

    def test_ties_come_in_scan_order(self, memory: MemoryBackend) -> None:
        times = [3, 1, 2, 1]
        self.put(memory, *(record(f"x{i}", at, vector=[1, 1]) for i, at in enumerate(times)))
        assert [one.record.id for one in memory.nearest([1, 1], 3)] == ["x1", "x3", "x2"]

    def test_fewer_records_than_k_are_all_given(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", vector=[1.0]), record("b", vector=[2.0]))
        assert len(memory.nearest([1.0], 10)) == 2

    def test_nearest_of_no_records_is_empty(self, memory: MemoryBackend) -> None:
        assert memory.nearest([1.0, 2.0]) == ()

    def test_records_without_embedding_are_passed_over(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", vector=[]), record("b", vector=[1.0]))
        assert [one.record.id for one in memory.nearest([1.0])] == ["b"]

    def test_nearest_keeps_to_range_and_namespace(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i, vector=[1.0], namespace=("a",)) for i in range(5)))
        self.put(memory, record("other", 2, vector=[1.0]))
        found = memory.nearest([1.0], namespace=("a",), time_range=TimeRange(1, 3))
        assert [one.record.id for one in found] == ["x1", "x2"]

    def test_record_put_again_without_vector_is_not_found_by_its_old_one(
        self, memory: MemoryBackend
    ) -> None:
        self.put(memory, record("a", vector=[1.0, 0.0]), record("b", vector=[0.0, 1.0]))
        self.delete(memory, "a")
        self.put(memory, record("a", vector=[]))
        assert [one.record.id for one in memory.nearest([1.0, 0.0])] == ["b"]

    def test_record_put_again_is_found_by_its_new_vector(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", vector=[1.0, 0.0]), record("b", vector=[0.5, 0.5]))
        self.delete(memory, "a")
        self.put(memory, record("a", vector=[0.0, 1.0]))
        assert [one.record.id for one in memory.nearest([1.0, 0.0])] == ["b", "a"]

    @pytest.mark.parametrize(
        ("vector", "options", "reason"),
        [
            ([1.0], {}, Reason.WRONG_DIMENSION),
            ([1.0, 2.0, 3.0], {}, Reason.WRONG_DIMENSION),
            ([], {}, Reason.EMPTY),
            ([1.0, float("nan")], {}, Reason.NOT_FINITE),
            ("ab", {}, Reason.WRONG_TYPE),
            ([1.0, 2.0], {"k": 0}, Reason.OUT_OF_RANGE),
            ([1.0, 2.0], {"k": True}, Reason.WRONG_TYPE),
            ([1.0, 2.0], {"metric": "manhattan"}, Reason.BAD_VALUE),
            ([1.0, 2.0], {"namespace": "ab"}, Reason.WRONG_TYPE),
        ],
    )
    def test_bad_query_is_refused(
        self, memory: MemoryBackend, vector: object, options: dict[str, object], reason: Reason
    ) -> None:
        self.put(memory, record("a", vector=[1.0, 2.0]))
        with self.refused(memory, ContractError, reason):
            self.untyped(memory, "nearest", vector, **options)


class ConveniencePart(BackendSuiteBase):
    """What `add_note` and `ensure_embedding_id` promise."""

    def test_added_note_is_stored_as_returned(self, memory: MemoryBackend) -> None:
        note = memory.add_note("tea", [1.0, 2.0], metadata={"k": 1}, embedding_id="m")
        (found,) = scan(memory)
        assert (found.note, found.vector.tolist(), found.embedding_id) == (note, [1.0, 2.0], "m")

    def test_added_note_has_the_given_id_time_and_namespace(self, memory: MemoryBackend) -> None:
        memory.add_note("tea", id="n1", timestamp=16.5, namespace=("a",))
        (found,) = scan(memory, ("a",))
        assert (found.id, found.note.timestamp, len(found.vector)) == ("n1", 16.5, 0)

    def test_added_notes_get_different_ids(self, memory: MemoryBackend) -> None:
        assert len({memory.add_note("tea").id for _ in range(20)}) == 20

    def test_added_note_of_a_taken_id_is_refused(self, memory: MemoryBackend) -> None:
        memory.add_note("tea", id="n1")
        with self.refused(memory, DuplicateRecord, Reason.RECORD_EXISTS):
            memory.add_note("coffee", id="n1")

    def test_bad_note_is_refused(self, memory: MemoryBackend) -> None:
        with self.refused(memory, ContractError, Reason.NOT_FINITE):
            memory.add_note("tea", [float("nan")])

    def test_embedding_id_is_kept_as_meta(self, memory: MemoryBackend) -> None:
        memory.ensure_embedding_id("model-1", ("a",))
        assert self.get_meta(memory, "embedding_id", ("a",)) == "model-1"

    def test_same_embedding_id_again_writes_nothing(self, memory: MemoryBackend) -> None:
        memory.ensure_embedding_id("model-1")
        with self.nothing_written(memory):
            memory.ensure_embedding_id("model-1")

    def test_another_embedding_id_is_refused(self, memory: MemoryBackend) -> None:
        memory.ensure_embedding_id("model-1")
        with self.refused(memory, ContractError, Reason.MISMATCH):
            memory.ensure_embedding_id("model-2")

    def test_namespaces_may_have_different_embedding_ids(self, memory: MemoryBackend) -> None:
        memory.ensure_embedding_id("model-1")
        memory.ensure_embedding_id("model-2", ("a",))
        assert self.get_meta(memory, "embedding_id") == "model-1"

    @pytest.mark.parametrize("embedding_id", ["", None, 1])
    def test_bad_embedding_id_is_refused(self, memory: MemoryBackend, embedding_id: object) -> None:
        with pytest.raises(ContractError):
            self.untyped(memory, "ensure_embedding_id", embedding_id)
