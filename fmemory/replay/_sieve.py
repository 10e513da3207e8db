"""A quick look at stored bytes that tells which of them cannot hold a match.

Texts lie in payloads as UTF-8, whole and unescaped, so what every match of a pattern must contain
is in the bytes, too. Where nothing such is sure, nothing is sieved. Pure, and never decides alone:
what passes is searched properly.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["needed_by", "sieve"]

_GROUPING = frozenset("(|[{")
"""With these in a pattern, nothing in it may be needed."""
_NUMBER_OR_BOOL = frozenset("0123456789+-.etrufals")
"""Numbers and booleans are stored in another form than they are searched in; in small letters."""
_OTHER_CASES = frozenset("iksIKS")
"""Letters that have more forms than two: the Kelvin sign, the long s, the dotted and dotless i."""
_MEANT_OTHERWISE = frozenset("xuUN0123456789")


def sieve(pattern: str, *, literal: bool, ignore_case: bool) -> Callable[[bytes], bool]:
    """Whether bytes may hold a match; True where that cannot be told."""
    needed = needed_by(pattern, literal=literal, ignore_case=ignore_case).encode()
    if not needed:
        return _always
    if ignore_case:
        lowered = needed.lower()
        return lambda data: lowered in data.lower()
    return lambda data: needed in data


def _always(data: bytes) -> bool:
    del data
    return True


def needed_by(pattern: str, *, literal: bool, ignore_case: bool) -> str:
    """The longest ASCII text that everything a pattern matches contains; empty = nothing sure.

    >>> needed_by("time ?out after", literal=False, ignore_case=False)
    'out after'
    >>> needed_by("time|out", literal=False, ignore_case=False)
    ''
    """
    runs = _plain_runs([*pattern] if literal else _certain(pattern))
    found = ""
    for run in runs:
        for piece in _without_other_cases(run) if ignore_case else [run]:
            if len(piece) > len(found) and not _NUMBER_OR_BOOL.issuperset(piece.lower()):
                found = piece
    return found


def _certain(pattern: str) -> list[str]:
    """The characters that stand for themselves and must be there; "" where a run of them ends."""
    if _GROUPING.intersection(pattern):
        return []
    found: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            if next(characters, "") in _MEANT_OTHERWISE:
                return []
            found.append("")
        elif character in "?*":
            found[-1:] = [""]
        elif character in ".^$+":
            found.append("")
        else:
            found.append(character)
    return found


def _plain_runs(characters: list[str]) -> list[str]:
    """Printable ASCII side by side; a line end may be one that joins two stored texts."""
    plain = (one if one.isascii() and one.isprintable() else "\n" for one in characters)
    return "".join(one or "\n" for one in plain).split("\n")


def _without_other_cases(run: str) -> list[str]:
    return "".join("\n" if one in _OTHER_CASES else one for one in run).split("\n")
