"""Keys that come faster than the screen of `fmemory step` changes.

Goal: what is typed ahead does what it would have done if each key had waited for the one before.
Method: keys are posted all at once, as a terminal gives them. It would break if keys went to what
has the focus when they come, or if a screen that is not there yet, or no more, were told something.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual import events

import fmemory
from fmemory_tools.stepper.app import StepApp
from fmemory_tools.stepper.lines import text_lines
from fmemory_tools.stepper.screens import Pager

NAMES = {"\r": "enter", "\x1b": "escape", "\n": "ctrl+j", "/": "slash", "\x03": "ctrl+c"}


def type_at_once(app: StepApp, keys: str) -> None:
    """Post keys without a pause."""
    for key in keys:
        app.post_message(events.Key(NAMES.get(key, key), key))


async def selected_seq(app: StepApp, keys: str) -> int:
    """The event that is selected after these keys, typed before anything is shown."""
    async with app.run_test(size=(80, 24)) as pilot:
        type_at_once(app, keys)
        await pilot.pause()
        await asyncio.wait_for(app.all_typed(), 60)
        await asyncio.wait_for(app.events.settled(), 60)
        row = app.events.timeline.row(app.events.cursor.selected)
        assert row is not None
        return row.seq


@pytest.mark.parametrize("keys", ["jjjG/Bash\rnq", "\rqq", "/form\rq", "hqq", "?\x1b\rG/x\rnqq"])
def test_keys_typed_at_once_end_where_they_lead_without_an_error(store: Path, keys: str) -> None:
    async def run() -> StepApp:
        with fmemory.open(store, create=False, read_only=True) as memory:
            app = StepApp(memory, "login", utc=True)
            async with app.run_test(size=(80, 24)) as pilot:
                type_at_once(app, keys)
                await pilot.pause()
                await asyncio.wait_for(app.all_typed(), 60)
            return app

    assert asyncio.run(run()).return_code == 0


@pytest.mark.parametrize(
    ("keys", "seq"),
    [
        ("jj", 3),
        ("/works\r", 5),
        ("/works\nj", 6),
        ("/works\rn", 6),
        ("/works\rnN", 5),
        ("7gk", 6),
        ("\rGqj", 2),
        ("?/pattern\rqG", 9),
        ("/no\x1bj", 2),
        ("/works\r\rqj", 6),
    ],
)
def test_keys_typed_at_once_do_what_they_do_one_by_one(store: Path, keys: str, seq: int) -> None:
    with fmemory.open(store, create=False, read_only=True) as memory:
        assert asyncio.run(selected_seq(StepApp(memory, "login", utc=True), keys)) == seq


@pytest.mark.parametrize(("keys", "seq"), [("/works\rj", 6), ("/works\r2j", 7)])
def test_keys_wait_for_a_search_that_takes_long(
    store: Path, keys: str, seq: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmemory_tools.stepper.app.JOB_S", 0.0)  # one event a look
    with fmemory.open(store, create=False, read_only=True) as memory:
        assert asyncio.run(selected_seq(StepApp(memory, "login", utc=True), keys)) == seq


def test_ctrl_c_drops_what_was_typed_ahead(store: Path) -> None:
    with fmemory.open(store, create=False, read_only=True) as memory:
        assert asyncio.run(selected_seq(StepApp(memory, "login", utc=True), "GGG\x03j")) == 2


def test_a_page_that_is_not_on_the_screen_can_be_told_anything() -> None:
    page = Pager("event", list(text_lines("words")))

    page.tell("words")
    page.say([("words", "")])

    assert not page.is_mounted
