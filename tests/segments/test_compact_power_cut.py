"""After a power cut at any moment of a compaction one generation holds, and it holds all events.

Goal: P9 against a disk that keeps what was synced and any part of what was not: contents, renames
and unlinks. Method: as for appends, every call of a compaction is a moment, and disks are built
from each. And the other way round: mistakes are planted one by one, each a step left out or done
too early as other stores did it, and the same check must notice. What would have to break: a name
before its content, a manifest before the names it lists, a removal before the manifest, a witness
before what it vouches for.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fmemory_segments import LogError
from fmemory_segments import _choose as choose_module
from fmemory_segments import _compact as compact_module
from fmemory_segments import _obsolete as obsolete_module
from fmemory_segments import _publish as publish_module
from fmemory_segments._catalog import HALF_COMPACTED
from fmemory_segments._core import Core
from tests.crash.disk import Moment, RecordingFileSystem, build
from tests.segments.compaction_tools import erasure_at, everything, open_log
from tests.segments.log_tools import ROUNDS, damage_findings, put, say

SEED = int(os.environ.get("FMEMORY_TEST_SEED", "20240609"))
SAMPLES = 2 * ROUNDS
FINAL_SAMPLES = 20
SECRET = b"the secret word"
ERASURE = erasure_at(16, locs=[3 << 16, (3 << 16) | 1], seqs=[2])


class Recorder(RecordingFileSystem):
    """Also knows whether a compaction is at work."""

    is_compacting = False


@dataclass
class Recorded:
    """A compaction, moment by moment.

    Attributes:
        source: Where it ran.
        moments: What the disk had after each call; `durable` is 1 once the compaction returned.
        before: What readers saw.
        after: What they see.
    """

    source: Path
    moments: list[Moment]
    before: list[object]
    after: list[object]


def record(source: Path, kind: type[Recorder] | None = None) -> Recorded:
    """Compact a small store, remembering every moment."""
    moments: list[Moment] = []
    is_done = [False]

    def after() -> None:
        if fs.is_compacting:
            moments.append(Moment(fs.disk.copy(), int(is_done[0])))

    fs = (kind or Recorder)(after)
    with open_log(source, fs=fs) as log:
        for number in range(8):
            put(log, number, 1 + number % 3)
            say(log, SECRET if number == 0 else b"word %d " % number * 30)
        before, expected = everything(log), everything(log, ERASURE)
        fs.is_compacting = True
        done = log.compact(ERASURE)
        assert done.pending == ()
        is_done[0] = True
        after()
        fs.is_compacting = False
        assert everything(log) == expected
    return Recorded(source, moments, before, expected)


def check(recorded: Recorded, path: Path, seed: int = SEED) -> None:
    """Every disk that a power cut may leave opens with all events, and can be compacted again."""
    choose = random.Random(seed)
    for number, moment in enumerate(recorded.moments):
        for sample in range(FINAL_SAMPLES if moment.durable else SAMPLES):
            where = f"moment {number} of {len(recorded.moments)}, sample {sample}"
            files = moment.disk.cut(choose, in_order=False)
            build(path, files, recorded.source)
            _check_one(path, recorded, where)
            if moment.durable:
                left = [str(name) for name, content in files.items() if SECRET in content]
                assert left == [], where
            shutil.rmtree(path)


def _check_one(path: Path, recorded: Recorded, where: str) -> None:
    assert not damage_findings(path), where
    for read_only in (True, False):
        with open_log(path, read_only=read_only) as log:
            found = everything(log)
        assert found == recorded.before or found == recorded.after, where
    with open_log(path) as log:
        assert log.compact(ERASURE).pending == (), where
        assert everything(log) == recorded.after, where
    assert not damage_findings(path), where


@pytest.fixture(autouse=True)
def small_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two new segments where one would do."""
    monkeypatch.setattr(choose_module, "OUTPUT_BYTES", 3_500)


def test_a_power_cut_at_any_moment_leaves_one_generation_that_holds(tmp_path: Path) -> None:
    print(f"FMEMORY_TEST_SEED={SEED}")
    recorded = record(tmp_path / "source")
    assert len(recorded.moments) > 20
    check(recorded, tmp_path / "disk")


# Planted mistakes


def latest_first(recorded: Recorded) -> Recorded:
    """The same moments, those first that show a mistake soonest: of the end of the compaction."""
    return replace(recorded, moments=recorded.moments[::-1])


class NoFolderSync(Recorder):
    """The sync of a folder does nothing: what other stores forgot after a rename."""

    def sync(self, fd: int) -> None:
        if not (self.is_compacting and isinstance(self._by_fd[fd], Path)):
            super().sync(fd)


class NoOutputSync(Recorder):
    """New segments and manifests get their names before their bytes are on disk."""

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__(after)
        self._half_made: set[int] = set()

    def create_file(self, path: Path) -> int:
        fd = super().create_file(path)
        self._half_made.discard(fd)
        if path.name.startswith(HALF_COMPACTED):
            self._half_made.add(fd)
        return fd

    def sync(self, fd: int) -> None:
        if fd not in self._half_made:
            super().sync(fd)

    def close(self, fd: int) -> None:
        self._half_made.discard(fd)
        super().close(fd)


def remove_inputs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replaced goes before the manifest that replaces it is there."""
    write = publish_module._write_manifest

    def remove_and_write(core: Core, manifest: object, made: object) -> None:
        for name in manifest.obsolete:  # type: ignore[attr-defined]
            core.fs.remove(core.path / name)
        write(core, manifest, made)  # type: ignore[arg-type]

    monkeypatch.setattr(publish_module, "_write_manifest", remove_and_write)


def tell_tip_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The witness speaks before what it saw is on disk."""
    write = publish_module._write_manifest

    def tell_and_write(core: Core, manifest: object, made: object) -> None:
        assert core.tip is not None
        core.tip.tell_manifest(manifest.number)  # type: ignore[attr-defined]
        write(core, manifest, made)  # type: ignore[arg-type]

    monkeypatch.setattr(publish_module, "_write_manifest", tell_and_write)


def forget_the_folder_of_what_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compaction returns before the removal of the erased data is on disk."""

    def remove_replaced(core: Core, listing: object) -> list[str]:
        for path in obsolete_module.replaced_files(core, listing):  # type: ignore[arg-type]
            core.fs.remove(path)
        return []

    monkeypatch.setattr(compact_module, "remove_replaced", remove_replaced)


@pytest.mark.parametrize("kind", [NoFolderSync, NoOutputSync])
def test_a_dropped_sync_is_noticed(tmp_path: Path, kind: type[Recorder]) -> None:
    recorded = latest_first(record(tmp_path / "source", kind))
    with pytest.raises((AssertionError, LogError)):
        check(recorded, tmp_path / "disk")


@pytest.mark.parametrize(
    "plant", [remove_inputs_first, tell_tip_first, forget_the_folder_of_what_was_removed]
)
def test_a_step_done_too_early_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with monkeypatch.context() as patched:
        plant(patched)
        recorded = latest_first(record(tmp_path / "source"))
    with pytest.raises((AssertionError, LogError)):
        check(recorded, tmp_path / "disk")
