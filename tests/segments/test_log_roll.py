"""A log goes on from segment to segment, and other handles follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmemory_segments import (
    Log,
)
from tests.segments.log_tools import (
    WatchedFileSystem,
    contents,
    opens,
    put,
    say,
    segments_of,
)


def test_roll_seals_one_segment_and_begins_the_next(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_bytes_max=3_000) as log:
        for number in range(30):
            put(log, number)
        expected = contents(log)
        count = log.stats().segment_count
    assert count == len(segments_of(tmp_path)) > 2
    for read_only in (True, False):
        assert opens(tmp_path, read_only=read_only) == expected


def test_segment_ends_at_its_number_of_frames(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_frames_max=4) as log:
        for number in range(10):
            put(log, number)
        assert [segment.index.frame_count for segment in log._core.segments] == [4, 4, 2]


def test_other_handles_follow_through_new_segments(tmp_path: Path) -> None:
    with (
        Log.open(tmp_path, segment_bytes_max=2_000) as writer,
        Log.open(tmp_path) as other,
        Log.open(tmp_path, read_only=True) as reader,
    ):
        for number in range(40):
            put(writer, number)
            if number % 7 == 0:
                assert reader.refresh() == writer.refresh()
        assert contents(reader) == contents(other) == contents(writer)
        assert say(other, b"next").first_seq == 41


def test_open_reads_sealed_segments_by_their_seal(tmp_path: Path) -> None:
    with Log.open(tmp_path, segment_bytes_max=8_000) as log:
        for number in range(60):
            put(log, number)
        count = log.stats().segment_count
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs, read_only=True):
        assert fs.calls.count("pread") <= 6 * count + 4


def test_many_segments_keep_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmemory_segments._core.FILES_OPEN_MAX", 4)
    fs = WatchedFileSystem()  # Its syncs do nothing.
    with Log.open(tmp_path, fs=fs, segment_frames_max=1) as log:
        for number in range(20):
            put(log, number)
        expected = contents(log)
        assert log.stats().segment_count == 20
        assert sum(segment.file is not None for segment in log._core.segments) <= 5
    with Log.open(tmp_path, fs=fs, read_only=True) as log:
        assert contents(log) == expected
        assert sum(segment.file is not None for segment in log._core.segments) <= 5
