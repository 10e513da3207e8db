"""Threads for tests: they start together, waits are bounded, and what one raises is raised."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

__all__ = ["WAIT_S_MAX", "in_threads"]

WAIT_S_MAX = 60.0


def in_threads(work: Callable[[int], object], count: int = 8) -> None:
    """Call `work(0)` to `work(count - 1)` in threads that start together.

    Raises:
        AssertionError: A thread did not end within `WAIT_S_MAX`.
        BaseException: What the first thread that failed raised.
    """
    barrier = Barrier(count)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(timeout=WAIT_S_MAX)
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=WAIT_S_MAX)
    assert not any(thread.is_alive() for thread in threads), "a thread did not end"
    if failures:
        raise failures[0]
