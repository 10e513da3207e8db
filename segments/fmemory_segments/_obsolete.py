"""Removing what a compaction replaced or left behind: the one place where files of a log go.

Only what the manifest that holds has replaced, what a compaction never finished, and half-made
files in `tmp/`; never a file of another name, and nothing at all while a manifest is damaged or
missing, as the file may be needed to put it right. What replaces a file is on disk before it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fmemory_segments._catalog import (
    COMPACT_LOCK_NAME,
    HALF_COMPACTED,
    HALF_MADE_NAME,
    Listing,
    list_store,
    sync_folder,
    write_failed,
    writing,
)
from fmemory_segments._core import Core
from fmemory_segments._lock import FileLock
from fmemory_segments._manifest import manifest_name
from fmemory_segments.errors import LogError, StoreBusy
from fmemory_segments.filesystem import FileKind

QUARANTINED_NAME: Final = re.compile(r"seg-[0-9]{20}-[0-9]{6}-[0-9]{12}-[0-9a-f]{8}\.tail")
MANIFESTS_KEPT: Final = 2


@contextmanager
def compact_lock(core: Core, timeout_s: float) -> Iterator[FileLock]:
    """The lock of compaction, for the length of a block.

    Raises:
        StoreBusy: Another handle or process compacts.
        LogWriteFailed: The system could not lock.
    """
    path = core.path / COMPACT_LOCK_NAME
    with writing(path):
        fd = core.fs.open_file(path, write=True, create=True)
        try:
            lock = FileLock(core.fs, fd, path)
        except BaseException:
            core.fs.close(fd)
            raise
    core.compact_lock = lock
    try:
        with lock.held(timeout_s):
            yield lock
    finally:
        core.compact_lock = None
        lock.close()


def tidy(core: Core) -> None:
    """As a writer that has opened the log: remove what compactions left, unless one is at work.

    What cannot be removed is told by `health()`, and is no reason not to open.
    """
    try:
        listing = list_store(core.fs, core.path)
        for name, evidence in listing.broken.items():
            core.note(
                f"{name} is damaged: expected {evidence}; the generation before it holds, and no "
                "file is removed until the next compaction"
            )
        told = core.read_tip().manifest_no
        if told > max(listing.manifests, default=0):
            core.note(
                f"manifest {told} is missing: an older generation holds, in "
                "which what was erased may be back; no file is removed until the next compaction"
            )
        if not replaced_files(core, listing) and not _half_made(core, HALF_COMPACTED):
            return
        with compact_lock(core, 0):
            empty_tmp(core, HALF_COMPACTED)
            # A compaction may have ended between the listing and the lock.
            for failure in remove_replaced(core, list_store(core.fs, core.path)):
                core.note(failure)
    except StoreBusy:
        return  # A compaction is at work: what it left is not yet known.
    except (LogError, OSError) as error:
        core.note(f"files that a compaction replaced could not be removed: {error}")


def replaced_files(core: Core, listing: Listing) -> list[Path]:
    """Files of the folder that are worth nothing any more."""
    is_newest = core.read_tip().manifest_no <= max(listing.manifests, default=0)
    if listing.broken or not is_newest:
        return []
    older = listing.manifests[:-MANIFESTS_KEPT]
    names = [*map(str, [*listing.obsolete, *listing.debris]), *map(manifest_name, older)]
    return [core.path / name for name in names]


def remove_replaced(core: Core, listing: Listing) -> list[str]:
    """Remove them. Under the lock of compaction; what fails is returned as sentences."""
    paths = replaced_files(core, listing)
    return remove_files(core, core.path, paths) if paths else []


def remove_files(core: Core, folder: Path, paths: list[Path]) -> list[str]:
    """Remove files of one folder for good; what could not be removed, as sentences."""
    failures = []
    try:
        # That the files are not needed any more must be on disk before they go.
        sync_folder(core.fs, core.path)
    except OSError as error:
        return [f"{len(paths)} files in {folder} were kept: {write_failed(error, folder)}"]
    for path in paths:
        try:
            core.fs.remove(path)
        except FileNotFoundError:
            continue  # Another writer was faster.
        except OSError as error:
            failures.append(f"{path} could not be removed: {write_failed(error, path)}")
    try:
        sync_folder(core.fs, folder)
    except OSError as error:
        failures.append(f"removed files of {folder} may come back: {write_failed(error, folder)}")
    return failures


def empty_tmp(core: Core, prefix: str) -> None:
    """Remove what was left half-made; files of other names are somebody else's."""
    for path in _half_made(core, prefix):
        try:
            core.fs.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            core.note(f"could not remove {path}: {write_failed(error, path)}")


def forget_tmp(core: Core) -> list[str]:
    """Have on disk that files of `tmp/` have other names now; what failed, as sentences."""
    try:
        if core.fs.kind(core.tmp) is FileKind.FOLDER:
            sync_folder(core.fs, core.tmp)
    except OSError as error:
        return [f"names of {core.tmp} may come back: {write_failed(error, core.tmp)}"]
    return []


def empty_quarantine(core: Core) -> tuple[list[str], list[str]]:
    """Remove what was cut off tails: it may hold what was erased. Under the lock of the log.

    Returns:
        Names of the files that are gone, and what could not be removed, as sentences.
    """
    fs = core.fs
    if fs.kind(core.quarantine) is not FileKind.FOLDER:
        return [], []
    names = [name for name in fs.list_names(core.quarantine) if QUARANTINED_NAME.fullmatch(name)]
    if not names:
        return [], []
    failures = remove_files(core, core.quarantine, [core.quarantine / name for name in names])
    return names, failures


def _half_made(core: Core, prefix: str) -> list[Path]:
    fs = core.fs
    if fs.kind(core.tmp) is not FileKind.FOLDER:
        return []
    return [
        core.tmp / name
        for name in fs.list_names(core.tmp)
        if name.startswith(prefix)
        and HALF_MADE_NAME.fullmatch(name)
        and fs.kind(core.tmp / name) is FileKind.FILE
    ]
