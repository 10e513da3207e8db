"""The metas of frames that were applied lately, so that nobody reads back what was just known.

An index that is built after opening, or that takes in what others wrote, finds them here, and so
does a follower of what this handle writes. What an index was built from is dropped, except for the
newest few frames, and so is what lies before many appends.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from fmemory_segments._batch import BatchMeta

KEPT_FRAMES: Final = 256
META_BYTES_MAX: Final = 32 * 1024 * 1024


class Recent:
    """Consecutive frames up to the newest. Callers hold the tail lock."""

    def __init__(self) -> None:
        self._frames: list[BatchMeta] = []
        self._first_seqs: list[int] = []
        self._meta_bytes = 0

    def add(self, frame: BatchMeta) -> None:
        """Take in the newest frame; the older half is dropped when there is too much."""
        self._frames.append(frame)
        self._first_seqs.append(frame.header.first_seq)
        self._meta_bytes += frame.header.meta_bytes
        if self._meta_bytes > META_BYTES_MAX and len(self._frames) > 1:
            self._drop((len(self._frames) + 1) // 2)

    def since(self, after: int, upto: int) -> list[BatchMeta] | None:
        """The frames that hold all events `after < seq <= upto`; None if some are not here."""
        if not self._first_seqs or self._first_seqs[0] > after + 1:
            return None
        start = bisect_right(self._first_seqs, after + 1) - 1
        return self._frames[start : bisect_right(self._first_seqs, upto)]

    def folded(self, upto: int) -> None:
        """An index has taken in everything up to here: keep only the newest frames."""
        if len(self._frames) > 2 * KEPT_FRAMES:
            known = bisect_right(self._first_seqs, upto)
            self._drop(min(known, len(self._frames) - KEPT_FRAMES))

    def appended(self) -> None:
        """This handle has appended: who did knows what, so only followers want it."""
        if len(self._frames) > 2 * KEPT_FRAMES:
            self._drop(len(self._frames) - KEPT_FRAMES)

    def clear(self) -> None:
        """Forget all."""
        self._drop(len(self._frames))

    def _drop(self, count: int) -> None:
        self._meta_bytes -= sum(frame.header.meta_bytes for frame in self._frames[:count])
        del self._frames[:count], self._first_seqs[:count]
