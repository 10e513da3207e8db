"""Small stores, what they hold, and file systems that count, refuse and fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fmemory_segments import (
    Blob,
    Commit,
    Draft,
    Log,
    LogError,
    PosixFileSystem,
    RowRun,
    Rows,
    Stream,
    verify_store,
)
from fmemory_segments._txn import LogTxn
from fmemory_segments.filesystem import FileKind
from tests.segments.event_strategies import make_rows

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

RECORDS: Stream = ("records",)
SESSION: Stream = ("session", "s1")
ROUNDS = int(os.environ.get("FMEMORY_TEST_ROUNDS", "1"))


def next_revision(txn: LogTxn, stream: Stream) -> int:
    """The revision that the next event of a stream gets."""
    for info in txn.streams(stream):
        if info.stream == stream:
            return info.revision + 1
    return 1


def put_draft(
    revision: int, number: int, rows: int = 1, *, dim: int = 3, dtype: str = "<f8"
) -> Draft:
    """A put of so many records; number makes their ids and content."""
    payload = make_rows(number, rows, dim, dtype, has_nonces=False)
    keys = tuple(f"r{number}-{row}" for row in range(rows))
    return Draft(RECORDS, revision, "records_put", payload, keys=keys, count=rows)


def blob_draft(revision: int, data: bytes, event_id: str | None = None) -> Draft:
    """An event of a session."""
    return Draft(
        SESSION, revision, "note.taken", Blob(data), actor="me@host", event_id=event_id, count=1
    )


def put(log: Log, number: int, rows: int = 1, *, dim: int = 3, dtype: str = "<f8") -> Commit:
    """Commit one put."""
    done = log.commit(
        lambda txn: [put_draft(next_revision(txn, RECORDS), number, rows, dim=dim, dtype=dtype)]
    )
    assert done is not None
    return done


def say(log: Log, *words: bytes, durability: str | None = None) -> Commit:
    """Commit session events as one batch."""

    def plan(txn: LogTxn) -> list[Draft]:
        first = next_revision(txn, SESSION)
        return [blob_draft(first + number, word) for number, word in enumerate(words)]

    done = log.commit(plan, durability=durability)  # type: ignore[arg-type]
    assert done is not None
    return done


def small_store(path: Path, *, events: int = 6, segment_bytes_max: int = 1 << 20) -> None:
    """A store with puts of several rows and session events in batches of one and two."""
    with Log.open(path, segment_bytes_max=segment_bytes_max) as log:
        for number in range(events // 2):
            put(log, number, 1 + number % 3)
            say(log, b"word %d" % number, b"more")


def contents(log: Log) -> list[object]:
    """Everything a reader can get from a log, comparable: two equal lists = equal logs."""
    head = log.refresh()
    found: list[object] = [log.store_id, head]
    envelopes = list(log.envelopes(0, head))
    assert [envelope.seq for envelope in envelopes] == list(range(1, head + 1))
    found += envelopes
    for payload in log.payloads(range(1, head + 1)):
        found.append(_plain(payload))
    gone = {
        event.seq << 16 | row
        for event in log.erased(0, head)
        if event.rows is not None
        for row in np.flatnonzero(event.rows).tolist()
    }
    locs = [
        loc
        for item in log.fold(0, head)
        if isinstance(item, RowRun)
        for loc in item.locs.tolist()
        if loc not in gone
    ]
    if locs:
        page = log.rows(np.array(locs, np.uint64))
        found += [bytes(page.notes), page.embedding_ids]
        found += [(block.dtype.str, block.shape, block.tobytes()) for block in page.blocks]
    found.append(log.streams())
    found.append(log.head())
    return found


def events_only(found: Sequence[object], head: int) -> list[object]:
    """Of `contents`, the store id, and envelopes and payloads up to a seq."""
    count = found[1]
    assert isinstance(count, int)
    return [found[0], *found[2 : 2 + head], *found[2 + count : 2 + count + head]]


def _plain(payload: object) -> object:
    if isinstance(payload, Rows):
        return (
            payload.timestamps.tobytes(),
            payload.notes,
            payload.note_offsets.tobytes(),
            payload.vectors.dtype.str,
            payload.vectors.shape,
            payload.vectors.tobytes(),
            payload.embedding_ids,
            payload.nonces,
            None if payload.erased is None else payload.erased.tobytes(),
            None if payload.digests is None else payload.digests.tobytes(),
        )
    return payload


def files_of(path: Path) -> dict[str, bytes]:
    """Name and content of every file below a folder."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def segments_of(path: Path) -> list[Path]:
    """The segment files of a store, in order."""
    return sorted(path.glob("seg-*.log"))


def damage_findings(path: Path) -> list[str]:
    """Reasons of the findings of `verify_store` that are damage."""
    findings = verify_store(PosixFileSystem(), path)
    return [finding.reason.value for finding in findings if finding.damage]


class Crash(BaseException):
    """The process ended here: nothing that follows in it happens."""


Hook = Callable[[str, object], None]


class WatchedFileSystem:
    """The real file system with a hook that sees every call before it happens, and may raise.

    The hook gets the name of the call, and the path or descriptor that it is about.
    """

    WRITES = frozenset(
        "make_folders create_file pwrite pwritev truncate datasync sync rename remove".split()  # noqa: SIM905
    )

    def __init__(self, hook: Hook | None = None) -> None:
        self._real = PosixFileSystem()
        self.hook: Hook = hook or (lambda _, __: None)
        self.calls: list[str] = []

    def _enter(self, name: str, subject: object) -> None:
        self.calls.append(name)
        self.hook(name, subject)

    def check_platform(self) -> str | None:
        return self._real.check_platform()

    def mount_type(self, path: Path) -> str:
        self._enter("mount_type", path)
        return self._real.mount_type(path)

    def free_bytes(self, path: Path) -> int:
        self._enter("free_bytes", path)
        return self._real.free_bytes(path)

    def kind(self, path: Path) -> FileKind | None:
        self._enter("kind", path)
        return self._real.kind(path)

    def identity(self, fd: int) -> tuple[int, int]:
        self._enter("identity", fd)
        return self._real.identity(fd)

    def is_at(self, identity: tuple[int, int], path: Path) -> bool:
        self._enter("is_at", path)
        return self._real.is_at(identity, path)

    def list_names(self, path: Path) -> list[str]:
        self._enter("list_names", path)
        return self._real.list_names(path)

    def make_folders(self, path: Path) -> None:
        self._enter("make_folders", path)
        self._real.make_folders(path)

    def open_file(self, path: Path, *, write: bool, create: bool) -> int:
        self._enter("create_file" if create else "open_file", path)
        return self._real.open_file(path, write=write, create=create)

    def create_file(self, path: Path) -> int:
        self._enter("create_file", path)
        return self._real.create_file(path)

    def open_folder(self, path: Path) -> int:
        self._enter("open_folder", path)
        return self._real.open_folder(path)

    def close(self, fd: int) -> None:
        self._real.close(fd)

    def size(self, fd: int) -> int:
        self._enter("size", fd)
        return self._real.size(fd)

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        self._enter("pread", fd)
        return self._real.pread(fd, size, offset)

    def preadv(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int, /) -> int:
        self._enter("preadv", fd)
        return self._real.preadv(fd, buffers, offset)

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        self._enter("pwrite", fd)
        return self._real.pwrite(fd, data, offset)

    def pwritev(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int, /) -> int:
        self._enter("pwritev", fd)
        return self._real.pwritev(fd, buffers, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._enter("truncate", fd)
        self._real.truncate(fd, size)

    def datasync(self, fd: int) -> None:
        self._enter("datasync", fd)

    def sync(self, fd: int) -> None:
        self._enter("sync", fd)

    def rename(self, source: Path, target: Path) -> None:
        self._enter("rename", target)
        self._real.rename(source, target)

    def remove(self, path: Path) -> None:
        self._enter("remove", path)
        self._real.remove(path)

    def try_lock(self, fd: int, *, shared: bool) -> bool:
        self._enter("try_lock", fd)
        return self._real.try_lock(fd, shared=shared)

    def unlock(self, fd: int) -> None:
        self._real.unlock(fd)


class FailingFileSystem(WatchedFileSystem):
    """Fails chosen calls with an error, or ends the process at one."""

    def __init__(
        self,
        should_fail: Callable[[str, int], bool] = lambda _, __: False,
        error: Callable[[], BaseException] = lambda: OSError(errno.EIO, "Input/output error"),
        *,
        for_ever: bool = False,
    ) -> None:
        super().__init__(self._check)
        self._should_fail = should_fail
        self._error = error
        self._for_ever = for_ever
        self.count = 0
        self.failed = 0

    def _check(self, name: str, subject: object) -> None:
        del subject
        self.count += 1
        if (self.failed and self._for_ever) or self._should_fail(name, self.count):
            self.failed += 1
            raise self._error()


def crash_at(number: int) -> FailingFileSystem:
    """A file system whose process ends at its N-th call; every later call ends it again."""
    return FailingFileSystem(lambda _, count: count == number, Crash, for_ever=True)


def opens(path: Path, *, read_only: bool = False) -> list[object] | LogError:
    """What a store holds, or the error that opening or reading it gives."""
    try:
        with Log.open(path, read_only=read_only) as log:
            return contents(log)
    except LogError as error:
        return error
