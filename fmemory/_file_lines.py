"""Lines of a memory file to be read twice: of a path, gzip or not, or of a text stream."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self, TypeAlias, cast

from fmemory._json_values import type_name
from fmemory.errors import ContractError, MemoryFileError, Reason, brief

__all__ = [
    "LINE_BYTES_MAX",
    "LineSource",
    "Source",
    "TextReader",
    "is_gzip",
    "not_text",
    "path_of",
]

LINE_BYTES_MAX = 128 * 1024 * 1024
"""Longest line; the longest record that a store takes has less than half of it."""
_SPOOL_BYTES_MAX = 16 * 1024 * 1024
_CHUNK_CHARACTERS = 1024 * 1024


class TextReader(Protocol):
    """A stream of text, such as a file opened for reading, `io.StringIO` or `sys.stdin`."""

    def read(self, size: int = ..., /) -> str: ...


Source: TypeAlias = "str | os.PathLike[str] | TextReader"


def path_of(place: object, what: str) -> Path | None:
    """The path, or None for something that is to be used as a text stream.

    Raises:
        ContractError: Neither a path nor a text stream, or a path that no file can have.
    """
    if isinstance(place, (str, os.PathLike)):
        path = os.fspath(place)
        if isinstance(path, str):
            return _checked_path(path, what)
    elif not isinstance(place, (io.RawIOBase, io.BufferedIOBase)) and hasattr(
        place, "read" if what == "source" else "write"
    ):
        return None
    raise not_text(type_name(place), what)


def not_text(got: str, what: str) -> ContractError:
    """The error for what is neither a path nor carries text."""
    return ContractError(
        f"expected a path or a text stream, got {got}; wrap bytes in"
        " io.TextIOWrapper(stream, encoding='utf-8', newline='')",
        where=what,
        reason=Reason.WRONG_TYPE,
    )


def is_gzip(path: str | Path) -> bool:
    """Whether a path's name says that the file is compressed."""
    return str(path).endswith(".gz")


def _checked_path(path: str, what: str) -> Path:
    """The path of a text that can be one; `open` refuses others with a bare ValueError."""
    problem, reason = "", Reason.BAD_VALUE
    if not path:
        problem, reason = "expected the path of a file, got an empty one", Reason.EMPTY
    elif "\0" in path:
        problem = f"expected a path without the character \\0, got {brief(path)}"
    else:
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            problem = f"expected a path that this system can encode, got {brief(path)}"
            reason = Reason.LONE_SURROGATE
    if problem:
        raise ContractError(f"{problem}; name another file", where=what, reason=reason)
    return Path(path)


class LineSource:
    """Reads the lines of a source, any number of times; a context manager.

    A stream is read once and kept, in memory up to 16 MiB and in a temporary file beyond. Lines are
    read one at a time, so memory stays small whatever the file's size, also for gzip.

    Attributes:
        path: The file; None for a stream.
        line: Number of the line read last, from 1.
    """

    def __init__(self, source: Source) -> None:
        path = path_of(source, "source")
        self.path = None if path is None else str(path)
        self.line = 0
        self._source = source
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Self:
        try:
            if self.path is None:
                self._files.append(self._spooled(cast("TextReader", self._source)))
            else:
                self._open(self.path)
        except ContractError:
            self._close()
            raise
        except (OSError, ValueError) as error:  # a closed stream gives ValueError
            self._close()
            raise self.error(f"cannot be read: {error}", Reason.FILE_UNREADABLE) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def lines(self) -> Iterator[bytes]:
        """The lines without their `\\n`, from the first.

        Raises:
            MemoryFileError: The file cannot be read, its gzip data is damaged, or a line is longer
                than `LINE_BYTES_MAX`.
        """
        file = self._files[-1]
        self.line = 0
        try:
            file.seek(0)
            while line := file.readline(LINE_BYTES_MAX + 1):
                self.line += 1
                if len(line) > LINE_BYTES_MAX:
                    raise self.error(
                        f"expected lines of at most {LINE_BYTES_MAX} bytes, got a longer one",
                        Reason.FILE_RECORD,
                    )
                yield line.removesuffix(b"\n")
        except (OSError, EOFError, zlib.error) as error:
            self.line += 1
            raise self.error(f"cannot be read: {error}", Reason.FILE_UNREADABLE) from error

    def error(self, problem: str, reason: Reason, line: int | None = None) -> MemoryFileError:
        """An error at a line; by default at the one read last."""
        place = self.line if line is None else line
        return MemoryFileError(
            f"{problem}; nothing was stored", reason=reason, path=self.path, line=place or None
        )

    def _open(self, path: str) -> None:
        file = Path(path).open("rb")  # noqa: SIM115 - closed by _close
        self._files.append(file)
        if is_gzip(path):
            self._files.append(cast("BinaryIO", gzip.GzipFile(fileobj=file, mode="rb")))

    def _spooled(self, stream: TextReader) -> BinaryIO:
        # newline handling is the stream's own; "surrogatepass" leaves the refusal to the parser,
        # which knows the line.
        spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES_MAX)  # noqa: SIM115
        self._files.append(cast("BinaryIO", spool))
        while chunk := stream.read(_CHUNK_CHARACTERS):
            if not isinstance(chunk, str):
                raise not_text(f"a stream of {type_name(chunk)}", "source")
            spool.write(chunk.encode("utf-8", "surrogatepass"))
        return cast("BinaryIO", spool)

    def _close(self) -> None:
        while self._files:
            self._files.pop().close()
