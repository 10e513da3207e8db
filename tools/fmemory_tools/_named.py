"""What a command is about when it takes a run or a session by name, or by the name's beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fmemory_tools._failure import Failure

if TYPE_CHECKING:
    from fmemory import LogBackend

T = TypeVar("T")


def ask_by_name(
    memory: LogBackend, name: str | None, session: str | None, ask: Callable[[str | None], T]
) -> T:
    """What asking gives for the name in full, or for the only one that begins so.

    Args:
        session: The session that a run is to be of; None = any, empty = none.
        ask: Asks the library; it raises NotFound where the name in full is none.

    Raises:
        Failure: No name begins so, or several do; the message says which.
    """
    from fmemory import NotFound
    from fmemory_tools._sessions import meant_by, name_some

    try:
        return _asked(name, ask)
    except NotFound:
        if name is None:
            raise
    known = _names(memory, session)
    matching = meant_by(known, name)
    if len(matching) == 1:
        return _asked(matching[0], ask)
    if matching:
        raise Failure(f"{name!r} could be any of: {name_some(matching)}")
    there = f"there are: {name_some(known)}" if known else "there is none"
    raise Failure(f"no {_kind(session)} {name!r}; {there}")


def _kind(session: str | None) -> str:
    """What a name is looked for as."""
    if session is None:
        return "run or session"
    return f"run of session {session}:" if session else "run that wrote to no session:"


def _asked(name: str | None, ask: Callable[[str | None], T]) -> T:
    """What asking gives; a name that several have is refused in the words of the command line."""
    from fmemory import ContractError

    try:
        return ask(name)
    except ContractError as error:
        if error.where != "name":
            raise
        words = str(error).removeprefix("name: ").replace("give session_id", "give --session")
        raise Failure(words) from error


def _names(memory: LogBackend, session: str | None) -> list[str]:
    from fmemory import replay
    from fmemory_tools._sessions import all_sessions

    names = dict.fromkeys(
        [] if session is not None else [one.session_id for one in all_sessions(memory)]
    )
    for one in replay.runs(memory, session_id=session or None):
        if session in (None, one.session_id or ""):
            names[one.run_id] = None
    return list(names)
