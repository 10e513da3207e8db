"""A handle carried over a fork refuses in the child and goes on in the parent."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

from fmemory_segments import Log, LogError
from fmemory_segments._txn import LogTxn
from fmemory_segments.errors import ForkedStore, StoreBusy
from tests.segments.log_tools import contents, put, say, small_store


def in_child(work: Callable[[], bool]) -> bool:
    """What a function returns in a forked child."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.write(write, b"yes" if work() else b"no")
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    answer = os.read(read, 4_096)
    os.close(read)
    assert answer in (b"yes", b"no"), answer
    return answer == b"yes"


def refuses(use: Callable[[], object]) -> bool:
    try:
        use()
    except ForkedStore:
        return True
    except LogError:
        return False
    return False


def test_every_use_in_the_child_is_refused(tmp_path: Path) -> None:
    small_store(tmp_path)
    log = Log.open(tmp_path)
    uses: list[Callable[[], object]] = [
        log.refresh,
        log.head,
        log.sync,
        log.stats,
        log.verify,
        lambda: put(log, 9),
        lambda: list(log.fold(0, 9)),
        lambda: log.payloads([1]),
    ]
    assert in_child(lambda: all(map(refuses, uses)))
    assert say(log, b"the parent goes on").durable
    log.close()


def test_child_does_not_free_the_lock_of_the_parent(tmp_path: Path) -> None:
    log = Log.open(tmp_path)

    def is_busy() -> bool:
        try:
            Log.open(tmp_path, lock_timeout_s=0.05)
        except StoreBusy:
            return True
        return False

    def plan(_: LogTxn) -> None:
        def close_and_look() -> bool:
            log.close()
            return is_busy()

        assert in_child(close_and_look)
        assert is_busy()

    log.commit(plan)
    log.close()


def test_child_may_open_the_log_again(tmp_path: Path) -> None:
    small_store(tmp_path)
    log = Log.open(tmp_path)
    before = contents(log)

    def reopened() -> bool:
        with Log.open(tmp_path) as again:
            same = contents(again) == before
            put(again, 77)
            return same

    assert in_child(reopened)
    assert log.refresh() == before[1] + 1  # type: ignore[operator]
    log.close()


def test_closing_in_the_child_leaves_the_parent_its_files(tmp_path: Path) -> None:
    log = Log.open(tmp_path, durability="interval")
    say(log, b"one")
    log.watch(lambda: None)

    def closes() -> bool:
        log.close()
        return True

    assert in_child(closes)
    assert say(log, b"two").last_seq == 2
    log.close()
