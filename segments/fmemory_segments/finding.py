"""What a check found: shared by all journals, so that one command shows them all."""

from __future__ import annotations

from dataclasses import dataclass

from fmemory_segments.errors import LogReason
from fmemory_segments.event import Head


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `verify` found.

    Attributes:
        reason: What kind of thing, from a closed set.
        message: A sentence: what was checked, expected, got, where; what to do.
        damage: Whether stored events are wrong or missing; False = a person should know.
        file: Name of the file in the store's folder; None where no file is to blame.
        offset: Byte position in that file.
        first_seq: First event concerned.
        last_seq: Last event concerned; None where the range is open.
        key: Record id or other key of the part of the event that is concerned.
    """

    reason: LogReason
    message: str
    damage: bool = True
    file: str | None = None
    offset: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    key: str | None = None

    @classmethod
    def behind_pinned(cls, pinned: Head, have: int) -> Finding:
        """The log ends before a head that was pinned: it was rolled back or truncated."""
        return cls(
            LogReason.PINNED_HEAD,
            f"pinned head: expected event {pinned.seq} with chain {pinned.chain.hex()[:16]}…, got a"
            f" log that ends at event {have}; events were removed or an older copy was restored",
            first_seq=have + 1,
            last_seq=pinned.seq,
        )

    @classmethod
    def chain_differs(cls, pinned: Head, found: Head, *, good_seq: int = 0) -> Finding:
        """The log has another history than a head that was pinned.

        Args:
            good_seq: Seq of the newest pinned head before it that fits; 0 = none.
        """
        where = f"{good_seq + 1} to {pinned.seq}" if good_seq + 1 < pinned.seq else f"{pinned.seq}"
        return cls(
            LogReason.PINNED_HEAD,
            f"pinned head: expected chain {pinned.chain.hex()[:16]}… at event {pinned.seq}, got"
            f" {found.chain.hex()[:16]}…; of events {where} one or more were edited, removed,"
            " reordered or replaced"
            + (f"; event {good_seq} and all before are as they were pinned" if good_seq else ""),
            first_seq=good_seq + 1,
            last_seq=pinned.seq,
        )
