"""The `fmemory` command: options before the command, and the commands.

Everything that takes time to import is imported by the command that needs it.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fmemory_tools._options import STORE_HELP, examples
from fmemory_tools._usage import Command, Commands
from fmemory_tools.commands import (
    backup,
    bisect,
    blame,
    compact,
    copy,
    demo,
    diff,
    dump,
    fork,
    grep,
    head,
    history,
    html,
    imports,
    keygen,
    load,
    log,
    records,
    repair,
    report,
    runs,
    sessions,
    show,
    state,
    stats,
    step,
    tail,
    transcript,
    verify,
)

EPILOG = examples(
    "fmemory demo                          a true story in twenty lines",
    "fmemory log --since '10m ago'         what was written lately",
    "fmemory report RUN                    what a run did, and where it broke",
    "fmemory state --at 812                a session as it was after event 812",
    "fmemory import claude-code run.jsonl -s ./memory",
    note="Exit codes: 0 fine, 1 a finding or difference, 2 wrong usage, 3 cannot open.",
)


app = typer.Typer(
    name="fmemory",
    cls=Commands,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 90},
)
import_app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=imports.EPILOG,
    help=imports.HELP,
)

app.command(cls=Command, epilog=demo.EPILOG)(demo.demo)
app.command(cls=Command, epilog=log.EPILOG)(log.log)
app.command(cls=Command, epilog=show.EPILOG)(show.show)
app.command(cls=Command, epilog=sessions.EPILOG)(sessions.sessions)
app.command(cls=Command, epilog=runs.EPILOG)(runs.runs)
app.command(cls=Command, epilog=report.EPILOG)(report.report)
app.command(cls=Command, epilog=html.EPILOG)(html.html)
app.command(cls=Command, epilog=state.EPILOG)(state.state)
app.command(cls=Command, epilog=diff.EPILOG)(diff.diff)
app.command(cls=Command, epilog=history.EPILOG)(history.history)
app.command(cls=Command, epilog=step.EPILOG)(step.step)
app.command(cls=Command, epilog=tail.EPILOG)(tail.tail)
app.command(cls=Command, epilog=transcript.EPILOG)(transcript.transcript)
app.command(cls=Command, epilog=blame.EPILOG)(blame.blame)
app.command(cls=Command, epilog=bisect.EPILOG)(bisect.bisect)
app.command(cls=Command, epilog=grep.EPILOG)(grep.grep)
app.command(cls=Command, epilog=records.EPILOG)(records.records)
app.command(cls=Command, epilog=fork.EPILOG)(fork.fork)
app.command(cls=Command, epilog=verify.EPILOG)(verify.verify)
app.command(cls=Command, epilog=head.EPILOG)(head.head)
app.command(cls=Command, epilog=keygen.EPILOG)(keygen.keygen)
app.command(cls=Command, epilog=stats.EPILOG)(stats.stats)
app.command(cls=Command, epilog=compact.EPILOG)(compact.compact)
app.command(cls=Command, epilog=backup.EPILOG)(backup.backup)
app.command(cls=Command, epilog=repair.EPILOG)(repair.repair)
app.command(cls=Command, epilog=copy.EPILOG)(copy.copy)
app.command(cls=Command, epilog=dump.EPILOG)(dump.dump)
app.command(cls=Command, epilog=load.EPILOG)(load.load)
import_app.command("notes", cls=Command, epilog=imports.NOTES_EPILOG)(imports.notes)
import_app.command("claude-code", cls=Command, epilog=imports.CLAUDE_CODE_EPILOG)(
    imports.claude_code
)
import_app.command("swe-agent", cls=Command, epilog=imports.SWE_AGENT_EPILOG)(imports.swe_agent)
import_app.command("fiddlesticks", cls=Command, epilog=imports.FIDDLESTICKS_EPILOG)(
    imports.fiddlesticks
)
app.add_typer(import_app, name="import")


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version as version_of

        typer.echo(f"fmemory {version_of('fmemory')}")
        raise typer.Exit


@app.callback()
def fmemory(
    ctx: typer.Context,
    store: Annotated[
        str | None,
        typer.Option("-s", "--store", metavar="PATH", help=STORE_HELP, show_default=False),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Look into the memory of an agent: what it wrote, when, in which run, and why."""
    del version  # Its callback has ended the command.
    if store is not None and isinstance(ctx.command, TyperGroup):
        # The store may be named before the command as well as after it.
        ctx.default_map = _defaults(ctx.command, {"store": store})


def _defaults(group: TyperGroup, values: dict[str, str]) -> dict[str, Any]:
    """Default values of every command below a group, in the shape that the parser looks them up."""
    return {
        name: _defaults(command, values) if isinstance(command, TyperGroup) else values
        for name, command in group.commands.items()
    }


def main() -> None:
    """Run the command; the entry point of the distribution."""
    import sys

    from fmemory_tools._failure import replace_closed_streams

    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal that cannot show a character gets an escape instead of a traceback.
            reconfigure(errors="backslashreplace")
    app(prog_name="fmemory")
