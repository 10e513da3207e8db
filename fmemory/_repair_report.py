"""What a repair has to tell, gathered while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fmemory.journal import Envelope, Head, Journal, Stream
from fmemory.repair_models import DamagedEvent, LostEvents, RepairResult
from fmemory_segments.salvage import Salvaged, Trouble, Witness

STREAMS_NAMED_MAX: Final = 20
NO_TRACE: Final = "nothing is left of them"
UNDONE: Final = (
    "deletions among the lost events are undone: what they deleted is there again, and what the"
    " lost events had written is not"
)


@dataclass(slots=True)
class _Gap:
    """Lost events in a row, of one cause."""

    first_seq: int
    last_seq: int
    cause: Trouble | None
    streams: dict[Stream, None] = field(default_factory=dict)

    def told(self) -> LostEvents:
        cause = self.cause
        return LostEvents(
            first_seq=self.first_seq,
            last_seq=self.last_seq,
            reason=NO_TRACE if cause is None else cause.problem,
            file=None if cause is None else cause.file,
            offset=None if cause is None else cause.offset,
            streams=tuple(self.streams),
        )


class Report:
    """Turns what is found, in order, into a `RepairResult`."""

    def __init__(self) -> None:
        self._salvaged = 0
        self._gaps: list[_Gap] = []
        self._damaged: list[DamagedEvent] = []
        self._troubles: list[Trouble] = []
        self._notices: list[str] = []
        self._cause: tuple[Trouble | None, int] = None, -1
        self._witness: Witness | None = None
        self._is_end_known = True
        self._unharmed_before: int | None = None

    def salvaged(self, one: Salvaged) -> None:
        """An event that came back."""
        self._salvaged += 1
        for harm in one.harm:
            self._harmed(one.seq)
            self._damaged.append(
                DamagedEvent(
                    seq=one.seq,
                    keys=harm.keys,
                    is_payload_lost=harm.is_payload_lost,
                    reason=f"expected {harm.problem} as written, got other bytes",
                    file=one.file,
                    offset=one.offset,
                )
            )

    def lost(self, seq: int, stream: Stream | None) -> None:
        """An event that did not, with the stream that it belonged to, where that is known."""
        self._harmed(seq)
        cause = self._cause_of(seq)
        gap = self._gaps[-1] if self._gaps else None
        if gap is None or gap.last_seq != seq - 1 or gap.cause is not cause:
            gap = _Gap(seq, seq, cause)
            self._gaps.append(gap)
        gap.last_seq = seq
        if stream is not None and len(gap.streams) < STREAMS_NAMED_MAX:
            gap.streams[stream] = None

    def unstorable(self, envelope: Envelope, problem: str) -> None:
        """An event that came back, and that the target cannot hold."""
        self._salvaged -= 1
        self._damaged = [one for one in self._damaged if one.seq != envelope.seq]
        self.trouble(Trouble(problem, first_seq=envelope.seq, last_seq=envelope.seq))
        self.lost(envelope.seq, envelope.stream)
        self._gaps.sort(key=lambda one: one.first_seq)

    def trouble(self, one: Trouble) -> None:
        """Something that is not as it was written."""
        self._is_end_known = self._is_end_known and not one.hides_end
        if one.lost:
            self._troubles.append(one)
        else:
            self._notices.append(_sentence(one))

    def witness(self, one: Witness) -> None:
        """What the store says of itself; a chain value that must hold where nothing is lost."""
        bound = self._unharmed_before
        if one.chain is None or (bound is not None and one.seq >= bound):
            return
        before = self._witness
        if before is None or (one.seq, one.is_head) >= (before.seq, before.is_head):
            self._witness = one

    def result(self, head: Head, journal: Journal, *, durable: bool) -> RepairResult:
        """All of it."""
        used = [one.cause for one in self._gaps]
        unused = [_sentence(one) for one in self._troubles if one not in used]
        witness, matches = self._witness, None
        if witness is not None and witness.seq <= head.seq:
            matches = journal.head(witness.seq).chain == witness.chain
        if matches is False:
            assert witness is not None
            unused.append(
                f"the store says another chain value after event {witness.seq} than its events"
                " have: one of them was edited, removed or reordered"
            )
        is_at_head = witness is not None and witness.seq == head.seq and not self._gaps
        return RepairResult(
            salvaged=self._salvaged,
            lost=tuple(one.told() for one in self._gaps),
            damaged=tuple(self._damaged),
            head=str(head),
            head_matches=matches if is_at_head or matches is False else None,
            is_end_known=self._is_end_known,
            durable=durable,
            notices=(*self._notices, *unused, *((UNDONE,) if self._gaps else ())),
        )

    def _cause_of(self, seq: int) -> Trouble | None:
        """Why an event is missing: what names it, else the newest that may concern it."""
        cause, count = self._cause
        if count == len(self._troubles) and (cause is None or seq <= (cause.last_seq or seq)):
            return cause
        cause = None
        for one in reversed(self._troubles):
            first_seq, last_seq = one.first_seq or 0, one.last_seq or seq
            if first_seq <= seq <= last_seq:
                cause = one
                if one.first_seq is not None and one.last_seq is not None:
                    break
        self._cause = cause, len(self._troubles)
        return cause

    def _harmed(self, seq: int) -> None:
        bound = self._unharmed_before
        self._unharmed_before = seq if bound is None else min(bound, seq)
        if self._witness is not None and self._witness.seq >= seq:
            self._witness = None


def _sentence(one: Trouble) -> str:
    if one.file is None:
        return one.problem
    place = one.file if one.offset is None else f"{one.file}, byte {one.offset}"
    return f"{one.problem} ({place})"
