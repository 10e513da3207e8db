"""Every Python example of the pages in docs/ named here runs and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks_of(page: str) -> list[tuple[str, str]]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


BLOCKS = blocks_of("tampering.md")
COMMAND = "from fmemory_tools.cli import main; main()"


def run(command: list[str] | str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_examples_of_the_page_on_tampering_run_in_order(tmp_path: Path) -> None:
    (code,) = [text for language, text in BLOCKS if language == "python"]
    (expected,) = [text for language, text in BLOCKS if language == "text"]
    done = run([sys.executable, "-W", "error", "-c", code], tmp_path)
    assert (done.stdout, done.stderr) == (expected, "")

    script = tmp_path / "fmemory"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{COMMAND}' \"$@\"\n")
    script.chmod(0o700)
    lines = [
        line for language, text in BLOCKS if language == "console" for line in text.split("\n")
    ]
    for line in filter(None, lines):
        done = run(line.replace("$ fmemory", "./fmemory", 1), tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), line
        assert done.stdout.strip() or " > " in line or ">>" in line, line


def test_example_of_the_page_on_erasure_leaves_no_byte_of_what_it_deletes(tmp_path: Path) -> None:
    ((language, code),) = blocks_of("erasure.md")

    done = run([sys.executable, "-W", "error", "-c", code], tmp_path)

    assert (language, done.stdout, done.stderr) == ("python", "", "")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"555-0199" in path.read_bytes() for path in files)


def test_example_of_the_page_on_replays_prints_what_stands_below_it(tmp_path: Path) -> None:
    blocks = blocks_of("replay.md")
    code = next(text for language, text in blocks if language == "python")
    expected = next(text for language, text in blocks if language == "text")

    done = run([sys.executable, "-W", "error", "-c", code], tmp_path)

    assert (done.stdout, done.stderr) == (expected, "")
