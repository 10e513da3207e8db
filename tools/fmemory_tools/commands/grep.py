"""`fmemory grep`: texts of the log that match a pattern, with their events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, WithinSessionOption, examples
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmemory.replay import Match, Matches

EPILOG = examples(
    "fmemory grep 'time(d)? ?out' -i",
    "fmemory grep -F 'foo(bar)' --session login",
    "fmemory grep Traceback --in message --json | jq .seq",
    note="Exit code: 0 something matches, 1 nothing does or an event is damaged, as with grep.",
)


def grep(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="A regular expression, or with -F a text.")
    ],
    fixed: Annotated[
        bool, typer.Option("-F", "--fixed", help="Find the pattern as it is written.")
    ] = False,
    ignore_case: Annotated[
        bool, typer.Option("-i", "--ignore-case", help="Capital and small letters are the same.")
    ] = False,
    places: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="PLACE",
            help="Only message, note, progress, checkpoint, manifest, feature or event (of types"
            " of your own); can be repeated.",
        ),
    ] = None,
    session: WithinSessionOption = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="WHO", help="Only what this actor wrote.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Only events of this run.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only what happened then or later."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only what happened before.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            parser=whole_number("--limit"),
            help="Stop after N texts.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Search messages, notes, progress and other events.

    All that was ever written is searched, also what was truncated or replaced later. Each text
    that matches is one line: its event, where it stands, and the first line that matches. Events
    that cannot be searched are told on standard error.
    """
    from fmemory import ContractError, replay
    from fmemory_tools._console import print_json, progress
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._sessions import check_run, choose_session
    from fmemory_tools._store import reading
    from fmemory_tools._times import parse_time

    with reading(store) as memory, progress("searching"):
        try:
            found = replay.grep(
                memory,
                pattern,
                literal=fixed,
                ignore_case=ignore_case,
                places=places or None,
                session_id=None if session is None else choose_session(memory, session),
                actor=actor,
                run_id=run,
                since=None if since is None else parse_time(since, "--since"),
                until=None if until is None else parse_time(until, "--until"),
                limit=limit,
            )
        except ContractError as error:
            raise Failure(_in_options(error)) from error
        if run is not None and not found.matches:
            check_run(memory, run)
    for one in found.matches if json else ():
        print_json(one.to_dict())
    if not json:
        _print(found, utc=utc)
    _tell_rest(found)
    raise typer.Exit(0 if found.matches else FINDING)


def _in_options(error: Exception) -> str:
    """A refused argument in the words of the command line."""
    words = str(error).replace("ask for a literal text", "give -F")
    return words.replace("places: ", "--in: ", 1) if words.startswith("places") else words


def _print(found: Matches, *, utc: bool) -> None:
    from fmemory_tools._console import FAINT, KIND, NUMBER, STRONG, WHO, Part, print_line

    del utc
    cells = max((len(str(one.seq)) for one in found.matches), default=1)
    stream = None
    for one in found.matches:
        here = one.session_id if one.session_id is not None else "/".join(one.namespace)
        if (one.session_id, here) != stream:
            stream = (one.session_id, here)
            print_line(*_heading(one, here))
        before, middle, after = _pieces(one)
        parts: list[Part] = [(str(one.seq).rjust(cells), NUMBER), "  ", (_where(one), KIND), "  "]
        parts += [before, (middle, f"{STRONG} {WHO}"), after]
        if one.match_count > 1:
            parts += [(f"  +{one.match_count - 1}", FAINT)]
        print_line(*parts)


def _heading(one: Match, here: str) -> Sequence[tuple[str, str]]:
    from fmemory_tools._console import FAINT, KIND

    if one.session_id is not None:
        return [("session ", FAINT), (here, KIND)]
    if one.place == "note":
        return [("notes ", FAINT), (f"in {here}" if here else "in the root namespace", FAINT)]
    return [("other events", FAINT)]


def _where(one: Match) -> str:
    return one.name if one.place == "message" else f"{one.place.value} {one.name}".rstrip()


def _pieces(one: Match) -> tuple[str, str, str]:
    """What is before the match, it, and what is after, so short that the match is seen."""
    from fmemory_tools._console import width

    room = max(8, width() - 30 - (one.end - one.start))
    before = one.excerpt[: one.start].lstrip()
    if len(before) > room // 2:
        before = "…" + before[-(room // 2) :]
    return before, one.excerpt[one.start : one.end], one.excerpt[one.end :].rstrip()


def _tell_rest(found: Matches) -> None:
    """On stderr: what was not searched. Damage ends the command with a finding."""
    from fmemory_tools._damage import tell_unreadable
    from fmemory_tools._failure import tell

    if not found.complete:
        tell("there is more; a greater --limit shows it")
    tell_unreadable(found.unreadable, "not searched")
