"""`fmemory state`: a session as it is, or as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, SessionOption, StoreOption, UtcOption, examples
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmemory import BootstrapState, Message, RunCheckpoint
    from fmemory_tools._console import Part

EPILOG = examples(
    "fmemory state",
    "fmemory state --session login --at 812",
    "fmemory state --at '10m ago'",
    note="Exit code: 0 fine, 1 an event is damaged and the state before it is shown.",
)
ENTRIES_SHOWN = 5


def state(
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="SEQ|TIME", help="As of this event, or time of recording."),
    ] = None,
    session: SessionOption = None,
    last: Annotated[
        int,
        typer.Option(
            "--last",
            metavar="N",
            parser=whole_number("--last"),
            help="How many progress entries and messages.",
        ),
    ] = ENTRIES_SHOWN,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show a session as it is, or as it was.

    Its objective, features, progress, checkpoints and the end of the transcript.

    A time is when events were recorded; for imported ones that is when they were imported. A time
    to come means now.

    With --json the state is whole, with all of its progress, and the last messages.
    """
    from fmemory_tools._console import print_json
    from fmemory_tools._damage import load_session, lost_events, tell_unreadable
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._sessions import choose_session, newest_seq, view_at
    from fmemory_tools._store import reading

    with reading(store) as memory:
        place = str(newest_seq(memory)) if at is None else at
        view, moment = view_at(memory, place, "--at", utc=utc)
        session_id = choose_session(memory, session, view, utc=utc)
        view, (found, messages), damaged = load_session(memory, view, session_id)
        tell_unreadable(lost_events(memory, session_id, upto=view.seq), "not in the state")
        if damaged is not None:
            moment = f"event {view.seq}, before the damage"
    if json:
        print_json(
            {
                "session_id": session_id,
                "seq": view.seq,
                **found.to_dict(),
                "message_count": len(messages),
                "messages": [message.to_dict() for message in messages[-last:]],
            }
        )
    else:
        is_now = at is None and damaged is None
        _print_head(session_id, found, "" if is_now else f"as of {moment}")
        _print_features(found)
        _print_progress(session_id, found, last, utc=utc)
        _print_checkpoints(session_id, found.checkpoints, last, utc=utc)
        _print_transcript(messages[-last:], len(messages))
    if damaged is not None:
        raise Failure(f"{damaged}; shown is the state as of event {view.seq}", FINDING)


def _print_head(session_id: str, found: BootstrapState, moment: str) -> None:
    from fmemory_tools._console import FAINT, print_line, print_session, print_text

    print_session(session_id, moment)
    manifest = found.manifest
    if manifest is None:
        print_line(("it has no manifest", FAINT), indent=2)
        return
    objective = "\n".join(line for line in manifest.current_objective.splitlines() if line.strip())
    print_text(objective, indent=2, lines_max=4)
    facts = [f"branch {manifest.active_branch}", f"harness {manifest.harness_version}"]
    if manifest.last_known_good_commit is not None:
        facts.append(f"good commit {manifest.last_known_good_commit[:12]}")
    for key, word in (("parent_session_id", "parent"), ("sub_agent_session_ids", "sub-agents")):
        value = manifest.metadata.get(key)
        if value:
            names = value if isinstance(value, list) else [value]
            facts.append(f"{word} {', '.join(str(name) for name in names)}")
    for fact in facts:
        print_line((fact, FAINT), indent=2)


def _print_features(found: BootstrapState) -> None:
    from fmemory_tools._console import BAD, GOOD, check_mark, print_heading, print_line

    features = found.feature_list
    if not features:
        return
    passing = sum(one.passes for one in features)
    print_heading(f"features: {passing} of {len(features)} passing")
    widest = min(24, max(len(one.id) for one in features))
    for one in features:
        mark = (check_mark(one.passes), GOOD if one.passes else BAD)
        print_line(mark, f" {one.id:<{widest}}  {one.description}", indent=2)


def _print_progress(session_id: str, found: BootstrapState, last: int, *, utc: bool) -> None:
    from fmemory_tools._console import FAINT, print_entry, print_heading
    from fmemory_tools._times import show_time

    entries = found.recent_progress
    if not entries:
        return
    print_heading(f"progress{_of(last, len(entries))}")
    for entry in entries[-last:]:
        time = show_time(entry.created_at, utc=utc)
        head: list[Part] = [(time, FAINT), *_run(entry.run_id, session_id)]
        print_entry(*head, text=entry.summary, indent=2)


def _print_checkpoints(
    session_id: str, checkpoints: Sequence[RunCheckpoint], last: int, *, utc: bool
) -> None:
    from fmemory_tools._console import (
        BAD,
        FAINT,
        GOOD,
        print_entry,
        print_heading,
    )
    from fmemory_tools._summary import show_status
    from fmemory_tools._times import show_time

    if not checkpoints:
        return
    styles = {"succeeded": GOOD, "failed": BAD}
    print_heading(f"checkpoints{_of(last, len(checkpoints))}")
    for one in checkpoints[-last:]:
        time = show_time(one.completed_at or one.started_at, utc=utc)
        status = (show_status(one.to_dict()), styles.get(one.status, ""))
        head: list[Part] = [(time, FAINT), *_run(one.run_id, session_id), "  ", status]
        print_entry(*head, text=one.note or "", indent=2)


def _run(run_id: str, session_id: str) -> list[Part]:
    """The run, unless it is called as its session."""
    from fmemory_tools._console import WHO

    return [] if run_id == session_id else ["  ", (run_id, WHO)]


def _print_transcript(messages: Sequence[Message], count: int) -> None:
    from fmemory_tools._console import BAD, KIND, print_heading, print_line
    from fmemory_tools._summary import describe_message, role_word

    if not messages:
        return
    print_heading(f"transcript{_of(len(messages), count)}")
    for message in messages:
        plain = message.to_dict()
        role = (f"{role_word(plain):<9}", BAD if message.is_error else KIND)
        print_line(role, "  ", describe_message(plain), indent=2)


def _of(shown: int, count: int) -> str:
    return f": {count}" if shown >= count else f": last {shown} of {count}"
