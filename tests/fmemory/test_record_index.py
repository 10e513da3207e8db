"""The index of one namespace against a plain sorted list.

Goal: pages, counts and selections are exact for every history of puts and deletes. Method: random
histories, each step compared with a list that is sorted anew. What would have to break: a row that
is lost between the sorted run and what came since, a hole that is counted, a page that skips.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fmemory._engine.record_index import RecordIndex

TIMES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, -1.0])
PUTS = st.lists(TIMES, min_size=1, max_size=6)
DELETES = st.integers(0, 10_000)
STEPS = st.lists(st.one_of(PUTS, DELETES), max_size=40)
BOUND = st.one_of(st.none(), TIMES)


class Model:
    """(timestamp, loc, id) of what lives, sorted when asked."""

    def __init__(self) -> None:
        self.live: list[tuple[float, int, str]] = []
        self.next_loc = 1

    def chosen(self, start: float | None, end: float | None) -> list[tuple[float, int, str]]:
        return [
            one
            for one in sorted(self.live)
            if (start is None or one[0] >= start) and (end is None or one[0] < end)
        ]


def build(steps: list[list[float] | int], check_every_step: bool) -> tuple[RecordIndex, Model]:
    index, model = RecordIndex(), Model()
    for step in steps:
        if isinstance(step, int):
            if model.live:
                gone = model.live.pop(step % len(model.live))
                index.delete([gone[2]])
        else:
            locs = np.arange(model.next_loc, model.next_loc + len(step), dtype=np.uint64)
            ids = [f"r{loc}" for loc in locs]
            index.put(ids, np.array(step), locs)
            model.live += list(zip(step, locs.tolist(), ids, strict=True))
            model.next_loc += len(step)
        if check_every_step:
            index.check()
    return index, model


def pages(index: RecordIndex, start: float | None, end: float | None, limit: int) -> list[str]:
    found: list[str] = []
    after: tuple[float, int] | None = None
    while True:
        page = index.page(start, end, after, limit)
        found += [index.ids[row] for row in page.rows]
        assert len(page.rows) <= limit
        if not page.more:
            return found
        assert len(page.rows) == limit
        after = (float(page.timestamps[-1]), int(page.locs[-1]))


@settings(max_examples=300, deadline=None)
@given(STEPS, BOUND, BOUND, st.integers(1, 7), st.booleans())
def test_pages_counts_and_selections_equal_a_sorted_list(
    steps: list[list[float] | int],
    start: float | None,
    end: float | None,
    limit: int,
    check_every_step: bool,
) -> None:
    index, model = build(steps, check_every_step)
    wanted = [one[2] for one in model.chosen(start, end)]
    assert pages(index, start, end, limit) == wanted
    assert index.count(start, end) == len(wanted)
    assert [index.ids[row] for row in index.select(start, end)] == wanted
    index.check()


@settings(max_examples=100, deadline=None)
@given(STEPS, STEPS, st.integers(1, 4), st.integers(0, 30))
def test_a_cursor_goes_on_after_what_was_written_between_pages(
    first: list[list[float] | int], then: list[list[float] | int], limit: int, _: int
) -> None:
    index, model = build(first, check_every_step=False)
    page = index.page(None, None, None, limit)
    if not len(page.rows):
        return
    after = (float(page.timestamps[-1]), int(page.locs[-1]))
    for step in then:
        if isinstance(step, int) and model.live:
            index.delete([model.live.pop(step % len(model.live))[2]])
        elif not isinstance(step, int):
            locs = np.arange(model.next_loc, model.next_loc + len(step), dtype=np.uint64)
            ids = [f"r{loc}" for loc in locs]
            index.put(ids, np.array(step), locs)
            model.live += list(zip(step, locs.tolist(), ids, strict=True))
            model.next_loc += len(step)
    rest = index.page(None, None, after, 1000)
    wanted = [one[2] for one in sorted(model.live) if one[:2] > after]
    assert [index.ids[row] for row in rest.rows] == wanted


def test_many_rows_in_random_order_stay_exact_over_merges_and_rebuilds() -> None:
    seed = 7
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    index, model = RecordIndex(), Model()
    for _ in range(60):
        count = int(random.integers(1, 300))
        times = random.integers(0, 50, count).astype(float)
        locs = np.arange(model.next_loc, model.next_loc + count, dtype=np.uint64)
        ids = [f"r{loc}" for loc in locs]
        index.put(ids, times, locs)
        model.live += list(zip(times.tolist(), locs.tolist(), ids, strict=True))
        model.next_loc += count
        for _ in range(int(random.integers(0, 200))):
            if model.live:
                index.delete([model.live.pop(int(random.integers(len(model.live))))[2]])
        low, high = sorted(random.integers(0, 50, 2).astype(float).tolist())
        wanted = [one[2] for one in model.chosen(low, high)]
        assert pages(index, low, high, 97) == wanted
        assert index.count(low, high) == len(wanted)
    index.check()
