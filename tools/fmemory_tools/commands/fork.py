"""`fmemory fork`: go on from a past point of a session, under a new session."""

from __future__ import annotations

from typing import Annotated

import typer

from fmemory_tools._options import JsonOption, StoreOption, UtcOption, examples

EPILOG = examples(
    "fmemory fork login --at 812 login-again",
    "fmemory fork login --at '1h ago' before-lunch --reason 'the parser broke'",
    note="Exit code: 0 done, 2 there is no such session, or the new one exists.",
)


def fork(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Session id, or enough of its beginning.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Id of the new session.")],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="SEQ|TIME",
            help="The session as of this event, or time of recording. Default: as it is now.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Why, for those who read the log."),
    ] = None,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Begin a new session with what another one held then.

    Manifest, features, progress, checkpoints and messages are copied; the old session stays as it
    is, and the new one names it and the event as its origin. This writes to the store.
    """
    import fmemory
    from fmemory_tools._console import print_json, print_text
    from fmemory_tools._sessions import choose_session, view_at
    from fmemory_tools._store import check_there, find_store, writing

    target = find_store(store)
    check_there(target)
    with writing(target, create=False) as memory:
        view = None if at is None else view_at(memory, at, "--at", utc=utc)[0]
        source = choose_session(memory, session, view, utc=utc)
        with fmemory.audit(reason=reason or f"fork of {source}"):
            receipt = memory.fork_session(source, new, at=None if view is None else view.seq)
        copied = memory.event(receipt.seq - receipt.event_count + 1)
    data = copied.data if isinstance(copied.data, dict) else {}
    if json:
        told = {"session_id": new, "origin": source, "origin_seq": data.get("origin_seq")}
        print_json({**told, "receipt": receipt.to_dict()})
        return
    print_text(f"session {new} goes on from {source} as of event {data.get('origin_seq')}")
    print_text(f"event {copied.seq} is its first; nothing of {source} was changed")
