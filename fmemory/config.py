"""Which memory to open: by a path or URL, or by a config that a program keeps.

`open` is the front door. `MemoryBackendConfig` is the same choice as data, for programs that read
it from settings of their own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypedDict

from fmemory._configs import (
    FilesystemConfig,
    InMemoryConfig,
    MemoryBackendConfig,
    PostgresConfig,
    SegmentsConfig,
    SqliteConfig,
)
from fmemory._engine.backend import JournalBackend
from fmemory._json_values import type_name
from fmemory._target import config_of, place_of
from fmemory.errors import ContractError, Reason
from fmemory.journal import Durability
from fmemory.journals import (
    FilesystemMemoryBackend,
    InMemoryMemoryBackend,
    PostgresMemoryBackend,
    SegmentMemoryBackend,
    SqliteMemoryBackend,
)
from fmemory.journals._options import check_options
from fmemory.log_models import AutoCompact

__all__ = [
    "FilesystemConfig",
    "InMemoryConfig",
    "MemoryBackendConfig",
    "PostgresConfig",
    "SegmentsConfig",
    "SqliteConfig",
    "aopen",
    "create_default_memory_backend",
    "create_memory_backend",
    "open",
]

SQLITE_PATH_VARIABLE: Final = "FMEMORY_SQLITE_PATH"
DEFAULT_SQLITE_PATH: Final = Path("~", ".fiddlesticks", "fmemory.sqlite3")


class _Options(TypedDict):
    create: bool
    read_only: bool
    durability: Durability
    lock_timeout_s: float


def create_memory_backend(
    config: MemoryBackendConfig,
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "fsync",
    lock_timeout_s: float = 5.0,
) -> JournalBackend:
    """The backend that a config names; files and folders are created, with the folders above.

    Args:
        config: One of the five variants.
        create: As in `open`.
        read_only: As in `open`.
        durability: As in `open`.
        lock_timeout_s: As in `open`.

    Raises:
        ContractError: Not a config, a bad choice, or a package that is not installed: the message
            has the extra and the command.
        NotFound: There is no store, and none was to be created.
        StorageError: The place cannot be used, or the store is damaged.

    >>> with create_memory_backend(MemoryBackendConfig.InMemory()) as memory:
    ...     memory.kind
    'in_memory'
    """
    check_options(durability, lock_timeout_s)
    options = _Options(
        create=create and not read_only,
        read_only=read_only,
        durability=durability,
        lock_timeout_s=lock_timeout_s,
    )
    match config:
        case SegmentsConfig(root=root):
            return SegmentMemoryBackend(root, **options)
        case SqliteConfig(path=path):
            return SqliteMemoryBackend(path, **options)
        case PostgresConfig():
            return _postgres(config, options)
        case FilesystemConfig(root=root):
            return FilesystemMemoryBackend(root, **options)
        case InMemoryConfig():
            return InMemoryMemoryBackend()
    raise ContractError(
        f"expected a MemoryBackendConfig, got {type(config).__name__}; build one with"
        " MemoryBackendConfig.Sqlite(path) or another of its constructors",
        where="config",
        reason=Reason.WRONG_TYPE,
    )


def create_default_memory_backend() -> JournalBackend:
    """The memory in SQLite at `FMEMORY_SQLITE_PATH`, else at `~/.fiddlesticks/fmemory.sqlite3`.

    On Windows the home folder is `%USERPROFILE%`. The file and the folders above are created.

    Raises:
        ContractError: There is no home folder, and the variable is not set.
        StorageError: The place cannot be used, or the store is damaged.
    """
    given = os.environ.get(SQLITE_PATH_VARIABLE)
    try:
        path = Path(given or DEFAULT_SQLITE_PATH).expanduser()
    except RuntimeError as error:
        raise ContractError(
            f"expected a home folder for {DEFAULT_SQLITE_PATH}, got none ({error}); set"
            f" {SQLITE_PATH_VARIABLE}",
            where=SQLITE_PATH_VARIABLE,
        ) from None
    return create_memory_backend(SqliteConfig(path=str(path)))


def open(  # noqa: A001  the name people know from files and databases
    target: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "fsync",
    lock_timeout_s: float = 5.0,
    auto_compact: AutoCompact | bool = False,
) -> JournalBackend:
    """The memory that a path or URL names.

    Args:
        target: One of

            - a path: the memory that lies there, whatever its kind (a folder of segment files or
              of JSON Lines, a SQLite file); where nothing is, a new folder of segment files
            - `sqlite:///notes.db`, or with a fourth slash where the path is absolute:
              `sqlite:////srv/notes.db`
            - `jsonl:FOLDER`
            - `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?log=NAME`; the port is 5432 and the
              log `default` unless given; in names and passwords `@ / : ? # %` are percent-encoded;
              parameters of libpq such as `sslmode` may follow `log`
            - `":memory:"` for process memory

        create: Create what is not there, with the folders above. False: `NotFound` instead.
        read_only: Never write, not even to repair; nothing is created.
        durability: `fsync`: a write is acknowledged when it is on disk. `interval`: on disk within
            a tenth of a second. `os`: when the operating system writes it.
        lock_timeout_s: Longest wait for other writers, seconds, at least 0.
        auto_compact: Erase what was deleted in the background, when it is worth it: True, or
            rules of your own. `memory.compact()` does it now.

    Raises:
        ContractError: The target names no backend, or one whose package is not installed (the
            message has the command); nothing was created. A password is never quoted.
        NotFound: There is no store, and none was to be created.
        StorageError: The place cannot be used, or the store is damaged.

    >>> with open(":memory:") as memory:
    ...     note = memory.add_note("the build needs Python 3.11", id="n1")
    ...     memory.count(memory.count_request()).count
    1
    """
    if not isinstance(auto_compact, bool | AutoCompact):
        raise ContractError(
            f"expected True, False or an AutoCompact, got {type_name(auto_compact)}; nothing was"
            " opened",
            where="auto_compact",
            reason=Reason.WRONG_TYPE,
        )
    memory = create_memory_backend(
        config_of(target),
        create=create,
        read_only=read_only,
        durability=durability,
        lock_timeout_s=lock_timeout_s,
    )
    if auto_compact is not False:
        try:
            memory.auto_compact(None if auto_compact is True else auto_compact)
        except BaseException:
            memory.close()
            raise
    return memory


async def aopen(
    target: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "fsync",
    lock_timeout_s: float = 5.0,
    auto_compact: AutoCompact | bool = False,
) -> JournalBackend:
    """As `open`, without blocking the event loop while a large store is read."""
    import asyncio

    return await asyncio.to_thread(
        open,
        target,
        create=create,
        read_only=read_only,
        durability=durability,
        lock_timeout_s=lock_timeout_s,
        auto_compact=auto_compact,
    )


def _postgres(config: PostgresConfig, options: _Options) -> JournalBackend:
    place = place_of(config)
    return PostgresMemoryBackend(
        place.host,
        place.port,
        place.database,
        place.username,
        place.password,
        log=place.log,
        parameters=place.parameters,
        **options,
    )
