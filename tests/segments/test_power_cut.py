"""After a power cut at any moment, what was acknowledged is there and nothing else is believed.

Goal: P1, P3 and P4 against a disk that keeps what was synced and any part of what was not. Method:
a file system records every write, truncate, sync and name; pass 2 takes the state after each call
and builds disks from it: of writes since a file's last sync all, none, a prefix or some sectors,
the others absent, zeros or garbage; of names since their folder's last sync a prefix. What would
have to break: an acknowledgement before its sync, a name before its content, a verdict that takes
torn bytes for damage or the other way round.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fmemory_segments import Log
from fmemory_segments._frames import read_metas
from fmemory_segments.errors import LogPoisoned
from tests.segments.log_tools import (
    ROUNDS,
    contents,
    damage_findings,
    events_only,
    opens,
    put,
    say,
)
from tests.segments.power_cut_tools import Disk, Moment, RecordingFileSystem, build

__all__ = ["SAMPLES", "SEED", "Disk", "Moment", "RecordingFileSystem"]  # Others cut power too.

SEED = int(os.environ.get("FMEMORY_TEST_SEED", "20240608"))
SAMPLES = 3 * ROUNDS


def record(path: Path, work: Callable[[Log, Callable[[int], None]], None]) -> list[Moment]:
    """Every moment of some work on a new store."""
    moments: list[Moment] = []
    durable = [0]

    def after() -> None:
        moments.append(Moment(fs.disk.copy(), durable[0]))

    fs = RecordingFileSystem(after)
    with Log.open(path, fs=fs, segment_bytes_max=2_500) as log:

        def promise(seq: int) -> None:
            durable[0] = max(durable[0], seq)
            after()

        work(log, promise)
    return moments


def synced_work(log: Log, promise: Callable[[int], None]) -> None:
    """Batches of one to three events, each acknowledged as durable, over several segments."""
    for number in range(5):
        promise(put(log, number, 1 + number % 3, dim=20).last_seq)
        promise(say(log, *[b"word" * 40] * (1 + number % 3)).last_seq)


def mixed_work(log: Log, promise: Callable[[int], None]) -> None:
    """The same with commits that nobody syncs between the durable ones."""
    for number in range(6):
        say(log, *[b"left to the system" * 10] * (1 + number % 3), durability="os")
        say(log, b"soon", durability="os")
        if number % 3 == 2:
            promise(put(log, number, 2, dim=20).last_seq)
    promise(log.sync())


@pytest.mark.parametrize("work", [synced_work, mixed_work])
def test_power_cut_loses_nothing_acknowledged_and_raises_no_false_alarm(
    tmp_path: Path, work: Callable[[Log, Callable[[int], None]], None]
) -> None:
    print(f"FMEMORY_TEST_SEED={SEED}")
    choose = random.Random(SEED)
    source = tmp_path / "source"
    moments = record(source, work)
    whole = opens(source, read_only=True)
    assert isinstance(whole, list)
    batch_ends = ends_of_batches(source)
    for number, moment in enumerate(moments):
        for sample in range(SAMPLES):
            path = tmp_path / "disk"
            build(path, moment.disk.cut(choose), source)
            where = f"moment {number}, sample {sample}"
            if list(path.glob("seg-*")):
                assert not damage_findings(path), where
            found = opens(path)
            assert isinstance(found, list), (where, found)
            head = found[1]
            assert isinstance(head, int)
            assert head >= moment.durable, where
            assert head in batch_ends, where
            if head:
                assert events_only(found, head) == events_only(whole, head), where
            assert not damage_findings(path), where
            shutil.rmtree(path)


def ends_of_batches(path: Path) -> set[int]:
    """Seqs that end a batch, and 0."""
    ends = {0}
    with Log.open(path, read_only=True) as log:
        for segment in log._core.segments:
            for batch in read_metas(log._core, segment, range(segment.index.frame_count)):
                if batch.header.ends_batch:
                    ends.add(batch.header.last_seq)
    return ends


def test_power_cut_while_a_doubtful_tail_is_moved_loses_nothing(tmp_path: Path) -> None:
    """The failed sync lost nothing yet; what follows must not lose it either."""
    choose = random.Random(SEED)
    source = tmp_path / "source"
    moments: list[Moment] = []
    fails = [False]
    is_moving = [False]

    class Failing(RecordingFileSystem):
        def datasync(self, fd: int) -> None:
            super().datasync(fd)
            if fails[0]:
                raise OSError(5, "Input/output error")

    def after() -> None:
        if is_moving[0]:
            moments.append(Moment(fs.disk.copy(), 3))

    fs = Failing(after)
    log = Log.open(source, fs=fs)
    say(log, b"safe")
    fails[0] = True
    with pytest.raises(LogPoisoned):
        say(log, b"in doubt", b"this too")
    log.close()
    fails[0] = False
    is_moving[0] = True
    with Log.open(source, fs=fs) as again:
        whole = contents(again)
    for number, moment in enumerate(moments):
        for _ in range(SAMPLES):
            path = tmp_path / "disk"
            build(path, moment.disk.cut(choose), source)
            found = opens(path)
            assert isinstance(found, list), (number, found)
            assert events_only(found, 3) == events_only(whole, 3), number
            shutil.rmtree(path)
