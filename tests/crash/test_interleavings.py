"""However writers, readers, a compactor and one who dies take turns, all of them see one log.

Goal: P1, P4, P6 and P9 in orders of events that real processes meet once in a million. Method:
three writers, two followers and a compactor on one small-segmented log, switched at every file
operation as a seed says; in half of the runs one of them ends in the middle of something. What
would have to break: a lock that does not exclude, a catch-up that skips, a roll or a generation
that a reader sees half of, a torn tail that is taken for events or for damage.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from fmemory_segments import PosixFileSystem
from fmemory_segments._tail import Tail
from tests.crash.interleaving import Scene
from tests.crash.settings import ROUNDS, SEED

RUNS = 15 * ROUNDS


def first_complaint(folder: Path, seeds: range) -> str:
    """What the first run with something wrong shows, with the seed that replays it."""
    for seed in seeds:
        path = folder / "store"
        shutil.rmtree(path, ignore_errors=True)
        if wrong := Scene(path, Random(seed)).run():
            return f"FMEMORY_TEST_SEED={seed}: {wrong}"
    return ""


def test_every_interleaving_shows_one_log(tmp_path: Path) -> None:
    assert first_complaint(tmp_path, range(SEED, SEED + RUNS)) == ""


def test_one_seed_gives_one_run(tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        scene = Scene(tmp_path / str(number), Random(SEED))
        assert scene.run() == ""
        runs.append((scene.scheduler.steps, scene.history))
    assert runs[0] == runs[1]


def locks_exclude_nobody() -> AbstractContextManager[object]:
    return mock.patch.object(PosixFileSystem, "try_lock", lambda *_, **__: True)


def writers_do_not_catch_up() -> AbstractContextManager[object]:
    return mock.patch.object(Tail, "catch_up", lambda self: self._core.read_tip())


@pytest.mark.parametrize("plant", [locks_exclude_nobody, writers_do_not_catch_up])
def test_interleavings_tell_of_a_planted_mistake(tmp_path: Path, plant: type) -> None:
    with plant():
        assert first_complaint(tmp_path, range(SEED, SEED + 5)) != ""
