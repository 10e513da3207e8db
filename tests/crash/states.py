"""Crash states of programs: recorded, built and judged.

A `Search` runs programs on a recording disk and opens what a power cut may leave at each moment of
them; `judge_store` says what is wrong with one store, in words, or "".
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random

from fmemory.copying import copy_log
from fmemory.journals._segments import SegmentJournal
from fmemory_segments import Log, LogError
from tests.crash.disk import Disk, QuickFileSystem, RecordingFileSystem, build
from tests.crash.programs import (
    Fact,
    Ledger,
    Program,
    Runner,
    backup_of,
    determined,
    facts_of,
    is_new,
    judge,
    judge_backup,
    traces,
)
from tests.segments.log_tools import damage_findings

PASSES_ON = {"sync_folder", "sync_segment"}
"""Functions that ask for a sync on behalf of others."""


@dataclass
class Step:
    """What the disk had, and what had been promised, at one moment of a program."""

    program: Program
    at: int
    disk: Disk
    ledger: Ledger


@dataclass
class Search:
    """Judges disks, and none twice.

    Attributes:
        folder: Where stores are made.
        file_system: Makes the disk to record on.
        count: States that were opened.
    """

    folder: Path
    choose: Random
    file_system: Callable[[Callable[[], None]], RecordingFileSystem] = RecordingFileSystem
    count: int = 0
    _seen: dict[bytes, Ledger] = field(default_factory=dict)

    def record(self, program: Program) -> tuple[Path, list[Step]]:
        """Run a program on a new store; its moments."""
        source = self.folder / "source"
        remove_store(source)
        moments: list[Step] = []
        at = -1

        def after() -> None:
            moments.append(Step(program, at, fs.disk.copy(), run.ledger))

        fs = self.file_system(after)
        run = Runner(source, fs)
        with determined():
            run.open()
            for at, name in enumerate(program):  # noqa: B007 - `after` looks at it
                run.run(name)
                after()
            run.close()
            after()
        return source, moments

    def complaint(
        self, programs: Iterable[Program], *, samples: int, all_steps: bool = True
    ) -> str:
        """What the first wrong state shows; "" if there is none.

        Args:
            samples: Random states of each moment, besides the extremes.
            all_steps: Look at every step of a program; False = where every beginning is among the
                programs, at those steps that no other of them looks at.
        """
        for program in programs:
            source, moments = self.record(program)
            for number, moment in enumerate(moments):
                if not all_steps and not is_new(program, moment.at):
                    continue
                for files in moment.disk.states(self.choose, samples):
                    if wrong := self._judge(source, files, moment.ledger):
                        return f"{'-'.join(program)}, moment {number} (step {moment.at}): {wrong}"
        return ""

    def _judge(self, source: Path, files: dict[Path, bytes], ledger: Ledger) -> str:
        name = _digest(files)
        if self._seen.get(name) == ledger:
            return ""
        self._seen[name] = ledger
        self.count += 1
        place = self.folder / "disk"
        lay_out(place, files, source)
        return judge_store(place, ledger)


def _digest(files: dict[Path, bytes]) -> bytes:
    found = blake2b()
    for path in sorted(files):
        found.update(b"%s %d " % (bytes(path), len(files[path])))
        found.update(files[path])
    return found.digest()


def remove_store(path: Path) -> None:
    """Remove a store and its backup, if they are there."""
    for folder in (path, backup_of(path)):
        shutil.rmtree(folder, ignore_errors=True)


def lay_out(place: Path, files: dict[Path, bytes], source: Path) -> None:
    """Lay the files of a disk out anew: a store, and its backup if there is one."""
    remove_store(place)
    build(place, files, source)
    if any(path.is_relative_to(backup_of(source)) for path in files):
        build(backup_of(place), files, backup_of(source))


def judge_store(path: Path, ledger: Ledger) -> str:
    """What is wrong with a store and its backup after a power cut; "" = nothing."""
    if wrong := traces(path, ledger):
        return wrong
    facts = found_in(path)
    if isinstance(facts, str):
        return facts
    return judge(ledger, facts) or traces(path, ledger) or _judge_backup(path, ledger, facts)


def _judge_backup(path: Path, ledger: Ledger, facts: Sequence[Fact]) -> str:
    """What is wrong with the backup beside a store, and with going on with it."""
    place = backup_of(path)
    found = found_in(place) if place.exists() else []
    if isinstance(found, str):
        return f"backup: {found}"
    if wrong := judge_backup(ledger, found, len(facts)):
        return wrong
    if not place.exists():
        return ""
    try:
        with (
            Log.open(path, fs=QuickFileSystem()) as source,
            Log.open(place, fs=QuickFileSystem()) as target,
        ):
            copy_log(SegmentJournal(source), SegmentJournal(target))
            copied = facts_of(target)
    except Exception as error:
        return f"backup: it cannot be gone on with: {type(error).__name__}: {error}"
    if len(copied) != len(facts):
        return f"backup: gone on with, it has {len(copied)} events, the store {len(facts)}"
    return judge_backup(ledger, copied, len(facts))


def found_in(path: Path) -> list[Fact] | str:
    """The events of a store after a power cut, or what is wrong with it."""
    try:
        if list(path.glob("seg-*")) and (found := damage_findings(path)):
            return f"verify finds damage: {found}"
        with Log.open(path, fs=QuickFileSystem()) as log:
            return facts_of(log)
    except LogError as error:
        return f"it does not open: {error}"
    except Exception as error:
        return f"{type(error).__name__} comes out: {error}"


class ForgetfulFileSystem(RecordingFileSystem):
    """A disk to which the syncs of one place in the code do not get through.

    Args:
        place: Name of the function that asks for the sync; "" = none.
        places: Gets the names of all that asked.
    """

    def __init__(self, after: Callable[[], None], place: str, places: set[str]) -> None:
        super().__init__(after)
        self._place = place
        self._places = places

    def _sync(self, fd: int) -> None:
        place = asking_function()
        self._places.add(place)
        if place != self._place:
            super()._sync(fd)


def asking_function() -> str:
    """The function of the log that asks for a sync, behind the helpers that pass it on."""
    frame = sys._getframe(1)
    while "fmemory_segments" not in frame.f_code.co_filename or frame.f_code.co_name in PASSES_ON:
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_code.co_qualname
