"""What the commands that find what broke a run say to a person who mistypes a name or a place."""

from __future__ import annotations

from pathlib import Path
from shlex import split

import pytest

import fmemory
from fmemory import Message, Role
from tests.tools.helpers import Command, only_line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["bisect", "--ok", "4", "--bad", "9", "--feature", "frm"],
            (
                "no feature 'frm' in session 'login' after event 4, which --ok says is well;"
                " there are: form"
            ),
        ),
        (
            ["bisect", "--ok", "0", "--bad", "9", "--feature", "form"],
            (
                "no feature 'form' in session 'login' after event 0, which --ok says is well;"
                " it has none"
            ),
        ),
        (
            ["transcript", "login", "--run", "nosuch"],
            "no run 'nosuch' in session 'login'; there are: run-1, run-2",
        ),
        (["grep", "form", "--run", "nosuch"], "no run 'nosuch'; there are: run-1, run-2"),
        (
            ["transcript", "run-2"],
            "no session 'run-2', but a run of login is called so; there are: login",
        ),
        (["blame", "nosuch"], "no session 'nosuch'; there are: login"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_name_that_is_not_there_is_told_with_those_that_are(
    arguments: list[str], told: str, store: Path, run: Command
) -> None:
    result = run(*arguments, "-s", store)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"fmemory: {told}")


@pytest.mark.parametrize("command", [["report"], ["transcript"], ["blame"]], ids=" ".join)
def test_an_id_as_a_table_shortens_it_is_known(
    command: list[str], store: Path, run: Command
) -> None:
    whole = run(*command, "login", "-s", store)
    short = run(*command, "lo…in", "-s", store)

    assert (short.exit_code, short.stdout) == (whole.exit_code, whole.stdout)
    assert run(*command, "lo…xx", "-s", store).exit_code == 2


def test_a_run_that_says_nothing_like_it_is_no_mistake(store: Path, run: Command) -> None:
    result = run("grep", "nowhere", "--run", "run-1", "-s", store)

    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "")


def test_a_page_for_a_folder_that_is_not_there(store: Path, run: Command, tmp_path: Path) -> None:
    place = tmp_path / "nodir"

    result = run("html", "-o", place / "page.html", "-s", store)

    assert (result.exit_code, result.stderr) == (
        2,
        f"fmemory: there is no folder {place}: make it first, or give another -o FILE\n",
    )
    assert not place.exists()


def test_what_bisect_prints_to_go_on_with_runs(store: Path, run: Command) -> None:
    told = run("bisect", "--ok", "1", "--bad", "9", "--grep", "done", "-s", store)

    command = told.stdout.splitlines()[-1]
    assert command.startswith("  fmemory show ")
    shown = run(*split(command)[1:])
    assert shown.exit_code == 0


def test_tail_says_that_its_first_event_is_still_to_come(
    store: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmemory_tools.commands.tail._following", lambda *_: iter(()))

    late = run("tail", "--from", "99", "-s", store)
    next_one = run("tail", "--from", "12", "-s", store)

    assert late.stderr == "fmemory: waiting for event 99: the newest is 11\n"
    assert next_one.stderr == ""


ASKING = [
    ["transcript"],
    ["blame"],
    ["step", "--json"],
    ["state"],
    ["report"],
    ["history"],
    ["diff", "2", "12"],
    ["bisect", "--ok", "1", "--bad", "9", "--feature", "form"],
]


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_the_hint_which_session_names_what_the_command_takes(
    command: list[str], store: Path, run: Command
) -> None:
    with fmemory.open(store) as memory:
        memory.append_transcript_messages("signup", [Message(Role.USER, "hello")])

    told = run(*command, "-s", store)
    hint = told.stderr.partition("which session? give ")[2].partition(", one of: ")
    assert (told.exit_code, hint[1]) == (2, ", one of: ")
    assert "login" in hint[2].strip().split(", ")
    taken = [word.replace("SESSION", "login") for word in hint[0].split()]
    followed = run(*command, *(word.replace("ID", "login") for word in taken), "-s", store)

    assert "which session" not in followed.stderr
    assert "there is no option" not in followed.stderr
    assert followed.stdout


@pytest.mark.parametrize("command", ["transcript", "blame"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_deleted_session_is_told_in_the_words_of_state(
    command: str, form: list[str], store: Path, run: Command
) -> None:
    with fmemory.open(store) as memory:
        memory.delete_session("login")
    told = run("state", "--session", "login", "-s", store).stderr
    assert "session login is deleted as of event" in told

    result = run(command, "login", *form, "-s", store)

    assert (result.exit_code, result.stderr) == (0, told)


@pytest.mark.parametrize("command", ["transcript", "blame"])
def test_a_session_that_is_there_is_not_told_to_be_deleted(
    command: str, store: Path, run: Command
) -> None:
    assert run(command, "login", "-s", store).stderr == ""
    assert run(command, "login", "--at", "1", "-s", store).stderr == ""


def test_a_run_is_looked_for_in_the_session_that_is_given(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory, fmemory.audit(run_id="night"):
        memory.add_note("found the cause", id="cause")
        for session in ("signup", "logout"):
            memory.append_transcript_messages(session, [Message(Role.USER, "hello")])

    def told(*arguments: str) -> str:
        result = run("report", *arguments, "-s", store)
        assert (result.exit_code, result.stdout) == (2, "")
        return only_line(result.stderr)

    assert told("x", "--session", "") == (
        "fmemory: no run that wrote to no session: 'x'; there are: night"
    )
    assert told("x", "--session", "login") == (
        "fmemory: no run of session login: 'x'; there are: run-1, run-2"
    )
    assert told("x").startswith("fmemory: no run or session 'x'; there are: ")
    beginning, whole = (run("report", one, "--session", "", "-s", store) for one in ("ni", "night"))
    assert (beginning.exit_code, beginning.stdout) == (0, whole.stdout)
    assert "none: it wrote to no session" in whole.stdout
