"""The system fails, or the compactor is killed, at any call of a compaction; nothing is lost.

Goal: whatever stops a compaction, the store opens with the same events, others go on, and a later
compaction does what was to be done. Method: pass 1 counts the calls of a compaction, pass 2 stops
at each: an error once, an error from then on, the end of the process. What would have to break: an
output that counts before the manifest, a rollback that removes what a manifest lists, a lock that
is kept, a removal that is not repeated.
"""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from fmemory_segments import Log, LogError, LogReason
from fmemory_segments import _choose as choose_module
from fmemory_segments._catalog import list_store
from fmemory_segments.errors import LogPoisoned, LogWriteFailed, StoreFull
from tests.segments.compaction_tools import erasure_at, everything, holds_bytes, open_log
from tests.segments.log_tools import (
    ROUNDS,
    SESSION,
    Crash,
    WatchedFileSystem,
    damage_findings,
    files_of,
    put,
    say,
)
from tests.segments.test_faults import abandon

SECRET = b"the secret word"
ERASURE = erasure_at(14, locs=[3 << 16], seqs=[2])
STEP = 1 if ROUNDS > 1 else 3


class Faulty(WatchedFileSystem):
    """Raises an error at the N-th call after it was armed, or from there on.

    The call before which a process ends is not made; a write, in part.
    """

    def __init__(
        self, number: int = 0, error: Callable[[], BaseException] = Crash, *, for_ever: bool = False
    ) -> None:
        super().__init__(self._look)
        self._number, self._error, self._for_ever = number, error, for_ever
        self.armed = False
        self.count = 0

    def _look(self, name: str, subject: object) -> None:
        del name, subject
        if not self.armed:
            return
        self.count += 1
        if self.count == self._number or (self._for_ever and 0 < self._number < self.count):
            raise self._error()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of a few segments; a compaction makes two of them."""
    monkeypatch.setattr(choose_module, "OUTPUT_BYTES", 3_500)
    path = tmp_path / "store"
    with open_log(path) as log:
        for number in range(7):
            put(log, number, 1 + number % 3)
            say(log, SECRET if number == 0 else b"word %d " % number * 30)
    return path


def calls_of_a_compaction(store: Path) -> int:
    copy = store.parent / "pass1"
    shutil.copytree(store, copy)
    fs = Faulty()
    with open_log(copy, fs=fs) as log:
        fs.armed = True
        log.compact(ERASURE)
        fs.armed = False
    assert fs.count > 60
    return fs.count


def expectations(store: Path) -> tuple[list[object], list[object]]:
    with open_log(store, read_only=True) as log:
        return everything(log), everything(log, ERASURE)


def check_after(path: Path, before: list[object], after: list[object], where: str) -> None:
    """The store is as it was, or as it should be; and a later compaction works."""
    assert not damage_findings(path), where
    with open_log(path, read_only=True) as log:
        assert everything(log) in (before, after), where
    with open_log(path) as log:
        done = log.compact(ERASURE)
        assert done.pending == (), where
        assert everything(log) == after, where
        say(log, b"goes on")
    assert holds_bytes(path, SECRET) == [], where
    assert not damage_findings(path), where
    assert list((path / "tmp").iterdir()) == [], where


def test_a_compactor_killed_at_any_call_leaves_a_store_that_goes_on(store: Path) -> None:
    before, after = expectations(store)
    copy = store.parent / "copy"
    for number in range(1, calls_of_a_compaction(store) + 1):
        shutil.copytree(store, copy)
        fs = Faulty(number, for_ever=True)
        log = open_log(copy, fs=fs)
        fs.armed = True
        with pytest.raises(Crash):
            log.compact(ERASURE)
        abandon(log)
        check_after(copy, before, after, f"call {number}")
        shutil.rmtree(copy)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("for_ever", [False, True])
def test_a_call_that_fails_is_a_typed_error_or_told_and_loses_nothing(
    store: Path, code: int, for_ever: bool
) -> None:
    before, after = expectations(store)
    copy = store.parent / "copy"
    for number in range(1 + code % STEP, calls_of_a_compaction(store) + 1, STEP):
        shutil.copytree(store, copy)
        fs = Faulty(number, lambda: OSError(code, "injected"), for_ever=for_ever)
        with open_log(copy, fs=fs) as log:
            fs.armed = True
            failed: LogError | None = None
            try:
                log.compact(ERASURE)
            except LogError as error:
                assert error.reason in LogReason
                failed = error
            fs.armed = False
            assert (failed is None) == (log.health().compaction_failure == ""), number
            if not isinstance(failed, LogPoisoned):
                assert everything(log) in (before, after), number
                say(log, b"goes on")
        with open_log(copy, read_only=True) as reader:
            assert everything(reader, head=14)[:3] == before[:3]
        if failed is None:
            # After the commit point failures are notices: nothing was taken back.
            assert list_store(WatchedFileSystem(), copy).manifest is not None
        with open_log(copy) as log:
            expected = everything(log, ERASURE)
            assert log.compact(ERASURE).pending == ()
            assert everything(log) == expected, number
        assert holds_bytes(copy, SECRET) == [], number
        assert not damage_findings(copy), number
        shutil.rmtree(copy)


def test_a_full_disk_in_the_middle_removes_what_was_written_and_nothing_else(store: Path) -> None:
    """A repair once deleted what a full disk had only made unwritable."""
    before, _ = expectations(store)

    class Full(Faulty):
        new: ClassVar[dict[int, str]] = {}

        def pwritev(self, fd: int, buffers: object, offset: int, /) -> int:
            if self.armed and offset > 2_000 and "compact-" in self.new.get(fd, ""):
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().pwritev(fd, buffers, offset)  # type: ignore[arg-type]

        def create_file(self, path: Path) -> int:
            fd = super().create_file(path)
            self.new[fd] = path.name
            return fd

    fs = Full()
    with open_log(store, fs=fs) as log:
        files = set(files_of(store))
        fs.armed = True
        with pytest.raises(StoreFull):
            log.compact(ERASURE)
        assert files <= set(files_of(store))
        assert not [name for name in files_of(store) if name.startswith(("tmp/", "manifest"))]
        fs.armed = False
        assert everything(log) == before
        assert log.compact(ERASURE).pending == ()


def test_a_manifest_of_which_it_is_unknown_whether_it_is_on_disk_takes_nothing_back(
    store: Path,
) -> None:
    """Others may read it already, so neither its files nor those before may go."""
    _, after = expectations(store)
    state = {"renamed": False}

    class Doubt(Faulty):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            state["renamed"] = target.suffix == ".mf"

        def sync(self, fd: int) -> None:
            if self.armed and state["renamed"]:
                raise OSError(errno.EIO, "Input/output error")
            super().sync(fd)

    fs = Doubt()
    with open_log(store, fs=fs) as log:
        fs.armed = True
        with pytest.raises(LogWriteFailed) as caught:
            log.compact(ERASURE)
        assert caught.value.reason is LogReason.SYNC_FAILED
        fs.armed = False
        files = files_of(store)
        assert "manifest-000000000001.mf" in files
        listing = list_store(fs, store)
        assert listing.obsolete
        assert listing.debris == []
        for manifest_is_there in (True, False):
            copy = store.parent / f"cut-{manifest_is_there}"
            shutil.copytree(store, copy)
            if not manifest_is_there:
                (copy / "manifest-000000000001.mf").unlink()
            with open_log(copy) as other:
                assert other.refresh() == 14
            assert not damage_findings(copy)
        assert log.compact(ERASURE).pending == ()
        assert everything(log) == after
    assert holds_bytes(store, SECRET) == []


def test_what_could_not_be_removed_is_pending_until_a_later_compaction(store: Path) -> None:
    class Stubborn(Faulty):
        def remove(self, path: Path) -> None:
            if self.armed and path.suffix == ".log":
                raise OSError(errno.EPERM, "Operation not permitted")
            super().remove(path)

    fs = Stubborn()
    with open_log(store, fs=fs) as log:
        fs.armed = True
        done = log.compact(ERASURE)
        assert done.erased_rows == done.erased_events == 1
        assert done.pending
        assert all("could not be removed" in sentence for sentence in done.pending)
        assert holds_bytes(store, SECRET)
        fs.armed = False
        again = log.compact(ERASURE)
        assert again.pending == ()
        assert (again.erased_rows, again.erased_events) == (0, 0)
        assert holds_bytes(store, SECRET) == []


def test_tip_that_cannot_be_told_is_a_notice_and_others_notice_by_themselves(store: Path) -> None:
    class Mute(Faulty):
        def open_file(self, path: Path, *, write: bool, create: bool) -> int:
            fd = super().open_file(path, write=write, create=create)
            if path.name == "TIP":
                self.tip_fd = fd
            return fd

        def pwrite(self, fd: int, data: object, offset: int, /) -> int:
            if self.armed and fd == self.tip_fd:
                raise OSError(errno.EIO, "Input/output error")
            return super().pwrite(fd, data, offset)  # type: ignore[arg-type]

    fs = Mute()
    other = open_log(store)
    with open_log(store, fs=fs) as log:
        fs.armed = True
        done = log.compact(ERASURE)
        assert any("TIP could not be told" in notice for notice in done.notices)
        fs.armed = False
        for segment in other._core.segments[:-1]:
            segment.file = None
        assert everything(other) == everything(log)
        say(other, b"goes on")
    other.close()


def test_a_new_segment_that_does_not_read_as_it_was_written_never_counts(store: Path) -> None:
    """A disk that loses a write is found out before the manifest, not after."""
    before, _ = expectations(store)

    class Lossy(Faulty):
        new: ClassVar[set[int]] = set()

        def close(self, fd: int) -> None:
            if self.armed and fd in self.new:
                self._real.pwrite(fd, b"\xff" * 16, 400)
            self.new.discard(fd)
            super().close(fd)

        def create_file(self, path: Path) -> int:
            fd = super().create_file(path)
            if path.name.startswith("compact-"):
                self.new.add(fd)
            return fd

    fs = Lossy()
    with open_log(store, fs=fs) as log:
        fs.armed = True
        with pytest.raises(LogWriteFailed) as caught:
            log.compact(ERASURE)
        assert "read back" in str(caught.value)
        fs.armed = False
        assert everything(log) == before
        assert log.stats().manifest_no == 0
        assert list((store / "tmp").iterdir()) == []
        assert log.compact(ERASURE).pending == ()


@pytest.mark.parametrize("events_before", [0, 3])
def test_a_tail_that_was_moved_is_compacted_and_a_later_one_is_moved_again(
    tmp_path: Path, events_before: int
) -> None:
    """What a failed sync left in doubt was written anew; its bare header goes with the rest."""
    fails = [False]

    class BadSync(WatchedFileSystem):
        def datasync(self, fd: int) -> None:
            super().datasync(fd)
            if fails[0]:
                raise OSError(errno.EIO, "Input/output error")

    for round_ in range(3):
        bad = open_log(tmp_path, fs=BadSync())
        for number in range(events_before):
            put(bad, 100 * round_ + number)
        fails[0] = True
        with pytest.raises(LogPoisoned):
            say(bad, b"in doubt", SECRET)
        fails[0] = False
        bad.close()
        with open_log(tmp_path) as log:
            head = log.refresh()
            words = [one.seq for one in log.envelopes(0, head, stream=SESSION)][1::2]
            erasure = erasure_at(head, seqs=words)
            expected = everything(log, erasure)
            done = log.compact(erasure)
            assert done.pending == ()
            assert everything(log) == expected
        assert holds_bytes(tmp_path, SECRET) == []
        with open_log(tmp_path, read_only=True) as log:
            assert everything(log) == expected
        assert not damage_findings(tmp_path)


def test_a_fork_in_the_middle_of_a_compaction_keeps_no_lock(store: Path) -> None:
    children: list[int] = []
    asleep, wake = os.pipe()

    class Forks(Faulty):
        def free_bytes(self, path: Path) -> int:
            with warnings.catch_warnings():
                # Python 3.12 warns of forks beside threads, which is what this is about.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if not child:
                os.close(wake)
                os.read(asleep, 1)
                os._exit(0)
            children.append(child)
            return super().free_bytes(path)

    with open_log(store, fs=Forks()) as log:
        log.compact(ERASURE)
    with open_log(store) as log:  # The child is still there.
        assert log.compact(ERASURE).pending == ()
    os.close(wake)
    os.close(asleep)
    for child in children:
        os.waitpid(child, 0)


@pytest.mark.parametrize("size", [-1, 0, 1])
def test_files_at_multiples_of_what_is_read_at_once_are_compacted_whole(
    tmp_path: Path, size: int
) -> None:
    """A fold elsewhere failed on files that were exact multiples of its read buffer."""
    from fmemory_segments._frames import GROUP_BYTES_MAX
    from fmemory_segments._stored import BITE_BYTES

    with Log.open(tmp_path) as log:
        for bytes_ in (GROUP_BYTES_MAX, BITE_BYTES):
            say(log, bytes(bytes_ // 2 - 256), bytes(bytes_ - (bytes_ // 2 - 256) + size))
        expected = everything(log, erasure_at(4, seqs=[2]))
        log.compact(erasure_at(4, seqs=[2]))
        assert everything(log) == expected
        say(log, b"more")
        expected = everything(log)
        log.compact(erasure_at(5))
        assert everything(log) == expected
