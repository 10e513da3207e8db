"""Open files that close themselves when nobody reads from them any more."""

from __future__ import annotations

from collections.abc import Callable


class OpenFile:
    """A descriptor that is closed when its last user lets go of it.

    Readers in other threads may be in the middle of a `pread` when a segment leaves the set of open
    ones: they hold a reference, so the number cannot be given to another file under their hands.
    """

    __slots__ = ("_close", "fd")

    def __init__(self, fd: int, close: Callable[[int], None]) -> None:
        self.fd = fd
        self._close = close

    def close(self) -> None:
        """Close now; for owners that know nobody else uses it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._close(fd)

    def __del__(self) -> None:
        self.close()
