"""A full disk, by the limit of the file size: a clean error, and the log as it was."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fmemory_segments import Log, LogReason
from fmemory_segments.errors import StoreFull
from tests.segments.log_tools import contents, damage_findings, put, say, small_store


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Files of this process may not grow beyond a size for the length of a block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_append_beyond_the_limit_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        put(log, 1)
        before = contents(log)
        with file_size_limit(400_000), pytest.raises(StoreFull) as caught:
            say(log, bytes(300_000), bytes(300_000))
        assert caught.value.reason is LogReason.NO_SPACE
        assert contents(log) == before
        assert not damage_findings(tmp_path)
        say(log, bytes(300_000), bytes(300_000))
    assert not damage_findings(tmp_path)


def test_events_go_on_where_only_the_zeros_ahead_find_no_room(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log, file_size_limit(20_000):
        for number in range(10):
            put(log, number)
        assert log.refresh() == 10
    assert not damage_findings(tmp_path)


def test_reopening_after_a_full_disk_finds_everything_acknowledged(tmp_path: Path) -> None:
    small_store(tmp_path)
    acknowledged = 0
    with Log.open(tmp_path) as log, file_size_limit(290_000):
        with pytest.raises(StoreFull):
            for _ in range(100):
                acknowledged = say(log, bytes(7_000)).last_seq
        assert acknowledged
    with Log.open(tmp_path) as log:
        assert log.refresh() == acknowledged
        contents(log)


def test_roll_without_room_is_tried_again(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_bytes_max=3_000) as log:
        for number in range(4):
            put(log, number, 3)
        with file_size_limit(50), pytest.raises(StoreFull):
            for number in range(20):
                put(log, 100 + number, 3)
        head = log.refresh()
        for number in range(6):
            put(log, 200 + number, 3)
        assert log.refresh() == head + 6
        assert log.stats().segment_count > 1
    assert not damage_findings(tmp_path)
