"""`fmemory sessions`: the sessions of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, examples

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fmemory import BootstrapState, LogBackend, SessionInfo
    from fmemory_tools._damage import Damaged

EPILOG = examples(
    "fmemory sessions",
    "fmemory sessions --all --json | jq -r .session_id",
    note="Exit code: 0 fine, 1 an event is damaged; that session is as it was before.",
)
SESSIONS_SHOWN = 50


def sessions(
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all sessions instead of the newest 50.")
    ] = False,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """List the sessions, the most recently written first.

    Where a command takes a session, enough of the beginning of its id will do.
    """
    from itertools import islice

    from fmemory_tools._console import FAINT, print_line
    from fmemory_tools._damage import lost_events, refuse_damage, tell_unreadable
    from fmemory_tools._failure import tell
    from fmemory_tools._sessions import all_sessions
    from fmemory_tools._store import reading

    with reading(store) as memory:
        tell_unreadable(lost_events(memory), "not in the sessions")
        listed = all_sessions(memory)
        infos = islice(listed, None if show_all else SESSIONS_SHOWN)
        damaged: list[Damaged] = []
        pairs = ((info, _state(memory, info.session_id, damaged)) for info in infos)
        if json:
            _print_json(pairs)
        else:
            _print(pairs, utc=utc)
        more = sum(1 for _ in listed)
        words = f"{more:,} older session{'' if more == 1 else 's'}; --all shows them"
        if more and json:
            tell(words)
        elif more:
            print_line((words, FAINT))
        refuse_damage(damaged)


def _state(memory: LogBackend, session_id: str, damaged: list[Damaged]) -> BootstrapState:
    """The state of a session, or that before its first damaged event, which is added to a list."""
    from fmemory import LogCorrupt
    from fmemory_tools._damage import load_state
    from fmemory_tools._sessions import newest_seq

    try:
        return memory.load_bootstrap_state(session_id)
    except LogCorrupt:
        _, state, found = load_state(memory, memory.at(newest_seq(memory)), session_id)
        damaged += [] if found is None else [found]
        return state


def _print_json(pairs: Iterable[tuple[SessionInfo, BootstrapState]]) -> None:
    from fmemory_tools._console import print_json

    for info, state in pairs:
        manifest = state.manifest
        print_json(
            {
                **info.to_dict(),
                "objective": None if manifest is None else manifest.current_objective,
                "branch": None if manifest is None else manifest.active_branch,
                "features": len(state.feature_list),
                "features_passing": sum(one.passes for one in state.feature_list),
                "checkpoints": [one.to_dict() for one in state.checkpoints],
            }
        )


def _print(pairs: Iterable[tuple[SessionInfo, BootstrapState]], *, utc: bool) -> None:
    from fmemory_tools._console import FAINT, KIND, Part, print_line, print_table
    from fmemory_tools._summary import shorten, show_status
    from fmemory_tools._times import show_time

    rows: list[list[Part]] = []
    for info, state in pairs:
        manifest, features = state.manifest, state.feature_list
        passing = sum(one.passes for one in features)
        rows.append(
            [
                (info.session_id, KIND),
                (show_time(info.updated_at, utc=utc)[:16], FAINT),
                str(info.revision),
                f"{passing}/{len(features)}" if features else "",
                show_status(state.checkpoints[-1].to_dict()) if state.checkpoints else "",
                "" if manifest is None else shorten(manifest.current_objective, 100),
            ]
        )
    if not rows:
        print_line(("no sessions", FAINT))
        return
    print_table(
        ["session", "updated", "events", "features", "last run", "objective"],
        rows,
        right=[2],
        narrowest={5: 12, 4: 11},
        whole=True,
    )
