"""Each command on a small store: what it prints, for people and as JSON, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmemory
from tests.tools.helpers import Command, bytes_of

READING = [
    ["log"],
    ["log", "--all", "--utc"],
    ["log", "--session", "login", "--type", "progress_appended", "--type", "checkpoint_recorded"],
    ["log", "--namespace", "ui"],
    ["log", "--stream", "records"],
    ["log", "--actor", "bob", "--run", "run-2"],
    ["log", "--since", "1h ago", "--until", "2200-01-01T00:00", "--after", "3"],
    ["show", "1"],
    ["show", "3"],
    ["show", "4"],
    ["show", "10"],
    ["sessions"],
    ["runs"],
    ["runs", "--session", "login", "--sort", "errors", "--status", "open", "--actor", "bob"],
    ["report"],
    ["report", "run-2", "--session", "login"],
    ["state"],
    ["state", "--at", "7", "--session", "login"],
    ["state", "--at", "0s ago"],
    ["diff", "7", "9"],
    ["diff", "0", "9"],
    ["diff", "9", "7"],
    ["diff", "9", "9"],
    ["history"],
    ["history", "--session", "login"],
    ["history", "--record", "n1"],
    ["history", "--record", "n2", "--namespace", "ui"],
    ["tail", "--count", "5", "--from", "2"],
    ["tail", "--count", "3"],
    ["verify"],
    ["stats"],
    ["transcript"],
    ["transcript", "login", "--run", "run-1", "--last", "1"],
    ["transcript", "login", "--at", "8", "--whole", "--utc"],
    ["transcript", "login", "--raw"],
    ["blame"],
    ["blame", "login", "--all", "--utc"],
    ["blame", "login", "form"],
    ["blame", "login", "current_objective", "--at", "3"],
    ["bisect", "--ok", "1", "--bad", "9", "--grep", "done"],
    ["bisect", "--ok", "1", "--bad", "9", "--exec", "grep -vq done"],
    ["diff", "run-1", "run-2"],
    ["grep", "form"],
    ["grep", "-i", "-F", "FORM WORKS", "--in", "message", "--in", "progress"],
    ["grep", "nowhere"],
    ["records", "--namespace", "ui"],
    ["records", "--namespace", "ui", "--text", "LABEL", "--utc", "--at", "11"],
    ["tail", "--from", "1", "--until", "checkpoint_recorded"],
]

# Nothing matches, nothing differs, nothing is damaged.
SILENT = [["grep", "nowhere"], ["diff", "9", "9"], ["verify"]]


def lines(text: str) -> list[str]:
    return text.splitlines()


def objects(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_leaves_every_byte_of_the_store_as_it_was(
    arguments: list[str], store: Path, run: Command
) -> None:
    before = bytes_of(store)

    result = run(*arguments, "-s", store)

    assert result.exit_code in (0, 1), result.output
    assert bytes_of(store) == before


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_lines_fit_eighty_columns(arguments: list[str], store: Path, run: Command) -> None:
    result = run(*arguments, "-s", store)

    assert result.exit_code in (0, 1)
    # Commands to be copied are never cut.
    wide = [line for line in lines(result.stdout) if len(line) > 80]
    assert [line for line in wide if not line.startswith("  fmemory ")] == []
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("arguments", [one for one in READING if "--utc" not in one], ids=" ".join)
def test_json_is_one_object_a_line(arguments: list[str], store: Path, run: Command) -> None:
    result = run(*arguments, "--json", "-s", store)

    told = objects(result.stdout)
    assert all(isinstance(one, dict) for one in told)
    assert bool(told) is (arguments not in SILENT)
    assert result.stderr == ""


def test_log_shows_the_last_fifty_newest_last(tmp_path: Path, run: Command) -> None:
    with fmemory.open(tmp_path / "many", durability="os") as memory, memory.batch() as batch:
        for number in range(60):
            batch.append(("jobs",), [fmemory.NewEvent("job.done", {"number": number})])

    result = run("log", "--json", "-s", tmp_path / "many")

    assert [one["seq"] for one in objects(result.stdout)] == list(range(11, 61))
    everything = run("log", "--all", "--json", "-s", tmp_path / "many")
    assert [one["seq"] for one in objects(everything.stdout)] == list(range(1, 61))


def test_sessions_that_are_left_out_are_counted(tmp_path: Path, run: Command) -> None:
    path = tmp_path / "many"
    with fmemory.open(path, durability="os") as memory, memory.batch() as batch:
        for number in range(52):
            name = f"s{number}"
            batch.save_manifest(name, fmemory.SessionManifest(name, "main", "work"))

    result, plain = run("sessions", "-s", path), run("sessions", "--json", "-s", path)

    assert lines(result.stdout)[-1] == "2 older sessions; --all shows them"
    assert (len(lines(plain.stdout)), "2 older" in plain.stderr) == (50, True)
    assert "older" not in run("sessions", "--all", "-s", path).output


@pytest.mark.parametrize(
    ("arguments", "seqs"),
    [
        (["--type", "feature_pass_updated"], [4, 8]),
        (["--session", "login", "--after", "7"], [8, 9]),
        (["--actor", "bob"], [8, 9]),
        (["--run", "run-1"], [2, 3, 4, 5, 6, 7]),
        (["--stream", "session/login", "--type", "progress_appended"], [5]),
        (["--namespace", ""], [10]),
        (["--namespace", "ui"], [11]),
        (["--since", "2200-01-01T00:00Z"], []),
        (["--until", "2001-01-01T00:00Z"], []),
        (["--since", "1h ago", "--after", "10"], [11]),
    ],
    ids=str,
)
def test_log_filters(arguments: list[str], seqs: list[int], store: Path, run: Command) -> None:
    result = run("log", *arguments, "--json", "-s", store)

    assert result.exit_code == 0
    assert [one["seq"] for one in objects(result.stdout)] == seqs


def test_log_says_who_flipped_a_feature_and_why(store: Path, run: Command) -> None:
    result = run("log", "--type", "feature_pass_updated", "-s", store)

    (flip,) = [line for line in lines(result.stdout) if line.lstrip().startswith("8 ")]
    assert "bob" in flip and "run-2" in flip and "✓ token (looks done)" in flip


def test_show_says_everything_of_an_event(store: Path, run: Command) -> None:
    result = run("show", 8, "-s", store)

    for text in ("event 8", "feature_pass_updated", "session/login", "bob", "looks done", "token"):
        assert text in result.stdout


def test_show_json_is_the_event(store: Path, run: Command) -> None:
    result = run("show", 10, "--json", "-s", store)

    with fmemory.open(store, read_only=True) as memory:
        assert objects(result.stdout) == [memory.event(10).to_dict()]


def test_state_is_a_checklist(store: Path, run: Command) -> None:
    now, then = run("state", "-s", store), run("state", "--at", 7, "-s", store)

    assert "features: 2 of 2 passing" in now.stdout
    assert "✗ token" in then.stdout and "✓ form" in then.stdout
    assert "make logging in work" in then.stdout


def test_state_as_json_is_whole(store: Path, run: Command) -> None:
    (found,) = objects(run("state", "--json", "--last", 1, "-s", store).stdout)

    with fmemory.open(store, read_only=True) as memory:
        state = memory.load_bootstrap_state("login").to_dict()
    assert {key: found[key] for key in state} == state
    assert (found["message_count"], len(found["messages"])) == (3, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("a", "b", "code"), [(7, 9, 1), (9, 9, 0), (9, 7, 1), (10, 11, 0)])
def test_diff_exits_one_where_something_changed(
    a: int, b: int, code: int, store: Path, run: Command
) -> None:
    assert run("diff", a, b, "-s", store).exit_code == code


def test_diff_names_the_event_that_flipped_a_feature(store: Path, run: Command) -> None:
    changes = objects(run("diff", 7, 9, "--json", "-s", store).stdout)

    (flip,) = [change for change in changes if change["part"] == "feature"]
    assert (flip["name"], flip["by_event"]) == ("token", 8)
    text = run("diff", 7, 9, "-s", store).stdout
    assert "✗ → ✓" in text and "event 8 by bob: looks done" in text


def test_diff_from_nothing_shows_everything_as_added(store: Path, run: Command) -> None:
    changes = objects(run("diff", 0, 7, "--json", "-s", store).stdout)

    assert {change["change"] for change in changes} == {"added"}
    assert {change["part"] for change in changes} == {
        "manifest",
        "feature",
        "progress",
        "checkpoint",
        "message",
    }


def test_history_of_a_record_is_its_events(store: Path, run: Command) -> None:
    with fmemory.open(store) as memory:
        memory.delete(memory.delete_request(ids=("n2",), namespace=("ui",)))

    result = run("history", "--record", "n2", "--namespace", "ui", "--json", "-s", store)

    assert [one["type"] for one in objects(result.stdout)] == ["records_put", "records_deleted"]


def test_tail_begins_where_it_is_told(store: Path, run: Command) -> None:
    result = run("tail", "--from", 4, "--count", 2, "--json", "-s", store)

    assert [one["seq"] for one in objects(result.stdout)] == [4, 5]


def test_verify_finds_a_changed_byte_and_names_its_event(store: Path, run: Command) -> None:
    (segment,) = store.glob("seg-*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"the form works")] ^= 1
    segment.write_bytes(content)

    found = objects(run("verify", "--json", "-s", store).stdout)

    assert [one["first_seq"] for one in found if one["damage"]] == [5]
    result = run("verify", "-s", store)
    assert result.exit_code == 1
    *told, to_copy = lines(result.stdout)
    assert [line for line in told if len(line) > 80] == []
    assert to_copy == f"  fmemory repair NEW -s {store}"


def test_verify_works_on_a_store_that_does_not_open(store: Path, run: Command) -> None:
    (segment,) = store.glob("seg-*.log")
    segment.write_bytes(b"\xff" * 64 + segment.read_bytes()[64:])

    assert run("log", "-s", store).exit_code == 3
    assert run("verify", "-s", store).exit_code == 1


def test_a_pinned_head_is_found_again_and_another_is_not(store: Path, run: Command) -> None:
    (stats,) = objects(run("stats", "--json", "-s", store).stdout)
    head = str(stats["head"])

    assert run("verify", "--head", head, "-s", store).exit_code == 0
    assert run("verify", "--head", head[:-1] + "x", "-s", store).exit_code == 2
    other = head[:-1] + ("0" if head[-1] != "0" else "1")
    assert run("verify", "--head", other, "-s", store).exit_code == 1


def test_stats_count_events_and_records(store: Path, run: Command) -> None:
    (stats,) = objects(run("stats", "--json", "-s", store).stdout)

    assert (stats["head_seq"], stats["record_count"], stats["session_count"]) == (11, 2, 1)
    by_type = {one["type"]: one["event_count"] for one in stats["by_type"]}  # type: ignore[attr-defined]
    assert by_type["checkpoint_recorded"] == 2


def test_dump_and_load_carry_the_records(store: Path, tmp_path: Path, run: Command) -> None:
    file, other = tmp_path / "notes.jsonl.gz", tmp_path / "other"

    assert run("dump", file, "-s", store).exit_code == 0
    assert run("load", file, "--namespace", "moved/here", "-s", other).exit_code == 0

    with fmemory.open(other, read_only=True) as memory:
        (record,) = memory.iter_all(namespace=("moved", "here"))
    assert (record.id, record.vector.tolist()) == ("n1", [1.0, 0.0])


def test_dump_does_not_replace_a_file_unless_told_to(
    store: Path, tmp_path: Path, run: Command
) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text("mine")

    assert run("dump", file, "-s", store).exit_code == 2
    assert file.read_text() == "mine"
    assert run("dump", file, "--force", "-s", store).exit_code == 0
    assert file.read_text() != "mine"


def test_dump_to_standard_output_is_the_file(store: Path, tmp_path: Path, run: Command) -> None:
    file = tmp_path / "notes.jsonl"
    run("dump", file, "-s", store)

    result = run("dump", "-", "-s", store)

    first, *rest = lines(file.read_text())
    header, *records = lines(result.stdout)
    assert json.loads(header)["count"] == json.loads(first)["count"]
    assert records == rest
