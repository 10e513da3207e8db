"""What an import is going to write, decided before a store is touched.

A plan holds whole models in the order in which they are to be written. Every step carries a key,
made from what the file says at that place: it becomes the event's idempotency key, so the same file
twice adds nothing, and a file that has grown adds what is new. A step that an earlier version of
the file told only the beginning of goes on as a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from fmemory import MemoryRecord, Message, NewEvent, ProgressEntry, RunCheckpoint, SessionManifest

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject

BAD_LINES_MAX = 20

What: TypeAlias = Message | ProgressEntry | RunCheckpoint | NewEvent
Advance: TypeAlias = Callable[[int], None]
StepsGiven: TypeAlias = Callable[[Sequence[str]], "tuple[Step, ...]"]


def counted(count: int, noun: str) -> str:
    """A number and a noun in the right form.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A place of the file that cannot be read: its number and what is wrong with it.

    Attributes:
        number: From 1; 0 where the unit alone names the place.
    """

    number: int
    problem: str
    unit: str = "line"

    def __str__(self) -> str:
        place = f"{self.unit} {self.number}" if self.number else self.unit
        return f"{place}: {self.problem}"


class BadSource(Exception):  # noqa: N818 - a finding about a file, not a fault of the program
    """The file cannot be imported as it is; nothing was written.

    Attributes:
        name: The file's name.
        lines: What is wrong, in file order; empty if the trouble is not in one line.
        skippable: The rest can be imported without these lines.
    """

    def __init__(
        self,
        name: str,
        problem: str,
        *,
        lines: Sequence[BadLine] = (),
        skippable: bool = False,
    ) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.lines = tuple(lines)
        self.skippable = skippable

    def report(self) -> Iterator[str]:
        """One line for each bad place, the first `BAD_LINES_MAX` of them."""
        for line in self.lines[:BAD_LINES_MAX]:
            yield f"{self.name}: {line}"
        if len(self.lines) > BAD_LINES_MAX:
            yield f"{self.name}: and {len(self.lines) - BAD_LINES_MAX} more"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a plan comes from.

    Attributes:
        name: The file's name without its folder: a store moves, paths do not move with it.
        format: `claude-code`, `swe-agent` or `notes`.
        version: The version that the file states of the program that wrote it, if it does.
        sha256: Digest of the file's bytes, hexadecimal.
        size: The file's size in bytes.
        skipped: Bad lines that were left out on request.
        unfinished: Number of the last line if it is still being written; the next import takes it.
    """

    name: str
    format: str
    version: str | None
    sha256: str
    size: int
    skipped: tuple[BadLine, ...] = ()
    unfinished: int | None = None

    def to_metadata(self) -> JsonObject:
        """The JSON object kept in the metadata of what was imported."""
        return {
            "name": self.name,
            "format": self.format,
            "version": self.version,
            "sha256": self.sha256,
            "bytes": self.size,
            "skipped": [str(line) for line in self.skipped],
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One event to be written to a session.

    Attributes:
        key: Idempotency key, unique in the session.
        what: Message, progress entry, checkpoint or an event of a type of its own.
        occurred_at: When it happened, where the file says so.
    """

    key: str
    what: What
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One session to be written.

    Attributes:
        manifest: Its manifest, with the source in its metadata.
        steps: What happened, in the order of the file, for a store that has none of it.
        summary: What is said about the whole file: written last, again for each version of it.
        run_id: The run that all its events belong to.
        began_at: When it began, where the file says so.
        steps_given: The steps for a store whose session has these keys: the same, but where an
            earlier version of the file ended within one, that one is parted there. None if every
            version of the file that begins in the same way has the same steps.
    """

    manifest: SessionManifest
    steps: tuple[Step, ...]
    summary: tuple[Step, ...]
    run_id: str
    began_at: datetime | None = None
    steps_given: StepsGiven | None = field(default=None, compare=False, repr=False)

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.manifest.session_id


@dataclass(frozen=True, slots=True)
class SessionsPlan:
    """The sessions of one file: the main one first, sub-agents after it."""

    source: Source
    sessions: tuple[SessionPlan, ...]


@dataclass(frozen=True, slots=True)
class NotesPlan:
    """The records of one file, for one namespace."""

    source: Source
    namespace: tuple[str, ...]
    records: tuple[MemoryRecord, ...]
    embedding_id: str | None = None
