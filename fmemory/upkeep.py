"""Operations on the store as a whole: taking deleted data out for good, and copies to fall back on.

Each sync one beside its async twin. They change nothing that a reader of the present can see.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING

from fmemory._runner import Runner

if TYPE_CHECKING:
    from fmemory.copying import CopyResult
    from fmemory.log_models import CompactResult

__all__ = ["LogUpkeep"]


class LogUpkeep(Runner, ABC):
    """Compaction and backup."""

    @abstractmethod
    def compact(
        self, *, forget_before: int | datetime | None = None, exclusive: bool = False
    ) -> CompactResult:
        """Take out for good what was deleted, and store what is left more compactly.

        Notes, vectors and metadata of records that were deleted or cleared, everything in deleted
        sessions and streams, and metadata values that were cleared. What stays: who put and
        deleted them, when and why, ids and timestamps, and digests, so that the log still proves
        itself. Writers and readers of all processes go on meanwhile. docs/erasure.md says what is
        promised of copies and of the disk.

        Args:
            forget_before: Also forget that there was anything: of events before this seq or time
                of which all data are erased, only seq, stream, revision, time and a digest stay;
                ids, actors, reasons and types go. None = the audit trail stays whole.
            exclusive: Also do what keeps others out for its length, where the store knows such a
                thing: `VACUUM` in a database.

        Returns:
            What was done. Where `pending` is not empty, deleted data are still in the store: it
            says why, and what to do.

        Raises:
            ContractError: `forget_before` is no seq and no aware time.
            ReadOnlyStore: The store was opened for reading. Nothing was changed.
            StoreBusy: Another compaction is at work, or others wrote all the time. Try again.
            StoreFull: There is no room for what is written anew. The store is as it was.
            StorageError: The store failed; it opens as it was, and can be compacted again.

        Durability: on disk when this returns.
        Cost: O(events) to see what is dead, and all of the bytes that are written anew; memory of
            the index, and of about 96 MiB of living data.
        """

    async def acompact(
        self, *, forget_before: int | datetime | None = None, exclusive: bool = False
    ) -> CompactResult:
        """As `compact`, without blocking the event loop."""
        return await self._run(self.compact, forget_before=forget_before, exclusive=exclusive)

    @abstractmethod
    def backup(self, target: str | os.PathLike[str]) -> CopyResult:
        """Copy the log to another place, verified, while others write.

        The same target again brings what came since, and continues one that was interrupted. The
        copy is a store of its own that opens like any other; what was erased in the log after it
        was copied is still in the copy (docs/erasure.md).

        Args:
            target: As `open` takes it; made if it is not there. A kind of its own is fine.

        Raises:
            ContractError: The target names no store, or this one.
            Conflict: It holds something else than the first events of this log. It is as it was.
            LogCorrupt: An event is damaged: those before it were copied. Or the copy is not what
                was written.
            StorageError: One of the two failed; the target holds the first events.

        Durability: on disk when this returns.
        Cost: reads what is new twice and the copy twice; a batch of about 8 MiB in memory.
        """

    async def abackup(self, target: str | os.PathLike[str]) -> CopyResult:
        """As `backup`, without blocking the event loop."""
        return await self._run(self.backup, target)
