"""What the end of a log means: clean, torn by a crash, or damaged.

A crash in the middle of an append leaves bytes that nobody was told about; damage takes bytes that
somebody relies on. Both look alike at the place itself, so the verdict asks two witnesses: later
frames, which say what was on disk when they were written, and TIP. docs/format.md section 7 owns
the rules. This module judges and does no I/O; who reads, cuts or raises is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fmemory_segments._frame import FRAME_HEADER_BYTES, FrameHeader, FrameKind, frame_bytes
from fmemory_segments.errors import LogReason


class Verdict(StrEnum):
    """What stands at a place of the log."""

    ACCEPTED = "accepted"
    CLEAN = "clean"
    CANDIDATE = "candidate"
    TORN = "torn"
    DAMAGED = "damaged"
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with what led to it.

    Attributes:
        verdict: What stands there.
        reason: What was found wrong, where something was.
        evidence: "expected X, got Y" for the message, where something was wrong.
    """

    verdict: Verdict
    reason: LogReason | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """A torn tail: an append that a crash cut short and nobody was told about.

    Attributes:
        torn_bytes: Bytes behind the last whole batch that are not all zero; 0 = nothing was torn.
        file: Name of the segment.
        offset: Where the tail began; the segment now ends there if `applied`.
        first_seq: Seq that would have been the first in it.
        quarantine: Name, in the folder `quarantine`, of the copy of the bytes.
        applied: True if the tail was cut off; False if a reader saw it and left it.
    """

    torn_bytes: int = 0
    file: str | None = None
    offset: int = 0
    first_seq: int = 0
    quarantine: str | None = None
    applied: bool = False


ACCEPTED = Judgement(Verdict.ACCEPTED)
CLEAN = Judgement(Verdict.CLEAN)


@dataclass(slots=True)
class Expected:
    """What the next frame must continue.

    Attributes:
        seq: Its first seq.
        prev_frame_bytes: Size of the frame before it; 0 for the first.
        time_ns: Time of the frame before it.
        batch_first_seq: First seq of the batch it belongs to; equal to `seq` where one begins.
    """

    seq: int
    prev_frame_bytes: int
    time_ns: int
    batch_first_seq: int

    def is_met_by(self, header: FrameHeader, size: int, left_bytes: int) -> bool:
        """True if nothing speaks against a BATCH frame of this size; else ask `judge_header`."""
        return (
            header.kind == FrameKind.BATCH
            and header.first_seq == self.seq
            and header.prev_frame_bytes == self.prev_frame_bytes
            and header.time_ns >= self.time_ns
            and header.first_seq - header.batch_offset == self.batch_first_seq
            and size <= left_bytes
            and header.is_supported
        )

    def advance(self, header: FrameHeader) -> None:
        """Move past an accepted frame."""
        self.seq = header.first_seq + header.event_count
        self.prev_frame_bytes = frame_bytes(header)
        self.time_ns = header.time_ns
        if header.ends_batch:
            self.batch_first_seq = self.seq


def judge_header(header: FrameHeader | None, expected: Expected, left_bytes: int) -> Judgement:
    """The verdict on a place by the frame header that stands there, before its CRCs are looked at.

    Args:
        header: What `unpack_header` found; None where there is no header with a right CRC.
        expected: What it must continue.
        left_bytes: Bytes of the file from the place on.
    """
    if header is None:
        if left_bytes < FRAME_HEADER_BYTES:
            return _candidate(LogReason.FRAME_CHECKSUM, f"a frame header, got {left_bytes} bytes")
        return _candidate(LogReason.FRAME_CHECKSUM, "a frame header, got other bytes")
    if not header.is_supported:
        evidence = f"kind 1 to 4, flags 0 or 1, got {header.kind} and {header.flags}"
        return Judgement(Verdict.NEWER, LogReason.UNKNOWN_FEATURE, evidence)
    batch_first_seq = header.first_seq - header.batch_offset
    pairs = [("previous frame's size", expected.prev_frame_bytes, header.prev_frame_bytes)]
    if header.kind == FrameKind.BATCH:
        pairs.append(("first seq", expected.seq, header.first_seq))
        pairs.append(("first seq of the batch", expected.batch_first_seq, batch_first_seq))
    for name, wanted, got in pairs:
        if wanted != got:
            return Judgement(Verdict.DAMAGED, LogReason.FRAME_ORDER, f"{name} {wanted}, got {got}")
    if header.time_ns < expected.time_ns:
        evidence = f"a time from {expected.time_ns} on, got {header.time_ns}"
        return Judgement(Verdict.DAMAGED, LogReason.FRAME_ORDER, evidence)
    if frame_bytes(header) > left_bytes:
        evidence = f"a frame of {frame_bytes(header)} bytes, got {left_bytes}"
        return _candidate(LogReason.FRAME_CHECKSUM, evidence)
    return ACCEPTED


def judge_candidate(
    found: Judgement, *, expected_seq: int, later: Iterable[FrameHeader], synced_seq: int
) -> Judgement:
    """Whether bytes that are no valid frame were torn by a crash or damaged later.

    Args:
        found: What is wrong at the place.
        expected_seq: Seq that the frame there would have begun with.
        later: Headers with right CRCs behind the place, in the same file.
        synced_seq: What TIP says was on disk.
    """
    for header in later:
        if header.synced_to >= expected_seq:
            evidence = (
                f"{found.evidence}, although a later frame (seq {header.first_seq}) says that "
                f"everything up to seq {header.synced_to} was on disk"
            )
            return Judgement(Verdict.DAMAGED, found.reason, evidence)
    if synced_seq >= expected_seq:
        evidence = f"{found.evidence}, although TIP says that seq {synced_seq} was on disk"
        return Judgement(Verdict.DAMAGED, found.reason, evidence)
    return Judgement(Verdict.TORN, LogReason.TORN_TAIL, found.evidence)


def judge_end(*, head_seq: int, synced_seq: int) -> Judgement:
    """Whether a log that ends cleanly at `head_seq` holds what TIP says was acknowledged."""
    if synced_seq <= head_seq:
        return CLEAN
    evidence = f"events up to seq {synced_seq}, as TIP says were on disk, got {head_seq}"
    return Judgement(Verdict.DAMAGED, LogReason.ACKNOWLEDGED_LOSS, evidence)


def _candidate(reason: LogReason, evidence: str) -> Judgement:
    return Judgement(Verdict.CANDIDATE, reason, evidence)
