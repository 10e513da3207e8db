"""`fmemory bisect`: the first event where something turned, found by halving."""

from __future__ import annotations

import json as json_text
import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import JsonOption, SessionOption, StoreOption, UtcOption, examples
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from fmemory import LogBackend
    from fmemory.replay import Bisection, BisectionStep, Check

EPILOG = examples(
    "fmemory bisect --session login --ok 8 --bad 42 --feature form",
    "fmemory bisect --ok 0 --bad 42 --grep 'Traceback (most'",
    "fmemory bisect --ok 8 --bad 42 --exec 'jq -e \".messages|length<9\"'",
    note="Exit code: 0 found, 1 only narrowed down, as states were skipped, 2 wrong usage, also if"
    " --ok is not ok or --bad not bad.",
)
SKIPPED = 125
BAD_MAX = 124


def bisect(
    ok: Annotated[
        int,
        typer.Option(
            "--ok",
            metavar="SEQ",
            parser=whole_number("--ok", 0),
            help="An event after which all was well; 0 = before everything.",
        ),
    ],
    bad: Annotated[
        int,
        typer.Option(
            "--bad",
            metavar="SEQ",
            parser=whole_number("--bad"),
            help="A later event, after which it was not.",
        ),
    ],
    feature: Annotated[
        str | None,
        typer.Option("--feature", metavar="ID", help="Well = this feature passes."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--grep", metavar="TEXT", help="Well = nothing in the state has this text."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Well = the shell command, given the state as JSON on standard input, exits with"
            " 0. 1 to 124 = not well, 125 = cannot be told, all else ends the search.",
        ),
    ] = None,
    session: SessionOption = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Find the first event where a session turned bad.

    The state after --ok and that after --bad are looked at first, then one for each halving of
    the session's events between them. What --exec prints goes to standard error.
    """
    from fmemory import ContractError, replay
    from fmemory_tools._console import print_json
    from fmemory_tools._failure import FINDING, Failure
    from fmemory_tools._sessions import choose_session, view_at
    from fmemory_tools._store import reading

    _check_one_check(feature, text, command)
    with reading(store) as memory:
        view_at(memory, str(max(ok, bad)), "--bad" if bad >= ok else "--ok", utc=utc)
        session_id = choose_session(memory, session, utc=utc)
        if feature is not None:
            _check_feature(memory, session_id, feature, ok)
            check = replay.feature_check(session_id, feature)
        elif text is not None:
            check = replay.text_check(session_id, text)
        else:
            assert command is not None
            check = exec_check(session_id, command)
        progress = None if json else _tell_step
        try:
            found = replay.bisect(
                memory, session_id, ok=ok, bad=bad, check=check, progress=progress
            )
        except ContractError as error:
            in_options = str(error).startswith(("ok: ", "bad: "))
            raise Failure(f"--{error}" if in_options else str(error)) from error
    if json:
        print_json(found.to_dict())
    else:
        _print(found, store=store, utc=utc)
    raise typer.Exit(FINDING if len(found.candidates) > 1 else 0)


def exec_check(session_id: str, command: str) -> Check:
    """A check that asks a shell command, as `git bisect run` does.

    Raises:
        Failure: By the check: the command cannot be run, or was ended by a signal.
    """
    from fmemory import LogView
    from fmemory.replay import Verdict, session_state
    from fmemory_tools._failure import Failure

    def check(view: LogView) -> Verdict:
        state = json_text.dumps(session_state(view, session_id), ensure_ascii=False)
        # The command is a person's own, as in any shell; its output must not mix with ours.
        done = subprocess.run(command, shell=True, input=state.encode(), stdout=2, check=False)
        if done.returncode == 0:
            return Verdict.OK
        if done.returncode == SKIPPED:
            return Verdict.SKIP
        if 0 < done.returncode <= BAD_MAX:
            return Verdict.BAD
        how = f"exit code {done.returncode}" if done.returncode > 0 else "a signal"
        raise Failure(
            f"--exec: expected exit code 0 (ok), 1 to {BAD_MAX} (bad) or {SKIPPED} (skip), got"
            f" {how} for the state after event {view.seq}; nothing was found"
        )

    return check


def _check_feature(memory: LogBackend, session_id: str, feature: str, ok: int) -> None:
    """Refuse a feature that the ok state does not have: it would be called bad there."""
    from fmemory_tools._failure import Failure
    from fmemory_tools._sessions import name_some

    names = [one.id for one in memory.at(ok).load_bootstrap_state(session_id).feature_list]
    if feature not in names:
        known = f"there are: {name_some(names)}" if names else "it has none"
        raise Failure(
            f"no feature {feature!r} in session {session_id!r} after event {ok}, which --ok says is"
            f" well; {known}"
        )


def _check_one_check(*given: str | None) -> None:
    from fmemory_tools._failure import Failure

    if sum(one is not None for one in given) != 1:
        raise Failure("expected one of --feature, --grep and --exec, which say what bad is")
    if "" in given:
        raise Failure("expected something to look for, got an empty text")


def _tell_step(step: BisectionStep, left: int) -> None:
    from fmemory_tools._console import BAD, FAINT, GOOD, NUMBER, print_line

    style = {"ok": GOOD, "bad": BAD}.get(step.verdict.value, FAINT)
    print_line(
        ("event ", FAINT),
        (str(step.seq), NUMBER),
        "  ",
        (step.verdict.value, style),
        (f"  ({left} event{'' if left == 1 else 's'} to choose from)", FAINT),
    )


def _print(found: Bisection, *, store: str | None, utc: bool) -> None:
    from fmemory._shell import shell_word
    from fmemory_tools._console import (
        FAINT,
        NUMBER,
        STRONG,
        WHO,
        Part,
        print_line,
        print_text,
        print_whole,
    )
    from fmemory_tools._sessions import ranges_of
    from fmemory_tools._store import store_option
    from fmemory_tools._times import show_time

    if len(found.candidates) > 1:
        # Who wrote the last of them is no answer: it is only where the state is known to be bad.
        named = ", ".join(ranges_of(found.candidates))
        count = len(found.candidates)
        print_text(f"turned bad by one of these {count:,} events: {named}", style=STRONG)
        print_text("the states between were skipped", style=FAINT)
        between = f"--session {shell_word(found.session_id)}{store_option(store)}"
        print_whole(f"fmemory diff {found.ok} {found.bad} {between}", indent=2)
        return
    print_line(("turned bad by event ", STRONG), (str(found.bad), NUMBER), f"  {found.type}")
    parts: list[Part] = [(show_time(found.time, utc=utc), FAINT)]
    parts += [(" by ", FAINT), (found.actor, WHO)] if found.actor else []
    parts += [(" in run ", FAINT), (found.run_id, WHO)] if found.run_id else []
    print_line(*parts, indent=2)
    if found.reason:
        print_text(found.reason, indent=2)
    print_whole(f"fmemory show {found.bad}{store_option(store)}", indent=2)
