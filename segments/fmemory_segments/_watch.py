"""Wake-up hints: who waits for new events is told early, and polls in case it is not.

One thread of watchfiles per handle, started by the first that waits and ended with the last. File
watching misses events on some mounts and after overflows, so nothing depends on it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

WATCH_STEP_MS: Final = 10
WATCH_TIMEOUT_MS: Final = 1_000
JOIN_TIMEOUT_S: Final = 10.0


class Watcher:
    """Callbacks of those who wait for new events in one folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._change = threading.Lock()
        self._callbacks: tuple[Callable[[], None], ...] = ()
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when files change; returns how to stop that."""

        def call() -> None:
            callback()

        # A third of what the log takes to import, and most processes never wait.
        from watchfiles import watch

        with self._change:
            self._callbacks = (*self._callbacks, call)
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._watch,
                    args=(watch, self._stop),
                    name="fmemory-watch",
                    daemon=True,
                )
                self._thread.start()

        def unsubscribe() -> None:
            with self._change:
                self._callbacks = tuple(one for one in self._callbacks if one is not call)
                idle = not self._callbacks
            if idle:
                self._end()

        return unsubscribe

    def notify(self) -> None:
        """Call everyone. What a callback raises is reported and changes nothing for the caller."""
        call_all(self._callbacks)

    def close(self) -> None:
        """End the thread and forget everyone."""
        with self._change:
            self._callbacks = ()
        self._end()

    def _end(self) -> None:
        with self._change:
            if self._callbacks:
                return
            thread, stop = self._thread, self._stop
            self._thread = self._stop = None
        if stop is not None:
            stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_TIMEOUT_S)

    def _watch(self, watch: Callable[..., Iterable[object]], stop: threading.Event) -> None:
        changes = watch(
            self._path,
            watch_filter=None,
            debounce=WATCH_STEP_MS,
            step=WATCH_STEP_MS,
            stop_event=stop,
            rust_timeout=WATCH_TIMEOUT_MS,
            recursive=False,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        for _ in changes:
            self.notify()


def call_all(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call everyone. What a callback raises is reported and changes nothing for the caller."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            threading.excepthook(
                threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            )
