"""`fmemory demo`: a true story in about twenty lines, with real processes and a real crash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import examples

if TYPE_CHECKING:
    from fmemory import Event
    from fmemory_tools._console import Part

EPILOG = examples("fmemory demo", "fmemory demo /tmp/story && fmemory log -s /tmp/story")
DAMAGED = "damaged-copy"
LABEL_CELLS = 8


def demo(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="[PATH]", help="Folder to create; must not be there yet.", show_default=False
        ),
    ] = Path("fmemory-demo"),
) -> None:
    """Tell a true story in twenty lines: two runs and a crash.

    Everything is real: the processes, the tests they run, the kill in the middle of a write, the
    recovery, and the damage that verify finds in a copy. Default PATH: fmemory-demo
    """
    import signal

    from fmemory_tools import _demo_runs as runs
    from fmemory_tools._console import print_text
    from fmemory_tools._failure import CANNOT_OPEN, Failure
    from fmemory_tools._store import STORE_FOLDER

    if os.name != "posix":
        raise Failure("the demo keeps its store in files, which needs a POSIX system", CANNOT_OPEN)
    if path.exists() or path.is_symlink():
        raise Failure(f"{path} is there already: give another path, or remove it first")
    store, work = path / STORE_FOLDER, path / "work"
    work.mkdir(parents=True)
    print_text(f"Two runs of an agent on one small program, in {path}/")

    process, code = runs.spawn(runs.RUN_1, store, work)
    if code != 0:
        raise Failure(f"run 1 of the demo ended with exit code {code}", 1)
    first = _tell_run_1(store, process)
    process, code = runs.spawn(runs.RUN_2, store, work)
    if code != -signal.SIGKILL:
        raise Failure(f"run 2 of the demo was to be killed, and ended with exit code {code}", 1)
    _say("run 2", f"{runs.ACTOR_2} (process {process}) says that feature {runs.ACCENTS} works")
    _say("", "and is killed (SIGKILL) in the middle of its next write")
    last = _tell_recovery(store)
    flip, progress = _tell_diff(store, first, last)
    _tell_why(flip, work)
    _tell_damage(path, store, progress)
    _tell_commands(path, first, last, flip)


def _tell_run_1(store: Path, process: int) -> int:
    """What run 1 left; its last event."""
    import fmemory
    from fmemory_tools import _demo_runs as runs

    with fmemory.open(store, read_only=True) as memory:
        state = memory.load_bootstrap_state(runs.SESSION)
        last = memory.health().head_seq
    note = state.checkpoints[-1].note
    _say("run 1", f"{runs.ACTOR_1} (process {process}) writes slug.py; its tests: {note}")
    _say("", f"events 1 to {last}: feature {runs.WORDS} passes, the run succeeded")
    return last


def _tell_recovery(store: Path) -> int:
    """Open the store for writing, which repairs it; its last event."""
    import fmemory

    with fmemory.SegmentMemoryBackend(store) as memory:
        recovery, last = memory.recovery, memory.health().head_seq
    _say("reopen", f"all {last} acknowledged events are there; {recovery.torn_bytes} bytes of the")
    _say("", f"unfinished event {recovery.first_seq} were cut off, and kept in quarantine/")
    return last


def _tell_diff(store: Path, first: int, last: int) -> tuple[Event, Event]:
    """What run 2 changed; the event that flipped its feature, and the progress event of run 1."""
    import fmemory
    from fmemory_tools import _demo_runs as runs
    from fmemory_tools.commands.diff import changes_of, flips_between, print_changes

    with fmemory.open(store, read_only=True) as memory:
        changes = changes_of(memory.at(first), memory.at(last), runs.SESSION)
        flips = flips_between(memory, runs.SESSION, first, last)
        written = memory.events(types=("progress_appended",), limit=1)
        progress = next(written)
    _say("diff", f"what run 2 changed, from event {first} to {last}:")
    print_changes(changes, flips, indent=LABEL_CELLS)
    return flips[runs.ACCENTS], progress


def _tell_why(flip: Event, work: Path) -> None:
    from fmemory_tools import _demo_runs as runs
    from fmemory_tools._console import BAD, GOOD, STRONG, WHO

    passes, words = runs.run_tests(work, "Accents")
    because: Part = (f'"{flip.reason}"', STRONG)
    _say(
        "why",
        f"event {flip.seq}: ",
        (f"{flip.actor}", WHO),
        f", in {flip.run_id}, because it ",
        because,
    )
    _say("", "its test, run only now: ", (words, GOOD if passes else BAD))


def _tell_damage(path: Path, store: Path, progress: Event) -> None:
    from shutil import copytree

    from fmemory_tools import _demo_runs as runs
    from fmemory_tools._console import BAD, print_text
    from fmemory_tools.commands.verify import findings_of

    copy = path / DAMAGED
    copytree(store, copy)
    _change_one_byte(copy, runs.PROGRESS_1.encode("utf-8"))
    _say("damage", f"one byte of event {progress.seq} is changed in {DAMAGED}/; verify says:")
    for finding in findings_of(str(copy)):
        print_text(finding.message, indent=LABEL_CELLS, style=BAD)


def _change_one_byte(store: Path, text: bytes) -> None:
    """Flip one bit of the first place in the segments where `text` stands."""
    for segment in sorted(store.glob("seg-*.log")):
        content = bytearray(segment.read_bytes())
        place = content.find(text)
        if place >= 0:
            content[place] ^= 1
            segment.write_bytes(content)
            return
    raise AssertionError(f"{text!r} was written to the store and is not in it")


def _tell_commands(path: Path, first: int, last: int, flip: Event) -> None:
    from fmemory._shell import shell_word
    from fmemory_tools._console import print_whole

    _say("try", "the same by yourself:")
    folder = shell_word(str(path))
    for command in (
        f"log -s {folder}",
        f"diff {first} {last} -s {folder}",
        f"show {flip.seq} -s {folder}",
        f"verify -s {shell_word(str(path / DAMAGED))}",
    ):
        print_whole(f"{shell_word(_invoked_as())} {command}", indent=LABEL_CELLS + 2)


def _invoked_as() -> str:
    """The command as it can be typed again: a path where the shell would not find `fmemory`."""
    import shutil
    import sys

    path = sys.argv[0]
    if not os.path.basename(path).startswith("fmemory") or not os.access(path, os.X_OK):  # noqa: PTH119
        return "fmemory"
    found = shutil.which("fmemory")
    return "fmemory" if found is not None and os.path.samefile(found, path) else path  # noqa: PTH121


def _say(label: str, *parts: Part) -> None:
    """One line of the story, at once."""
    import sys

    from fmemory_tools._console import STRONG, print_line

    if label:
        print_line((f"{label:<{LABEL_CELLS}}", STRONG), *parts)
    else:
        print_line(*parts, indent=LABEL_CELLS)
    sys.stdout.flush()
