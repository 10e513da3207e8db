"""Fiddlesticks' folder: one JSON file a session, named after the session's id."""

from __future__ import annotations

import re
from pathlib import Path

from fmemory_tools.importers._fiddlesticks_stored import StoredSession, bad_place, session_of
from fmemory_tools.importers._lines import Malformed, parse_object
from fmemory_tools.importers.plan import BadLine, BadSource

SESSIONS = "sessions"

_HEXADECIMAL = re.compile(r"(?:[0-9a-f]{2})+")


def read_folder(root: Path, bad: list[BadLine]) -> list[StoredSession]:
    """The sessions of a folder; files that cannot be read as one go to `bad`.

    Raises:
        BadSource: The folder is not one of Fiddlesticks.
    """
    folder = root / SESSIONS
    if not folder.is_dir():
        advice = "; give the folder above it" if root.name == SESSIONS else ""
        raise BadSource(
            root.name, f"no folder of Fiddlesticks: there is no folder {SESSIONS}/ in it{advice}"
        )
    found = []
    for path in sorted(folder.iterdir()):
        place = f"{SESSIONS}/{path.name}"
        try:
            session = _session(path, place, bad)
        except Malformed as problem:
            bad.append(bad_place(place, problem))
        else:
            if session is not None:
                found.append(session)
    return found


def _session(path: Path, place: str, bad: list[BadLine]) -> StoredSession | None:
    """The session of a file; None if the file is none of Fiddlesticks' making."""
    if path.name.endswith(".json.tmp"):
        _check_is_left_over(path)
        return None
    if path.suffix != ".json" or not path.is_file():
        return None
    session_id = session_id_of(path.stem)
    return session_of(session_id, place, parse_object(path.read_bytes()), bad)


def session_id_of(stem: str) -> str:
    """The id that a file's name without its ending spells in hexadecimal.

    Raises:
        Malformed: The name is not the lower-case hexadecimal of UTF-8.

    >>> session_id_of("732f31")
    's/1'
    """
    if _HEXADECIMAL.fullmatch(stem) is None:
        raise Malformed(
            "its name: expected a session id in lower-case hexadecimal, got something else"
        )
    try:
        return bytes.fromhex(stem).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("its name: expected the hexadecimal of UTF-8, got other bytes") from error


def _check_is_left_over(path: Path) -> None:
    """A save writes a file `.tmp`, removes the old one and renames: what it left must be old."""
    if not path.with_suffix("").exists():
        raise Malformed(
            f"an interrupted save, and there is no {path.with_suffix('').name}: rename it to that"
            " to import it"
        )
