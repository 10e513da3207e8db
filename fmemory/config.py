"""Which memory to open: by a path or URL, or by a config that a program keeps.

`open` is the front door. `MemoryBackendConfig` is the same choice as data, for programs that read
it from settings of their own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import assert_never

from fmemory._engine.backend import JournalBackend
from fmemory._model import Model
from fmemory.errors import ContractError, Reason, brief
from fmemory.journal import Durability
from fmemory.journals import InMemoryMemoryBackend, SegmentMemoryBackend

__all__ = [
    "InMemoryConfig",
    "MemoryBackendConfig",
    "SegmentsConfig",
    "aopen",
    "create_memory_backend",
    "open",
]

MEMORY_TARGET = ":memory:"
_DATABASE_SUFFIXES = frozenset({".db", ".db3", ".sqlite", ".sqlite3"})
_SQLITE_MAGIC = b"SQLite format 3\x00"


class MemoryBackendConfig(Model, frozen=True, tag_field="kind"):
    """A choice of backend; build one with a static constructor.

    >>> MemoryBackendConfig.Segments("notes").root
    'notes'
    """

    @staticmethod
    def Segments(root: str | os.PathLike[str]) -> SegmentsConfig:  # noqa: N802  the contract's name
        """Segment files in a folder."""
        return SegmentsConfig(root=os.fspath(root))

    @staticmethod
    def InMemory() -> InMemoryConfig:  # noqa: N802  the contract's name
        """Process memory."""
        return InMemoryConfig()


class SegmentsConfig(MemoryBackendConfig, frozen=True, tag="segments"):
    """Segment files in the folder `root`."""

    root: str


class InMemoryConfig(MemoryBackendConfig, frozen=True, tag="in_memory"):
    """Process memory; nothing is kept."""


def create_memory_backend(config: MemoryBackendConfig) -> JournalBackend:
    """The backend that a config names; folders are created.

    Raises:
        ContractError: Not a config.
        MemoryBackendError: As the backend's constructor.

    >>> with create_memory_backend(MemoryBackendConfig.InMemory()) as memory:
    ...     memory.kind
    'in_memory'
    """
    if isinstance(config, SegmentsConfig):
        return SegmentMemoryBackend(config.root)
    if isinstance(config, InMemoryConfig):
        return InMemoryMemoryBackend()
    raise ContractError(
        f"expected a MemoryBackendConfig, got {type(config).__name__}; build one with"
        " MemoryBackendConfig.Segments(root) or MemoryBackendConfig.InMemory()",
        where="config",
        reason=Reason.WRONG_TYPE,
    )


def open(  # noqa: A001  the name people know from files and databases
    target: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "fsync",
    lock_timeout_s: float = 5.0,
) -> JournalBackend:
    """The memory at a path: a folder of segment files, or ":memory:" for process memory.

    Args:
        target: A folder, created with its parents; or ":memory:".
        create: Create what is not there. False: `NotFound` instead.
        read_only: Never write, not even to repair; nothing is created.
        durability: `fsync`: a write is acknowledged when it is on disk. `interval`: on disk within
            a tenth of a second. `os`: when the operating system writes it.
        lock_timeout_s: Longest wait for other writers, seconds, at least 0.

    Raises:
        ContractError: The target names no backend of this version; nothing was created.
        NotFound: There is no store, and none was to be created.
        StorageError: The place cannot be used, or the store is damaged.

    >>> with open(":memory:") as memory:
    ...     note = memory.add_note("the build needs Python 3.11", id="n1")
    ...     memory.count(memory.count_request()).count
    1
    """
    _check_choices(durability, lock_timeout_s)
    if isinstance(target, str) and target == MEMORY_TARGET:
        return InMemoryMemoryBackend()
    root = _folder(target)
    return SegmentMemoryBackend(
        root,
        create=create and not read_only,
        read_only=read_only,
        durability=durability,
        lock_timeout_s=lock_timeout_s,
    )


async def aopen(
    target: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "fsync",
    lock_timeout_s: float = 5.0,
) -> JournalBackend:
    """As `open`, without blocking the event loop while a large store is read."""
    return await asyncio.to_thread(
        open,
        target,
        create=create,
        read_only=read_only,
        durability=durability,
        lock_timeout_s=lock_timeout_s,
    )


def _check_choices(durability: Durability, lock_timeout_s: float) -> None:
    match durability:
        case "fsync" | "interval" | "os":
            pass
        case other:
            if isinstance(other, object):
                raise ContractError(
                    f'expected "fsync", "interval" or "os", got {brief(other)}',
                    where="durability",
                    reason=Reason.BAD_VALUE,
                )
            assert_never(other)
    number = isinstance(lock_timeout_s, (int, float)) and not isinstance(lock_timeout_s, bool)
    if not number or not 0 <= lock_timeout_s < float("inf"):
        raise ContractError(
            f"expected seconds, 0 or more, got {brief(lock_timeout_s)}",
            where="lock_timeout_s",
            reason=Reason.OUT_OF_RANGE,
        )


def _folder(target: str | os.PathLike[str]) -> Path:
    if not isinstance(target, (str, os.PathLike)) or not os.fspath(target):
        raise ContractError(
            f'expected a folder\'s path or ":memory:", got {brief(target)}',
            where="target",
            reason=Reason.WRONG_TYPE if target != "" else Reason.EMPTY,
        )
    text = os.fspath(target)
    if "\0" in text:
        raise ContractError(
            f"expected a path, got {brief(text)}, which has a NUL character",
            where="target",
            reason=Reason.BAD_VALUE,
        )
    scheme, colon, rest = text.partition(":")
    if colon and scheme in {"sqlite", "postgresql", "postgres", "jsonl"}:
        raise ContractError(
            f'expected a folder\'s path or ":memory:", got a {scheme} URL, which this version has'
            " no backend for",
            where="target",
            reason=Reason.UNSUPPORTED,
        )
    if colon and rest.startswith("//"):
        raise ContractError(
            f'expected a folder\'s path or ":memory:", got the URL {brief(text)}; nothing was'
            " created",
            where="target",
            reason=Reason.UNSUPPORTED,
        )
    path = Path(text).expanduser()
    if _is_database(path):
        raise ContractError(
            f"expected a folder, got {text}, which looks like an SQLite database: its URL is"
            f" sqlite:///{text}, for versions with that backend; choose a folder instead",
            where="target",
            reason=Reason.UNSUPPORTED,
        )
    return path


def _is_database(path: Path) -> bool:
    if path.is_file():
        with path.open("rb") as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    return path.suffix.lower() in _DATABASE_SUFFIXES and not path.is_dir()
