"""After a power cut at any moment, what was acknowledged is there and nothing else is believed.

Goal: an event whose commit said "durable" survives, batches are whole, and the store opens. Method:
the disk of the segments' power-cut test records every write, cut, sync and name; after each call
disks are built from it that kept all, none, a prefix or some sectors of what was not synced, the
others absent or zeros. What would have to break: an acknowledgement before its sync, a name before
its content, a verdict that takes torn bytes for damage or the other way round.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from fmemory.errors import LogCorrupt
from fmemory.journals import JsonlJournal
from fmemory.testing._journal_base import blob, commit, put
from tests.crash.disk import Moment, RecordingFileSystem
from tests.crash.settings import SAMPLES, SEED
from tests.fmemory.jsonl_tools import contents, damage, open_store, opened

FILE_BYTES_MAX = 3_000
Item = TypeVar("Item")


class NoGarbage(random.Random):
    """Chooses anything but sectors of random bytes, which docs/jsonl.md does not assume."""

    def choice(self, seq: Sequence[Item]) -> Item:  # type: ignore[override]
        return super().choice([one for one in seq if one != "garbage"])


def work(journal: JsonlJournal, durable: list[int]) -> None:
    """Batches of all durabilities, over several files; notes what was promised."""
    for number in range(6):
        durability = ("fsync", "os", "fsync")[number % 3]
        made = commit(
            journal,
            blob(b"x" * 700, revision=2 * number + 1),
            put(f"r{number}", f"s{number}", revision=number + 1),
            blob(b"y" * 10, revision=2 * number + 2),
            durability=durability,  # type: ignore[arg-type]
        )
        if made.durable:
            durable[0] = made.last_seq


def record(path: Path) -> tuple[list[Moment], list[object]]:
    """Every moment of the work on a new store, and what it holds in the end."""
    moments: list[Moment] = []
    durable = [0]

    def after() -> None:
        moments.append(Moment(fs.disk.copy(), durable[0]))

    fs = RecordingFileSystem(after)
    journal = open_store(path, fs=fs, file_bytes_max=FILE_BYTES_MAX)
    work(journal, durable)
    after()
    found = contents(journal)
    journal.close()
    return moments, found


def build(files: dict[Path, bytes], source: Path, target: Path) -> Path:
    """The store that a disk holds, in another place."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path, data in files.items():
        if path.is_relative_to(source):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return target


def test_power_cut_at_every_moment_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    moments, whole = record(store)
    choose = NoGarbage(SEED)
    print(f"seed {SEED}, {len(moments)} moments")
    kept_counts = set()
    for moment in moments:
        for _ in range(SAMPLES):
            place = build(moment.disk.cut(choose), store, tmp_path / "cut")
            found = opened(place)
            assert isinstance(found, list), found
            assert found == whole[: len(found)]
            assert (len(found) >= moment.durable, len(found) % 3) == (True, 0)
            assert damage(place) == []
            kept_counts.add(len(found))
    assert len(kept_counts) == 7


def test_power_cut_that_leaves_other_bytes_loses_nothing_in_silence(tmp_path: Path) -> None:
    store = tmp_path / "store"
    moments, whole = record(store)
    choose = random.Random(SEED)
    print(f"seed {SEED}")
    for moment in moments[::2]:
        place = build(moment.disk.cut(choose), store, tmp_path / "cut")
        found = opened(place)
        if isinstance(found, list):
            assert found == whole[: len(found)]
            assert len(found) >= moment.durable
        else:
            assert isinstance(found, LogCorrupt)
