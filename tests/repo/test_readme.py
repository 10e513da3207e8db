"""Every example of README.md runs and prints what the README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
PYTHON = [
    (code, BLOCKS[number + 1][1])
    for number, (language, code) in enumerate(BLOCKS)
    if language == "python"
]
CONSOLE = [
    line.removeprefix("$ ")
    for language, text in BLOCKS
    if language == "console"
    for line in text.splitlines()
]
FINDS_SOMETHING = {"diff", "verify"}


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_library_example_prints_what_stands_below_it(number: int, tmp_path: Path) -> None:
    code, expected = PYTHON[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout == expected


def test_there_are_examples_of_each_kind() -> None:
    assert len(PYTHON) >= 4
    assert {line.split()[0] for line in CONSOLE} == {"fmemory", "python"}


def test_command_line_tour_runs_as_it_stands(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    # The first command of the page, which has installed it, has run the demo.
    assert BLOCKS[0][1].rstrip().endswith("fmemory demo")
    for line in ["fmemory demo", *CONSOLE]:
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        finds = line.split()[0] == "fmemory" and line.split()[1] in FINDS_SOMETHING
        assert done.returncode == int(finds), f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip()


def test_demo_prints_the_lines_that_the_readme_shows(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "fmemory"), "demo"]
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    shown = BLOCKS[2][1]
    assert BLOCKS[2][0] == "text"
    for line in shown.splitlines():
        assert re.sub(r"\d+ bytes", "N bytes", line) in re.sub(r"\d+ bytes", "N bytes", done.stdout)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
    assert len(commands) == 2
    assert commands[0].endswith("fmemory demo")
    assert re.fullmatch(r"python3 -m venv .* -m pytest -q .*", commands[1])
    assert r"python3 -m venv .* -m pytest -q .*" in (ROOT / ".ci" / "run").read_text()


def test_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|fmemory|segments|tools|docs|benchmarks)/[\w/.]*)`", text))
    assert len(named) > 20
    missing = sorted(one for one in named if not (ROOT / one.removesuffix(":")).exists())
    assert missing == ["fmemory/journals/_NAME/"]
