"""Writing sessions of Fiddlesticks into a memory: each once, as one batch, and only what is new.

Every event carries a key made of what it says, so the same source twice adds nothing, and a
session that has grown in its source grows here: as long as nobody has written to it here since. A
session that is there already and came from elsewhere is reported and left alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import fmemory
from fmemory import LogBackend, NewEvent, ProgressEntry, RunCheckpoint
from fmemory.log import Batch
from fmemory_tools.importers._fiddlesticks_models import Timed
from fmemory_tools.importers.fiddlesticks import FORMAT, FiddlesticksPlan, FiddlesticksSession

if TYPE_CHECKING:
    from datetime import datetime

    from fmemory import Event
    from fmemory._json_values import JsonObject, JsonValue

IMPORTED_TYPE = "fiddlesticks.imported"

_ENDS = ("session_deleted", "stream_deleted")
_KEY = re.compile(rf"{FORMAT}:(?P<kind>[a-z]+):\d+:(?P<digest>[0-9a-f]{{16}})(?:#\d+)?")
_READ_ONE_BY_ONE_MAX = 100
_APPENDED = ("progress", "checkpoint", "message")
_REPLACED = ("manifest", "features")
# Times whose nanoseconds do not fit 64 bits are kept in the models only.
_OCCURRED_YEARS = range(1678, 2262)


class Fate(StrEnum):
    """What became of a session of the source."""

    IMPORTED = "imported"
    GROWN = "grown"
    PRESENT = "present"
    EMPTY = "empty"
    LEFT_ALONE = "left_alone"


@dataclass(frozen=True, slots=True)
class FiddlesticksOutcome:
    """What an import did to one session.

    Attributes:
        messages: Messages added.
        events: All events added, the messages' among them.
        why: Why it was left alone; empty for another fate.
    """

    session_id: str
    fate: Fate
    messages: int = 0
    events: int = 0
    why: str = ""


@dataclass(slots=True)
class _Present:
    """What is there of a session, since it was last deleted.

    Attributes:
        life: How often it was deleted: keys of an earlier life are used up.
        revision: Of the session's newest event.
        digests: By kind, what earlier imports wrote.
        names: The names of the sources that it was imported from.
        others: Events that no import wrote.
    """

    life: int = 0
    revision: int = 0
    digests: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    names: list[str] = field(default_factory=list)
    others: int = 0

    @property
    def is_there(self) -> bool:
        return bool(self.names or self.others)


def apply_fiddlesticks(memory: LogBackend, plan: FiddlesticksPlan) -> list[FiddlesticksOutcome]:
    """Write what is missing of each session, a batch a session.

    An import that is interrupted leaves whole sessions, and is finished by running it again.

    Raises:
        Conflict: Another process wrote to a session meanwhile. Nothing of this session was
            written; those before it were.
    """
    present = _present(memory, {one.session_id for one in plan.sessions})
    return [_apply(memory, one, present[one.session_id]) for one in plan.sessions]


def _apply(
    memory: LogBackend, session: FiddlesticksSession, present: _Present
) -> FiddlesticksOutcome:
    if not present.is_there and not _has_something(session):
        return FiddlesticksOutcome(session.session_id, Fate.EMPTY)
    why = _why_not(session, present)
    if why:
        return FiddlesticksOutcome(session.session_id, Fate.LEFT_ALONE, why=why)
    new = _new(session, present)
    if not any(new.values()):
        return FiddlesticksOutcome(session.session_id, Fate.PRESENT)
    with fmemory.audit(reason=f"import of {session.source['name']}"), memory.batch() as batch:
        _write(batch, session, present, new)
    receipt = batch.receipt
    return FiddlesticksOutcome(
        session.session_id,
        Fate.GROWN if present.is_there else Fate.IMPORTED,
        messages=new["message"],
        events=0 if receipt is None else receipt.event_count,
    )


def _present(memory: LogBackend, session_ids: set[str]) -> dict[str, _Present]:
    """What is there of each session.

    Cost: a pass over each session's events; over those of all sessions of the store, if many are
    asked for, because a store of files looks through its whole log for one.
    """
    found: dict[str, _Present] = defaultdict(_Present)
    for event in _events(memory, session_ids):
        session_id = event.stream[1]
        if session_id in session_ids:
            found[session_id] = _after(found[session_id], event)
    return found


def _events(memory: LogBackend, session_ids: set[str]) -> Iterator[Event]:
    if len(session_ids) > _READ_ONE_BY_ONE_MAX:
        yield from memory.events(stream_prefix=("session",))
        return
    for session_id in session_ids:
        yield from memory.events(stream=("session", session_id))


def _after(found: _Present, event: Event) -> _Present:
    """What is there with one event more."""
    if event.type in _ENDS:
        return _Present(life=found.life + 1, revision=event.revision)
    found.revision = event.revision
    key = _KEY.fullmatch(event.event_id or "")
    if key is None:
        found.others += 1
    elif event.type == IMPORTED_TYPE:
        found.names.append(_source_name(event))
    else:
        found.digests[key["kind"]].append(key["digest"])
    return found


def _source_name(event: Event) -> str:
    source = event.data.get("source") if isinstance(event.data, dict) else None
    return str(source.get("name")) if isinstance(source, dict) else ""


def _has_something(session: FiddlesticksSession) -> bool:
    models = session.models
    items = (models.features, models.progress, models.checkpoints, models.transcript)
    return models.manifest is not None or any(items)


def _why_not(session: FiddlesticksSession, present: _Present) -> str:
    """Why a session cannot be brought up to date; empty if it can, or need not."""
    if not present.is_there:
        return ""
    if not present.names:
        return "is there already, and was not imported from Fiddlesticks"
    for kind in _APPENDED:
        before, now = present.digests[kind], session.digests[kind]
        for number, (one, other) in enumerate(zip(before, now, strict=False), start=1):
            if one != other:
                return f"was imported, and {kind} {number} is another one here"
    if not any(_new(session, present).values()):
        return ""
    if session.source["name"] not in present.names:
        return f"was imported from {present.names[-1]}, which is another source"
    if any(len(session.digests[kind]) < len(present.digests[kind]) for kind in _APPENDED):
        return "was imported when there was more of it in the source"
    if present.others:
        return "was imported; since then it went on in the source, and otherwise here"
    return ""


def _new(session: FiddlesticksSession, present: _Present) -> dict[str, int]:
    """By kind, how many items at the end are not there yet; 1 for what is replaced as a whole."""
    found = {
        kind: max(0, len(session.digests[kind]) - len(present.digests[kind])) for kind in _APPENDED
    }
    for kind in _REPLACED:
        now, before = session.digests[kind][-1:], tuple(present.digests[kind][-1:])
        # A list of features that is empty from the start is nothing to be written.
        is_nothing = kind == "features" and not before and not session.models.features
        found[kind] = int(bool(now) and now != before and not is_nothing)
    return found


def _write(
    batch: Batch, session: FiddlesticksSession, present: _Present, new: dict[str, int]
) -> None:
    session_id, models = session.session_id, session.models
    keys = {kind: _keys(session, present, kind, count) for kind, count in new.items()}
    progress = models.progress[len(models.progress) - new["progress"] :]
    checkpoints = models.checkpoints[len(models.checkpoints) - new["checkpoint"] :]
    messages = models.transcript[len(models.transcript) - new["message"] :]
    batch.append(
        ("session", session_id),
        [_imported(session, present, progress, checkpoints)],
        expected_revision=present.revision,
    )
    if new["manifest"] and session.manifest is not None:
        batch.save_manifest(session_id, session.manifest, event_id=keys["manifest"][0])
    if new["features"]:
        batch.replace_feature_list(session_id, models.features, event_id=keys["features"][0])
    for timed, key in zip(progress, keys["progress"], strict=True):
        _write_timed(batch, session_id, timed, key)
    for timed, key in zip(checkpoints, keys["checkpoint"], strict=True):
        _write_timed(batch, session_id, timed, key)
    for message, key in zip(messages, keys["message"], strict=True):
        batch.append_transcript_messages(session_id, [message], event_id=key)


def _write_timed(batch: Batch, session_id: str, timed: Timed, key: str) -> None:
    with fmemory.audit(occurred_at=_occurred_at(timed.what)):
        if isinstance(timed.what, ProgressEntry):
            batch.append_progress_entry(session_id, timed.what, event_id=key)
        else:
            batch.record_run_checkpoint(session_id, timed.what, event_id=key)


def _occurred_at(what: ProgressEntry | RunCheckpoint) -> datetime | None:
    """When it was said: a checkpoint of a run that has ended, when it ended."""
    if isinstance(what, ProgressEntry):
        time = what.created_at
    else:
        time = what.completed_at or what.started_at
    return time if time.year in _OCCURRED_YEARS else None


def _imported(
    session: FiddlesticksSession,
    present: _Present,
    progress: Sequence[Timed],
    checkpoints: Sequence[Timed],
) -> NewEvent:
    """The event that says where what follows comes from.

    It also has what no model can hold: the nanoseconds below a microsecond of each time.
    """
    data: JsonObject = {"source": session.source}
    nanos: JsonObject = {
        "progress": _nanos(progress),
        "checkpoints": _nanos(checkpoints),
    }
    if any(any(one.nanos) for one in (*progress, *checkpoints)):
        data["nanos_below_microsecond"] = nanos
    number = len(present.names) + 1
    key = f"{FORMAT}:source:{number}:{str(session.source['sha256'])[:16]}"
    return NewEvent(IMPORTED_TYPE, data, event_id=_in_life(key, present))


def _nanos(timed: Sequence[Timed]) -> list[JsonValue]:
    return [[*one.nanos] for one in timed]


def _keys(session: FiddlesticksSession, present: _Present, kind: str, count: int) -> list[str]:
    """The keys of the last `count` items: kind, number in the session, and digest."""
    digests = session.digests[kind]
    first = len(present.digests[kind]) + 1
    return [
        _in_life(f"{FORMAT}:{kind}:{number}:{digest}", present)
        for number, digest in enumerate(digests[len(digests) - count :], start=first)
    ]


def _in_life(key: str, present: _Present) -> str:
    return f"{key}#{present.life}" if present.life else key
