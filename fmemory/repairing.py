"""Salvaging a damaged store into a new one: every intact event, under the number it had.

A source is read twice: its envelopes first, to learn to which streams lost events belonged, then
all of it. It is never written. Events go through `Journal.import_exact` in batches; where one was
lost a placeholder takes its seq, so that numbers, streams and revisions go on. docs/repair.md has
the rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final, Protocol

from fmemory._engine.backend import JournalBackend
from fmemory._engine.types import EventType
from fmemory._engine.work import payload_bytes
from fmemory._repair_plan import Slots, Survey, refusal_of, survey
from fmemory._repair_report import Report
from fmemory._repair_sources import opened_source, opened_target
from fmemory.errors import ContractError, LogCorrupt
from fmemory.journal import Envelope, Erased, Journal, Payload, StoredEvent, Stream
from fmemory.journals._segments import raise_translated
from fmemory.repair_models import DamagedEvent, LostEvents, RepairResult
from fmemory_segments import LogError
from fmemory_segments.salvage import Found, Salvaged, Trouble, Witness

__all__ = ["DamagedEvent", "LostEvents", "RepairResult", "repair"]

BATCH_EVENTS_MAX: Final = 2048
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
LOST_DIGEST: Final = bytes(32)
PLACEHOLDER_REASON: Final = "a repair found this event lost"


class Salvage(Protocol):
    """A store that can be read as far as it is intact; the same each time."""

    def found(self, *, payloads: bool = True) -> Iterator[Found]:
        """Its events by seq, and what it says of itself; without payloads if they are not asked."""
        ...


def repair(
    source: str | os.PathLike[str] | JournalBackend | Journal,
    target: str | os.PathLike[str] | JournalBackend | Journal,
    *,
    progress: Callable[[int], None] | None = None,
) -> RepairResult:
    """Salvage every intact event of a damaged store into a new one, of any kind.

    Events keep number, stream, revision, times and content. Where one was lost a placeholder of
    type `event_lost` has its number. Of an event whose content is damaged the envelope comes back,
    and of a put every record that is intact. `verify` of the new store reports exactly what was
    lost, as data that nothing deleted.

    Args:
        source: What `fmemory.open` takes, also where it does not open; or an open memory or
            journal. Nothing of it is changed, and no file is made beside it. Nobody should write
            to it meanwhile.
        target: What `fmemory.open` takes, or an open memory or journal; it must hold nothing.
        progress: Told how many events the target got since it was last told.

    Returns:
        What came back and each thing that did not.

    Raises:
        ContractError: One of the two names no store, or both name one. Nothing was written.
        NotFound: There is nothing at the source.
        Conflict: The target holds events. Nothing was written.
        LogCorrupt: The target does not hold what was written to it: look at its disk.
        StorageError: The source cannot be read at all, or a newer version wrote it: nothing was
            written. Or the target failed; that may hold the first events, and is to be removed.

    Durability: on disk when this returns, where the target has one.
    Cost: reads the source twice, the target is written once and read once to verify it. Memory: a
        batch of about 8 MiB, an entry a stream, and the report.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as damaged, fmemory.open(":memory:") as new:
    ...     note = damaged.add_note("the parser rejects empty input", id="n1")
    ...     result = repair(damaged, new)
    ...     result.salvaged, result.lost, result.head_matches
    (1, (), True)
    """
    with ExitStack() as stack:
        try:
            salvage = opened_source(stack, source)
            known = survey(salvage.found(payloads=False))
            journal = opened_target(stack, source, target)
            return _Importer(journal, known, progress).run(salvage)
        except LogError as error:
            raise_translated(error)


class _Importer:
    """Writes what a salvage finds into an empty journal."""

    def __init__(
        self, journal: Journal, known: Survey, progress: Callable[[int], None] | None
    ) -> None:
        self._journal = journal
        self._known = known
        self._progress = progress
        self._slots = Slots(known)
        self._report = Report()
        self._revisions: dict[Stream, int] = {}
        self._batch: list[StoredEvent] = []
        self._batch_bytes = 0
        self._seq = 0
        self._time_ns = 0

    def run(self, salvage: Salvage) -> RepairResult:
        """All of a salvage."""
        for one in salvage.found():
            match one:
                case Salvaged():
                    self._take(one)
                case Trouble():
                    self._report.trouble(one)
                case Witness():
                    self._report.witness(one)
        self._lose_until(self._known.last_seq)
        self._flush()
        durable_seq = self._journal.sync() if self._seq else 0
        head = self._journal.head()
        for finding in self._journal.verify(head):
            if finding.damage:
                raise LogCorrupt(
                    f"repair: the new store was verified, and {finding.message}; remove it, look at"
                    " its disk, then repair again",
                    path=finding.file,
                    offset=finding.offset,
                    seq=finding.first_seq,
                    last_seq=finding.last_seq,
                )
        return self._report.result(head, self._journal, durable=durable_seq >= self._seq)

    def _take(self, one: Salvaged) -> None:
        """Give an event its place, or say why it gets none."""
        envelope = one.event.envelope
        revision = self._revisions.get(envelope.stream, 0)
        refusal = refusal_of(envelope, self._seq, self._time_ns, revision)
        if refusal:
            self._refuse(one, refusal)
            return
        self._lose_until(envelope.seq - 1)
        revision = self._revisions.get(envelope.stream, 0)
        if envelope.stream in self._slots.broken or envelope.revision != revision + 1:
            self._slots.broken.add(envelope.stream)
            self._refuse(
                one,
                f"it has revision {envelope.revision} of a stream that has {revision}, and fewer"
                " events were lost before it than that needs",
            )
            self._lose_until(envelope.seq)
            return
        self._report.salvaged(one)
        self._append(one.event)

    def _refuse(self, one: Salvaged, problem: str) -> None:
        seq = one.seq
        self._report.trouble(
            Trouble(
                f"event {seq} is intact and has no place in the log: {problem}",
                one.file,
                one.offset,
                seq,
                seq,
                lost=seq > self._seq,
            )
        )

    def _lose_until(self, seq: int) -> None:
        """Placeholders for what is missing up to a seq."""
        while self._seq < seq:
            number = self._seq + 1
            place = self._slots.take(number)
            self._report.lost(number, None if place is None else place[0])
            if place is None:
                stream = self._known.lost_stream
                place = stream, self._revisions.get(stream, 0) + 1
            self._append(_placeholder(number, *place, self._time_ns))

    def _append(self, event: StoredEvent) -> None:
        envelope = event.envelope
        self._batch.append(event)
        self._batch_bytes += _size(event.payload)
        self._revisions[envelope.stream] = envelope.revision
        self._seq, self._time_ns = envelope.seq, envelope.recorded_at_ns
        if len(self._batch) >= BATCH_EVENTS_MAX or self._batch_bytes >= BATCH_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if not batch:
            return
        try:
            self._journal.import_exact(batch)
        except ContractError:
            # One of them cannot be stored there; the batch left nothing.
            for event in batch:
                self._import_one(event)
        if self._progress is not None:
            self._progress(len(batch))

    def _import_one(self, event: StoredEvent) -> None:
        envelope = event.envelope
        try:
            self._journal.import_exact([event])
        except ContractError as error:
            self._report.unstorable(envelope, str(error))
            place = envelope.stream, envelope.revision
            lost = _placeholder(envelope.seq, *place, envelope.recorded_at_ns)
            self._journal.import_exact([lost])


def _placeholder(seq: int, stream: Stream, revision: int, time_ns: int) -> StoredEvent:
    """What has the number of a lost event."""
    envelope = Envelope(
        seq, stream, revision, EventType.EVENT_LOST, time_ns, reason=PLACEHOLDER_REASON
    )
    return StoredEvent(envelope, Erased(LOST_DIGEST))


def _size(payload: Payload) -> int:
    return len(payload.digest) if isinstance(payload, Erased) else payload_bytes(payload)
