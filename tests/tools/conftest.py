"""Where the real inputs are, and stores to look at."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner, Result

import fmemory
from fmemory import FeatureRecord, Message, ProgressEntry, Role, SessionManifest
from fmemory_tools.cli import app
from tests.tools.helpers import Command

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("FMEMORY_TEST_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real inputs."""
    if not DATA.is_dir():
        if "FMEMORY_TEST_DATA" in os.environ:
            pytest.fail(f"FMEMORY_TEST_DATA demands real inputs, and there is no folder {DATA}")
        pytest.skip(f"no real inputs at {DATA}; FMEMORY_TEST_DATA names their folder")
    return DATA


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """80 columns, no store of the person who runs the tests, a folder of one's own."""
    for name in ("FMEMORY_STORE", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FMEMORY_ACTOR", "tester")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Making all commands takes a runner longer than most commands do."""
    with pytest.MonkeyPatch.context() as patch:
        made = functools.cache(typer.main.get_command)
        patch.setattr(typer.testing, "_get_command", made, raising=False)
        yield


@pytest.fixture
def run() -> Command:
    """Run the command with these arguments."""
    runner = CliRunner()

    def command(*arguments: object) -> Result:
        words = [str(one) for one in arguments]
        # An exception that nobody expected is one of the test, not exit code 1 without words.
        return runner.invoke(app, words, prog_name="fmemory", catch_exceptions=False)

    return command


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two sessions' worth of events in one session, and two notes.

    Events 1 to 7 are the first run, 8 and 9 the second, 10 and 11 the notes.
    """
    path = tmp_path / "store"
    with fmemory.open(path) as memory:
        session = memory.session("login")
        with fmemory.audit(actor="ada"):
            session.initialize_session_if_missing(
                SessionManifest("login", "main", "make logging in work"),
                [FeatureRecord("form", "ui", "a form"), FeatureRecord("token", "api", "a token")],
            )
            with session.run("run-1"):
                session.append_transcript_messages([Message(Role.USER, "make the form")])
                with fmemory.audit(reason="2 tests passed"):
                    session.update_feature_pass("form", True)
                session.append_progress_entry(ProgressEntry("run-1", "the form works"))
                session.append_transcript_messages([Message(Role.ASSISTANT, "the form works")])
        with fmemory.audit(actor="bob", run_id="run-2", reason="looks done"):
            session.update_feature_pass("token", True)
            session.append_transcript_messages([Message(Role.ASSISTANT, "done")])
        with fmemory.audit(actor="ada"):
            memory.add_note("tokens last an hour", [1.0, 0.0], id="n1", timestamp=10.0)
            memory.add_note("forms need a label", [0.0, 1.0], id="n2", namespace=("ui",))
    return path
