"""Writing a memory file: whole under its name, or not at all."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self, TypeAlias, cast

from fmemory._file_lines import is_gzip, not_text, path_of
from fmemory.errors import MemoryFileError, Reason

__all__ = ["PARTIAL_SUFFIX", "FileWriter", "Target", "TextWriter"]

PARTIAL_SUFFIX = ".partial"


class TextWriter(Protocol):
    """A stream that takes text, such as a file opened for writing, or `sys.stdout`."""

    def write(self, text: str, /) -> object: ...


Target: TypeAlias = "str | os.PathLike[str] | TextWriter"


class FileWriter:
    """A place to write lines to: complete when the block ends, as before if it raises.

    A path is written beside itself as `<name>.partial`, synced and renamed; a symbolic link stays
    and the file behind it is replaced. A stream cannot be undone: what was written before a failure
    stays in it.

    Args:
        target: A path (gzip if it ends in `.gz`), or a text stream.
        what: What errors call it.

    Raises:
        ContractError: Neither a path nor a text stream.
        MemoryFileError: It cannot be written. The file that was there before is as it was.
    """

    def __init__(self, target: Target, *, what: str = "memory file") -> None:
        self._what = what
        self._path = path_of(target, "target")
        self._stream = target
        self._file: BinaryIO | None = None
        self._zipped: gzip.GzipFile | None = None
        self._place: Path | None = None
        self._identity: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._begin(self._path)
            except OSError as error:
                self._discard()
                raise self._unwritable(error) from error
        return self

    def write(self, line: bytes) -> None:
        """Add a line of UTF-8, with its `\\n`.

        Raises:
            MemoryFileError: It cannot be written.
        """
        try:
            if self._zipped is not None:
                self._zipped.write(line)
            elif self._file is not None:
                self._file.write(line)
            else:
                cast("TextWriter", self._stream).write(line.decode())
        except TypeError as error:  # a stream of bytes that does not say so
            raise not_text(f"a stream that refuses str ({error})", "target") from error
        except (OSError, ValueError) as error:  # a closed stream gives ValueError
            raise self._unwritable(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._path is None:
            return
        if error is not None:
            self._discard()
            return
        try:
            self._finish()
        except OSError as failure:
            self._discard()
            raise self._unwritable(failure) from failure
        except BaseException:
            self._discard()
            raise

    def _begin(self, path: Path) -> None:
        place = _behind_links(path)
        if place.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        if place.exists() and not place.is_file():
            # Replacing it would take the pipe or device away; a stream is written as it is.
            raise FileExistsError(f"{path} is neither a file nor new; pass an open stream instead")
        partial = _partial_of(place)
        partial.unlink(missing_ok=True)  # left behind by a crash
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._place, self._identity = place, _identity_of(os.fstat(descriptor))
        if is_gzip(path):
            # No name and no time inside: the same records give the same bytes.
            self._zipped = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0)

    def _finish(self) -> None:
        assert self._file is not None, "a path is open once the block was entered"
        assert self._place is not None, "as above"
        if self._zipped is not None:
            self._zipped.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        partial = _partial_of(self._place)
        if not self._owns(partial):
            raise FileExistsError(f"{partial} was taken over by another dump")
        partial.replace(self._place)

    def _discard(self) -> None:
        """Removes the partial file. The failure that led here is what the caller gets to see."""
        if self._file is not None:
            # Closing writes what is buffered; on a full disk it fails once more, but does close.
            with contextlib.suppress(OSError):
                self._file.close()
        if self._place is not None and self._owns(_partial_of(self._place)):
            _partial_of(self._place).unlink(missing_ok=True)

    def _owns(self, partial: Path) -> bool:
        try:
            return _identity_of(partial.stat()) == self._identity
        except OSError:
            return False

    def _unwritable(self, error: Exception) -> MemoryFileError:
        kept = (
            "what was written to the stream stays in it"
            if self._path is None
            else "what was there before is as it was"
        )
        return MemoryFileError(
            f"cannot be written: {error}; {kept}",
            reason=Reason.FILE_UNWRITABLE,
            path=None if self._path is None else str(self._path),
            what=self._what,
        )


def _behind_links(path: Path) -> Path:
    """The file a path leads to, whether or not it exists.

    Raises:
        OSError: The links lead in a circle.
    """
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return place


def _partial_of(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL_SUFFIX)


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
