"""The folder of a log: which names mean what, and how segment files come into being.

A segment is made in `tmp/`, synced and given its final, never used name, so a file under such a
name has a whole header or is damaged. Names this module does not know are somebody else's: they
are reported and left alone. docs/format.md section 1 owns the names.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from fmemory_segments._files import OpenFile
from fmemory_segments._header import SEGMENT_HEADER_BYTES, SegmentHeader, pack_header, unpack_header
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import (
    LogCorrupt,
    LogError,
    LogReadFailed,
    LogReason,
    LogWriteFailed,
    StoreFull,
    UnsupportedFormat,
)
from fmemory_segments.filesystem import FileSystem, is_full

LOCK_NAME: Final = "LOCK"
TIP_NAME: Final = "TIP"
TMP_NAME: Final = "tmp"
QUARANTINE_NAME: Final = "quarantine"
OWN_NAMES: Final = frozenset({LOCK_NAME, TIP_NAME, TMP_NAME, QUARANTINE_NAME})
SEGMENT_NAME: Final = re.compile(r"seg-([0-9]{20})-([0-9]{6})\.log")
HALF_MADE_NAME: Final = re.compile(r"new-[0-9a-f]{16}")
MANIFEST_NAME: Final = re.compile(r"manifest-[0-9]{12}\.mf")


class SegmentName(NamedTuple):
    """The name of a segment file, which sorts as its events do."""

    base_seq: int
    generation: int

    def __str__(self) -> str:
        return f"seg-{self.base_seq:020}-{self.generation:06}.log"


class Listing(NamedTuple):
    """The names in a store's folder, by meaning.

    Attributes:
        segments: In order of base seq.
        manifests: Of a compacted store.
        foreign: Not ours.
        is_marked: True if LOCK or TIP is there: the folder was used as a store before.
    """

    segments: list[SegmentName]
    manifests: list[str]
    foreign: list[str]
    is_marked: bool


def sort_names(names: list[str]) -> Listing:
    """What the names of a folder mean.

    >>> sort_names(["LOCK", "notes.txt", "seg-00000000000000000001-000000.log"]).foreign
    ['notes.txt']
    """
    segments, manifests, foreign = [], [], []
    for name in names:
        if found := SEGMENT_NAME.fullmatch(name):
            segments.append(SegmentName(int(found[1]), int(found[2])))
        elif MANIFEST_NAME.fullmatch(name):
            manifests.append(name)
        elif name not in OWN_NAMES:
            foreign.append(name)
    marked = LOCK_NAME in names or TIP_NAME in names
    return Listing(sorted(segments), manifests, foreign, marked)


def list_store(fs: FileSystem, folder: Path) -> Listing:
    """The names in the folder by meaning.

    Raises:
        LogReadFailed: The folder cannot be listed.
        UnsupportedFormat: A newer version compacted the store.
    """
    with reading(folder):
        listing = sort_names(fs.list_names(folder))
    if listing.manifests:
        raise UnsupportedFormat(
            f"store format: expected a store that was never compacted, got {listing.manifests[0]} "
            f"({folder}); nothing was changed; open it with a newer version of fmemory",
            reason=LogReason.COMPACTED_STORE,
            path=folder,
        )
    return listing


def open_segment(
    fs: FileSystem, folder: Path, name: SegmentName, *, write: bool, store_id: bytes | None
) -> tuple[OpenFile, SegmentHeader]:
    """The file of a segment and its checked header.

    Args:
        store_id: What the header must say; None for the first segment of a store.

    Raises:
        LogCorrupt: The header is damaged, contradicts the name, or belongs to another store.
        UnsupportedFormat: A newer version wrote it.
        LogReadFailed: The system could not open or read it.
    """
    path = folder / str(name)
    with reading(path):
        file = OpenFile(fs.open_file(path, write=write, create=False), fs.close)
        data = read_exactly(fs.pread, file.fd, SEGMENT_HEADER_BYTES, 0)
    header = unpack_header(data)
    if header is None:
        raise LogCorrupt(
            f"segment header: expected {SEGMENT_HEADER_BYTES} bytes with magic and checksum, got "
            f"others ({path}, byte 0); no file was changed; run `fmemory verify` on the store",
            reason=LogReason.SEGMENT_HEADER,
            path=path,
            offset=0,
            first_seq=name.base_seq,
        )
    if not header.is_supported:
        raise UnsupportedFormat(
            f"segment version: expected 1 without unknown features, got {header.major}."
            f"{header.minor} with features {header.incompatible:#x} ({path}); nothing was changed; "
            "open it with a newer version of fmemory",
            reason=LogReason.UNKNOWN_FEATURE if header.major == 1 else LogReason.NEWER_FORMAT,
            path=path,
            offset=0,
            first_seq=name.base_seq,
        )
    if header.generation and not (header.took_tail or header.is_compacted):
        raise UnsupportedFormat(
            f"segment: expected a reason for another generation, got {header.generation} without "
            f"a known flag ({path}); nothing was changed; open it with a newer version of fmemory",
            reason=LogReason.COMPACTED_STORE,
            path=path,
            first_seq=name.base_seq,
        )
    if store_id is not None and header.store_id != store_id:
        raise LogCorrupt(
            f"segment header: expected store {store_id.hex()}, got {header.store_id.hex()} "
            f"({path}); no file was changed; take the file out of the folder",
            reason=LogReason.FOREIGN_SEGMENT,
            path=path,
            offset=0,
            first_seq=name.base_seq,
        )
    if (header.base_seq, header.generation) != name:
        raise LogCorrupt(
            f"segment header: expected base seq {name.base_seq} as the name says, got "
            f"{header.base_seq} ({path}); no file was changed; give the file its name back",
            reason=LogReason.SEGMENT_HEADER,
            path=path,
            offset=0,
            first_seq=name.base_seq,
        )
    return file, header


@contextmanager
def half_made(fs: FileSystem, folder: Path) -> Iterator[tuple[int, Path]]:
    """A new file in `tmp/` for the length of a block; removed if it was not renamed by the end."""
    tmp = folder / TMP_NAME
    fs.make_folders(tmp)
    path = tmp / f"new-{secrets.token_hex(8)}"
    assert HALF_MADE_NAME.fullmatch(path.name)
    fd = fs.create_file(path)
    try:
        yield fd, path
    finally:
        fs.close(fd)
        with suppress(OSError):  # The next holder of the lock removes what is left in tmp.
            if fs.kind(path) is not None:
                fs.remove(path)


def create_segment(fs: FileSystem, folder: Path, header: SegmentHeader) -> SegmentName:
    """An empty segment under its final name, on disk. Under the lock."""
    with half_made(fs, folder) as (fd, path):
        write_all(fs, fd, pack_header(header), 0)
        fs.sync(fd)
        return publish_segment(fs, folder, path, header)


def publish_segment(fs: FileSystem, folder: Path, path: Path, header: SegmentHeader) -> SegmentName:
    """Give a synced file of `tmp/` its name as a segment, and have the name on disk."""
    name = SegmentName(header.base_seq, header.generation)
    target = folder / str(name)
    if fs.kind(target) is not None:
        raise FileExistsError(f"segment name: expected it to be unused, got a file ({target})")
    fs.rename(path, target)
    sync_folder(fs, folder)
    return name


def sync_folder(fs: FileSystem, folder: Path) -> None:
    """Have the names of a folder on disk."""
    fd = fs.open_folder(folder)
    try:
        fs.sync(fd)
    finally:
        fs.close(fd)


def write_all(fs: FileSystem, fd: int, data: bytes, offset: int) -> None:
    """Write all of the bytes, or raise."""
    view = memoryview(data)
    while view:
        written = fs.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system raises while reading into `LogReadFailed`."""
    try:
        yield
    except LogError:
        raise
    except OSError as error:
        raise read_failed(error, path) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system raises while writing into `LogWriteFailed` or `StoreFull`."""
    try:
        yield
    except LogError:
        raise
    except OSError as error:
        raise write_failed(error, path) from error


def read_failed(error: OSError, path: Path, offset: int | None = None) -> LogReadFailed:
    """What to raise from an error of reading."""
    where = f"{path}" if offset is None else f"{path}, byte {offset}"
    denied = isinstance(error, PermissionError)
    return LogReadFailed(
        f"read: expected bytes, got {error.strerror or error} ({where}); nothing was changed; "
        + ("ask for the right to read it" if denied else "look at the disk, then open again"),
        reason=LogReason.ACCESS_DENIED if denied else LogReason.READ_FAILED,
        path=path,
        offset=offset,
    )


def write_failed(error: OSError, path: Path, offset: int | None = None) -> LogWriteFailed:
    """What to raise from an error of writing."""
    if is_full(error):
        return StoreFull(
            f"write: expected room, got {error.strerror or error} ({path}); the log is as it was "
            "before; make room, then append again",
            reason=LogReason.NO_SPACE,
            path=path,
            offset=offset,
        )
    denied = isinstance(error, PermissionError)
    return LogWriteFailed(
        f"write: expected to write, got {error.strerror or error} ({path}); the log is as it was "
        "before; " + ("open it read-only" if denied else "look at the disk, then append again"),
        reason=LogReason.ACCESS_DENIED if denied else LogReason.WRITE_FAILED,
        path=path,
        offset=offset,
    )
