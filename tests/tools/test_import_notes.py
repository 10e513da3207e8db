"""Notes and vectors are in the store exactly as the files have them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fmemory
from fmemory_tools.importers.apply import Differs, apply_notes
from fmemory_tools.importers.notes import plan_notes
from fmemory_tools.importers.plan import BadSource

NUMBERS = [26, 30, 41, 42, 43]
GOOD = '{"id": "a", "text": "x", "timestamp": 1, "metadata": {}}'


@pytest.mark.parametrize("number", NUMBERS)
def test_every_note_and_vector_comes_back(number: int, data: Path) -> None:
    file = data / "notes" / f"locomo-{number}.jsonl"
    vectors = file.with_suffix(".npy")
    expected = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    matrix = np.load(vectors)
    with fmemory.open(":memory:") as memory:
        plan = plan_notes(file, vectors=vectors, namespace=("locomo", str(number)))
        outcome = apply_notes(memory, plan)
        found = {one.id: one for one in memory.iter_all(namespace=("locomo", str(number)))}

    assert outcome.added == len(expected) == len(matrix) == len(found)
    for line, vector in zip(expected, matrix, strict=True):
        record = found[line["id"]]
        assert record.note.to_dict() == line
        assert record.vector.dtype == np.float32
        assert record.vector.tobytes() == vector.tobytes()


def test_the_same_file_twice_adds_nothing(data: Path) -> None:
    file = data / "notes" / "locomo-30.jsonl"
    plan = plan_notes(file, vectors=file.with_suffix(".npy"))
    with fmemory.open(":memory:") as memory:
        apply_notes(memory, plan)
        before = memory.head()

        outcome = apply_notes(memory, plan)

        assert (outcome.added, outcome.present) == (0, 369)
        assert memory.head() == before


def test_an_import_is_one_batch(data: Path) -> None:
    file = data / "notes" / "locomo-30.jsonl"
    plan = plan_notes(file, vectors=file.with_suffix(".npy"), embedding_id="minilm")
    with fmemory.open(":memory:") as memory:
        apply_notes(memory, plan)
        types = [event.type for event in memory.events()]

    assert types == ["records_put", "meta_set"]


def test_a_file_that_has_grown_adds_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text(GOOD)
    with fmemory.open(":memory:") as memory:
        apply_notes(memory, plan_notes(file))
        file.write_text(f"{GOOD}\n{GOOD.replace('a', 'b', 1)}\n")

        outcome = apply_notes(memory, plan_notes(file))

        assert (outcome.added, outcome.present) == (1, 1)


def test_another_content_under_the_same_id_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text(GOOD)
    with fmemory.open(":memory:") as memory:
        apply_notes(memory, plan_notes(file))
        before = memory.head()
        file.write_text(GOOD.replace('"x"', '"y"'))

        with pytest.raises(Differs, match="another content"):
            apply_notes(memory, plan_notes(file))

        assert memory.head() == before


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nope", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"text": "x", "timestamp": 1}', "id: expected a string, got null"),
        ('{"id": "", "text": "x", "timestamp": 1}', "id: expected some text"),
        ('{"id": "b", "timestamp": 1}', "text: expected a string"),
        ('{"id": "b", "text": "x"}', "timestamp: expected seconds"),
        ('{"id": "b", "text": "x", "timestamp": true}', "timestamp: expected seconds"),
        (
            '{"id": "b", "text": "x", "timestamp": 1, "metadata": []}',
            "metadata: expected an object",
        ),
        ('{"id": "b", "text": "x", "timestamp": 1, "tags": []}', "unknown field 'tags'"),
        (GOOD, "that of line 1 too"),
    ],
)
def test_a_malformed_line_is_named_and_refused(line: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text(f"{GOOD}\n{line}\n")

    with pytest.raises(BadSource) as caught:
        plan_notes(file)

    (bad,) = caught.value.lines
    assert bad.number == 2
    assert problem in bad.problem


def test_a_skipped_line_takes_its_vector_with_it(tmp_path: Path) -> None:
    file, vectors = tmp_path / "notes.jsonl", tmp_path / "notes.npy"
    file.write_text(f"{GOOD}\n\nnope\n{GOOD.replace('a', 'b', 1)}\n")
    np.save(vectors, np.arange(6, dtype=np.float64).reshape(3, 2))

    plan = plan_notes(file, vectors=vectors, skip_bad=True)

    assert [(one.id, one.vector.tolist()) for one in plan.records] == [
        ("a", [0.0, 1.0]),
        ("b", [4.0, 5.0]),
    ]
    assert [line.number for line in plan.source.skipped] == [3]


@pytest.mark.parametrize(
    ("matrix", "problem"),
    [
        (np.zeros((2, 3)), "expected 1 row, one a line, got 2"),
        (np.zeros(3), "expected an array of shape"),
        (np.zeros((1, 3), np.int64), "expected float32 or float64"),
        (np.full((1, 3), np.nan), "1 malformed line"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(
    matrix: np.ndarray, problem: str, tmp_path: Path
) -> None:
    file, vectors = tmp_path / "notes.jsonl", tmp_path / "notes.npy"
    file.write_text(GOOD)
    np.save(vectors, matrix)

    with pytest.raises(BadSource) as caught:
        plan_notes(file, vectors=vectors)

    assert problem in str(caught.value)


def test_a_file_that_is_no_array_is_refused(tmp_path: Path) -> None:
    file, vectors = tmp_path / "notes.jsonl", tmp_path / "notes.npy"
    file.write_text(GOOD)
    vectors.write_text("no array")

    with pytest.raises(BadSource, match="another file"):
        plan_notes(file, vectors=vectors)
