"""The contract: what every backend does, in three steps.

`MemoryView` reads; views of the past are that. `MemoryBackend` also writes; a third party with a
store of its own implements its 8 record and 10 session operations, all sync, and gets everything
else: async twins, iterators, similarity search, memory files, session handles. `LogBackend` also
keeps a log; `JournalBackend` is one, over any journal.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fmemory.errors import ReadOnlyStore
from fmemory.log import LogReads, LogWrites
from fmemory.memory_file import Source, Target, dump_file, load_file
from fmemory.records import RecordReads, RecordWrites
from fmemory.session_handle import LogSession
from fmemory.sessions import SessionListing, SessionReads, SessionWrites
from fmemory.upkeep import LogUpkeep

__all__ = ["LogBackend", "LogView", "MemoryBackend", "MemoryView"]


class MemoryView(RecordReads, SessionReads):
    """Everything that can be read."""

    def dump(self, target: Target, namespace: Sequence[str] = ()) -> int:
        """Write a namespace's records to a memory file; gives their number.

        Args:
            target: A path (gzip if it ends in `.gz`), or a text stream. A path is written as
                `<name>.partial` and renamed when complete; a stream cannot be undone.
            namespace: Exactly this one.

        Raises:
            ContractError: An argument breaks a rule.
            MemoryFileError: The target cannot be written, or records changed meanwhile. A file
                that was there before is as it was, and no partial one is left.
            StorageError: The store failed; as above.

        Cost: O(records), a page in memory.
        """
        return dump_file(self, target, namespace)

    async def adump(self, target: Target, namespace: Sequence[str] = ()) -> int:
        """As `dump`, without blocking the event loop."""
        return await self._run(self.dump, target, namespace)


class MemoryBackend(MemoryView, RecordWrites, SessionWrites):
    """Everything that can be read and written; the abstract contract of all backends."""

    def load(self, source: Source, namespace: Sequence[str] | None = None) -> int:
        """Store all records of a memory file; gives their number.

        The whole file is checked before anything is written. Vectors come back as float64, of
        exactly the values that were dumped.

        Args:
            source: A path (gzip if it ends in `.gz`), or a text stream.
            namespace: Put all records into this one; None = each into its own.

        Raises:
            ContractError: An argument breaks a rule.
            MemoryFileError: The file breaks a rule, at `line`; or an id exists. The target is
                unchanged.
            StorageError: The store failed; what had been written was taken back as far as could
                be, and the error's notes say so if not.

        Cost: O(records) and the file read twice; ids in memory, and of a stream all its text.
        """
        return load_file(self, source, namespace)

    async def aload(self, source: Source, namespace: Sequence[str] | None = None) -> int:
        """As `load`, without blocking the event loop."""
        return await self._run_write(self.load, source, namespace)

    def close(self) -> None:
        """Release what the backend holds; calls that have begun are finished. May be repeated.

        Backends that hold files or connections extend this. Afterwards calls raise `ClosedStore`.
        """
        self._close_threads()

    async def aclose(self) -> None:
        """As `close`, without blocking the event loop."""
        import asyncio

        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Placed:
    """What shows where its store is.

    Attributes:
        _path: The store; None if it is nowhere but in memory.
    """

    _path: str | None = None

    def __repr__(self) -> str:
        place = "" if self._path is None else f" {self._path!r}"
        return f"<{type(self).__name__}{place}>"


class _PastIsFixedError(ReadOnlyStore, AttributeError):
    """A write on a view of the past, which has none. `hasattr` says so, too."""


class LogView(_Placed, MemoryView, SessionListing):
    """Everything as it was after one event; what `at()` gives."""

    @property
    @abstractmethod
    def seq(self) -> int:
        """The event it is the state after; 0 = before everything."""

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} at {self.seq}>"

    if not TYPE_CHECKING:  # for type checkers a view has no write at all

        def __getattr__(self, name: str) -> object:
            if name in _write_names():
                raise _PastIsFixedError(
                    f"{name}: expected a memory, got a view of the past, which cannot be written;"
                    f" nothing was written; call {name} on the memory that the view came from"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class LogBackend(_Placed, MemoryBackend, LogReads, LogWrites, LogUpkeep):
    """A backend that keeps a log."""

    def session(self, session_id: str) -> LogSession:
        """A handle of one session, known or not. Nothing is read or written by making it.

        Raises:
            ContractError: Not a non-empty str.
        """
        return LogSession(self, session_id)


@functools.cache
def _write_names() -> frozenset[str]:
    """Names of the operations that write, and of their requests."""
    reads = {*dir(MemoryView), *dir(LogReads)}
    kinds = (RecordWrites, SessionWrites, LogWrites, LogUpkeep)
    writes = {name for kind in kinds for name in dir(kind)} | {"load", "aload"}
    return frozenset(name for name in writes - reads if not name.startswith("_"))
