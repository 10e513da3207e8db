"""Nearest neighbours: exact against a plain loop, whatever dtype, size of numbers and ties.

To break: candidates chosen by a rounded product without a bound on the rounding, or scores that
depend on where in the matrix a row stands.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmemory
from fmemory._nearest import check_query, nearest_rows
from fmemory.errors import ContractError, Reason
from fmemory.record_models import MemoryRecord, Metric, Note, TimeRange
from fmemory.testing._model_backend import ModelBackend

METRICS: list[Metric] = ["cosine", "dot", "euclidean"]
small = st.integers(-3, 3).map(float)


def plain_score(row: list[float], query: list[float], metric: Metric) -> float:
    """The score by its definition; exact for small integers."""
    dot = math.fsum(a * b for a, b in zip(row, query, strict=True))
    if metric == "dot":
        return dot
    if metric == "euclidean":
        return -math.dist(row, query)
    lengths = math.hypot(*row) * math.hypot(*query)
    return dot / lengths if lengths else 0.0


@settings(deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda dim: st.tuples(
            st.lists(st.lists(small, min_size=dim, max_size=dim), max_size=30),
            st.lists(small, min_size=dim, max_size=dim),
        )
    ),
    st.integers(1, 8),
    st.sampled_from(METRICS),
    st.sampled_from([np.float32, np.float64]),
)
def test_the_best_rows_are_those_of_a_plain_loop(
    case: tuple[list[list[float]], list[float]], k: int, metric: Metric, dtype: Any
) -> None:
    rows, query = case
    matrix = np.array(rows, dtype).reshape(len(rows), len(query))
    found = nearest_rows(matrix, np.array(query), k, metric)
    plain = [plain_score(row, query, metric) for row in rows]
    best = sorted(plain, reverse=True)[:k]
    assert [score for _, score in found] == pytest.approx(best, abs=1e-9)
    assert all(score == pytest.approx(plain[row], abs=1e-9) for row, score in found)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_have_equal_scores_and_come_in_order(metric: Metric, dtype: Any) -> None:
    random = np.random.default_rng(5)
    row = random.standard_normal(387).astype(dtype)
    matrix = np.concatenate([random.standard_normal((500, 387)).astype(dtype) * 0.1, [row] * 41])
    matrix = matrix[np.argsort(random.random(541))]
    places = [int(n) for n in np.flatnonzero((matrix == row).all(axis=1))]
    found = nearest_rows(matrix, row.astype(np.float64), 41, metric)
    assert [n for n, _ in found] == places
    assert len({score for _, score in found}) == 1


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e-150, np.float64), (1e150, np.float64), (1e-38, np.float32), (1e30, np.float32)],
)
def test_the_order_does_not_depend_on_the_size_of_the_numbers(
    metric: Metric, scale: float, dtype: Any
) -> None:
    random = np.random.default_rng(6)
    matrix = random.standard_normal((200, 16))
    query = random.standard_normal(16)
    wanted = [row for row, _ in nearest_rows(matrix, query, 5, metric)]
    scaled = (matrix * scale).astype(dtype)
    assert [row for row, _ in nearest_rows(scaled, query * scale, 5, metric)] == wanted


def test_rows_that_differ_less_than_float32_can_tell_are_told_apart() -> None:
    matrix = np.array([[1.0, 1.0], [1.0, 1.0 + 2**-23]] * 50, np.float32)
    found = nearest_rows(matrix, np.array([0.0, 1.0]), 50, "dot")
    assert [row for row, _ in found] == list(range(1, 100, 2))


def test_a_vector_of_zeros_has_no_direction() -> None:
    matrix = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert nearest_rows(matrix, np.array([1.0, 0.0]), 3, "cosine") == [
        (1, 1.0),
        (0, 0.0),
        (2, -1.0),
    ]
    assert nearest_rows(matrix, np.zeros(2), 3, "cosine") == [(0, 0.0), (1, 0.0), (2, 0.0)]


@pytest.mark.parametrize(
    ("vector", "k", "metric", "where", "reason"),
    [
        ([], 1, "dot", "vector", Reason.EMPTY),
        ([math.nan], 1, "dot", "vector[0]", Reason.NOT_FINITE),
        ([[1.0]], 1, "dot", "vector", Reason.WRONG_DIMENSION),
        ("12", 1, "dot", "vector", Reason.WRONG_TYPE),
        ([1.0], 0, "dot", "k", Reason.OUT_OF_RANGE),
        ([1.0], True, "dot", "k", Reason.WRONG_TYPE),
        ([1.0], 1, "manhattan", "metric", Reason.BAD_VALUE),
        ([1.0], 1, ["dot"], "metric", Reason.BAD_VALUE),
    ],
)
def test_arguments_are_checked(
    vector: object, k: object, metric: object, where: str, reason: Reason
) -> None:
    with pytest.raises(ContractError) as caught:
        check_query(vector, k, metric)
    assert (caught.value.where, caught.value.reason) == (where, reason)


def memory_with(*vectors: object) -> ModelBackend:
    memory = ModelBackend()
    memory.put(
        memory.put_request(
            [
                MemoryRecord.create(Note(f"n{n}", "", float(n), {}), vector)  # type: ignore[arg-type]
                for n, vector in enumerate(vectors)
            ]
        )
    )
    return memory


def test_records_come_with_their_scores() -> None:
    with memory_with([1.0, 0.0], [0.0, 1.0], [1.0, 1.0]) as memory:
        found = memory.nearest([2.0, 0.0], 2)
    assert [(one.record.id, round(one.score, 3)) for one in found] == [("n0", 1.0), ("n2", 0.707)]


def test_records_without_embedding_are_left_out() -> None:
    with memory_with([], [1.0], []) as memory:
        assert [one.record.id for one in memory.nearest([1.0])] == ["n1"]
        assert memory.vectors().ids == ("n1",)


def test_a_range_is_half_open() -> None:
    with memory_with([1.0], [1.0], [1.0]) as memory:
        found = memory.nearest([1.0], time_range=TimeRange(0, 2))
        assert [one.record.id for one in found] == ["n0", "n1"]


@pytest.mark.parametrize("backend", ["contract", "engine"])
def test_vectors_of_another_length_are_refused(backend: str) -> None:
    with ModelBackend() if backend == "contract" else fmemory.open(":memory:") as memory:
        memory.add_note("a", [1.0, 2.0])
        with pytest.raises(ContractError) as caught:
            memory.nearest([1.0])
        assert caught.value.reason is Reason.WRONG_DIMENSION
        memory.add_note("b", [1.0])
        with pytest.raises(ContractError) as caught:
            memory.nearest([1.0])
        assert caught.value.reason is Reason.WRONG_DIMENSION


def test_nothing_is_nearest_in_an_empty_namespace() -> None:
    with ModelBackend() as memory:
        assert memory.nearest([1.0]) == ()
        assert memory.vectors().matrix.shape == (0, 0)


def test_mixed_dtypes_become_float64() -> None:
    with memory_with(np.ones(2, np.float32), np.ones(2)) as memory:
        assert memory.vectors().matrix.dtype == np.float64
    with memory_with(np.ones(2, np.float32)) as memory:
        assert memory.vectors().matrix.dtype == np.float32


def test_some_ids_are_given_in_scan_order() -> None:
    with memory_with([0.0], [1.0], [2.0]) as memory:
        block = memory.vectors(ids=["n2", "nobody", "n0"])
    assert block.ids == ("n0", "n2")
    assert block.matrix.tolist() == [[0.0], [2.0]]
    assert block.timestamps.tolist() == [0.0, 2.0]
