"""A closed log refuses, has synced what it promised, and holds nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fmemory_segments import (
    Log,
)
from fmemory_segments.errors import (
    LogClosed,
)
from tests.segments.log_tools import (
    WatchedFileSystem,
    contents,
    put,
    say,
    small_store,
)


def test_use_after_close_is_refused(tmp_path: Path) -> None:
    small_store(tmp_path)
    log = Log.open(tmp_path)
    log.close()
    log.close()
    uses: list[Callable[[], object]] = [
        log.refresh,
        log.head,
        log.sync,
        log.stats,
        log.verify,
        log.streams,
        lambda: put(log, 1),
        lambda: log.rows(np.array([65536], np.uint64)),
        lambda: list(log.envelopes(0, 9)),
        lambda: log.watch(lambda: None),
    ]
    for use in uses:
        with pytest.raises(LogClosed):
            use()
    assert log.health().state == "closed"


def test_close_syncs_what_interval_commits_left(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs, durability="interval", interval_s=600) as log:
        say(log, b"soon")
        fs.calls.clear()
    assert "datasync" in fs.calls


def test_interval_commit_is_synced_soon(tmp_path: Path) -> None:
    with Log.open(tmp_path, durability="interval", interval_s=0.001) as log:
        say(log, b"soon")
        for _ in range(10_000):
            if log.health().durable_seq == 1:
                break
            log._interval._thread.join(0.001)  # type: ignore[union-attr]
        assert log.health().durable_seq == 1


def test_descriptors_are_closed(tmp_path: Path) -> None:
    small_store(tmp_path, segment_bytes_max=1_500)
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("the system does not list descriptors")
    before = len(list(descriptors.iterdir()))
    for _ in range(3):
        with Log.open(tmp_path) as log:
            contents(log)
            log.verify()
    assert len(list(descriptors.iterdir())) == before


def test_watchers_are_called_after_commits_here_and_elsewhere(tmp_path: Path) -> None:
    from threading import Event

    with Log.open(tmp_path) as log, Log.open(tmp_path) as other:
        here, elsewhere = Event(), Event()
        stop_here, stop_elsewhere = log.watch(here.set), other.watch(elsewhere.set)
        for number in range(200):
            put(log, number)
            if elsewhere.wait(0.05):
                break
        assert here.is_set() and elsewhere.is_set()
        stop_here()
        stop_elsewhere()
        here.clear()
        put(log, 999)
        assert not here.is_set()
