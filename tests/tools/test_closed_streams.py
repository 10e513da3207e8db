"""Commands whose output nobody reads, or that were started without standard streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fmemory
from fmemory import Message, Role

PROGRAM = f"{sys.executable} -c 'from fmemory_tools.cli import main; main()'"
BROKEN_PIPE = 141

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the shell closes the streams")


def shell(line: str, store: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which `fmemory` is the command."""
    return subprocess.run(
        f'fmemory() {{ {PROGRAM} "$@"; }}; {line}',
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "FMEMORY_STORE": str(store)},
    )


@pytest.mark.parametrize("command", ["runs", "log", "stats", "html -o -"])
def test_a_closed_stdout_is_as_a_pipe_that_nobody_reads(command: str, store: Path) -> None:
    done = shell(f"fmemory {command} >&-", store)

    assert (done.returncode, done.stdout, done.stderr) == (BROKEN_PIPE, "", "")


def test_a_closed_stderr_swallows_what_is_told_and_keeps_the_exit_code(store: Path) -> None:
    done = shell("fmemory log 2>&-", store)
    refused = shell("fmemory state --at 99 2>&-", store)

    assert (done.returncode, done.stderr) == (0, "")
    assert "login" in done.stdout
    assert (refused.returncode, refused.stdout) == (2, "")


def test_with_all_streams_closed_a_command_does_its_work(store: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in store.glob("seg-*")}

    shell(f"fmemory copy {tmp_path / 'copy'} <&- >&- 2>&-", store)

    with fmemory.open(tmp_path / "copy", create=False) as memory:
        assert memory.health().head_seq == 11
    assert {path.name: path.read_bytes() for path in store.glob("seg-*")} == before


@pytest.mark.parametrize("command", ["html -o -", "dump -"])
def test_a_reader_that_goes_early_ends_a_printed_file_quietly(command: str, store: Path) -> None:
    with fmemory.open(store) as memory:
        words = [Message(Role.USER, "word " * 1000)] * 200
        memory.append_transcript_messages("login", words)
        for number in range(300):
            memory.add_note("word " * 200, [1.0, 0.0], id=f"many-{number}")

    done = shell(f"{{ fmemory {command}; echo $? >&2; }} | head -c 9", store)

    assert done.stderr.split() == [str(BROKEN_PIPE)]
