"""Suites for whoever implements a memory backend or a journal; they need `fmemory[testing]`.

Subclass `MemoryBackendSuite` or `JournalSuite` in a test module, say how to open yours, declare
what it can do, and pytest runs every rule of the contract against it. `MemoryMachine` does the same
with random operations against a plain model.
"""

import pytest

pytest.register_assert_rewrite("fmemory.testing")

from fmemory.testing._capabilities import Capability, CapabilityReport, CapabilityRow
from fmemory.testing._journal_suite import JournalSuite

__all__ = [
    "Capability",
    "CapabilityReport",
    "CapabilityRow",
    "JournalSuite",
]
