"""A transcript for people: one message after the other, long ones folded, in 80 columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fmemory_tools._console import (
    BAD,
    FAINT,
    KIND,
    NUMBER,
    WHO,
    Part,
    arrow,
    check_mark,
    print_line,
    print_text,
    width,
)
from fmemory_tools._failure import one_line
from fmemory_tools._raw_messages import StoredMessages, print_raw
from fmemory_tools._times import show_time

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject
    from fmemory.replay._transcript import TranscriptCall, TranscriptEntry
    from fmemory.replay.models import UnreadableEvent

RESULT_LINES = 4
ERROR_LINES = 12
THINKING_LINES = 3
TEXT_LINES = 40
SYSTEM_LINES = 8
_ARGUMENT_CHARACTERS_MAX = 400
_STYLES = {"system": FAINT, "user": KIND, "assistant": "", "tool": ""}


def print_transcript(
    entries: Sequence[TranscriptEntry],
    session_id: str,
    *,
    utc: bool,
    stored: StoredMessages | None = None,
    whole: bool = False,
    unanswered: str = "no answer",
) -> None:
    """Print entries in order; day and run are said where another one begins.

    Args:
        session_id: The session; a run that is called as it, as importers do, is not named.
        stored: The messages as they are stored, to be printed as JSON instead of words.
        whole: Nothing is folded.
        unanswered: What is said of a call without an answer among them.
    """
    day, run = "", session_id
    cells = max((len(str(one.seq)) for one in entries), default=1)
    for entry in entries:
        if entry.gap is not None:
            _print_gap(entry.gap, entry.gap_messages, cells)
            continue
        if entry.run_id is not None and entry.run_id != run:
            run = entry.run_id
            print_line(("run ", FAINT), (run, WHO))
        assert entry.time is not None
        shown = show_time(entry.time, utc=utc)
        if shown[:10] != day:
            day = shown[:10]
            print_line((day + (" UTC" if utc else ""), FAINT))
        _print_head(entry, shown[11:], cells)
        if stored is not None:
            print_raw(entry, stored, indent=cells + 2)
        else:
            _print_entry(entry, indent=cells + 2, whole=whole, unanswered=unanswered)


def _print_head(entry: TranscriptEntry, time: str, cells: int) -> None:
    parts: list[Part] = [(str(entry.seq).rjust(cells), NUMBER), "  "]
    word = "result" if entry.results and not entry.text else entry.role
    parts += [(word, BAD if entry.is_error else _STYLES.get(entry.role, "") or "bold")]
    parts += ["  ", (time, FAINT)]
    if entry.is_error and not entry.results:
        parts += [("  error", BAD)]
    print_line(*parts)


def _print_entry(entry: TranscriptEntry, *, indent: int, whole: bool, unanswered: str) -> None:
    if entry.thinking:
        _print_folded(entry.thinking, indent, THINKING_LINES, whole=whole, style="dim italic")
    if entry.text:
        style = BAD if entry.is_error and not entry.results else ""
        lines = SYSTEM_LINES if entry.role == "system" else TEXT_LINES
        _print_folded(entry.text, indent, lines, whole=whole, style=style)
    for result in entry.results:
        name = result.name or result.call_id or ""
        if result.is_error:
            mark: Part = (f"{check_mark(False)} {name} failed".replace("  ", " "), BAD)
            print_line(mark, indent=indent)
            _print_folded(result.text, indent + 2, ERROR_LINES, whole=whole, style=BAD)
        else:
            if name:
                print_line((name, FAINT), indent=indent)
            _print_folded(result.text, indent + 2, RESULT_LINES, whole=whole, style=FAINT)
    for call in entry.calls:
        _print_call(call, indent, unanswered)
    if entry.others:
        print_line((f"[{', '.join(dict.fromkeys(entry.others))}]", FAINT), indent=indent)


def _print_call(call: TranscriptCall, indent: int, unanswered: str) -> None:
    parts: list[Part] = [f"{arrow()} ", (call.name, WHO)]
    arguments = short_arguments(call.arguments)
    outcome: list[Part] = []
    if call.answer_seq is None and call.id:
        outcome = [(f"  {unanswered}", BAD)]
    elif call.is_error:
        outcome = [(f"  failed in {call.answer_seq}", BAD)]
    room = width() - indent - 3 - len(call.name) - sum(len(one[0]) for one in outcome)
    if len(arguments) > room:
        arguments = arguments[: max(0, room - 1)] + "…"
    print_line(*parts, f" {arguments}" if arguments else "", *outcome, indent=indent)


def short_arguments(arguments: JsonObject | str) -> str:
    """Arguments of a call in one short line: the value alone where there is one.

    >>> short_arguments({"command": "ls -F"}), short_arguments({"path": "a.py", "line": 3})
    ('ls -F', 'path=a.py line=3')
    """
    if isinstance(arguments, str):
        return one_line(arguments[:_ARGUMENT_CHARACTERS_MAX])
    if len(arguments) == 1:
        (only,) = arguments.values()
        return _value(only)
    return " ".join(f"{one_line(name)}={_value(value)}" for name, value in arguments.items())


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text[:_ARGUMENT_CHARACTERS_MAX])


def _print_folded(text: str, indent: int, lines_max: int, *, whole: bool, style: str) -> None:
    """A text, of which so many lines are shown unless all of it is wanted."""
    text = text.strip("\r\n").rstrip()
    head, more = (text, "") if whole else folded(text, max(20, width() - indent), lines_max)
    print_text(head, indent=indent, style=style)
    if more:
        print_line((more, FAINT), indent=indent)


def folded(text: str, cells: int, lines_max: int) -> tuple[str, str]:
    """About so many lines of the beginning of a text, and words on what is left out.

    Only what is shown is looked at closely, so a text of a megabyte costs no more than a short one.

    >>> folded("one\\ntwo\\nthree", 20, 2)
    ('one\\ntwo', '(1 more line)')
    >>> folded("word " * 100, 20, 1)
    ('word word word word…', '(481 more characters)')
    """
    lines = text.splitlines()
    shown: list[str] = []
    room = lines_max
    for line in lines:
        needed = max(1, -(-len(line) // cells))
        if needed > room:
            break
        shown.append(line)
        room -= needed
    cut = ""
    if room > 0 and len(shown) < len(lines):
        cut = lines[len(shown)]
        kept = cut[: room * cells - 1].rstrip()
        shown.append(kept + "…")
        cut = cut[len(kept) :]
    more = len(lines) - len(shown)
    if more > 0:
        return "\n".join(shown), f"({more:,} more line{'s' if more > 1 else ''})"
    return "\n".join(shown), f"({len(cut):,} more characters)" if cut else ""


def _print_gap(gap: UnreadableEvent, count: int | None, cells: int) -> None:
    held = "" if count is None else f"{count:,} message{'' if count == 1 else 's'} "
    words = (
        held
        + {
            "erased": "erased",
            "forgotten": "forgotten by a compaction: what it was is not known",
            "lost": "lost: a repair found it damaged"
            if count is not None
            else "lost: what it was, and how many messages it held, is not known",
            "damaged": f"damaged: {gap.problem}; run `fmemory verify`",
        }[gap.state]
    )
    print_line((str(gap.seq).rjust(cells), NUMBER), "  ", (words, BAD))
