"""What a store has to do to take part: six operations, full records in, full records out.

Every side returns `fmemory.MemoryRecord` objects whose note is decoded and whose vector is a numpy
array in memory of its own. Peers may return read-only arrays, which spares them a copy that fmemory
makes, because its records are the caller's to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fmemory import MemoryRecord

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """All vectors in scan order: ids, timestamps and a matrix of shape (n, dim)."""

    ids: Sequence[str]
    timestamps: Sequence[float] | npt.NDArray[np.float64]
    matrix: Matrix


class Side(Protocol):
    """An open store. Safe to be used by several threads."""

    def put(self, records: Sequence[MemoryRecord]) -> None:
        """Store the records as one atomic write, durable if the store was opened so."""

    def pages(self, limit: int) -> Iterator[Sequence[MemoryRecord]]:
        """Every record in (timestamp, write order), `limit` at a time, each page its own query."""

    def get(self, record_id: str) -> MemoryRecord:
        """The record of this id."""

    def vectors(self) -> Vectors:
        """One matrix of all vectors, without record objects."""

    def settings(self) -> str:
        """The settings in force, as the store itself reports them."""

    def close(self) -> None:
        """Flush and close."""


class SideKind(Protocol):
    """A way to set up a store: its name in the report, and how to open it."""

    @property
    def name(self) -> str:
        """Short name, the same in table, JSON and plot."""

    @property
    def persistent(self) -> bool:
        """A store can be closed and opened again."""

    def open(self, path: Path, *, dim: int, dtype: str, durable: bool) -> Side:
        """Open or create the store in the folder `path`; not durable = as fast as it can be filled.

        The peers need `dim` and `dtype` to read a vector back: they keep neither with the row.
        """
