"""After a power cut at any moment, what was acknowledged is there and nothing else is believed.

Goal: P1, P3 and P4 against a disk that keeps what was synced and any part of what was not. Method:
a file system records every write, truncate, sync and name; pass 2 takes the state after each call
and builds disks from it: of writes since a file's last sync all, none, a prefix or some sectors,
the others absent, zeros or garbage; of names since their folder's last sync a prefix. What would
have to break: an acknowledgement before its sync, a name before its content, a verdict that takes
torn bytes for damage or the other way round.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fmemory_segments import Log
from fmemory_segments._frames import read_metas
from fmemory_segments.errors import LogPoisoned
from tests.segments.log_tools import (
    ROUNDS,
    WatchedFileSystem,
    contents,
    damage_findings,
    events_only,
    opens,
    put,
    say,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SECTOR_BYTES = 512
SEED = int(os.environ.get("FMEMORY_TEST_SEED", "20240608"))
SAMPLES = 3 * ROUNDS


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
        """The files that one possible power cut leaves."""
        names = dict(self.names)
        for path, number in self.pending_names[: choose.randint(0, len(self.pending_names))]:
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


def record(path: Path, work: Callable[[Log, Callable[[int], None]], None]) -> list[Moment]:
    """Every moment of some work on a new store."""
    moments: list[Moment] = []
    durable = [0]

    def after() -> None:
        moments.append(Moment(fs.disk.copy(), durable[0]))

    fs = RecordingFileSystem(after)
    with Log.open(path, fs=fs, segment_bytes_max=2_500) as log:

        def promise(seq: int) -> None:
            durable[0] = max(durable[0], seq)
            after()

        work(log, promise)
    return moments


def build(path: Path, files: dict[Path, bytes], source: Path) -> None:
    """Lay files out on a real disk."""
    path.mkdir()
    for name, content in files.items():
        target = path / name.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)


def synced_work(log: Log, promise: Callable[[int], None]) -> None:
    """Batches of one to three events, each acknowledged as durable, over several segments."""
    for number in range(5):
        promise(put(log, number, 1 + number % 3, dim=20).last_seq)
        promise(say(log, *[b"word" * 40] * (1 + number % 3)).last_seq)


def mixed_work(log: Log, promise: Callable[[int], None]) -> None:
    """The same with commits that nobody syncs between the durable ones."""
    for number in range(6):
        say(log, *[b"left to the system" * 10] * (1 + number % 3), durability="os")
        say(log, b"soon", durability="os")
        if number % 3 == 2:
            promise(put(log, number, 2, dim=20).last_seq)
    promise(log.sync())


@pytest.mark.parametrize("work", [synced_work, mixed_work])
def test_power_cut_loses_nothing_acknowledged_and_raises_no_false_alarm(
    tmp_path: Path, work: Callable[[Log, Callable[[int], None]], None]
) -> None:
    print(f"FMEMORY_TEST_SEED={SEED}")
    choose = random.Random(SEED)
    source = tmp_path / "source"
    moments = record(source, work)
    whole = opens(source, read_only=True)
    assert isinstance(whole, list)
    batch_ends = ends_of_batches(source)
    for number, moment in enumerate(moments):
        for sample in range(SAMPLES):
            path = tmp_path / "disk"
            build(path, moment.disk.cut(choose), source)
            where = f"moment {number}, sample {sample}"
            if list(path.glob("seg-*")):
                assert not damage_findings(path), where
            found = opens(path)
            assert isinstance(found, list), (where, found)
            head = found[1]
            assert isinstance(head, int)
            assert head >= moment.durable, where
            assert head in batch_ends, where
            if head:
                assert events_only(found, head) == events_only(whole, head), where
            assert not damage_findings(path), where
            shutil.rmtree(path)


def ends_of_batches(path: Path) -> set[int]:
    """Seqs that end a batch, and 0."""
    ends = {0}
    with Log.open(path, read_only=True) as log:
        for segment in log._core.segments:
            for batch in read_metas(log._core, segment, range(segment.index.frame_count)):
                if batch.header.ends_batch:
                    ends.add(batch.header.last_seq)
    return ends


def test_power_cut_while_a_doubtful_tail_is_moved_loses_nothing(tmp_path: Path) -> None:
    """The failed sync lost nothing yet; what follows must not lose it either."""
    choose = random.Random(SEED)
    source = tmp_path / "source"
    moments: list[Moment] = []
    fails = [False]
    is_moving = [False]

    class Failing(RecordingFileSystem):
        def datasync(self, fd: int) -> None:
            super().datasync(fd)
            if fails[0]:
                raise OSError(5, "Input/output error")

    def after() -> None:
        if is_moving[0]:
            moments.append(Moment(fs.disk.copy(), 3))

    fs = Failing(after)
    log = Log.open(source, fs=fs)
    say(log, b"safe")
    fails[0] = True
    with pytest.raises(LogPoisoned):
        say(log, b"in doubt", b"this too")
    log.close()
    fails[0] = False
    is_moving[0] = True
    with Log.open(source, fs=fs) as again:
        whole = contents(again)
    for number, moment in enumerate(moments):
        for _ in range(SAMPLES):
            path = tmp_path / "disk"
            build(path, moment.disk.cut(choose), source)
            found = opens(path)
            assert isinstance(found, list), (number, found)
            assert events_only(found, 3) == events_only(whole, 3), number
            shutil.rmtree(path)
