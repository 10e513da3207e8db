"""The end of the log: taking in what was appended since, and deciding what a bad end means.

Readers take no lock. Where a reader meets bytes that are no whole batch it looks once more under a
shared lock, so that a writer at work is never mistaken for damage. A writer, under the exclusive
lock, cuts a torn tail off; a reader leaves it and reports it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fmemory_segments._catalog import (
    LOCK_NAME,
    Vanished,
    list_store,
    missing_file,
    open_segment,
    read_failed,
    reading,
    writing,
)
from fmemory_segments._core import Core, Segment
from fmemory_segments._frame import FRAME_HEADER_BYTES
from fmemory_segments._frames import read_seal
from fmemory_segments._generation import adopt, lost, renew, went_back
from fmemory_segments._load import (
    Loaded,
    apply_frames,
    expected_after,
    unfinished_seal,
)
from fmemory_segments._lock import FileLock
from fmemory_segments._quarantine import cut, report, used_end
from fmemory_segments._seal import Seal
from fmemory_segments._stream_index import RevisionGap
from fmemory_segments._tip import Tip
from fmemory_segments._walk import Stop, Walk, judge_stop
from fmemory_segments.errors import LogCorrupt, LogReason, StoreBusy, UnsupportedFormat
from fmemory_segments.recovery import (
    CLEAN,
    Judgement,
    RecoveryReport,
    Verdict,
    judge_end,
)

PROBE_BYTES: Final = 8
NOTHING_NEW: Final = bytes(PROBE_BYTES)
LOOK_AGAIN_S: Final = 0.1
RECHECK_TIMEOUT_S: Final = 0.05
READS_MAX: Final = 8

Answer = TypeVar("Answer")


class _SeenTail(NamedTuple):
    """A torn tail that a reader has judged: as long as it looks like this, nothing is new."""

    segment: Segment
    size: int
    head: bytes


class Tail:
    """Keeps a `Core` up to date with the files."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: _SeenTail | None = None
        self._look_again_at = 0.0
        self._manifest_told = 0
        core.find_again = self.find_again

    def refresh(self) -> int:
        """The newest visible seq. Cost: one pread of 8 bytes when nothing is new.

        Raises:
            LogCorrupt: What stands at the end was on disk once and is damaged.
            UnsupportedFormat: A newer version wrote it.
            LogReadFailed: The system could not read.
        """
        core = self._core
        segment = core.active
        try:
            probe = core.fs.pread(segment.fd, PROBE_BYTES, segment.end)
        except OSError as error:
            raise read_failed(error, segment.path, segment.end) from error
        is_quiet = probe == NOTHING_NEW or (not probe and self._ends_here(segment))
        if is_quiet and time.monotonic() < self._look_again_at:
            return core.head_seq
        return self._follow(is_quiet=is_quiet)

    def look_closer(self) -> None:
        """Find a tail that was moved, also where nothing new stands behind the known end.

        Raises:
            As `refresh`.
        """
        self._follow(is_quiet=False)

    def read(self, read: Callable[[], Answer]) -> Answer:
        """What a read answers, tried again where the files it read are not in use any more.

        Raises:
            LogCorrupt: As the read; or a file is gone and none took its place.
        """
        for _ in range(READS_MAX - 1):
            segments = self._core.segments
            try:
                return read()
            except Vanished as gone:
                self.find_again(gone.path)
            except LogCorrupt:
                self.look_closer()
                if self._core.segments is segments:
                    raise
        try:
            return read()
        except Vanished as gone:
            raise missing_file(gone.path) from gone

    def find_again(self, path: Path) -> None:
        """A segment's file is not there any more: use the one that took its place.

        Raises:
            LogCorrupt: None did: somebody removed it.
            LogReadFailed: The system could not read.
        """
        core = self._core
        core.check()
        with core.tail_lock, reading(core.path):
            if all(segment.path != path for segment in core.segments):
                return  # Another thread was here before.
            self._renew(core.read_tip())
            if any(segment.path == path for segment in core.segments):
                raise missing_file(path)

    def use_generation(self) -> None:
        """Use what a compaction of this handle made.

        Raises:
            As `find_again`.
        """
        core = self._core
        with core.tail_lock, reading(core.path):
            self._renew(core.read_tip())

    def catch_up(self) -> Tip:
        """Take in everything, cut off a torn tail. Under the exclusive lock.

        Returns:
            What TIP says; its `suspect_from` is for the caller to settle.

        Raises:
            LogCorrupt: Damage, or events that TIP calls synced are gone. No file was changed.
            UnsupportedFormat: A newer version wrote the end.
            StoreFull, LogWriteFailed: A torn tail could not be set aside; nothing was changed.
        """
        core = self._core
        segment = core.active
        try:
            tip = core.read_tip()
            probe = core.fs.pread(segment.fd, PROBE_BYTES, segment.end)
        except OSError as error:
            raise read_failed(error, segment.path, segment.end) from error
        if not probe:
            segment.zero_end = 0  # Another writer has cut the zeros off.
        moved = (
            tip.segment_base > segment.base_seq
            or tip.suspect_from
            or tip.manifest_no != self._manifest_told
        )
        if probe != NOTHING_NEW or moved or self._seen is not None or segment.is_sealed:
            with core.tail_lock, reading(segment.path):
                stop = self._advance(tip)
                if stop is not None:
                    self._cut_or_raise(stop, tip)
                self._seen = None
        if core.head_seq < tip.synced_seq:
            raise lost(core, tip.synced_seq)
        return tip

    def load(self, *, tip: Tip, may_cut: bool) -> Loaded:
        """Read all segments from the files and use them from now on.

        Args:
            tip: What TIP said before anything was read.
            may_cut: The exclusive lock is held: a torn tail is cut off.

        Raises:
            LogCorrupt: Damage, a missing segment, or acknowledged events that are gone.
        """
        core = self._core
        loaded = self._adopt(tip)
        stop = loaded.stop
        if stop.judgement.verdict is not Verdict.CLEAN:
            if may_cut:
                self._cut_or_raise(stop, tip)
            else:
                self._note_or_raise(stop, tip)
        if (end := judge_end(head_seq=core.head_seq, synced_seq=tip.synced_seq)) is not CLEAN:
            raise core.corrupt(end, core.active, core.active.end, core.head_seq + 1)
        return loaded

    def open_to_read(self, tip: Tip) -> None:
        """Read all segments without a lock; what looks bad is read again while nobody writes.

        Raises:
            LogCorrupt: Damage, a missing segment, or acknowledged events that are gone.
            UnsupportedFormat: A newer version wrote the store.
        """
        core = self._core
        try:
            loaded = self._adopt(tip)
            doubtful = loaded.stop.judgement.verdict is not Verdict.CLEAN
            if not doubtful and core.head_seq >= tip.synced_seq:
                return
        except LogCorrupt:
            loaded = None
        with self._shared_lock(core.options.lock_timeout_s) as is_quiet:
            if is_quiet or loaded is None or core.head_seq < tip.synced_seq:
                self.load(tip=core.read_tip(), may_cut=False)

    def _ends_here(self, segment: Segment) -> bool:
        """Whether its file ends where it was read up to, and is one that events are added to."""
        try:
            return not segment.is_sealed and self._core.fs.size(segment.fd) == segment.end
        except OSError as error:
            raise read_failed(error, segment.path, segment.end) from error

    def _follow(self, *, is_quiet: bool) -> int:
        """The slow way of `refresh`: something is new, or it is time to look closer."""
        core = self._core
        core.check()
        segment = core.active
        with core.tail_lock, reading(segment.path):
            tip = core.read_tip()
            is_told = tip.manifest_no == self._manifest_told
            if is_quiet and tip.segment_base <= segment.base_seq and is_told:
                self._look_again_at = time.monotonic() + LOOK_AGAIN_S
                return core.head_seq
            if self._is_seen(segment):
                return core.head_seq
            stop = self._advance(tip)
        if stop is None:
            return core.head_seq
        return self._look_once_more()

    def _look_once_more(self) -> int:
        """Decide about a bad end under the shared lock, unless a writer is at work."""
        core = self._core
        with reading(core.path), self._shared_lock(RECHECK_TIMEOUT_S) as is_quiet:
            if not is_quiet:
                return self._at_least(core.read_tip().synced_seq)
            with core.tail_lock:
                tip = core.read_tip()
                stop = self._advance(tip)
                if stop is not None:
                    self._note_or_raise(stop, tip)
        return core.head_seq

    def _at_least(self, synced_seq: int) -> int:
        """The head, while a writer is at work: it will finish, or be found out later.

        Raises:
            StoreBusy: It hides events that were acknowledged.
        """
        core = self._core
        if core.head_seq < synced_seq:
            raise StoreBusy(
                f"tail: expected events up to seq {synced_seq}, got {core.head_seq} and a writer "
                f"at work ({core.active.path}); nothing was changed; try again",
                reason=LogReason.LOCK_TIMEOUT,
                path=core.active.path,
                first_seq=core.head_seq + 1,
                last_seq=synced_seq,
            )
        return core.head_seq

    @contextmanager
    def _shared_lock(self, timeout_s: float) -> Iterator[bool]:
        """Whether nobody writes for the length of a block.

        The lock has a descriptor of its own: on the writer's it would replace the writer's lock.
        """
        core = self._core
        path = core.path / LOCK_NAME
        if core.fs.kind(path) is None:
            yield True  # A copy without LOCK: nobody has it open for writing.
            return
        fd = core.fs.open_file(path, write=False, create=False)
        try:
            lock = FileLock(core.fs, fd, path)
            try:
                lock.acquire(timeout_s, shared=True)
            except StoreBusy:
                yield False
                return
            try:
                yield True
            finally:
                lock.release()
        finally:
            core.fs.close(fd)

    def _advance(self, tip: Tip) -> Stop | None:
        """Apply whole batches from the end on, through new segments; where it stopped, if badly."""
        core = self._core
        while True:
            segment = core.active
            if tip.manifest_no != self._manifest_told:
                stop = self._renew(tip)
                if stop is not None:
                    return stop
                continue
            if segment.is_sealed:
                if self._open_next(segment, tip):
                    continue
                stop = self._reload_if_moved(segment, tip)
                if stop is not None or core.active is segment:
                    return stop
                continue
            size = core.fs.size(segment.fd)
            if size < segment.end or tip.segment_base > segment.base_seq:
                stop = self._reload_if_moved(segment, tip)
                if stop is not None or core.active is segment:
                    return stop
                continue
            stop = self._walk(segment, size)
            if stop.seal is not None:
                found = read_seal(core, segment, stop.offset, size)
                if isinstance(found, Seal):
                    segment.end = size  # `frames_end` stays.
                    segment.chain = found.chain
                    segment.is_sealed = True
                    continue
                return unfinished_seal(stop, found)
            if stop.judgement.verdict is Verdict.CLEAN:
                return None
            moved = self._reload_if_moved(segment, tip)
            return moved or (stop if core.active is segment else None)

    def _walk(self, segment: Segment, size: int) -> Stop:
        core = self._core
        walk = Walk(
            core.fs,
            segment.fd,
            salt=segment.header.salt,
            offset=segment.end,
            expected=expected_after(segment, core.time_ns),
            size=size,
            data_from_seq=0,
            to_end=False,
        )
        for frames in walk.batches():
            try:
                apply_frames(segment, frames, core.streams, core.recent, core)
            except RevisionGap as gap:
                judgement = Judgement(Verdict.DAMAGED, LogReason.FRAME_CONTENT, str(gap))
                return Stop(segment.end, segment.next_seq, judgement)
        assert walk.stop is not None
        return walk.stop

    def _open_next(self, segment: Segment, tip: Tip) -> bool:
        """Open the successor of a sealed segment; False if there is none yet."""
        core = self._core
        listing = list_store(core.fs, core.path)
        if listing.manifest != core.manifest:
            # The successor may be part of a compacted segment, and this one too.
            self._renew(tip)
            return True
        for name in listing.segments:
            if name.base_seq == segment.next_seq and core.path / str(name) != segment.path:
                break
        else:
            return False
        try:
            file, header = open_segment(
                core.fs, core.path, name, write=not core.options.read_only, store_id=core.store_id
            )
        except Vanished as gone:
            if list_store(core.fs, core.path) == listing:
                raise missing_file(gone.path) from gone
            return True
        if header.is_compacted:
            self._adopt(tip)
            return True
        opened = Segment.begin(core.path / str(name), header, file, segment.time_ns)
        if header.prev_chain != segment.chain:
            judgement = Judgement(
                Verdict.DAMAGED,
                LogReason.CHAIN,
                f"a segment that continues {segment.chain.hex()}, got {header.prev_chain.hex()}",
            )
            raise core.corrupt(judgement, opened, 0, name.base_seq)
        core.set_segments((*core.segments, opened))
        core.limit_files(opened)
        return True

    def _reload_if_moved(self, segment: Segment, tip: Tip) -> Stop | None:
        """Read the store anew if another segment took over the tail of the active one."""
        core = self._core
        newest = list_store(core.fs, core.path).segments[-1]
        if core.path / str(newest) == segment.path:
            if core.fs.size(core.file_of(segment).fd) < segment.end:
                raise went_back(core, None)
            return None
        loaded = self._adopt(tip)
        return loaded.stop if loaded.stop.judgement.verdict is not Verdict.CLEAN else None

    def _adopt(self, tip: Tip) -> Loaded:
        """Read all segments and use them from now on."""
        loaded = adopt(self._core, synced_seq=tip.synced_seq)
        self._manifest_told = tip.manifest_no
        return loaded

    def _renew(self, tip: Tip) -> Stop | None:
        """Use the segments that a compaction made; where the log stops, if badly."""
        self._manifest_told = tip.manifest_no
        if renew(self._core):
            return None
        loaded = self._adopt(tip)
        return loaded.stop if loaded.stop.judgement.verdict is not Verdict.CLEAN else None

    def _is_seen(self, segment: Segment) -> bool:
        seen = self._seen
        if seen is None or seen.segment is not segment:
            return False
        core = self._core
        head = core.fs.pread(segment.fd, FRAME_HEADER_BYTES, segment.end)
        return seen.head == head and seen.size == core.fs.size(segment.fd)

    def _judge(self, stop: Stop, tip: Tip) -> Judgement:
        """The verdict on a bad end; raises unless it is a torn tail."""
        core = self._core
        segment = core.active
        judgement = judge_stop(
            core.fs,
            segment.fd,
            salt=segment.header.salt,
            stop=stop,
            size=core.fs.size(segment.fd),
            synced_seq=tip.synced_seq,
        )
        if judgement.verdict is Verdict.NEWER:
            assert judgement.reason is not None
            raise UnsupportedFormat(
                f"frame version: expected {judgement.evidence} ({segment.path}, byte "
                f"{stop.offset}, seq {stop.seq}); nothing was changed; open it with a newer "
                "version of fmemory",
                reason=judgement.reason,
                path=segment.path,
                offset=stop.offset,
                first_seq=stop.seq,
            )
        if judgement.verdict is Verdict.DAMAGED:
            raise core.corrupt(judgement, segment, stop.offset, stop.seq)
        return judgement

    def _note_or_raise(self, stop: Stop, tip: Tip) -> None:
        """As a reader: report a torn tail and leave it."""
        core = self._core
        segment = core.active
        self._judge(stop, tip)
        size = core.fs.size(segment.fd)
        head = core.fs.pread(segment.fd, FRAME_HEADER_BYTES, segment.end)
        self._seen = _SeenTail(segment, size, head)
        torn_bytes = used_end(core, segment, stop.offset, size) - stop.offset
        report(core, RecoveryReport(torn_bytes, segment.path.name, stop.offset, stop.seq))

    def _cut_or_raise(self, stop: Stop, tip: Tip) -> None:
        """As a writer: set a torn tail aside and cut it off."""
        core = self._core
        segment = core.active
        self._judge(stop, tip)
        with writing(segment.path):
            cut(core, segment, stop.offset, stop.seq)
