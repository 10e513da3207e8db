"""fmemory through its front door: `fmemory.open`, requests and results as any caller uses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import fmemory
from benchmarks.dataset import NAMESPACE
from benchmarks.side import Side, Vectors
from fmemory import GetRequest, MemoryBackend, MemoryRecord, PutRequest, ScanRequest


class FmemorySide:
    """One handle on a segments store."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._durability = "fsync" if durable else "os"
        self._memory: MemoryBackend = fmemory.open(path, durability="fsync" if durable else "os")

    def put(self, records: Sequence[MemoryRecord]) -> None:
        self._memory.put(PutRequest(records=tuple(records)))

    def pages(self, limit: int) -> Iterator[Sequence[MemoryRecord]]:
        cursor: str | None = None
        while True:
            page = self._memory.scan(ScanRequest(namespace=NAMESPACE, limit=limit, cursor=cursor))
            if page.records:
                yield page.records
            cursor = page.next_cursor
            if cursor is None:
                return

    def get(self, record_id: str) -> MemoryRecord:
        return self._memory.get(GetRequest((record_id,), namespace=NAMESPACE)).records[0]

    def vectors(self) -> Vectors:
        block = self._memory.vectors(namespace=NAMESPACE)
        return Vectors(block.ids, block.timestamps, block.matrix)

    def settings(self) -> str:
        return f"fmemory {fmemory.__version__}, segments, durability={self._durability}"

    def close(self) -> None:
        self._memory.close()


@dataclass(frozen=True, slots=True)
class Fmemory:
    """fmemory with its defaults."""

    name: str = "fmemory"

    def open(self, path: Path, *, dim: int, dtype: str, durable: bool) -> Side:
        del dim, dtype  # kept with every row
        return FmemorySide(path, durable=durable)
