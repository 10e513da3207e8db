"""Which store a command means, and opening it: for reading unless the command writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fmemory_tools._failure import CANNOT_OPEN, Failure

if TYPE_CHECKING:
    from fmemory import JournalBackend, MemoryBackendConfig

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
        return str(path / STORE_FOLDER if _holds_store(path) else path)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if _holds_store(folder):
            return str(folder / STORE_FOLDER)
    raise Failure(
        f"no store: give one with -s PATH, set {STORE_VARIABLE}, or work below a folder that holds"
        f" {STORE_FOLDER}/ (`fmemory demo` makes a store to look at)",
        CANNOT_OPEN,
    )


def _holds_store(folder: Path) -> bool:
    try:
        return (folder / STORE_FOLDER).is_dir()
    except OSError:  # Whoever opens the folder says what is wrong with it.
        return False


def chosen_store(path: str | None, given: str | None) -> str:
    """The store of a command that takes it as an argument as well as by -s.

    Raises:
        Failure: Both name one, and not the same; or none is named and none is near.
    """
    if path is not None and given is not None and path != given:
        raise Failure(f"expected one store, got two: {shown(path)}, and by -s {shown(given)}")
    return find_store(given if path is None else path)


def is_url(target: str) -> bool:
    """Whether the target names a store by URL rather than by path.

    >>> is_url("sqlite:///notes.db"), is_url("./memory")
    (True, False)
    """
    return _URL.match(target) is not None or target == ":memory:"


def shown(target: str) -> str:
    """The target as it may be printed: a password in it is not."""
    if not is_url(target):
        return target
    from fmemory._target import masked

    return masked(target)


def config_of(target: str) -> MemoryBackendConfig:
    """The backend that a target names, looking at what lies there.

    Raises:
        Failure: It names none.
    """
    import fmemory
    from fmemory._target import config_of

    try:
        return config_of(target)
    except fmemory.MemoryBackendError as error:
        raise Failure(str(error), CANNOT_OPEN) from error


def is_there(target: str) -> bool:
    """Whether the target names a file, a folder with something in it, or no place at all.

    A database on a server is not asked.
    """
    place = _place_of(target)
    return place is not None and (place.is_file() or (place.is_dir() and any(place.iterdir())))


def check_there(target: str) -> None:
    """Check that a path or the place of a URL has something that may be a store.

    Raises:
        Failure: There is nothing, or a file of another kind.
    """
    from fmemory._shell import shell_word
    from fmemory._target import DATABASE_SUFFIXES

    place = _place_of(target)
    if place is None:
        return
    if not place.exists():
        raise Failure(
            f"no store at {target}: check the path (import and load create a store)",
            CANNOT_OPEN,
        )
    if not is_there(target):
        raise Failure(_absent(target), CANNOT_OPEN)
    if not is_url(target) and place.is_file() and not _is_database(place):
        advice = ""
        if {".jsonl", ".json", ".gz"} & set(place.suffixes):
            advice = f"; to load it into one: fmemory load {shell_word(target)} -s FOLDER"
        elif place.suffix.lower() in DATABASE_SUFFIXES:
            advice = f"; if it was one, salvage it: fmemory repair NEW -s {shell_word(target)}"
        raise Failure(
            f"{target} is a file, and a store is a folder or a database file{advice}", CANNOT_OPEN
        )


def check_target(target: str, origin: str) -> None:
    """Check that a store to be written is named, and one that outlives the command and the origin.

    Raises:
        Failure: It is not.
    """
    from fmemory.config import InMemoryConfig

    if not target or isinstance(config_of(target), InMemoryConfig):
        got = target or "nothing"
        raise Failure(
            f"TARGET: expected a store that is kept, got {got}: name a folder, a database file or a"
            " URL"
        )
    store, copied = _place_of(origin), _place_of(target)
    if store is not None and copied is not None and store.resolve() in copied.resolve().parents:
        raise Failure(
            f"TARGET: expected a place outside of {origin}, got {target}, which would be lost with"
            " it; nothing was written"
        )


def _place_of(target: str) -> Path | None:
    """The file or folder that a target names; None where it is no place on this machine."""
    if not is_url(target):
        return Path(target)
    from fmemory.config import FilesystemConfig, SqliteConfig

    match config_of(target):
        case SqliteConfig(path=path) | FilesystemConfig(root=path):
            return Path(path)
        case _:
            return None


def _is_database(path: Path) -> bool:
    from fmemory._recognise import Found, what_lies_at

    return what_lies_at(path) is not Found.OTHER_FILE


@contextmanager
def reading(given: str | None) -> Iterator[JournalBackend]:
    """The store, opened read-only; never created."""
    target = find_store(given)
    check_there(target)
    with _opened(target, create=False, read_only=True) as memory:
        yield memory


def _absent(target: str) -> str:
    from fmemory._shell import shell_word

    named = shell_word(shown(target))
    return (
        f"no store in {shown(target)}; create one with `fmemory import … -s {named}` or"
        " fmemory.open()"
    )


@contextmanager
def writing(given: str | None, *, create: bool = True) -> Iterator[JournalBackend]:
    """The store, opened for writing; created if it was named and is not there, unless told not."""
    with _opened(find_store(given), create=create, read_only=False) as memory:
        yield memory


@contextmanager
def _opened(target: str, *, create: bool, read_only: bool) -> Iterator[JournalBackend]:
    import fmemory

    try:
        memory = fmemory.open(target, create=create, read_only=read_only)
    except fmemory.NotFound as error:
        words = str(error)
        if not is_url(target) and Path(target).is_dir():
            words = f"no store in {target}: what is there is something else"
        raise Failure(words, CANNOT_OPEN) from error
    except (fmemory.MemoryBackendError, OSError) as error:
        raise Failure(str(error), CANNOT_OPEN) from error
    with memory:
        yield memory


def store_option(store: str | None) -> str:
    """What a printed command must end with to mean the same store; empty if nothing was given.

    A password in it is not printed: whoever copies the command gives it in `PGPASSWORD`.

    >>> store_option("my memory"), store_option(None)
    (" -s 'my memory'", '')
    """
    from fmemory._shell import shell_word

    return "" if store is None else f" -s {shell_word(shown(store))}"
