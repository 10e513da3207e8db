"""Timing by blocks that take turns, so that a drift of the machine meets every side alike.

A round times one block of every side, in an order that rotates. A ratio is taken within each round
and the median of these is reported: a noisy neighbour then disturbs one round, not the result.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Block: TypeAlias = Callable[[], list[float]]
"""Does a piece of work once and returns seconds an item, one or more samples."""


@dataclass(slots=True)
class Samples:
    """Seconds an item of one side: a list of samples for each round."""

    rounds: list[list[float]] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return [sample for block in self.rounds for sample in block]

    @property
    def median(self) -> float:
        return statistics.median(self.all)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.all)

    def percentile(self, percent: float) -> float:
        """The smallest sample that `percent` per cent of the samples do not exceed."""
        ordered = sorted(self.all)
        return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def median_ratio(peer: Samples, ours: Samples) -> float:
    """How many times longer the peer takes: median over rounds of the ratio of block medians."""
    return statistics.median(
        statistics.median(theirs) / statistics.median(mine)
        for theirs, mine in zip(peer.rounds, ours.rounds, strict=True)
    )


def mean_ratio(peer: Samples, ours: Samples) -> float:
    """How many times longer the peer takes in total: pauses count with all their length."""
    return peer.mean / ours.mean


def interleave(
    blocks: Mapping[str, Block], rounds: int, *, rest_s: float = 0.0, sync: bool = False
) -> dict[str, Samples]:
    """Run every block once unmeasured, then `rounds` times in turn.

    Args:
        blocks: Side name to block.
        rounds: At least 1.
        rest_s: Pause before each block, for disks that throttle after a burst.
        sync: Flush the whole system before each block. Without it a side that syncs pays for the
            dirty pages of the one before.
    """
    for block in blocks.values():
        block()
    found = {name: Samples() for name in blocks}
    names = list(blocks)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            if sync:
                os.sync()
            time.sleep(rest_s)
            found[name].rounds.append(blocks[name]())
    return found


def each(action: Callable[[T], object], work: Sequence[T]) -> list[float]:
    """Seconds of each call of `action`, one after another."""
    clock = time.perf_counter
    samples: list[float] = []
    for item in work:
        started = clock()
        action(item)
        samples.append(clock() - started)
    return samples


def whole(action: Callable[[], int]) -> list[float]:
    """Seconds an item of one call of `action`, which returns how many items it handled."""
    started = time.perf_counter()
    count = action()
    return [(time.perf_counter() - started) / count]
