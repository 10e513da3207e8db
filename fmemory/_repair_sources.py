"""Opening the two sides of a repair: the damaged store for reading only, the new one empty."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from fmemory import config as configs
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
from fmemory._target import config_of, place_of, shown
from fmemory.errors import Conflict, ContractError, NotFound, ReadOnlyStore, Reason
from fmemory.journal import Journal
from fmemory.journals._jsonl.salvage import JsonlSalvage
from fmemory.journals._jsonl.store import EVENTS_NAME
from fmemory.journals._jsonl.store import TIP_NAME as JSONL_TIP_NAME
from fmemory.journals._salvage import JournalSalvage
from fmemory.journals._sqlite.salvage import SqliteSalvage
from fmemory.journals._tables.salvage import TableSalvage
from fmemory_segments import PosixFileSystem
from fmemory_segments._catalog import sort_names
from fmemory_segments.salvage import SegmentSalvage

if TYPE_CHECKING:
    from fmemory.repairing import Salvage

_Side = str | os.PathLike[str] | JournalBackend | Journal


def opened_source(stack: ExitStack, source: _Side) -> Salvage:
    """What reads a damaged store; closed with the stack.

    Raises:
        ContractError: It names no store that outlives a process.
        NotFound: There is none.
        StorageError: It cannot be read at all.
    """
    if isinstance(source, JournalBackend):
        return JournalSalvage(source.journal)
    if isinstance(source, Journal):
        return JournalSalvage(source)
    config = _config_of(source, "source")
    match config:
        case SegmentsConfig(root=root):
            _check_folder(Path(root))
            return SegmentSalvage(PosixFileSystem(), Path(root))
        case FilesystemConfig(root=root):
            _check_folder(Path(root))
            return JsonlSalvage(PosixFileSystem(), Path(root))
        case SqliteConfig(path=path):
            if not Path(path).is_file():
                raise _missing(path)
            return SqliteSalvage(Path(path))
        case PostgresConfig():
            from fmemory.journals._postgres.backend import open_table

            table = open_table(
                place_of(config),
                create=False,
                read_only=True,
                durability="fsync",
                lock_timeout_s=5.0,
            )
            stack.callback(table.close)
            return TableSalvage(table)
    raise ContractError(
        f"expected a store that is kept, got {shown(config)}; pass the memory itself",
        where="source",
        reason=Reason.UNSUPPORTED,
    )


def opened_target(stack: ExitStack, source: _Side, target: _Side) -> Journal:
    """An empty journal to write to; closed with the stack, where it was opened here.

    Raises:
        ContractError: It names no store, or one side lies in the other.
        Conflict: It holds something.
        StorageError: It cannot be opened.
    """
    if isinstance(target, JournalBackend):
        journal: Journal = target.journal
    elif isinstance(target, Journal):
        journal = target
    else:
        config = _config_of(target, "target")
        if isinstance(config, InMemoryConfig):
            raise ContractError(
                "expected a store that is kept, got :memory:; pass the memory itself",
                where="target",
                reason=Reason.UNSUPPORTED,
            )
        _check_apart(source, config)
        _check_unused(config)
        journal = stack.enter_context(configs.create_memory_backend(config)).journal
    if journal.read_only:
        raise ReadOnlyStore("repair: expected a target to write to, got one opened for reading")
    if have := journal.refresh():
        raise _occupied(f"one with {have} events", have)
    return journal


def _config_of(side: object, where: str) -> MemoryBackendConfig:
    if not isinstance(side, (str, os.PathLike)):
        raise ContractError(
            f"expected a path, a URL, a memory or a journal, got {type_name(side)}",
            where=where,
            reason=Reason.WRONG_TYPE,
        )
    try:
        # A file that is damaged at its start does not look like a database any more.
        if where == "source" and Path(side).expanduser().is_file():
            return SqliteConfig(path=str(Path(side).expanduser()))
        return config_of(side)
    except ContractError as error:
        raise ContractError(error.problem, where=where, reason=error.reason) from None


def _check_folder(root: Path) -> None:
    if not root.is_dir():
        raise _missing(root)
    names = [path.name for path in root.iterdir()]
    listing = sort_names(names)
    is_text = JSONL_TIP_NAME in names or any(map(EVENTS_NAME.fullmatch, names))
    if not (listing.segments or listing.manifests or listing.is_marked or is_text):
        raise _missing(root)


def _missing(path: str | Path) -> NotFound:
    return NotFound(
        f"repair: expected a damaged store, got nothing that was one ({path}); check the path",
        reason=Reason.STORE_NOT_FOUND,
        key=str(path),
    )


def _path_of(config: MemoryBackendConfig) -> Path | None:
    match config:
        case SegmentsConfig(root=path) | FilesystemConfig(root=path) | SqliteConfig(path=path):
            return Path(path).resolve()
    return None


def _check_apart(source: _Side, target: MemoryBackendConfig) -> None:
    """Nothing may be made in the source's folder, and the source must not lie in the target."""
    if not isinstance(source, (str, os.PathLike)):
        return
    one, other = _path_of(_config_of(source, "source")), _path_of(target)
    if one is None or other is None:
        return
    if one == other or other.is_relative_to(one) or one.is_relative_to(other):
        raise ContractError(
            f"expected another place than the source's, got {other}; nothing was written",
            where="target",
            reason=Reason.UNSUPPORTED,
        )


def _check_unused(config: MemoryBackendConfig) -> None:
    """Look at what lies there before it is opened for writing, which would mend a torn tail."""
    path = _path_of(config)
    if path is not None and path.is_file() and path.stat().st_size:
        raise _occupied(f"a file of {path.stat().st_size} bytes", None)
    if path is not None and path.is_dir() and (names := [one.name for one in path.iterdir()]):
        raise _occupied(f"a folder with {names[0]!r} in it", None)


def _occupied(holds: str, actual: int | None) -> Conflict:
    return Conflict(
        f"repair: expected a target that holds nothing, got {holds}; nothing was written; give"
        " another target",
        reason=Reason.TARGET_EXISTS,
        actual=actual,
    )
