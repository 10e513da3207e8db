"""Exit codes, and how an error becomes one line and one of them."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

FINE = 0
FINDING = 1
USAGE = 2
CANNOT_OPEN = 3
INTERRUPTED = 130
BROKEN_PIPE = 141

_OF_WRITES = frozenset({errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT})
# PASSWORD stands for one in the forms that messages name.
_PASSWORD = re.compile(r"(://[^\s/:@]*):(?!PASSWORD@)[^\s@]+@")


class Failure(Exception):  # noqa: N818 - an outcome of a command, told in one line
    """What a command tells on its way out.

    Attributes:
        code: Exit code of the process.
        teller: The command, as the line begins.
    """

    def __init__(self, message: str, code: int = USAGE, *, teller: str = "fmemory") -> None:
        super().__init__(message)
        self.code = code
        self.teller = teller


@contextmanager
def reported() -> Iterator[None]:
    """Errors of the body end the command with one line on stderr and an exit code, no traceback.

    Only what a user can bring about is caught: our own mistakes still show their traceback.
    """
    try:
        yield
        sys.stdout.flush()
    except Failure as failure:
        tell(str(failure), failure.teller)
        raise typer.Exit(failure.code) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _silence_stdout()
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            _silence_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        tell(_sentence(error))
        raise typer.Exit(CANNOT_OPEN) from None
    except RuntimeError as error:
        if isinstance(error.__cause__, BrokenPipeError) and getattr(error, "path", "") is None:
            # A file that is written to stdout, as `dump` and `html -o -` do.
            _silence_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        code = _library_code(error)
        if code is None:
            raise
        tell(str(error))
        raise typer.Exit(code) from None


def tell(message: str, teller: str = "fmemory") -> None:
    """One line on stderr, whatever is in it: beside what a command prints, or instead of it."""
    # Errors do not quote passwords; what a driver says in its own words is made sure of here.
    message = _PASSWORD.sub(r"\1:***@", message)
    print(f"{teller}: {one_line(message)}", file=sys.stderr)  # noqa: T201 - the command's own voice


def one_line(text: str) -> str:
    """The text on one line, without characters that steer a terminal.

    >>> one_line("a\\n  b\\x1b[1mc")
    'a b␛[1mc'
    """
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """The text with control characters shown instead of obeyed; line ends and tabs stay.

    >>> printable("a\\x1bb\\u202e")
    'a␛b�'
    """
    return text if text.isprintable() else text.translate(_VISIBLE)


# What steers a terminal, or turns or hides the text around it, must not reach one raw: controls of
# C0 and C1, line separators, bidirectional controls, and signs of no width. The two joiners stay:
# words of some scripts, and emoji, are spelt with them.
STEERING = (
    *range(0x7F, 0xA0),
    *(0xAD, 0x061C, 0x200B, 0x200E, 0x200F),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *(0xFEFF, *range(0xFFF9, 0xFFFC)),
    *range(0xE0000, 0xE0080),
)
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    **dict.fromkeys(STEERING, "�"),
    ord("\r"): None,
    0x2028: " ",
    0x2029: " ",
}


def _library_code(error: RuntimeError) -> int | None:
    """The exit code of an error of the library; None if it is none.

    The library takes a while to import, so it is looked up rather than imported: an error of a
    library that was never imported cannot occur.
    """
    upper = sys.modules.get("fmemory.errors")
    if upper is not None and isinstance(error, upper.MemoryBackendError):
        stored = isinstance(error, upper.StorageError | upper.ClosedStore)
        stored = stored or isinstance(error.__cause__, OSError)
        missing = getattr(error, "what", None) == "store"
        return CANNOT_OPEN if stored or missing else USAGE
    lower = sys.modules.get("fmemory_segments.errors")
    if lower is not None and isinstance(error, lower.LogError):
        return CANNOT_OPEN
    return None


def _sentence(error: OSError) -> str:
    words = error.strerror or str(error)
    if error.filename is not None:
        return f"{error.filename}: {words}"
    # What the library writes has its own errors: a write without a name is of what was printed.
    return f"standard output: {words}" if error.errno in _OF_WRITES else words


def replace_closed_streams() -> None:
    """Give the process standard streams where it was started without some, as by `>&-`.

    Otherwise a file of the store would get the number of one, and what is printed would go there.
    A closed stdout is as a pipe that nobody reads; a closed stderr swallows what is told.
    """
    if sys.stdin is None:
        sys.stdin = open(_at(0, os.open(os.devnull, os.O_RDONLY)))  # noqa: SIM115 - a number
    if sys.stdout is None:
        source, target = os.pipe()
        os.close(source)
        sys.stdout = open(_at(1, target), "w")  # noqa: SIM115 - as above
    if sys.stderr is None:
        sys.stderr = open(_at(2, os.open(os.devnull, os.O_WRONLY)), "w")  # noqa: SIM115


def _at(number: int, descriptor: int) -> int:
    """The same open file under this number."""
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.set_inheritable(number, True)
    return number


def _silence_stdout() -> None:
    """Whoever read our output has gone: what is still buffered must not raise at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
