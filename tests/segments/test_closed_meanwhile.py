"""Whoever still works with a log when another thread closes it is told so, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fmemory_segments import Log
from fmemory_segments._core import Core
from fmemory_segments._rows import read_row, read_rows
from fmemory_segments.errors import LogClosed
from tests.segments.log_tools import put_draft


@pytest.mark.parametrize(
    "ask",
    [
        lambda core: core.active,
        lambda core: core.segment_of(1),
        lambda core: read_row(core, 1 << 16),
        lambda core: read_rows(core, np.array([1 << 16], np.uint64), notes=True, vectors=True),
    ],
    ids=["active", "segment of a seq", "a row", "rows"],
)
def test_a_closed_log_has_no_segments_and_says_that_it_is_closed(
    ask: Callable[[Core], object], tmp_path: Path
) -> None:
    log = Log.open(tmp_path)
    log.commit(lambda _: [put_draft(1, 1, 2)])
    core = log._core
    ask(core)
    log.close()

    with pytest.raises(LogClosed):
        ask(core)
