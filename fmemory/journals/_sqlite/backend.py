"""The memory in an SQLite file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from fmemory._engine.backend import JournalBackend
from fmemory.journal import Durability
from fmemory.journals._options import check_options
from fmemory.journals._sqlite.table import LOCK_TIMEOUT_S, SqliteTable
from fmemory.journals._tables.journal import TableJournal


class SqliteMemoryBackend(JournalBackend):
    """A memory in an SQLite file, shared by any number of processes of one machine.

    Args:
        path: The file; parents are made too.
        create: Make the file, or the tables in it, if they are not there.
        read_only: Never write.
        durability: When writes are acknowledged: `fsync` on disk, `interval` and `os` before.
        lock_timeout_s: Longest wait for other writers, seconds.
        clock: Unix nanoseconds; for tests.

    Raises:
        NotFound: There is no log and none was to be created.
        StorageError: The file cannot be used; the reason says why.

    Cost: opening reads no event; each stream is folded when it is first asked for.
    """

    kind = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        check_options(durability, lock_timeout_s)
        table = SqliteTable(
            Path(path),
            create=create,
            read_only=read_only,
            durability=durability,
            lock_timeout_s=lock_timeout_s,
        )
        super().__init__(TableJournal(table, clock=clock), durability=durability, path=table.path)
