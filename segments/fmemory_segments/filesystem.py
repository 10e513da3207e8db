"""The one file that talks to the operating system.

`FileSystem` is the small protocol that everything else is written against, so that tests can count,
record, refuse or fail any call; `PosixFileSystem` is the real one. It decides nothing: errors come
out as the `OSError` they are, and the callers give them a meaning.

Descriptors are above 2, so that a stray print cannot end up in a segment, and close on exec.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

try:
    import fcntl
except ImportError:  # Windows: `check_platform` refuses before anything of it is used.
    fcntl = None  # type: ignore[assignment]

if fcntl is not None:
    _flock = fcntl.flock
    _LOCK_SHARED = fcntl.LOCK_SH | fcntl.LOCK_NB
    _LOCK_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
    _UNLOCK = fcntl.LOCK_UN

FILE_MODE = 0o600
FOLDER_MODE = 0o700
FD_MIN = 3
IOVEC_COUNT_MAX = 512
WRITE_BYTES_MAX = 1 << 30
NETWORK_MOUNTS = frozenset(
    [
        "9p",
        "afs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "virtiofs",
    ]
)
MOUNTINFO = Path("/proc/self/mountinfo")


class FileKind(StrEnum):
    """What a path names."""

    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"


class FileSystem(Protocol):
    """What the log asks of the system. Every call may raise `OSError`."""

    def check_platform(self) -> str | None:
        """What the platform lacks, as words for a message; None if nothing."""
        ...

    def mount_type(self, path: Path) -> str:
        """The file system type that the path, or its nearest existing parent, is mounted on."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Room that this user may fill on the file system that holds an existing path."""
        ...

    def kind(self, path: Path) -> FileKind | None:
        """What the path names; None if nothing."""
        ...

    def identity(self, fd: int) -> tuple[int, int]:
        """Device and inode of an open file."""
        ...

    def is_at(self, identity: tuple[int, int], path: Path) -> bool:
        """Whether the path names the file of this identity."""
        ...

    def list_names(self, path: Path) -> list[str]:
        """Names in a folder, sorted."""
        ...

    def make_folders(self, path: Path) -> None:
        """The folder and its parents exist afterwards; a folder that was there is left alone."""
        ...

    def open_file(self, path: Path, *, write: bool, create: bool) -> int:
        """A descriptor of a file; `create` makes it, mode 0600, if it is not there."""
        ...

    def create_file(self, path: Path) -> int:
        """A descriptor of a file that was not there before."""
        ...

    def open_folder(self, path: Path) -> int:
        """A descriptor of a folder, to sync it."""
        ...

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        ...

    def size(self, fd: int) -> int:
        """Size of an open file in bytes."""
        ...

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        """At most `size` bytes at `offset`; fewer at the end of the file, or by chance."""
        ...

    def preadv(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int, /) -> int:
        """Fill the buffers from `offset`; the number of bytes that were read."""
        ...

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        """Write at `offset`; the number of bytes that were written."""
        ...

    def pwritev(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int, /) -> int:
        """Write the buffers one after the other at `offset`; the number of bytes written."""
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend with zeros."""
        ...

    def datasync(self, fd: int) -> None:
        """The bytes of a file, and its size, are on disk afterwards."""
        ...

    def sync(self, fd: int) -> None:
        """A file with all of its attributes, or the names of a folder, are on disk afterwards."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final, unused name."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file that nobody needs: a half-made one, or one that compaction replaced."""
        ...

    def try_lock(self, fd: int, *, shared: bool) -> bool:
        """Take an advisory lock if it is free; False if another open file has it."""
        ...

    def unlock(self, fd: int) -> None:
        """Release the lock."""
        ...


class PosixFileSystem:
    """The real file system, on POSIX."""

    # The calls of the hot path are the functions themselves: one Python frame less each.
    close = staticmethod(os.close)
    if sys.platform != "win32":
        pread = staticmethod(os.pread)
        preadv = staticmethod(os.preadv)
        pwrite = staticmethod(os.pwrite)
        pwritev = staticmethod(os.pwritev)
        datasync = staticmethod(getattr(os, "fdatasync", os.fsync))
        sync = staticmethod(os.fsync)

    def check_platform(self) -> str | None:
        if os.name != "posix" or fcntl is None:
            return "flock"
        return None if hasattr(os, "preadv") and hasattr(os, "pwritev") else "preadv"

    def mount_type(self, path: Path) -> str:
        """The type from mountinfo; "" where the system has no mountinfo."""
        try:
            table = MOUNTINFO.read_text(errors="surrogateescape")
        except OSError:
            return ""
        return parse_mount_type(table, _nearest_existing(path))

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def kind(self, path: Path) -> FileKind | None:
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISREG(mode):
            return FileKind.FILE
        return FileKind.FOLDER if stat.S_ISDIR(mode) else FileKind.OTHER

    def identity(self, fd: int) -> tuple[int, int]:
        found = os.fstat(fd)
        return found.st_dev, found.st_ino

    def is_at(self, identity: tuple[int, int], path: Path) -> bool:
        try:
            found = os.stat(path)  # noqa: PTH116 - half the time of Path.stat, at every append
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == identity

    def list_names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths, are wanted

    def make_folders(self, path: Path) -> None:
        missing = []
        for folder in (path, *path.parents):
            if self.kind(folder) is not None:
                break
            missing.append(folder)
        for folder in reversed(missing):
            with suppress(FileExistsError):  # Another process made it meanwhile.
                folder.mkdir(FOLDER_MODE)
            parent = self.open_folder(folder.parent)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)

    def open_file(self, path: Path, *, write: bool, create: bool) -> int:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return _open_above(path, flags)

    def create_file(self, path: Path) -> int:
        return _open_above(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open_folder(self, path: Path) -> int:
        return _open_above(path, os.O_RDONLY | os.O_DIRECTORY)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def try_lock(self, fd: int, *, shared: bool) -> bool:
        try:
            _flock(fd, _LOCK_SHARED if shared else _LOCK_EXCLUSIVE)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        _flock(fd, _UNLOCK)

    if sys.platform == "darwin":

        def datasync(self, fd: int) -> None:  # type: ignore[no-redef]
            """F_FULLFSYNC: plain fsync leaves bytes in the cache of the drive on macOS."""
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            except OSError as error:
                if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                    raise
                os.fsync(fd)


def after_fork_in_child(callback: Callable[[], None]) -> None:
    """Have a function called in every child made by `os.fork`, before anything else runs there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def is_full(error: OSError) -> bool:
    """True if the error says that there is no room: space, quota or the file size limit."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_network(mount_type: str) -> bool:
    """True if locks and syncs of this kind of mount cannot be relied on.

    >>> is_network("nfs4"), is_network("fuse.sshfs"), is_network("ext4")
    (True, True, False)
    """
    return mount_type in NETWORK_MOUNTS or mount_type.partition(".")[0] == "fuse"


def parse_mount_type(table: str, path: Path) -> str:
    """The type of the mount that holds an absolute path, from the text of mountinfo.

    The last line with the longest mount point wins: later mounts hide earlier ones.

    >>> parse_mount_type("27 1 254:0 / / rw - ext4 /dev/vda rw", Path("/srv/notes"))
    'ext4'
    """
    best, found = 0, ""
    place = f"{path}/"
    for line in table.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        # Of points that hold one path, the longer text is the deeper folder.
        point = _unescape(fields[4]).rstrip("/") + "/"
        if place.startswith(point) and len(point) >= best:
            best, found = len(point), right.split(" ")[0]
    return found


def _unescape(text: str) -> str:
    """Mount points have spaces, tabs, newlines and backslashes as octal numbers."""
    if "\\" in text:
        for escaped, plain in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
            text = text.replace(escaped, plain)
    return text


def _nearest_existing(path: Path) -> Path:
    for folder in (path, *path.parents):
        if folder.exists():
            return folder.resolve()
    return path


def _open_above(path: Path, flags: int) -> int:
    """Open, and move the descriptor above the standard streams where those were closed."""
    fd = os.open(path, flags | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0), FILE_MODE)
    if fd >= FD_MIN:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FD_MIN)
    finally:
        os.close(fd)
