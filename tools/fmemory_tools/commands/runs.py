"""`fmemory runs`: one line a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, WithinSessionOption, examples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fmemory.replay import RunSummary

EPILOG = examples(
    "fmemory runs",
    "fmemory runs --status failed --status died --sort errors",
    "fmemory runs --session login --since '2h ago'",
    "fmemory runs --json | jq 'select(.features_lost != [])'",
    note="A run without an end is open; it died where the log or its process tells so. Ended means"
    " that nobody said whether it succeeded. Exit code: 1 if an event is damaged.",
)


def runs(
    session: WithinSessionOption = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Only runs of this actor.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="WORD",
            help="Only succeeded, failed, ended, open or died; may be repeated.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only runs started then or later.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only runs started before.")
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="BY",
            help="started, duration, events, messages, calls or errors.",
        ),
    ] = "started",
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """List the runs, how each ended and what it did.

    One a line, with its last words: the note of the checkpoint that closed it, or of the newest one
    while none did, else what was said last. Events that cannot be read are told on standard error.
    """
    from fmemory import replay
    from fmemory_tools._console import print_json
    from fmemory_tools._damage import tell_unreadable
    from fmemory_tools._sessions import choose_session
    from fmemory_tools._store import reading

    wanted = [_word("--status", one, list(replay.RunState)) for one in status or ()]
    order = _word("--sort", sort, list(replay.RunSort))
    first, last = _time("--since", since), _time("--until", until)
    unreadable: list[replay.UnreadableEvent] = []
    with reading(store) as memory:
        session_id = None if session is None else choose_session(memory, session, utc=utc)
        found = replay.runs(
            memory,
            session_id=session_id,
            actor=actor,
            since=first,
            until=last,
            sort=order,
            on_unreadable=unreadable.append,
        )
    shown = [one for one in found if not wanted or one.status in wanted]
    if not json:
        _print(shown, utc=utc)
    for one in shown if json else ():
        print_json({**one.to_dict(), "duration_s": one.duration_s})
    tell_unreadable(unreadable, "not counted")


def _word(option: str, given: str, known: Sequence[str]) -> str:
    """The word, which must be one of these.

    Raises:
        Failure: It is not.
    """
    from fmemory_tools._failure import Failure

    if given not in known:
        raise Failure(f"{option}: expected one of {', '.join(known)}, got {given!r}")
    return given


def _time(option: str, given: str | None) -> datetime | None:
    from fmemory_tools._times import parse_time

    return None if given is None else parse_time(given, option)


def _print(found: Sequence[RunSummary], *, utc: bool) -> None:
    from fmemory_tools._console import BAD, FAINT, KIND, WHO, Part, print_line, print_table
    from fmemory_tools._report_view import show_duration, status_part
    from fmemory_tools._summary import shorten
    from fmemory_tools._times import show_minutes

    if not found:
        print_line(("no runs", FAINT))
        return
    several = len({one.session_id for one in found}) > 1
    starts = show_minutes([one.started_at for one in found], utc=utc)
    rows: list[list[Part]] = [
        [
            (one.run_id, KIND),
            one.session_id or "" if several and one.session_id != one.run_id else "",
            (one.actor or "", WHO),
            status_part(one),
            (start, FAINT),
            show_duration(one.duration_s) if one.duration_s else "",
            str(one.message_count),
            str(one.tool_call_count or ""),
            (str(one.tool_error_count or ""), BAD),
            _features(one),
            shorten(one.last_words, 100),
        ]
        for one, start in zip(found, starts, strict=True)
    ]
    print_table(
        [
            "run",
            "session",
            "by",
            "status",
            "started",
            "for",
            "msgs",
            "calls",
            "errs",
            "feats",
            "last words",
        ],
        rows,
        right=[5, 6, 7, 8],
        narrowest={10: 10, 2: 6, 1: 8, 0: 12},
        ids=[0, 1],
    )


def _features(run: RunSummary) -> str:
    """How many features began to pass and stopped: `+2 -1`.

    Empty where none did.
    """
    gained, lost = len(run.features_gained), len(run.features_lost)
    return " ".join(
        part for part in (f"+{gained}" if gained else "", f"-{lost}" if lost else "") if part
    )
