"""The screen of `fmemory step`, through textual's pilot: keys go in, and cells are looked at."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from rich.style import Style
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widget import Widget

import fmemory
from fmemory import (
    FeatureRecord,
    Message,
    NewEvent,
    ProgressEntry,
    Role,
    SessionManifest,
    StorageError,
)
from fmemory_tools.stepper.app import EventsScreen, StepApp
from fmemory_tools.stepper.content import NO_BREAK
from fmemory_tools.stepper.panes import PAINT, SELECTED
from fmemory_tools.stepper.screens import Pager
from tests.tools.helpers import bytes_of

HOSTILE = "[bold red]red[/] \x1b[2J\x1b]0;title\x07 \u202eback\r [link=http://x]y[/link] \x9b31m"


class Watched:
    """An app on a screen of its own, and what a person sees of it."""

    def __init__(self, app: StepApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.events = app.events
        self._pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys one after the other, and wait until all is shown."""
        await self._pilot.press(*["space" if key == " " else key for key in keys])
        await self.settled()

    async def leave(self, key: str) -> None:
        """Press a key that ends the app."""
        await self._pilot.press(key)

    async def settled(self) -> None:
        await self._pilot.pause()
        await asyncio.wait_for(self.events.settled(), 60)
        await self._pilot.pause()

    @property
    def seq(self) -> int:
        """The selected event."""
        row = self.events.timeline.row(self.events.cursor.selected)
        assert row is not None
        return row.seq

    def text(self, name: str) -> str:
        """What a bar or a pane says, as it is drawn."""
        return "\n".join(strip.text.rstrip() for strip in drawn(self._find(name)))

    def styles(self, name: str) -> set[Style | None]:
        """The styles in which it is drawn."""
        return {one.style for strip in drawn(self._find(name)) for one in strip}

    def is_shown(self, name: str) -> bool:
        return self._find(name).size.height > 0

    async def click(self, selector: str, offset: tuple[int, int]) -> None:
        await self._pilot.click(selector, offset=offset)
        await self.settled()

    def _find(self, name: str) -> Widget:
        return self.app.screen.query_one(f"#{name}")


def drawn(widget: Widget) -> list[Strip]:
    """The lines of a widget as they are drawn."""
    return [widget.render_line(y) for y in range(widget.size.height)]


def watch(
    store: Path | str,
    body: Callable[[Watched], Awaitable[None]],
    *,
    session_id: str = "login",
    size: tuple[int, int] = (80, 24),
    at: int | None = None,
    follows: bool = False,
) -> None:
    """Run the app on a store, and the body with it."""

    async def run() -> None:
        with fmemory.open(store, create=False, read_only=True) as memory:
            app = StepApp(memory, session_id, at=at, follows=follows, utc=True)
            async with app.run_test(size=size) as pilot:
                watched = Watched(app, pilot)
                await watched.settled()
                await body(watched)

    asyncio.run(run())


@pytest.fixture(scope="module")
def long_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 1,000 events of 2,000 in the log; every 100th of them says a word."""
    path = tmp_path_factory.mktemp("long") / "long"
    with fmemory.open(path, durability="os") as memory, memory.batch() as batch:
        for number in range(1000):
            words = f"hundred {number}" if number % 100 == 99 else f"message {number}"
            batch.append_transcript_messages("login", [Message(Role.USER, words)])
            batch.append(("other", "stream"), [NewEvent("noise.made", number)])
    return path


@pytest.fixture
def long_store(tmp_path: Path, long_original: Path) -> Path:
    """A copy of that store, to do with as a test likes."""
    return Path(shutil.copytree(long_original, tmp_path / "long"))


def test_it_begins_with_the_first_event_and_the_state_after_it(store: Path) -> None:
    async def body(screen: Watched) -> None:
        assert screen.seq == 1
        assert "begins" in screen.text("list").splitlines()[0]
        assert "state after 1" in screen.text("state")
        assert "make logging in work" in screen.text("state")
        assert "0 of 2 pass" in screen.text("state")
        assert "1 of 9" in screen.text("bar")

    watch(store, body)


def test_the_next_event_shows_what_it_changed_who_and_why(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("j", "j", "j")
        event, state = screen.text("event"), screen.text("state")
        assert screen.seq == 4
        assert "form passes now, it did not pass" in " ".join(event.split())
        assert "by ada in run run-1" in event
        assert "why 2 tests passed" in event
        assert "1 of 2 pass" in state
        assert [row for row in state.splitlines() if "▸" in row] == ["▸ ✓ form a form"]

    watch(store, body)


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        ("j j k", 1),
        ("down down up", 1),
        ("1 0 j", 10),
        ("G", 999),
        ("G g", 0),
        ("space", 9),
        ("space space b", 9),
        ("d", 4),
        ("5 0 p", 499),
        ("G k", 998),
        ("1 0 0 1 g", 500),
        ("1 0 0 2 g", 500),
        ("9 9 9 9 9 g", 999),
        ("1 2 backspace 1 j", 11),
        ("x", 0),
    ],
)
def test_keys_move_as_in_less(keys: str, row: int, long_store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press(*keys.split())
        assert screen.events.cursor.selected == row
        assert f"state after {2 * row + 1}" in screen.text("state")

    watch(long_store, body)


def test_rows_are_in_view_after_any_jump(long_store: Path) -> None:
    async def body(screen: Watched) -> None:
        for keys in ("G", "5 0 p", "g", "space", "7 7 7 g"):
            await screen.press(*keys.split())
            rows = screen.text("list").splitlines()
            assert all("message" in row or "hundred" in row for row in rows), keys

    watch(long_store, body)


def test_a_search_finds_the_next_event_and_can_be_repeated_both_ways(long_store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("/", *"hundred", "enter")
        assert screen.events.cursor.selected == 99
        await screen.press("n", "n")
        assert screen.events.cursor.selected == 299
        await screen.press("N")
        assert screen.events.cursor.selected == 199
        assert PAINT["match"] in screen.styles("event")

    watch(long_store, body)


def test_a_search_for_nothing_that_is_there_stays_and_says_so(long_store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("j", "/", *"nowhere", "enter")
        assert screen.events.cursor.selected == 1
        assert "pattern not found" in screen.text("bar")

    watch(long_store, body)


def test_a_wrong_pattern_is_refused(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("/", "(", "enter")
        assert "no regular expression" in screen.text("bar")
        await screen.press("n")
        assert "there is no pattern yet" in screen.text("bar")

    watch(store, body)


def test_escape_ends_typing_a_pattern(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("/", *"jjj", "escape", "j")
        assert screen.seq == 2

    watch(store, body)


def test_following_shows_events_that_others_write(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("F")
        assert "waiting for events" in screen.text("bar")
        with fmemory.open(store) as memory:
            memory.session("login").append_progress_entry(ProgressEntry("r", "just now"))
        screen.events.look()
        await screen.settled()
        assert screen.seq == 12
        assert "just now" in screen.text("state")
        assert "10 of 10" in screen.text("bar")

    watch(store, body)


@pytest.mark.parametrize("url", ["sqlite:///{}.db", "jsonl:{}"])
def test_stores_of_other_kinds_are_followed_too(url: str, tmp_path: Path) -> None:
    target = url.format(tmp_path / "store")
    with fmemory.open(target) as memory:
        memory.session("login").append_progress_entry(ProgressEntry("r", "first"))

    async def body(screen: Watched) -> None:
        assert "first" in screen.text("state")
        await screen.press("F")
        with fmemory.open(target) as memory:
            memory.session("login").append_progress_entry(ProgressEntry("r", "second"))
        screen.events.look()
        await screen.settled()
        assert "second" in screen.text("state")

    watch(target, body)


def test_all_of_what_an_event_changed_comes_into_view(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fmemory.open(path) as memory:
        session = memory.session("login")
        session.replace_feature_list(
            [FeatureRecord(f"f{number}", "ui", f"feature {number}") for number in range(4)]
        )
        for number in range(5):
            text = " ".join(f"{number}.{word}" for word in range(14))
            session.append_progress_entry(ProgressEntry("run", text))

    async def body(screen: Watched) -> None:
        for number in range(5):
            await screen.press("j")
            rows = screen.text("state").splitlines()
            first = next(at for at, row in enumerate(rows) if row.startswith("▸"))
            words = " ".join(" ".join(rows[first:]).split())
            assert f"{number}.0 " in words and f"{number}.13" in words

    watch(path, body, size=(80, 16))


def test_a_store_that_was_moved_is_not_waited_for(store: Path) -> None:
    async def body(screen: Watched) -> None:
        store.rename(store.with_name("elsewhere"))
        screen.events.look()
        await screen.settled()
        assert "the store was moved, removed or made anew" in screen.text("bar")
        await screen.press("k")
        assert screen.seq == 8
        store.with_name("elsewhere").rename(store)

    watch(store, body, follows=True)


def test_a_log_that_grows_does_not_move_whoever_does_not_follow(store: Path) -> None:
    async def body(screen: Watched) -> None:
        with fmemory.open(store) as memory:
            memory.session("login").append_progress_entry(ProgressEntry("r", "just now"))
        screen.events.look()
        await screen.settled()
        assert screen.seq == 1
        assert "1 of 10" in screen.text("bar")

    watch(store, body)


def test_it_can_begin_by_following(store: Path) -> None:
    async def body(screen: Watched) -> None:
        assert screen.seq == 9
        assert "waiting for events" in screen.text("bar")
        await screen.press("ctrl+c")
        assert "waiting" not in screen.text("bar")

    watch(store, body, follows=True)


@pytest.mark.parametrize(("at", "seq"), [(4, 4), (11, 9), (1, 1)])
def test_it_begins_with_the_event_asked_for_or_the_last_before_it(
    at: int, seq: int, store: Path
) -> None:
    async def body(screen: Watched) -> None:
        assert screen.seq == seq

    watch(store, body, at=at)


def test_enter_shows_the_whole_event_and_q_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "store"
    text = "\n".join(f"line {number}" for number in range(70_000)) + " the end"
    with fmemory.open(path) as memory:
        memory.session("login").append_transcript_messages([Message(Role.ASSISTANT, text)])

    async def body(screen: Watched) -> None:
        assert "Enter shows all of it" in screen.app.events.panes[0].text
        await screen.press("enter")
        assert isinstance(screen.app.screen, Pager)
        await screen.press("G")
        assert screen.text("page").endswith("line 69999 the end")
        await screen.press("/", *"line 5000$", "enter")
        assert "line 5000" in screen.text("page")
        await screen.press("q")
        assert isinstance(screen.app.screen, EventsScreen)

    watch(path, body)


def test_tab_brings_keys_to_the_panes_and_escape_back(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("tab", "tab", "enter")
        assert "make logging in work" in screen.text("page")
        await screen.press("q", "j")
        assert screen.seq == 1
        await screen.press("escape", "j")
        assert screen.seq == 2

    watch(store, body)


def test_help_names_the_keys(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("?")
        assert "KEYS, AS IN LESS" in screen.text("page")
        await screen.press("q")
        await screen.leave("q")
        assert screen.app.return_code == 0

    watch(store, body)


def hostile_store(path: Path) -> None:
    with fmemory.open(path) as memory:
        session = memory.session("login")
        with fmemory.audit(actor=HOSTILE, run_id=HOSTILE, reason=HOSTILE):
            session.initialize_session_if_missing(
                SessionManifest("login", HOSTILE, HOSTILE), [FeatureRecord("f[b]", "c", HOSTILE)]
            )
            session.append_transcript_messages([Message(Role.TOOL, HOSTILE, name=HOSTILE)])
            session.append_progress_entry(ProgressEntry(HOSTILE, HOSTILE))
            memory.append(session.stream, [NewEvent("my.own", {HOSTILE: [HOSTILE]})])


@pytest.mark.parametrize(
    ("size", "telling"),
    [
        ((80, 24), {"list", "event", "state"}),
        ((160, 40), {"list", "event", "state"}),
        ((30, 10), {"event"}),
    ],
)
def test_nothing_stored_steers_the_terminal_or_is_markup(
    size: tuple[int, int], telling: set[str], tmp_path: Path
) -> None:
    hostile_store(tmp_path / "store")

    async def body(screen: Watched) -> None:
        known = {None, *PAINT.values(), *(SELECTED + one for one in PAINT.values())}
        names = ("title", "list", "event", "state", "bar")
        seqs = []
        for _ in range(4):
            seqs.append(screen.seq)
            assert {name for name in names if "[bold red]" in screen.text(name)} == telling
            for name in names:
                text = screen.text(name).replace("\n", "").replace(NO_BREAK, "")
                assert bool(text.strip()) == screen.is_shown(name)
                assert text.isprintable()
                assert screen.styles(name) <= known
            await screen.press("/", *"red", "enter")
        assert seqs == [1, 2, 3, 4]

    watch(tmp_path / "store", body, size=size)


@pytest.mark.parametrize(
    ("size", "visible"),
    [
        ((80, 24), {"list", "event", "state"}),
        ((50, 16), {"list", "event"}),
        ((160, 40), {"list", "event", "state"}),
        ((20, 6), {"list", "event"}),
    ],
)
def test_panes_fit_the_terminal(size: tuple[int, int], visible: set[str], long_store: Path) -> None:
    async def body(screen: Watched) -> None:
        shown = {name for name in ("list", "event", "state") if screen.is_shown(name)}
        assert shown == visible
        await screen.press("G")
        assert screen.seq == 1999
        assert len(screen.text("list").splitlines()) >= 1

    watch(long_store, body, size=size)


def test_a_narrow_terminal_shows_the_state_when_its_pane_is_chosen(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.press("tab", "tab")
        assert "make logging in work" in screen.text("state")
        assert not screen.is_shown("event")

    watch(store, body, size=(50, 16))


def test_events_of_any_kind_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fmemory.open(path) as memory:
        session = memory.session("login")
        session.append_transcript_messages([Message(Role.USER, "x" * 1_000_000)])
        session.append(
            [NewEvent("my.own", {"exit": [1, {"deep": None}]}), NewEvent("my.b", b"\x00")]
        )
        session.delete()
        memory.compact()
        session.append_progress_entry(ProgressEntry("half", "half done"))
        session.append_transcript_messages([Message(Role.TOOL, "it broke", is_error=True)])

    async def body(screen: Watched) -> None:
        rows = screen.text("list").splitlines()
        assert ["(erased)" in row for row in rows[:6]] == [True, True, True, False, False, False]
        assert "its data were erased" in " ".join(screen.text("event").split())
        assert "cannot be told" in " ".join(screen.text("state").split())
        await screen.press("G")
        assert "it broke" in screen.text("event")
        assert "half done" in screen.text("state")
        assert "no manifest" in screen.text("state")

    watch(path, body)


def test_stepping_through_changes_no_byte_of_the_store(store: Path) -> None:
    before = bytes_of(store)

    async def body(screen: Watched) -> None:
        await screen.press("F", "g", " ", "/", *"form", "enter", "enter", "q", "R")

    watch(store, body)

    assert bytes_of(store) == before


def test_reading_again_shows_what_was_erased_meanwhile(store: Path) -> None:
    async def body(screen: Watched) -> None:
        with fmemory.open(store) as memory:
            memory.delete_session("login")
            memory.compact()
        await screen.press("R")
        assert "(erased)" in screen.text("list").splitlines()[0]

    watch(store, body)


def test_a_click_selects_an_event(store: Path) -> None:
    async def body(screen: Watched) -> None:
        await screen.click("#list", (10, 3))
        assert screen.seq == 4

    watch(store, body)


def test_a_store_that_fails_is_told_and_tried_again(
    long_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(screen: Watched) -> None:
        timeline = screen.events.timeline
        load = timeline.load

        def fail(page: int) -> None:
            monkeypatch.setattr(timeline, "load", load)
            raise StorageError(f"page {page} cannot be read \x1b[2J")

        monkeypatch.setattr(timeline, "load", fail)
        await screen.press("G")
        assert "cannot be read ␛[2J" in screen.text("bar")
        assert screen.seq == 1999
        assert "message 998" in screen.text("list")

    watch(long_store, body)
