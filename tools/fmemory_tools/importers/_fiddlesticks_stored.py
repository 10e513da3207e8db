"""What Fiddlesticks stored of a session, in one shape wherever it lay, with the place of each part.

The shape is the JSON object of the crate's files; a row of its SQLite tables becomes the same
object. Nothing is checked here but that there are objects: `_fiddlesticks_models` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fmemory_tools.importers._lines import Malformed, as_array, as_object, kind_of
from fmemory_tools.importers.plan import BadLine

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject, JsonValue

FORMAT = "fiddlesticks"

_LISTS = ("feature_list", "recent_progress", "checkpoints", "transcript")


@dataclass(frozen=True, slots=True)
class Part:
    """One row, or one item of a list.

    Attributes:
        place: What it is and where, such as `progress_entries row 7`.
        value: Its fields.
    """

    place: str
    value: JsonObject

    def bad(self, problem: object) -> BadLine:
        """This place, and what is wrong with it."""
        return bad_place(self.place, problem)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """All that was stored of one session, in the order in which it happened.

    Attributes:
        place: Where it lies in the source, in words; empty if all over it.
        init_steps: The steps of the manifest's init plan; None = it has no plan.
    """

    session_id: str
    place: str
    manifest: Part | None
    init_steps: tuple[Part, ...] | None
    features: tuple[Part, ...]
    progress: tuple[Part, ...]
    checkpoints: tuple[Part, ...]
    transcript: tuple[Part, ...]


def bad_place(place: str, problem: object) -> BadLine:
    """A finding about a place that is not a numbered line."""
    return BadLine(0, str(problem), place)


def session_of(session_id: str, place: str, state: JsonObject, bad: list[BadLine]) -> StoredSession:
    """The session that one JSON object describes; items that are no objects go to `bad`.

    Raises:
        Malformed: The object is not a session's, or of another session.
    """
    if not state.keys() & {"manifest", *_LISTS}:
        raise Malformed("no session of Fiddlesticks: it has neither a manifest nor a transcript")
    lists = {name: as_array(state.get(name, []), name) for name in _LISTS}
    bad.extend(unknown_keys(Part(place, state), ("session_id", "manifest", *_LISTS)))
    manifest, steps = _manifest(place, state.get("manifest"), bad)
    _check_id(session_id, state)
    if manifest is not None:
        _check_id(session_id, manifest.value)
    return StoredSession(
        session_id,
        place,
        manifest,
        steps,
        **{
            field: _parts(f"{place}: {name} item", lists[name], bad)
            for field, name in zip(
                ("features", "progress", "checkpoints", "transcript"), _LISTS, strict=True
            )
        },
    )


def unknown_keys(part: Part, known: tuple[str, ...]) -> list[BadLine]:
    """A finding for each key that no version of the format known here has: it would be lost."""
    return [
        part.bad(f"unknown key {key!r}, whose value would be lost")
        for key in part.value
        if key not in known
    ]


def _manifest(
    place: str, value: JsonValue, bad: list[BadLine]
) -> tuple[Part | None, tuple[Part, ...] | None]:
    if value is None:
        return None, None
    fields = dict(as_object(value, "manifest"))
    plan = fields.pop("init_plan", None)
    manifest = Part(f"{place}: manifest", fields)
    if plan is None:
        return manifest, None
    whole = Part(f"{place}: init_plan", as_object(plan, "init_plan"))
    bad.extend(unknown_keys(whole, ("steps",)))
    items = as_array(whole.value.get("steps"), "init_plan.steps")
    steps = _parts(f"{place}: init_plan step", items, bad)
    # A plan with a hole in it is none.
    return manifest, steps if len(steps) == len(items) else None


def _parts(unit: str, items: list[JsonValue], bad: list[BadLine]) -> tuple[Part, ...]:
    found = []
    for number, item in enumerate(items, start=1):
        place = f"{unit} {number}"
        if isinstance(item, dict):
            found.append(Part(place, item))
        else:
            bad.append(bad_place(place, f"expected an object, got {kind_of(item)}"))
    return tuple(found)


def _check_id(session_id: str, value: JsonObject) -> None:
    stated = value.get("session_id", session_id)
    if stated != session_id:
        raise Malformed(f"expected session {session_id!r} by its name, and it is of {stated!r}")
