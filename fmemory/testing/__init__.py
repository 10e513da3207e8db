"""Suites for whoever implements a memory backend or a journal; they need `fmemory[testing]`.

Subclass `MemoryBackendSuite` or `JournalSuite` in a test module, say how to open yours, declare
what it can do, and pytest runs every rule of the contract against it. `fmemory.testing.machine`
runs random operations against a plain model; the backend suite does that too.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{one.name}" for one in pkgutil.iter_modules(__path__))
)

from fmemory.testing._capabilities import Capability, CapabilityReport, CapabilityRow
from fmemory.testing._journal_suite import JournalSuite
from fmemory.testing._model_backend import ModelBackend
from fmemory.testing._processes import Composed
from fmemory.testing._suite import MemoryBackendSuite

__all__ = [
    "Capability",
    "CapabilityReport",
    "CapabilityRow",
    "Composed",
    "JournalSuite",
    "MemoryBackendSuite",
    "ModelBackend",
]
