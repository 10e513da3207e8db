"""Namespaces that a command's user may have meant instead of the one given, or of none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmemory_tools._failure import tell
from fmemory_tools._sessions import name_some, namespaces
from fmemory_tools._summary import show_stream

if TYPE_CHECKING:
    from fmemory import LogBackend


def no_namespace(memory: LogBackend, given: str, consequence: str) -> str:
    """A sentence on a namespace that is not there, what follows, and which are."""
    names = sorted(show_stream(one) for one in namespaces(memory) if one)
    alike = [name for name in names if name.startswith(given)] or names
    there = f"there are: {name_some(alike)}" if alike else "there is only the root namespace"
    return f"no namespace {given!r}, so {consequence}; {there}"


def tell_others(memory: LogBackend, done: str, does: str) -> None:
    """On stderr: how many records were not looked at, because they are in other namespaces.

    Args:
        done: What was not done with them, such as "dumped".
        does: What naming a namespace does, such as "dumps".
    """
    counts = {
        show_stream(one): memory.count(memory.count_request(namespace=one)).count
        for one in namespaces(memory)
        if one
    }
    named = [f"{name} ({count:,})" for name, count in sorted(counts.items()) if count]
    if named:
        total = sum(counts.values())
        records = f"{total:,} record{'' if total == 1 else 's'}"
        where = f"namespace{'' if len(named) == 1 else 's'} {name_some(named)}"
        words = f"{records} of {where} not {done}; --namespace A/B {does} one of them"
        tell(words)
