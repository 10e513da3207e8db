"""`fmemory step`: a session event by event, in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, examples

if TYPE_CHECKING:
    from fmemory import LogBackend

EPILOG = examples(
    "fmemory step",
    "fmemory step login --at 812           the session as it was after event 812",
    "fmemory step login --follow           stay at the end while it is written",
    "fmemory step login --json | jq .deltas",
    note="The screen needs the extra `step`: pip install 'fmemory[step]'; --json does not.",
)


def step(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION]",
            help="Session id, or enough of its beginning. Not needed if there is only one.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="SEQ|TIME", help="Begin with this event."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-F", "--follow", help="Begin at the end, and follow it.")
    ] = False,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Step through a session: each event, and the state after it.

    Keys are as in less: j and k, space and b, g and G, / and n, F follows what is being written,
    ? shows all of them, q quits. Nothing is written to the store.

    With --json there is no screen: each event of the session is printed with what it changed.
    """
    from fmemory_tools._failure import Failure
    from fmemory_tools._sessions import view_at
    from fmemory_tools._store import reading

    if follow and (at is not None or json):
        raise Failure("--follow begins at the end: expected neither --at nor --json with it")
    if not json:
        _check_terminal()
    with reading(store) as memory:
        session_id = _choose(memory, session, utc=utc)
        seq = None if at is None else view_at(memory, at, "--at", utc=utc)[0].seq
        if json:
            _print_changes(memory, session_id, seq)
            return
        from fmemory_tools.stepper.app import StepApp

        app = StepApp(memory, session_id, at=seq, follows=follow, utc=utc)
        app.run()
        if app.return_code:
            raise Failure("the screen ended by itself; `fmemory log` shows the events", 1)


def _check_terminal() -> None:
    """Refuse where there is no screen to draw on.

    Raises:
        Failure: Output or input is no terminal, or textual is not installed.
    """
    import sys
    from importlib.util import find_spec

    from fmemory_tools._failure import Failure

    if find_spec("textual") is None:
        raise Failure(
            "step needs the package textual, which is in the extra `step`:"
            " pip install 'fmemory[step]'; --json does without"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("step needs a terminal; --json prints each event with what it changed")


def _choose(memory: LogBackend, given: str | None, *, utc: bool) -> str:
    """The session that is meant; an id that is there whole needs no state to be folded."""
    from fmemory_tools._sessions import choose_session

    if given is not None:
        stream = ("session", given)
        if any(one.stream == stream for one in memory.list_streams(stream).streams):
            return given
    return choose_session(memory, given, place="SESSION", utc=utc)


def _print_changes(memory: LogBackend, session_id: str, seq: int | None) -> None:
    """Each event with what it changed, one JSON object a line; damaged ones are named.

    Raises:
        Failure: Some are damaged; all others are printed before.
    """
    from fmemory.replay._changes import ChangeFold
    from fmemory_tools._console import print_json
    from fmemory_tools._damage import Damaged, readable, refuse_damage

    fold = ChangeFold()
    damaged = []
    stream = ("session", session_id)
    for event in readable(lambda after, limit: memory.events(after, stream=stream, limit=limit)):
        told: object
        if isinstance(event, Damaged):
            damaged.append(event)
            told = {"seq": event.seq, "damaged": event.problem}
        else:
            told = fold.apply(event).to_dict()
        if seq is None or event.seq >= seq:
            print_json(told)
    refuse_damage(damaged)
