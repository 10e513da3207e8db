"""An SQLite file with a changed byte: whoever reads it gets data or an error of the contract.

Goal: no error of another kind comes out. Method: bytes in names and texts of the file are changed
one at a time, to one that ends no UTF-8, and the memory is opened, read, verified and repaired.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

import fmemory
from fmemory import LogCorrupt, MemoryBackendError, Message
from fmemory._target import config_of

NO_UTF_8 = 0xCE
WORDS = (
    rb"CREATE TABLE fmemory_\w+",
    rb"tablefmemory_\w+",
    rb'\["session","\w+"\]',
    rb"sqlite_auto\w+",
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "memory.db"
    with fmemory.open(f"sqlite:///{path}") as memory:
        memory.append_transcript_messages("login", [Message("user", "tea")])
        memory.add_note("green", id="a")
    return path.read_bytes()


def places(content: bytes) -> list[int]:
    """Where names and texts stand that SQLite or the log goes by."""
    spans = [one.span() for word in WORDS for one in re.finditer(word, content)]
    return sorted({place for start, end in spans for place in range(start, end)})


def read_all(path: Path) -> int:
    with fmemory.open(f"sqlite:///{path}", create=False) as memory:
        memory.verify()
        memory.compact()
        return len(list(memory.events()))


def test_no_changed_byte_of_a_name_gives_a_foreign_error(sound: bytes, tmp_path: Path) -> None:
    corrupt = 0
    for number, place in enumerate(places(sound)):
        path = tmp_path / f"{number}.db"
        path.write_bytes(sound[:place] + bytes([NO_UTF_8]) + sound[place + 1 :])
        with suppress(MemoryBackendError):
            config_of(path)
        try:
            assert read_all(path) == 2
        except MemoryBackendError as error:
            corrupt += isinstance(error, LogCorrupt)
        with suppress(MemoryBackendError):
            fmemory.repair(f"sqlite:///{path}", tmp_path / f"repaired-{number}")

    assert corrupt > 100
