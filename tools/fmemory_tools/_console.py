"""What people see: lines that fit the terminal, colours where they are wanted, JSON for programs.

rich is imported here and by nothing else, when the first line is printed: `--help` and `--json` do
without it. Stored text is never taken for markup, nor its control characters for commands.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO, TypeAlias

from fmemory_tools._failure import STEERING, one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

Part: TypeAlias = str | tuple[str, str]
"""Text, or text and a rich style."""

USUAL_CELLS = 80
PROGRESS_AFTER_S = 0.5
_ESCAPED = {code: json.dumps(chr(code))[1:-1] for code in STEERING} | {0x7F: "\\u007f"}

FAINT = "dim"
NUMBER = "cyan"
GOOD = "green"
BAD = "red"
STRONG = "bold"
WHO = "magenta"
KIND = "yellow"


def print_json(value: object) -> None:
    """One JSON value on one line; what would steer a terminal is escaped, all else readable."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # No such character is part of JSON outside of its strings.
    sys.stdout.write((text if text.isprintable() else text.translate(_ESCAPED)) + "\n")


def width() -> int:
    """Columns of the terminal; `COLUMNS` wins; 80 where output is no terminal, or none is known."""
    return _screen().width


def check_mark(passes: bool) -> str:
    """✓ or ✗, in ASCII where the output cannot carry them."""
    if _can_print("✓✗"):
        return "✓" if passes else "✗"
    return "[x]" if passes else "[ ]"


def arrow() -> str:
    """→, in ASCII where the output cannot carry it."""
    return "→" if _can_print("→") else "->"


def print_line(*parts: Part, indent: int = 0, cut: bool = True) -> None:
    """One line, cut with an ellipsis where it is wider than the terminal, unless told not to."""
    line = [(" " * indent, "")]
    for part in parts:
        content, style = (part, "") if isinstance(part, str) else part
        line.append((one_line_keeping_spaces(content), style))
    _write_line(line, cut=cut)


def print_whole(text: str, *, indent: int = 0) -> None:
    """One line that is never cut nor broken, however wide: something to copy."""
    sys.stdout.write(" " * indent + one_line_keeping_spaces(text) + "\n")


def write_exactly(text: str) -> None:
    """Text as it is, in UTF-8 whatever the terminal's encoding: something to be kept in a file."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()


def print_text(
    text: str, *, indent: int = 0, style: str = "", lines_max: int | None = None
) -> None:
    """Text of any length, wrapped at words; at most `lines_max` lines of it."""
    from rich.text import Text

    # Tabs have a width that depends on where they stand.
    whole = Text(printable(text).expandtabs(4))
    lines = whole.wrap(_screen().console, max(20, width() - indent), tab_size=4)
    shown = lines if lines_max is None else lines[:lines_max]
    for line in shown:
        _write_line([(" " * indent, ""), (line.plain.rstrip(), style)])
    if len(shown) < len(lines):
        more = len(lines) - len(shown)
        print_line((f"({more} more line{'s' if more > 1 else ''})", FAINT), indent=indent)


def print_heading(text: str) -> None:
    """A line that begins a part of the output."""
    print_line((text, STRONG))


def print_session(session_id: str, moment: str) -> None:
    """Which session is shown, whole, and as of when: on lines of their own where they are long."""
    taken = cells_of(session_id) + cells_of(moment) + len("session   ")
    if taken <= width():
        print_line(("session ", STRONG), (session_id, KIND), (f"  {moment}".rstrip(), FAINT))
        return
    print_line(("session ", STRONG))
    print_text(session_id, indent=2, style=KIND)
    if moment:
        print_text(moment, indent=2, style=FAINT)


def print_entry(*parts: Part, text: str, indent: int = 0, gap: str = "  ") -> None:
    """A line of parts and a text behind them, which goes on below, further in, if it is long."""
    words = [part if isinstance(part, tuple) else (part, "") for part in parts]
    taken = indent + sum(cells_of(content) for content, _ in words) + len(gap)
    if "\n" not in text and taken + cells_of(text) <= width():
        print_line(*words, gap if text else "", text, indent=indent)
        return
    print_line(*words, indent=indent)
    print_text(text, indent=indent + 2)


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Part]],
    *,
    right: Sequence[int] = (),
    narrowest: Mapping[int, int] | None = None,
    ids: Sequence[int] = (),
    whole: bool = False,
) -> None:
    """A table that fits the terminal; columns that are empty in every row are left out.

    Args:
        right: Columns aligned to the right.
        narrowest: Column → width that it may be cut to, where there is no room; in that order.
        ids: Columns that are cut in the middle.
        whole: The first column is never cut: it gets lines of its own where a terminal has no
            room for it, and in a pipe the lines are as long as it takes.
    """
    table = [[part if isinstance(part, tuple) else (part, "") for part in row] for row in rows]
    kept = [n for n in range(len(headers)) if any(row[n][0] for row in table)]
    cells = {n: max(len(headers[n]), *(cells_of(row[n][0]) for row in table)) for n in kept}
    widest = dict(cells)
    missing, gap = _make_room(cells, narrowest or {})
    is_folded = whole and missing > 0 and sys.stdout.isatty()
    if is_folded:
        first = kept.pop(0)
        cells = {n: widest[n] for n in kept}
        _, gap = _make_room(cells, narrowest or {}, indent=2)
        print_line((headers[first], FAINT))
    names = [headers[n].rjust(cells[n]) if n in right else fit(headers[n], cells[n]) for n in kept]
    indent = 2 if is_folded else 0
    print_line((gap.join(names), FAINT), indent=indent, cut=is_folded or not whole)
    for row in table:
        if is_folded:
            print_text(row[first][0], style=row[first][1])
        parts: list[Part] = []
        for n in kept:
            text, style = row[n]
            shown = fit_ends(text, cells[n]) if n in ids else fit(text, cells[n])
            parts += [(shown.strip().rjust(cells[n]) if n in right else shown, style), gap]
        print_line(*parts[:-1], indent=indent, cut=is_folded or not whole)


def _make_room(
    cells: dict[int, int], narrowest: Mapping[int, int], indent: int = 0
) -> tuple[int, str]:
    """Narrow columns of a table until it fits, and if need be the gap between them.

    Returns:
        How many cells are still missing, and the gap.
    """
    widest = dict(cells)
    missing = 0
    for gap in ("  ", " "):
        cells.update(widest)
        missing = indent + sum(cells.values()) + len(gap) * (len(cells) - 1) - width()
        for n, least in narrowest.items():
            if missing > 0 and n in cells:
                cells[n] = max(min(least, cells[n]), cells[n] - missing)
                missing -= widest[n] - cells[n]
        if missing <= 0:
            break
    return missing, gap


def fit(text: str, cells: int) -> str:
    """One line of exactly `cells` columns: padded, or cut with an ellipsis.

    >>> fit("transcript_appended", 12), fit("ok", 4)
    ('transcript_…', 'ok  ')
    """
    text = one_line(text)
    if cells_of(text) <= cells:
        return _first_cells(text, cells)
    return _first_cells(text, cells - 1) + _ellipsis() if cells > 0 else ""


def fit_ends(text: str, cells: int) -> str:
    """As `fit`, but what is cut is the middle: ids tell apart by both ends.

    >>> fit_ends("491e126e-1e71-469c.agent-afb92ff", 16)
    '491e126e…afb92ff'
    """
    text = one_line(text)
    if len(text) <= cells or cells < 3 or not text.isascii():
        return fit(text, cells)
    return fit(text, cells // 2 + 1) + text[cells // 2 + 1 - cells :]


def cells_of(text: str) -> int:
    """Columns that this text takes on one line."""
    text = one_line_keeping_spaces(text)
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def one_line_keeping_spaces(text: str) -> str:
    """The text on one line; unlike `one_line` it keeps runs of spaces, which align columns."""
    return printable(text).replace("\n", " ").replace("\t", " ")


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the body works, if a person watches and it takes a while.

    Args:
        total: Number of units, where it is known; else the bar only shows that work goes on.

    Yields:
        A function to be told of units done.
    """
    if not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *([TaskProgressColumn()] if total is not None else []),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False),
        transient=True,
    )
    task = bar.add_task(one_line(label), total=total)
    timer = _late(bar.start)
    try:
        yield lambda done: bar.advance(task, done)
    finally:
        timer()
        bar.stop()


def _late(start: Callable[[], None]) -> Callable[[], None]:
    """Call `start` after `PROGRESS_AFTER_S`, unless what is returned was called before."""
    from threading import Lock, Timer

    lock, over = Lock(), False

    def run() -> None:
        with lock:
            if not over:
                start()

    def cancel() -> None:
        nonlocal over
        with lock:
            over = True
        timer.cancel()

    timer = Timer(PROGRESS_AFTER_S, run)
    timer.daemon = True
    timer.start()
    return cancel


def _nothing(done: int) -> None:
    del done


@dataclass(frozen=True, slots=True)
class _Screen:
    """What stdout is now, which tests replace, and how wide it is."""

    stdout: TextIO
    console: Console
    width: int


def _screen() -> _Screen:
    global _current
    if _current is None or _current.stdout is not sys.stdout:
        console = _make_console()
        # A terminal that does not know its size says 0.
        console.width = console.width or USUAL_CELLS
        _current = _Screen(sys.stdout, console, console.width)
    return _current


_current: _Screen | None = None


def _make_console() -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        """rich ends the process with code 1 where the reader has gone: here it is told upwards."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    plain = bool(os.environ.get("NO_COLOR"))
    return PipeConsole(
        highlight=False, markup=False, emoji=False, color_system=None if plain else "auto"
    )


def _write_line(parts: Sequence[tuple[str, str]], *, cut: bool = True) -> None:
    """Parts without control characters, as one line that is not wider than the terminal."""
    screen = _screen()
    if cut and sum(cells_of(text) for text, _ in parts) > screen.width:
        parts = [*_cut(parts, screen.width - 1), (_ellipsis(), "")]
    if screen.console.color_system is None:
        screen.stdout.write("".join([text for text, _ in parts]) + "\n")
        return
    from rich.text import Text

    screen.console.print(
        Text.assemble(*parts), no_wrap=True, overflow="ignore", crop=False, soft_wrap=True
    )


def _cut(parts: Sequence[tuple[str, str]], cells: int) -> Iterator[tuple[str, str]]:
    for text, style in parts:
        taken = cells_of(text)
        yield (text if taken <= cells else _first_cells(text, cells), style)
        cells -= taken
        if cells <= 0:
            return


def _first_cells(text: str, cells: int) -> str:
    """The first columns of a text, padded with spaces to exactly that many."""
    if text.isascii():
        return text[:cells].ljust(cells)
    from rich.cells import set_cell_size

    return set_cell_size(text, cells)


def _ellipsis() -> str:
    return "…" if _can_print("…") else "~"


def _can_print(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
