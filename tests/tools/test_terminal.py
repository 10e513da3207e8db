"""What a person sees: real processes, on a real (pseudo) terminal, with its width and signals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import fmemory
from fmemory import NewEvent

COMMAND = [sys.executable, "-c", "from fmemory_tools.cli import main; main()"]
# Several commands in one process, each as if it were the first; a form feed ends what one writes.
EACH = """
import json, sys
from fmemory_tools.cli import main
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as end:
        assert not end.code
    print(chr(12), end="", flush=True)
"""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(**changes: str) -> dict[str, str]:
    """Ours, with the source roots for a process that is not started by pytest."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "TERM": "xterm-256color", **changes}


def on_terminal(arguments: list[str], columns: int, env: Mapping[str, str]) -> str:
    """What the command writes to a terminal of this width."""
    return written_by([*COMMAND, *arguments], columns, env)


def each_on_terminal(commands: list[list[str]], columns: int, env: Mapping[str, str]) -> list[str]:
    """What each of these commands writes to a terminal of this width, all from one process."""
    *shown, rest = written_by(
        [sys.executable, "-c", EACH, json.dumps(commands)], columns, env
    ).split("\f")
    assert (len(shown), rest) == (len(commands), "")
    return shown


def written_by(program: list[str], columns: int, env: Mapping[str, str]) -> str:
    ours, theirs = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    without = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, env=without):
        os.close(theirs)
        written = b"".join(chunks(ours))
    os.close(ours)
    return written.decode("utf-8").replace("\r\n", "\n")


def printed(shown: str) -> str:
    """Without the sequences that colour it."""
    return ESCAPE.sub("", shown)


def chunks(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux says EIO where the other side has closed.
            return
        if not chunk:
            return
        yield chunk


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    # A shell lets its background jobs ignore Ctrl-C, and their children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("columns", [50, 80, 132])
def test_lines_fit_the_terminal(columns: int, store: Path) -> None:
    words = (["log"], ["state"], ["sessions"], ["stats"], ["show", "1"])
    commands = [[*one, "-s", str(store)] for one in words]
    for shown in map(printed, each_on_terminal(commands, columns, environment())):
        assert max(map(len, shown.splitlines())) <= columns, shown


@pytest.mark.parametrize("columns", [50, 80, 132])
def test_session_ids_are_whole_on_every_terminal(columns: int, store: Path) -> None:
    name = "491e126e-1e71-469c-ade2-fcc8af567c74.agent-afb9"
    with fmemory.open(store) as memory:
        memory.fork_session("login", name)

    shown = on_terminal(["sessions", "-s", str(store)], columns, environment(NO_COLOR="1"))

    assert name in shown
    assert max(map(len, shown.splitlines())) <= columns


def test_numbers_and_head_are_whole_on_a_narrow_terminal(store: Path) -> None:
    with fmemory.open(store) as memory:
        memory.append(("a-long-name-of-a-stream" * 3,), [NewEvent("job.done", "x" * 12345)])
        head = str(memory.head())

    shown = on_terminal(["stats", "-s", str(store)], 50, environment(NO_COLOR="1"))

    assert head in "".join(line.strip() for line in shown.splitlines())
    rows = [line for line in shown.splitlines() if line.startswith(("a-long", "job.done"))]
    assert [line.split()[-3:] for line in rows] == [["1", "12.1", "KiB"]] * 2
    assert max(map(len, shown.splitlines())) <= 50


def test_session_ids_are_whole_in_a_pipe(store: Path) -> None:
    name = "session-" * 12
    with fmemory.open(store) as memory:
        memory.fork_session("login", name)

    done = subprocess.run(
        [*COMMAND, "sessions", "-s", str(store)],
        capture_output=True,
        text=True,
        env=environment(COLUMNS="80"),
        check=True,
    )

    assert name in {line.split()[0] for line in done.stdout.splitlines()}


def test_a_terminal_that_does_not_know_its_size_has_80_columns(store: Path) -> None:
    arguments = ["log", "-s", str(store)]

    usual = on_terminal(arguments, 80, environment())
    assert "forms need a label" in usual
    assert on_terminal(arguments, 0, environment()) == usual


def test_no_columns_are_80(store: Path) -> None:
    shown = {
        columns: subprocess.run(
            [*COMMAND, "log", "-s", str(store)],
            capture_output=True,
            text=True,
            env=environment(COLUMNS=columns),
            check=True,
        ).stdout
        for columns in ("0", "80")
    }

    assert shown["0"] == shown["80"]


def test_a_terminal_gets_colours_unless_told_not_to(store: Path) -> None:
    arguments = ["log", "-s", str(store)]

    assert "\x1b[" in on_terminal(arguments, 80, environment())
    assert "\x1b" not in on_terminal(arguments, 80, environment(NO_COLOR="1"))


def test_escape_sequences_in_stored_text_are_shown_not_obeyed(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "s", durability="os") as memory:
        memory.append(("a",), [NewEvent("a.b", "\x1b[2J\x9b31m\u202eevil\r\n\x07end")])

    commands = [[*one, "-s", str(tmp_path / "s")] for one in (["log"], ["show", "1"])]
    for shown in each_on_terminal(commands, 80, environment(NO_COLOR="1")):
        assert not set(shown) & set("\x1b\x9b\u202e\x07\r")
        assert "evil" in shown


def test_wide_characters_do_not_push_lines_over_the_edge(tmp_path: Path) -> None:
    from rich.cells import cell_len

    with fmemory.open(tmp_path / "s", durability="os") as memory:
        memory.append(("日本語のストリーム" * 5,), [NewEvent("a.b", "漢字かな混じり文" * 20)])

    shown = on_terminal(["log", "-s", str(tmp_path / "s")], 80, environment(NO_COLOR="1"))

    assert max(map(cell_len, shown.splitlines())) <= 80


def test_an_output_without_check_marks_gets_ascii(store: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "state", "--at", "7", "-s", str(store)],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=True,
    )

    assert b"[x] form" in done.stdout and b"[ ] token" in done.stdout
    assert done.stdout.isascii()


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "s", durability="os") as memory, memory.batch() as batch:
        for number in range(3000):
            batch.append(("jobs",), [NewEvent("job.done", {"number": number})])

    for form in ([], ["--json"]):
        with running("log", "--all", *form, "-s", str(tmp_path / "s")) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(timeout=60) == 141
            assert process.stderr.read() == ""


def test_tail_shows_what_another_process_writes_until_ctrl_c(store: Path) -> None:
    with running("tail", "--from", "11", "--json", "-s", str(store)) as process:
        assert process.stdout is not None
        assert '"seq":11' in process.stdout.readline()
        with fmemory.open(store) as memory:
            memory.append(("jobs",), [NewEvent("job.done", {"number": 1})])

        assert '"seq":12' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)

    assert process.returncode == 130
    assert errors == ""


@pytest.mark.parametrize("arguments", [["--help"], ["log", "--help"], ["runs", "--help"]])
def test_help_is_quick_because_nothing_heavy_is_imported(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from fmemory_tools.cli import app\n"
        "try:\n    app(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "heavy = ('numpy', 'rich', 'fmemory', 'watchfiles', 'textual')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_progress_bar_appears_only_where_a_person_watches(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from fmemory_tools import _console

    monkeypatch.setattr(_console, "PROGRESS_AFTER_S", 0.0)
    with _console.progress("counting", 10) as advance:
        advance(10)

    assert capfd.readouterr().err == ""


def test_a_progress_bar_is_on_the_error_stream() -> None:
    program = (
        "import time\n"
        "from fmemory_tools import _console\n"
        "_console.PROGRESS_AFTER_S = 0.0\n"
        "with _console.progress('counting sheep', 10) as advance:\n"
        "    deadline = time.monotonic() + 0.4\n"
        "    while time.monotonic() < deadline:\n"
        "        time.sleep(0.05)\n"
        "        advance(1)\n"
    )
    ours, theirs = pty.openpty()
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs, env=environment()
    ) as process:
        os.close(theirs)
        shown = b"".join(chunks(ours))
        assert process.stdout is not None and process.stdout.read() == b""
    os.close(ours)

    assert b"counting sheep" in shown
    assert time.monotonic() > started
