"""Stores that several tests of reading look at; a file with another `memory` has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmemory
from fmemory import LogBackend
from tests.fmemory.replay_tools import JOURNALS, target_of, tell_story


@pytest.fixture(params=JOURNALS)
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogBackend]:
    """The story of `tell_story`, in each kind of store."""
    with fmemory.open(target_of(request.param, tmp_path)) as opened:
        tell_story(opened)
        yield opened


@pytest.fixture
def empty() -> Iterator[LogBackend]:
    """A store without any event."""
    with fmemory.open(":memory:") as opened:
        yield opened
