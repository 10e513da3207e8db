"""Which store a command means, and opening it: for reading unless the command writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from fmemory_tools._failure import CANNOT_OPEN, Failure

if TYPE_CHECKING:
    from fmemory import LogBackend

STORE_VARIABLE = "FMEMORY_STORE"
STORE_FOLDER = ".fmemory"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def find_store(given: str | None) -> str:
    """The store a command means: as given, by the environment, or the nearest `.fmemory` upwards.

    A folder that holds a `.fmemory` folder stands for it.

    Raises:
        Failure: None was named and none is near.
    """
    target = given or os.environ.get(STORE_VARIABLE)
    if target and is_url(target):
        return target
    if target:
        path = Path(target).expanduser()
        return str(path / STORE_FOLDER if (path / STORE_FOLDER).is_dir() else path)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / STORE_FOLDER).is_dir():
            return str(folder / STORE_FOLDER)
    raise Failure(
        f"no store: give one with -s PATH, set {STORE_VARIABLE}, or work below a folder that holds"
        f" {STORE_FOLDER}/ (`fmemory demo` makes a store to look at)",
        CANNOT_OPEN,
    )


def is_url(target: str) -> bool:
    """Whether the target names a store by URL rather than by path.

    >>> is_url("sqlite:///notes.db"), is_url("./memory")
    (True, False)
    """
    return _URL.match(target) is not None or target == ":memory:"


def is_there(target: str) -> bool:
    """Whether the target is a URL, a file, or a folder with something in it."""
    path = Path(target)
    return is_url(target) or path.is_file() or (path.is_dir() and any(path.iterdir()))


def existing_folder(given: str | None) -> Path:
    """The folder of the store that a command means.

    Raises:
        Failure: There is nothing, or a file.
    """
    target = find_store(given)
    path = Path(target)
    if is_url(target):
        raise Failure(f"{target}: expected the folder of a store, got a URL", CANNOT_OPEN)
    if not path.exists():
        raise Failure(
            f"no store at {target}: check the path (import and load create a store)",
            CANNOT_OPEN,
        )
    if not is_there(target):
        raise Failure(
            f"no store in {target}; create one with `fmemory import … -s {quote(target)}` or"
            " fmemory.open()",
            CANNOT_OPEN,
        )
    if not path.is_dir():
        is_memory_file = {".jsonl", ".json", ".gz"} & set(path.suffixes)
        advice = f"; to load it into one: fmemory load {target} -s FOLDER" if is_memory_file else ""
        raise Failure(f"{target} is a file, and a store is a folder{advice}", CANNOT_OPEN)
    return path


@contextmanager
def reading(given: str | None) -> Iterator[LogBackend]:
    """The store, opened read-only; never created."""
    target = find_store(given)
    if not is_url(target):
        existing_folder(target)
    with _opened(target, create=False, read_only=True) as memory:
        yield memory


@contextmanager
def writing(given: str | None) -> Iterator[LogBackend]:
    """The store, opened for writing; created if it was named and is not there."""
    with _opened(find_store(given), create=True, read_only=False) as memory:
        yield memory


@contextmanager
def _opened(target: str, *, create: bool, read_only: bool) -> Iterator[LogBackend]:
    import fmemory

    try:
        memory = fmemory.open(target, create=create, read_only=read_only)
    except (fmemory.MemoryBackendError, OSError) as error:
        raise Failure(str(error), CANNOT_OPEN) from error
    with memory:
        yield memory
