"""Vectors: what can be stored as one, and in which form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from fmemory._checks import as_tuple
from fmemory._json_values import type_name
from fmemory.errors import ContractError, Reason, brief
from fmemory_segments.event import VectorArray

__all__ = [
    "FLOAT32",
    "FLOAT64",
    "VECTOR_DIM_MAX",
    "VectorLike",
    "are_finite",
    "check_vector",
    "is_plain_vector",
]

VECTOR_DIM_MAX = 1_048_576
FLOAT32 = np.dtype("<f4")
FLOAT64 = np.dtype("<f8")

VectorLike: TypeAlias = VectorArray | Sequence[float] | npt.NDArray[np.integer]
"""A vector as callers have it; what is stored is float32 or float64."""

_INT_EXACT_MAX = 2**53


def check_vector(value: object, where: str = "") -> VectorArray:
    """The vector as stored: little-endian float32 or float64, shape (dim,), C-contiguous, finite.

    Args:
        value: A one-dimensional array or sequence of numbers. float32 and float64 are kept, all
            else and every empty one becomes float64. May be returned itself: copy it to keep it.
        where: Path for the error.

    Raises:
        ContractError: Another shape, not numbers, not finite, or longer than `VECTOR_DIM_MAX`.

    >>> check_vector([1, 2])
    array([1., 2.])
    """
    array = _numbers(value, where)
    if array.ndim != 1:
        raise ContractError(
            f"expected one dimension, got shape {array.shape}; put one record a row",
            where=where,
            reason=Reason.WRONG_DIMENSION,
        )
    if len(array) > VECTOR_DIM_MAX:
        raise ContractError(
            f"expected at most {VECTOR_DIM_MAX} numbers, got {len(array)}",
            where=where,
            reason=Reason.TOO_LARGE,
        )
    finite = np.isfinite(array)
    if not finite.all():
        index = int(np.argmin(finite))
        raise ContractError(
            f"expected finite numbers, got {array[index]}",
            where=f"{where}[{index}]",
            reason=Reason.NOT_FINITE,
        )
    if not len(array):
        return np.empty(0, FLOAT64)
    return np.ascontiguousarray(array)


def is_plain_vector(vector: object) -> bool:
    """Whether the vector can be stored without any conversion, if it is finite."""
    if type(vector) is not np.ndarray:
        return False
    dtype = vector.dtype
    return (
        (dtype is FLOAT64 or dtype is FLOAT32)
        and vector.ndim == 1
        and 0 < len(vector) <= VECTOR_DIM_MAX
        and vector.flags.c_contiguous
    )


def are_finite(vectors: list[VectorArray]) -> bool:
    """Whether all numbers are finite.

    Numbers are looked at one by one: a product of all is one call too, but of a linear algebra
    library whose threads wait for each other on a busy machine.
    """
    numbers = vectors[0] if len(vectors) == 1 else np.concatenate(vectors)
    return int(np.count_nonzero(np.isfinite(numbers))) == numbers.size


def _numbers(value: object, where: str) -> VectorArray:
    """Any sequence of numbers as native float32 or float64, of whatever shape."""
    if isinstance(value, np.ma.MaskedArray):
        raise _not_numbers("a masked array, which has missing values", where)
    is_array = isinstance(value, np.ndarray)
    array = cast("VectorArray", np.asarray(value) if is_array else _array_of_sequence(value, where))
    if array.dtype.kind == "f" and array.dtype.itemsize == 4:  # in whatever byte order
        return array.astype(FLOAT32, copy=False)
    if array.dtype.kind == "f" and array.dtype.itemsize == 8:
        return array.astype(FLOAT64, copy=False)
    if not array.size and array.ndim == 1:
        return np.empty(0, FLOAT64)
    if array.dtype.kind not in "fiu":
        raise _not_numbers(f"dtype {array.dtype}", where)
    if array.dtype.kind in "iu" and array.ndim == 1:
        beyond = (array > _INT_EXACT_MAX) | (array < -_INT_EXACT_MAX)
        if beyond.any():
            index = int(np.argmax(beyond))
            raise _not_exact(array[index], f"{where}[{index}]")
    with np.errstate(all="ignore"):
        return array.astype(FLOAT64)


def _array_of_sequence(value: object, where: str) -> npt.NDArray[np.generic]:
    if value is None or isinstance(value, (str, bytes, bytearray, memoryview, float, int)):
        raise _not_numbers(f"{type_name(value)}{_vector_hint(value)}", where)
    try:
        items = as_tuple(value, "numbers")
    except ContractError as error:
        raise error.within(where) from None
    kinds = set(map(type, items))
    if kinds <= {float}:
        return np.array(items, FLOAT64)
    if not kinds <= {float, int}:
        _refuse_items(items, where)
    try:
        array = np.array(items)
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_numbers(f"a sequence numpy refuses ({error})", where) from None
    if int in kinds and array.dtype.kind not in "iu":
        # Beside a float, or beyond 64 bit, numpy rounds ints in silence.
        for index, item in enumerate(items):
            if type(item) is int and abs(item) > _INT_EXACT_MAX:
                raise _not_exact(item, f"{where}[{index}]")
    return array


def _vector_hint(value: object) -> str:
    if value is None:
        return ": use () for no embedding"
    if isinstance(value, str):
        return ": read the numbers out of it first, for example with json.loads"
    if isinstance(value, (float, int)):
        return ": put it into a list"
    return ": read the numbers out of it first, for example with numpy.frombuffer"


def _refuse_items(items: tuple[object, ...], where: str) -> None:
    """Raises for what numpy would turn into numbers although it is none."""
    for index, item in enumerate(items):
        if item is None or isinstance(item, (bool, np.bool_, str, bytes)):
            raise ContractError(
                f"expected a number, got {brief(item)}",
                where=f"{where}[{index}]",
                reason=Reason.WRONG_TYPE,
            )


def _not_exact(number: object, where: str) -> ContractError:
    return ContractError(
        f"expected a number that float64 holds exactly, got {brief(number)}",
        where=where,
        reason=Reason.NOT_EXACT,
    )


def _not_numbers(got: str, where: str) -> ContractError:
    return ContractError(
        f"expected a one-dimensional array of numbers, got {got}",
        where=where,
        reason=Reason.WRONG_TYPE,
    )
