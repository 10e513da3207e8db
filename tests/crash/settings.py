"""How long the crash suite looks, and the seed that all of its choices come from.

`FMEMORY_CRASH_ROUNDS=N` makes every technique look N times as long, and the enumerated programs
longer; `FMEMORY_TEST_SEED=N` replays a run whose failure printed that seed.
"""

from __future__ import annotations

import os
import random

ROUNDS = int(os.environ.get("FMEMORY_CRASH_ROUNDS", os.environ.get("FMEMORY_TEST_ROUNDS", "1")))
SEED = int(os.environ.get("FMEMORY_TEST_SEED", "20240608"))

SAMPLES = 3 * ROUNDS
"""Random states of a disk that are looked at for each moment."""

EXHAUSTIVE_LENGTH = 2 if ROUNDS < 10 else 3 if ROUNDS < 100 else 4
"""Programs up to this length are all tried; longer ones are sampled."""


def chooser(what: str) -> random.Random:
    """The random choices of one test, which is told in its output."""
    print(f"FMEMORY_TEST_SEED={SEED} ({what})")
    return random.Random(f"{SEED} {what}")
