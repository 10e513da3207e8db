"""What the panes say of an event and of a state, as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fmemory._message_parts import text_of_blocks
from fmemory_tools._console import BAD, FAINT, GOOD, KIND, NUMBER, STRONG, WHO
from fmemory_tools._damage import Damaged
from fmemory_tools._summary import FORGOTTEN_TYPE, describe_checkpoint, shorten
from fmemory_tools._times import show_time
from fmemory_tools.stepper.brief import (
    LOST_TYPE,
    answers_of,
    brief,
    is_error,
    messages_of,
    says_error,
)
from fmemory_tools.stepper.lines import Line, Span, line, text_lines
from fmemory_tools.stepper.values import value_lines

if TYPE_CHECKING:
    from fmemory import Event
    from fmemory._json_values import JsonObject, JsonValue
    from fmemory.replay import Delta
    from fmemory_tools.stepper.states import Snapshot, Told

PANE_CHARACTERS_MAX: Final = 20_000
"""So much of an event is in a pane; the pager has all of it."""
OBJECTIVE_CHARACTERS_MAX: Final = 160
ENTRY_CHARACTERS_MAX: Final = 160
BYTES_SHOWN: Final = 4096
MESSAGE_CHARACTERS_MAX: Final = 80
NO_BREAK: Final = "\u00a0"
_KNOWN_BLOCKS: Final = frozenset({"text", "thinking", "tool_use", "tool_result"})


def event_lines(event: Event | Damaged | None, told: Told, *, utc: bool) -> Iterator[Line]:
    """An event whole: who, when and why, what it changed, and what it holds."""
    if event is None:
        yield line(("no event", FAINT))
        return
    if isinstance(event, Damaged):
        yield line((str(event), BAD))
        return
    yield from _head_lines(event, utc=utc)
    change = told.change
    if event.type in (FORGOTTEN_TYPE, LOST_TYPE):
        yield line((brief(event)[1], FAINT))
    elif event.lost:
        yield line(("its data is lost: a repair found it damaged", BAD))
    elif event.erased:
        yield line(("its data were erased: what it was is known by its digest only", FAINT))
    elif change is None:
        yield from _problem_lines(told)
    if change is not None:
        for delta in change.deltas:
            yield from delta_lines(delta)
        if not change.deltas and not change.erased:
            yield line(("it changed nothing of the state", FAINT))
    yield from _held_lines(event)


def delta_lines(delta: Delta) -> Iterator[Line]:
    """One thing that an event changed."""
    match delta.part:
        case "passes":
            yield _flip_line(delta)
        case "transcript":
            yield line(("messages ", FAINT), f"{delta.before} → {delta.after}")
        case "message":
            # The event shows its messages whole.
            return
        case "checkpoint" | "progress":
            value = delta.before if delta.after is None else delta.after
            sign, style = ("+ ", GOOD) if delta.before is None else ("- ", BAD)
            yield line((sign, style), (f"{delta.part} {delta.name} ", FAINT), _entry_words(value))
        case "order":
            yield line(("order of the features changed", FAINT))
        case _:
            yield from _field_lines(delta)


def state_lines(state: Snapshot | None, told: Told) -> Iterator[Line]:
    """A session as it was after an event; what the event changed is marked."""
    deltas = () if told.change is None else told.change.deltas
    new = {(delta.part, delta.name) for delta in deltas}
    yield from _problem_lines(told)
    if state is None:
        return
    yield from _manifest_lines(state, {name for part, name in new if part == "manifest"})
    if state.features:
        changed = {name for part, name in new if part in ("passes", "feature")}
        yield from _feature_lines(state, changed)
    yield from _checkpoint_lines(state, {name for part, name in new if part == "checkpoint"})
    yield from _progress_lines(state, {name for part, name in new if part == "progress"})
    yield from _message_lines(state, {name for part, name in new if part == "message"})


def limited(lines: Iterable[Line], characters_max: int, *, more: str) -> list[Line]:
    """Lines up to so many characters; where there is more of them, a last one says so."""
    found: list[Line] = []
    left = characters_max
    for one in lines:
        if left <= 0:
            found.append(line((more, KIND)))
            break
        length = sum(len(text) for text, _ in one.spans)
        found.append(one if length <= left else _first_characters(one, left))
        # An empty line takes room too.
        left -= max(length, 20)
    else:
        if left < 0:
            found.append(line((more, KIND)))
    return found


def _first_characters(one: Line, characters: int) -> Line:
    spans: list[Span] = []
    for text, style in one.spans:
        spans.append((text[:characters], style))
        characters -= len(text)
        if characters <= 0:
            break
    return Line(tuple(spans), one.indent, one.hang, one.is_new)


# Events


def _head_lines(event: Event, *, utc: bool) -> Iterator[Line]:
    occurred = event.occurred_at
    when = show_time(event.recorded_at if occurred is None else occurred, utc=utc)
    # A time is not broken where its line is.
    yield line((event.type, KIND), (f" {when.replace(' ', NO_BREAK)}", FAINT))
    who: list[Span] = []
    if event.actor is not None:
        who += [("by ", FAINT), (event.actor, WHO)]
    # Importers call a run as its session.
    if event.run_id is not None and event.stream[1:] != (event.run_id,):
        who += [(" in run " if who else "in run ", FAINT), (event.run_id, WHO)]
    if who:
        yield line(*who)
    if event.reason is not None:
        yield line(("why ", FAINT), (event.reason, STRONG))
    if occurred is not None:
        yield line((f"recorded {show_time(event.recorded_at, utc=utc)}", FAINT))


def _problem_lines(told: Told) -> Iterator[Line]:
    if told.problem:
        yield line((told.problem, BAD))


def _held_lines(event: Event) -> Iterator[Line]:
    """What an event holds beside what the changes tell: messages, or data of the caller's own."""
    if event.type == "transcript_appended" and isinstance(event.data, dict):
        for message in messages_of(event.data):
            yield from message_lines(message)
    elif isinstance(event.data, bytes):
        first = event.data[:BYTES_SHOWN]
        cut = f", the first {BYTES_SHOWN:,} of them" if len(event.data) > BYTES_SHOWN else ""
        yield line((f"{len(event.data):,} bytes{cut}", FAINT))
        yield from text_lines(first.hex(" ", -4), indent=2)
    elif "." in event.type and event.data is not None:
        yield line(("its data", FAINT))
        yield from value_lines(event.data, indent=2)


def message_lines(message: JsonObject) -> Iterator[Line]:
    """A message whole: who speaks, thinking, text, calls with their arguments, results."""
    role = str(message.get("role", ""))
    name = message.get("name")
    failed: tuple[Span, ...] = (("  error", BAD),) if says_error(message) else ()
    yield line((role, STRONG), (f" {name}" if name else "", WHO), *failed)
    found = message.get("blocks")
    blocks = found if isinstance(found, list) else []
    kinds = [str(one.get("type")) if isinstance(one, dict) else "block" for one in blocks]
    style = BAD if is_error(message) else ""
    content = str(message.get("content", ""))
    if blocks and _KNOWN_BLOCKS.issuperset(kinds):
        if content.strip() and content != text_of_blocks(blocks):
            yield from text_lines(content, indent=2, style=style)
        yield from _blocks_lines(message, blocks, style)
    else:
        yield from text_lines(content, indent=2, style=style)
        if blocks:
            yield line((f"blocks: {', '.join(dict.fromkeys(kinds))}", FAINT), indent=2)
        blocks = []
    told = {one.get("id") for one in blocks if isinstance(one, dict)}
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict) and call.get("id") not in told:
            yield from _call_lines(call.get("name"), call.get("arguments"))


def _blocks_lines(message: JsonObject, blocks: list[JsonValue], style: str) -> Iterator[Line]:
    """Blocks of known kinds; the style is that of text where the message itself is an answer."""
    answers = iter(answers_of(message))
    has_results = any(isinstance(one, dict) and one.get("type") == "tool_result" for one in blocks)
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_result":
            answer = next(answers, None)
            failed = block.get("is_error") is True if answer is None else answer.is_error
            yield line(("← result", KIND), indent=2)
            yield from _result_lines(block.get("content"), BAD if failed else "")
        else:
            yield from _block_lines(block, "" if has_results else style)


def _block_lines(block: JsonObject, style: str) -> Iterator[Line]:
    match block.get("type"):
        case "text":
            text = str(block.get("text", "")).strip("\n")
            yield from text_lines(text, indent=2, style=style)
        case "thinking":
            thought = str(block.get("thinking", "")).strip("\n")
            yield line(("thinking", FAINT), indent=2)
            yield from text_lines(thought, indent=4, style=FAINT)
        case _:
            yield from _call_lines(block.get("name"), block.get("input"))


def _result_lines(content: JsonValue, style: str) -> Iterator[Line]:
    for one in content if isinstance(content, list) else [content]:
        text = one.get("text") if isinstance(one, dict) else one
        if isinstance(text, str):
            yield from text_lines(text, indent=4, style=style)
        elif one is not None:
            yield from value_lines(one, indent=4)


def _call_lines(name: JsonValue, arguments: JsonValue) -> Iterator[Line]:
    yield line(("→ ", KIND), (str(name), KIND), indent=2)
    yield from value_lines(arguments, indent=4)


# Changes


def _flip_line(delta: Delta) -> Line:
    if delta.after is None:
        return line(("- ", BAD), f"{delta.name} is not a feature any more")
    mark, style, word = ("✓", GOOD, "passes") if delta.after is True else ("✗", BAD, "fails")
    if delta.before is None:
        return line((f"{mark} ", style), (delta.name, STRONG), f" {word}, new")
    was = "passed" if delta.before is True else "did not pass"
    return line((f"{mark} ", style), (delta.name, STRONG), f" {word} now, it {was}")


def _field_lines(delta: Delta) -> Iterator[Line]:
    label: Span = (f"{delta.part} {delta.name}", FAINT)
    before, after = _words(delta.before), _words(delta.after)
    if delta.before is None:
        yield line(("+ ", GOOD), label, (": " if after else "", FAINT), after)
    elif delta.after is None:
        yield line(("- ", BAD), label, (": " if before else "", FAINT), before)
    else:
        yield line(label)
        yield line(("- ", BAD), before, indent=2)
        yield line(("+ ", GOOD), after, indent=2)


def _words(value: JsonValue) -> str:
    """A value on one line; of a feature its description."""
    if isinstance(value, dict) and "description" in value and "category" in value:
        value = value["description"]
    if value in (None, "", [], {}):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _entry_words(value: JsonValue) -> str:
    """A progress entry or checkpoint in words, with its run."""
    if not isinstance(value, dict):
        return _words(value)
    words = value.get("summary") or describe_checkpoint(value)
    return f"{value.get('run_id')}: {words}"


# States


def _gutter(*, is_new: bool) -> Span:
    return ("▸ ", KIND) if is_new else ("  ", "")


def _entry(*spans: Span | str, is_new: bool = False) -> Line:
    return line(_gutter(is_new=is_new), *spans, hang=4, is_new=is_new)


def _manifest_lines(state: Snapshot, changed: set[str]) -> Iterator[Line]:
    manifest = state.manifest
    if not manifest:
        yield line(("no manifest", FAINT))
        return
    objective = shorten(str(manifest.get("current_objective", "")), OBJECTIVE_CHARACTERS_MAX)
    yield line((objective, STRONG), hang=0, is_new="current_objective" in changed)
    facts = [f"branch {manifest.get('active_branch')}", str(manifest.get("harness_version"))]
    commit = manifest.get("last_known_good_commit")
    if isinstance(commit, str):
        facts.append(f"good commit {commit[:12]}")
    told = [one for one in changed if one != "current_objective"]
    yield line((" · ".join(facts), FAINT), is_new=bool(told))


def _feature_lines(state: Snapshot, changed: set[str]) -> Iterator[Line]:
    passing = sum(one.passes for one in state.features)
    yield _heading("features", f"{passing} of {len(state.features)} pass")
    for one in state.features:
        mark = ("✓ ", GOOD) if one.passes else ("✗ ", BAD)
        text = shorten(one.description, ENTRY_CHARACTERS_MAX)
        yield _entry(mark, (one.id, STRONG), (f" {text}", FAINT), is_new=one.id in changed)


def _checkpoint_lines(state: Snapshot, changed: set[str]) -> Iterator[Line]:
    if not state.checkpoint_count:
        return
    yield _heading("checkpoints", _how_many(state.checkpoint_count, state.checkpoints))
    first = state.checkpoint_count - len(state.checkpoints) + 1
    for number, one in enumerate(state.checkpoints, first):
        failed = isinstance(one, dict) and one.get("status") == "failed"
        words = shorten(_entry_words(one), ENTRY_CHARACTERS_MAX)
        yield _entry((words, BAD if failed else ""), is_new=str(number) in changed)


def _progress_lines(state: Snapshot, changed: set[str]) -> Iterator[Line]:
    if not state.progress_count:
        return
    yield _heading("progress", _how_many(state.progress_count, state.progress))
    first = state.progress_count - len(state.progress) + 1
    for number, one in enumerate(state.progress, first):
        words = shorten(_entry_words(one), ENTRY_CHARACTERS_MAX)
        yield _entry(words, is_new=str(number) in changed)


def _message_lines(state: Snapshot, changed: set[str]) -> Iterator[Line]:
    yield _heading("messages", _how_many(state.message_count, state.messages))
    for one in state.messages:
        words = shorten(one.text, MESSAGE_CHARACTERS_MAX)
        gutter = _gutter(is_new=str(one.number) in changed)
        # What is new of a message stands in the event: the features are not scrolled away for it.
        yield line(gutter, (f"{one.role} ", STRONG), (words, BAD if one.is_error else ""), hang=4)


def _heading(name: str, count: str) -> Line:
    return line((f"{name} ", NUMBER), (count, FAINT))


def _how_many(count: int, shown: Sequence[object]) -> str:
    return f"{count:,}" if count == len(shown) else f"{count:,}, the last {len(shown)}"
