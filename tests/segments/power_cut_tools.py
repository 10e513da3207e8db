"""A file system that remembers what a power cut would leave, and the disks that it may leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tests.segments.log_tools import WatchedFileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SECTOR_BYTES = 512


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


@dataclass
class Disk:
    """All that matters for what a power cut leaves."""

    files: dict[int, File] = field(default_factory=dict)
    names: dict[Path, int] = field(default_factory=dict)
    pending_names: list[tuple[Path, int | None]] = field(default_factory=list)

    def copy(self) -> Disk:
        files = {number: File(one.durable, list(one.pending)) for number, one in self.files.items()}
        return Disk(files, dict(self.names), list(self.pending_names))

    def cut(self, choose: random.Random) -> dict[Path, bytes]:
        """The files that one possible power cut leaves.

        Of the names that were changed since their folder's last sync a prefix is kept, as by a file
        system that writes them in order, or any of them.
        """
        names = dict(self.names)
        pending = self.pending_names
        if choose.random() < 0.5:
            pending = pending[: choose.randint(0, len(pending))]
        else:
            pending = [one for one in pending if choose.random() < 0.5]
        for path, number in pending:
            if number is None:
                names.pop(path, None)
            else:
                names[path] = number
        return {path: survivor(self.files[number], choose) for path, number in names.items()}


def survivor(file: File, choose: random.Random) -> bytes:
    """The content of a file of which the changes since its last sync were kept in part."""
    content = file.durable
    mode = choose.choice(["all", "none", "prefix", "sectors", "zeros", "garbage"])
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
    """The real file system, with a disk as a power cut would find it beside it."""

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__()
        self.disk = Disk()
        self._after = after
        self._now: dict[Path, int] = {}
        self._by_fd: dict[int, int | Path] = {}

    def _link(self, path: Path, number: int | None) -> None:
        self.disk.pending_names.append((path, number))
        if number is None:
            self._now.pop(path, None)
        else:
            self._now[path] = number

    def _created(self, path: Path, fd: int) -> int:
        if path not in self._now:
            number = len(self.disk.files)
            self.disk.files[number] = File()
            self._link(path, number)
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
            kept = []
            for path, number in self.disk.pending_names:
                if path.parent != subject:
                    kept.append((path, number))
                elif number is None:
                    self.disk.names.pop(path, None)
                else:
                    self.disk.names[path] = number
            self.disk.pending_names = kept
        self._after()

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        number = self._now[source]
        # One entry of the journal: it is there or it is not.
        self._link(target, number)
        self._link(source, None)
        self._after()

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._link(path, None)
        self._after()


@dataclass
class Moment:
    """What the disk had, and what had been promised, after one call."""

    disk: Disk
    durable: int


def build(path: Path, files: dict[Path, bytes], source: Path) -> None:
    """Lay files out on a real disk."""
    path.mkdir()
    for name, content in files.items():
        target = path / name.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
