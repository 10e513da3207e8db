"""Compaction that starts by itself: when to look, when it is worth it, and what went wrong.

A look costs as much as folding the log, so one is made only when the log has grown by a share of
itself since the last. Everything runs in one thread of the handle; what fails there is told by
`health()`, and tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from fmemory._engine.erasure import garbage_at
from fmemory.errors import ClosedStore, MemoryBackendError
from fmemory.journal import Journal
from fmemory.log_models import AutoCompact, CompactResult

GROWTH_EVENTS_MIN: Final = 64
GROWTH_SHARE: Final = 20


class AutoCompactor:
    """Watches one handle's writes.

    Args:
        compact: What to do when it is worth it.
    """

    def __init__(
        self, journal: Journal, compact: Callable[[], CompactResult], rules: AutoCompact
    ) -> None:
        self._journal = journal
        self._compact = compact
        self._rules = rules
        self._next_seq = 0
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.notices: tuple[str, ...] = ()

    def touch(self, seq: int) -> None:
        """Something was written; look if it is time to. Cost: a comparison, mostly."""
        if seq < self._next_seq or self._stopped.is_set():
            return
        self._wake.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="fmemory-auto-compact", daemon=True
                    )
                    self._thread.start()

    def look(self) -> bool:
        """Compact if it is worth it; whether it was done.

        Raises:
            MemoryBackendError: The store failed.
        """
        head = self._journal.refresh()
        self._next_seq = head + max(GROWTH_EVENTS_MIN, head // GROWTH_SHARE)
        if not self._is_worth_it(head):
            return False
        self.notices = self._compact().pending
        return True

    def close(self) -> None:
        """Stop; a compaction that has begun is finished first."""
        self._stopped.set()
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _is_worth_it(self, head: int) -> bool:
        rules = self._rules
        fragments = self._journal.sizes().fragment_count
        if fragments is not None and fragments >= rules.fragments:
            return True
        dead, living = garbage_at(self._journal, head)
        return dead >= rules.garbage_min and dead >= rules.garbage_share * (dead + living)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._stopped.is_set():
                return
            try:
                self.look()
            except ClosedStore:
                return
            except (MemoryBackendError, OSError, MemoryError) as error:
                self.notices = (f"automatic compaction failed, and is tried again: {error}",)
            self._stopped.wait(self._rules.pause_s)
