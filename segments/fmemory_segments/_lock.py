"""One lock for the threads of a process and for the processes of a machine, with bounded waits.

`flock` belongs to an open file and not to a thread or a process, so it excludes other handles and
other processes, and a mutex excludes the threads that share the handle. POSIX record locks are not
used: they vanish when any descriptor of the file is closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fmemory_segments.errors import (
    LogClosed,
    LogError,
    LogNotFound,
    LogReason,
    LogWriteFailed,
    StoreBusy,
)
from fmemory_segments.filesystem import FileSystem

FIRST_PAUSE_S: Final = 0.000_02
PAUSE_S_MAX: Final = 0.005
PAUSE_GROWTH: Final = 1.5


class FileLock:
    """An advisory lock on an open file. Not re-entrant.

    As a context manager it is held exclusively, after a wait of at most `timeout_s`.

    Args:
        names_store: The lock of a whole store: it is worth nothing once its path names another
            file, so that is looked at whenever it is taken.
    """

    def __init__(
        self,
        fs: FileSystem,
        fd: int,
        path: Path,
        timeout_s: float = 5.0,
        *,
        names_store: bool = False,
    ) -> None:
        self._timeout_s = timeout_s
        self._fs = fs
        self._fd = fd
        self._path = path
        self._names_store = names_store
        self._identity = fs.identity(fd)
        self._mutex = threading.Lock()

    def acquire(self, timeout_s: float, *, shared: bool = False) -> None:
        """Hold the lock when this returns.

        Args:
            timeout_s: Longest wait for threads and processes together; 0 = try once.
            shared: Exclude exclusive holders only.

        Raises:
            StoreBusy: Somebody else held it all the time.
            LogNotFound: The store was moved or removed: others do not see this lock any more.
            LogWriteFailed: The system could not lock.
        """
        if not self._mutex.acquire(blocking=False):
            deadline = time.monotonic() + timeout_s
            if not self._mutex.acquire(timeout=timeout_s):
                raise self.busy(timeout_s)
            timeout_s = deadline - time.monotonic()
        if self._fd < 0:
            self._mutex.release()
            raise LogClosed(
                f"handle: expected an open log, got one that was closed meanwhile ({self._path}); "
                "open it again",
                reason=LogReason.CLOSED,
                path=self._path,
            )
        try:
            if not self._fs.try_lock(self._fd, shared=shared):
                self._poll(timeout_s, shared=shared)
            if self._names_store and not self._fs.is_at(self._identity, self._path):
                self._fs.unlock(self._fd)
                raise store_moved(self._path)
        except BaseException as error:
            self._mutex.release()
            if isinstance(error, OSError) and not isinstance(error, LogError):
                raise self._failed(error) from error
            raise

    def release(self) -> None:
        """Let others have it."""
        try:
            self._fs.unlock(self._fd)
        finally:
            self._mutex.release()

    def close(self, *, wait: bool = True) -> None:
        """Close the descriptor, when no thread of this handle holds or wants the lock any more.

        Args:
            wait: False in a forked child, where the threads that held it are gone.
        """
        if wait and not self._mutex.acquire(timeout=self._timeout_s):
            raise self.busy(self._timeout_s)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._fs.close(fd)
        if wait:
            self._mutex.release()

    def __enter__(self) -> None:
        self.acquire(self._timeout_s)

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextmanager
    def held(self, timeout_s: float, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock for the length of a block."""
        self.acquire(timeout_s, shared=shared)
        try:
            yield
        finally:
            self.release()

    def _poll(self, timeout_s: float, *, shared: bool) -> None:
        # A blocking flock cannot be bounded without signals, which belong to the main program.
        deadline = time.monotonic() + timeout_s
        pause = FIRST_PAUSE_S
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.busy(timeout_s)
            time.sleep(min(pause, left))
            if self._fs.try_lock(self._fd, shared=shared):
                return
            pause = min(pause * PAUSE_GROWTH, PAUSE_S_MAX)

    def busy(self, timeout_s: float) -> StoreBusy:
        """The error of one who waited that long in vain."""
        return StoreBusy(
            f"lock: expected to have it within {timeout_s:g} s, but another handle or process "
            f"holds it ({self._path}); nothing was written; try again, or find who holds it",
            reason=LogReason.LOCK_TIMEOUT,
            path=self._path,
        )

    def _failed(self, error: OSError) -> LogWriteFailed:
        return LogWriteFailed(
            f"lock: expected to lock, got {error.strerror or error} ({self._path}); nothing was "
            "written; look at the file system, then try again",
            reason=LogReason.LOCK_FAILED,
            path=self._path,
        )


def store_moved(path: Path) -> LogNotFound:
    """The error of a handle whose store is not where it was opened; `path` is one of its files."""
    return LogNotFound(
        f"store: expected the file that was opened, got another or none ({path}): the store was "
        "moved, removed or made anew; nothing was written; open it where it is now",
        reason=LogReason.STORE_MOVED,
        path=path,
    )


@contextmanager
def shared_lock(fs: FileSystem, path: Path, timeout_s: float) -> Iterator[bool]:
    """Whether nobody writes for the length of a block; True too where there is no lock file.

    The lock has a descriptor of its own: on that of a writer it would replace the writer's lock.
    """
    if fs.kind(path) is None:
        yield True
        return
    fd = fs.open_file(path, write=False, create=False)
    try:
        lock = FileLock(fs, fd, path)
        try:
            lock.acquire(timeout_s, shared=True)
        except StoreBusy:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()
    finally:
        fs.close(fd)
