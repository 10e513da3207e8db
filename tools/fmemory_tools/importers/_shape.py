"""What a file looks like that is not what it was taken for: told by shape, not by name."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from fmemory_tools.importers._lines import Malformed, parse_object

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject

CLAUDE_CODE = "claude-code"
FIDDLESTICKS = "fiddlesticks"
MEMORY_FILE = "memory file"
NOTES = "notes"
SWE_AGENT = "swe-agent"
VECTORS = "vectors"

WORDS = {
    CLAUDE_CODE: "a session of Claude Code",
    FIDDLESTICKS: "a SQLite file, as Fiddlesticks has",
    MEMORY_FILE: "a memory file",
    NOTES: "notes",
    SWE_AGENT: "a SWE-agent trajectory",
    VECTORS: "vectors",
}
COMMANDS = {
    CLAUDE_CODE: "import claude-code {}",
    FIDDLESTICKS: "import fiddlesticks {}",
    MEMORY_FILE: "load {}",
    NOTES: "import notes {}",
    SWE_AGENT: "import swe-agent {}",
    VECTORS: "import notes NOTES.jsonl --vectors {}",
}

_LINES_LOOKED_AT = 20
_CLAUDE_CODE_FIELDS = frozenset({"sessionId", "message", "uuid", "snapshot", "leafUuid"})


def shape_of(content: bytes) -> str | None:
    """Which kind of file these bytes look like; None if no kind that is known.

    >>> shape_of(b'{"id": "a", "text": "tea", "timestamp": 1}')
    'notes'
    """
    if content.startswith(b"\x93NUMPY"):
        return VECTORS
    if content.startswith(b"SQLite format 3\x00"):
        return FIDDLESTICKS
    for line in islice(content.split(b"\n"), _LINES_LOOKED_AT):
        value = _object(line)
        kind = None if value is None else _kind(value)
        if kind is not None:
            return kind
    whole = _object(content)
    return None if whole is None else _kind(whole)


def _object(text: bytes) -> JsonObject | None:
    try:
        return parse_object(text)
    except Malformed:
        return None


def _kind(value: JsonObject) -> str | None:
    if value.get("format") == "coniti-memory":
        return MEMORY_FILE
    if isinstance(value.get("trajectory"), list) and isinstance(value.get("history"), list):
        return SWE_AGENT
    if isinstance(value.get("type"), str) and value.keys() & _CLAUDE_CODE_FIELDS:
        return CLAUDE_CODE
    if isinstance(value.get("id"), str) and isinstance(value.get("text"), str):
        return NOTES
    return None
