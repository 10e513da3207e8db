"""`fmemory transcript`: the conversation of a session, readable in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, examples
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fmemory.replay import TranscriptEntry

EPILOG = examples(
    "fmemory transcript login",
    "fmemory transcript login --last 20",
    "fmemory transcript login --at 812 --whole",
    "fmemory transcript login --json | jq 'select(.is_error)'",
    note="Exit code: 0 fine, 1 an event is damaged and the rest is shown.",
)


def transcript(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION]",
            help="Session id, or enough of its beginning. Not needed if there is only one.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Only what this run wrote.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="SEQ|TIME", help="As of this event, or time of recording."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            parser=whole_number("--last"),
            help="Only the last N messages.",
            show_default=False,
        ),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Fold nothing.")] = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="The blocks as the provider has them; without any, the message's fields."
        ),
    ] = False,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show a conversation: who said what, tool calls, errors.

    The number before a message is that of its event. Thinking is dim, long results are folded.
    """
    from fmemory.replay import transcript as transcript_of
    from fmemory_tools._console import FAINT, print_json, print_line, print_session
    from fmemory_tools._raw_messages import stored_messages
    from fmemory_tools._sessions import (
        check_run,
        choose_session,
        newest_seq,
        tell_if_deleted,
        view_at,
    )
    from fmemory_tools._store import reading
    from fmemory_tools._transcript_view import print_transcript

    with reading(store) as memory:
        view, moment = view_at(
            memory, str(newest_seq(memory)) if at is None else at, "--at", utc=utc
        )
        then = None if at is None else view
        session_id = choose_session(memory, session, then, place="SESSION", utc=utc)
        entries = transcript_of(memory, session_id, run_id=run, at=view.seq, last=last)
        stored = stored_messages(memory, entries) if raw and not json else None
        if run is not None and not entries:
            check_run(memory, run, session_id)
        if not entries:
            tell_if_deleted(memory, view, session_id, utc=utc)
        unanswered = "no answer" if view.seq == newest_seq(memory) else "no answer until then"
    if json:
        for entry in entries:
            print_json(entry.to_dict())
    else:
        print_session(session_id, "" if at is None else f"as of {moment}")
        if not entries:
            print_line(("no messages", FAINT))
        print_transcript(
            entries, session_id, utc=utc, stored=stored, whole=whole, unanswered=unanswered
        )
    _refuse_damage(entries)


def _refuse_damage(entries: Iterable[TranscriptEntry]) -> None:
    from fmemory_tools._damage import Damaged, refuse_damage

    gaps = [one.gap for one in entries if one.gap is not None]
    refuse_damage([Damaged(one.seq, one.problem) for one in gaps if one.problem is not None])
