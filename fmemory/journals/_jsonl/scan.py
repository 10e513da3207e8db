"""Scanning a file's bytes for whole batches, and judging what stands where they end.

Text differs from frames in what a crash can leave. A line never contains a NUL byte, so a line
that does was never written whole; and a prefix of a batch ends without a newline or between lines.
So a line that ends with a newline, holds no NUL and has a wrong checksum was changed by somebody:
that is damage, with or without a witness. docs/jsonl.md owns the rules. No I/O happens here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from fmemory.journals._jsonl.file_bytes import Data, is_made_of
from fmemory.journals._jsonl.lines import (
    IndexFields,
    erased_of,
    ids_of,
    line_salt,
    parse_line,
    parse_loosely,
    timestamps_of,
)
from fmemory_segments import Envelope, LogReason
from fmemory_segments.event import DIGEST_BYTES, BoolArray, Float64Array

NUL: Final = b"\0"
BLOCK_BYTES_MIN: Final = 512
BLANK: Final = b" \t\r\n"
_SEQ_START: Final = b'{"seq":'
_SEQ_DIGITS_MAX: Final = 20
_SEQ_MAX: Final = (1 << 64) - 1


@dataclass(slots=True)
class Found:
    """An event in a file.

    Attributes:
        envelope: The event without its payload.
        lines: Offset, size without the newline, and first record of each of its lines.
        chain: Chain value after it.
        timestamps: Of the records it puts; None for any other event.
        erased: Which of its records are, shape (n,); True = its payload is; False = nothing.
    """

    envelope: Envelope
    lines: tuple[tuple[int, int, int], ...]
    chain: bytes
    timestamps: Float64Array | None
    erased: BoolArray | bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Where whole batches end although bytes follow.

    Attributes:
        start: Offset behind the last whole batch.
        offset: Offset of the line that is to blame.
        seq: Seq of the event that it should belong to.
        batch_seq: First seq of the batch that would begin at `start`.
        reason: What was found.
        evidence: "expected X, got Y".
        is_damage: True if no crash can have left this; else it depends on what follows.
    """

    start: int
    offset: int
    seq: int
    batch_seq: int
    reason: LogReason
    evidence: str
    is_damage: bool


@dataclass(slots=True)
class Scan:
    """What was found from an offset on.

    Attributes:
        events: Of whole batches.
        end: Offset behind the last whole batch.
        stop: What hinders to go on; None at a clean end.
        lacks_newline: The last line is whole but for its newline, which `end` counts.
        synced: The largest seq that one of the batches calls synced.
    """

    end: int
    events: list[Found] = field(default_factory=list)
    stop: Stop | None = None
    lacks_newline: bool = False
    synced: int = 0


class Misplaced(Exception):  # noqa: N818 - never leaves this layer
    """A line that cannot stand where it was found."""

    def __init__(self, reason: LogReason, evidence: str) -> None:
        self.reason = reason
        self.evidence = evidence


def scan(
    data: Data,
    *,
    base: int,
    next_seq: int,
    time_ns: int,
    store_id: bytes,
    whole: bool,
    start: int = 0,
) -> Scan:
    """The whole batches in some bytes of a file.

    Args:
        data: Bytes from an offset on, to the end of the file.
        base: That offset.
        start: Where in the data a batch begins.
        next_seq: Seq of the first event.
        time_ns: Time of the event before it.
        store_id: The store's.
        whole: Take a last line that lacks only its newline; else wait for it.
    """
    result = Scan(base + start)
    batch = Batch(next_seq, time_ns)
    at = start
    while at < len(data):
        end = data.find(b"\n", at)
        is_ended = end >= 0
        line = data[at : end if is_ended else len(data)]
        if not is_ended and not whole:
            result.stop = _unended(batch, result, base + at)
            break
        fields = parse_line(line, line_salt(store_id, batch.seq))
        if fields is None:
            result.stop = _bad_line(batch, result, base + at, line, store_id, is_ended)
            break
        try:
            batch.add(fields, base + at, len(line))
        except Misplaced as failure:
            result.stop = Stop(
                result.end,
                base + at,
                batch.seq,
                batch.first_seq,
                failure.reason,
                failure.evidence,
                is_damage=True,
            )
            break
        at += len(line) + 1
        if batch.is_whole:
            result.events += batch.taken
            result.synced = max(result.synced, batch.synced)
            result.end = base + at
            result.lacks_newline = not is_ended
            batch = Batch(batch.seq, batch.time_ns)
    if result.stop is None and batch.line_count:
        result.stop = Stop(
            result.end,
            base + len(data),
            batch.seq,
            batch.first_seq,
            LogReason.TORN_TAIL,
            f"a batch of {batch.line_count} lines, got the first {batch.line_number}",
            is_damage=False,
        )
    return result


def later_lines(data: Data, start: int, store_id: bytes) -> Iterator[tuple[int, IndexFields]]:
    """Whole lines behind a place, with their offsets, whatever event they are of."""
    at = start
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at:end]
        seq = seq_of(line)
        if seq is not None:
            fields = parse_line(line, line_salt(store_id, seq))
            if fields is not None:
                yield at, fields
        at = end + 1


def seq_of(line: bytes | memoryview) -> int | None:
    """The seq that a line names at its start; None if it names none."""
    start = bytes(line[: len(_SEQ_START) + _SEQ_DIGITS_MAX])
    digits = start[len(_SEQ_START) :].partition(b",")[0]
    if not start.startswith(_SEQ_START) or not digits.isdigit():
        return None
    seq = int(digits)
    return seq if seq <= _SEQ_MAX else None


def judge(stop: Stop, data: Data, *, base: int, synced_seq: int, store_id: bytes) -> Stop:
    """Whether what stands at a stop was torn by a crash, or damaged: then with its evidence.

    Args:
        data: The bytes that were scanned.
        base: Their offset.
        synced_seq: What the witness says was on disk.
    """
    if stop.is_damage:
        return stop
    if is_made_of(data, stop.start - base, BLANK):
        return stop
    if synced_seq >= stop.batch_seq:
        return _damaged(stop, f"although events.tip says that seq {synced_seq} was on disk")
    bad = stop.offset - base
    nul = data.find(NUL, bad)
    for at, fields in later_lines(data, bad, store_id):
        if at == bad:
            continue
        if fields.synced >= stop.batch_seq:
            return _damaged(
                stop,
                f"although a later line (seq {fields.seq}) says that everything up to seq "
                f"{fields.synced} was on disk",
            )
        if not bad <= nul < at:
            return _damaged(stop, f"although a whole line (seq {fields.seq}) follows")
    return stop


def _damaged(stop: Stop, why: str) -> Stop:
    return Stop(
        stop.start,
        stop.offset,
        stop.seq,
        stop.batch_seq,
        stop.reason if stop.reason is not LogReason.TORN_TAIL else LogReason.ACKNOWLEDGED_LOSS,
        f"{stop.evidence}, {why}",
        is_damage=True,
    )


def _unended(batch: Batch, result: Scan, offset: int) -> Stop:
    return Stop(
        result.end,
        offset,
        batch.seq,
        batch.first_seq,
        LogReason.TORN_TAIL,
        "a line that ends with a newline, got the end of the file",
        is_damage=False,
    )


def _bad_line(
    batch: Batch, result: Scan, offset: int, line: bytes, store_id: bytes, is_ended: bool
) -> Stop:
    """Why a line is none that can stand here."""
    if not is_ended:
        return _unended(batch, result, offset)
    reason, evidence, is_damage = LogReason.FRAME_CHECKSUM, "", True
    seq = seq_of(line)
    if NUL in line:
        first = line.index(NUL)
        evidence = f"a line of event {batch.seq}, got {line.count(NUL)} NUL bytes"
        # A block that was never written begins where a block, or the write that needed it, does.
        is_damage = first > 0 and (offset + first) % BLOCK_BYTES_MIN != 0
    elif not line.strip(BLANK):
        evidence, is_damage = f"a line of event {batch.seq}, got a blank line", False
    elif line.endswith(b"\r") and parse_line(line[:-1], line_salt(store_id, batch.seq)):
        evidence = "a line that ends with LF, got CR LF: a tool has converted the file"
    elif seq is not None and seq != batch.seq and parse_line(line, line_salt(store_id, seq)):
        reason = LogReason.FRAME_ORDER
        evidence = f"a line of event {batch.seq}, got one of event {seq}"
    elif parse_loosely(line) is None:
        evidence = "a line of JSON with the fields of an event, got other text"
    else:
        evidence = "a line with its checksum, got one that was changed after it was written"
    if not is_damage and not line.strip(BLANK) and result.end != offset:
        is_damage = True  # Within a batch nobody leaves a blank line.
    return Stop(result.end, offset, batch.seq, batch.first_seq, reason, evidence, is_damage)


class Batch:
    """A batch whose lines are being read."""

    def __init__(self, seq: int, time_ns: int) -> None:
        self.first_seq = self.seq = seq
        self.time_ns = time_ns
        self.line_number = 0
        self.line_count = 0
        self.synced = 0
        self.taken: list[Found] = []
        self._event: list[IndexFields] = []
        self._places: list[tuple[int, int, int]] = []
        self._row = 0

    @property
    def is_whole(self) -> bool:
        return self.line_number == self.line_count > 0

    def add(self, fields: IndexFields, offset: int, size: int) -> None:
        """Take in the next line."""
        if not self.line_count:
            self.line_count, self.synced = fields.batch[1], fields.synced
        part = (len(self._event) + 1, self._event[0].part[1] if self._event else fields.part[1])
        for name, wanted, got in (
            ("line of the batch", (self.line_number + 1, self.line_count), fields.batch),
            ("part of the event", part, fields.part),
        ):
            if wanted != got or not 1 <= got[0] <= got[1]:
                evidence = f"{name} {wanted[0]} of {wanted[1]}, got {got[0]} of {got[1]}"
                raise Misplaced(LogReason.FRAME_ORDER, evidence)
        self.line_number += 1
        self._event.append(fields)
        self._places.append((offset, size, self._row))
        self._row += len(fields.rows) if isinstance(fields.rows, list) else 0
        if fields.part[0] == fields.part[1]:
            self._close(fields)

    def _close(self, last: IndexFields) -> None:
        """The lines of an event are complete."""
        try:
            envelope = self._event[0].envelope(ids_of(self._event))
            chain = bytes.fromhex(last.chain)
            timestamps = timestamps_of(self._event)
            erased = erased_of(self._event)
        except ValueError as error:
            raise Misplaced(
                LogReason.FRAME_CONTENT, f"the fields of an event, got {error}"
            ) from None
        if len(chain) != DIGEST_BYTES:
            raise Misplaced(LogReason.FRAME_CONTENT, "a chain value of 32 bytes, got another size")
        if envelope.recorded_at_ns < self.time_ns:
            raise Misplaced(
                LogReason.FRAME_ORDER, f"a time from {self.time_ns} on, got an earlier one"
            )
        self.taken.append(Found(envelope, tuple(self._places), chain, timestamps, erased))
        self.seq += 1
        self.time_ns = envelope.recorded_at_ns
        self._event, self._places, self._row = [], [], 0
