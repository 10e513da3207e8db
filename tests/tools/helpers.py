"""What the tests of the command share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from typer.testing import Result

Command: TypeAlias = Callable[..., Result]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def only_line(text: str) -> str:
    """The text, which must be one line."""
    (line,) = text.splitlines()
    return line


def change_one_byte(store: Path, text: bytes) -> None:
    """Damage a store where a text lies."""
    (segment,) = store.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(text)] ^= 1
    segment.write_bytes(content)
