"""Random operations, as one test of the suite."""

from __future__ import annotations

from pathlib import Path

from fmemory.testing._backend_base import BackendSuiteBase
from fmemory.testing._machine import run_machine


class MachinePart(BackendSuiteBase):
    """What no single test claims."""

    def test_random_operations_leave_what_a_plain_model_has(self, tmp_path: Path) -> None:
        run_machine(self, tmp_path)
