"""A report as a person reads it: the most important first, each part only if it has something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmemory_tools._console import (
    BAD,
    FAINT,
    GOOD,
    KIND,
    NUMBER,
    STRONG,
    WHO,
    Part,
    arrow,
    cells_of,
    check_mark,
    fit,
    print_entry,
    print_heading,
    print_line,
    print_text,
    print_whole,
    width,
)
from fmemory_tools._sessions import name_some
from fmemory_tools._store import store_option
from fmemory_tools._summary import shorten, show_stream
from fmemory_tools._times import show_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmemory.replay import EventLine, RunReport, RunSummary

LINES_MAX = 10
"""Lines of one part; how many more there are is said."""
TEXT_LINES_MAX = 4
CALL_CELLS = 32
_MANIFEST_TYPES = frozenset(
    {"session_initialized", "session_forked", "manifest_saved", "event_lost"}
)
_ANSWER_TYPES = frozenset({"transcript_appended", "event_lost", ""})


def print_report(report: RunReport, *, store: str | None, utc: bool) -> None:
    """All parts of a report that have something to say."""
    _print_subject(report)
    for run in report.runs[:LINES_MAX]:
        _print_run(run, named=report.run_id is None, utc=utc)
    _more(len(report.runs), "runs: `fmemory runs` lists them")
    _print_error(report, utc=utc)
    _print_unanswered(report)
    _print_features(report)
    _print_gaps(report)
    _print_notes(report)
    _print_bytes(report)
    _print_unreadable(report)
    print_heading("next")
    of = store_option(store)
    for command in report.commands:
        program, verb, rest = command.split(" ", 2)
        # Behind a `--` it would be no option.
        is_closed = " -- " in rest
        whole = f"{program} {verb}{of} {rest}" if is_closed else command + of
        print_whole(whole, indent=2)


def show_duration(seconds: float) -> str:
    """Seconds in the two largest units that are not zero.

    >>> show_duration(0.25), show_duration(75), show_duration(3600), show_duration(200_000)
    ('0.2s', '1m 15s', '1h', '2d 7h')
    """
    if seconds < 10:
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def status_part(run: RunSummary) -> tuple[str, str]:
    """How a run ended, in its colour."""
    word = run.status.value
    return word, GOOD if word == "succeeded" else BAD if word in ("failed", "died") else KIND


def _print_subject(report: RunReport) -> None:
    if report.run_id is None:
        print_line(("session   ", STRONG), (report.session_id or "", KIND), cut=False)
    else:
        print_line(("run       ", STRONG), (report.run_id, KIND), cut=False)
        where = report.session_id or "none: it wrote to no session"
        print_line(("session   ", STRONG), where, cut=False)
    if report.objective is not None:
        _print_text("objective", report.objective)
    else:
        is_gone = any(one.type in _MANIFEST_TYPES for one in report.unreadable)
        none = "not known: what may hold it cannot be read"
        _print_text("objective", none if is_gone else "none: the session has no manifest")
        if report.asked is not None:
            _print_text("asked", report.asked)
    if report.sub_sessions:
        _print_text("agents", ", ".join(report.sub_sessions))
    span = "no events"
    if report.first_seq is not None:
        last = "" if report.event_count == 1 else f" to {report.last_seq}"
        span = f"{report.event_count:,} ({report.first_seq}{last})"
    _print_text("events", span)


def _print_text(label: str, text: str) -> None:
    """A text behind its label, or below it where it is long."""
    if "\n" not in text and cells_of(text) <= width() - 10:
        print_line((f"{label:<10}", STRONG), text)
        return
    print_line((label, STRONG))
    print_text(text, indent=2, lines_max=TEXT_LINES_MAX)


def _print_run(run: RunSummary, *, named: bool, utc: bool) -> None:
    name: list[Part] = [(run.run_id, KIND), "  "] if named else []
    evidence = f": {run.evidence}" if run.evidence else ""
    started = show_time(run.started_at, utc=utc)
    print_line(("outcome   ", STRONG), *name, status_part(run), evidence)
    by = f" by {run.actor}" if run.actor else ""
    # Where nothing tells how long it took, as in trajectories of SWE-agent, it took no time.
    took = f" for {show_duration(run.duration_s)}" if run.duration_s else ""
    print_line(f"{started}{took}{by}", indent=10)
    if run.reason:
        print_line((shorten(run.reason), FAINT), indent=10)
    errors = f", {run.tool_error_count} failed" if run.tool_error_count else ""
    calls = _count(run.tool_call_count, "tool call")
    print_line(f"{_count(run.message_count, 'message')}, {calls}{errors}", indent=10)
    if run.last_words:
        print_line("last words: ", (shorten(run.last_words), FAINT), indent=10)


def _print_error(report: RunReport, *, utc: bool) -> None:
    error = report.first_error
    if error is None:
        print_line(("error     ", STRONG), ("no tool call failed", GOOD))
        return
    count = report.tool_error_count
    first = "" if count == 1 else f", the first of {count}"
    print_line(("error     ", STRONG), "event ", (str(error.seq), NUMBER), first)
    if error.session_id != report.session_id:
        print_line("in sub-agent ", (error.session_id, KIND), indent=10)
    call = f"{error.tool or 'a call that is not in the log'}"
    asked = "" if error.call_seq is None else f"event {error.call_seq}: "
    print_line(asked, (call, BAD), f" {error.arguments}", indent=10)
    said = shorten(error.words) or "(no text)"
    print_line((said, BAD), indent=10)
    if not error.marked:
        print_line(("not marked as an error; its text says so", FAINT), indent=10)
    _print_around(report.around, error.seq, utc=utc)
    _print_further(report)


def _print_further(report: RunReport) -> None:
    """The other failed calls: of many the newest, as what broke a run is mostly late."""
    further = [one for one in report.errors if one is not report.first_error]
    if not further:
        return
    print_heading(f"further errors: {len(further)}")
    hidden = max(0, len(further) - LINES_MAX)
    if hidden:
        print_line((f"  ({hidden} before these; --json has them)", FAINT))
    for one in further[hidden:]:
        call = fit(f"{one.tool or 'a call that is not in the log'} {one.arguments}", CALL_CELLS)
        said = shorten(one.words) or "(no text)"
        print_line((f"  {one.seq}  ", NUMBER), f"{call}  ", (said, BAD))


def _print_around(lines: Sequence[EventLine], seq: int, *, utc: bool) -> None:
    digits = max(len(str(one.seq)) for one in lines)
    for one in lines:
        mark = ">" if one.seq == seq else " "
        time = show_time(one.at, utc=utc)[11:]
        kind = fit(one.type.removesuffix("_appended").removesuffix("_recorded"), 12)
        style = BAD if one.is_error else ""
        print_line(
            f"  {mark} ",
            (str(one.seq).rjust(digits), NUMBER),
            (f"  {time}  ", FAINT),
            (f"{kind}  ", KIND),
            (shorten(one.words), style),
        )


def _print_unanswered(report: RunReport) -> None:
    if not report.unanswered:
        return
    print_heading(f"unanswered tool calls: {len(report.unanswered)}")
    for call in report.unanswered[:LINES_MAX]:
        print_line((f"  {call.seq}  ", NUMBER), call.tool, f" {call.arguments}")
    _more(len(report.unanswered), "calls")
    first = report.unanswered[0].seq
    hidden = [one for one in report.unreadable if one.seq > first and one.type in _ANSWER_TYPES]
    if hidden:
        seqs = name_some([str(one.seq) for one in hidden])
        print_line((f"answers may be in what cannot be read: event {seqs}", FAINT), indent=2)


def _print_features(report: RunReport) -> None:
    if report.regressions:
        print_heading("passed, then did not")
    for one in report.regressions[:LINES_MAX]:
        since = "before" if one.passed_seq is None else f"since event {one.passed_seq}"
        again = "" if one.again_seq is None else f", again since event {one.again_seq}"
        print_line(
            f"  {one.feature_id}  passed {since}, lost by event ",
            (str(one.lost_seq), NUMBER),
            again,
        )
    _more(len(report.regressions), "features")
    if report.flips:
        print_heading("feature flips")
    for flip in report.flips[:LINES_MAX]:
        before = "·" if flip.before is None else check_mark(flip.before)
        after = (check_mark(flip.passes), GOOD if flip.passes else BAD)
        who = flip.actor or "somebody"
        run = f" in {flip.run_id}" if flip.run_id and report.run_id is None else ""
        print_entry(
            (f"  {flip.seq}  ", NUMBER),
            f"{flip.feature_id}  {before} {arrow()} ",
            after,
            (f"  {who}", WHO),
            run,
            text=flip.reason or "",
        )
    _more(len(report.flips), "flips")


def _print_gaps(report: RunReport) -> None:
    if report.gaps:
        print_heading("longest gaps")
    for gap in report.gaps:
        between = f"  between event {gap.after_seq} and {gap.before_seq}"
        print_line(f"  {show_duration(gap.seconds):>8}", (between, FAINT))


def _print_notes(report: RunReport) -> None:
    if not report.notes:
        return
    count = sum(len(one.ids) for one in report.notes)
    print_heading(f"notes: {count}")
    for note in report.notes[:LINES_MAX]:
        place = show_stream(note.namespace)
        ids = ", ".join(note.ids[:3]) + (f" and {len(note.ids) - 3} more" if note.ids[3:] else "")
        place = f"{place}: " if place else ""
        print_line((f"  {note.seq}  ", NUMBER), f"{place}{ids}  ", (note.words, FAINT))
    _more(len(report.notes), "events")


def _print_bytes(report: RunReport) -> None:
    if not report.bytes:
        return
    total = sum(one.payload_bytes for one in report.bytes)
    print_heading(f"bytes of data: {total:,}")
    shown = report.bytes[:LINES_MAX]
    sizes = [f"{one.payload_bytes:,}" for one in shown]
    counts = [f"{one.event_count:,}" for one in shown]
    for one, size, count in zip(shown, sizes, counts, strict=True):
        share = 100 * one.payload_bytes / total if total else 0
        print_line(
            f"  {size.rjust(max(map(len, sizes)))}",
            (f"  {share:3.0f}%", FAINT),
            f"  {count.rjust(max(map(len, counts)))} ",
            (one.type or "unknown", KIND),
        )
    _more(len(report.bytes), "types")


def _print_unreadable(report: RunReport) -> None:
    if report.unreadable:
        print_heading(f"events whose data is not there: {len(report.unreadable)}")
    for one in report.unreadable[:LINES_MAX]:
        problem = f": {one.problem}" if one.problem else ""
        print_line((f"  {one.seq}  ", NUMBER), f"{one.type or 'unknown'}  ", one.state, problem)
    _more(len(report.unreadable), "events")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _more(count: int, what: str) -> None:
    if count > LINES_MAX:
        print_line((f"and {count - LINES_MAX} more {what}", FAINT), indent=2)
