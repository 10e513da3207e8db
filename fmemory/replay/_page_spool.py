"""Events of a page as the text that is put into it, in a temporary file until their turn comes.

Before the first of them the page says which words they use, so all are made before any is written.
A log may hold more than memory: what is kept here is where each stands.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self, cast

import msgspec

from fmemory._json_values import JsonObject, JsonValue
from fmemory.errors import MemoryFileError, Reason

__all__ = ["Spool", "Told", "json_text"]

_MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
_encode = msgspec.json.Encoder().encode


def json_text(value: JsonValue) -> bytes:
    """A value as JSON in which nothing can end a script element or open a comment.

    >>> json_text("</script>")
    b'"\\\\u003c/script>"'
    """
    return _encode(value).replace(b"<", b"\\u003c")


@dataclass(slots=True)
class Told:
    """An event that was put away.

    Attributes:
        seq: Of the event.
        is_copied: A fork copied it; to be said in the page.
    """

    seq: int
    offset: int
    size: int
    is_copied: bool = False


class Spool:
    """Where events are put away; a context manager.

    Attributes:
        problems: Of damaged events by seq: the number of the word for the type, and what is wrong.
    """

    def __init__(self) -> None:
        # Only its owner can read it, and it has no name.
        self._file = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES_MAX)  # noqa: SIM115
        self._end = 0
        self.problems: dict[int, tuple[int, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, event: JsonObject) -> Told:
        """Put an event away.

        Raises:
            MemoryFileError: The system cannot keep it.
        """
        seq = cast("int", event["seq"])
        if "problem" in event:
            self.problems[seq] = (cast("int", event["type"]), str(event["problem"]))
        text = json_text(event)
        told = Told(seq, self._end, len(text))
        with _spooling("nothing was written; make room, or name another folder by TMPDIR"):
            self._file.seek(self._end)
            self._file.write(text)
        self._end += len(text)
        return told

    def text(self, told: Told) -> bytes:
        """The event again, as JSON.

        Raises:
            MemoryFileError: The system cannot give it back.
        """
        with _spooling("the page is not whole; write it again"):
            self._file.seek(told.offset)
            text = self._file.read(told.size)
        return text[:-1] + b',"copied":true}' if told.is_copied else text


@contextmanager
def _spooling(state: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MemoryFileError(
            f"expected room for its events in a temporary file, got {error}; {state}",
            reason=Reason.FILE_UNWRITABLE,
            what="page",
        ) from error
