"""Nearest neighbours: exact against a plain loop, whatever dtype, size of numbers and ties.

To break: candidates chosen by a rounded product without a bound on the rounding, or scores that
depend on where in the matrix a row stands.
"""

from __future__ import annotations

import math
from fractions import Fraction
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


LARGE = 1e308
FLOAT_MAX = float(np.finfo(np.float64).max)


@pytest.mark.parametrize(
    ("metric", "scores"),
    [
        ("dot", [FLOAT_MAX, 0.0, -FLOAT_MAX]),
        ("euclidean", [0.0, -FLOAT_MAX, -FLOAT_MAX]),
        ("cosine", [1.0, 0.0, -1.0]),
    ],
)
def test_scores_of_the_largest_numbers_are_finite_and_in_order(
    metric: Metric, scores: list[float]
) -> None:
    rows = [[-LARGE, -LARGE], [-LARGE, LARGE], [LARGE, LARGE]]
    with memory_with(*rows) as memory:
        found = memory.nearest([LARGE, LARGE], metric=metric)
    assert [one.score for one in found] == pytest.approx(scores, rel=1e-12)
    assert found[0].record.id == "n2"
    if metric != "euclidean":  # both distances are beyond the float maximum: ties in scan order
        assert [one.record.id for one in found] == ["n2", "n1", "n0"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", METRICS)
def test_a_vector_of_the_float_maximum_is_nearest_to_itself(metric: Metric, dtype: Any) -> None:
    largest = float(np.finfo(dtype).max)
    rows = np.array([[-largest, 1.0], [0.0, 0.0], [1.0, -1.0], [largest, largest]], dtype)
    found = nearest_rows(rows, np.array([largest, largest], np.float64), 4, metric)
    assert found[0][0] == 3
    assert len(found) == 4
    assert all(math.isfinite(score) for _, score in found)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def exact_cosine(row: list[float], query: list[float]) -> float:
    """By fractions, which neither overflow nor vanish."""
    one, other = [Fraction(x) for x in row], [Fraction(x) for x in query]
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    squares = sum(a * a for a in one) * sum(b * b for b in other)
    size = math.sqrt(dot * dot / squares) if squares else 0.0
    return size if dot >= 0 else -size


extreme = st.tuples(st.integers(-5, 5), st.sampled_from([1e-300, 1e-158, 1.0, 1e150, 1e160, 1e307]))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(extreme, extreme).map(lambda row: [a * b for a, b in row]), min_size=4, max_size=9
    ),
    st.tuples(extreme, extreme).map(lambda row: [a * b for a, b in row]),
)
def test_the_best_by_cosine_is_found_among_numbers_that_cannot_be_squared(
    rows: list[list[float]], query: list[float]
) -> None:
    found = nearest_rows(np.array(rows), np.array(query), 2, "cosine")
    best = sorted((exact_cosine(row, query) for row in rows), reverse=True)[:2]
    assert [score for _, score in found] == pytest.approx(best, abs=1e-12)
