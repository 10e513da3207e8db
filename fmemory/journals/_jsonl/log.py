"""An event log in JSON Lines files, shared by the threads and processes of one machine.

`JsonlLog` puts the parts together: who may call, in which order locks are taken (the lock of the
store, then the tail lock, which is short and calls nobody), and what a call promises.
"""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fmemory.journal import (
    Commit,
    Compaction,
    Draft,
    Durability,
    Envelope,
    ErasedEvent,
    Erasure,
    Finding,
    Head,
    JournalHealth,
    JournalSizes,
    Pinned,
    StoredEvent,
    Stream,
    StreamInfo,
    Usage,
)
from fmemory.journals._jsonl.compact import Compactor, remove_leftovers
from fmemory.journals._jsonl.core import Core, Options
from fmemory.journals._jsonl.read import erased
from fmemory.journals._jsonl.replaced import each, look_again
from fmemory.journals._jsonl.store import (
    LOCK_NAME,
    TIP_NAME,
    check_place,
    create_events,
    empty_tmp,
    list_folder,
    not_found,
    write_notes,
)
from fmemory.journals._jsonl.tail import Tail
from fmemory.journals._jsonl.verify import verify_folder
from fmemory.journals._jsonl.writer import DURABILITIES, Writer, check_import, stored_drafts
from fmemory_segments import FileSystem, PosixFileSystem, RecoveryReport
from fmemory_segments._catalog import reading, sync_folder, writing
from fmemory_segments._lock import FileLock
from fmemory_segments._sync import IntervalSync
from fmemory_segments._tip import Tip, TipFile
from fmemory_segments._watch import Watcher
from fmemory_segments.errors import LogCorrupt
from fmemory_segments.event import NONCE_BYTES, ZERO_CHAIN
from fmemory_segments.filesystem import after_fork_in_child

FILE_BYTES_MAX = 8 * 1024 * 1024
INTERVAL_S = 0.1


class JsonlLog:
    """An open log. Threads may share it; other processes may have the same log open."""

    def __init__(self, core: Core, tail: Tail, lock: FileLock | None, durable_seq: int) -> None:
        """Use `JsonlLog.open`."""
        self.core = core
        self._tail = tail
        self._lock = lock
        self._watcher = Watcher(core.path)
        self._writer = Writer(core, tail, lock, durable_seq)
        core.durable_seq = lambda: self._writer.durable_seq
        self._interval = IntervalSync(_sync_if_alive(weakref.ref(self)), core.options.interval_s)
        _OPEN_LOGS.add(self)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        fs: FileSystem | None = None,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "fsync",
        interval_s: float = INTERVAL_S,
        lock_timeout_s: float = 5.0,
        file_bytes_max: int = FILE_BYTES_MAX,
        allow_network: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> JsonlLog:
        """The log in a folder, made if there is none.

        Opened for writing, it waits for the lock, sets a torn end aside and syncs what a crashed
        process may have left in memory. Opened read-only it takes nothing and changes nothing.

        Args:
            path: Its folder; parents are made too.
            fs: The operating system; None = the real one.
            create: Make a log if there is none; else `LogNotFound`.
            read_only: Refuse writes; create and repair nothing.
            durability: When a commit returns: "fsync" = it is on disk; "interval" = within
                `interval_s` it will be; "os" = when the system likes. Each commit may choose.
            interval_s: Longest time that an interval commit waits for its sync.
            lock_timeout_s: Longest wait for other writers.
            file_bytes_max: A new file begins when a batch would go beyond it.
            allow_network: Do not refuse network file systems, whose locks and syncs may lie.
            clock: Unix nanoseconds.

        Raises:
            LogNotFound, NotALog: There is no log, or the path cannot hold one.
            UnsupportedPlatform, NetworkFileSystem, UnsupportedFormat: It must not be opened here.
            LogCorrupt: Damage, or acknowledged events are gone. No file was changed.
            StoreBusy: Others held the lock for longer than `lock_timeout_s`.
            StoreFull, LogReadFailed, LogWriteFailed: The system refused.
        """
        if durability not in DURABILITIES:
            raise ValueError(f"durability: expected one of {DURABILITIES}, got {durability!r}")
        options = Options(read_only, durability, interval_s, lock_timeout_s, file_bytes_max, clock)
        core = Core(fs or PosixFileSystem(), Path(path).absolute(), options)
        create = create and not read_only
        check_place(
            core.fs, core.path, create=create, read_only=read_only, allow_network=allow_network
        )
        return cls._open_to_read(core) if read_only else cls._open_to_write(core, create=create)

    @classmethod
    def _open_to_read(cls, core: Core) -> JsonlLog:
        tail = Tail(core)
        tip_path = core.path / TIP_NAME
        tip = Tip()
        try:
            with reading(tip_path):
                if core.fs.kind(tip_path) is not None:
                    fd = core.fs.open_file(tip_path, write=False, create=False)
                    core.tip = TipFile(core.fs, fd, tip_path, write=False)
                    tip = core.tip.read()
            names = list_folder(core.fs, core.path)
            if not names.events and not tip.synced_seq:
                raise not_found(core.path, read_only=True)
            with core.tail_lock:
                tail.load(names, tip, may_cut=False)
        except BaseException:
            _close_files(core, None)
            raise
        return cls(core, tail, None, min(tip.synced_seq, core.head_seq))

    @classmethod
    def _open_to_write(cls, core: Core, *, create: bool) -> JsonlLog:
        fs, path = core.fs, core.path
        if not create and not list_folder(fs, path).events:
            raise not_found(path, read_only=False)
        lock: FileLock | None = None
        try:
            with writing(path):
                fs.make_folders(path)
                fd = fs.open_file(path / LOCK_NAME, write=True, create=True)
                lock = FileLock(fs, fd, path / LOCK_NAME, names_store=True)
                fd = fs.open_file(path / TIP_NAME, write=True, create=True)
                core.tip = TipFile(fs, fd, path / TIP_NAME, write=True)
            with lock.held(core.options.lock_timeout_s):
                return cls._put_right(core, lock)
        except BaseException:
            _close_files(core, lock)
            raise

    @classmethod
    def _put_right(cls, core: Core, lock: FileLock) -> JsonlLog:
        """Under the lock: create what is missing, recover, sync."""
        fs, tail = core.fs, Tail(core)
        with reading(core.path):
            tip = core.read_tip()
        names = list_folder(fs, core.path)
        if not names.events and not tip.synced_seq:
            _begin(core)
            names = list_folder(fs, core.path)
        with writing(core.path):
            empty_tmp(fs, core.path)
            remove_leftovers(core)
        with core.tail_lock:
            tail.load(names, tip, may_cut=True)
        log = cls(core, tail, lock, 0 if tip.suspect_from else core.head_seq)
        if tip.suspect_from:
            log._writer.cover(log._writer.settle(tip).synced_seq)
            return log
        # What a crashed process left in the page cache must be on disk before anything rests on it.
        try:
            fs.datasync(core.file_of(core.active).fd)
            sync_folder(fs, core.path)  # It may have ended before the name of a file was there.
        except OSError as error:
            raise core.sync_failed(error) from error
        log._writer.tell_tip(core.head_seq, core.active.first_seq, core.active.end)
        return log

    @property
    def store_id(self) -> bytes:
        """16 bytes that name this log for ever."""
        return self.core.store_id

    @property
    def recovery(self) -> RecoveryReport:
        """The torn end that was met last, by this handle; one of 0 bytes if there was none."""
        return self.core.recoveries[-1] if self.core.recoveries else RecoveryReport()

    # Reading

    def refresh(self) -> int:
        """The newest visible seq, with what other processes appended."""
        self.core.check()
        try:
            return self._tail.refresh()
        except LogCorrupt as error:
            # What was made anew under the name is not damaged.
            if (moved := self.core.moved()) is not None:
                raise moved from error
            raise

    def envelopes(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[Envelope]:
        """Envelopes with `after < seq <= upto`, by seq, from memory."""
        self.core.check()
        seqs = self.core.seqs(after, upto, stream)
        if backwards:
            seqs = seqs[::-1]
        for found in each(self.core, seqs if limit is None else seqs[: max(limit, 0)]):
            yield found.envelope

    def erased(self, after: int, upto: int, stream: Stream | None) -> Iterator[ErasedEvent]:
        """Events of which data were taken out, by seq. Cost: one system call a file."""
        self.core.check()
        look_again(self.core)
        return erased(self.core, after, upto, stream)

    def find(self, stream: Stream, event_id: str) -> int | None:
        """The seq of the event of this stream that carries this idempotency key."""
        self.core.check()
        with self.core.tail_lock:
            return self.core.streams.find(stream, event_id)

    def streams(self, prefix: Stream, before: int | None, limit: int | None) -> list[StreamInfo]:
        """Streams whose first labels are `prefix`, the most recently written first."""
        self.core.check()
        with self.core.tail_lock:
            return self.core.streams.streams(prefix, before=before, limit=limit)

    def head(self, upto: int | None = None) -> Head:
        """The newest event, or `upto`, with the chain value up to it. Cost: O(1)."""
        self.core.check()
        if upto is None or upto > self.core.head_seq:
            newest = self.refresh()
            upto = newest if upto is None else upto
        if upto == 0:
            return Head(0, ZERO_CHAIN)
        return Head(upto, self.core.entry(upto).found.chain)

    # Writing

    def commit(
        self,
        plan: Callable[[int, int], Sequence[Draft] | None],
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Append what `plan` returns as one batch: all of it or nothing, also after a crash.

        Args:
            plan: Called with the head and the time, under the lock, after catching up; must not
                write. What it raises is passed on, and nothing is written.
            durability: When this returns; None = as the log was opened.
            timeout_s: Longest wait for the lock; None = as the log was opened.

        Raises:
            StoreBusy: Others held the lock for too long. Nothing was written.
            InvalidDraft: A draft cannot be stored. Nothing was written.
            StoreFull, LogWriteFailed: The log is as it was.
            LogPoisoned: It is unknown whether the batch is on disk; reopen.

        Durability: on disk when this returns, under "fsync".
        """

        def prepare(head_seq: int, now_ns: int) -> list[StoredEvent] | None:
            drafts = plan(head_seq, now_ns)
            return stored_drafts(self.core, drafts, head_seq, now_ns) if drafts else None

        done = self._writer.commit(
            prepare, self._interval, durability=durability, timeout_s=timeout_s
        )
        if done is not None:
            self._watcher.notify()
        return done

    def import_exact(self, events: Iterable[StoredEvent]) -> Commit | None:
        """Append events with the seq, revision, times and nonces they carry, as one batch.

        Raises:
            InvalidDraft: The first is not the head's successor, or one cannot be stored. Nothing
                was written.
        """
        taken = list(events)
        if not taken:
            self.core.check_writable()
            return None
        done = self._writer.commit(
            lambda _head_seq, _now_ns: check_import(self.core, taken),
            self._interval,
            durability=None,
            timeout_s=None,
        )
        self._watcher.notify()
        return done

    def sync(self, upto: int | None = None) -> int:
        """Have everything up to `upto` (None = the head) on disk; the durable seq.

        Raises:
            LogPoisoned: A sync failed, so it is unknown what is on disk.
        """
        self.core.check()
        newest = self.core.head_seq
        if upto is None or upto > newest:
            newest = self.refresh()
        return self._writer.sync(newest if upto is None else min(upto, newest))

    def compact(self, erasure: Erasure, *, timeout_s: float | None = None) -> Compaction:
        """Take data out: no byte of them is left in the folder when this returns without `pending`.

        Others read and write meanwhile; the lock of the store is held for each file while what
        they appended is copied and the file gets its name.

        Args:
            erasure: What is to go.
            timeout_s: Longest wait for the lock, each time; None = as the log was opened.

        Raises:
            StoreBusy: Another compaction is at work, or others held the lock for too long.
            StoreFull: There is no room for the largest file beside itself. Nothing was changed.
            LogWriteFailed, LogReadFailed: Some files are as they were, the others as they are to
                be; compact again.
            LogCorrupt: A line is damaged. Its file is as it was.
            LogPoisoned: A name may not be on disk; reopen.

        Durability: on disk when this returns.
        Cost: O(bytes of the files that hold what is named), about 0.3 ms a record that goes or is
            beside one that does; memory for one line of each file.
        """
        core = self.core
        core.check_writable()
        assert self._lock is not None
        return Compactor(core, self._tail, self._writer, self._lock).run(erasure, timeout_s)

    # Handle

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called when there may be new events; returns how to stop that."""
        self.core.check()
        return self._watcher.subscribe(callback)

    def check_place(self) -> None:
        """Check that the store is still where it was opened: see `Log.check_place`."""
        self.core.check()
        if (moved := self.core.moved()) is not None:
            raise moved

    def verify(self, pinned: Pinned = None) -> list[Finding]:
        """What is wrong with the files, down to the line; nothing is changed. Cost: O(bytes)."""
        self.core.check()
        return verify_folder(self.core.fs, self.core.path, pinned)

    def usage(self) -> list[Usage]:
        """How much each type of event of each stream holds; its bytes are those of its lines."""
        self.core.check()
        look_again(self.core)
        counts: dict[tuple[Stream, str], tuple[int, int]] = {}
        for found in self.core.entries_of(0, self.core.head_seq, None):
            key = (found.envelope.stream, found.envelope.type)
            events, size = counts.get(key, (0, 0))
            size += sum(line_bytes for _, line_bytes, _ in found.lines)
            counts[key] = (events + 1, size)
        return [Usage(*key, *value) for key, value in sorted(counts.items())]

    def sizes(self) -> JournalSizes:
        """Files of events and their bytes."""
        self.core.check()
        look_again(self.core)
        files = self.core.files
        return JournalSizes(sum(one.end for one in files), len(files))

    def health(self) -> JournalHealth:
        """The state of this handle. Never raises."""
        core = self.core
        state = "closed" if core.state == "forked" else core.state
        return JournalHealth(state, self._writer.durable_seq, tuple(core.notices))

    def close(self) -> None:
        """Sync what interval commits left, and release files and threads; twice is fine."""
        core = self.core
        if core.state == "closed":
            return
        self._interval.stop()
        try:
            if core.state in ("ok", "full") and self._interval.is_dirty:
                self._writer.sync(core.head_seq)
        finally:
            is_forked = core.state == "forked"
            core.state = "closed"
            _OPEN_LOGS.discard(self)
            if not is_forked:
                self._watcher.close()
            _close_files(core, self._lock, wait=not is_forked)
            core.release()

    def refuse_in_child(self) -> None:
        """Mark a handle that was carried over a fork, and close its files without unlocking.

        Closing does not release: the lock belongs to the open file, which the parent still has.
        """
        self.core.state = "forked"
        _close_files(self.core, self._lock, wait=False)


_OPEN_LOGS: weakref.WeakSet[JsonlLog] = weakref.WeakSet()


def _begin(core: Core) -> None:
    """The first file of a new store, and the notes beside it."""
    store_id = secrets.token_bytes(NONCE_BYTES)
    with writing(core.path):
        write_notes(core.fs, core.path, store_id)
        create_events(
            core.fs,
            core.path,
            store_id=store_id,
            first_seq=1,
            chain=ZERO_CHAIN,
            now_ns=core.options.clock(),
        )


def _close_files(core: Core, lock: FileLock | None, *, wait: bool = True) -> None:
    if lock is not None:
        lock.close(wait=wait)
    if core.tip is not None:
        core.tip.close(wait=wait)


def _sync_if_alive(reference: weakref.ref[JsonlLog]) -> Callable[[], bool]:
    """Sync the log, unless it is gone; False if it is."""

    def sync() -> bool:
        log = reference()
        if log is None:
            return False
        log.sync()
        return True

    return sync


def _refuse_in_child() -> None:
    for log in list(_OPEN_LOGS):
        log.refuse_in_child()


after_fork_in_child(_refuse_in_child)
