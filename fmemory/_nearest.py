"""Exact nearest neighbours in a matrix. Pure: arrays in, row numbers and scores out."""

from __future__ import annotations

from typing import cast, get_args

import numpy as np

from fmemory._model import check_int
from fmemory.errors import ContractError, Reason, brief
from fmemory.record_models import Metric, check_vector
from fmemory_segments.event import Float64Array, VectorArray

__all__ = ["check_query", "nearest_rows"]

_FLOAT_MAX = float(np.finfo(np.float64).max)
_ROUNDING_SLACK = 4.0
"""Times dim and epsilon: more than a dot product of that many numbers can be wrong by."""


def check_query(vector: object, k: object, metric: object) -> tuple[Float64Array, int, Metric]:
    """The arguments of `nearest` as they are computed with.

    Raises:
        ContractError: A vector that is empty or not finite numbers, k below 1, or another metric.
    """
    query = check_vector(vector, "vector").astype(np.float64)
    if not len(query):
        raise ContractError(
            "expected a vector to compare with, got an empty one",
            where="vector",
            reason=Reason.EMPTY,
        )
    try:
        count = check_int(k)
    except ContractError as error:
        raise error.within("k") from None
    if count < 1:
        raise ContractError(
            f"expected 1 or more, got {count}", where="k", reason=Reason.OUT_OF_RANGE
        )
    if metric not in get_args(Metric):
        raise ContractError(
            f"expected one of {', '.join(map(repr, get_args(Metric)))}, got {brief(metric)}",
            where="metric",
            reason=Reason.BAD_VALUE,
        )
    return query, count, cast("Metric", metric)


def nearest_rows(
    matrix: VectorArray, query: Float64Array, k: int, metric: Metric
) -> list[tuple[int, float]]:
    """Row numbers and scores of the k most similar rows; greatest score first, then row number.

    Args:
        matrix: float32 or float64, shape (n, dim), finite.
        query: float64, shape (dim,), finite.
        k: 1 or more.
        metric: How similarity is measured.

    Raises:
        ContractError: The query's length is not dim.

    Cost: one pass over the matrix in its own dtype; float64 for about k rows.
    """
    if not len(matrix):
        return []
    if matrix.shape[1] != len(query):
        raise ContractError(
            f"expected {matrix.shape[1]} numbers, as the records' vectors have, got {len(query)}",
            where="vector",
            reason=Reason.WRONG_DIMENSION,
        )
    with np.errstate(all="ignore"):
        rows = _candidates(matrix, query, k, metric)
        scored = [
            (-_score(matrix[row].astype(np.float64), query, metric), int(row)) for row in rows
        ]
    return [(row, -negative) for negative, row in sorted(scored)[:k]]


def _candidates(
    matrix: VectorArray, query: Float64Array, k: int, metric: Metric
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Rows that may be among the k best, given what rounding can have done to their scores."""
    if len(matrix) <= k:
        return np.arange(len(matrix))
    # Scaled to the middle of the range, so that a small query does not vanish in float32.
    largest = float(np.abs(query).max()) or 1.0
    dots = (matrix @ (query / largest).astype(matrix.dtype)).astype(np.float64) * largest
    norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix).astype(np.float64))
    size = _length(query)
    slack = _ROUNDING_SLACK * len(query) * float(np.finfo(matrix.dtype).eps)
    if metric == "dot":
        scores, errors = dots, slack * norms * size
    elif metric == "cosine":
        lengths = norms * size
        scores = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
        errors = np.full(len(dots), slack)
    else:
        scores = 2.0 * dots - norms**2 - size**2
        errors = slack * (norms + size) ** 2
    # Numbers beyond what the dtype can square say nothing: their rows are always candidates.
    unsure = ~np.isfinite(scores) | ~np.isfinite(errors) | ~np.isfinite(norms * size)
    unsure |= norms < _smallest_norm(matrix.dtype)
    lowest = np.where(unsure, -np.inf, scores - errors)
    highest = np.where(unsure, np.inf, scores + errors)
    threshold = np.partition(lowest, len(lowest) - k)[len(lowest) - k]
    return np.flatnonzero(highest >= threshold)


def _score(row: Float64Array, query: Float64Array, metric: Metric) -> float:
    """The score of one row in float64, without overflow where the result has none."""
    if metric == "dot":
        product = float(row @ query)
        return product if np.isfinite(product) else _clamped(_scaled_product(row, query))
    if metric == "euclidean":
        # Halves cannot overflow where the difference itself would.
        return _clamped(-2.0 * _length(row / 2.0 - query / 2.0))
    if not row.any() or not query.any():
        return 0.0
    return float(np.clip(_direction(row) @ _direction(query), -1.0, 1.0))


def _direction(vector: Float64Array) -> Float64Array:
    """The vector at length 1; its own length may be beyond the float maximum."""
    scaled = vector / float(np.abs(vector).max())
    return scaled / _length(scaled)


def _smallest_norm(dtype: np.dtype[np.floating]) -> float:
    """Below, squares lose digits or vanish, and a norm is no longer right to the rounding."""
    limits = np.finfo(dtype)
    return float(np.sqrt(float(limits.tiny) / float(limits.eps)))


def _scaled_product(row: Float64Array, query: Float64Array) -> float:
    """The dot product of vectors whose products overflow one by one; ±inf if it does itself."""
    row_largest, query_largest = float(np.abs(row).max()), float(np.abs(query).max())
    product = float((row / row_largest) @ (query / query_largest))
    return product * row_largest * query_largest


def _clamped(score: float) -> float:
    return max(-_FLOAT_MAX, min(_FLOAT_MAX, score))


def _length(vector: Float64Array) -> float:
    largest = float(np.abs(vector).max())
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    scaled = vector / largest
    return largest * float(np.sqrt(scaled @ scaled))
