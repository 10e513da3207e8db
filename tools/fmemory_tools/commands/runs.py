"""`fmemory runs`: one line a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmemory_tools._options import JsonOption, SessionOption, StoreOption, UtcOption, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmemory.replay import RunSummary

EPILOG = examples(
    "fmemory runs",
    "fmemory runs --session 491e --json | jq .status",
)


def runs(
    session: SessionOption = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """List the runs, one a line: how each ended, what it did, its last words."""
    from fmemory import replay
    from fmemory_tools._console import print_json
    from fmemory_tools._sessions import choose_session
    from fmemory_tools._store import reading

    with reading(store) as memory:
        session_id = None if session is None else choose_session(memory, session, utc=utc)
        found = replay.runs(memory, session_id=session_id)
        if not json:
            _print(found, utc=utc)
            return
        for one in found:
            print_json({**one.to_dict(), "duration_s": one.duration_s})


def _print(found: Sequence[RunSummary], *, utc: bool) -> None:
    from fmemory_tools._console import FAINT, KIND, Part, print_line, print_table
    from fmemory_tools._summary import shorten
    from fmemory_tools._times import show_time

    rows: list[list[Part]] = [
        [
            (one.run_id, KIND),
            one.status.value,
            (show_time(one.started_at, utc=utc)[:16], FAINT),
            str(one.message_count),
            f"{one.tool_call_count}",
            f"{one.tool_error_count or ''}",
            shorten(one.last_words, 100),
        ]
        for one in found
    ]
    if not rows:
        print_line(("no runs", FAINT))
        return
    print_table(
        ["run", "status", "started", "msgs", "calls", "errors", "last words"],
        rows,
        right=[3, 4, 5],
        narrowest={6: 12},
        whole=True,
    )
