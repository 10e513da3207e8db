"""The real file system does what the protocol says, and nothing is guessed about mounts."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fmemory_segments import FileSystem, PosixFileSystem
from fmemory_segments.filesystem import FileKind, is_network, parse_mount_type

MOUNTS = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 0:30 / /home rw,relatime shared:1 - nfs4 server:/home rw
23 21 0:31 / /home/me/local rw - tmpfs tmpfs rw
24 21 0:32 / /mnt/with\\040space rw - fuse.sshfs me@there rw
25 21 0:33 / /over rw - ext4 /dev/vdb rw
26 25 0:34 / /over rw - cifs //server/share rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "ext4"),
        ("/homely/store", "ext4"),
        ("/home", "nfs4"),
        ("/home/me", "nfs4"),
        ("/home/me/local/store", "tmpfs"),
        ("/mnt/with space/store", "fuse.sshfs"),
        ("/over/store", "cifs"),
    ],
)
def test_mount_of_a_path_is_the_longest_and_the_last(path: str, expected: str) -> None:
    assert parse_mount_type(MOUNTS, Path(path)) == expected


@pytest.mark.parametrize("name", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse"])
def test_mounts_whose_locks_may_lie_are_network(name: str) -> None:
    assert is_network(name)


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "apfs", "overlay", ""])
def test_local_mounts_are_not(name: str) -> None:
    assert not is_network(name)


def test_mount_of_a_path_that_is_not_there_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    fs: FileSystem = PosixFileSystem()
    assert fs.mount_type(tmp_path / "a" / "b") == fs.mount_type(tmp_path)


def test_files_belong_to_the_owner_alone_and_close_on_exec(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    fds = [
        fs.create_file(tmp_path / "new"),
        fs.open_file(tmp_path / "other", write=True, create=True),
        fs.open_file(tmp_path / "other", write=False, create=False),
        fs.open_folder(tmp_path),
    ]
    for fd in fds:
        assert not os.get_inheritable(fd)
        fs.close(fd)
    for name in ("new", "other"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        PosixFileSystem().create_file(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_descriptors_are_above_the_standard_streams(tmp_path: Path) -> None:
    """With stdin, stdout and stderr closed, a segment must not become one of them."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from fmemory_segments import PosixFileSystem\n"
        "for fd in (0, 1, 2): os.close(fd)\n"
        "fd = PosixFileSystem().create_file(Path(sys.argv[1]))\n"
        "os._exit(fd)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")], env=environment, check=False
    )
    assert done.returncode >= 3


def test_kinds_of_paths(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    assert fs.kind(tmp_path) is FileKind.FOLDER
    assert fs.kind(tmp_path / "file") is FileKind.FILE
    assert fs.kind(tmp_path / "pipe") is FileKind.OTHER
    assert fs.kind(tmp_path / "none") is None
    assert fs.kind(tmp_path / "file" / "below") is None


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    fs.make_folders(tmp_path / "a" / "b")
    fs.make_folders(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_only_one_module_calls_the_system() -> None:
    """Elsewhere `os` is good for random bytes alone, and nobody maps files or unpickles."""
    folder = Path(__file__).parents[2] / "segments" / "fmemory_segments"
    for path in sorted(folder.glob("*.py")):
        if path.name == "filesystem.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.partition(".")[0] for alias in node.names}
                names.add((getattr(node, "module", "") or "").partition(".")[0])
                assert not names & {"fcntl", "mmap", "pickle", "shutil", "tempfile"}, path.name
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "os" or node.attr == "urandom", path.name
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "open", path.name


def test_free_bytes_are_what_a_user_may_fill(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    free = PosixFileSystem().free_bytes(tmp_path)
    assert 0 <= free <= found.f_bfree * found.f_frsize + (1 << 30)
    assert free % found.f_frsize == 0
