"""The two runs of `fmemory demo`, each a process of its own: `python -m fmemory_tools._demo_runs`.

The first does its work, has its tests run and says what they say. The second says that a feature
passes because it looks done, and its process is killed for real in the middle of a write: half of
the bytes reach the file, then SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import fmemory
from fmemory import FeatureRecord, Message, ProgressEntry, Role, SessionManifest
from fmemory_segments.filesystem import PosixFileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SESSION = "slug"
RUN_1, RUN_2 = "run-1", "run-2"
ACTOR_1, ACTOR_2 = "ada", "bob"
WORDS, ACCENTS = "words", "accents"
LOOKS_DONE = "looks done"
PROGRESS_1 = "slug() joins lower-case words with dashes; its tests pass"

PROGRAM = '''"""Titles as parts of a URL."""


def slug(title: str) -> str:
    return "-".join(title.lower().split())
'''
TESTS = """from unittest import TestCase

from slug import slug


class Words(TestCase):
    def test_lower_case(self) -> None:
        self.assertEqual(slug("Hello World"), "hello-world")

    def test_spaces(self) -> None:
        self.assertEqual(slug("  a   b "), "a-b")


class Accents(TestCase):
    def test_accents(self) -> None:
        self.assertEqual(slug("Crème brûlée"), "creme-brulee")
"""


class DyingFileSystem(PosixFileSystem):
    """A file system whose process is killed half-way through the next write, once armed."""

    armed = False

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        if self.armed:
            self._die(fd, bytes(data), offset)
        return os.pwrite(fd, data, offset)

    # The log never passes the flags that os.pwritev has.
    def pwritev(  # type: ignore[override]
        self, fd: int, buffers: Sequence[ReadableBuffer], offset: int, /
    ) -> int:
        if self.armed:
            self._die(fd, b"".join(bytes(one) for one in buffers), offset)
        return os.pwritev(fd, buffers, offset)

    def _die(self, fd: int, data: bytes, offset: int) -> None:
        os.pwrite(fd, data[: len(data) // 2], offset)
        os.kill(os.getpid(), signal.SIGKILL)


def run_1(store: Path, work: Path) -> None:
    """Write the program, run its tests, and record what they say."""
    manifest = SessionManifest(SESSION, "main", "turn titles into parts of a URL")
    features = [
        FeatureRecord(WORDS, "core", "lower-case words joined by dashes"),
        FeatureRecord(ACCENTS, "core", "letters without their accents"),
    ]
    with fmemory.open(store) as memory, fmemory.audit(actor=ACTOR_1):
        session = memory.session(SESSION)
        session.initialize_session_if_missing(manifest, features)
        with session.run(RUN_1) as run:
            session.append_transcript_messages([Message(Role.USER, "write slug() with tests")])
            (work / "slug.py").write_text(PROGRAM, encoding="utf-8")
            (work / "test_slug.py").write_text(TESTS, encoding="utf-8")
            passed, words = run_tests(work, "Words")
            with fmemory.audit(reason=words):
                session.update_feature_pass(WORDS, passed)
            session.append_progress_entry(ProgressEntry(RUN_1, PROGRESS_1))
            session.append_transcript_messages([Message(Role.ASSISTANT, f"slug() works: {words}")])
            run.note = words


def run_2(store: Path) -> None:
    """Claim that the other feature works, and die in the middle of the next write."""
    file_system = DyingFileSystem()
    with (
        fmemory.SegmentMemoryBackend(store, file_system=file_system) as memory,
        fmemory.audit(actor=ACTOR_2),
    ):
        session = memory.session(SESSION)
        with session.run(RUN_2):
            session.append_transcript_messages([Message(Role.USER, "now the accents")])
            with fmemory.audit(reason=LOOKS_DONE):
                session.update_feature_pass(ACCENTS, True)
            file_system.armed = True
            session.append_progress_entry(ProgressEntry(RUN_2, "accents are done " * 10))
    raise AssertionError("the process outlived its last write")


def run_tests(work: Path, case: str) -> tuple[bool, str]:
    """Run one class of the program's tests in a process: whether they pass, and what to say."""
    done = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", f"test_slug.{case}"],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    count = done.stderr.partition("Ran ")[2].partition(" ")[0] or "no"
    plural = "" if count == "1" else "s"
    return (
        done.returncode == 0,
        f"{count} test{plural} {'passed' if done.returncode == 0 else 'run, failed'}",
    )


def spawn(run: str, store: Path, work: Path) -> tuple[int, int]:
    """Run `run_1` or `run_2` in a process of its own: its id and its return code."""
    paths = [path for path in sys.path if path]
    with subprocess.Popen(
        [sys.executable, "-m", "fmemory_tools._demo_runs", run, str(store), str(work)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
    ) as process:
        return process.pid, process.wait()


if __name__ == "__main__":
    if sys.argv[1] == RUN_1:
        run_1(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        run_2(Path(sys.argv[2]))
