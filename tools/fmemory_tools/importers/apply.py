"""Writing a plan into a memory: as one batch, and only what is not there yet.

What is there is told by the keys that earlier imports left as idempotency keys. A file that has
grown adds its new part, wherever the earlier version ended; a file that says something else at a
place that was imported is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import fmemory
from fmemory import (
    GetRequest,
    LogBackend,
    MemoryRecord,
    Message,
    MetaGetRequest,
    MetaSetRequest,
    NewEvent,
    ProgressEntry,
)
from fmemory.log import Batch
from fmemory_tools.importers.plan import NotesPlan, SessionPlan, SessionsPlan, Source, Step

EMBEDDING_ID_KEY = "embedding_id"

_IDS_PER_GET = 1000


class Differs(Exception):  # noqa: N818 - a finding about store and file
    """The store holds something else where the file's content would go; nothing was written."""


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """What an import did to one session.

    Attributes:
        created: It was not there before.
        messages: Messages added.
        events: All events added, the messages' among them.
    """

    session_id: str
    created: bool
    messages: int
    events: int


@dataclass(frozen=True, slots=True)
class NotesOutcome:
    """What an import did to one namespace: records added, and those that were there already."""

    added: int
    present: int


@dataclass(frozen=True, slots=True)
class _Missing:
    """The part of a session's plan that is not in the store."""

    plan: SessionPlan
    steps: tuple[Step, ...]
    saves_manifest: bool
    created: bool
    life: int

    @property
    def event_count(self) -> int:
        return len(self.steps) + self.saves_manifest


def apply_sessions(memory: LogBackend, plan: SessionsPlan) -> list[SessionOutcome]:
    """Write what is missing of these sessions as one batch.

    Raises:
        Differs: A session of that id has another origin or another past. Nothing was written.
    """
    missing = [_missing(memory, one, plan.source) for one in plan.sessions]
    if any(one.event_count for one in missing):
        with memory.batch() as batch:
            for one in missing:
                _write(batch, one, plan.source)
    return [
        SessionOutcome(
            session_id=one.plan.session_id,
            created=one.created,
            messages=sum(isinstance(step.what, Message) for step in one.steps),
            events=one.event_count,
        )
        for one in missing
    ]


def apply_notes(memory: LogBackend, plan: NotesPlan) -> NotesOutcome:
    """Write the records that are missing as one batch.

    Raises:
        Differs: A record of the same id but other content is there. Nothing was written.
    """
    present = _present(memory, plan)
    new = [record for record in plan.records if record.id not in present]
    embedding_id = None
    if plan.embedding_id is not None:
        embedding_id = _new_embedding_id(memory, plan, plan.embedding_id)
    if new or embedding_id is not None:
        with fmemory.audit(reason=_reason(plan.source)), memory.batch() as batch:
            if new:
                key = _notes_key(plan.source, new)
                batch.put(memory.put_request(records=tuple(new), event_id=key))
            if embedding_id is not None:
                batch.set_meta(
                    MetaSetRequest(EMBEDDING_ID_KEY, embedding_id, namespace=plan.namespace)
                )
    return NotesOutcome(added=len(new), present=len(present))


def _missing(memory: LogBackend, plan: SessionPlan, source: Source) -> _Missing:
    """What is to be written; keys of a session that was deleted are used anew, numbered."""
    stored: list[str] = []
    life = revision = 0
    for event in memory.events(stream=("session", plan.session_id)):
        revision = event.revision
        if event.type in ("session_deleted", "stream_deleted"):
            life += 1
            stored.clear()
            revision = 0
        elif event.event_id is not None:
            stored.append(event.event_id)
    steps = plan.steps
    wanted = [_key(step, life) for step in steps]
    known = set(wanted)
    imported = [key for key in stored if key in known or _is_step_of(key, source)]
    if plan.steps_given is not None and wanted[: len(imported)] != imported:
        steps = plan.steps_given(stored)
        wanted = [_key(step, life) for step in steps]
    if revision and not imported:
        raise Differs(
            f"session {plan.session_id!r} is there already and does not come from such a file;"
            " nothing was written; import under another name with --session ID"
        )
    if len(imported) > len(wanted) and imported[: len(wanted)] == wanted:
        # The store has a longer version of the file: its own last word stays.
        return _Missing(plan, (), saves_manifest=False, created=False, life=life)
    if wanted[: len(imported)] != imported:
        raise Differs(
            f"session {plan.session_id!r} was imported from another version of this file, and"
            f" {_first_difference(imported, wanted)}; nothing was written; import under another"
            " name with --session ID"
        )
    steps = steps[len(imported) :]
    summary = tuple(step for step in plan.summary if _key(step, life) not in stored)
    is_saved = memory.load_bootstrap_state(plan.session_id).manifest == plan.manifest
    return _Missing(
        plan,
        steps + summary,
        saves_manifest=bool(steps or summary) and not is_saved,
        created=revision == 0,
        life=life,
    )


def _write(batch: Batch, missing: _Missing, source: Source) -> None:
    plan, session_id = missing.plan, missing.plan.session_id
    with fmemory.audit(run_id=plan.run_id, reason=_reason(source)):
        if missing.saves_manifest:
            with fmemory.audit(occurred_at=plan.began_at):
                batch.save_manifest(session_id, plan.manifest)
        for step in missing.steps:
            with fmemory.audit(occurred_at=step.occurred_at):
                _write_step(batch, session_id, step, _key(step, missing.life))


def _write_step(batch: Batch, session_id: str, step: Step, key: str) -> None:
    what = step.what
    if isinstance(what, Message):
        batch.append_transcript_messages(session_id, [what], event_id=key)
    elif isinstance(what, ProgressEntry):
        batch.append_progress_entry(session_id, what, event_id=key)
    elif isinstance(what, NewEvent):
        event = NewEvent(what.type, what.data, event_id=key, occurred_at=step.occurred_at)
        batch.append(("session", session_id), [event])
    else:
        batch.record_run_checkpoint(session_id, what, event_id=key)


def _key(step: Step, life: int) -> str:
    return f"{step.key}#{life}" if life else step.key


def _is_step_of(key: str, source: Source) -> bool:
    return key.startswith(f"{source.format}:")


def _first_difference(imported: Sequence[str], wanted: Sequence[str]) -> str:
    for key, other in zip(imported, wanted, strict=False):
        if key != other:
            return f"differs from it at line {key.split(':')[1]}"
    return "has less in it"


def _present(memory: LogBackend, plan: NotesPlan) -> set[str]:
    """Ids of the plan's records that are there with the same content."""
    present: set[str] = set()
    different: list[str] = []
    for start in range(0, len(plan.records), _IDS_PER_GET):
        part = {record.id: record for record in plan.records[start : start + _IDS_PER_GET]}
        found = memory.get(GetRequest(tuple(part), plan.namespace)).records
        present.update(record.id for record in found)
        different += [record.id for record in found if not _is_same(record, part[record.id])]
    if different:
        more = f" and {len(different) - 5} more" if len(different) > 5 else ""
        raise Differs(
            f"{len(different)} of these ids are there already with another content:"
            f" {', '.join(different[:5])}{more}; nothing was written; import into another"
            " --namespace, or delete those records first"
        )
    return present


def _is_same(stored: MemoryRecord, record: MemoryRecord) -> bool:
    return stored == record


def _new_embedding_id(memory: LogBackend, plan: NotesPlan, embedding_id: str) -> str | None:
    """The id to be set; None if it is set already."""
    before = memory.get_meta(MetaGetRequest(EMBEDDING_ID_KEY, plan.namespace)).value
    if before is not None and before != embedding_id:
        raise Differs(
            f"the namespace holds vectors of {before!r}, not of {embedding_id!r}; nothing was"
            " written; import into another --namespace"
        )
    return embedding_id if before is None else None


def _notes_key(source: Source, records: Sequence[MemoryRecord]) -> str:
    ids = "\n".join(record.id for record in records).encode("utf-8")
    return f"{source.format}:{source.sha256[:16]}:{hashlib.sha256(ids).hexdigest()[:16]}"


def _reason(source: Source) -> str:
    return f"import of {source.name}"


__all__ = [
    "Differs",
    "NotesOutcome",
    "SessionOutcome",
    "apply_notes",
    "apply_sessions",
]
