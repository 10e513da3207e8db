"""Opening a store: what a folder must be, who may make one, and what is put right on the way.

For writing: under the lock a missing store is created, files left in `tmp/` are removed, a tail
that is torn or in doubt is dealt with, and everything is synced before a decision rests on it. For
reading: nothing is created, locked for long or changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fmemory_segments._catalog import (
    HALF_MADE,
    LOCK_NAME,
    TIP_NAME,
    list_store,
    reading,
    sort_names,
    writing,
)
from fmemory_segments._core import Core
from fmemory_segments._lock import FileLock
from fmemory_segments._obsolete import empty_tmp, tidy
from fmemory_segments._roll import finish_move, first_segment, settle
from fmemory_segments._tail import Tail
from fmemory_segments._tip import TipFile
from fmemory_segments.errors import (
    LogNotFound,
    LogReason,
    NetworkFileSystem,
    NotALog,
    UnsupportedPlatform,
)
from fmemory_segments.filesystem import FileKind, is_network

_HARMLESS_NAMES: Final = frozenset({".DS_Store", ".gitignore", ".gitkeep", "lost+found"})


@dataclass(slots=True)
class OpenedFiles:
    """The files of an open log besides its segments."""

    core: Core
    tail: Tail
    lock: FileLock | None
    durable_seq: int = 0

    def close(self, *, wait: bool = True) -> None:
        """Close everything; segments close when their last reader is done.

        Args:
            wait: For threads that are at work; False in a forked child, which has none.
        """
        if self.lock is not None:
            self.lock.close(wait=wait)
        if self.core.tip is not None:
            self.core.tip.close(wait=wait)
        if not wait and self.core.compact_lock is not None:
            # A compaction of the parent is at work: this copy must not keep its lock.
            self.core.compact_lock.close(wait=False)


def open_files(core: Core, *, create: bool, allow_network: bool) -> OpenedFiles:
    """Open a store as `core.options` say and read it up to its head.

    Raises:
        As `Log.open`.
    """
    _check_place(core, create=create and not core.options.read_only, allow_network=allow_network)
    if core.options.read_only:
        return _open_to_read(core)
    return _open_to_write(core, create=create)


def _check_place(core: Core, *, create: bool, allow_network: bool) -> None:
    """Raise unless the path is, or may become, the folder of a store."""
    fs, path = core.fs, core.path
    if lack := fs.check_platform():
        raise UnsupportedPlatform(
            f"platform: expected POSIX with {lack}, got a system without it; nothing was created; "
            "use a memory, SQLite or PostgreSQL store here",
            reason=LogReason.PLATFORM,
            path=path,
        )
    with reading(path):
        kind = fs.kind(path)
        mount_type = fs.mount_type(path)
        above = next((one for one in path.parents if fs.kind(one) is not None), path)
        kind_above = FileKind.FOLDER if kind is not None else fs.kind(above)
    for found, where in ((kind, path), (kind_above, above)):
        if found is not None and found is not FileKind.FOLDER:
            raise NotALog(
                f"path: expected a folder, got a {found} ({where}); nothing was changed; name the "
                "folder of the log, or another path",
                reason=LogReason.NOT_A_FOLDER,
                path=path,
            )
    if kind is None and not create:
        raise _not_found(core)
    if is_network(mount_type) and not allow_network:
        raise NetworkFileSystem(
            f"mount: expected a local file system, got {mount_type} ({path}); nothing was created; "
            "its locks and syncs may lie: use a local folder, or pass allow_network=True",
            reason=LogReason.NETWORK_FILE_SYSTEM,
            path=path,
        )


def _not_found(core: Core) -> LogNotFound:
    hint = "read-only opening creates nothing" if core.options.read_only else "create=False"
    return LogNotFound(
        f"store: expected a log, got none ({core.path}); {hint}; name another folder, or create it",
        reason=LogReason.MISSING,
        path=core.path,
    )


def _open_to_read(core: Core) -> OpenedFiles:
    fs = core.fs
    tail = Tail(core)
    tip_path = core.path / TIP_NAME
    with reading(core.path):
        listing = list_store(fs, core.path)
        if not listing.segments and not listing.is_marked:
            raise _not_found(core)
        if fs.kind(tip_path) is not None:
            fd = fs.open_file(tip_path, write=False, create=False)
            core.tip = TipFile(fs, fd, tip_path, write=False)
        try:
            tip = core.read_tip()
            if not listing.segments and not tip.synced_seq:
                raise _not_found(core)
            tail.open_to_read(tip)
        except BaseException:
            OpenedFiles(core, tail, None).close()
            raise
    _note_foreign(core, listing.foreign)
    return OpenedFiles(core, tail, None, min(tip.synced_seq, core.head_seq))


def _open_to_write(core: Core, *, create: bool) -> OpenedFiles:
    fs = core.fs
    if not create:
        with reading(core.path):
            listing = list_store(fs, core.path)
        if not listing.segments and not listing.is_marked:
            raise _not_found(core)
    else:
        _check_new(core)
    with writing(core.path):
        fs.make_folders(core.path)
        lock_path, tip_path = core.path / LOCK_NAME, core.path / TIP_NAME
        lock_fd = fs.open_file(lock_path, write=True, create=True)
        lock = FileLock(fs, lock_fd, lock_path, names_store=True)
        files = OpenedFiles(core, Tail(core), lock)
        try:
            fd = fs.open_file(tip_path, write=True, create=True)
            core.tip = TipFile(fs, fd, tip_path, write=True)
            with lock.held(core.options.lock_timeout_s):
                files.durable_seq = _put_right(core, files.tail)
                tidy(core)
        except BaseException:
            files.close()
            raise
    return files


def _check_new(core: Core) -> None:
    """Raise if a store would be scattered among files that are somebody else's."""
    fs, path = core.fs, core.path
    # One listing for both questions: another process may be making the store just now.
    with reading(path):
        if fs.kind(path) is None:
            return
        found = fs.list_names(path)
    listing = sort_names(found)
    if listing.segments or listing.manifests or listing.is_marked:
        return
    names = [name for name in found if name not in _HARMLESS_NAMES]
    if names:
        raise NotALog(
            f"folder: expected a store or an empty folder, got one with {names[0]!r} in it "
            f"({path}); nothing was created; name a folder of its own, such as "
            f"{path / '.fmemory'}",
            reason=LogReason.NOT_EMPTY,
            path=path,
        )


def _put_right(core: Core, tail: Tail) -> int:
    """Under the lock: create what is missing, recover, sync; the seq up to which all is durable."""
    fs = core.fs
    assert core.tip is not None
    tip = core.tip.read()
    listing = list_store(fs, core.path)
    if not listing.segments and not tip.synced_seq:
        first_segment(core)
    _note_foreign(core, listing.foreign)
    empty_tmp(core, HALF_MADE)
    with core.tail_lock:
        loaded = tail.load(tip=tip, may_cut=True)
    if tip.suspect_from:
        return settle(core, tail, tip).synced_seq
    if loaded.is_split:
        finish_move(core)
    # What a crashed process left in the page cache must be on disk before anything rests on it.
    segment = core.active
    try:
        fs.datasync(segment.fd)
    except OSError as error:
        raise core.sync_failed(error) from error
    try:
        core.tip.advance(
            synced_seq=core.head_seq, segment_base=segment.base_seq, synced_offset=segment.end
        )
    except OSError as error:
        core.note(f"TIP could not be written: {error}")
    return core.head_seq


def _note_foreign(core: Core, names: list[str]) -> None:
    for name in names:
        core.note(f"{name} in {core.path} is not a file of the log and was left alone")
