"""What each event of a session changed, as small deltas.

A fold over the events of one session that keeps the state it has come to and tells the difference
at every event. Applied in order, the deltas give what `LogView.load_bootstrap_state` says of that
moment; a test holds both together. It reads through public operations and never writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from fmemory._engine.types import EventType, session_stream
from fmemory._json_values import JsonObject, JsonValue
from fmemory.backend import LogBackend
from fmemory.log_models import Event
from fmemory.replay._change_models import Change, Delta, Part
from fmemory.session_models import check_session_id
from fmemory_segments import FORGOTTEN

__all__ = ["ChangeFold", "changes"]

FIRST_WORDS_CHARACTERS_MAX = 200
"""Of a message's text, that much is in a delta."""
_HOLLOW = frozenset({FORGOTTEN, EventType.EVENT_LOST})


def changes(memory: LogBackend, session_id: str) -> tuple[Change, ...]:
    """What each event of a session changed, by seq; () for an unknown session.

    Events that change nothing are there too, with no deltas: the caller's own types, and what was
    erased, forgotten or lost.

    Raises:
        ContractError: The session id is none.
        StorageError: The store failed, or an event is damaged.

    Cost: O(bytes of the session), all of it read once.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     with memory.session("s").run("r1"):
    ...         pass
    ...     [(one.seq, one.deltas[0].word, one.deltas[0].name) for one in changes(memory, "s")]
    [(1, 'added', '1'), (2, 'added', '2')]
    """
    fold = ChangeFold()
    stream = session_stream(check_session_id(session_id))
    return tuple([fold.apply(event) for event in memory.events(stream=stream)])


@dataclass(slots=True)
class ChangeFold:
    """The state of a session as it is told by deltas, for those who follow a log as it grows.

    Attributes:
        manifest: Its fields; empty = no manifest.
        features: Id → category, description and steps, in the order of the list.
        passes: Id → whether it passes.
        progress: Entries, oldest first.
        checkpoints: The same.
        message_count: Messages in the transcript.
    """

    manifest: JsonObject = field(default_factory=dict)
    features: JsonObject = field(default_factory=dict)
    passes: dict[str, bool] = field(default_factory=dict)
    progress: list[JsonValue] = field(default_factory=list)
    checkpoints: list[JsonValue] = field(default_factory=list)
    message_count: int = 0

    def apply(self, event: Event) -> Change:
        """Fold the session's next event; what it changed."""
        return Change(
            seq=event.seq,
            revision=event.revision,
            type=event.type,
            recorded_at=event.recorded_at,
            occurred_at=event.occurred_at,
            actor=event.actor,
            run_id=event.run_id,
            reason=event.reason,
            deltas=tuple(self._deltas(event)),
            erased=event.erased or event.type in _HOLLOW,
            lost=event.lost or event.type == EventType.EVENT_LOST,
        )

    def _deltas(self, event: Event) -> Iterator[Delta]:
        data = event.data if isinstance(event.data, dict) else {}
        match event.type:
            case EventType.TRANSCRIPT_APPENDED:
                yield from self._append_messages(_list(data, "messages"))
            case EventType.TRANSCRIPT_TRUNCATED:
                keep = cast("int", data.get("keep", self.message_count))
                yield from self._count_messages(min(keep, self.message_count))
            case EventType.FEATURE_PASS_UPDATED if data:
                yield from self._flip(cast("str", data["feature_id"]), data["passes"] is True)
            case EventType.PROGRESS_APPENDED if data:
                yield _append(Part.PROGRESS, self.progress, data)
            case EventType.CHECKPOINT_RECORDED if data:
                yield _append(Part.CHECKPOINT, self.checkpoints, data)
            case EventType.MANIFEST_SAVED:
                yield from self._set_manifest(data)
            case EventType.FEATURES_REPLACED:
                yield from self._set_features(_list(data, "features"))
            case EventType.SESSION_INITIALIZED | EventType.SESSION_FORKED:
                yield from self._begin(data)
            case EventType.SESSION_DELETED:
                yield from self._delete()
            case _:
                pass

    def _append_messages(self, messages: Sequence[JsonValue]) -> Iterator[Delta]:
        first = self.message_count + 1
        yield from self._count_messages(self.message_count + len(messages))
        for number, message in enumerate(messages, first):
            yield Delta(Part.MESSAGE, str(number), None, _short(cast("JsonObject", message)))

    def _count_messages(self, count: int) -> Iterator[Delta]:
        before, self.message_count = self.message_count, count
        if before != count:
            yield Delta(Part.TRANSCRIPT, "messages", before, count)

    def _flip(self, feature_id: str, passes: bool) -> Iterator[Delta]:
        before = self.passes.get(feature_id)
        self.passes[feature_id] = passes
        if before != passes:
            yield Delta(Part.PASSES, feature_id, before, passes)

    def _set_manifest(self, manifest: JsonObject) -> Iterator[Delta]:
        before, self.manifest = self.manifest, manifest
        yield from _differences(Part.MANIFEST, before, manifest)

    def _set_features(self, features: Sequence[JsonValue]) -> Iterator[Delta]:
        passes: dict[str, bool] = {}
        definitions: JsonObject = {}
        for one in features:
            definition = dict(cast("JsonObject", one))
            feature_id = cast("str", definition.pop("id"))
            passes[feature_id] = definition.pop("passes") is True
            definitions[feature_id] = definition
        before, self.features = self.features, definitions
        had, self.passes = self.passes, passes
        yield from _differences(Part.FEATURE, before, definitions)
        yield from _differences(Part.PASSES, had, passes)
        expected = [one for one in before if one in definitions]
        expected += [one for one in definitions if one not in before]
        if list(definitions) != expected:
            yield Delta(Part.ORDER, "features", list(before), list(definitions))

    def _begin(self, data: JsonObject) -> Iterator[Delta]:
        """A session begins, fresh or forked; one without a manifest may have content already."""
        if data.get("origin") is not None:
            origin: JsonObject = {"session_id": data["origin"], "seq": data["origin_seq"]}
            yield Delta(Part.ORIGIN, "session", None, origin)
        manifest = data.get("manifest")
        if isinstance(manifest, dict):
            yield from self._set_manifest(manifest)
        yield from self._set_features(_list(data, "features"))
        for entry in _list(data, "progress"):
            yield _append(Part.PROGRESS, self.progress, entry)
        for checkpoint in _list(data, "checkpoints"):
            yield _append(Part.CHECKPOINT, self.checkpoints, checkpoint)

    def _delete(self) -> Iterator[Delta]:
        yield from self._set_manifest({})
        yield from self._set_features([])
        lists = ((Part.PROGRESS, self.progress), (Part.CHECKPOINT, self.checkpoints))
        for part, entries in lists:
            for number, entry in enumerate(entries, 1):
                yield Delta(part, str(number), entry, None)
            entries.clear()
        yield from self._count_messages(0)


def _append(part: Part, entries: list[JsonValue], entry: JsonValue) -> Delta:
    entries.append(entry)
    return Delta(part, str(len(entries)), None, entry)


def _differences(
    part: Part, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]
) -> Iterator[Delta]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield Delta(part, name, before.get(name), after.get(name))


def _list(data: JsonObject, key: str) -> list[JsonValue]:
    found = data.get(key)
    return found if isinstance(found, list) else []


def _short(message: JsonObject) -> JsonObject:
    """Of a message: role, speaker, first words, tools called, whether it is an error."""
    text = cast("str", message.get("content", ""))
    short: JsonObject = {"role": message["role"]}
    if message.get("name"):
        short["name"] = message["name"]
    short["text"] = text[:FIRST_WORDS_CHARACTERS_MAX]
    if len(text) > FIRST_WORDS_CHARACTERS_MAX:
        short["characters"] = len(text)
    calls = cast("list[JsonObject]", message.get("tool_calls") or [])
    if calls:
        short["tools"] = [call["name"] for call in calls]
    if message.get("is_error"):
        short["is_error"] = True
    return short
