"""What the parts of an open log share: its segments, its newest event, and its state.

Readers take no lock: the tuple of segments is replaced, never changed, the columns of a segment
only grow, and `head_seq` moves after everything that belongs to an event is in place.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from fmemory_segments._catalog import QUARANTINE_NAME, TMP_NAME, Vanished, missing_file
from fmemory_segments._columns import SegmentIndex
from fmemory_segments._files import OpenFile
from fmemory_segments._header import SEGMENT_HEADER_BYTES, SegmentHeader
from fmemory_segments._lock import FileLock
from fmemory_segments._manifest import Manifest
from fmemory_segments._nonces import RandomBytes
from fmemory_segments._recent import Recent
from fmemory_segments._stream_index import StreamIndex
from fmemory_segments._tip import Tip, TipFile
from fmemory_segments.errors import (
    ForkedStore,
    LogClosed,
    LogCorrupt,
    LogNotFound,
    LogPoisoned,
    LogReason,
    ReadOnlyLog,
)
from fmemory_segments.event import UInt64Array
from fmemory_segments.filesystem import FileSystem
from fmemory_segments.recovery import Judgement, RecoveryReport

Durability: TypeAlias = Literal["fsync", "interval", "os"]
FILES_OPEN_MAX: Final = 128

State: TypeAlias = Literal["ok", "full", "poisoned", "forked", "closed"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a log was opened.

    Attributes:
        segment_bytes_max: A batch that would make the active segment larger goes to a new one.
        segment_frames_max: Frames of a segment.
    """

    read_only: bool
    durability: Durability
    interval_s: float
    lock_timeout_s: float
    segment_bytes_max: int
    segment_frames_max: int
    clock: Callable[[], int]


@dataclass(slots=True)
class Segment:
    """A segment file as this handle knows it.

    Attributes:
        path: Its file.
        header: Its first 128 bytes.
        file: Open for reading, and for writing if the log is; None while a sealed one is closed.
        index: Places of all of its events, or of those applied so far.
        end: Where the next bytes would appear: end of the last batch, or of a sealed file.
        frames_end: End of the last batch.
        prev_frame_bytes: Size of the last frame; 0 = none yet.
        time_ns: Time of the last event; the segments before count.
        zero_end: Up to here the file is known to hold zeros from `end` on.
        is_sealed: Nothing will be appended any more.
        chain: Chain value after its last event, once it is sealed.
    """

    path: Path
    header: SegmentHeader
    file: OpenFile | None
    index: SegmentIndex
    end: int
    frames_end: int
    prev_frame_bytes: int
    time_ns: int
    zero_end: int = 0
    is_sealed: bool = False
    chain: bytes = b""

    @classmethod
    def begin(cls, path: Path, header: SegmentHeader, file: OpenFile, time_ns: int) -> Segment:
        """A segment of which nothing but the header was read yet."""
        start = SEGMENT_HEADER_BYTES
        index = SegmentIndex(header.base_seq)
        return cls(path, header, file, index, start, start, 0, time_ns)

    @property
    def fd(self) -> int:
        """Descriptor of a segment that is not sealed: those stay open."""
        assert self.file is not None, "a sealed segment may be closed: use Core.file_of"
        return self.file.fd

    @property
    def base_seq(self) -> int:
        """Seq of its first event."""
        return self.header.base_seq

    @property
    def next_seq(self) -> int:
        """Seq that its next event, or its successor's first, has."""
        return self.header.base_seq + self.index.event_count


class LastCompaction(NamedTuple):
    """How the last compaction of this handle ended.

    Attributes:
        time_ns: When.
        failure: What it was stopped by; "" = it took effect, or found nothing to do.
    """

    time_ns: int
    failure: str


class SegmentsByBase(NamedTuple):
    """Segments with their base seqs, to look one up by seq.

    Attributes:
        segments: All of them, in order.
        bases: Base seq of each.
        base_array: The same as uint64.
    """

    segments: tuple[Segment, ...]
    bases: list[int]
    base_array: UInt64Array


class Core:
    """The state of one open log."""

    def __init__(self, fs: FileSystem, path: Path, options: Options) -> None:
        self.fs = fs
        self.path = path
        self.options = options
        self.store_id = b""
        self.segments: tuple[Segment, ...] = ()
        self.by_base = SegmentsByBase((), [], np.zeros(0, np.uint64))
        self.head_seq = 0
        self.time_ns = 0
        self.tail_lock = threading.Lock()
        self.tip: TipFile | None = None
        self.streams = StreamIndex()
        self.recent = Recent()
        self.random = RandomBytes()
        self.recoveries: list[RecoveryReport] = []
        self.notices: list[str] = []
        self.state: State = "ok"
        self.poison: LogPoisoned | None = None
        self.manifest: Manifest | None = None
        self.last_compaction: LastCompaction | None = None
        self.compact_lock: FileLock | None = None
        self.find_again: Callable[[Path], None] = _never_vanishes
        self._opened: deque[Segment] = deque()
        self.durable_seq: Callable[[], int] = lambda: 0

    @property
    def active(self) -> Segment:
        """The last segment.

        Raises:
            LogClosed: Another thread closed the log meanwhile.
        """
        segments = self.segments
        if not segments:
            self.check()
        return segments[-1]

    @property
    def manifest_no(self) -> int:
        """Number of the manifest that says which segments hold; 0 = never compacted."""
        return self.manifest.number if self.manifest is not None else 0

    @property
    def quarantine(self) -> Path:
        """The folder of bytes that were cut off."""
        return self.path / QUARANTINE_NAME

    @property
    def tmp(self) -> Path:
        """The folder of half-made files."""
        return self.path / TMP_NAME

    def set_segments(self, segments: tuple[Segment, ...]) -> None:
        """Replace the segments; readers that are under way keep the ones they had."""
        bases = [segment.base_seq for segment in segments]
        self.by_base = SegmentsByBase(segments, bases, np.array(bases, np.uint64))
        self.segments = segments

    def release(self) -> None:
        """Let go of the segments: each file closes when nobody reads from it any more."""
        self.set_segments(())
        self._opened.clear()
        self.recent.clear()

    def segment_of(self, seq: int) -> Segment:
        """The segment that holds an event.

        Raises:
            LogClosed: Another thread closed the log meanwhile.
        """
        segments, bases, _ = self.by_base
        if not segments:
            self.check()
        number = bisect_right(bases, seq) - 1
        return segments[number if number > 0 else 0]

    def file_of(self, segment: Segment) -> OpenFile:
        """The file of a segment, opened again if it was closed; to be held while it is used.

        Raises:
            OSError: The system could not open it.
            Vanished: It is not there any more; `find_again`, then look the event up anew.
        """
        file = segment.file
        if file is None:
            try:
                fd = self.fs.open_file(segment.path, write=False, create=False)
            except FileNotFoundError as error:
                raise Vanished(segment.path) from error
            file = OpenFile(fd, self.fs.close)
            segment.file = file
            self.limit_files(segment)
        return file

    def limit_files(self, opened: Segment) -> None:
        """Note that a segment was opened, and close the one opened first if there are too many."""
        self._opened.append(opened)
        for _ in range(len(self._opened) - FILES_OPEN_MAX):
            oldest = self._opened.popleft()
            if oldest.is_sealed and oldest is not opened and oldest not in self.segments[-1:]:
                oldest.file = None
            else:
                self._opened.append(oldest)

    def forget_files(self) -> None:
        """The segments are about to be replaced by new ones: their files are not counted here."""
        self._opened.clear()

    def keep_files(self) -> None:
        """Segments were replaced: let go of the files of those that are not in use any more."""
        used = {id(segment) for segment in self.segments}
        self._opened = deque(segment for segment in self._opened if id(segment) in used)

    def read_tip(self) -> Tip:
        """What TIP says; nothing where it is not there."""
        return self.tip.read() if self.tip is not None else Tip()

    def moved(self) -> LogNotFound | None:
        """The error of a log that was taken away from under this handle; None if it was not."""
        return None if self.tip is None else self.tip.moved()

    def check(self) -> None:
        """Raise if the handle must not be used any more."""
        if self.state in ("ok", "full"):
            return
        if self.state == "forked":
            raise ForkedStore(
                f"handle: expected the process that opened it, got a fork of it ({self.path}); "
                "the parent's handle is untouched; open the log again in this process",
                reason=LogReason.FORKED,
                path=self.path,
            )
        if self.state == "closed":
            raise LogClosed(
                f"handle: expected an open log, got a closed one ({self.path}); open it again",
                reason=LogReason.CLOSED,
                path=self.path,
            )
        assert self.poison is not None
        raise _copy(self.poison)

    def check_writable(self) -> None:
        """Raise if nothing may be written with this handle."""
        self.check()
        if self.options.read_only:
            raise ReadOnlyLog(
                f"append: expected a log opened for writing, got read_only=True ({self.path}); "
                "nothing was written; open it without read_only",
                reason=LogReason.READ_ONLY,
                path=self.path,
            )

    def poisoned(
        self, what: str, cause: BaseException, reason: LogReason, synced_seq: int | None = None
    ) -> LogPoisoned:
        """Make every later call fail, and return the error to raise now."""
        if self.poison is None:
            synced_seq = self.durable_seq() if synced_seq is None else synced_seq
            self.poison = LogPoisoned(
                f"{what}: expected it to succeed, got {cause} ({self.path}); events up to seq "
                f"{synced_seq} are on disk, what follows is in doubt; close this handle and open "
                "the log again",
                reason=reason,
                path=self.path,
                first_seq=synced_seq + 1,
                last_seq=self.head_seq,
            )
            self.state = "poisoned"
        return _copy(self.poison)

    def sync_failed(self, cause: OSError) -> LogPoisoned:
        """Record in TIP what a failed sync leaves in doubt, and poison the handle."""
        synced_seq = self.durable_seq()
        if self.tip is not None:
            try:
                synced_seq = max(synced_seq, self.tip.suspect().synced_seq)
            except OSError as error:  # Also StoreBusy: a process was stopped while it held TIP.
                self.note(f"TIP could not be told of a failed sync: {error}")
        return self.poisoned("fdatasync", cause, LogReason.SYNC_FAILED, synced_seq)

    def note(self, notice: str) -> None:
        """Have `health()` tell something, once."""
        if notice not in self.notices:
            self.notices.append(notice)

    def corrupt(
        self, judgement: Judgement, segment: Segment, offset: int, first_seq: int
    ) -> LogCorrupt:
        """The error for damage in a segment."""
        assert judgement.reason is not None
        return LogCorrupt(
            f"{judgement.reason.value.replace('_', ' ')}: expected {judgement.evidence} "
            f"({segment.path}, byte {offset}, seq {first_seq}); events below seq {first_seq} are "
            "intact and no file was changed; run `fmemory verify` on the store",
            reason=judgement.reason,
            path=segment.path,
            offset=offset,
            first_seq=first_seq,
        )


def _never_vanishes(path: Path) -> None:
    """What `find_again` does where nobody keeps the segments up to date."""
    raise missing_file(path)


def _copy(error: LogPoisoned) -> LogPoisoned:
    """A fresh error of the same content: threads must not share a traceback."""
    rebuild, arguments = error.__reduce__()
    copied = rebuild(*arguments)  # type: ignore[arg-type]
    assert isinstance(copied, LogPoisoned)
    return copied
