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
from typing import cast

import msgspec

from fmemory._json_values import JsonObject
from fmemory.backend import LogBackend
from fmemory.replay._facts import State
from fmemory.replay._page_source import page_document
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
        of these two over its payloads, which are held in memory.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     with memory.session("login").run("r1"):
    ...         pass
    ...     html = page(memory, "login")
    >>> html.startswith("<!doctype html>")
    True
    """
    document = page_document(memory, name, session_id)
    if on_damaged is not None:
        for one in _damaged_in(document):
            on_damaged(one)
    return _fill(msgspec.json.encode(document).decode())


def _damaged_in(document: JsonObject) -> Iterator[UnreadableEvent]:
    """The events that a page says are damaged; one that stands in several sessions comes once."""
    words = cast("list[str]", document["words"])
    found: dict[int, JsonObject] = {}
    for session in cast("list[JsonObject]", document["sessions"]):
        for event in cast("list[JsonObject]", session["events"]):
            if "problem" in event:
                found[cast("int", event["seq"])] = event
    for seq, event in sorted(found.items()):
        type_ = words[cast("int", event["type"])]
        yield UnreadableEvent(seq, type_, State.DAMAGED.value, str(event["problem"]))


def _fill(document: str) -> str:
    """The page around its data."""
    template, parts = _parts()
    values = {**parts, "data": document.replace("<", "\\u003c")}
    # One pass over the template: what is put in is not looked at again.
    return _PLACE.sub(lambda found: values[found[1]], template)


@cache
def _parts() -> tuple[str, dict[str, str]]:
    """The template, and scripts, style and policy to put into it."""
    style = _smaller(_read("style.css"))
    theme = _smaller(_COMMENT.sub("", _read("theme.js")))
    script = "\n".join([_smaller(_COMMENT.sub("", _read(name))) for name in _SCRIPTS])
    policy = (
        *_POLICY,
        f"script-src {_digest(theme)} {_digest(script)}",
        f"style-src {_digest(style)}",
    )
    parts = {"style": style, "theme": theme, "script": script, "policy": "; ".join(policy)}
    return _read("page.html"), parts


def _read(name: str) -> str:
    return files("fmemory.replay").joinpath("page", name).read_text(encoding="utf-8")


def _smaller(text: str) -> str:
    """Without indentation and empty lines."""
    return _INDENT.sub("", text)


def _digest(text: str) -> str:
    """The source expression of a policy that allows exactly this text."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
