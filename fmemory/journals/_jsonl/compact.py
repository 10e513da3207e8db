"""Compaction of a JSON Lines store: the files that hold named data are written anew, one by one.

A new file is made in `tmp/`, synced and read back, all without keeping anybody out. Then, under the
lock of the store, what others appended meanwhile is copied after it, and it is renamed over the old
one: that is the moment at which the data of this file are gone. Stopped anywhere, the store holds
each file as it was or as it is to be, and both are right.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fmemory.journal import Compaction, Erasure
from fmemory.journals._erasure import named_seqs
from fmemory.journals._jsonl.core import Core, Entry, EventsFile
from fmemory.journals._jsonl.erase import is_named, still_named, to_forget
from fmemory.journals._jsonl.replaced import go_on, look_again
from fmemory.journals._jsonl.rewrite import COPY_BYTES, Written, read_back, write_without
from fmemory.journals._jsonl.scan import Found
from fmemory.journals._jsonl.store import (
    COMPACT_NAME,
    QUARANTINE_NAME,
    QUARANTINED_NAME,
    REWRITTEN_NAME,
    TMP_NAME,
    empty_tmp,
)
from fmemory.journals._jsonl.tail import Tail
from fmemory.journals._jsonl.writer import Writer
from fmemory_segments import LogReason
from fmemory_segments._catalog import reading, sync_folder, write_all, writing
from fmemory_segments._files import OpenFile
from fmemory_segments._lock import FileLock
from fmemory_segments.errors import LogWriteFailed, StoreFull
from fmemory_segments.filesystem import FileKind

TRIES_MAX: Final = 8
ERASED_ROW_BYTES_MAX: Final = 256
"""By so much a record may grow when its data go: its digest takes their place."""


class Compactor:
    """One compaction of one handle.

    Args:
        core: The open log.
        tail: Keeps it up to date.
        writer: Its writer.
        lock: The lock of the store.
    """

    def __init__(self, core: Core, tail: Tail, writer: Writer, lock: FileLock) -> None:
        self._core = core
        self._tail = tail
        self._writer = writer
        self._lock = lock
        self._timeout_s = core.options.lock_timeout_s
        self._rows = 0
        self._events = 0
        self._forgotten = 0
        self._pending: list[str] = []
        self._notices: list[str] = []

    def run(self, erasure: Erasure, timeout_s: float | None) -> Compaction:
        """Take out what the erasure names.

        Raises:
            As `JsonlLog.compact`.
        """
        if timeout_s is not None:
            self._timeout_s = timeout_s
        with self._alone():
            with self._lock.held(self._timeout_s):
                self._catch_up()
            look_again(self._core)
            before = self._stored_bytes()
            todo, is_any_named = self._choose(erasure)
            self._check_room(todo)
            for first_seq in todo:
                self._replace(first_seq, erasure)
            if is_any_named:
                self._clean_up()
        return Compaction(
            erasure.upto,
            self._rows,
            self._events,
            before,
            self._stored_bytes(),
            tuple(self._pending),
            tuple(self._notices),
            self._forgotten,
        )

    # What is to do

    def _choose(self, erasure: Erasure) -> tuple[dict[int, int], bool]:
        """What is to go of each file, by its first seq, and whether anything at all is named."""
        core, is_any_named = self._core, False
        todo: dict[int, int] = {}
        for seq in named_seqs(erasure).tolist():
            if not 1 <= seq <= core.head_seq:
                continue
            entry = core.entry(seq)
            is_any_named = is_any_named or is_named(entry.found, erasure)
            named = still_named(entry.found, erasure)
            if named is not False or to_forget(entry.found, erasure) is not None:
                first_seq = entry.file.first_seq
                count = 1 if isinstance(named, bool) else int(named.sum())
                todo[first_seq] = todo.get(first_seq, 0) + count
        return todo, is_any_named

    def _check_room(self, todo: dict[int, int]) -> None:
        """Raise if the largest file would not fit beside the old one. Nothing was written."""
        core = self._core
        if not todo:
            return
        need = max(
            core.file_at(one).end + ERASED_ROW_BYTES_MAX * count for one, count in todo.items()
        )
        with reading(core.path):
            free = core.fs.free_bytes(core.path)
        if free < need:
            raise StoreFull(
                f"compact: expected {need} bytes free, for a file beside the one that it replaces, "
                f"got {free} ({core.path}); nothing was changed; make room, then compact again",
                reason=LogReason.NO_SPACE,
                path=core.path,
            )

    def _stored_bytes(self) -> int:
        return sum(one.end for one in self._core.files)

    # One file

    def _replace(self, first_seq: int, erasure: Erasure) -> None:
        """Write a file anew and give it its name; again if the file was replaced meanwhile."""
        core = self._core
        for _ in range(TRIES_MAX):
            core.check()
            with core.tail_lock:
                events = core.file_at(first_seq)
                entries, end = core.entries_in(events), events.end
            with self._new_file() as (file, path):
                written = write_without(core, events, entries, erasure, file, path)
                with writing(path):
                    core.fs.sync(file.fd)
                with reading(path):
                    read_back(core, events, written)
                if self._publish(events, end, written):
                    self._rows += written.erased_rows
                    self._events += written.erased_events
                    self._forgotten += written.forgotten_events
                    return
        raise LogWriteFailed(
            f"compact: expected the file to stay in its place, got others {TRIES_MAX} times "
            f"({core.path_of(first_seq)}); nothing of it was changed; find who replaces it, then "
            "compact again",
            reason=LogReason.WRITE_FAILED,
            path=core.path_of(first_seq),
            first_seq=first_seq,
        )

    def _publish(self, events: EventsFile, end: int, written: Written) -> bool:
        """Rename the new file over the old one; False if the old one is not there any more."""
        core, fs = self._core, self._core.fs
        with self._lock.held(self._timeout_s):
            self._catch_up()
            with core.tail_lock, writing(events.path):
                if go_on(core, events):
                    return False
                entries = core.entries_in(events)
                self._copy_rest(events, end, written, entries[len(written.found) :])
                fs.rename(written.path, events.path)
                is_active = events is core.active
                self._take(events, written)
            try:
                sync_folder(fs, core.path)
            except OSError as error:
                if is_active:
                    # What is appended from now on may vanish with the name.
                    failed = "sync of the folder"
                    raise core.poisoned(failed, error, LogReason.SYNC_FAILED) from error
                raise LogWriteFailed(
                    f"compact: expected to sync the folder, got {error} ({core.path}); nothing is "
                    "lost; look at the disk, then compact again",
                    reason=LogReason.WRITE_FAILED,
                    path=core.path,
                ) from error
            if is_active:
                self._writer.cover(core.head_seq)
                self._writer.tell_tip(core.head_seq, events.first_seq, written.end)
        return True

    def _copy_rest(self, events: EventsFile, end: int, written: Written, rest: list[Entry]) -> None:
        """Copy what was appended since the file was read, as it is, and have it on disk."""
        core = self._core
        if events.end == end:
            return
        shift = written.end - end
        for at in range(end, events.end, COPY_BYTES):
            data = core.read(events, at, min(COPY_BYTES, events.end - at))
            write_all(core.fs, written.file.fd, data, at + shift)
        core.fs.datasync(written.file.fd)
        written.end = events.end + shift
        for entry in rest:
            found = entry.found
            lines = tuple((offset + shift, size, row) for offset, size, row in found.lines)
            written.found.append(
                Found(found.envelope, lines, found.chain, found.timestamps, found.erased)
            )

    def _take(self, events: EventsFile, written: Written) -> None:
        """Have this handle go on with the new file. Under the tail lock."""
        core = self._core
        new = EventsFile(
            events.path,
            events.first_seq,
            events.prev_chain,
            written.file,
            core.fs.identity(written.file.fd),
            written.end,
        )
        core.replace(events, new, [Entry(new, one) for one in written.found])

    # Around it

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other compactions out, and remove what one that was stopped left behind."""
        core, path = self._core, self._core.path / COMPACT_NAME
        with writing(path):
            fd = core.fs.open_file(path, write=True, create=True)
            try:
                lock = FileLock(core.fs, fd, path)
            except BaseException:
                core.fs.close(fd)
                raise
        try:
            with lock.held(self._timeout_s):
                with writing(core.path):
                    remove_rewritten(core)
                yield
        finally:
            lock.close()

    @contextmanager
    def _new_file(self) -> Iterator[tuple[OpenFile, Path]]:
        """A new file in `tmp/` that nobody but a compaction removes; gone at the end of a block."""
        core, tmp = self._core, self._core.path / TMP_NAME
        path = tmp / f"rewritten-{secrets.token_hex(8)}"
        assert REWRITTEN_NAME.fullmatch(path.name)
        with writing(path):
            core.fs.make_folders(tmp)
            file = OpenFile(core.fs.create_file(path), core.fs.close)
        try:
            yield file, path
        finally:
            with suppress(OSError):  # The next compaction removes it.
                if core.fs.kind(path) is not None:
                    core.fs.remove(path)

    def _catch_up(self) -> None:
        """Take in everything. Under the lock of the store."""
        self._core.check()
        self._writer.covers(self._tail.catch_up())

    def _clean_up(self) -> None:
        """Have the new names on disk, and remove what else may hold what was erased."""
        core = self._core
        with self._lock.held(self._timeout_s), writing(core.path):
            core.check()
            empty_tmp(core.fs, core.path)
            sync_folder(core.fs, core.path)
            if core.fs.kind(core.path / TMP_NAME) is FileKind.FOLDER:
                # A name there that was given up long ago may still be on disk, with the old file.
                sync_folder(core.fs, core.path / TMP_NAME)
            self._empty_quarantine()

    def _empty_quarantine(self) -> None:
        core = self._core
        folder = core.path / QUARANTINE_NAME
        if core.fs.kind(folder) is not FileKind.FOLDER:
            return
        names = [one for one in core.fs.list_names(folder) if QUARANTINED_NAME.fullmatch(one)]
        for name in names:
            try:
                core.fs.remove(folder / name)
            except OSError as error:
                self._pending.append(
                    f"quarantine/{name} may hold what was erased and could not be removed: "
                    f"{error.strerror or error}; remove it by hand"
                )
                continue
            self._notices.append(f"quarantine/{name} was removed: it may have held what was erased")
        if names:
            sync_folder(core.fs, folder)


def remove_leftovers(core: Core) -> None:
    """Remove what a compaction left that was stopped, unless one is at work. For who opens."""
    path = core.path / COMPACT_NAME
    if core.fs.kind(path) is not FileKind.FILE:
        return
    fd = core.fs.open_file(path, write=True, create=False)
    try:
        if core.fs.try_lock(fd, shared=False):
            with suppress(OSError):  # It costs space; the next compaction removes it, or says why.
                remove_rewritten(core)
            core.fs.unlock(fd)
    finally:
        core.fs.close(fd)


def remove_rewritten(core: Core) -> None:
    """Remove files that a compaction did not end. Under the lock of compactions."""
    tmp = core.path / TMP_NAME
    if core.fs.kind(tmp) is not FileKind.FOLDER:
        return
    for name in core.fs.list_names(tmp):
        if REWRITTEN_NAME.fullmatch(name) and core.fs.kind(tmp / name) is FileKind.FILE:
            core.fs.remove(tmp / name)
