"""`fmemory step` as a command: what it refuses, its JSON, and a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path
from time import monotonic

import pytest

import fmemory
from fmemory import NewEvent
from fmemory.replay import changes
from tests.tools.helpers import Command, bytes_of, change_one_byte, only_line
from tests.tools.test_step_screen import hostile_store

COMMAND = [sys.executable, "-c", "from fmemory_tools.cli import main; main()"]
READ_BYTES = 65_536
# What the screen itself sends: colours, places, modes, the pointer's shape; no titles, no bells.
ERASES_THE_SCREEN = "\x1b[2J"
OF_THE_SCREEN = re.compile(r"\x1b\[[0-9;:?<>=$]*[A-Za-z]|\x1b[=>78]|\x1b\]22;[a-z]*\x07")
WAIT_S_MAX = 120
TYPED_AGAIN_S = 3
ENDS_S_MAX = 20


def test_json_has_every_event_with_what_it_changed(store: Path, run: Command) -> None:
    result = run("step", "login", "--json", "-s", store)

    told = [json.loads(line) for line in result.stdout.splitlines()]
    with fmemory.open(store, read_only=True) as memory:
        assert told == [one.to_dict() for one in changes(memory, "login")]
    assert [one["seq"] for one in told] == list(range(1, 10))
    assert result.exit_code == 0


def test_json_can_begin_with_an_event(store: Path, run: Command) -> None:
    told = [
        json.loads(line)
        for line in run("step", "--json", "--at", 8, "-s", store).stdout.splitlines()
    ]

    assert [one["seq"] for one in told] == [8, 9]
    flip = {"part": "passes", "name": "token", "before": False, "after": True}
    assert told[0]["deltas"] == [flip]


def test_json_names_a_damaged_event_and_the_exit_code_is_1(store: Path, run: Command) -> None:
    change_one_byte(store, b"the form works")

    result = run("step", "--json", "-s", store)

    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["seq"] for one in told if "damaged" in one] == [5]
    assert len(told) == 9
    assert "event 5 is damaged" in only_line(result.stderr)
    assert result.exit_code == 1


def test_without_a_terminal_it_says_what_does_without(store: Path, run: Command) -> None:
    result = run("step", "-s", store)

    assert "--json" in only_line(result.stderr)
    assert result.exit_code == 2


def test_without_textual_it_names_the_extra(
    store: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)

    result = run("step", "-s", store)

    assert "pip install 'fmemory[step]'" in only_line(result.stderr)
    assert result.exit_code == 2
    assert run("step", "--json", "-s", store).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody"], "no session 'nobody'"),
        (["--at", "99"], "there is no event 99"),
        (["--at", "never"], "--at"),
    ],
)
def test_what_is_not_there_is_refused(
    arguments: list[str], words: str, store: Path, run: Command
) -> None:
    result = run("step", "--json", *arguments, "-s", store)

    assert words in only_line(result.stderr)
    assert result.exit_code == 2


@pytest.mark.parametrize("other", [["--json"], ["--at", "3"]])
def test_following_begins_at_the_end_or_not_at_all(
    other: list[str], store: Path, run: Command
) -> None:
    result = run("step", "--follow", *other, "-s", store)

    assert "--follow begins at the end" in only_line(result.stderr)
    assert result.exit_code == 2


def test_a_session_without_a_manifest_can_be_named(tmp_path: Path, run: Command) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        memory.append(("session", "bare"), [NewEvent("my.own", 1)])

    told = json.loads(run("step", "bare", "--json", "-s", tmp_path / "store").stdout)

    assert (told["type"], told["deltas"]) == ("my.own", [])


def on_terminal(arguments: list[str], *turns: tuple[bytes, bytes]) -> tuple[str, int]:
    """What is written to a terminal until the command ends, and its exit code.

    Args:
        turns: A pattern to wait for, and the key to type when it is there. It is typed again as
            long as nothing comes of it, as a person would: what is typed before a program has the
            terminal to itself is lost. The last one ends the command.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        try:
            written, waiting = typed(ours, list(turns))
            assert not waiting, f"{waiting[0][0]!r} was not to be seen: {written[-2000:]!r}"
            code = process.wait(ENDS_S_MAX)
        finally:
            process.kill()
            os.close(ours)
    return written.decode(), code


def typed(
    terminal: int, turns: list[tuple[bytes, bytes]]
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """What a program writes until it leaves the terminal, and the turns that were not reached."""
    written, key, ends_at = b"", b"", monotonic() + WAIT_S_MAX
    # A poll, because `select` refuses descriptors from 1024 on.
    ready = select.poll()
    ready.register(terminal, select.POLLIN)
    while monotonic() < ends_at:
        if not ready.poll(TYPED_AGAIN_S * 1000):
            os.write(terminal, key)
            continue
        try:
            written += os.read(terminal, READ_BYTES)
        except OSError:  # Linux says EIO where the other side has closed.
            break
        if turns and re.search(turns[0][0], written):
            key = turns.pop(0)[1]
            os.write(terminal, key)
    return written, turns


def test_a_real_terminal_gets_nothing_of_what_is_stored_but_signs(tmp_path: Path) -> None:
    hostile_store(tmp_path / "store")
    before = bytes_of(tmp_path / "store")

    written, code = on_terminal(
        ["step", "-s", str(tmp_path / "store")], (b"1 of 4", b"j"), (b"[234] of 4", b"q")
    )

    assert code == 0
    assert ERASES_THE_SCREEN not in written
    rest = OF_THE_SCREEN.sub("", written)
    assert "\x1b" not in rest
    assert "\x07" not in rest
    assert "\x9b" not in rest
    assert "\u202e" not in rest
    assert "[bold red]" in rest
    assert "␛[2J" in rest
    assert bytes_of(tmp_path / "store") == before
