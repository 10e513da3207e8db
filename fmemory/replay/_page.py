"""A replay as one HTML file: all is in it, nothing is loaded, and no text of a log is markup.

The parts of the page lie in `page/`. The data stands in a script element of a type that no browser
runs, as JSON in which every `<` is written `\\u003c`: nothing in it can end the element or open a
comment. The page's own scripts and style are allowed by their digests, by a policy that forbids all
other scripts, all connections, and turning text into markup at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files

from fmemory.backend import LogBackend
from fmemory.replay._page_source import page_data
from fmemory.replay.models import UnreadableEvent

__all__ = ["page"]

_SCRIPTS = (
    "dom.js",
    "model.js",
    "head.js",
    "events.js",
    "search.js",
    "panel.js",
    "timeline.js",
    "app.js",
)
_POLICY = (
    "default-src 'none'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_PLACE = re.compile(r"\{\{([a-z]+)\}\}")
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+|\n(?=\s*\n)", re.MULTILINE)


def page(
    memory: LogBackend,
    name: str | None = None,
    *,
    session_id: str | None = None,
    on_damaged: Callable[[UnreadableEvent], object] | None = None,
) -> str:
    """A log as an HTML page of its own, to look through in a browser, without network access.

    It shows the runs, checkpoints and flips of features on a timeline that can be zoomed, the state
    as of every event and what that changed, the transcript, and finds text. `#812` behind its
    address opens it at event 812. Times are shown in the time zone of who looks. The numbers are
    those of `runs` and `report`.

    Args:
        name: A session or a run, by its whole id; of a run its session is shown, at the run.
        session_id: The session of the run, where several have one of that name; alone, all of it.
            Without any name: all sessions of the log.
        on_damaged: Told of each event of the page that is damaged; the page says so, too.

    Returns:
        HTML to be written as UTF-8: about 90 kB, and what the events hold as JSON. Metadata of
        messages and the data of images are left out; their sizes are told.

    Raises:
        NotFound: There is no such session or run.
        ContractError: The name could be several; the message names them.
        StorageError: The log cannot be read. What is damaged is shown as what it is.

    Cost: some passes over the envelopes of the log, however many sessions are shown, and of each
        of these two over its payloads. The page is in memory whole; `fmemory html` writes it piece
        by piece. Beyond 16 MB its events stand in a temporary file meanwhile.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     with memory.session("login").run("r1"):
    ...         pass
    ...     html = page(memory, "login")
    >>> html.startswith("<!doctype html>")
    True
    """
    return b"".join(page_pieces(memory, name, session_id, on_damaged)).decode()


def page_pieces(
    memory: LogBackend,
    name: str | None,
    session_id: str | None,
    on_damaged: Callable[[UnreadableEvent], object] | None = None,
) -> Iterator[bytes]:
    """What `page` gives, in pieces of whole characters of UTF-8: none is larger than an event.

    Whatever `page` raises comes before the first piece.
    """
    before, behind = _frame()
    data = page_data(memory, name, session_id, on_damaged)
    yield before + next(data)
    yield from data
    yield behind


@cache
def _frame() -> tuple[bytes, bytes]:
    """What stands before and behind the data: the template with scripts, style and policy."""
    style = _smaller(_read("style.css"))
    theme = _smaller(_COMMENT.sub("", _read("theme.js")))
    script = "\n".join([_smaller(_COMMENT.sub("", _read(name))) for name in _SCRIPTS])
    policy = (
        *_POLICY,
        f"script-src {_digest(theme)} {_digest(script)}",
        f"style-src {_digest(style)}",
    )
    parts = {"style": style, "theme": theme, "script": script, "policy": "; ".join(policy)}
    # One pass over the template: what is put in is not looked at again.
    before, behind = _read("page.html").split("{{data}}")
    filled = [_PLACE.sub(lambda found: parts[found[1]], one) for one in (before, behind)]
    return filled[0].encode(), filled[1].encode()


def _read(name: str) -> str:
    return files("fmemory.replay").joinpath("page", name).read_text(encoding="utf-8")


def _smaller(text: str) -> str:
    """Without indentation and empty lines."""
    return _INDENT.sub("", text)


def _digest(text: str) -> str:
    """The source expression of a policy that allows exactly this text."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
