"""Commands that read runs: what they print, on which streams, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmemory
from fmemory import Message, NewEvent, ProgressEntry, ToolCall
from tests.tools.helpers import Command, only_line


def objects(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_hostile_text_reaches_the_terminal_only_escaped(store: Path, run: Command) -> None:
    bad = "\x1b[2J\x07form\u202e\x9b1m"
    with fmemory.open(store) as memory, fmemory.audit(actor=bad, run_id=bad, reason=bad):
        call = ToolCall("c", bad, {bad: bad})
        answer = Message("tool", bad, tool_call_id="c", is_error=True)
        memory.append_transcript_messages(
            bad, [Message("assistant", bad, tool_calls=[call]), answer]
        )
        memory.replace_feature_list(bad, [fmemory.FeatureRecord(bad, bad, bad)])
        memory.append_progress_entry(bad, fmemory.ProgressEntry(bad, bad))
        memory.append(("session", bad), [NewEvent("a.b", {bad: bad})])
        memory.add_note(bad, [1.0], id=bad)
        memory.update_feature_pass(bad, bad, True)
        memory.update_feature_pass(bad, bad, False)

    is_12 = r"""grep -Eq '"seq": 12\b'"""
    unknown = ["blame", bad, "nobody"]
    for arguments in (
        ["transcript", bad],
        ["blame", bad],
        ["blame", bad, "--all"],
        unknown,
        ["diff", "run-1", bad],
        ["grep", "form"],
        ["records"],
        ["bisect", "--session", bad, "--ok", "12", "--bad", "14", "--exec", is_12],
        ["bisect", "--session", bad, "--ok", "17", "--bad", "18", "--feature", bad],
        ["tail", "--from", "12", "--count", "5"],
    ):
        result = run(*arguments, "-s", store)
        assert result.exit_code in ((2,) if arguments is unknown else (0, 1)), arguments
        assert "␛[2J␇" in result.output, arguments
        steering = [one for one in result.output if not one.isprintable() and one not in "\n"]
        assert not steering, arguments


@pytest.fixture
def damaged(store: Path) -> Path:
    """The store with a changed byte in the first answer of run-1, event 6."""
    (segment,) = store.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.rindex(b"the form works")] ^= 1
    segment.write_bytes(content)
    return store


@pytest.mark.parametrize(
    "arguments",
    [["transcript"], ["grep", "form"], ["diff", "run-1", "run-2"], ["grep", "nowhere"]],
    ids=" ".join,
)
def test_what_can_be_read_is_shown_and_damage_is_named(
    arguments: list[str], damaged: Path, run: Command
) -> None:
    result = run(*arguments, "-s", damaged)

    assert result.exit_code == 1
    assert "event 6 is damaged" in result.stderr
    assert result.stdout or arguments == ["grep", "nowhere"]


@pytest.mark.parametrize(
    "arguments",
    [["blame"], ["records", "--namespace", "ui"], ["grep", "label", "--in", "note"]],
    ids=" ".join,
)
def test_what_does_not_touch_the_damage_is_fine(
    arguments: list[str], damaged: Path, run: Command
) -> None:
    result = run(*arguments, "-s", damaged)

    assert (result.exit_code, result.stderr) == (0, "")


# blame


def test_blame_names_event_actor_run_and_reason(store: Path, run: Command) -> None:
    lines = run("blame", "login", "form", "-s", store).stdout.splitlines()

    assert lines[0] == "session login"
    assert lines[1].startswith("event 4  ")
    assert lines[1].endswith(" by ada in run run-1  2 tests passed")
    assert lines[2] == "  feature   form             ✓ passes"


def test_blame_as_json_is_one_attribution_a_line(store: Path, run: Command) -> None:
    found = objects(run("blame", "login", "token", "--all", "--json", "-s", store).stdout)

    assert [(one["field"], one["seq"], one["before"], one["after"]) for one in found] == [
        ("passes", 1, None, False),
        ("definition", 1, None, {"category": "api", "description": "a token", "steps": []}),
        ("passes", 8, False, True),
    ]


def test_blame_of_a_name_alone_is_of_the_only_session(store: Path, run: Command) -> None:
    for name in ("form", "current_objective"):
        alone = run("blame", name, "--all", "-s", store)
        assert (alone.exit_code, alone.stderr) == (0, "")
        assert alone.stdout == run("blame", "login", name, "--all", "-s", store).stdout
    assert "no session 'nobody'" in only_line(run("blame", "nobody", "-s", store).stderr)

    with fmemory.open(store) as memory:
        memory.session("other").append_progress_entry(ProgressEntry("r", "begun"))
    assert "no session 'form'" in only_line(run("blame", "form", "-s", store).stderr)


def test_blame_of_an_unknown_name_is_wrong_usage(store: Path, run: Command) -> None:
    result = run("blame", "login", "fomr", "-s", store)

    assert result.exit_code == 2
    assert "there are: form, token" in only_line(result.stderr)


# grep


def test_grep_prints_a_line_for_each_text(store: Path, run: Command) -> None:
    result = run("grep", "form works", "-s", store)

    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        ["session login", "5  progress run-1  the form works", "6  assistant  the form works"],
    )


def test_grep_exits_with_1_where_nothing_matches(store: Path, run: Command) -> None:
    result = run("grep", "nowhere", "-s", store)

    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "")


def test_grep_says_that_there_is_more(store: Path, run: Command) -> None:
    result = run("grep", "form", "--limit", "1", "-s", store)

    assert result.exit_code == 0
    assert "--limit" in only_line(result.stderr)


def test_grep_tells_what_was_erased(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.delete(memory.delete_request(["n1"]))
        memory.compact()

    result = run("grep", "tokens", "-s", store)

    assert result.exit_code == 1
    assert only_line(result.stderr) == "fmemory: not searched, as erased: event 10"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["("], "to look for it as it is written, give -F"),
        ([""], "expected a text"),
        (["a", "--in", "notes"], "--in: expected message, note"),
        (["a", "--since", "x"], "--since: expected a time"),
        (["a", "--session", "x"], "no session 'x'"),
        (["a", "--limit", "0"], "1 or more for --limit"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_grep_refuses_what_it_cannot_take(
    arguments: list[str], words: str, store: Path, run: Command
) -> None:
    result = run("grep", *arguments, "-s", store)

    assert result.exit_code == 2
    assert words in only_line(result.stderr)


# records


def test_records_of_other_namespaces_are_counted_on_stderr(store: Path, run: Command) -> None:
    result = run("records", "-s", store)

    assert result.exit_code == 0
    assert "tokens last an hour" in result.stdout
    assert "1 record of namespace ui (1) not shown" in only_line(result.stderr)


def test_records_near_one_have_a_score(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.add_note("labels", [0.0, 2.0], id="n3", namespace=("ui",))

    result = run("records", "--namespace", "ui", "--near", "n2", "--json", "-s", store)

    (found,) = objects(result.stdout)
    assert found["score"] == pytest.approx(1.0)
    assert isinstance(found["record"], dict)
    assert found["record"]["note"]["id"] == "n3"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--namespace", "u"], 1, "there are: ui"),
        (["--near", "nobody"], 2, "got 'nobody'"),
        (["--since", "yesterday"], 2, "--since: expected a time"),
        (["--since", "2026-01-02T00:00Z", "--until", "2026-01-01T00:00Z"], 2, "TimeRange"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_records_refuses_what_is_not_there(
    arguments: list[str], code: int, words: str, store: Path, run: Command
) -> None:
    result = run("records", *arguments, "-s", store)

    assert result.exit_code == code
    assert words in result.stderr
