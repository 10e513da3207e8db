"""Settings of the property tests, where and in what order tests run, and fixtures of several kinds.

On a busy machine time says nothing about an example, so no example has a deadline.

Tests keep their files in memory (`/dev/shm`) where it has room, because they sync ten thousand
times. What a sync is worth is tested by the calls that are made and on simulated disks; a real disk
shows a test nothing else. `TMPDIR=FOLDER` names another place.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.browser import browser, chromium
from tests.postgres import postgres_server, postgres_url

__all__ = ["browser", "chromium", "postgres_server", "postgres_url"]

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 1 << 30  # several times what the tests keep at once

FIRST = (
    "tests/benchmarks/",
    "tests/crash/",
    "tests/segments/test_compact",
    "tests/properties/",
)
"""Files with few tests that take long; at the end one worker would run them alone."""

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def _write_to_memory() -> None:
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.R_OK | os.W_OK | os.X_OK):
        return
    if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        # The environment is what child processes and the workers of pytest-xdist go by.
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


_write_to_memory()


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist, where it is used, hand out files in the order of collection."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: 14,000 tests and no garbage, in half the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, else the order of collection."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
