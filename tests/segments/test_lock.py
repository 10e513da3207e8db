"""The lock excludes threads, handles and shared holders, and nobody waits for ever."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fmemory_segments import LogReason, PosixFileSystem
from fmemory_segments._lock import FileLock
from fmemory_segments.errors import LogWriteFailed, StoreBusy
from tests.segments.log_tools import FailingFileSystem


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[list[FileLock]]:
    """Three locks of one file, as three handles have them."""
    fs = PosixFileSystem()
    path = tmp_path / "LOCK"
    fds = [fs.open_file(path, write=True, create=True) for _ in range(3)]
    yield [FileLock(fs, fd, path) for fd in fds]
    for fd in fds:
        fs.close(fd)


def test_second_handle_waits_no_longer_than_asked(locks: list[FileLock]) -> None:
    one, other, _ = locks
    started = time.monotonic()
    with one.held(1), pytest.raises(StoreBusy) as caught:
        other.acquire(0.05)
    assert time.monotonic() - started < 1
    assert caught.value.reason is LogReason.LOCK_TIMEOUT
    other.acquire(0)
    other.release()


def test_second_thread_of_a_handle_waits_too(locks: list[FileLock]) -> None:
    one = locks[0]
    outcome: list[str] = []

    def contend() -> None:
        try:
            one.acquire(0.05)
        except StoreBusy:
            outcome.append("busy")

    with one.held(1):
        thread = threading.Thread(target=contend)
        thread.start()
        thread.join(10)
    assert outcome == ["busy"]


def test_lock_that_is_released_while_one_waits_is_taken(locks: list[FileLock]) -> None:
    one, other, _ = locks
    one.acquire(1)
    timer = threading.Timer(0.05, one.release)
    timer.start()
    other.acquire(10)
    other.release()
    timer.join()


def test_shared_holders_exclude_an_exclusive_one_only(locks: list[FileLock]) -> None:
    one, other, third = locks
    with one.held(1, shared=True), other.held(0, shared=True), pytest.raises(StoreBusy):
        third.acquire(0.01)
    with third.held(0), pytest.raises(StoreBusy):
        one.acquire(0.01, shared=True)


def test_error_of_the_system_is_no_busy_store(tmp_path: Path) -> None:
    fs = FailingFileSystem(lambda name, _: name == "try_lock", lambda: OSError(errno.ENOLCK, "no"))
    fd = fs.open_file(tmp_path / "LOCK", write=True, create=True)
    lock = FileLock(fs, fd, tmp_path / "LOCK")
    with pytest.raises(LogWriteFailed) as caught:
        lock.acquire(1)
    assert caught.value.reason is LogReason.LOCK_FAILED
    fs.close(fd)


def test_holders_take_turns(locks: list[FileLock]) -> None:
    inside = [0]
    most = [0]

    def work(lock: FileLock) -> None:
        for _ in range(50):
            with lock.held(30):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work, args=(lock,)) for lock in locks for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
