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
    def behind_pinned(cls, pinned: Head, have: int, *, good_seq: int = 0) -> Finding:
        """The log ends before a head that was pinned: it was rolled back or truncated.

        Args:
            good_seq: Seq of the newest pinned head that fits; 0 = none. What lies between it and
                the end of the log may have been removed as well, and others moved up.
        """
        return cls(
            LogReason.PINNED_HEAD,
            f"pinned head: expected event {pinned.seq} with chain {pinned.chain.hex()[:16]}…, got a"
            f" log that ends at event {have}; events were removed or an older copy was restored"
            + _proven(good_seq),
            first_seq=good_seq + 1,
            last_seq=pinned.seq,
        )

    @classmethod
    def chain_differs(cls, pinned: Head, found: Head, *, good_seq: int = 0) -> Finding:
        """The log has another history than a head that was pinned.

        Args:
            good_seq: Seq of the newest pinned head before it that fits; 0 = none.
        """
        first_seq = good_seq + 1
        where = f"event {first_seq}"
        if first_seq != pinned.seq:
            where = f"one or more of events {first_seq} to {pinned.seq}"
        return cls(
            LogReason.PINNED_HEAD,
            f"pinned head: expected chain {pinned.chain.hex()[:16]}… at event {pinned.seq}, got"
            f" {found.chain.hex()[:16]}…; {where} was edited, removed, reordered or replaced"
            + _proven(good_seq),
            first_seq=first_seq,
            last_seq=pinned.seq,
        )


def _proven(good_seq: int) -> str:
    """What another pinned head says of the events up to it."""
    if not good_seq:
        return ""
    return f"; event {good_seq} and all before it are as they were pinned"
