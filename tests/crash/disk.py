"""A disk that a power cut may strike: what was synced stays, the rest is kept in any part.

`RecordingFileSystem` writes through to the real one and notes every write, cut, sync and name, so
that `Disk.states` can build what a cut at that moment may have left: of the changes of a file since
its last sync all, none, a prefix or some sectors, the others absent, zeros or garbage; of names
since their folder's last sync a prefix, or any of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from fmemory_segments import PosixFileSystem
from tests.segments.log_tools import WatchedFileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SECTOR_BYTES = 512
MODES = ("all", "none", "prefix", "sectors", "zeros", "garbage")


@dataclass
class Change:
    """A write at an offset, or a cut to a size where there are no data."""

    offset: int
    data: bytes | None


@dataclass
class File:
    """A file as the disk surely has it, and what was done to it since."""

    durable: bytes = b""
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            self.durable = apply(self.durable, change)
        self.pending = []


def apply(content: bytes, change: Change) -> bytes:
    """The content after a change."""
    if change.data is None:
        return content[: change.offset].ljust(change.offset, b"\0")
    end = change.offset + len(change.data)
    before = content[: change.offset].ljust(change.offset, b"\0")
    return before + change.data + content[end:]


NameChange = list[tuple[Path, int | None]]
"""What one call did to names, which happens at once: number of the file, or None = gone."""


@dataclass
class Disk:
    """All that matters for what a power cut leaves."""

    files: dict[int, File] = field(default_factory=dict)
    names: dict[Path, int] = field(default_factory=dict)
    pending_names: list[NameChange] = field(default_factory=list)

    def copy(self) -> Disk:
        files = {number: File(one.durable, list(one.pending)) for number, one in self.files.items()}
        return Disk(files, dict(self.names), list(self.pending_names))

    def states(
        self, choose: random.Random, samples: int, modes: Sequence[str] = MODES
    ) -> Iterator[dict[Path, bytes]]:
        """Files that a power cut may leave: the extremes, all but one change, then random ones."""
        for name_count in sorted({0, len(self.pending_names)}):
            names = self._names(self.pending_names[:name_count])
            # Without the newest names most files are as they were: their content varies little.
            for mode in modes if name_count == len(self.pending_names) else modes[:2]:
                yield {
                    path: survivor(self.files[number], mode, choose)
                    for path, number in names.items()
                }
        for kept in self._all_but_one():
            yield kept.with_all_names("all")
        for _ in range(samples):
            yield self.cut(choose, modes, in_order=False)

    def with_all_names(self, mode: str) -> dict[Path, bytes]:
        """The files with all of what was written since their last syncs, or "none" of it."""
        return {
            path: survivor(self.files[number], mode, random.Random(0))
            for path, number in self._names(self.pending_names).items()
        }

    def _all_but_one(self) -> Iterator[Disk]:
        """The disk without one change of a file, or one of names that others followed."""
        for number, file in self.files.items():
            for at in range(len(file.pending)):
                kept = self.copy()
                del kept.files[number].pending[at]
                yield kept
        for at in range(len(self.pending_names) - 1):
            kept = self.copy()
            del kept.pending_names[at]
            yield kept

    def cut(
        self, choose: random.Random, modes: Sequence[str] = MODES, *, in_order: bool = True
    ) -> dict[Path, bytes]:
        """The files that one possible power cut leaves.

        Args:
            in_order: Of names the first ones are kept, as file systems with a journal do.
        """
        kept = self.pending_names[: choose.randint(0, len(self.pending_names))]
        if not in_order and choose.random() < 0.5:
            kept = [one for one in self.pending_names if choose.random() < 0.5]
        return {
            path: survivor(self.files[number], choose.choice(modes), choose)
            for path, number in self._names(kept).items()
        }

    def _names(self, kept: list[NameChange]) -> dict[Path, int]:
        names = dict(self.names)
        for change in kept:
            for path, number in change:
                if number is None:
                    names.pop(path, None)
                else:
                    names[path] = number
        return names


@dataclass
class Moment:
    """What the disk had, and what had been promised, after one call."""

    disk: Disk
    durable: int


def survivor(file: File, mode: str, choose: random.Random) -> bytes:
    """The content of a file of which the changes since its last sync were kept in part."""
    content = file.durable
    pending = file.pending
    if mode == "none":
        return content
    if mode == "prefix":
        pending = pending[: choose.randint(0, len(pending))]
    for change in pending:
        if change.data is None or mode in ("all", "prefix"):
            content = apply(content, change)
            continue
        for low, high in sectors(change):
            if choose.random() < 0.5:
                part = change.data[low - change.offset : high - change.offset]
            elif mode == "sectors":
                continue
            else:
                part = bytes(high - low) if mode == "zeros" else choose.randbytes(high - low)
                if low < len(file.durable):
                    continue  # What was on disk before is not lost by a write beside it.
            content = apply(content, Change(low, part))
    return content


def sectors(change: Change) -> list[tuple[int, int]]:
    """A write cut at the borders of sectors."""
    assert change.data is not None
    end = change.offset + len(change.data)
    cuts = [
        change.offset,
        *range((change.offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES),
        end,
    ]
    return list(pairwise(cuts))


class RecordingFileSystem(WatchedFileSystem):
    """The real file system, with a disk as a power cut would find it beside it.

    Args:
        after: Called after every call that changed the disk.
    """

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__()
        self.disk = Disk()
        self._after = after
        self._now: dict[Path, int] = {}
        self._by_fd: dict[int, int | Path] = {}

    def mount_type(self, path: Path) -> str:
        self._enter("mount_type", path)
        return "ext4"  # To look takes as long as the rest of opening a small store.

    def _link(self, *change: tuple[Path, int | None]) -> None:
        self.disk.pending_names.append(list(change))
        for path, number in change:
            if number is None:
                self._now.pop(path, None)
            else:
                self._now[path] = number

    def _created(self, path: Path, fd: int) -> int:
        if path not in self._now:
            number = len(self.disk.files)
            self.disk.files[number] = File()
            self._link((path, number))
        self._by_fd[fd] = self._now[path]
        return fd

    def open_file(self, path: Path, *, write: bool, create: bool) -> int:
        return self._created(path, super().open_file(path, write=write, create=create))

    def create_file(self, path: Path) -> int:
        return self._created(path, super().create_file(path))

    def open_folder(self, path: Path) -> int:
        fd = super().open_folder(path)
        self._by_fd[fd] = path
        return fd

    def make_folders(self, path: Path) -> None:
        missing = [one for one in (path, *path.parents) if not one.exists()]
        super().make_folders(path)
        for folder in missing:
            self._sync_folder(folder.parent)

    def _change(self, fd: int, change: Change) -> None:
        number = self._by_fd[fd]
        assert isinstance(number, int)
        self.disk.files[number].pending.append(change)
        self._after()

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        written = super().pwrite(fd, data, offset)
        self._change(fd, Change(offset, bytes(memoryview(data)[:written])))
        return written

    def pwritev(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int, /) -> int:
        written = super().pwritev(fd, buffers, offset)
        whole = b"".join(memoryview(buffer).cast("B") for buffer in buffers)
        self._change(fd, Change(offset, whole[:written]))
        return written

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._change(fd, Change(size, None))

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        self._sync(fd)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._sync(fd)

    def _sync(self, fd: int) -> None:
        subject = self._by_fd[fd]
        if isinstance(subject, int):
            self.disk.files[subject].sync()
        else:
            self._sync_folder(subject)
        self._after()

    def _sync_folder(self, folder: Path) -> None:
        """What was done to names of a folder is on disk; the other half of a rename may not be."""
        kept: list[NameChange] = []
        for change in self.disk.pending_names:
            for path, number in change:
                if path.parent != folder:
                    continue
                if number is None:
                    self.disk.names.pop(path, None)
                else:
                    self.disk.names[path] = number
            kept.append([one for one in change if one[0].parent != folder])
        self.disk.pending_names = [change for change in kept if change]

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._link((target, self._now[source]), (source, None))
        self._after()

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._link((path, None))
        self._after()


def _do_nothing(fd: object) -> None:
    del fd


class QuickFileSystem(PosixFileSystem):
    """The real file system, for stores that are looked at once and then thrown away."""

    def mount_type(self, path: Path) -> str:
        del path
        return "ext4"

    datasync = sync = staticmethod(_do_nothing)


def build(target: Path, files: dict[Path, bytes], source: Path) -> None:
    """Lay the files of a disk out in another, new folder."""
    target.mkdir()
    for path, content in files.items():
        if not path.is_relative_to(source):
            continue
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
