"""A lock that a child process finds free."""

from __future__ import annotations

import os
import threading

__all__ = ["ForkLock"]


class ForkLock:
    """A lock for a module, which outlives forks.

    Another thread may hold it at the moment of a fork, and will never release it in the child. What
    it protects must be whole between any two steps of Python. Whoever holds it must not fork.

    >>> lock = ForkLock()
    >>> with lock:
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()
