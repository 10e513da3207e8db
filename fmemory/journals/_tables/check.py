"""`verify` of a table of events: every meta, every payload, every stream, and pinned heads."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from fmemory.journal import Finding, Pinned, PinnedHeads, Stream, StreamInfo
from fmemory.journals._tables.event_table import EventTable, MetaRow
from fmemory_segments import LogReason, chain_step, event_digest, payload_digest
from fmemory_segments.event import ZERO_CHAIN
from fmemory_segments.event_bytes import BytesDamage, StoredMeta

PAGE_EVENTS: Final = 64


def check_table(table: EventTable, have: int, pinned: Pinned) -> list[Finding]:
    """What is wrong with events 1 to `have`. Cost: O(bytes); holds some events at a time."""
    check = _Check(table)
    pins = PinnedHeads(pinned)
    for row in _rows(table, have):
        check.event(row)
        pins.see(row.seq, check.chain)
    check.end(have)
    return check.findings + pins.findings(have)


class _Check:
    """One pass over a table, in order.

    Attributes:
        chain: Chain value up to here; None once an event is missing or damaged.
        findings: What is wrong so far.
    """

    def __init__(self, table: EventTable) -> None:
        self._table = table
        self._seq = 0
        self._time_ns = 0
        self._is_sure = True
        self._streams: dict[Stream, StreamInfo] = {}
        self._erased = array("Q")
        self.chain: bytes | None = ZERO_CHAIN
        self.findings: list[Finding] = []

    def event(self, row: MetaRow) -> None:
        """Check the next event that is there."""
        seq = row.seq
        if seq != self._seq + 1:
            self._damage(
                LogReason.FRAME_ORDER,
                f"events: expected event {self._seq + 1} next, got {seq}; events are missing",
                self._seq + 1,
                seq - 1,
            )
            self._is_sure = False
            self.chain = None
        self._seq = seq
        while True:
            try:
                stored = StoredMeta(*row)
            except BytesDamage as damage:
                self._damage(LogReason.META_CHECKSUM, f"event {seq}: {damage.args[0]}", seq, seq)
                self._is_sure = False
                self.chain = None
                return
            data = self._table.data_of({seq: stored.check}).get(seq, b"")
            try:
                payload = stored.payload(data)
                break
            except BytesDamage as damage:
                now = self._table.metas_of([seq])
                if now and now[0].check != row.check:
                    row = now[0]  # Data were taken out meanwhile.
                    continue
                self._damage(LogReason.ROW_CHECKSUM, f"event {seq}: {damage.args[0]}", seq, seq)
                self._place(stored)
                self.chain = None
                return
        self._place(stored)
        if stored.is_erased:
            self._erased.append(seq)
        if self.chain is not None:
            digest = event_digest(stored.envelope, payload_digest(payload))
            self.chain = chain_step(self.chain, digest)

    def end(self, have: int) -> None:
        """Check what is after the last event, and the table of streams.

        Where an event is missing or cannot be read, nobody knows what its stream should be.
        """
        if self._seq != have:
            self._damage(
                LogReason.FRAME_ORDER,
                f"events: expected events up to {have}, got {self._seq}",
                self._seq + 1,
                have,
            )
        self._check_marks(have)
        if not self._is_sure:
            return
        listed = {info.stream: info for info in self._table.streams((), None, None)}
        for stream in {**listed, **self._streams}:
            expected, got = self._streams.get(stream), listed.get(stream)
            if expected != got and not (got is not None and got.last_seq > have):
                self._damage(
                    LogReason.FRAME_CONTENT,
                    f"stream {stream}: expected {expected} by its events, got {got} in the table"
                    " of streams",
                    None if expected is None else expected.first_seq,
                    None if expected is None else expected.last_seq,
                )

    def _check_marks(self, have: int) -> None:
        """Compare the marks of erased events with their metas: by the marks they are found."""
        marked = set[int]()
        after = 0
        while rows := self._table.erased(after, have, stream=None, limit=PAGE_EVENTS):
            after = rows[-1].seq
            for row in rows:
                marked.add(row.seq)
                with suppress(BytesDamage):  # told where its meta was read
                    if not StoredMeta(*row).is_erased:
                        self._mark_damage(row.seq, "no mark", "one")
        for seq in self._erased:
            if seq not in marked:
                self._mark_damage(seq, "the mark of an erased event", "none")

    def _mark_damage(self, seq: int, expected: str, got: str) -> None:
        message = f"event {seq}: expected {expected}, got {got}"
        self._damage(LogReason.FRAME_CONTENT, message, seq, seq)

    def _place(self, stored: StoredMeta) -> None:
        event, seq = stored.event, stored.seq
        before = self._streams.get(event.stream)
        revision = 1 if before is None else before.revision + 1
        is_next = event.revision == revision or (event.revision > revision and not self._is_sure)
        if not is_next or stored.recorded_at_ns < self._time_ns:
            self._damage(
                LogReason.FRAME_ORDER,
                f"event {seq}: expected revision {revision} of stream {event.stream}, recorded from"
                f" {self._time_ns} on, got revision {event.revision} recorded at"
                f" {stored.recorded_at_ns}",
                seq,
                seq,
            )
        self._time_ns = max(self._time_ns, stored.recorded_at_ns)
        first_seq = seq if before is None else before.first_seq
        self._streams[event.stream] = StreamInfo(
            event.stream, event.revision, event.revision, first_seq, seq, stored.recorded_at_ns
        )

    def _damage(
        self, reason: LogReason, message: str, first_seq: int | None, last_seq: int | None
    ) -> None:
        self.findings.append(
            Finding(
                reason,
                f"{message} ({self._table.path})",
                first_seq=first_seq,
                last_seq=last_seq,
            )
        )


def _rows(table: EventTable, have: int) -> Iterator[MetaRow]:
    after = 0
    while after < have:
        rows = table.metas(after, have, stream=None, backwards=False, limit=PAGE_EVENTS)
        if not rows:
            return
        yield from rows
        after = rows[-1].seq
