"""Sessions of the Rust crate Fiddlesticks: from its SQLite file, its folder or PostgreSQL.

The source is read and never changed. Each session becomes one of the same id: manifest, features,
progress, checkpoints and transcript in their order, with their times. Readers are in
`_fiddlesticks_*.py`, one a kind of source; `fiddlesticks_apply` writes the plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fmemory import ContractError, SessionManifest
from fmemory.session_models import check_session_id
from fmemory_tools.importers._fiddlesticks_files import read_folder
from fmemory_tools.importers._fiddlesticks_models import SessionModels, Timed, models_of
from fmemory_tools.importers._fiddlesticks_postgres import (
    SCHEMES,
    CannotRead,
    read_table,
)
from fmemory_tools.importers._fiddlesticks_sqlite import SQLITE_MAGIC, read_database
from fmemory_tools.importers._fiddlesticks_stored import FORMAT, StoredSession, bad_place
from fmemory_tools.importers.plan import BadLine, BadSource, counted

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject, JsonValue

__all__ = [
    "FORMAT",
    "CannotRead",
    "FiddlesticksPlan",
    "FiddlesticksSession",
    "is_url",
    "plan_fiddlesticks",
]

SOURCE_KEY = "source"


@dataclass(frozen=True, slots=True)
class FiddlesticksSession:
    """One session to be written.

    Attributes:
        models: What it holds.
        source: Where it comes from, as a JSON object: `name`, `format`, `kind`, `sha256`.
        manifest: Its manifest with the source in its metadata; None = it has none.
        digests: For each kind of item, the digest of each: what the keys of its events are made of.
    """

    session_id: str
    models: SessionModels
    source: JsonObject
    manifest: SessionManifest | None
    digests: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class FiddlesticksPlan:
    """The sessions of one source, by id.

    Attributes:
        name: The source's name: of the file or folder, or `host:port/database`.
        skipped: Malformed places that were left out on request.
    """

    name: str
    sessions: tuple[FiddlesticksSession, ...]
    skipped: tuple[BadLine, ...]


def is_url(source: str) -> bool:
    """Whether a source is a PostgreSQL database rather than a path."""
    return source.startswith(SCHEMES)


def plan_fiddlesticks(source: str, *, skip_bad: bool = False) -> FiddlesticksPlan:
    """What an import of this source would write.

    Args:
        source: A SQLite file, a folder that holds `sessions/`, or a URL `postgresql://…`.
        skip_bad: Leave malformed rows, items and files out instead of refusing the source. An init
            plan with a malformed step is left out whole.

    Raises:
        BadSource: It is nothing of Fiddlesticks, or something in it is malformed and `skip_bad` is
            not set.
        CannotRead: It is in PostgreSQL, and psycopg is not installed or nothing answers.
        OSError: It cannot be read.

    Cost: all sessions are in memory at once.
    """
    bad: list[BadLine] = []
    kind, name, stored = _read(source, bad)
    sessions = [_planned(one, kind, name, bad) for one in stored if _is_nameable(one, bad)]
    if bad and not skip_bad:
        raise BadSource(name, counted(len(bad), "malformed place"), lines=bad, skippable=True)
    return FiddlesticksPlan(
        name, tuple(sorted(sessions, key=lambda one: one.session_id)), tuple(bad)
    )


def _read(source: str, bad: list[BadLine]) -> tuple[str, str, list[StoredSession]]:
    """The kind of a source, its name, and what is stored there."""
    if is_url(source):
        name, stored = read_table(source, bad)
        return "postgres", name, stored
    path = Path(source)
    name = path.resolve().name
    if path.is_dir():
        return "filesystem", name, read_folder(path, bad)
    with path.open("rb") as file:
        magic = file.read(len(SQLITE_MAGIC))
    if magic != SQLITE_MAGIC:
        raise BadSource(
            name,
            "neither a SQLite file nor a folder; Fiddlesticks keeps its sessions in a SQLite file,"
            " in a folder that holds sessions/, or in PostgreSQL (postgresql://…)",
        )
    return "sqlite", name, read_database(path, bad)


def _is_nameable(stored: StoredSession, bad: list[BadLine]) -> bool:
    """Whether a session can have its id here; if not, that goes to `bad`."""
    try:
        check_session_id(stored.session_id)
    except ContractError as problem:
        place = stored.place or f"session {stored.session_id!r}"
        bad.append(bad_place(place, problem))
        return False
    return True


def _planned(
    stored: StoredSession, kind: str, name: str, bad: list[BadLine]
) -> FiddlesticksSession:
    models = models_of(stored, bad)
    digests = _digests(models)
    whole = json.dumps(digests, sort_keys=True).encode("ascii")
    source: JsonObject = {
        "name": name,
        "format": FORMAT,
        "kind": kind,
        "sha256": hashlib.sha256(whole).hexdigest(),
    }
    manifest = models.manifest
    if manifest is not None:
        manifest = manifest.with_metadata(_with_source(manifest.metadata, source))
    return FiddlesticksSession(stored.session_id, models, source, manifest, digests)


def _with_source(metadata: JsonObject, source: JsonObject) -> JsonObject:
    """The metadata with the source under a key that the session has not used itself."""
    key = SOURCE_KEY
    while key in metadata:
        key = f"imported_{key}"
    return {**metadata, key: source}


def _digests(models: SessionModels) -> dict[str, tuple[str, ...]]:
    features: list[JsonValue] = [one.to_dict() for one in models.features]
    return {
        "manifest": () if models.manifest is None else (_digest(models.manifest.to_dict()),),
        "features": (_digest(features),),
        "progress": tuple(map(_digest_of_timed, models.progress)),
        "checkpoint": tuple(map(_digest_of_timed, models.checkpoints)),
        "message": tuple(_digest([one.role.value, one.content]) for one in models.transcript),
    }


def _digest_of_timed(timed: Timed) -> str:
    nanos: Sequence[JsonValue] = timed.nanos
    return _digest([timed.what.to_dict(), *nanos])


def _digest(value: JsonValue) -> str:
    encoded = msgspec.json.encode(value, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]
