"""`fmemory import`: other programs' files as sessions and records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import (
    JsonOption,
    NamespaceOption,
    SkipBadOption,
    StoreOption,
    examples,
    file_to_read,
)
from fmemory_tools._usage import existing_file

if TYPE_CHECKING:
    from fmemory_tools.importers import BadLine, SessionsPlan
    from fmemory_tools.importers.fiddlesticks_apply import FiddlesticksOutcome

HELP = """Bring runs and notes of other programs into a store.

The store named by -s is created if it is not there. A file is imported whole or, if a line of it
is malformed, not at all. The same file twice adds nothing; a file that has grown adds what is new.
"""
EXIT_NOTE = (
    "Exit code: 0 fine, 1 malformed lines or something else is stored there already, 2 the file"
    " is of another kind; nothing was imported."
)
EPILOG = examples(
    "fmemory import claude-code ~/.claude/projects/app/4f1c.jsonl -s ./memory",
    "fmemory import swe-agent run.traj -s ./memory",
    "fmemory import notes notes.jsonl --vectors notes.npy -s ./memory",
    "fmemory import fiddlesticks ~/.fiddlesticks/fmemory.sqlite3 -s ./memory",
    note=EXIT_NOTE,
)
NOTES_EPILOG = examples(
    "fmemory import notes notes.jsonl -s ./memory",
    "fmemory import notes ada.jsonl --vectors ada.npy --namespace users/ada \\",
    "    --embedding-id all-MiniLM-L6-v2",
)
CLAUDE_CODE_EPILOG = examples(
    "fmemory import claude-code ~/.claude/projects/app/4f1c.jsonl -s ./memory",
    "fmemory state -s ./memory",
)
SWE_AGENT_EPILOG = examples("fmemory import swe-agent marshmallow-1867.traj -s ./memory")
FIDDLESTICKS_EPILOG = examples(
    "fmemory import fiddlesticks ~/.fiddlesticks/fmemory.sqlite3 -s ./memory",
    "fmemory import fiddlesticks ./fiddlesticks-folder -s ./memory",
    "fmemory import fiddlesticks postgresql://ada@localhost/agents -s ./memory",
    note=(
        "Exit code: 0 fine, 1 malformed rows (nothing was imported) or sessions that were left"
        " alone, 2 the source is nothing of Fiddlesticks, 3 it cannot be read."
    ),
)

NameOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Name of the session instead of the file's own.",
        show_default=False,
    ),
]


def notes(
    file: Annotated[Path, file_to_read("Notes, one JSON object a line.")],
    vectors: Annotated[
        Path | None,
        typer.Option(
            "--vectors",
            metavar="FILE.npy",
            parser=existing_file("--vectors"),
            help="float32 or float64, shape (lines, dim): row i belongs to line i.",
            show_default=False,
        ),
    ] = None,
    namespace: NamespaceOption = None,
    embedding_id: Annotated[
        str | None,
        typer.Option(
            "--embedding-id", metavar="NAME", help="What made the vectors.", show_default=False
        ),
    ] = None,
    skip_bad: SkipBadOption = False,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Import notes, with their vectors if there are any.

    JSON Lines with id, text, timestamp (seconds) and metadata.
    """
    from fmemory_tools._console import print_json, print_text
    from fmemory_tools._store import writing
    from fmemory_tools._summary import parse_namespace
    from fmemory_tools.importers.apply import apply_notes
    from fmemory_tools.importers.notes import plan_notes

    labels = parse_namespace(namespace)
    with _told(file, "notes") as advance:
        plan = plan_notes(
            file,
            vectors=vectors,
            namespace=labels,
            embedding_id=embedding_id,
            skip_bad=skip_bad,
            advance=advance,
        )
        with writing(store) as memory:
            outcome = apply_notes(memory, plan)
    _tell_skipped(plan.source.name, plan.source.skipped)
    if json:
        print_json(
            {
                "file": plan.source.name,
                "namespace": list(labels),
                "added": outcome.added,
                "present": outcome.present,
                "skipped_lines": [line.number for line in plan.source.skipped],
            }
        )
        return
    where = f" in namespace {namespace}" if namespace else ""
    if outcome.added == 0:
        print_text(f"{file.name}: already imported, {outcome.present:,} notes{where}")
        return
    before = f", {outcome.present:,} were there already" if outcome.present else ""
    print_text(f"{file.name}: {outcome.added:,} notes added{where}{before}")


def claude_code(
    file: Annotated[Path, file_to_read("Session file of Claude Code, .jsonl.")],
    session: NameOption = None,
    skip_bad: SkipBadOption = False,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Import a session of Claude Code.

    Its JSON Lines file; sub-agents become sessions of their own. One message per API message,
    blocks verbatim; all other lines become events of the session.

    A session that is still running can be imported again and again: nothing is held back. Where an
    import ended within an API message, the next one adds the rest as a message of the same id. A
    last line that is not finished is named on stderr and left to the next import.
    """
    from fmemory_tools.importers.claude_code import plan_claude_code

    with _told(file, "claude-code") as advance:
        plan = plan_claude_code(file, session_id=session, skip_bad=skip_bad, advance=advance)
        _apply(plan, store, json=json)


def swe_agent(
    file: Annotated[Path, file_to_read("Trajectory of SWE-agent, .traj.")],
    session: NameOption = None,
    skip_bad: SkipBadOption = False,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Import a trajectory of SWE-agent.

    Its .traj file: history, steps, and how it ended.

    A trajectory has no times and no verdict: "submitted" is not called passed.
    """
    from fmemory_tools.importers.swe_agent import plan_swe_agent

    with _told(file, "swe-agent") as advance:
        plan = plan_swe_agent(file, session_id=session, skip_bad=skip_bad, advance=advance)
        _apply(plan, store, json=json)


def fiddlesticks(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="SQLite file, folder that holds sessions/, or postgresql:// URL.",
        ),
    ],
    skip_bad: SkipBadOption = False,
    json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Import the sessions of Fiddlesticks.

    All that the Rust crate stored: manifests, features, progress, checkpoints, transcripts, with
    their times. The source is read and not changed.

    A session is imported once; what it gained in the source since then is added, unless it was
    written to here as well. A session that is there already and came from elsewhere is named and
    left alone. --skip-bad leaves an init plan out whole if a step of it is malformed.
    """
    from fmemory_tools._console import print_json
    from fmemory_tools._failure import FINDING
    from fmemory_tools._store import writing
    from fmemory_tools.importers.fiddlesticks import plan_fiddlesticks
    from fmemory_tools.importers.fiddlesticks_apply import apply_fiddlesticks

    with _fiddlesticks_told(source):
        plan = plan_fiddlesticks(source, skip_bad=skip_bad)
        with writing(store) as memory:
            outcomes = apply_fiddlesticks(memory, plan)
    _tell_skipped(plan.name, plan.skipped)
    left_alone = [one for one in outcomes if one.why]
    for one in left_alone:
        _tell(f"{plan.name}: session {one.session_id!r} {one.why}; it was left alone")
    if json:
        for one in outcomes:
            print_json(
                {
                    "source": plan.name,
                    "session_id": one.session_id,
                    "fate": one.fate.value,
                    "messages_added": one.messages,
                    "events_added": one.events,
                    "why": one.why or None,
                    "skipped": [str(line) for line in plan.skipped],
                }
            )
    else:
        _show_fates(plan.name, outcomes)
    if left_alone:
        raise typer.Exit(FINDING)


def _show_fates(name: str, outcomes: Sequence[FiddlesticksOutcome]) -> None:
    from fmemory_tools._console import KIND, print_table, print_text
    from fmemory_tools.importers.plan import counted

    if not any(one.events or one.why for one in outcomes):
        words = f"already imported, {counted(len(outcomes), 'session')}"
        print_text(f"{name}: {words if outcomes else 'there are no sessions in it'}")
        return
    print_table(
        ["session", "messages", "events", ""],
        [
            [
                (one.session_id, KIND),
                f"+{one.messages}",
                f"+{one.events}",
                one.fate.value.replace("_", " "),
            ]
            for one in outcomes
        ],
        right=[1, 2],
        whole=True,
    )


@contextmanager
def _fiddlesticks_told(source: str) -> Iterator[None]:
    """A sign that work goes on, and one line for each thing wrong with the source."""
    from fmemory_tools._console import progress
    from fmemory_tools._failure import CANNOT_OPEN, FINDING, USAGE, Failure
    from fmemory_tools.importers import BadSource
    from fmemory_tools.importers._shape import FIDDLESTICKS, shape_of
    from fmemory_tools.importers.fiddlesticks import CannotRead, is_url

    path = Path(source)
    label = "PostgreSQL" if is_url(source) else path.name
    try:
        with progress(f"importing {label}"):
            yield
    except BadSource as bad:
        if not bad.lines and not is_url(source) and path.is_file():
            found = shape_of(path.read_bytes())
            if found is not None and found != FIDDLESTICKS:
                message = f"{label}: {advice_on(found, path)}; nothing was imported"
                raise Failure(message) from bad
        for line in bad.report():
            _tell(line)
        advice = "; --skip-bad leaves them out" if bad.skippable else ""
        raise Failure(
            f"{bad}; nothing was imported{advice}", FINDING if bad.lines else USAGE
        ) from bad
    except CannotRead as problem:
        raise Failure(f"{problem}; nothing was imported", CANNOT_OPEN) from problem


def _apply(plan: SessionsPlan, store: str | None, *, json: bool) -> None:
    from fmemory_tools._console import KIND, print_json, print_table, print_text
    from fmemory_tools._store import writing
    from fmemory_tools._summary import show_status
    from fmemory_tools.importers.apply import apply_sessions

    with writing(store) as memory:
        outcomes = apply_sessions(memory, plan)
        states = [memory.load_bootstrap_state(one.session_id) for one in outcomes]
    _tell_skipped(plan.source.name, plan.source.skipped)
    if plan.source.unfinished is not None:
        line = f"line {plan.source.unfinished} is not finished"
        _tell(f"{plan.source.name}: {line}; it is left to the next import")
    if json:
        for outcome in outcomes:
            print_json(
                {
                    "file": plan.source.name,
                    "session_id": outcome.session_id,
                    "created": outcome.created,
                    "messages_added": outcome.messages,
                    "events_added": outcome.events,
                    "skipped_lines": [line.number for line in plan.source.skipped],
                    "unfinished_line": plan.source.unfinished,
                }
            )
        return
    if not any(outcome.events for outcome in outcomes):
        names = ", ".join(outcome.session_id for outcome in outcomes)
        print_text(f"{plan.source.name}: already imported as {names}")
        return
    print_table(
        ["session", "messages", "events", "status"],
        [
            [
                (outcome.session_id, KIND),
                f"+{outcome.messages}",
                f"+{outcome.events}",
                show_status(state.checkpoints[-1].to_dict()) if state.checkpoints else "",
            ]
            for outcome, state in zip(outcomes, states, strict=True)
        ],
        right=[1, 2],
        whole=True,
    )


@contextmanager
def _told(file: Path, kind: str) -> Iterator[Callable[[int], None]]:
    """A progress bar over the bytes of the file, and one line for each thing wrong with it."""
    from fmemory_tools._console import progress
    from fmemory_tools._failure import FINDING, USAGE, Failure
    from fmemory_tools.importers import BadSource
    from fmemory_tools.importers._shape import WORDS, shape_of
    from fmemory_tools.importers.apply import Differs

    try:
        with progress(f"importing {file.name}", file.stat().st_size) as advance:
            yield advance
    except BadSource as bad:
        found = kind if bad.skippable else shape_of(file.read_bytes())
        if found is not None and found != kind:
            raise Failure(f"{file.name}: {advice_on(found, file)}; nothing was imported") from bad
        if found is None and bad.lines:
            problem = f"this is not {WORDS[kind]} ({bad.lines[0]})"
            raise Failure(f"{file.name}: {problem}; nothing was imported") from bad
        for line in bad.report():
            _tell(line)
        advice = "; --skip-bad leaves them out" if bad.skippable else ""
        raise Failure(
            f"{bad}; nothing was imported{advice}", FINDING if bad.lines else USAGE
        ) from bad
    except Differs as differs:
        raise Failure(f"{file.name}: {differs}", FINDING) from differs


def advice_on(found: str, file: Path) -> str:
    """What a file looks like, and the command for it."""
    from fmemory._shell import shell_word
    from fmemory_tools.importers._shape import COMMANDS, WORDS

    command = COMMANDS[found].format(shell_word(str(file)))
    return f"this looks like {WORDS[found]}: use `fmemory {command}`"


def _tell_skipped(name: str, skipped: Sequence[BadLine]) -> None:
    """Places that were left out on request are still named."""
    for line in skipped[:20]:
        _tell(f"{name}: skipped {line}")
    if len(skipped) > 20:
        _tell(f"{name}: skipped {len(skipped) - 20} more")


def _tell(line: str) -> None:
    """One line on stderr, whatever is in it."""
    from fmemory_tools._failure import one_line

    typer.echo(one_line(line), err=True)
