"""What the parts of an open JSON Lines log share: its files, an index of its events, its state.

The index holds envelopes, places of lines, timestamps and chain values, never notes, vectors or
data. It only grows, and `head_seq` moves after everything that belongs to an event is in place, so
readers take no lock.
"""

from __future__ import annotations

import copy
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal, TypeAlias

from fmemory.journal import Durability
from fmemory.journals._jsonl.file_bytes import FileBytes, count_of
from fmemory.journals._jsonl.scan import Found, Stop
from fmemory.journals._jsonl.store import events_name
from fmemory_segments import Envelope, FileSystem, LogReason, RecoveryReport, Stream, StreamIndex
from fmemory_segments._catalog import reading
from fmemory_segments._files import OpenFile
from fmemory_segments._stream_index import RevisionGap
from fmemory_segments._tip import Tip, TipFile
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import (
    ForkedStore,
    LogClosed,
    LogCorrupt,
    LogError,
    LogNotFound,
    LogPoisoned,
    ReadOnlyLog,
    UnknownEvent,
)
from fmemory_segments.event import ZERO_CHAIN

FILES_OPEN_MAX: Final = 64

State: TypeAlias = Literal["ok", "full", "poisoned", "forked", "closed"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a log was opened.

    Attributes:
        file_bytes_max: A batch that would make the last file larger begins a new one.
    """

    read_only: bool
    durability: Durability
    interval_s: float
    lock_timeout_s: float
    file_bytes_max: int
    clock: Callable[[], int]


@dataclass(slots=True, eq=False)
class EventsFile:
    """A file of events as this handle knows it.

    Attributes:
        path: Where it lies.
        first_seq: Seq of its first event.
        prev_chain: Chain value before that.
        file: Open for reading, and for writing if it is the last and the log is; None while closed.
        identity: Device and inode, to notice that the path names another file.
        end: Offset behind its last whole batch.
        lacks_newline: `end` counts a newline that is not there yet.
    """

    path: Path
    first_seq: int
    prev_chain: bytes
    file: OpenFile | None
    identity: tuple[int, int]
    end: int
    lacks_newline: bool = False


@dataclass(slots=True)
class Entry:
    """An event in the index."""

    file: EventsFile
    found: Found


class Core:
    """The state of one open log."""

    def __init__(self, fs: FileSystem, path: Path, options: Options) -> None:
        self.fs = fs
        self.path = path
        self.options = options
        self.store_id = b""
        self.files: tuple[EventsFile, ...] = ()
        self.entries: list[Entry] = []
        self.by_stream: dict[Stream, list[int]] = {}
        self.streams = StreamIndex()
        self.head_seq = 0
        # Short, and calls nobody: held while the index and the end of the files change.
        self.tail_lock = threading.Lock()
        self.tip: TipFile | None = None
        self.recoveries: list[RecoveryReport] = []
        self.notices: list[str] = []
        self.state: State = "ok"
        self.poison: LogPoisoned | None = None
        self.durable_seq: Callable[[], int] = lambda: 0
        self._opened: deque[EventsFile] = deque()
        self._next_path: tuple[int, Path] | None = None

    @property
    def active(self) -> EventsFile:
        """The last file."""
        return self.files[-1]

    @property
    def chain(self) -> bytes:
        """Chain value of the newest event."""
        return self.entries[-1].found.chain if self.entries else ZERO_CHAIN

    @property
    def time_ns(self) -> int:
        """Time of the newest event."""
        return self.entries[-1].found.envelope.recorded_at_ns if self.entries else 0

    def apply(self, file: EventsFile, found: Found) -> None:
        """Take the next event into the index. Under the tail lock.

        Raises:
            RevisionGap: Its revision does not follow; nothing changed.
        """
        envelope = found.envelope
        self.streams.apply_envelope(envelope)
        self.entries.append(Entry(file, found))
        self.by_stream.setdefault(envelope.stream, []).append(envelope.seq)
        self.head_seq = envelope.seq

    @contextmanager
    def applying(self) -> Iterator[None]:
        """A block that takes events into the index, and the end of their file behind them.

        If it is interrupted half-way the two may not agree, and a later append would give seqs
        twice: so the handle is poisoned.
        """
        try:
            yield
        except (RevisionGap, LogError):
            raise
        except BaseException as error:
            self.poisoned("index", error, LogReason.INTERRUPTED)
            raise

    def replace(self, events: EventsFile, new: EventsFile, entries: list[Entry]) -> None:
        """Go on with a file in place of another that holds the same events. Under the tail lock.

        Whoever reads from the old one has its entry and its file in hand, and ends with them.
        """
        at = self._number_of(events.first_seq)
        self.entries[events.first_seq - 1 : events.first_seq - 1 + len(entries)] = entries
        self.files = (*self.files[:at], new, *self.files[at + 1 :])
        with suppress(ValueError):
            self._opened.remove(events)
        self.limit_files(new)

    def file_at(self, first_seq: int) -> EventsFile:
        """The file that begins with this event."""
        return self.files[self._number_of(first_seq)]

    def last_seq_of(self, events: EventsFile) -> int:
        """Seq of the last event of a file, one before its first if it has none."""
        at = self._number_of(events.first_seq) + 1
        return self.files[at].first_seq - 1 if at < len(self.files) else self.head_seq

    def entries_in(self, events: EventsFile) -> list[Entry]:
        """The events of a file, in order."""
        return self.entries[events.first_seq - 1 : self.last_seq_of(events)]

    def time_before(self, seq: int) -> int:
        """Time of the event before this one."""
        return self.envelope(seq - 1).recorded_at_ns if seq > 1 else 0

    def chain_before(self, seq: int) -> bytes:
        """Chain value before this event."""
        return self.entries[seq - 2].found.chain if seq > 1 else ZERO_CHAIN

    def _number_of(self, first_seq: int) -> int:
        return bisect_left(self.files, first_seq, key=attrgetter("first_seq"))

    def entry(self, seq: int) -> Entry:
        """An event of the index.

        Raises:
            UnknownEvent: There is no such event.
        """
        if not 1 <= seq <= self.head_seq:
            raise self.unknown(seq)
        return self.entries[seq - 1]

    def unknown(self, seq: int) -> UnknownEvent:
        """The error for a seq that names no event."""
        return UnknownEvent(
            f"event: expected a seq from 1 to {self.head_seq}, got {seq} ({self.path})",
            reason=LogReason.UNKNOWN_EVENT,
            path=self.path,
            first_seq=seq,
            last_seq=seq,
        )

    def seqs(self, after: int, upto: int, stream: Stream | None) -> list[int] | range:
        """Seqs of the events `after < seq <= upto`, of one stream or of all, in order."""
        after, upto = max(after, 0), min(upto, self.head_seq)
        if stream is None:
            return range(after + 1, upto + 1)
        with self.tail_lock:
            seqs = self.by_stream.get(stream, [])
            return seqs[bisect_right(seqs, after) : bisect_left(seqs, upto + 1)]

    def entries_of(self, after: int, upto: int, stream: Stream | None) -> Iterator[Found]:
        """What the index holds of these events."""
        entries = self.entries
        for seq in self.seqs(after, upto, stream):
            yield entries[seq - 1].found

    def envelope(self, seq: int) -> Envelope:
        """The envelope of an event that is there."""
        return self.entries[seq - 1].found.envelope

    def file_of(self, events: EventsFile) -> OpenFile:
        """A file, opened again if it was closed; to be held while it is used.

        Raises:
            LogReadFailed: The system could not open it.
        """
        file = events.file
        if file is None:
            self.check()
            with reading(events.path):
                fd = self.fs.open_file(events.path, write=False, create=False)
            file = events.file = OpenFile(fd, self.fs.close)
            self.limit_files(events)
        return file

    def limit_files(self, opened: EventsFile) -> None:
        """Note that a file was opened, and close the one opened first if there are too many."""
        self._opened.append(opened)
        for _ in range(len(self._opened) - FILES_OPEN_MAX):
            oldest = self._opened.popleft()
            if oldest is not opened and oldest is not self.active:
                oldest.file = None
            else:
                self._opened.append(oldest)

    def read(self, events: EventsFile, offset: int, size: int) -> bytes:
        """Bytes of a file, fewer only where it ends.

        Raises:
            LogReadFailed: The system could not read.
        """
        file = self.file_of(events)
        with reading(events.path):
            return read_exactly(self.fs.pread, file.fd, size, offset)

    def read_tip(self) -> Tip:
        """What the witness says; nothing where it is not there."""
        return self.tip.read() if self.tip is not None else Tip()

    def release(self) -> None:
        """Let go of the files: each closes when nobody reads from it any more."""
        for one in self.files:
            one.file = None
        self._opened.clear()

    def check(self) -> None:
        """Raise if the handle must not be used any more."""
        if self.state in ("ok", "full"):
            return
        if self.state == "forked":
            raise ForkedStore(
                f"handle: expected the process that opened it, got a fork of it ({self.path}); "
                "the parent's handle is untouched; open the store again in this process",
                reason=LogReason.FORKED,
                path=self.path,
            )
        if self.state == "closed":
            raise LogClosed(
                f"handle: expected an open store, got a closed one ({self.path}); open it again",
                reason=LogReason.CLOSED,
                path=self.path,
            )
        assert self.poison is not None
        raise copy.copy(self.poison)

    def check_writable(self) -> None:
        """Raise if nothing may be written with this handle."""
        self.check()
        if self.options.read_only:
            raise ReadOnlyLog(
                f"append: expected a store opened for writing, got read_only=True ({self.path}); "
                "nothing was written; open it without read_only",
                reason=LogReason.READ_ONLY,
                path=self.path,
            )

    def poisoned(self, what: str, cause: BaseException, reason: LogReason) -> LogPoisoned:
        """Make every later call fail, and return the error to raise now."""
        if self.poison is None:
            synced_seq = self.durable_seq()
            self.poison = LogPoisoned(
                f"{what}: expected it to succeed, got {cause} ({self.path}); events up to seq "
                f"{synced_seq} are on disk, what follows is in doubt; close this handle and open "
                "the store again",
                reason=reason,
                path=self.path,
                first_seq=synced_seq + 1,
                last_seq=self.head_seq,
            )
            self.state = "poisoned"
        return copy.copy(self.poison)

    def sync_failed(self, cause: OSError) -> LogPoisoned:
        """Record in the witness what a failed sync leaves in doubt, and poison the handle."""
        if self.tip is not None and not self.options.read_only:
            try:
                self.tip.suspect()
            except OSError as error:  # Also StoreBusy: a process was stopped while it held it.
                self.note(f"events.tip could not be told of a failed sync: {error}")
        return self.poisoned("fdatasync", cause, LogReason.SYNC_FAILED)

    def note(self, notice: str) -> None:
        """Have `health()` tell something, once."""
        if notice not in self.notices:
            self.notices.append(notice)

    def corrupt(self, events: EventsFile, stop: Stop) -> LogCorrupt:
        """The error for damage in a file, with the number of its line."""
        return self.damaged(events, stop.reason, stop.evidence, stop.offset, stop.seq)

    def damaged(
        self, events: EventsFile, reason: LogReason, evidence: str, offset: int, seq: int
    ) -> LogCorrupt:
        """The error for a line that is not as it was written."""
        line = 1 + count_of(FileBytes(partial(self.read, events), 0, offset), b"\n", offset)
        return LogCorrupt(
            f"{reason.value.replace('_', ' ')}: expected {evidence} ({events.path}, line {line}, "
            f"byte {offset}, seq {seq}); no file was changed; put the line back as it was, or "
            "restore the file; verify() lists all that is wrong",
            reason=reason,
            path=events.path,
            offset=offset,
            first_seq=seq,
        )

    def moved(self) -> LogNotFound | None:
        """The error of a store that was taken away from under this handle; None if it was not."""
        return None if self.tip is None else self.tip.moved()

    def went_back(self, evidence: str, path: Path) -> LogCorrupt:
        """The error for files that hold less, or something else, than this handle has read."""
        return LogCorrupt(
            f"history: expected {evidence} ({path}); an older copy or another branch was put in "
            "its place; nothing was written; close this handle and open the store again",
            reason=LogReason.HEAD_WENT_BACK,
            path=path,
            first_seq=self.head_seq,
        )

    def path_of(self, first_seq: int) -> Path:
        """Where the file that begins with this event lies."""
        known = self._next_path
        if known is not None and known[0] == first_seq:
            return known[1]
        path = self.path / events_name(first_seq)
        self._next_path = (first_seq, path)
        return path
