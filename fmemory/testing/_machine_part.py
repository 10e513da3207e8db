"""Random operations, as one test of the suite."""

from __future__ import annotations

from pathlib import Path

from fmemory.testing._backend_base import BackendSuiteBase


class MachinePart(BackendSuiteBase):
    """What no single test claims."""

    def test_random_operations_leave_what_a_plain_model_has(self, tmp_path: Path) -> None:
        # Hypothesis takes a second to import, which processes started by tests need not wait for.
        from fmemory.testing.machine import run_machine

        run_machine(self, tmp_path)
