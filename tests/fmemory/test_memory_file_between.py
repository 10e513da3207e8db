"""A memory file goes from any kind of store to any other, with every number as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fmemory import JournalBackend, MemoryRecord, Note, PutRequest
from fmemory.record_models import VectorLike
from tests.fmemory.copy_tools import KINDS, Open, opened_memories

NAMESPACE = ("a%_./", "😀")
VECTORS: tuple[VectorLike, ...] = (
    np.array([0.1, -1 / 3, 5e-324]),
    np.array([0.1, 2 / 3, 1e-45], np.float32),
    (),
)


@pytest.fixture
def open_as(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open a memory of a kind under a name; all are closed at the end."""
    with opened_memories(request, tmp_path) as make:
        yield make


def records_of(memory: JournalBackend) -> list[MemoryRecord]:
    return list(memory.iter_all(namespace=NAMESPACE))


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dump_of_any_store_loads_into_any_other(
    kind: str, to: str, open_as: Open, tmp_path: Path
) -> None:
    source, target = open_as(kind, "source"), open_as(to, "target")
    source.put(
        PutRequest(
            [
                MemoryRecord.create(
                    Note(f"n{n}\0", "x\0\u2028😀", n / 3, {"n": [n, None, 0.1]}),
                    vector,
                    "model",
                    NAMESPACE,
                )
                for n, vector in enumerate(VECTORS)
            ]
        )
    )
    source.ensure_embedding_id("model", NAMESPACE)
    path = tmp_path / "memory.jsonl"

    assert source.dump(path, NAMESPACE) == target.load(path) == len(VECTORS)

    # The file keeps every number; that a vector was of 32 bits, it has no place for.
    found = [(one.note, one.embedding_id, list(one.vector)) for one in records_of(target)]
    assert found == [(one.note, one.embedding_id, list(one.vector)) for one in records_of(source)]
    wanted = target.meta_get_request("embedding_id", NAMESPACE)
    assert target.get_meta(wanted).value == "model"
