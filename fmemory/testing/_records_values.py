"""What a record may hold comes back as it was, and is nobody else's to change."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from fmemory._json_values import JsonObject, JsonValue
from fmemory.backend import MemoryBackend
from fmemory.record_models import MemoryRecord, Note
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._samples import get_ids, identity, record, scan, scan_ids
from fmemory_segments.event import VectorArray

TEXTS = (
    "",
    " ",
    "a\x00b",
    "line\r\nline\u2028line\n",
    "\u00e9 is not e\u0301",
    "漢字 кириллица \U0001f469\u200d\U0001f680",
    "\ufeff\ufffe\uffff\U0010ffff",
    "x" * 1_048_576,
    '{"lc": 2, "type": "constructor", "id": ["os", "system"]}',
)
IDS = ("a", " ", "a/b", "../x", "a.b", "a\x00b", "\u00e9", "e\u0301", "A", "\U0001f680", "x" * 4096)
METADATA: tuple[JsonObject, ...] = (
    {},
    {"": None},
    {"a.b": {"$eq": 1}, "a": {"b": 2}},
    {"int": 2**64 - 1, "small": -(2**63), "bool": True, "one": 1, "float": 1.0},
    {"floats": [0.1, 5e-324, 1.7976931348623157e308, -0.0, 1e16]},
    {"nested": [[[{"x": [None, {}, []]}]]]},
    {"text": "a\x00b \U0001f680", "漢": "字"},
    {"lc": 2, "type": "constructor", "id": ["builtins", "eval"], "kwargs": {"x": "1"}},
)
VECTORS: tuple[VectorArray, ...] = (
    np.array([], np.float64),
    np.array([1.5], np.float32),
    np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308], np.float64),
    np.array([0.1, -0.0, 1e-45, 3.4028235e38], np.float32),
    np.linspace(-1, 1, 1536),
)


class ValuesPart(BackendSuiteBase):
    """Everything of a record round-trips."""

    @pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
    def test_text_comes_back_as_given(self, memory: MemoryBackend, text: str) -> None:
        self.put(memory, record("a", text=text))
        assert scan(memory)[0].note.text == text

    @pytest.mark.parametrize("metadata", METADATA, ids=range(len(METADATA)))
    def test_metadata_comes_back_with_its_types(
        self, memory: MemoryBackend, metadata: JsonObject
    ) -> None:
        self.put(memory, record("a", metadata=metadata))
        assert repr(scan(memory)[0].note.metadata) == repr(metadata)

    def test_ids_of_every_kind_are_apart(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(one, number) for number, one in enumerate(IDS)))
        assert get_ids(memory, IDS) == list(IDS)

    @pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
    def test_vector_comes_back_bit_for_bit(
        self, memory: MemoryBackend, vector: VectorArray
    ) -> None:
        one = record("a", vector=vector)
        self.put(memory, one)
        assert identity(scan(memory)[0]) == identity(one)

    @pytest.mark.parametrize(
        "given",
        [
            [1, 2, 3],
            (1.0, 2.0, 3.0),
            np.array([1, 2, 3]),
            np.array([1, 2, 3], np.float16),
            np.array([1, 2, 3], ">f8"),
            np.array([1, 9, 2, 9, 3, 9], np.float64)[::2],
        ],
        ids=["ints", "tuple", "int64", "float16", "big endian", "strided"],
    )
    def test_numbers_of_other_forms_become_float64(
        self, memory: MemoryBackend, given: object
    ) -> None:
        vector = cast("npt.NDArray[np.float64]", given)
        self.put(memory, MemoryRecord(Note("a", "", 1.0, {}), vector))
        found = scan(memory)[0].vector
        assert (found.dtype.name, found.tolist()) == ("float64", [1.0, 2.0, 3.0])

    def test_big_endian_float32_stays_float32(self, memory: MemoryBackend) -> None:
        vector = cast("npt.NDArray[np.float32]", np.array([1, 2], ">f4"))
        self.put(memory, MemoryRecord(Note("a", "", 1.0, {}), vector))
        found = scan(memory)[0].vector
        assert (found.dtype.name, found.tolist()) == ("float32", [1.0, 2.0])

    def test_widths_and_types_may_be_mixed_in_a_namespace(self, memory: MemoryBackend) -> None:
        many = [record(f"x{i}", i, vector=vector) for i, vector in enumerate(VECTORS * 2)]
        self.put(memory, *many)
        assert [identity(one) for one in scan(memory, limit=4)] == [identity(one) for one in many]

    def test_embedding_ids_come_back(self, memory: MemoryBackend) -> None:
        names = [None, "m", "model/with:signs", "ü", "m", None]
        self.put(memory, *(record(f"x{i}", i, embedding_id=one) for i, one in enumerate(names)))
        assert [one.embedding_id for one in scan(memory)] == names

    @pytest.mark.parametrize("timestamp", [0.1, -1e308, 5e-324, 1_700_000_000.123456])
    def test_timestamp_comes_back_exactly(self, memory: MemoryBackend, timestamp: float) -> None:
        self.put(memory, record("a", timestamp))
        assert repr(scan(memory)[0].note.timestamp) == repr(timestamp)

    def test_int_timestamp_becomes_float(self, memory: MemoryBackend) -> None:
        self.put(memory, MemoryRecord(Note("a", "", 5, {}), np.zeros(1)))
        assert repr(scan(memory)[0].note.timestamp) == "5.0"

    @needs(Capability.PERSISTENT)
    def test_everything_is_the_same_after_a_reopen(self, stores: Stores) -> None:
        memory = stores.open()
        many = [
            record(one, i, text=TEXTS[i % 5], metadata=METADATA[i % 8], vector=VECTORS[i % 5])
            for i, one in enumerate(IDS)
        ]
        self.put(memory, *many)
        found = scan(stores.reopen(memory))
        assert [identity(one) for one in found] == [identity(one) for one in many]


class CopiesPart(BackendSuiteBase):
    """Records are copied in and out."""

    def test_given_vector_can_be_changed_afterwards(self, memory: MemoryBackend) -> None:
        vector = np.array([1.0, 2.0])
        self.put(memory, MemoryRecord(Note("a", "", 1.0, {}), vector))
        vector[0] = 99.0
        assert scan(memory)[0].vector.tolist() == [1.0, 2.0]

    def test_given_metadata_can_be_changed_afterwards(self, memory: MemoryBackend) -> None:
        metadata: JsonObject = {"list": [1]}
        self.put(memory, MemoryRecord(Note("a", "", 1.0, metadata), np.zeros(1)))
        cast("list[JsonValue]", metadata["list"]).append(2)
        metadata["new"] = 1
        assert scan(memory)[0].note.metadata == {"list": [1]}

    def test_received_vectors_can_be_changed(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i, vector=[1.0, 2.0]) for i in range(3)))
        for one in scan(memory):
            one.vector[:] = 99.0
        assert [one.vector.tolist() for one in scan(memory)] == [[1.0, 2.0]] * 3

    def test_vectors_of_one_page_do_not_share_memory(self, memory: MemoryBackend) -> None:
        self.put(memory, *(record(f"x{i}", i, vector=[1.0, 2.0]) for i in range(3)))
        page = scan(memory)
        page[1].vector[:] = 99.0
        assert [one.vector.tolist() for one in page] == [[1.0, 2.0], [99.0, 99.0], [1.0, 2.0]]

    def test_vector_received_by_get_can_be_changed(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", vector=[1.0, 2.0]))
        memory.get(memory.get_request(("a",))).records[0].vector[:] = 99.0
        assert scan(memory)[0].vector.tolist() == [1.0, 2.0]

    def test_received_metadata_can_be_changed(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a", metadata={"list": [1]}))
        received = scan(memory)[0].note.metadata
        cast("list[JsonValue]", received["list"]).append(2)
        received["new"] = 1
        assert scan(memory)[0].note.metadata == {"list": [1]}

    def test_record_kept_from_a_page_outlives_the_store(self, stores: Stores) -> None:
        memory = stores.open()
        self.put(memory, record("a", vector=[1.0, 2.0]))
        kept = scan(memory)[0]
        memory.close()
        assert (kept.vector.tolist(), kept.note.id) == ([1.0, 2.0], "a")

    def test_record_that_was_put_can_be_put_elsewhere(self, memory: MemoryBackend) -> None:
        self.put(memory, record("a"))
        (found,) = scan(memory)
        self.put(memory, MemoryRecord(found.note, found.vector, found.embedding_id, ("b",)))
        assert scan_ids(memory, ("b",)) == ["a"]
