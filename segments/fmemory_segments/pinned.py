"""Heads that were kept elsewhere, compared with the chain of a log as a check walks it.

A chain value covers every event before it, so one head that fits proves all of them, and one that
does not says only that something up to it differs. Several heads narrow that down to what lies
between the last one that fits and the first one that does not. Shared by all journals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from fmemory_segments.errors import LogReason
from fmemory_segments.event import ZERO_CHAIN, Head
from fmemory_segments.finding import Finding

Pinned: TypeAlias = Head | Sequence[Head] | None
"""One head, several in any order, or none."""


class PinnedHeads:
    """Pinned heads, and what a log has in their places.

    >>> pins = PinnedHeads([Head(2, bytes(32)), Head(5, bytes(32))])
    >>> pins.see(2, bytes(32))
    >>> [(one.first_seq, one.last_seq) for one in pins.findings(4)]
    [(3, 5)]
    """

    __slots__ = ("_heads", "_seen", "seqs")

    def __init__(self, pinned: Pinned) -> None:
        heads = [pinned] if isinstance(pinned, Head) else list(pinned or ())
        self._heads = sorted(heads, key=lambda one: one.seq)
        self._seen: dict[int, bytes] = {0: ZERO_CHAIN}
        self.seqs = frozenset(one.seq for one in heads)

    def see(self, seq: int, chain: bytes | None) -> None:
        """Take the chain value after an event; None where damage before it hides the value."""
        if chain is not None and seq in self.seqs:
            self._seen[seq] = chain

    def findings(self, have: int) -> list[Finding]:
        """Where the heads do not fit, in order of seq; empty if all do.

        Heads that differ one behind another are one finding, about the first: the others must
        differ too. So are those beyond the end.

        Args:
            have: Seq of the newest event.
        """
        found: list[Finding] = []
        good_seq, told = 0, ""
        for head in self._heads:
            chain = self._seen.get(head.seq)
            if chain == head.chain:
                good_seq, told = head.seq, ""
            elif head.seq > have:
                break
            elif chain is None and not told:
                found.append(_hidden(head, good_seq))
                told = "hidden"
            elif chain is not None and told != "differs":
                found.append(Finding.chain_differs(head, Head(head.seq, chain), good_seq=good_seq))
                told = "differs"
        if self._heads and self._heads[-1].seq > have:
            found.append(Finding.behind_pinned(self._heads[-1], have, good_seq=good_seq))
        return found


def _hidden(head: Head, good_seq: int) -> Finding:
    return Finding(
        LogReason.PINNED_HEAD,
        f"pinned head: expected to follow the chain to event {head.seq}, got damage before it",
        first_seq=good_seq + 1,
        last_seq=head.seq,
    )
