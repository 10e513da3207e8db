"""Moving a log from any journal to any other: every event as it is, and the same chain.

A copy has the seqs, times, actors, ids, streams and nonces of its source, so nobody can tell the
two apart by what they read, and a head that was pinned on one holds for the other. Only the store's
id is not copied, so cursors of one are not those of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from fmemory._engine.backend import JournalBackend
from fmemory._engine.work import payload_bytes
from fmemory._json_values import type_name
from fmemory._model import Model, check_int
from fmemory.errors import (
    Conflict,
    ContractError,
    LogCorrupt,
    MemoryBackendError,
    NotFound,
    ReadOnlyStore,
    Reason,
    brief,
)
from fmemory.journal import Envelope, Erased, Erasure, Head, Journal, Payload, StoredEvent
from fmemory_segments import FORGOTTEN

__all__ = ["CopyResult", "copy_log"]

BATCH_EVENTS_MAX: Final = 2048
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
READ_EVENTS_MAX: Final = 128
READ_ROWS_MAX: Final = 4096


class CopyResult(Model, frozen=True):
    """What a copy did.

    Attributes:
        copied: Events that were appended to the target.
        present: Events that the target had before.
        payload_bytes: Bytes of the payloads that were copied.
        head: The last event copied with its chain value, as `str(memory.head())`; both logs have
            it, and it was checked.
        durable: Whether all of it is on the target's disk.
    """

    copied: int
    present: int
    payload_bytes: int
    head: str
    durable: bool


def copy_log(
    source: JournalBackend | Journal,
    target: JournalBackend | Journal,
    *,
    upto: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> CopyResult:
    """Append every event of a log to another that holds none, or the first of the same events.

    The source is read up to its newest event of when this begins, and may be written meanwhile;
    a later copy brings what came since. A source that is open for writing is synced first, so that
    no power cut takes from it what the copy has: it could not be copied to again. A copy that was
    interrupted has left the first events, in order, and is gone on with by copying again. Nobody
    else should write the target before the end. What the target has and the source has forgotten is
    forgotten there, too, where the deletion comes as a stub: nothing else would tell that it was
    deleted.

    Args:
        source: A memory or journal to read; its events are never changed.
        target: A memory or journal to append to.
        upto: Copy events up to this seq; None = the newest.
        progress: Told how many events were copied since it was last told.

    Returns:
        What was copied. The target has then been verified: every byte, and its chain against the
        source's.

    Raises:
        ContractError: The two are one log, a value is none of those taken, or an event is larger
            than the target can hold. Nothing was written, or the first events.
        NotFound: `upto` is beyond the source's newest event.
        Conflict: The target holds something else than the first events of the source, or data of
            which the source has forgotten the deletion since, or another process wrote to it
            meanwhile. What it held is as it was.
        ReadOnlyStore: The target was opened for reading.
        LogCorrupt: An event of the source is damaged: those before it were copied. Or the copy is
            not what was written: the message says which of its events.
        StorageError: One of the two failed; the target holds the first events.

    Durability: as the target was opened, and then synced: on disk when this returns, where the
        target has one.
    Cost: reads the source twice, the second time for its chain; writes the target once and reads
        it twice, to verify it. Memory: one batch of about 8 MiB at most, or one larger event; more
        only where many large events follow many small ones, 128 of which may be read together.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as one, fmemory.open(":memory:") as other:
    ...     note = one.add_note("the parser rejects empty input", id="n1")
    ...     result = copy_log(one, other)
    ...     other.head() == one.head(), result.copied, result.present
    (True, 1, 0)
    """
    reader, writer = _journal_of(source, "source"), _journal_of(target, "target")
    last = _last_seq(reader, upto)
    present = _check_target(reader, writer, last)
    if last and not reader.read_only:
        reader.sync(last)
    _forget_as_source(reader, writer, present)
    have, size = present, 0
    while have < last:
        events = _next_batch(reader, have, last)
        size += sum(_size(one.payload) for one in events)
        reached = _append(reader, writer, events)
        if progress is not None:
            progress(reached - have)
        have = reached
    # The source may have forgotten events after they were copied, and before their deletion was.
    _forget_as_source(reader, writer, last)
    durable_seq = writer.sync() if last else 0
    head = _check_copy(reader, writer, last)
    return CopyResult(
        copied=last - present,
        present=present,
        payload_bytes=size,
        head=str(head),
        durable=durable_seq >= last,
    )


def _journal_of(memory: object, where: str) -> Journal:
    if isinstance(memory, JournalBackend):
        return memory.journal
    if isinstance(memory, Journal):
        return memory
    raise ContractError(
        f"expected a memory that keeps its events in a journal, got {type_name(memory)}; records of"
        " any memory move by dump and load",
        where=where,
        reason=Reason.WRONG_TYPE,
    )


def _last_seq(source: Journal, upto: int | None) -> int:
    newest = source.refresh()
    if upto is None:
        return newest
    try:
        last = check_int(upto)
    except ContractError as error:
        raise error.within("upto") from None
    if last < 0:
        raise ContractError(
            f"expected a seq, 0 or more, got {last}", where="upto", reason=Reason.OUT_OF_RANGE
        )
    if last > newest:
        raise NotFound(
            f"upto: expected a seq up to {newest}, got {last}",
            reason=Reason.EVENT_NOT_FOUND,
            key=str(last),
        )
    return last


def _check_target(source: Journal, target: Journal, last: int) -> int:
    """How many events the target has, when they are the first of the source."""
    if source.store_id == target.store_id:
        raise ContractError(
            "expected another log to copy to, got the source itself; nothing was written",
            where="target",
            reason=Reason.UNSUPPORTED,
        )
    if target.read_only:
        raise ReadOnlyStore("copy: expected a target to write to, got one opened for reading")
    have = target.refresh()
    if have > last:
        raise _not_a_prefix(f"{have} events, which are more than the {last} to be copied", have)
    if have and target.head(have) != source.head(have):
        raise _not_a_prefix(f"other events than the first {have} of the source", have)
    return have


def _forget_as_source(source: Journal, target: Journal, upto: int) -> None:
    """Make stubs of events that the source has forgotten and whose deletion the target lacks.

    Cost: O(erased events) of both.
    """
    erased = _erased_whole(source, upto)
    if not erased:
        return
    ends: dict[int, int] = {}
    for seq in sorted(erased - _erased_stubs(target, upto, erased)):
        (stub,) = source.envelopes(seq - 1, seq)
        if stub.type == FORGOTTEN and _lacks_deletion(target, stub.count, upto):
            ends[seq] = stub.count
    if ends:
        forget, of_each = (np.array(list(part), np.uint64) for part in (ends, ends.values()))
        nothing = np.zeros(0, np.uint64)
        target.compact(Erasure(upto, nothing, nothing, forget, of_each))


def _erased_whole(journal: Journal, upto: int) -> set[int]:
    return {one.seq for one in journal.erased(0, upto) if one.rows is None}


def _erased_stubs(target: Journal, upto: int, among: set[int]) -> set[int]:
    """Those of some events that are stubs in the target."""
    return {
        seq
        for seq in _erased_whole(target, upto) & among
        if next(iter(target.envelopes(seq - 1, seq))).type == FORGOTTEN
    }


def _lacks_deletion(target: Journal, end: int, upto: int) -> bool:
    if end > upto:
        return True
    (event,) = target.envelopes(end - 1, end)
    return event.type == FORGOTTEN


def _not_a_prefix(holds: str, actual: int) -> Conflict:
    return Conflict(
        "copy: expected a target without events, or with the first events of the source and no"
        f" others, got one with {holds}; nothing was written; give another target",
        reason=Reason.TARGET_EXISTS,
        actual=actual,
    )


def _next_batch(source: Journal, after: int, last: int) -> list[StoredEvent]:
    """The events behind `after`, up to a bound in number and bytes; at least one.

    No journal tells how large a payload is without reading it. So a batch begins with one event,
    and reads up to twice as many each time, as many as fit if they are no larger than those before.
    """
    envelopes = source.envelopes(after, last)
    batch: list[StoredEvent] = []
    size, events_max = 0, 1
    while size < BATCH_BYTES_MAX:
        group = _group(envelopes, min(events_max, BATCH_EVENTS_MAX - len(batch)))
        if not group:
            break
        try:
            payloads = source.payloads([one.seq for one in group])
        except LogCorrupt:
            if not batch:
                raise
            # What is whole before the damage is copied first: the next batch begins small again.
            break
        sizes = [_size(payload) for payload in payloads]
        batch += map(StoredEvent, group, payloads)
        size += sum(sizes)
        fitting = (BATCH_BYTES_MAX - size) // max(1, *sizes)
        events_max = max(1, min(2 * events_max, READ_EVENTS_MAX, fitting))
    return batch


def _group(envelopes: Iterator[Envelope], events_max: int) -> list[Envelope]:
    """The next envelopes: so many, or fewer where they put many rows."""
    group: list[Envelope] = []
    rows = 0
    for envelope in islice(envelopes, events_max):
        group.append(envelope)
        rows += 0 if envelope.type == FORGOTTEN else envelope.count
        if rows >= READ_ROWS_MAX:
            break
    return group


def _append(source: Journal, target: Journal, events: Sequence[StoredEvent]) -> int:
    """Append one batch; the seq that the target has then reached."""
    first, last = events[0].envelope.seq, events[-1].envelope.seq
    try:
        target.import_exact(events)
    except MemoryBackendError as error:
        try:
            have = target.refresh()
        except MemoryBackendError:
            raise error from error.__cause__
        if have >= last and target.head(last) == source.head(last):
            # Stored all the same: the answer was lost, or somebody else copies the same log.
            return last
        if have >= first:
            raise Conflict(
                f"copy: expected event {first} next in the target, got {have} events in it: another"
                " process writes to it; what is there is as it was",
                reason=Reason.TARGET_EXISTS,
                expected=first - 1,
                actual=have,
            ) from error
        raise
    return last


def _check_copy(source: Journal, target: Journal, last: int) -> Head:
    """The head that both have, when every byte of the target is as it was written."""
    head = source.head(last)
    found = target.head(last)
    if found != head:
        raise LogCorrupt(
            f"copy: expected the chain {brief(head.chain.hex()[:16])} at event {last}, got"
            f" {brief(found.chain.hex()[:16])}: the target holds another history; remove it and"
            " copy again",
            seq=1,
            last_seq=last,
        )
    damage = [one for one in target.verify(head) if one.damage]
    if damage:
        one = damage[0]
        raise LogCorrupt(
            f"copy: the target was verified, and {one.message}",
            path=one.file,
            offset=one.offset,
            seq=one.first_seq,
            last_seq=one.last_seq,
        )
    return head


def _size(payload: Payload) -> int:
    return len(payload.digest) if isinstance(payload, Erased) else payload_bytes(payload)
