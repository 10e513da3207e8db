"""The folder of a JSON Lines store: which names mean what, what a folder must be, first files.

A file of events is made in `tmp/`, synced and given its final name, so under such a name a header
is whole or was damaged. Names that are not ours are reported and left alone.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from fmemory.journals._jsonl.lines import (
    ABOUT,
    FORMAT_NAME,
    FORMAT_VERSION,
    HeaderFields,
    encode_header,
    parse_header,
)
from fmemory.journals._jsonl.values import time_text
from fmemory_segments import FileSystem, LogReason
from fmemory_segments._catalog import (
    HALF_MADE_NAME,
    SEGMENT_NAME,
    half_made,
    reading,
    sync_folder,
    write_all,
)
from fmemory_segments._files import OpenFile
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import (
    LogCorrupt,
    LogNotFound,
    NetworkFileSystem,
    NotALog,
    UnsupportedFormat,
    UnsupportedPlatform,
)
from fmemory_segments.filesystem import FileKind, is_network

LOCK_NAME: Final = "events.lock"
TIP_NAME: Final = "events.tip"
COMPACT_NAME: Final = "events.compact"
TMP_NAME: Final = "tmp"
QUARANTINE_NAME: Final = "quarantine"
README_NAME: Final = "README.txt"
EVENTS_NAME: Final = re.compile(r"events-([0-9]{20})\.jsonl")
REWRITTEN_NAME: Final = re.compile(r"rewritten-[0-9a-f]{16}")
QUARANTINED_NAME: Final = re.compile(r"events-[0-9]{20}-[0-9]{12,}-[0-9a-f]{8}\.tail")
HEADER_BYTES_MAX: Final = 4096

_HARMLESS_NAMES: Final = frozenset({".DS_Store", ".git", ".gitignore", ".gitkeep", "lost+found"})
_OWN_NAMES: Final = frozenset(
    {LOCK_NAME, TIP_NAME, COMPACT_NAME, TMP_NAME, QUARANTINE_NAME, README_NAME}
)
_NOTES: Final = {
    ".gitignore": f"{LOCK_NAME}\n{TIP_NAME}\n{COMPACT_NAME}\n{TMP_NAME}/\n{QUARANTINE_NAME}/\n",
    # Checksums do not survive a conversion of line ends, nor a merge of two histories.
    ".gitattributes": "events-*.jsonl -text -merge\n",
}
_README: Final = """\
This folder is an fmemory store (format {name}, version {version}, store {store_id}).

events-*.jsonl hold its events: UTF-8, one JSON object a line, in the order of "seq". The number
in a file's name is its first seq; the first line of a file is its header. Read, grep, copy and
commit them as you like. Do not edit them: the last field of a line is a checksum of the line,
"chain" is a hash over all events so far, and a changed line is refused when the store is opened.

Open it with fmemory.FilesystemMemoryBackend(path). To check it: memory.verify().
{lock}, {tip} and {compact} belong to running processes and need no copy;
quarantine/ keeps what crashes cut short. docs/jsonl.md of fmemory describes every field.
"""


class Names(NamedTuple):
    """The names in a store's folder, by meaning.

    Attributes:
        events: First seqs of the files of events, in order.
        foreign: Not ours.
        is_marked: True if a lock or a witness is there: the folder was used as a store before.
    """

    events: list[int]
    foreign: list[str]
    is_marked: bool


def events_name(first_seq: int) -> str:
    """The name of the file whose first event is this one.

    >>> events_name(1)
    'events-00000000000000000001.jsonl'
    """
    return f"events-{first_seq:020}.jsonl"


def sort_names(names: Iterable[str]) -> Names:
    """What the names of a folder mean.

    >>> sort_names(["events.lock", "notes.txt", "events-00000000000000000001.jsonl"])
    Names(events=[1], foreign=['notes.txt'], is_marked=True)
    """
    events, foreign, is_marked = [], [], False
    for name in names:
        if found := EVENTS_NAME.fullmatch(name):
            events.append(int(found[1]))
        elif name not in _OWN_NAMES and name not in _NOTES and name not in _HARMLESS_NAMES:
            foreign.append(name)
        is_marked = is_marked or name in (LOCK_NAME, TIP_NAME)
    return Names(sorted(events), foreign, is_marked)


def list_folder(fs: FileSystem, folder: Path) -> Names:
    """The names in a folder by meaning; what is empty or a folder, whatever its name, is foreign.

    A file of events gets its name when its header is on disk, so an empty one was never ours.
    """
    with reading(folder):
        names = sort_names(fs.list_names(folder))
        files = [one for one in names.events if has_bytes(fs, folder / events_name(one))]
    strange = [events_name(one) for one in names.events if one not in files]
    return Names(files, names.foreign + strange, names.is_marked)


def has_bytes(fs: FileSystem, path: Path) -> bool:
    """Whether the path names a file that is not empty."""
    if fs.kind(path) is not FileKind.FILE:
        return False
    fd = fs.open_file(path, write=False, create=False)
    try:
        return fs.size(fd) > 0
    finally:
        fs.close(fd)


def check_place(
    fs: FileSystem, path: Path, *, create: bool, read_only: bool, allow_network: bool
) -> None:
    """Raise unless the path is, or may become, the folder of a store.

    Raises:
        UnsupportedPlatform, NetworkFileSystem: It must not be opened here. Nothing was created.
        NotALog: It is a file, or holds something else.
        LogNotFound: There is nothing, and nothing was to be created.
    """
    if lack := fs.check_platform():
        raise UnsupportedPlatform(
            f"platform: expected POSIX with {lack}, got a system without it; nothing was created; "
            "use a memory, SQLite or PostgreSQL store here",
            reason=LogReason.PLATFORM,
            path=path,
        )
    with reading(path):
        kind, mount_type = fs.kind(path), fs.mount_type(path)
        above = next((one for one in path.parents if fs.kind(one) is not None), path)
        kind_above = FileKind.FOLDER if kind is not None else fs.kind(above)
    for found, where in ((kind, path), (kind_above, above)):
        if found is not None and found is not FileKind.FOLDER:
            raise NotALog(
                f"path: expected a folder, got a {found} ({where}); nothing was changed; name the "
                "folder of the store, or another path",
                reason=LogReason.NOT_A_FOLDER,
                path=path,
            )
    if kind is None and not create:
        raise not_found(path, read_only=read_only)
    if is_network(mount_type) and not allow_network:
        raise NetworkFileSystem(
            f"mount: expected a local file system, got {mount_type} ({path}); nothing was created; "
            "its locks and syncs may lie: use a local folder, or pass allow_network=True",
            reason=LogReason.NETWORK_FILE_SYSTEM,
            path=path,
        )
    if kind is not None:
        _check_content(fs, path, create=create)


def not_found(path: Path, *, read_only: bool) -> LogNotFound:
    """The error for a place without a store."""
    hint = "read-only opening creates nothing" if read_only else "create=False"
    return LogNotFound(
        f"store: expected a folder with events-*.jsonl, got none ({path}); {hint}; name another "
        "folder, or create it",
        reason=LogReason.MISSING,
        path=path,
    )


def _check_content(fs: FileSystem, path: Path, *, create: bool) -> None:
    """Raise for a store of segments, and if one would be scattered among somebody else's files."""
    # One listing for all questions: another process may be making the store just now.
    with reading(path):
        listed = fs.list_names(path)
    names = sort_names(listed)
    if names.events or names.is_marked:
        return
    segments = [name for name in listed if SEGMENT_NAME.fullmatch(name) or name in ("LOCK", "TIP")]
    if segments:
        raise NotALog(
            f"folder: expected a JSON Lines store or an empty folder, got a store of binary "
            f"segments ({path} holds {segments[0]}); nothing was changed; open it by its plain "
            f"path, fmemory.open({str(path)!r}), or name another folder",
            reason=LogReason.NOT_EMPTY,
            path=path,
        )
    if create and (names.foreign or README_NAME in listed):
        found = names.foreign[0] if names.foreign else README_NAME
        raise NotALog(
            f"folder: expected a store or an empty folder, got one with {found!r} in it ({path}); "
            f"nothing was created; name a folder of its own, such as {path / 'memory'}",
            reason=LogReason.NOT_EMPTY,
            path=path,
        )


def create_events(
    fs: FileSystem, folder: Path, *, store_id: bytes, first_seq: int, chain: bytes, now_ns: int
) -> None:
    """A file of events with nothing but its header, under its final name, on disk. Under the lock.

    Raises:
        OSError: Nothing is lost; the next attempt begins anew.
    """
    header = HeaderFields(
        FORMAT_NAME,
        FORMAT_VERSION,
        store_id.hex(),
        first_seq,
        chain.hex(),
        time_text(now_ns),
        ABOUT,
    )
    write_file(fs, folder, events_name(first_seq), encode_header(header))


def write_file(fs: FileSystem, folder: Path, name: str, data: bytes) -> None:
    """A file with these bytes and this name, on disk whole or not there; an old one is replaced."""
    with half_made(fs, folder) as (fd, path):
        write_all(fs, fd, data, 0)
        fs.sync(fd)
        fs.rename(path, folder / name)
    sync_folder(fs, folder)


def write_notes(fs: FileSystem, folder: Path, store_id: bytes) -> None:
    """The files that tell a person and git what the folder is; those that are there are left."""
    readme = _README.format(
        name=FORMAT_NAME,
        version=FORMAT_VERSION,
        store_id=store_id.hex(),
        lock=LOCK_NAME,
        tip=TIP_NAME,
        compact=COMPACT_NAME,
    )
    for name, text in {README_NAME: readme, **_NOTES}.items():
        if fs.kind(folder / name) is not None:
            continue
        fd = fs.create_file(folder / name)
        try:
            write_all(fs, fd, text.encode(), 0)
        finally:
            fs.close(fd)


class OpenedEvents(NamedTuple):
    """A file of events that was opened, with what its header says."""

    file: OpenFile
    store_id: bytes
    prev_chain: bytes
    header_bytes: int


def check_version(header: HeaderFields, path: Path) -> None:
    """Refuse a file that a newer version wrote.

    Raises:
        UnsupportedFormat: It did.
    """
    if header.version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"format: expected version {FORMAT_VERSION}, got {header.version} ({path}); nothing "
            "was changed; use a newer version of fmemory",
            reason=LogReason.NEWER_FORMAT,
            path=path,
        )


def open_events(
    fs: FileSystem, folder: Path, first_seq: int, *, write: bool, store_id: bytes | None
) -> OpenedEvents:
    """A file of events and its checked header.

    Args:
        store_id: What the header must say; None for the first file of a store.

    Raises:
        LogCorrupt: The header is damaged, contradicts the name, or belongs to another store.
        UnsupportedFormat: A newer version wrote it.
        LogReadFailed: The system could not open or read it.
    """
    path = folder / events_name(first_seq)
    with reading(path):
        file = OpenFile(fs.open_file(path, write=write, create=False), fs.close)
        data = read_exactly(fs.pread, file.fd, HEADER_BYTES_MAX, 0)
    line, newline, _ = data.partition(b"\n")
    header = parse_header(line) if newline else None
    if header is None:
        raise _bad_header(path, _header_evidence(line), first_seq)
    check_version(header, path)
    found_id = bytes.fromhex(header.store_id)
    if store_id is not None and found_id != store_id:
        raise _bad_header(
            path,
            f"store {store_id.hex()}, got {header.store_id}: take the file out of the folder",
            first_seq,
            LogReason.FOREIGN_SEGMENT,
        )
    if header.first_seq != first_seq:
        raise _bad_header(
            path, f"first seq {first_seq} as in the name, got {header.first_seq}", first_seq
        )
    return OpenedEvents(file, found_id, bytes.fromhex(header.prev_chain), len(line) + 1)


def empty_tmp(fs: FileSystem, folder: Path) -> None:
    """Remove what was left half-made; files of other names are somebody else's. Under the lock."""
    tmp = folder / TMP_NAME
    if fs.kind(tmp) is not FileKind.FOLDER:
        return
    for name in fs.list_names(tmp):
        if HALF_MADE_NAME.fullmatch(name) and fs.kind(tmp / name) is FileKind.FILE:
            with suppress(OSError):  # It costs space and nothing else.
                fs.remove(tmp / name)


def quarantine(fs: FileSystem, folder: Path, name: str, offset: int, tail: Iterable[bytes]) -> str:
    """Keep bytes that are about to be cut off a file; the name of the copy, which is on disk."""
    target = folder / QUARANTINE_NAME
    fs.make_folders(target)
    kept = f"{Path(name).stem}-{offset:012}-{secrets.token_hex(4)}.tail"
    fd = fs.create_file(target / kept)
    try:
        at = 0
        for part in tail:
            write_all(fs, fd, part, at)
            at += len(part)
        fs.sync(fd)
    finally:
        fs.close(fd)
    sync_folder(fs, target)
    return kept


def _header_evidence(line: bytes) -> str:
    if line.startswith(b"\xef\xbb\xbf"):
        return "a header line, got a byte order mark before it: a tool has converted the file"
    if line.endswith(b"\r"):
        return "a header line that ends with LF, got CR LF: a tool has converted the file"
    return f"a header line with its checksum, got {line[:40]!r}"


def _bad_header(
    path: Path, evidence: str, first_seq: int, reason: LogReason = LogReason.SEGMENT_HEADER
) -> LogCorrupt:
    return LogCorrupt(
        f"header: expected {evidence} ({path}, line 1, byte 0, seq {first_seq}); no file was "
        "changed; put the file back as it was",
        reason=reason,
        path=path,
        offset=0,
        first_seq=first_seq,
    )
