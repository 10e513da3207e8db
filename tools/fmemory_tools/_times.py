"""Times as people write and read them on a command line."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fmemory_tools._failure import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)(?:\s+ago)?", re.IGNORECASE)
_DATED = re.compile(r"\d{4,5}-\d\d-\d\d(?:[T ].+)?", re.DOTALL)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNITS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "hour": "h", "hours": "h", "day": "d", "days": "d", "week": "w", "weeks": "w",
}  # fmt: skip
_FORMS = "2026-02-10, 2026-02-10T21:54, 2026-02-10T21:54:53Z or '10m ago'"


def parse_place(text: str, option: str) -> int | datetime:
    """A place in the log: a sequence number, or a time.

    >>> parse_place("812", "--at")
    812
    """
    if text.strip().isdecimal():
        return int(text)
    return parse_time(text, option, also="a sequence number, ")


def parse_time(text: str, option: str, *, also: str = "", now: datetime | None = None) -> datetime:
    """The aware UTC time that `text` names; without a zone it is local time.

    A date alone is its first moment, and `10m` is `10m ago`. What `show_time` gives is read,
    too.

    >>> parse_time("2026-02-10T21:54:53Z", "--since").isoformat()
    '2026-02-10T21:54:53+00:00'
    >>> noon = datetime(2026, 2, 10, 12, tzinfo=UTC)
    >>> parse_time("10m ago", "--since", now=noon).isoformat()
    '2026-02-10T11:50:00+00:00'

    Raises:
        Failure: It is no time; the message names the forms that are.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        unit = ago[2].lower()
        seconds = _SECONDS.get(_UNITS.get(unit, unit))
        if seconds is not None:
            with suppress(OverflowError):
                return (now or datetime.now(UTC)) - timedelta(seconds=float(ago[1]) * seconds)
    if _DATED.fullmatch(text.strip()):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(text.strip()).astimezone(UTC)
    raise Failure(f"{option}: expected {also}a time like {_FORMS}, got {text!r}")


def show_time(time: datetime, *, utc: bool) -> str:
    """Date and time to the second, local or UTC; UTC ends in `Z`.

    >>> show_time(datetime(2026, 2, 10, 21, 54, 53, tzinfo=UTC), utc=True)
    '2026-02-10 21:54:53Z'
    """
    with suppress(OverflowError, ValueError):
        # A local time before the year 1, or behind 9999, is none: it stays UTC and says so.
        shown = time.astimezone(UTC if utc else None)
        return f"{_plain(shown)}Z" if utc else _plain(shown)
    return f"{_plain(time.astimezone(UTC))}Z"


def show_minutes(times: Sequence[datetime], *, utc: bool) -> list[str]:
    """Dates and times to the minute for a column; with years unless all are of this one.

    >>> show_minutes([datetime(2020, 2, 10, 21, 54, tzinfo=UTC)], utc=True)
    ['2020-02-10 21:54']
    """
    shown = [show_time(time, utc=utc) for time in times]
    year = _plain(datetime.now(UTC if utc else None))[:5]
    first = 5 if all(one.startswith(year) for one in shown) else 0
    # Where not all are UTC, those that are say so.
    return [one[first:16] + ("Z" if not utc and one.endswith("Z") else "") for one in shown]


def _plain(time: datetime) -> str:
    return time.replace(tzinfo=None).isoformat(" ", "seconds")
