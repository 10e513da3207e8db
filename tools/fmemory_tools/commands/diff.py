"""`fmemory diff`: what changed in a session between two places, or how two runs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, SessionOption, StoreOption, UtcOption, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmemory import Event, LogBackend, LogView
    from fmemory._json_values import JsonValue
    from fmemory_tools._changes import Change
    from fmemory_tools._console import Part

EPILOG = examples(
    "fmemory diff 8 12",
    "fmemory diff '1h ago' 812 --session login",
    "fmemory diff 0 12 --json",
    "fmemory diff run-1 run-2",
    "fmemory diff login/run-1 signup/run-1",
    note="Exit code: 0 the same, 1 different, or compared only up to a damaged event.",
)
MESSAGES_SHOWN = 10


def diff(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A sequence number (0 = empty), a time, or [SESSION/]RUN."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one of the same kind.")],
    session: SessionOption = None,
    as_runs: Annotated[
        bool | None,
        typer.Option(
            "--runs/--places",
            help="What A and B are, where they could be both.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show what changed between A and B, or how two runs differ.

    Of two places in the log, what changed in a session; of two runs, the first message and the
    first tool call in which they differ, and how features, checkpoints, progress and notes do.

    Of features that were flipped it says who did it, in which event, and why. A time is when
    events were recorded; for imported ones that is when they were imported.
    """
    from fmemory_tools._changes import changes_between
    from fmemory_tools._console import print_json, print_session
    from fmemory_tools._damage import load_session, refuse_damage
    from fmemory_tools._failure import FINDING
    from fmemory_tools._run_diff import print_runs, runs_meant
    from fmemory_tools._sessions import choose_session, view_at
    from fmemory_tools._store import reading

    with reading(store) as memory:
        runs = None if as_runs is False else runs_meant(memory, a, b, session, sure=bool(as_runs))
        if runs is not None:
            differ = print_runs(memory, *runs, json=json, utc=utc)
            raise typer.Exit(FINDING if differ else 0)
        old, old_moment = view_at(memory, a, "A", utc=utc)
        new, new_moment = view_at(memory, b, "B", utc=utc)
        session_id = choose_session(memory, session, max(old, new, key=_seq), utc=utc)
        old, before, damaged = load_session(memory, old, session_id)
        if damaged is not None:
            old_moment = f"event {old.seq}, before the damage,"
        new, after, also_damaged = load_session(memory, new, session_id)
        if also_damaged is not None:
            new_moment = f"event {new.seq}, before the damage"
        changes = list(changes_between(before[0], after[0], before[1], after[1]))
        flips = flips_between(memory, session_id, old.seq, new.seq)
    for change in changes if json else ():
        flip = flips.get(change.name) if change.part == "feature" else None
        print_json(
            {
                "session_id": session_id,
                "part": change.part,
                "name": change.name,
                "change": change.word,
                "before": change.before,
                "after": change.after,
                "by_event": None if flip is None else flip.seq,
            }
        )
    if not json:
        print_session(session_id, f"{old_moment} to {new_moment}")
        print_changes(changes, flips)
    refuse_damage({one for one in (damaged, also_damaged) if one is not None})
    raise typer.Exit(FINDING if changes else 0)


def _seq(view: LogView) -> int:
    return view.seq


def changes_of(old: LogView, new: LogView, session_id: str) -> list[Change]:
    """What differs in a session between two views."""
    from fmemory_tools._changes import changes_between

    return list(
        changes_between(
            old.load_bootstrap_state(session_id),
            new.load_bootstrap_state(session_id),
            old.load_transcript_messages(session_id),
            new.load_transcript_messages(session_id),
        )
    )


def flips_between(memory: LogBackend, session_id: str, after: int, upto: int) -> dict[str, Event]:
    """Feature id → the event that said last whether it passes, between two seqs."""
    from fmemory_tools._damage import Damaged, readable

    if upto <= after:
        return {}
    flips = {}
    types = ("feature_pass_updated",)
    stream = ("session", session_id)
    for event in readable(
        lambda seq, limit: memory.events(seq, stream=stream, types=types, limit=limit), after
    ):
        if event.seq > upto:
            break
        if not isinstance(event, Damaged) and isinstance(event.data, dict):
            flips[str(event.data["feature_id"])] = event
    return flips


def print_changes(changes: Sequence[Change], flips: dict[str, Event], *, indent: int = 2) -> None:
    """One line a change; of many messages the first ones."""
    from fmemory_tools._console import FAINT, print_line

    if not changes:
        print_line("nothing changed", indent=indent)
    messages = 0
    for change in changes:
        messages += change.part == "message"
        if messages > MESSAGES_SHOWN:
            continue
        if change.part == "feature":
            _print_feature(change, flips.get(change.name), indent)
        else:
            label: Part = (f"{change.part:<10}  ", FAINT)
            print_line(label, *_words(change), indent=indent)
    if messages > MESSAGES_SHOWN:
        print_line((f"and {messages - MESSAGES_SHOWN} more messages", FAINT), indent=indent)


def _print_feature(change: Change, flip: Event | None, indent: int) -> None:
    from fmemory_tools._console import BAD, FAINT, GOOD, WHO, arrow, check_mark, print_line

    passes = [_passes(change.before), _passes(change.after)]
    marks: list[Part] = [
        (check_mark(one), GOOD if one else BAD) if one is not None else ("·", FAINT)
        for one in passes
    ]
    if passes[0] == passes[1]:
        words = "its description changed"
    elif None in passes:
        words = change.word
    else:
        words = ""
    parts: list[Part] = [(f"{'feature':<10}  ", FAINT), f"{change.name}  "]
    parts += [marks[0], f" {arrow()} ", marks[1], f"  {words}" if words else ""]
    if flip is not None:
        why = f": {flip.reason}" if flip.reason else ""
        parts += [f"  event {flip.seq} by ", (flip.actor or "somebody", WHO), why]
    print_line(*parts, indent=indent)


def _passes(value: JsonValue) -> bool | None:
    return value.get("passes") is True if isinstance(value, dict) else None


def _words(change: Change) -> list[Part]:
    from fmemory_tools._console import BAD, GOOD, arrow

    before, after = _describe(change, change.before), _describe(change, change.after)
    if change.before is None:
        return [("+ ", GOOD), after]
    if change.after is None:
        return [("- ", BAD), before]
    return [f"{change.name}: {before} {arrow()} {after}"]


def _describe(change: Change, value: JsonValue) -> str:
    """One side of a change in words."""
    from fmemory_tools._summary import describe_checkpoint, describe_message, role_word, shorten

    if not isinstance(value, dict) or change.part == "manifest":
        text = shorten(str(value), 100)
        return f"{change.name}: {text}" if None in (change.before, change.after) else text
    match change.part:
        case "message":
            return f"{role_word(value)}: {describe_message(value)}"
        case "checkpoint":
            return f"{value['run_id']} {describe_checkpoint(value)}"
        case _:
            return str(value.get("summary"))
