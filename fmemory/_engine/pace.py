"""How many events are read at once."""

from __future__ import annotations

from typing import Final

BYTES_PER_READ: Final = 8 << 20
_FIRST: Final = 16


class Pace:
    """So many events a read that their payloads take some megabytes, whatever their size.

    How large they are is known only when they are there, so each read follows from the one before.

    Args:
        most: The most events that are wanted at once.

    Attributes:
        count: How many to read next.

    >>> pace = Pace(256)
    >>> counts = []
    >>> for size in (20_000, 40_000, 80_000_000, 4_000_000):
    ...     counts.append(pace.count)
    ...     pace.took(pace.count, size)
    >>> counts, pace.count
    ([16, 32, 64, 6], 12)
    """

    def __init__(self, most: int) -> None:
        self.count = min(_FIRST, most)
        self._most = most

    def took(self, count: int, size: int) -> None:
        """Tell that the payloads of so many events took so many bytes."""
        fitting = count * BYTES_PER_READ // max(size, 1)
        self.count = max(1, min(2 * self.count, fitting, self._most))
