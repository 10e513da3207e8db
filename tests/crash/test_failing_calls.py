"""Any call to the system fails, once or from then on, or ends the process; the promises hold.

Goal: no failure of the file system loses an acknowledged event, tears a batch, shows what was said
not to have happened, or leaves a store that does not open. Method: pass 1 counts the calls of a
program, pass 2 lets one fail and runs the rest of the program; then the store is judged as it is,
and as a disk has it that wrote nothing of what a failed sync was to write. What would have to
break: a cut back that is missing, a failed sync that is tried again or believed, a repair that is
not repeatable, an order of writes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.faults import Fault, first_complaint, long_cases, short_cases
from tests.crash.mistakes import MISTAKES
from tests.crash.programs import Program
from tests.crash.settings import ROUNDS, chooser

LONG_RUNS = 50 * ROUNDS
STEP = 1 if ROUNDS > 1 else 11


def test_every_failing_call_of_every_operation_keeps_the_promises(tmp_path: Path) -> None:
    assert first_complaint(tmp_path, short_cases(tmp_path, STEP)) == ""


def test_failing_calls_of_long_programs_keep_the_promises(tmp_path: Path) -> None:
    cases = long_cases(chooser("failing calls"), LONG_RUNS)
    assert first_complaint(tmp_path, cases) == ""


@pytest.mark.parametrize(
    ("mistake", "program", "kind"),
    [
        ("acknowledges_before_the_sync", ("put",), "EIO"),
        ("tells_tip_before_the_sync", ("put", "put"), "EIO"),
        ("swallows_a_failed_sync", ("put",), "EIO"),
        ("leaves_a_failed_write", ("put", "put"), "full"),
    ],
)
def test_failing_calls_tell_of_a_planted_mistake(
    tmp_path: Path, mistake: str, program: Program, kind: str
) -> None:
    cases = [(program, Fault(kind, call)) for call in range(1, 20)]
    assert first_complaint(tmp_path, cases) == ""
    with MISTAKES[mistake]():
        assert first_complaint(tmp_path, cases) != ""
