"""What may be opened, what is made, and what is refused by name."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fmemory_segments import (
    Head,
    Log,
    LogReason,
)
from fmemory_segments.errors import (
    LogCorrupt,
    LogNotFound,
    LogReadFailed,
    NetworkFileSystem,
    NotALog,
    ReadOnlyLog,
    UnsupportedFormat,
    UnsupportedPlatform,
)
from tests.segments.log_tools import (
    FailingFileSystem,
    WatchedFileSystem,
    files_of,
    opens,
    put,
    segments_of,
    small_store,
)


def test_open_makes_folders_and_files_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "store"
    with Log.open(path) as log:
        put(log, 1)
    for folder in (path, path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir() if file.is_file()} == {
        0o600
    }


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
def test_missing_store_is_not_made(tmp_path: Path, options: dict[str, bool]) -> None:
    for path in (tmp_path, tmp_path / "new"):
        with pytest.raises(LogNotFound) as caught:
            Log.open(path, **options)  # type: ignore[arg-type]
        assert caught.value.reason is LogReason.MISSING
        assert caught.value.path == path
    assert list(tmp_path.iterdir()) == []


def test_path_that_is_a_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(b"SQLite format 3")
    with pytest.raises(NotALog) as caught:
        Log.open(path)
    assert caught.value.reason is LogReason.NOT_A_FOLDER
    assert path.read_bytes() == b"SQLite format 3"


def test_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotALog):
        Log.open(tmp_path / "file" / "store")


def test_foreign_files_are_left_alone_and_told(tmp_path: Path) -> None:
    Log.open(tmp_path).close()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "seg-1.log").write_text("mine too")
    with Log.open(tmp_path) as log:
        put(log, 1)
        assert len(log.health().notices) == 2
        findings = log.verify()
        assert [finding.reason for finding in findings] == [LogReason.FOREIGN_FILE] * 2
        assert not any(finding.damage for finding in findings)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("major", 2, LogReason.NEWER_FORMAT),
        ("incompatible", 1, LogReason.UNKNOWN_FEATURE),
        ("generation", 3, LogReason.COMPACTED_STORE),
    ],
)
def test_newer_segment_is_refused(
    tmp_path: Path, field: str, value: int, reason: LogReason
) -> None:
    from fmemory_segments._header import pack_header, unpack_header

    small_store(tmp_path)
    segment = segments_of(tmp_path)[0]
    content = segment.read_bytes()
    header = unpack_header(content)
    assert header is not None
    changed = header._replace(**{field: value})  # type: ignore[arg-type]
    segment.write_bytes(pack_header(changed) + content[128:])
    if field == "generation":
        segment.rename(segment.with_name("seg-00000000000000000001-000003.log"))
    with pytest.raises(UnsupportedFormat) as caught:
        Log.open(tmp_path)
    assert caught.value.reason is reason


def test_newer_segment_with_known_features_is_read(tmp_path: Path) -> None:
    from fmemory_segments._header import pack_header, unpack_header

    small_store(tmp_path)
    before = opens(tmp_path)
    segment = segments_of(tmp_path)[0]
    content = segment.read_bytes()
    header = unpack_header(content)
    assert header is not None
    segment.write_bytes(pack_header(header._replace(minor=7, compatible=8)) + content[128:])
    assert opens(tmp_path) == before


def test_network_file_system_is_refused_unless_allowed(tmp_path: Path) -> None:
    class OnNetwork(WatchedFileSystem):
        def mount_type(self, path: Path) -> str:
            del path
            return "nfs4"

    with pytest.raises(NetworkFileSystem) as caught:
        Log.open(tmp_path / "store", fs=OnNetwork())
    assert caught.value.reason is LogReason.NETWORK_FILE_SYSTEM
    assert not (tmp_path / "store").exists()
    Log.open(tmp_path / "store", fs=OnNetwork(), allow_network=True).close()


def test_platform_without_flock_is_refused(tmp_path: Path) -> None:
    class NoFlock(WatchedFileSystem):
        def check_platform(self) -> str | None:
            return "flock"

    with pytest.raises(UnsupportedPlatform):
        Log.open(tmp_path / "store", fs=NoFlock())
    assert not (tmp_path / "store").exists()


def test_store_without_segments_that_acknowledged_events_is_not_begun_anew(tmp_path: Path) -> None:
    small_store(tmp_path)
    for segment in segments_of(tmp_path):
        segment.unlink()
    files = files_of(tmp_path)
    for read_only in (True, False):
        with pytest.raises(LogCorrupt) as caught:
            Log.open(tmp_path, read_only=read_only)
        assert caught.value.reason is LogReason.MISSING_SEGMENT
    assert files_of(tmp_path) == files


def test_segment_of_a_header_only_is_an_empty_log(tmp_path: Path) -> None:
    Log.open(tmp_path).close()
    assert segments_of(tmp_path)[0].stat().st_size == 128
    for read_only in (True, False):
        with Log.open(tmp_path, read_only=read_only) as log:
            assert (log.refresh(), log.head(), log.streams()) == (0, Head(0, bytes(32)), [])


def test_half_made_files_are_removed_by_the_next_writer_alone(tmp_path: Path) -> None:
    small_store(tmp_path)
    left = tmp_path / "tmp" / "new-0123456789abcdef"
    left.write_bytes(b"half")
    Log.open(tmp_path, read_only=True).close()
    assert left.exists()
    Log.open(tmp_path).close()
    assert not left.exists()


def test_folder_without_write_permission_opens_for_reading(tmp_path: Path) -> None:
    small_store(tmp_path)
    expected = opens(tmp_path)
    tmp_path.chmod(0o500)
    try:
        assert opens(tmp_path, read_only=True) == expected
    finally:
        tmp_path.chmod(0o700)


def test_read_only_folder_without_lock_and_tip_opens_for_reading(tmp_path: Path) -> None:
    small_store(tmp_path)
    expected = opens(tmp_path)
    (tmp_path / "LOCK").unlink()
    (tmp_path / "TIP").unlink()
    assert opens(tmp_path, read_only=True) == expected
    assert not (tmp_path / "LOCK").exists()


def test_read_only_log_refuses_writes(tmp_path: Path) -> None:
    small_store(tmp_path)
    with Log.open(tmp_path, read_only=True) as log:
        writes: list[Callable[[], object]] = [lambda: put(log, 1), lambda: log.import_exact([])]
        for write in writes:
            with pytest.raises(ReadOnlyLog) as caught:
                write()
            assert caught.value.reason is LogReason.READ_ONLY


def test_error_while_reading_is_never_the_end(tmp_path: Path) -> None:
    small_store(tmp_path, segment_bytes_max=1_500)
    fs = WatchedFileSystem()
    with Log.open(tmp_path, fs=fs, read_only=True):
        calls = len(fs.calls)
    for number in range(1, calls + 1):
        failing = FailingFileSystem(lambda _, count, number=number: count == number)  # type: ignore[misc]
        with pytest.raises(LogReadFailed) as caught:
            Log.open(tmp_path, fs=failing, read_only=True)
        assert isinstance(caught.value, OSError)


def test_files_of_others_in_tmp_are_never_removed(tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    Log.open(store).close()
    elsewhere.mkdir()
    (store / "tmp" / "important.txt").write_bytes(b"mine")
    (store / "tmp" / "new-0123456789abcdef").write_bytes(b"half-made")
    Log.open(store).close()
    assert (store / "tmp" / "important.txt").read_bytes() == b"mine"
    assert not (store / "tmp" / "new-0123456789abcdef").exists()
    shutil.rmtree(store / "tmp")
    (store / "tmp").symlink_to(elsewhere)
    (elsewhere / "photo.jpg").write_bytes(b"mine")
    Log.open(store).close()
    assert (elsewhere / "photo.jpg").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["main.py", "tmp", ".git"])
def test_a_folder_of_somebody_else_does_not_become_a_store(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(NotALog) as caught:
        Log.open(tmp_path)
    assert caught.value.reason is LogReason.NOT_EMPTY
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_with_a_gitignore_may_become_a_store(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"*")
    Log.open(tmp_path).close()
    assert (tmp_path / "LOCK").exists()
