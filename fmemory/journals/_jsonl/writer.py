"""Writing to a JSON Lines log: lock, catch up, plan, write, give the lock back, sync.

A batch is written at the end of the last file, some megabytes with each call, and is there once
its last line is whole; after a failure the file is cut back to where it ended. What a commit
promises is said only after a sync has said so, and the witness hears of it before the caller does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import error as StructError  # noqa: N812 - a class, named as one
from typing import Final, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from fmemory.journal import Durability
from fmemory.journals._jsonl.core import Core, EventsFile
from fmemory.journals._jsonl.lines import (
    EncodedEvent,
    encode_batch,
    erased_of_payload,
    timestamps_of_payload,
)
from fmemory.journals._jsonl.scan import Found
from fmemory.journals._jsonl.store import create_events
from fmemory.journals._jsonl.tail import Tail, rewrite_suspect
from fmemory_segments import (
    Blob,
    Commit,
    Draft,
    Erased,
    LogError,
    LogReason,
    Payload,
    Rows,
    StoredEvent,
    Stream,
)
from fmemory_segments._catalog import write_all, write_failed, writing
from fmemory_segments._lock import FileLock
from fmemory_segments._row_columns import check_rows
from fmemory_segments._sync import GroupSync, IntervalSync, SyncTarget
from fmemory_segments._tip import Tip
from fmemory_segments.errors import InvalidDraft, StoreFull
from fmemory_segments.event import EVENT_BYTES_MAX, NONCE_BYTES

DURABILITIES: Final = get_args(Durability)
GROUP_BYTES: Final = 1 << 23
_CANNOT_ENCODE: Final = (
    ValueError,
    OverflowError,
    TypeError,
    RecursionError,
    StructError,
    msgspec.MsgspecError,
)

Prepare: TypeAlias = Callable[[int, int], Sequence[StoredEvent] | None]
"""Gets the head and the time under the lock; gives the events to append."""


class Writer:
    """Commits and syncs of one handle.

    Args:
        core: The open log.
        tail: Keeps it up to date.
        lock: The lock of the store; None if it is open for reading.
        durable_seq: Everything up to here is known to be on disk.
    """

    def __init__(self, core: Core, tail: Tail, lock: FileLock | None, durable_seq: int) -> None:
        self._core = core
        self._tail = tail
        self._lock = lock
        self._group = GroupSync(
            datasync=core.fs.datasync,
            target=self._target,
            synced=self._synced,
            failed=core.sync_failed,
            durable_seq=durable_seq,
        )

    @property
    def durable_seq(self) -> int:
        """Everything up to here is known to be on disk."""
        return self._group.durable_seq

    def sync(self, upto: int) -> int:
        """Have events on disk; the durable seq.

        Raises:
            LogPoisoned: A sync failed.
        """
        return self._group.sync(upto)

    def cover(self, seq: int) -> None:
        """Note that events up to here are on disk by other means than a sync of this handle."""
        self._group.covered(seq)

    def commit(
        self,
        prepare: Prepare,
        interval: IntervalSync,
        *,
        durability: Durability | None,
        timeout_s: float | None,
    ) -> Commit | None:
        """Append what `prepare` makes of the newest state, and do what `durability` asks.

        Raises:
            As `JsonlLog.commit`.
        """
        core, options = self._core, self._core.options
        core.check_writable()
        wanted = durability or options.durability
        if wanted not in DURABILITIES:
            raise InvalidDraft(
                f"durability: expected one of {DURABILITIES}, got {wanted!r}; nothing was written",
                reason=LogReason.INVALID_DRAFT,
            )
        timeout_s = options.lock_timeout_s if timeout_s is None else timeout_s
        assert self._lock is not None
        try:
            self._lock.acquire(timeout_s)
        except LogError:
            core.check()  # Closed meanwhile: that is what to say.
            raise
        try:
            events = self._append(prepare)
        finally:
            self._lock.release()
        if not events:
            return None
        first, last = events[0].envelope, events[-1].envelope
        durable = wanted == "fsync" and self._group.sync(last.seq) >= last.seq
        if wanted == "interval":
            interval.touch()
        return Commit(first.seq, last.seq, first.recorded_at_ns, durable)

    def settle(self, tip: Tip) -> Tip:
        """Write anew what a failed sync left in doubt. Under the lock of the store."""
        core = self._core
        with core.tail_lock:
            rewrite_suspect(core, tip.suspect_from)
        assert core.tip is not None
        with writing(core.path):
            return core.tip.settle(
                synced_seq=core.head_seq,
                segment_base=core.active.first_seq,
                synced_offset=core.active.end,
            )

    def covers(self, tip: Tip) -> None:
        """Settle what the witness calls suspect. Under the lock of the store, after catching up."""
        if tip.suspect_from:
            self._group.covered(self.settle(tip).synced_seq)

    def _append(self, prepare: Prepare) -> Sequence[StoredEvent]:
        """Catch up, ask the plan, write. Under the lock of the store."""
        core = self._core
        core.check()
        tip = self._tail.catch_up()
        if tip.suspect_from:
            tip = self.settle(tip)
            self._group.covered(tip.synced_seq)
        now_ns = max(core.options.clock(), core.time_ns)
        events = prepare(core.head_seq, now_ns)
        if not events:
            return ()
        core.check()
        try:
            encoded = encode_batch(
                events,
                store_id=core.store_id,
                chain=core.chain,
                synced=max(tip.synced_seq, self._group.durable_seq),
            )
            group, size = _next_group(encoded)
        except _CANNOT_ENCODE as error:
            raise _invalid(core, error) from error
        # How large a batch beyond one group will be is not known: it gets a file of its own.
        file = self._file_for(size if size < GROUP_BYTES else core.options.file_bytes_max + size)
        # A reader of this process must not find the lines before they are in the index: it would
        # take them in, and they would be there twice.
        with core.tail_lock:
            if file is not core.active:  # Only somebody who takes no lock can have done that.
                raise core.went_back("the file to append to, got another", file.path)
            written, end = self._write(file, group, encoded)
            with core.applying():
                for found in written:
                    core.apply(file, found)
                file.end = end
        return events

    def _file_for(self, size: int) -> EventsFile:
        """The last file, or a new one if a batch of this size would make it too large."""
        core = self._core
        active = core.active
        if active.end + size <= core.options.file_bytes_max or core.head_seq < active.first_seq:
            return active
        # A file is on disk whole before its successor exists, so whoever syncs the last one has
        # synced the log.
        try:
            core.fs.datasync(core.file_of(active).fd)
        except OSError as error:
            raise core.sync_failed(error) from error
        self._group.covered(core.head_seq)
        self.tell_tip(core.head_seq, active.first_seq, active.end)
        with writing(core.path):
            create_events(
                core.fs,
                core.path,
                store_id=core.store_id,
                first_seq=core.head_seq + 1,
                chain=core.chain,
                now_ns=core.options.clock(),
            )
        self._tail.catch_up()
        return core.active

    def _write(
        self, file: EventsFile, group: list[EncodedEvent], others: Iterator[EncodedEvent]
    ) -> tuple[list[Found], int]:
        """Write a batch at the end of a file, some megabytes at a time.

        Returns:
            Where its events are, and the end of the last.

        Args:
            group: The first events.
            others: Those that follow, encoded as they are taken.

        Raises:
            InvalidDraft: One of them cannot be encoded. The file was cut back to where it ended.
            StoreFull, LogWriteFailed: The same holds.
            LogPoisoned: It could not be cut back.
        """
        core, start = self._core, file.end
        fd = core.file_of(file).fd
        placed: list[Found] = []
        at = start
        try:
            while group:
                write_all(core.fs, fd, b"".join(line for one in group for line in one.lines), at)
                for one in group:
                    found, at = _placed(one, at)
                    placed.append(found)
                group, _ = _next_group(others)
        except BaseException as error:
            try:
                core.fs.truncate(fd, start)
            except OSError as failure:
                raise core.poisoned("truncate", failure, LogReason.TRUNCATE_FAILED) from error
            if isinstance(error, _CANNOT_ENCODE):
                raise _invalid(core, error) from error
            if not isinstance(error, OSError):
                raise
            failed = write_failed(error, file.path, start)
            if isinstance(failed, StoreFull):
                core.state = "full"
            raise failed from error
        if core.state == "full":
            core.state = "ok"
        return placed, at

    def _target(self) -> SyncTarget:
        """What a sync that starts now covers."""
        core = self._core
        core.check()
        with core.tail_lock:
            active = core.active
            return SyncTarget(core.file_of(active), core.head_seq, active.first_seq, active.end)

    def _synced(self, target: SyncTarget) -> int:
        """What is durable after a sync that went well, in this process.

        The system tells a failed write to the descriptors that were open then, once. So a sync may
        go well beside another that failed: what that one left in doubt is written anew first.
        """
        core = self._core
        if core.tip is None:
            return target.seq
        if core.options.read_only:
            tip = core.tip.read()
            return target.seq if not 0 < tip.suspect_from <= target.seq else tip.synced_seq
        suspect_from = self.tell_tip(target.seq, target.segment_base, target.offset)
        if not 0 < suspect_from <= target.seq:
            return target.seq
        assert self._lock is not None
        with self._lock.held(core.options.lock_timeout_s):
            tip = self._tail.catch_up()
            if tip.suspect_from:
                tip = self.settle(tip)
            return tip.synced_seq

    def tell_tip(self, seq: int, first_seq: int, offset: int) -> int:
        """Advance the witness; its `suspect_from`. Failing to write it costs nothing."""
        core = self._core
        assert core.tip is not None
        try:
            tip = core.tip.advance(synced_seq=seq, segment_base=first_seq, synced_offset=offset)
        except OSError as error:  # Also StoreBusy: a process was stopped while it held it.
            core.note(f"events.tip could not be written: {error}")
            return 0
        return tip.suspect_from


def _next_group(encoded: Iterator[EncodedEvent]) -> tuple[list[EncodedEvent], int]:
    """Events that are written with one call, and the bytes of their lines."""
    group: list[EncodedEvent] = []
    size = 0
    for one in encoded:
        group.append(one)
        size += sum(map(len, one.lines))
        if size >= GROUP_BYTES:
            break
    return group, size


def _placed(one: EncodedEvent, at: int) -> tuple[Found, int]:
    """An event whose lines stand at an offset, and the offset behind them."""
    places = []
    for line, row in zip(one.lines, one.first_rows, strict=True):
        places.append((at, len(line) - 1, row))
        at += len(line)
    payload = one.stored.payload
    timestamps, erased = timestamps_of_payload(payload), erased_of_payload(payload)
    return Found(one.stored.envelope, tuple(places), one.chain, timestamps, erased), at


def _invalid(core: Core, error: BaseException) -> InvalidDraft:
    return InvalidDraft(
        f"draft: expected an event that can be stored, got {error} ({core.path}); nothing "
        "was written",
        reason=LogReason.INVALID_DRAFT,
        path=core.path,
    )


def stored_drafts(
    core: Core, drafts: Sequence[Draft], head_seq: int, now_ns: int
) -> list[StoredEvent]:
    """The drafts as events with seqs, a time and nonces.

    Raises:
        InvalidDraft: One cannot be stored as it is. Nothing was written.
    """
    expected: dict[Stream, int] = {}
    events = []
    for number, draft in enumerate(drafts):
        _check_revision(core, expected, draft.stream, draft.revision, f"draft {number}")
        payload = _with_nonces(draft.payload)
        _check_payload(core, payload, draft.keys, f"draft {number}")
        events.append(StoredEvent(draft.envelope(head_seq + 1 + number, now_ns), payload))
    return events


def check_import(core: Core, events: Iterable[StoredEvent]) -> list[StoredEvent]:
    """Events of another journal, checked to follow the head.

    Raises:
        InvalidDraft: They do not, or one cannot be stored. Nothing was written.
    """
    expected: dict[Stream, int] = {}
    seq, time_ns = core.head_seq, core.time_ns
    taken = list(events)
    for event in taken:
        seq += 1
        envelope = event.envelope
        if envelope.seq != seq or envelope.recorded_at_ns < time_ns:
            raise InvalidDraft(
                f"import: expected seq {seq} and a time from {time_ns} on, got {envelope.seq} and "
                f"{envelope.recorded_at_ns} ({core.path}); nothing was written",
                reason=LogReason.NOT_NEXT,
                path=core.path,
                first_seq=envelope.seq,
            )
        time_ns = envelope.recorded_at_ns
        _check_revision(core, expected, envelope.stream, envelope.revision, f"event {seq}")
        _check_payload(core, event.payload, envelope.keys, f"event {seq}")
    return taken


def _check_revision(
    core: Core, expected: dict[Stream, int], stream: Stream, revision: int, where: str
) -> None:
    wanted = expected.get(stream)
    if wanted is None:
        wanted = core.streams.revision(stream) + 1
    if revision != wanted:
        raise InvalidDraft(
            f"{where}: expected revision {wanted} of stream {stream}, got {revision} "
            f"({core.path}); nothing was written",
            reason=LogReason.NOT_NEXT,
            path=core.path,
        )
    expected[stream] = revision + 1


def _check_payload(core: Core, payload: Payload, keys: Sequence[str], where: str) -> None:
    size = 0
    try:
        if isinstance(payload, Rows):
            check_rows(payload, keys)
            size = len(payload.notes) + payload.vectors.nbytes
        elif isinstance(payload, Blob):
            size = len(payload.data)
        elif not isinstance(payload, Erased):
            raise ValueError(f"payload: expected Blob, Rows or Erased, got {type(payload)}")
        if size > EVENT_BYTES_MAX:
            raise ValueError(f"payload: expected at most {EVENT_BYTES_MAX} bytes, got {size}")
    except (ValueError, AttributeError) as error:
        raise InvalidDraft(
            f"{where}: {error} ({core.path}); nothing was written",
            reason=LogReason.INVALID_DRAFT,
            path=core.path,
        ) from error


def _with_nonces(payload: Blob | Rows) -> Blob | Rows:
    if isinstance(payload, Blob):
        return Blob(payload.data, payload.nonce or os.urandom(NONCE_BYTES))
    if payload.nonces:
        return payload
    return replace(payload, nonces=os.urandom(NONCE_BYTES * len(payload)))
