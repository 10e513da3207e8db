"""Two runs side by side: where they part, and how what they left behind differs.

Messages are compared one by one from the start of each run, by what they say; ids and times, which
always differ, are not. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from fmemory._engine.types import SESSION
from fmemory._json_values import JsonObject, JsonValue
from fmemory._model import Model
from fmemory.errors import ContractError, NotFound, Reason, brief
from fmemory.record_models import MemoryRecord
from fmemory.replay._blame import features_upto
from fmemory.replay._facts import copied_seqs, facts, never
from fmemory.replay._reading import events_upto, gap_of, gaps_in_records, readable
from fmemory.replay._runs import runs
from fmemory.replay._transcript import TranscriptEntry, TranscriptResult, entries_upto
from fmemory.replay.models import RunSummary, UnreadableEvent

if TYPE_CHECKING:
    from fmemory.backend import LogBackend
    from fmemory.log_models import Event

__all__ = [
    "CallAt",
    "CallParting",
    "FeatureDifference",
    "LinesDifference",
    "MessageParting",
    "ResultAt",
    "ResultParting",
    "RunDiff",
    "TextAt",
    "compare",
]

_NAMED_MAX = 8


class CallAt(Model, frozen=True):
    """A tool call and the event that holds it."""

    seq: int
    name: str
    arguments: JsonObject | str = msgspec.field(default_factory=dict)


class MessageParting(Model, frozen=True):
    """The first message in which two runs differ.

    Attributes:
        number: Of the message in each run, from 1.
        what: What differs first: `role`, `text`, `call`, `result`, `thinking`, `blocks`, or `end`
            where one of the runs has no more messages.
        a: The message of the first run; None = it has no more.
        b: That of the second.
    """

    number: int
    what: str
    a: TranscriptEntry | None
    b: TranscriptEntry | None


class CallParting(Model, frozen=True):
    """The first tool call in which two runs differ, by name or arguments.

    Attributes:
        number: Of the call in each run, from 1.
        a: The call of the first run; None = it makes no more.
        b: That of the second.
    """

    number: int
    a: CallAt | None
    b: CallAt | None


class ResultAt(Model, frozen=True):
    """What a tool answered, and the event that holds it.

    Attributes:
        seq: The event.
        name: The tool.
        text: The answer's text.
        is_error: Whether it reports a failure, by its mark or its own words.
    """

    seq: int
    name: str
    text: str
    is_error: bool = False


class ResultParting(Model, frozen=True):
    """Two answers to a tool call that two runs made alike, before their calls part.

    Attributes:
        number: Of the call in each run, from 1: the first of which only one answer is a failure, or
            where there is none such, the first with an answer of another text.
        a: The answer of the first run.
        b: That of the second.
    """

    number: int
    a: ResultAt
    b: ResultAt


class FeatureDifference(Model, frozen=True):
    """A feature that passes after one run and not after the other, or is in one list only.

    Attributes:
        feature_id: The feature.
        a: Whether it passes after the first run; None = it is not in the list.
        b: After the second.
        a_seq: The event that made it so.
        b_seq: As `a_seq`.
    """

    feature_id: str
    a: bool | None
    b: bool | None
    a_seq: int | None = None
    b_seq: int | None = None


class TextAt(Model, frozen=True):
    """A text and the event that holds it."""

    seq: int
    text: str


class LinesDifference(Model, frozen=True):
    """What only one of the runs has of a list of texts.

    Attributes:
        shared: How many both have.
        a: What only the first has.
        b: What only the second has.
    """

    shared: int
    a: tuple[TextAt, ...] = ()
    b: tuple[TextAt, ...] = ()


class RunDiff(Model, frozen=True):
    """How two runs differ.

    Attributes:
        a: The first run.
        b: The second.
        objective_a: The objective of the first run's session after it; None without a manifest.
        objective_b: That of the second.
        shared_messages: Messages that are the same in both before they part.
        message: Where they part; None if all their messages are the same.
        shared_calls: Tool calls that are the same in both before they part.
        call: Where these part; None if all are the same.
        result: Among the answers to calls that are the same, those that differ; None if none do.
        features: Features that differ after the runs, in the order of the lists.
        checkpoints: Status and note of checkpoints that only one has.
        progress: Progress entries that only one has.
        notes: Records that only one put: `namespace/id: text`; compared by namespace and text.
        unreadable: Events of either session whose content is not there, so that it was not
            compared.
    """

    a: RunSummary
    b: RunSummary
    objective_a: str | None
    objective_b: str | None
    shared_messages: int
    message: MessageParting | None
    shared_calls: int
    call: CallParting | None
    result: ResultParting | None
    features: tuple[FeatureDifference, ...]
    checkpoints: LinesDifference
    progress: LinesDifference
    notes: LinesDifference
    unreadable: tuple[UnreadableEvent, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether nothing was found to differ, status and objective included."""
        lists = (self.checkpoints, self.progress, self.notes)
        return (
            self.a.status == self.b.status
            and self.objective_a == self.objective_b
            and self.message is None
            and self.call is None
            and self.result is None
            and not self.features
            and not any(one.a or one.b for one in lists)
        )


def compare(
    memory: LogBackend,
    run_a: str,
    run_b: str,
    *,
    session_a: str | None = None,
    session_b: str | None = None,
) -> RunDiff:
    """Where two runs part, and how what they left differs.

    A run's messages are those that its events appended, up to its newest event, without what a
    fork copied. Features are compared as they were after that event, whoever set them.

    Args:
        run_a: Id of the first run.
        run_b: Id of the second.
        session_a: The first run's session, where several sessions have a run of this id.
        session_b: That of the second.

    Raises:
        NotFound: There is no such run.
        ContractError: Several sessions have such a run and none is named; or both are one run.
        StorageError: The store failed. Damaged events are named in the result instead.

    Cost: one pass over the log to find the runs, and the events of their sessions.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     for name, command in (("one", "ls"), ("two", "ls -a")):
    ...         with memory.session(name).run(name) as run:
    ...             call = fmemory.ToolCall("c", "bash", {"command": command})
    ...             said = fmemory.Message("assistant", "looking", tool_calls=[call])
    ...             _ = memory.append_transcript_messages(name, [said])
    ...     found = compare(memory, "one", "two")
    ...     found.message.what, found.call.a.arguments, found.call.b.seq
    ('call', {'command': 'ls'}, 5)
    """
    every = runs(memory)
    first = _one_of(every, run_a, session_a, "run_a")
    second = _one_of(every, run_b, session_b, "run_b")
    if first == second:
        raise ContractError(
            f"expected another run than {brief(run_a)}, got it twice",
            where="run_b",
            reason=Reason.BAD_VALUE,
        )
    a, b = _read(memory, first, every), _read(memory, second, every)
    shared, message = _messages_part(a.entries, b.entries)
    shared_calls, call = _calls_part(a.entries, b.entries)
    return RunDiff(
        a=first,
        b=second,
        objective_a=a.objective,
        objective_b=b.objective,
        shared_messages=shared,
        message=message,
        shared_calls=shared_calls,
        call=call,
        result=_results_part(a.entries, b.entries, shared_calls),
        features=_feature_differences(a.features, b.features),
        checkpoints=_after_the_shared(a.checkpoints, b.checkpoints),
        progress=_after_the_shared(a.progress, b.progress),
        notes=_only_in_one(a.notes, b.notes),
        unreadable=tuple(sorted({*a.unreadable, *b.unreadable}, key=lambda one: one.seq)),
    )


def _one_of(
    every: Sequence[RunSummary], run_id: str, session_id: str | None, where: str
) -> RunSummary:
    found = [one for one in every if one.run_id == run_id]
    if session_id is not None:
        found = [one for one in found if one.session_id == session_id]
    if len(found) == 1:
        return found[0]
    if found:
        sessions = ", ".join(brief(one.session_id) for one in found[:_NAMED_MAX])
        raise ContractError(
            f"expected a run of one session, got {brief(run_id)}, which sessions {sessions} have:"
            " name the session, too",
            where=where,
            reason=Reason.MISMATCH,
        )
    place = "" if session_id is None else f" in session {brief(session_id)}"
    raise NotFound(
        f"{where}: expected a run, got {brief(run_id)}, which nothing was written by{place};"
        " runs() lists those there are",
        reason=Reason.RUN_NOT_FOUND,
        key=run_id,
    )


@dataclass(slots=True)
class _Side:
    """What is compared of a run."""

    objective: str | None = None
    entries: list[TranscriptEntry] = field(default_factory=list)
    features: dict[str, tuple[bool, int]] = field(default_factory=dict)
    checkpoints: list[TextAt] = field(default_factory=list)
    progress: list[TextAt] = field(default_factory=list)
    notes: list[tuple[Hashable, TextAt]] = field(default_factory=list)
    unreadable: set[UnreadableEvent] = field(default_factory=set)


def _read(memory: LogBackend, run: RunSummary, every: Sequence[RunSummary]) -> _Side:
    side = _Side()
    if run.session_id is not None:
        _read_session(memory, run, run.session_id, side)
    of_others = _notes_of_others(memory, run, every)
    types = ("records_put",)
    for event in readable(
        lambda after, limit: memory.events(after, types=types, run_id=run.run_id, limit=limit)
    ):
        if event.seq in of_others:
            continue
        if isinstance(event, UnreadableEvent):
            side.unreadable.add(event)
        else:
            _add_notes(side, event)
    return side


def _notes_of_others(
    memory: LogBackend, run: RunSummary, every: Sequence[RunSummary]
) -> frozenset[int]:
    """Events with this run's id that belong to the runs of that id in other sessions.

    As `runs` counts them, a note is of the session that the run wrote to last before it.

    Cost: none where no other session has such a run, else one pass over the envelopes of the log.
    """
    sessions = [one.session_id for one in every if one.run_id == run.run_id]
    if len(sessions) == 1:
        return frozenset()
    current: str | None = None
    found: set[int] = set()
    for fact in facts(memory, wanted=never):
        event = fact.event
        if event.run_id != run.run_id:
            continue
        if event.stream[0] == SESSION and len(event.stream) > 1:
            current = event.stream[1]
        elif current != run.session_id:
            found.add(event.seq)
    return frozenset(found)


def _read_session(memory: LogBackend, run: RunSummary, session_id: str, side: _Side) -> None:
    copied = copied_seqs(memory, session_id, run.last_seq)
    for entry in entries_upto(memory, session_id, run.last_seq):
        if entry.gap is not None:
            side.unreadable.add(entry.gap)
        elif entry.run_id == run.run_id and entry.seq not in copied:
            side.entries.append(entry)
    side.features, gaps, side.objective = features_upto(memory, session_id, run.last_seq)
    side.unreadable.update(gaps)
    types = ("session_initialized", "checkpoint_recorded", "progress_appended")
    for event in events_upto(memory, session_id, run.last_seq, types):
        if isinstance(event, UnreadableEvent):
            side.unreadable.add(event)
        else:
            _add_entries(side, event, run.run_id)


def _add_entries(side: _Side, event: Event, run_id: str) -> None:
    """Checkpoints and progress entries that name a run."""
    data = event.data if isinstance(event.data, dict) else {}
    checkpoints = [data] if event.type == "checkpoint_recorded" else _objects(data, "checkpoints")
    entries = [data] if event.type == "progress_appended" else _objects(data, "progress")
    for one in checkpoints:
        if one.get("run_id") == run_id:
            note = one.get("note")
            words = str(one.get("status")) + (f": {note}" if note else "")
            side.checkpoints.append(TextAt(event.seq, words))
    for one in entries:
        if one.get("run_id") == run_id:
            side.progress.append(TextAt(event.seq, str(one.get("summary"))))


def _add_notes(side: _Side, event: Event) -> None:
    gap = gap_of(event)
    side.unreadable.update(gaps_in_records(event))
    namespace = event.stream[1:]
    for record in event.records:
        name = "/".join((*namespace, record.id))
        if isinstance(record, MemoryRecord):
            text = TextAt(event.seq, f"{name}: {record.note.text}")
            side.notes.append(((namespace, record.note.text), text))
    if gap is not None:
        side.unreadable.add(gap)


def _messages_part(
    a: Sequence[TranscriptEntry], b: Sequence[TranscriptEntry]
) -> tuple[int, MessageParting | None]:
    for number, (one, other) in enumerate(zip_longest(a, b)):
        what = "end" if one is None or other is None else _first_difference(one, other)
        if what is not None:
            return number, MessageParting(number + 1, what, one, other)
    return len(a), None


def _first_difference(one: TranscriptEntry, other: TranscriptEntry) -> str | None:
    for what, read in _COMPARED.items():
        if read(one) != read(other):
            return what
    return None


_COMPARED: dict[str, Callable[[TranscriptEntry], object]] = {
    "role": lambda one: one.role,
    "text": lambda one: one.text,
    "call": lambda one: [(call.name, call.arguments) for call in one.calls],
    "result": lambda one: [(result.text, result.is_error) for result in one.results],
    "thinking": lambda one: one.thinking,
    "blocks": lambda one: (one.others, one.is_error),
}


def _calls_part(
    a: Sequence[TranscriptEntry], b: Sequence[TranscriptEntry]
) -> tuple[int, CallParting | None]:
    calls_a, calls_b = _calls_of(a), _calls_of(b)
    for number, (one, other) in enumerate(zip_longest(calls_a, calls_b)):
        same = (
            one is not None
            and other is not None
            and (one.name, one.arguments) == (other.name, other.arguments)
        )
        if not same:
            return number, CallParting(number + 1, one, other)
    return len(calls_a), None


def _calls_of(entries: Sequence[TranscriptEntry]) -> list[CallAt]:
    return [
        CallAt(entry.seq, call.name, call.arguments) for entry in entries for call in entry.calls
    ]


def _results_part(
    a: Sequence[TranscriptEntry], b: Sequence[TranscriptEntry], count: int
) -> ResultParting | None:
    """Of the answers to the first calls, the first that differ in success, else in their words."""
    both = list(zip(_answers_of(a)[:count], _answers_of(b)[:count], strict=True))
    for differs in (_differ_in_outcome, _differ_in_text):
        for number, (one, other) in enumerate(both, 1):
            if one is not None and other is not None and differs(one, other):
                return ResultParting(number, one, other)
    return None


def _differ_in_outcome(one: ResultAt, other: ResultAt) -> bool:
    return one.is_error != other.is_error


def _differ_in_text(one: ResultAt, other: ResultAt) -> bool:
    return one.text != other.text


def _answers_of(entries: Sequence[TranscriptEntry]) -> list[ResultAt | None]:
    """What answered each call, in the order of the calls; None where nothing of the run did."""
    results: dict[tuple[int, str | None], list[TranscriptResult]] = {}
    for entry in entries:
        for result in entry.results:
            results.setdefault((entry.seq, result.call_id), []).append(result)
    found: list[ResultAt | None] = []
    for call in (call for entry in entries for call in entry.calls):
        seq = call.answer_seq
        of_call = [] if seq is None else results.get((seq, call.id or None), [])
        if seq is None or not of_call:
            found.append(None)
            continue
        answer = of_call.pop(0)
        found.append(ResultAt(seq, call.name, answer.text, answer.is_error))
    return found


_Passes: TypeAlias = dict[str, tuple[bool, int]]


def _feature_differences(a: _Passes, b: _Passes) -> tuple[FeatureDifference, ...]:
    missing = (None, None)
    found = []
    for name in {**a, **b}:
        (one, one_seq), (other, other_seq) = a.get(name, missing), b.get(name, missing)
        if one != other:
            found.append(FeatureDifference(name, one, other, one_seq, other_seq))
    return tuple(found)


def _after_the_shared(a: Sequence[TextAt], b: Sequence[TextAt]) -> LinesDifference:
    """What follows the lines with which both lists begin."""
    shared = 0
    while shared < min(len(a), len(b)) and a[shared].text == b[shared].text:
        shared += 1
    return LinesDifference(shared, tuple(a[shared:]), tuple(b[shared:]))


def _only_in_one(
    a: Sequence[tuple[Hashable, TextAt]], b: Sequence[tuple[Hashable, TextAt]]
) -> LinesDifference:
    """What only one list has, in whatever order."""
    in_a, in_b = {key for key, _ in a}, {key for key, _ in b}
    return LinesDifference(
        len(in_a & in_b),
        tuple(text for key, text in a if key not in in_b),
        tuple(text for key, text in b if key not in in_a),
    )


def _objects(data: JsonObject, key: str) -> list[JsonObject]:
    found: JsonValue = data.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
