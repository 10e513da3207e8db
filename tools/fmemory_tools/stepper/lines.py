"""Styled text before it is drawn: lines of any length, and rows that fit a width.

A style is a word of this module, not a colour. Text that comes from a store has passed `clean`, so
what a row holds can be drawn as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from rich.cells import cell_len

from fmemory_tools._console import BAD, FAINT, GOOD, KIND, NUMBER, STRONG, WHO
from fmemory_tools._failure import printable

PLAIN: Final = ""
MATCH: Final = "match"
STYLES: Final = (PLAIN, FAINT, NUMBER, GOOD, BAD, STRONG, WHO, KIND, MATCH)
"""Every style that a span can have."""

TAB_CELLS: Final = 4
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD_CELLS_MAX: Final = 24

Span: TypeAlias = tuple[str, str]
"""Clean text on one line, and its style."""
Row: TypeAlias = tuple[Span, ...]
"""Spans that fit one row of a pane."""


@dataclass(frozen=True, slots=True)
class Line:
    """Spans of any length that are wrapped when a width is known.

    Attributes:
        spans: The text.
        indent: Cells before the first row.
        hang: Cells before every further row, beside the indent.
        is_new: It tells something that the selected event changed.
    """

    spans: tuple[Span, ...] = ()
    indent: int = 0
    hang: int = 0
    is_new: bool = False


def clean(text: str) -> str:
    """The text as it may be drawn: control characters shown, tabs as spaces; line ends stay.

    >>> clean("a\\tb\\x1b[2J\\r\\n")
    'a   b␛[2J\\n'
    """
    text = printable(text)
    if not text.isascii():
        text = _SURROGATE.sub("�", text)
    return text.expandtabs(TAB_CELLS) if "\t" in text else text


def line(*spans: Span | str, indent: int = 0, hang: int = 2, is_new: bool = False) -> Line:
    """One line of spans; text is cleaned, line ends in it become spaces."""
    parts = [(one, PLAIN) if isinstance(one, str) else one for one in spans]
    whole = tuple([(clean(text).replace("\n", " "), style) for text, style in parts if text])
    return Line(whole, indent, hang, is_new)


def text_lines(
    text: str, *, indent: int = 0, style: str = PLAIN, is_new: bool = False
) -> Iterator[Line]:
    """The lines of a text of any length; none of an empty one."""
    if text:
        for one in clean(text).split("\n"):
            yield Line(((one, style),) if one else (), indent, 0, is_new)


def wrap(
    lines: Sequence[Line], width: int, mark: re.Pattern[str] | None = None
) -> tuple[list[Row], range]:
    """The lines as rows of at most `width` cells, broken at spaces where that leaves enough.

    Args:
        mark: What is shown as a match; looked for within a line, also across its rows.

    Returns:
        The rows, and which of them are the first line that tells something new; none if none does.

    Cost: O(characters); a character wider than the width is cut off.
    """
    rows: list[Row] = []
    new = range(0)
    for one in lines:
        first = len(rows)
        rows += _wrap_line(one, max(1, width), mark)
        if one.is_new and not new:
            new = range(first, len(rows))
    return rows, new


def marked(spans: Sequence[Span], mark: re.Pattern[str]) -> list[Span]:
    """The same spans, split where a match begins and ends; a match may go on across spans."""
    text = "".join([words for words, _ in spans])
    found = [match.span() for match in mark.finditer(text) if match.end() > match.start()]
    if not found:
        return list(spans)
    split: list[Span] = []
    place = 0
    for words, style in spans:
        end = place + len(words)
        at = place
        for first, last in found:
            low, high = max(first, at), min(last, end)
            if low < high:
                split += [(text[at:low], style)] if at < low else []
                split.append((text[low:high], MATCH))
                at = high
        split += [(text[at:end], style)] if at < end else []
        place = end
    return split


def _wrap_line(one: Line, width: int, mark: re.Pattern[str] | None) -> list[Row]:
    indent = min(one.indent, width // 2)
    hang = min(one.indent + one.hang, width // 2)
    if not one.spans:
        return [()]
    text = "".join([text for text, _ in one.spans])
    if mark is None and len(text) <= width - indent and cell_len(text) <= width - indent:
        return [((" " * indent, PLAIN), *one.spans) if indent else one.spans]
    spans = one.spans if mark is None else marked(one.spans, mark)
    return list(_cut(spans, text, width, indent, hang))


def _cut(spans: Sequence[Span], text: str, width: int, indent: int, hang: int) -> Iterator[Row]:
    """Rows of a line: which characters each holds is told from the text, styles from the spans."""
    start = 0
    taken = _Taker(spans)
    while True:
        before = indent if start == 0 else hang
        stop, following = _break(text, start, width - before)
        row = taken.take(start, stop)
        yield ((" " * before, PLAIN), *row) if before else row
        if following >= len(text):
            return
        start = following


class _Taker:
    """Hands out characters of spans from left to right."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._index = 0
        self._place = 0

    def take(self, start: int, stop: int) -> Row:
        """The spans of the characters from `start` to `stop`; not before what was taken last."""
        row: list[Span] = []
        while self._index < len(self._spans):
            words, style = self._spans[self._index]
            end = self._place + len(words)
            low, high = max(start, self._place), min(stop, end)
            if low < high:
                row.append((words[low - self._place : high - self._place], style))
            if end > stop:
                break
            self._index += 1
            self._place = end
        return tuple(row)


def _break(text: str, start: int, width: int) -> tuple[int, int]:
    """Where a row that begins at `start` ends, and where the next one begins."""
    stop = _reach(text, start, width)
    if stop >= len(text):
        return len(text), len(text)
    if text[stop] == " ":
        return stop, stop + 1
    space = text.rfind(" ", max(start, stop - _WORD_CELLS_MAX), stop)
    # A space at the very start would leave an empty row.
    return (space, space + 1) if space > start else (stop, stop)


def _reach(text: str, start: int, width: int) -> int:
    """How far a row of `width` cells reaches; at least one character."""
    piece = text[start : start + width]
    if piece.isascii():
        return start + max(1, len(piece))
    if cell_len(piece) == len(piece):
        return start + max(1, len(piece))
    # Characters without a width of their own belong to the one before them.
    stop, cells = start, 0
    while stop < len(text):
        cells += cell_len(text[stop])
        if cells > width:
            break
        stop += 1
    return max(stop, start + 1)
