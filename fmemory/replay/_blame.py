"""Who set what a session holds: each feature and manifest field, with the event that set it last.

A value is set by the event that made it what it is, not by one that wrote it down again unchanged.
What a fork copied is traced into the session it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from fmemory._engine.stored import (
    StoredFeature,
    StoredManifest,
    StoredSession,
    from_ns,
    load_manifest,
)
from fmemory._engine.types import EventType
from fmemory._json_values import JsonValue
from fmemory._model import Model
from fmemory.errors import NotFound, Reason, brief
from fmemory.replay._facts import Fact, Features, State, facts, time_ns
from fmemory.replay._reading import moment_of
from fmemory.replay.models import UnreadableEvent

if TYPE_CHECKING:
    from fmemory.backend import LogBackend
    from fmemory.journal import Envelope

__all__ = ["Attribution", "BlamedPart", "ChangeKind", "blame", "features_upto"]

_TYPES = frozenset(
    {
        EventType.SESSION_INITIALIZED,
        EventType.SESSION_FORKED,
        EventType.MANIFEST_SAVED,
        EventType.FEATURES_REPLACED,
        EventType.FEATURE_PASS_UPDATED,
        EventType.SESSION_DELETED,
    }
)
_NAMED_MAX = 8


class BlamedPart(StrEnum):
    """What a value is part of; `UNKNOWN` = an event that may have set anything."""

    FEATURE = "feature"
    MANIFEST = "manifest"
    UNKNOWN = "unknown"


class ChangeKind(StrEnum):
    """What became of a value."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class Attribution(Model, frozen=True):
    """One value and the event that set it.

    Attributes:
        part: What it is part of.
        name: The feature's id, or the manifest's field, such as `metadata.owner`.
        field: Of a feature: `passes`, or `definition` (category, description, steps); of the
            manifest the name again.
        change: What became of it.
        seq: The event that did it.
        type: The type of that event.
        session_id: The session whose event it is: for what a fork copied, the one it came from.
            None for a gap.
        time: When it happened, else when it was recorded; UTC. None where nobody can tell.
        actor: Who did it.
        run_id: In which run.
        reason: Why.
        before: The value before; None also where there was none.
        after: The value since; None also where there is none.
        gap: Why the event does not tell what it set; None = it does.
    """

    part: BlamedPart
    name: str
    field: str
    change: ChangeKind
    seq: int
    type: str
    session_id: str | None
    time: datetime | None = None
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    before: JsonValue = None
    after: JsonValue = None
    gap: UnreadableEvent | None = None


def blame(
    memory: LogBackend,
    session_id: str,
    target: str | None = None,
    *,
    every: bool = False,
    at: int | datetime | None = None,
) -> tuple[Attribution, ...]:
    """For each feature and manifest field of a session, the event that set it last.

    Features come in the order of the list, then the manifest, then events that were lost or are
    damaged, and so may have set anything.

    Args:
        target: Only this feature or manifest field; `metadata` = all of its keys. Also one that is
            there no more.
        every: All that ever set them, oldest first, instead of the last; also what was removed.
        at: As of this event, or time of recording; None = now.

    Raises:
        NotFound: There is no such session, or not yet; no such feature or field ever.
        ContractError: An argument breaks a rule.
        HistoryCompacted: That past is no longer kept.
        StorageError: The store failed. Damaged content is a gap, not an error.

    Cost: O(events of the session), about 5 µs each; its messages are not read, nor other sessions
        but those that it was forked from. Writes nothing.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     with fmemory.audit(actor="ada", reason="2 tests passed"):
    ...         form = fmemory.FeatureRecord("form", "ui", "a form", passes=True)
    ...         _ = memory.replace_feature_list("login", [form])
    ...     found = blame(memory, "login", "form")[0]
    ...     found.seq, found.actor, found.reason, found.after
    (1, 'ada', '2 tests passed', True)
    """
    upto = moment_of(memory, session_id, at)
    fold = _fold(memory, session_id, upto)
    if target is not None:
        return _of_target(fold, target, every=every)
    if every:
        told = [*map(_attribution, fold.history), *map(_gap, fold.all_gaps)]
        return tuple(sorted(told, key=lambda one: one.seq))
    return (*map(_attribution, _in_order(fold)), *map(_gap, fold.gaps))


def features_upto(
    memory: LogBackend, session_id: str, upto: int
) -> tuple[dict[str, tuple[bool, int]], tuple[UnreadableEvent, ...], str | None]:
    """Of each feature whether it passes and since which event; gaps; and the objective.

    Unlike `blame` also of a past that is no longer kept whole.
    """
    fold = _fold(memory, session_id, upto)
    passes = {
        key[1]: (one.after is True, one.event.seq)
        for key, one in fold.last.items()
        if key[0] is BlamedPart.FEATURE and key[2] == "passes"
    }
    objective = fold.last.get(_field("current_objective"))
    return passes, tuple(fold.gaps), None if objective is None else str(objective.after)


_Key: TypeAlias = tuple[BlamedPart, str, str]
_Origin: TypeAlias = tuple[str, int]
"""A session, and the event up to which it is folded."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A value that an event set, before it is told to anybody."""

    key: _Key
    kind: ChangeKind
    event: Envelope
    before: JsonValue
    after: JsonValue


@dataclass(slots=True)
class _Fold:
    """What is set now, by which event, and all that was set before.

    Attributes:
        last: Of each value that is there, the event that set it.
        history: Everything that was set, in order.
        gaps: Events since the session was last deleted that may have set anything.
        all_gaps: All events that may have set anything.
    """

    last: dict[_Key, _Change] = field(default_factory=dict)
    history: list[_Change] = field(default_factory=list)
    gaps: list[UnreadableEvent] = field(default_factory=list)
    all_gaps: list[UnreadableEvent] = field(default_factory=list)

    def set(self, part: BlamedPart, values: dict[_Key, JsonValue], event: Envelope) -> None:
        """Set all values of a part; what is not named is removed."""
        for key in [key for key in self.last if key[0] is part and key not in values]:
            gone = self.last.pop(key)
            self._record(key, ChangeKind.REMOVED, event, gone.after, None)
        for key, value in values.items():
            self.set_one(key, value, event)
            # The order is that of the newest list.
            self.last[key] = self.last.pop(key)

    def set_one(self, key: _Key, value: JsonValue, event: Envelope) -> None:
        """Set one value, unless it is so already."""
        known = self.last.get(key)
        if known is None:
            self.last[key] = self._record(key, ChangeKind.ADDED, event, None, value)
        elif known.after != value:
            self.last[key] = self._record(key, ChangeKind.CHANGED, event, known.after, value)

    def inherit(self, origin: _Fold, values: dict[_Key, JsonValue]) -> None:
        """Take over who set these values in the session they were copied from."""
        kept = {
            key: origin.last[key]
            for key, value in values.items()
            if key in origin.last and origin.last[key].after == value
        }
        self.last.update(kept)
        self.history += [one for one in origin.history if one.key in kept]

    def _record(
        self,
        key: _Key,
        kind: ChangeKind,
        event: Envelope,
        before: JsonValue,
        after: JsonValue,
    ) -> _Change:
        made = _Change(key, kind, event, before, after)
        self.history.append(made)
        return made


def _fold(memory: LogBackend, session_id: str, upto: int) -> _Fold:
    """The fold of a session up to an event, after those of the sessions it was forked from."""
    known: dict[_Origin, _Fold] = {}
    waiting: list[_Origin] = [(session_id, upto)]
    while waiting:
        # Chains of forks may be longer than a recursion can be deep.
        found = _fold_one(memory, waiting[-1], known)
        if isinstance(found, _Fold):
            known[waiting.pop()] = found
        else:
            waiting.append(found)
    return known[session_id, upto]


def _fold_one(memory: LogBackend, asked: _Origin, known: dict[_Origin, _Fold]) -> _Fold | _Origin:
    """The fold of a session up to an event; or of which origin a fold is needed before."""
    session_id, upto = asked
    fold = _Fold()
    for fact in facts(memory, session_id=session_id, upto=upto, types=_TYPES):
        if fact.state is State.KEPT:
            origin = _origin_of(fact)
            if origin is not None and origin not in known:
                return origin
            _apply(fold, fact, None if origin is None else known[origin])
        elif fact.state is not State.FORGOTTEN:
            # What was forgotten had been deleted before, so that nothing of it is set.
            state = fact.state.value
            gap = UnreadableEvent(fact.event.seq, fact.event.type, state, fact.problem)
            fold.gaps.append(gap)
            fold.all_gaps.append(gap)
    return fold


def _origin_of(fact: Fact) -> _Origin | None:
    """What a fork copied; None for all other events."""
    session = fact.detail
    if not isinstance(session, StoredSession) or None in (session.origin, session.origin_seq):
        return None
    assert session.origin is not None
    assert session.origin_seq is not None
    return session.origin, session.origin_seq


def _apply(fold: _Fold, fact: Fact, origin: _Fold | None) -> None:
    event = fact.event
    match fact.detail:
        case Features(features=features):
            fold.set(BlamedPart.FEATURE, _features(features), event)
        case StoredManifest():
            fold.set(BlamedPart.MANIFEST, _manifest(fact.detail), event)
        case StoredSession():
            _begin(fold, fact.detail, event, origin)
        case _ if event.type == EventType.FEATURE_PASS_UPDATED:
            fold.set_one((BlamedPart.FEATURE, event.keys[0], "passes"), bool(event.count), event)
        case _:
            assert event.type == EventType.SESSION_DELETED, "no other type is read"
            fold.set(BlamedPart.FEATURE, {}, event)
            fold.set(BlamedPart.MANIFEST, {}, event)
            fold.gaps.clear()


def _begin(fold: _Fold, session: StoredSession, event: Envelope, origin: _Fold | None) -> None:
    """A session that begins, fresh or as a copy of another."""
    features = _features(session.features)
    fields = {} if session.manifest is None else _manifest(session.manifest)
    if origin is not None:
        fold.inherit(origin, {**features, **fields})
    fold.set(BlamedPart.FEATURE, features, event)
    if fields:
        fold.set(BlamedPart.MANIFEST, fields, event)


def _features(features: Iterable[StoredFeature]) -> dict[_Key, JsonValue]:
    found: dict[_Key, JsonValue] = {}
    for one in features:
        found[BlamedPart.FEATURE, one.id, "passes"] = one.passes
        found[BlamedPart.FEATURE, one.id, "definition"] = {
            "category": one.category,
            "description": one.description,
            "steps": list(one.steps),
        }
    return found


def _manifest(manifest: StoredManifest) -> dict[_Key, JsonValue]:
    found: dict[_Key, JsonValue] = {}
    for name, value in load_manifest(manifest).to_dict().items():
        if name == "metadata" and isinstance(value, dict):
            for key, inner in value.items():
                found[_field(f"metadata.{key}")] = inner
        else:
            found[_field(name)] = value
    return found


def _field(name: str) -> _Key:
    return (BlamedPart.MANIFEST, name, name)


def _in_order(fold: _Fold) -> Iterator[_Change]:
    """What is set now: features before the manifest, each in its own order."""
    for part in (BlamedPart.FEATURE, BlamedPart.MANIFEST):
        yield from (one for key, one in fold.last.items() if key[0] is part)


def _of_target(fold: _Fold, target: str, *, every: bool) -> tuple[Attribution, ...]:
    chosen = [one for one in fold.history if _is_named(one.key, target)]
    gaps = fold.all_gaps if every else fold.gaps
    if not chosen and not gaps:
        raise _unknown(target, fold.history)
    if not every:
        chosen = list({one.key: one for one in chosen}.values())
    return (*map(_attribution, chosen), *map(_gap, gaps))


def _is_named(key: _Key, target: str) -> bool:
    part, name, _ = key
    is_key = part is BlamedPart.MANIFEST and name.startswith("metadata.")
    return name == target or (is_key and target == "metadata")


def _unknown(target: str, history: Sequence[_Change]) -> NotFound:
    names = list(dict.fromkeys(one.key[1] for one in history))
    more = len(names) - _NAMED_MAX
    known = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return NotFound(
        f"target: expected a feature or manifest field of the session, got {brief(target)};"
        f" there are: {known or 'none'}",
        reason=Reason.FEATURE_NOT_FOUND,
        key=target,
    )


def _attribution(change: _Change) -> Attribution:
    event = change.event
    return Attribution(
        *change.key,
        change.kind,
        event.seq,
        event.type,
        event.stream[1],
        from_ns(time_ns(event)),
        event.actor,
        event.run_id,
        event.reason,
        change.before,
        change.after,
    )


def _gap(gap: UnreadableEvent) -> Attribution:
    return Attribution(
        BlamedPart.UNKNOWN, "", "", ChangeKind.CHANGED, gap.seq, gap.type, None, gap=gap
    )
