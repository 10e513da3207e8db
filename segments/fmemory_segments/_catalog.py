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
from fmemory_segments._manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    SEGMENT_NAME,
    Manifest,
    SegmentName,
    manifest_name,
    unpack_manifest,
)
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

__all__ = ["SEGMENT_NAME"]  # Where other modules look for the form of a segment's name.

LOCK_NAME: Final = "LOCK"
COMPACT_LOCK_NAME: Final = "COMPACT.LOCK"
TIP_NAME: Final = "TIP"
TMP_NAME: Final = "tmp"
QUARANTINE_NAME: Final = "quarantine"
OWN_NAMES: Final = frozenset({LOCK_NAME, COMPACT_LOCK_NAME, TIP_NAME, TMP_NAME, QUARANTINE_NAME})
HALF_MADE: Final = "new-"
HALF_COMPACTED: Final = "compact-"
HALF_MADE_NAME: Final = re.compile(r"(new-|compact-)[0-9a-f]{16}")
LISTINGS_MAX: Final = 16


class Vanished(Exception):  # noqa: N818 - names what was found; never reaches a caller
    """A segment file is not there any more: a compaction took its place, or somebody removed it.

    Attributes:
        path: Where it was.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


class Names(NamedTuple):
    """The names in a store's folder, by form.

    Attributes:
        segments: In order of base seq.
        manifests: Their numbers, ascending.
        foreign: Not ours.
        is_marked: True if LOCK or TIP is there: the folder was used as a store before.
    """

    segments: list[SegmentName]
    manifests: list[int]
    foreign: list[str]
    is_marked: bool


class Listing(NamedTuple):
    """What a store's folder holds, by meaning.

    Attributes:
        segments: Those that hold, in order: the ones of the manifest, whether they are there or
            not, and those that were found behind them.
        manifest: The one that holds; None before the first compaction.
        manifests: Numbers of all manifest files, ascending.
        broken: Names of manifests that are not whole, with what is wrong.
        obsolete: Segments that are still there though the manifest has replaced them.
        debris: Compacted segments that no manifest lists: a compaction ended before it took effect.
        foreign: Names that are somebody else's.
        is_marked: True if LOCK or TIP is there: the folder was used as a store before.
    """

    segments: list[SegmentName]
    manifest: Manifest | None
    manifests: list[int]
    broken: dict[str, str]
    obsolete: list[SegmentName]
    debris: list[SegmentName]
    foreign: list[str]
    is_marked: bool


def sort_names(names: list[str]) -> Names:
    """What the names of a folder say by their form.

    >>> sort_names(["LOCK", "notes.txt", "seg-00000000000000000001-000000.log"]).foreign
    ['notes.txt']
    """
    segments, manifests, foreign = [], [], []
    for name in names:
        if found := SegmentName.parse(name):
            segments.append(found)
        elif match := MANIFEST_NAME.fullmatch(name):
            manifests.append(int(match[1]))
        elif name not in OWN_NAMES:
            foreign.append(name)
    marked = LOCK_NAME in names or TIP_NAME in names
    return Names(sorted(segments), sorted(manifests), foreign, marked)


def list_store(fs: FileSystem, folder: Path) -> Listing:
    """Which files of the folder hold the log, and what the others are.

    Takes no lock: where a compaction removes what was just listed, the folder is listed again.

    Raises:
        LogReadFailed: The folder or a manifest cannot be read.
        LogCorrupt: The manifest is damaged, and what the one before lists is not there any more.

    Cost: one listing; the manifest is read, and headers of compacted segments it does not list.
    """
    with reading(folder):
        for _ in range(LISTINGS_MAX - 1):
            with suppress(Vanished):
                return _sort_store(fs, folder, sort_names(fs.list_names(folder)))
        try:
            return _sort_store(fs, folder, sort_names(fs.list_names(folder)))
        except Vanished as gone:
            raise missing_file(gone.path) from gone


def read_manifest(fs: FileSystem, folder: Path, number: int) -> Manifest | str:
    """The manifest of this number; words for what is wrong if it is not whole.

    Raises:
        OSError: The system could not read it.
        Vanished: It is not there.
    """
    data = read_manifest_bytes(fs, folder, number)
    if len(data) > MANIFEST_BYTES_MAX:
        return f"at most {MANIFEST_BYTES_MAX} bytes, got more"
    return unpack_manifest(data, number)


def read_manifest_bytes(fs: FileSystem, folder: Path, number: int) -> bytes:
    """The bytes of a manifest's file, and no more than one may have, plus one.

    Raises:
        OSError, Vanished: As `read_manifest`.
    """
    path = folder / manifest_name(number)
    try:
        file = OpenFile(fs.open_file(path, write=False, create=False), fs.close)
    except FileNotFoundError as error:
        raise Vanished(path) from error
    return read_exactly(fs.pread, file.fd, min(fs.size(file.fd), MANIFEST_BYTES_MAX + 1), 0)


def missing_file(path: Path) -> LogCorrupt:
    """The error for a segment that must be there and is not."""
    name = SegmentName.parse(path.name)
    return LogCorrupt(
        f"segments: expected {path.name}, as the folder and its manifest say, got none ({path}); "
        "no file was changed; put the missing file back, or restore a backup",
        reason=LogReason.MISSING_SEGMENT,
        path=path,
        first_seq=name.base_seq if name else None,
    )


def _sort_store(fs: FileSystem, folder: Path, names: Names) -> Listing:
    manifest, broken = _choose_manifest(fs, folder, names)
    listed = manifest.names() if manifest else []
    held, replaced = set(listed), set(manifest.obsolete if manifest else ())
    last_seq = manifest.last_seq if manifest else 0
    behind, obsolete, debris, foreign = [], [], [], list(names.foreign)
    for name in names.segments:
        if name in held:
            continue
        if str(name) in replaced:
            obsolete.append(name)
        elif name.generation and _is_compacted(fs, folder / str(name)):
            debris.append(name)
        elif name.base_seq > last_seq:
            behind.append(name)
        else:
            foreign.append(str(name))
    segments = [*listed, *behind]
    if manifest is None and (broken or debris) and (not segments or segments[0].base_seq != 1):
        raise _no_manifest(folder, broken)
    return Listing(
        segments,
        manifest,
        names.manifests,
        broken,
        obsolete,
        debris,
        foreign,
        names.is_marked,
    )


def _choose_manifest(
    fs: FileSystem, folder: Path, names: Names
) -> tuple[Manifest | None, dict[str, str]]:
    """The highest manifest that is whole, and those above it that are not.

    One below a broken one holds only if all that it lists is there. Files are removed after the
    manifest that replaces them is on disk, so then the broken one never took effect, or replaced
    them by files of the same events.
    """
    broken: dict[str, str] = {}
    present = {str(name) for name in names.segments}
    for number in reversed(names.manifests):
        found = read_manifest(fs, folder, number)
        if isinstance(found, str):
            broken[manifest_name(number)] = found
            continue
        if broken and not present.issuperset(one.name for one in found.segments):
            raise _no_manifest(folder, broken)
        return found, broken
    return None, broken


def _is_compacted(fs: FileSystem, path: Path) -> bool:
    """True if a file's header is whole and says that it belongs to a compaction."""
    try:
        file = OpenFile(fs.open_file(path, write=False, create=False), fs.close)
    except FileNotFoundError as error:
        raise Vanished(path) from error
    header = unpack_header(read_exactly(fs.pread, file.fd, SEGMENT_HEADER_BYTES, 0))
    return header is not None and header.is_compacted


def _no_manifest(folder: Path, broken: dict[str, str]) -> LogCorrupt:
    name, evidence = next(iter(broken.items()), ("manifest-*.mf", "one, got none"))
    return LogCorrupt(
        f"manifest: expected {evidence} ({folder / name}); the files that it replaced are gone, so "
        "nothing else says which segments hold; no file was changed; put a good copy of it back, "
        "or restore a backup",
        reason=LogReason.MANIFEST,
        path=folder / name,
    )


def check_version(header: SegmentHeader, path: Path) -> None:
    """Refuse a segment that a newer version wrote.

    Raises:
        UnsupportedFormat: It did.
    """
    if not header.is_supported:
        raise UnsupportedFormat(
            f"segment version: expected 1 without unknown features, got {header.major}."
            f"{header.minor} with features {header.incompatible:#x} ({path}); nothing was changed; "
            "use a newer version of fmemory",
            reason=LogReason.UNKNOWN_FEATURE if header.major == 1 else LogReason.NEWER_FORMAT,
            path=path,
            offset=0,
            first_seq=header.base_seq,
        )


def open_segment(
    fs: FileSystem, folder: Path, name: SegmentName, *, write: bool, store_id: bytes | None
) -> tuple[OpenFile, SegmentHeader]:
    """The file of a segment and its checked header.

    Args:
        store_id: What the header must say; None for the first segment of a store.

    Raises:
        LogCorrupt: The header is damaged, contradicts the name, or belongs to another store.
        Vanished: There is no such file any more.
        UnsupportedFormat: A newer version wrote it.
        LogReadFailed: The system could not open or read it.
    """
    path = folder / str(name)
    with reading(path):
        try:
            file = OpenFile(fs.open_file(path, write=write, create=False), fs.close)
        except FileNotFoundError as error:
            raise Vanished(path) from error
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
    check_version(header, path)
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
def half_made(
    fs: FileSystem, folder: Path, *, prefix: str = HALF_MADE
) -> Iterator[tuple[int, Path]]:
    """A new file in `tmp/` for the length of a block; removed if it was not renamed by the end.

    Args:
        prefix: `HALF_MADE` under the lock of the log, `HALF_COMPACTED` under that of compaction.
    """
    tmp = folder / TMP_NAME
    fs.make_folders(tmp)
    path = tmp / f"{prefix}{secrets.token_hex(8)}"
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
        "before; "
        + ("ask for the right to write it" if denied else "look at the disk, then append again"),
        reason=LogReason.ACCESS_DENIED if denied else LogReason.WRITE_FAILED,
        path=path,
        offset=offset,
    )
