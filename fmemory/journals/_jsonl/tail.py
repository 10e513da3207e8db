"""The end of a JSON Lines log: loading, following other writers, cutting off what was torn.

Readers take no lock: a batch counts once its last line ends with a newline. A writer, under the
exclusive lock, moves a torn end to `quarantine/`; a reader leaves it and reports it. Damage raises,
and no file is changed.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from fmemory.journals._jsonl.core import Core, EventsFile
from fmemory.journals._jsonl.file_bytes import FileBytes, fingerprint, is_made_of, parts
from fmemory.journals._jsonl.replaced import go_on
from fmemory.journals._jsonl.scan import BLANK, Found, Stop, judge, scan
from fmemory.journals._jsonl.store import (
    Names,
    events_name,
    has_bytes,
    open_events,
    quarantine,
    write_file,
)
from fmemory_segments import LogReason, RecoveryReport
from fmemory_segments._catalog import reading, sync_folder, write_all, writing
from fmemory_segments._files import OpenFile
from fmemory_segments._stream_index import RevisionGap
from fmemory_segments._tip import Tip
from fmemory_segments.errors import LogCorrupt
from fmemory_segments.event import ZERO_CHAIN

LOOKS_MAX: Final = 8
LOOK_PAUSE_S: Final = 0.005


class Tail:
    """Keeps a `Core` up to date with the files."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._torn_seen: tuple[int, int] | None = None

    # Opening

    def load(self, names: Names, tip: Tip, *, may_cut: bool) -> None:
        """Read everything there is. Under the tail lock; `may_cut`: under the lock of the store.

        Raises:
            LogCorrupt: Damage, or events that the witness calls synced are gone. No file was
                changed.
            UnsupportedFormat: A newer version wrote a file.
            LogReadFailed, StoreFull, LogWriteFailed: The system refused.

        Cost: O(bytes): every line is read and checked, about 300 MB/s.
        """
        core = self._core
        for number, first_seq in enumerate(names.events):
            with reading(core.path):
                self._open_file(first_seq)
            is_last = number == len(names.events) - 1
            self._take_in(tip, may_cut=may_cut, whole=True, is_last=is_last)
        for name in names.foreign:
            core.note(f"{name} in {core.path} is not a file of the store and was left alone")
        if core.head_seq < tip.synced_seq:
            raise self._lost(tip.synced_seq)

    # Following

    def refresh(self) -> int:
        """The newest visible seq. Cost: three system calls when nothing is new.

        Raises:
            LogCorrupt: What was appended is damaged, or what was read is gone.
            LogReadFailed: The system could not read.
        """
        core = self._core
        active = core.active
        with reading(active.path):
            size = core.fs.size(core.file_of(active).fd)
            is_same = core.fs.is_at(active.identity, active.path)
        if is_same and (size == active.end or (active.lacks_newline and size == active.end - 1)):
            next_path = core.path_of(core.head_seq + 1)
            if next_path == active.path or core.fs.kind(next_path) is None:
                return core.head_seq
        elif is_same and self._torn_seen == (active.end, size):
            return core.head_seq
        with core.tail_lock, reading(core.path):
            self._follow(may_cut=False)
        return core.head_seq

    def catch_up(self) -> Tip:
        """Take in everything, and cut off a torn end. Under the lock of the store.

        Returns:
            What the witness says; its `suspect_from` is for the caller to settle.

        Raises:
            LogCorrupt: As `refresh`, and events that the witness calls synced are gone.
            StoreFull, LogWriteFailed: A torn end could not be set aside; nothing was changed.
        """
        core = self._core
        known = core.active.identity
        with core.tail_lock, reading(core.path):
            tip = self._follow(may_cut=True)
        if core.active.identity != known:
            # Whoever gave the file its name may have ended before the name was on disk.
            with writing(core.path):
                sync_folder(core.fs, core.path)
        if core.head_seq < tip.synced_seq:
            raise self._lost(tip.synced_seq)
        return tip

    def _follow(self, *, may_cut: bool) -> Tip:
        """Take in what was appended since. The witness is read first: it is never ahead."""
        core = self._core
        tip = core.read_tip()
        while True:
            go_on(core, core.active)
            self._take_in(tip, may_cut=may_cut, whole=False, is_last=True)
            next_seq = core.head_seq + 1
            path = core.path_of(next_seq)
            if path == core.active.path or self._torn_seen is not None:
                return tip
            if not has_bytes(core.fs, path):
                return tip
            self._open_file(next_seq)

    def _take_in(self, tip: Tip, *, may_cut: bool, whole: bool, is_last: bool) -> None:
        """Scan the last file from its known end on."""
        core = self._core
        events = core.active
        previous = b""
        for look in range(LOOKS_MAX):
            data = self._unread(events)
            found = scan(
                data,
                base=events.end,
                next_seq=core.head_seq + 1,
                time_ns=core.time_ns,
                store_id=core.store_id,
                whole=whole,
            )
            stop = found.stop
            if stop is not None:
                stop = judge(
                    stop,
                    data,
                    base=events.end,
                    synced_seq=tip.synced_seq,
                    store_id=core.store_id,
                )
            if stop is None or may_cut:
                break
            if stop.reason is LogReason.TORN_TAIL and not (stop.is_damage or whole):
                break  # Not there yet; whoever writes it may take seconds.
            # A writer may be at work: what it has half written must look the same twice.
            seen = fingerprint(data, stop.start - events.end)
            if seen == previous:
                break
            previous = seen
            time.sleep(LOOK_PAUSE_S if look else 0)
        start = events.end
        with core.applying():
            for one in found.events:
                self._apply(events, one)
            events.end = found.end
        if found.events:
            events.lacks_newline = found.lacks_newline
        self._torn_seen = None
        if stop is not None:
            self._settle_stop(stop, data, start, may_cut=may_cut, is_opening=whole, is_last=is_last)
        elif may_cut and is_last and events.lacks_newline:
            self._add_newline(events)

    def _unread(self, events: EventsFile) -> FileBytes:
        """The bytes behind the known end."""
        core = self._core
        with reading(events.path):
            size = core.fs.size(core.file_of(events).fd)
        if size < events.end - events.lacks_newline:
            raise core.went_back(f"at least {events.end} bytes, got {size}", events.path)
        return FileBytes(partial(core.read, events), events.end, max(0, size - events.end))

    def _apply(self, events: EventsFile, found: Found) -> None:
        core = self._core
        try:
            core.apply(events, found)
        except RevisionGap as gap:
            offset, seq = found.lines[0][0], found.envelope.seq
            evidence = f"revision {gap.expected} of stream {gap.stream}, got {gap.revision}"
            raise core.damaged(events, LogReason.FRAME_ORDER, evidence, offset, seq) from None

    def _settle_stop(
        self,
        stop: Stop,
        data: FileBytes,
        base: int,
        *,
        may_cut: bool,
        is_opening: bool,
        is_last: bool,
    ) -> None:
        """Raise for damage; set a torn end aside, or remember to have seen it.

        Args:
            data: What was scanned, from the offset `base` of the file on.
        """
        core, events = self._core, self._core.active
        at = stop.start - base
        torn_bytes = len(data) - at
        if stop.is_damage or (not is_last and not is_made_of(data, at, BLANK)):
            raise core.corrupt(events, stop)
        if not is_last:
            core.note(f"{events.path.name} ends with blank lines, which were left alone")
        elif may_cut:
            self._cut(events, stop, data, at)
        else:
            self._torn_seen = (events.end, events.end + torn_bytes)
            if is_opening:  # Later it may be a writer at work.
                name = events.path.name
                self._report(RecoveryReport(torn_bytes, name, stop.start, stop.batch_seq))

    def _cut(self, events: EventsFile, stop: Stop, data: FileBytes, at: int) -> None:
        """Keep what was torn, from a place on, in the quarantine, then cut it off."""
        core = self._core
        fd = core.file_of(events).fd
        with writing(events.path):
            tail = parts(data, at)
            kept = quarantine(core.fs, core.path, events.path.name, stop.start, tail)
            core.fs.truncate(fd, stop.start)
            core.fs.sync(fd)
        self._report(
            RecoveryReport(
                len(data) - at, events.path.name, stop.start, stop.batch_seq, kept, applied=True
            )
        )

    def _add_newline(self, events: EventsFile) -> None:
        """Put back the newline that the last line lacks."""
        core = self._core
        with writing(events.path):
            write_all(core.fs, core.file_of(events).fd, b"\n", events.end - 1)
        events.lacks_newline = False
        core.note(f"{events.path.name} lacked the newline of its last line, which was added")

    def _report(self, report: RecoveryReport) -> None:
        core = self._core
        core.recoveries.append(report)
        done = f"was moved to quarantine/{report.quarantine}" if report.applied else "was left"
        core.note(
            f"{report.file} ended with {report.torn_bytes} bytes of a batch that was never whole "
            f"(byte {report.offset}, seq {report.first_seq}); it {done}"
        )

    # Files

    def _open_file(self, first_seq: int) -> None:
        """Open the file whose first event comes next, and make it the last one."""
        core = self._core
        if first_seq != core.head_seq + 1 or (core.files and first_seq == core.active.first_seq):
            path = core.path_of(first_seq)
            raise LogCorrupt(
                f"files: expected one that begins with seq {core.head_seq + 1}, got {first_seq} "
                f"({path}); no file was changed; put back the file that is missing, or take this "
                "one out of the folder",
                reason=LogReason.MISSING_SEGMENT,
                path=path,
                first_seq=core.head_seq + 1,
                last_seq=first_seq - 1,
            )
        opened = open_events(
            core.fs,
            core.path,
            first_seq,
            write=not core.options.read_only,
            store_id=core.store_id or None,
        )
        core.store_id = opened.store_id
        events = EventsFile(
            core.path_of(first_seq),
            first_seq,
            opened.prev_chain,
            opened.file,
            core.fs.identity(opened.file.fd),
            opened.header_bytes,
        )
        expected = core.chain if core.files else ZERO_CHAIN
        if opened.prev_chain != expected:
            evidence = (
                f"chain {expected.hex()[:16]}… before seq {first_seq}, got "
                f"{opened.prev_chain.hex()[:16]}…"
            )
            raise core.damaged(events, LogReason.CHAIN, evidence, 0, first_seq)
        core.files = (*core.files, events)
        core.limit_files(events)

    def _lost(self, synced_seq: int) -> LogCorrupt:
        core = self._core
        path = core.active.path if core.files else core.path
        return LogCorrupt(
            f"acknowledged loss: expected events up to seq {synced_seq}, as events.tip says were "
            f"on disk, got a log that ends at {core.head_seq} ({path}); no file was changed; "
            "restore what is missing, or remove events.tip if an older state is meant",
            reason=LogReason.ACKNOWLEDGED_LOSS,
            path=path,
            first_seq=core.head_seq + 1,
            last_seq=synced_seq,
        )


def rewrite_suspect(core: Core, first_seq: int) -> None:
    """Write anew, in files that replace the old ones, what a failed sync left in doubt.

    Under the lock of the store and the tail lock. The bytes stay the same, so handles that have the
    old file open go on with the new one.

    Raises:
        StoreFull, LogWriteFailed: Nothing is lost; the next writer tries again.
    """
    last_seqs = [one.first_seq - 1 for one in core.files[1:]] + [core.head_seq]
    for events, last_seq in zip(core.files, last_seqs, strict=True):
        if last_seq < first_seq and events is not core.active:
            continue
        go_on(core, events)
        events = core.file_at(events.first_seq)
        data = core.read(events, 0, events.end)
        with writing(events.path):
            write_file(core.fs, core.path, events_name(events.first_seq), data)
            fd = core.fs.open_file(events.path, write=True, create=False)
            events.file = OpenFile(fd, core.fs.close)
            events.identity = core.fs.identity(fd)
    core.note(f"events from seq {first_seq} on were written anew, as a sync of them had failed")
