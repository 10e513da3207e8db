"""Run by strace: appends to a store and prints each acknowledged seq, or the name of an error.

python -m tests.crash.strace_child STORE [compact] [careless]
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from fmemory_segments import Erasure, Log, LogError
from tests.crash.mistakes import MISTAKES
from tests.segments.log_tools import put, say

BATCHES = 6


def main(path: Path, *, compacts: bool) -> None:
    """Append batches; what failed is told, and tried again with a new handle."""
    for number in range(BATCHES):
        try:
            with Log.open(path, segment_bytes_max=2_000) as log:
                tell("ok", put(log, number, 2).last_seq)
                tell("ok", say(log, b"word %d" % number, b"more").last_seq)
                if compacts:
                    head = log.refresh()
                    locs = np.array([1 << 16], np.uint64)
                    log.compact(Erasure(head, locs, np.array([], np.uint64)))
                    tell("compacted", head)
        except LogError as error:
            tell(type(error).__name__, number)


def tell(what: str, number: int) -> None:
    """One line, at once."""
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    careless = MISTAKES["swallows_a_failed_sync"]() if "careless" in sys.argv else nullcontext()
    with careless:
        main(Path(sys.argv[1]), compacts="compact" in sys.argv)
