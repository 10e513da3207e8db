"""Programs that a fault befalls: which calls fail, and what must hold afterwards.

A `FailingDisk` fails the calls that a `Fault` names; `complaint` runs one program on it, goes on
after the fault, and judges the store as it is and as its disk has it.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from fmemory.errors import LogCorrupt
from fmemory_segments import Log, LogError
from fmemory_segments.errors import LogReason
from tests.crash.disk import RecordingFileSystem
from tests.crash.programs import OPERATIONS, Program, Runner, determined, long_program
from tests.crash.states import judge_store, lay_out, remove_store
from tests.segments.log_tools import Crash

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PROLOGUE: Program = ("batch", "soft", "delete")


@dataclass(frozen=True)
class Fault:
    """What befalls a program.

    Attributes:
        kind: "EIO", "ENOSPC", "short" (a write writes two fifths), "full" (the same, and the
            next call says ENOSPC) or "crash".
        call: Number of the first call that it befalls.
        for_ever: All later calls as well.
    """

    kind: str
    call: int
    for_ever: bool = False


KINDS = [
    ("EIO", False),
    ("EIO", True),
    ("ENOSPC", False),
    ("ENOSPC", True),
    ("short", False),
    ("full", False),
    ("crash", True),
]


class FailingDisk(RecordingFileSystem):
    """A recording disk whose calls fail; what a failed sync was to write is never written."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__(lambda: None)
        self.hook = self._strike
        self.fault = fault
        self.count = 0
        self._is_cut = False

    def _strikes(self) -> bool:
        fault = self.fault
        if fault is None:
            return False
        if fault.kind in ("short", "full"):
            return fault.kind == "full" and self._is_cut and self.count == fault.call + 1
        return self.count == fault.call or (fault.for_ever and self.count > fault.call)

    def _strike(self, name: str, _: object) -> None:
        self.count += 1
        if not self._strikes() or self.fault is None:
            return
        if self.fault.kind == "crash":
            raise Crash
        code = errno.EIO if self.fault.kind == "EIO" else errno.ENOSPC
        raise OSError(code, f"injected into {name}")

    def pwritev(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int, /) -> int:
        whole = b"".join(memoryview(one).cast("B") for one in buffers)
        fault = self.fault
        if fault and fault.kind in ("short", "full") and self.count + 1 == fault.call:
            self._is_cut = True
            whole = whole[: len(whole) * 2 // 5]
        return super().pwritev(fd, [whole], offset)

    def datasync(self, fd: int) -> None:
        try:
            super().datasync(fd)
        except OSError:
            self._drop(fd)
            raise

    def sync(self, fd: int) -> None:
        try:
            super().sync(fd)
        except OSError:
            self._drop(fd)
            raise

    def _drop(self, fd: int) -> None:
        """The system has marked the pages clean: no later sync writes them."""
        number = self._by_fd[fd]
        if isinstance(number, int):
            self.disk.files[number].pending.clear()


def count_calls(folder: Path, program: Program) -> int:
    """Calls of a program that nothing befalls, the prologue's not counted."""
    fs, run = begin(folder)
    for name in program:
        run.run(name)
    run.close()
    return fs.count


def begin(folder: Path) -> tuple[FailingDisk, Runner]:
    """A new store with something in it, open, on a disk whose calls are counted from here on."""
    source = folder / "source"
    remove_store(source)
    fs = FailingDisk()
    run = Runner(source, fs)
    for name in PROLOGUE:
        run.run(name)
    fs.count = 0
    return fs, run


def complaint(folder: Path, program: Program, fault: Fault) -> str:
    """What is wrong after a program that a fault befell; "" = nothing."""
    fs, run = begin(folder)
    fs.fault = fault
    try:
        for name in program:
            error = run.try_run(name)
            assert error is None or isinstance(error, LogCorrupt) or error.reason in LogReason
        with suppress(LogError):
            run.close()
    except Crash:
        pass
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__)[-6:])
        return f"{'-'.join(program)}, {fault}: {type(error).__name__}: {error}\n{where}"
    fs.fault = None
    run.forget()
    wrong = "" if fault.for_ever else _left_behind(run.path)
    wrong = wrong or judge_store(run.path, run.ledger) or _judge_disk(folder, fs, run)
    return wrong and f"{'-'.join(program)}, {fault}: {wrong}"


def _left_behind(path: Path) -> str:
    """What an append that failed once left behind the end, though it could have tidied up."""
    if not list(path.glob("seg-*")):
        return ""
    with Log.open(path, read_only=True) as log:
        torn_bytes = log.recovery.torn_bytes
    return f"{torn_bytes} bytes of a batch that failed are left" if torn_bytes else ""


def _judge_disk(folder: Path, fs: FailingDisk, run: Runner) -> str:
    """What is wrong with what reached the disk, were the power cut now."""
    for mode in ("none", "all"):
        place = folder / "disk"
        lay_out(place, fs.disk.with_all_names(mode), run.path)
        if wrong := judge_store(place, run.ledger):
            return f"on the disk, {mode} of the unsynced: {wrong}"
    return ""


def first_complaint(folder: Path, cases: Iterable[tuple[Program, Fault]]) -> str:
    """What the first case with something wrong shows."""
    with determined():
        return next((wrong for case in cases if (wrong := complaint(folder, *case))), "")


def short_cases(folder: Path, step: int = 1) -> Iterable[tuple[Program, Fault]]:
    """Each operation, with every call of it failing in every way (every `step`-th case)."""
    for name in OPERATIONS:
        program = (name, "put")
        calls = range(1, count_calls(folder, program) + 1)
        for number, (call, (kind, for_ever)) in enumerate(product(calls, KINDS)):
            if number % step == 0:
                yield program, Fault(kind, call, for_ever)


def long_cases(choose: Random, count: int) -> Iterable[tuple[Program, Fault]]:
    """Long programs, with some call of them failing in some way."""
    for _ in range(count):
        program = long_program(choose)
        kind, for_ever = choose.choice(KINDS)
        yield program, Fault(kind, choose.randint(1, 25 * len(program)), for_ever)
