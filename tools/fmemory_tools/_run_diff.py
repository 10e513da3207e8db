"""Two runs side by side for people, and which runs two words of a command line mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmemory_tools._console import (
    BAD,
    FAINT,
    GOOD,
    KIND,
    NUMBER,
    Part,
    check_mark,
    print_heading,
    print_json,
    print_line,
    print_text,
)
from fmemory_tools._failure import Failure
from fmemory_tools._sessions import meant_by, name_some
from fmemory_tools._summary import shorten
from fmemory_tools._transcript_view import short_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmemory import LogBackend
    from fmemory.replay import (
        CallAt,
        LinesDifference,
        RunDiff,
        RunSummary,
        TranscriptEntry,
    )

LINES_SHOWN = 8
_TEXT_CHARACTERS = 300


def runs_meant(
    memory: LogBackend, a: str, b: str, session: str | None, *, sure: bool
) -> tuple[RunSummary, RunSummary] | None:
    """The runs that two words mean; None if they are places in the log.

    Numbers and times are places: only one that is a run's whole id could be both.

    Args:
        session: Only runs of this session, or of those whose ids begin so.
        sure: They are runs.

    Raises:
        Failure: A word could be several runs; or both could be runs as well as places; or one is a
            run and the other a place; or both are one run.
    """
    places = (_is_place(a), _is_place(b))
    if all(places) and not sure and not _is_run(memory, a):
        return None
    from fmemory import replay

    every = replay.runs(memory)
    if session is not None:
        exact = tuple(one for one in every if one.session_id == session)
        every = exact or tuple(one for one in every if (one.session_id or "").startswith(session))
    found = [
        _named(every, one, whole=place and not sure)
        for one, place in zip((a, b), places, strict=True)
    ]
    if all(places) and not sure:
        if not all(found):
            return None
        raise Failure(
            f"A and B could be events {a} and {b}, or the runs of these ids: --places compares"
            " the events, --runs the runs"
        )
    asked = list(zip("AB", (a, b), found, places, strict=True))
    for name, word, runs, place in asked:
        if len(runs) != 1 and (runs or not place or sure):
            raise Failure(_not_one(every, name, word, runs))
    for name, word, runs, _ in asked:
        if not runs:
            other = "B" if name == "A" else "A"
            raise Failure(
                f"{name}, {word}, is a place in the log and {other} a run: give two of a kind"
            )
    run_a, run_b = found[0][0], found[1][0]
    if run_a == run_b:
        raise Failure(
            f"A and B are the same run, {_shown(run_a)}: expected two; a run of the same id in"
            " another session is named as SESSION/RUN"
        )
    return run_a, run_b


def _is_place(word: str) -> bool:
    from fmemory_tools._times import parse_place

    try:
        parse_place(word, "")
    except Failure:
        return False
    return True


def _is_run(memory: LogBackend, word: str) -> bool:
    """Whether any event was written in a run of this id."""
    from fmemory_tools._damage import Damaged, readable

    events = readable(lambda after, limit: memory.events(after, run_id=word, limit=limit))
    return any(not isinstance(event, Damaged) for event in events)


def _named(every: Sequence[RunSummary], word: str, *, whole: bool) -> list[RunSummary]:
    """The runs that a word may mean: one of this id, else SESSION/RUN, else what begins so.

    Args:
        whole: Only a whole id counts.
    """
    exact = [one for one in every if one.run_id == word]
    if exact or whole:
        return exact
    exact = [one for one in every if one.session_id is not None and _shown(one) == word]
    if exact:
        return exact
    found = _meant(every, word)
    for place in (place for place, sign in enumerate(word) if sign == "/"):
        sessions = meant_by(list({one.session_id or "": None for one in every}), word[:place])
        of = [one for one in every if one.session_id in sessions]
        found += [one for one in _meant(of, word[place + 1 :]) if one not in found]
    return found


def _meant(every: Sequence[RunSummary], word: str) -> list[RunSummary]:
    ids = meant_by([one.run_id for one in every], word)
    return [one for one in every if one.run_id in ids]


def _shown(run: RunSummary) -> str:
    return run.run_id if run.session_id is None else f"{run.session_id}/{run.run_id}"


def _not_one(every: Sequence[RunSummary], name: str, word: str, found: Sequence[RunSummary]) -> str:
    ids = list(dict.fromkeys(one.run_id for one in found))
    if len(found) > len(ids):
        names = name_some([_shown(one) for one in found])
        return f"{name}: run {word!r} could be any of: {names}; name it as SESSION/RUN"
    if ids:
        return f"{name}: run {word!r} could be any of: {name_some(ids)}"
    known = list(dict.fromkeys(one.run_id for one in every))
    there = f"runs are: {name_some(known)}" if known else "there are no runs"
    return f"{name}: expected a sequence number, a time or a run, got {word!r}; {there}"


def print_runs(memory: LogBackend, a: RunSummary, b: RunSummary, *, json: bool, utc: bool) -> bool:
    """Print how two runs differ; gives whether they do.

    Raises:
        Failure: An event of theirs is damaged. All else is printed before.
    """
    from fmemory import replay
    from fmemory_tools._damage import Damaged, refuse_damage

    found = replay.compare(
        memory, a.run_id, b.run_id, session_a=a.session_id, session_b=b.session_id
    )
    if json:
        print_json({**found.to_dict(), "is_same": found.is_same})
    else:
        _print(found, utc=utc)
    refuse_damage(
        [Damaged(one.seq, one.problem) for one in found.unreadable if one.problem is not None]
    )
    return not found.is_same


def _print(found: RunDiff, *, utc: bool) -> None:
    _print_side("A", found.a, found.objective_a, utc=utc)
    _print_side("B", found.b, found.objective_b, utc=utc)
    if found.is_same:
        print_heading("no difference")
    for name, a, b in (
        ("objective", found.objective_a, found.objective_b),
        ("status", found.a.status, found.b.status),
    ):
        if a != b:
            print_heading(f"the {name} differs")
    _print_message(found)
    _print_call(found)
    _print_result(found)
    if found.features:
        print_heading("features after the runs")
    for one in found.features:
        marks = [_mark(one.a, one.a_seq), _mark(one.b, one.b_seq)]
        print_line((one.feature_id, KIND), "  A ", *marks[0], "  B ", *marks[1], indent=2)
    for heading, lines in (
        ("checkpoints", found.checkpoints),
        ("progress", found.progress),
        ("notes", found.notes),
    ):
        _print_lines(heading, lines)
    for gap in found.unreadable:
        words = f"event {gap.seq} was not compared: {gap.problem or gap.state}"
        print_text(words, style=BAD)


def _print_side(name: str, run: RunSummary, objective: str | None, *, utc: bool) -> None:
    from fmemory_tools._times import show_time

    print_line((f"{name} ", FAINT), "run ", (run.run_id, KIND), f"  {run.status.value}")
    session = "" if run.session_id in (None, run.run_id) else f"session {run.session_id}, "
    counts = f"{_count(run.message_count, 'message')}, {_count(run.tool_call_count, 'tool call')}"
    errors = f", {run.tool_error_count} failed" if run.tool_error_count else ""
    began = show_time(run.started_at, utc=utc)
    print_text(f"{session}{began}, {counts}{errors}", indent=2, style=FAINT)
    if objective:
        print_text(shorten(objective), indent=2)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _print_message(found: RunDiff) -> None:
    parting = found.message
    if parting is None:
        return
    before = f" after {_count(found.shared_messages, 'equal one')}" if parting.number > 1 else ""
    what = {"end": "one has ended", "blocks": "the blocks differ"}.get(
        parting.what, f"the {parting.what} differs"
    )
    print_heading(f"they part at message {parting.number}{before}: {what}")
    _print_entry("A", parting.a, parting.what)
    _print_entry("B", parting.b, parting.what)


def _print_entry(name: str, entry: TranscriptEntry | None, what: str) -> None:
    if entry is None:
        print_line((f"{name} ", FAINT), ("no more messages", FAINT), indent=2)
        return
    head: list[Part] = [(f"{name} ", FAINT), (str(entry.seq), NUMBER), f"  {entry.role}"]
    print_line(*head, indent=2)
    texts = {
        "thinking": entry.thinking,
        "result": "\n".join(one.text for one in entry.results),
        "call": "\n".join(f"{one.name} {short_arguments(one.arguments)}" for one in entry.calls),
        "blocks": ", ".join(entry.others),
    }
    said = entry.text or texts["result"] or texts["call"]
    print_text(shorten(texts.get(what) or said, _TEXT_CHARACTERS), indent=4)


def _print_call(found: RunDiff) -> None:
    parting = found.call
    if parting is None:
        return
    before = f" after {_count(found.shared_calls, 'equal one')}" if parting.number > 1 else ""
    print_heading(f"first different tool call: number {parting.number}{before}")
    for name, call in (("A", parting.a), ("B", parting.b)):
        print_line((f"{name} ", FAINT), *_call_words(call), indent=2)


def _print_result(found: RunDiff) -> None:
    parting = found.result
    if parting is None:
        return
    what = parting.a.name or "a call"
    print_heading(f"an equal call was answered differently: number {parting.number}, {what}")
    for name, one in (("A", parting.a), ("B", parting.b)):
        mark: Part = ("failed  ", BAD) if one.is_error else ""
        said = shorten(one.text) or "(no text)"
        print_line((f"{name} ", FAINT), (str(one.seq), NUMBER), "  ", mark, said, indent=2)


def _call_words(call: CallAt | None) -> list[Part]:
    if call is None:
        return [("no more calls", FAINT)]
    return [(str(call.seq), NUMBER), "  ", (call.name, KIND), f" {short_arguments(call.arguments)}"]


def _mark(passes: bool | None, seq: int | None) -> list[Part]:
    if passes is None:
        return [("not in the list", FAINT)]
    return [
        (check_mark(passes), GOOD if passes else BAD),
        (f" by event {seq}" if seq is not None else "", FAINT),
    ]


def _print_lines(heading: str, lines: LinesDifference) -> None:
    if not lines.a and not lines.b:
        return
    both = f" ({lines.shared} the same)" if lines.shared else ""
    print_heading(heading + both)
    for name, only in (("A", lines.a), ("B", lines.b)):
        for one in only[:LINES_SHOWN]:
            print_line((f"{name} ", FAINT), (str(one.seq), NUMBER), f"  {one.text}", indent=2)
        if len(only) > LINES_SHOWN:
            print_line((f"{name} and {len(only) - LINES_SHOWN} more", FAINT), indent=2)
