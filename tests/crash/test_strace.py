"""Calls that the kernel fails, or says were done and were not, through strace.

Goal: what the recording disks of the other tests pretend holds for the system calls that are really
made: EIO and ENOSPC are typed errors that lose nothing acknowledged, and a write that was lost
although it reported success is found. Method: a child process appends under `strace -e inject`, the
parent reads what it was told and opens the store. What would have to break: a call that does not go
through the file system's protocol, an error code that is taken for success, a witness nobody asks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fmemory_segments import Log, LogReason
from fmemory_segments.errors import LogCorrupt
from tests.segments.log_tools import contents, damage_findings

ROOT = Path(__file__).resolve().parents[2]
STRACE = shutil.which("strace")
WAIT_S = 60


def can_trace() -> bool:
    """Whether strace is there and may trace: containers often forbid it."""
    if STRACE is None:
        return False
    found = subprocess.run([STRACE, "-qq", "-e", "trace=none", "true"], capture_output=True)
    return found.returncode == 0


pytestmark = pytest.mark.skipif(not can_trace(), reason="strace is not there, or may not trace")


def run(
    store: Path, injection: str, *, compacts: bool = False, careless: bool = False
) -> tuple[list[int], list[str]]:
    """Seqs that a child was told are on disk, and the errors it got, under an injection."""
    assert STRACE is not None
    calls = injection.partition(":")[0]
    command = [STRACE, "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}"]
    command += ["-e", f"inject={injection}"]
    command += [sys.executable, "-m", "tests.crash.strace_child", str(store)]
    found = subprocess.run(
        [*command, *(["compact"] * compacts), *(["careless"] * careless)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert found.returncode == 0, found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    acknowledged = [int(number) for what, number in lines if what in ("ok", "compacted")]
    return acknowledged, [what for what, _ in lines if what not in ("ok", "compacted")]


def check(store: Path, acknowledged: list[int]) -> None:
    """Everything acknowledged is there, and the store is sound and can be written."""
    with Log.open(store) as log:
        assert contents(log)[1] >= max(acknowledged, default=0)  # type: ignore[operator]
    assert not damage_findings(store)


@pytest.mark.parametrize(
    ("injection", "error"),
    [
        ("fdatasync:error=EIO:when=3", "LogPoisoned"),
        ("pwritev,pwritev2:error=ENOSPC:when=3", "StoreFull"),
        ("pwritev,pwritev2:error=EIO:when=2+3", "LogWriteFailed"),
        ("rename:error=EIO:when=2", "LogWriteFailed"),
    ],
)
def test_call_that_the_kernel_fails_is_an_error_that_loses_nothing(
    tmp_path: Path, injection: str, error: str
) -> None:
    store = tmp_path / "store"
    acknowledged, errors = run(store, injection)
    assert set(errors) == {error}
    assert acknowledged
    check(store, acknowledged)


def test_compaction_whose_renames_the_kernel_fails_loses_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    acknowledged, errors = run(store, "rename:error=EIO:when=4+2", compacts=True)
    assert set(errors) == {"LogWriteFailed"}
    check(store, acknowledged)


def test_write_that_was_lost_although_it_reported_success_is_damage(tmp_path: Path) -> None:
    """The second batch takes 216 bytes: so many are said to be written, and the sync goes well."""
    store = tmp_path / "store"
    acknowledged, errors = run(store, "pwritev,pwritev2:retval=216:when=2")
    assert acknowledged == [1, 3]
    assert set(errors) == {"LogCorrupt"}
    with pytest.raises(LogCorrupt) as caught:
        Log.open(store)
    assert (caught.value.reason, caught.value.first_seq) == (LogReason.ACKNOWLEDGED_LOSS, 2)


def test_strace_tells_of_an_error_that_is_swallowed(tmp_path: Path) -> None:
    """What a child prints that takes a failed fdatasync for nothing."""
    acknowledged, errors = run(tmp_path / "store", "fdatasync:error=EIO:when=3", careless=True)
    assert (len(acknowledged), errors) == (12, [])
