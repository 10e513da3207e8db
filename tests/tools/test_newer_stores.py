"""Stores that a newer version wrote: not opened, not called damaged, and nothing made of them.

Goal: who has an old program is told so by whatever is tried. Method: the mark of the version is
raised in an intact store, with its checksum. What would have to break: a reader that takes what it
does not know for damage, and so calls all of it lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import fmemory
from fmemory import Reason, StorageError
from fmemory.journals._jsonl.lines import encode_header, parse_header
from fmemory_segments._header import pack_header, unpack_header
from tests.fmemory.repair_tools import KINDS, bytes_at, file_of, small_store, target_of
from tests.tools.helpers import Command, only_line


def newer_segment(path: Path) -> None:
    content = path.read_bytes()
    header = unpack_header(content)
    assert header is not None
    path.write_bytes(pack_header(header._replace(major=2)) + content[128:])


def newer_lines(path: Path) -> None:
    first, _, rest = path.read_bytes().partition(b"\n")
    header = parse_header(first)
    assert header is not None
    path.write_bytes(encode_header(msgspec.structs.replace(header, version=2)) + rest)


def newer_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE fmemory_log SET value = 2 WHERE key = 'schema_version'")


RAISE: dict[str, Callable[[Path], None]] = {
    "segments": newer_segment,
    "filesystem": newer_lines,
    "sqlite": newer_tables,
}


@pytest.fixture(params=KINDS)
def newer(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The target of a store that is as a newer version might have left it."""
    kind = str(request.param)
    target, _ = small_store(kind, tmp_path)
    RAISE[kind](file_of(kind, tmp_path))
    return target


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_store_is_neither_opened_nor_repaired(
    kind: str, newer: str, tmp_path: Path
) -> None:
    before = bytes_at(newer)
    target = target_of(kind, tmp_path, "new")

    for use in (
        lambda: fmemory.open(newer),
        lambda: fmemory.open(newer, read_only=True),
        lambda: fmemory.repair(newer, target),
    ):
        with pytest.raises(StorageError, match="newer") as caught:
            use()
        assert caught.value.reason is Reason.UNKNOWN_FORMAT

    # SQLite leaves files beside its own, which hold nothing.
    after = bytes_at(newer)
    assert {name: after[name] for name in before} == before
    assert [one.name for one in tmp_path.glob("new*")] == []


@pytest.mark.parametrize("command", ["log", "verify", "runs", "repair new"])
def test_commands_say_that_a_newer_version_wrote_it(
    command: str, newer: str, run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    result = run(*command.split(), "-s", newer)

    assert (result.exit_code, result.stdout) == (3, "")
    told = only_line(result.stderr)
    assert "newer" in told and "lost" not in told and "backup" not in told
