"""Bad input to record operations: a typed error that names the place, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, MemoryErrorKind, Reason
from fmemory.record_models import MemoryRecord, Note
from fmemory.testing._backend_base import BackendSuiteBase
from fmemory.testing._samples import record

NAN, INFINITY = float("nan"), float("inf")
SURROGATE = "a\ud800b"


def with_note(
    record_id: object = "bad",
    text: object = "text",
    timestamp: object = 1.0,
    metadata: object = None,
) -> Note:
    """A note whose constructor checked nothing."""
    fields = (record_id, text, timestamp, {} if metadata is None else metadata)
    return cast("Callable[..., Note]", Note)(*fields)


def with_fields(
    note: object = None,
    vector: object = None,
    embedding_id: object = None,
    namespace: object = (),
) -> MemoryRecord:
    """A record whose constructor checked nothing."""
    fields = (
        with_note() if note is None else note,
        np.zeros(2) if vector is None else vector,
        embedding_id,
        namespace,
    )
    return cast("Callable[..., MemoryRecord]", MemoryRecord)(*fields)


def deep(levels: int) -> object:
    """Lists inside one another."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


class FakeText(str):
    """A str that is not just one."""


BAD_RECORDS: dict[str, tuple[MemoryRecord, Reason, str]] = {
    "id empty": (with_fields(with_note("")), Reason.EMPTY, "note.id"),
    "id int": (with_fields(with_note(7)), Reason.WRONG_TYPE, "note.id"),
    "id None": (with_fields(with_note(None)), Reason.WRONG_TYPE, "note.id"),
    "id bytes": (with_fields(with_note(b"a")), Reason.WRONG_TYPE, "note.id"),
    "id surrogate": (with_fields(with_note(SURROGATE)), Reason.LONE_SURROGATE, "note.id"),
    "id too long": (with_fields(with_note("x" * 4097)), Reason.TOO_LARGE, "note.id"),
    "text None": (with_fields(with_note(text=None)), Reason.WRONG_TYPE, "note.text"),
    "text bytes": (with_fields(with_note(text=b"x")), Reason.WRONG_TYPE, "note.text"),
    "text surrogate": (
        with_fields(with_note(text=SURROGATE)),
        Reason.LONE_SURROGATE,
        "note.text",
    ),
    "time nan": (with_fields(with_note(timestamp=NAN)), Reason.NOT_FINITE, "note.timestamp"),
    "time infinite": (
        with_fields(with_note(timestamp=-INFINITY)),
        Reason.NOT_FINITE,
        "note.timestamp",
    ),
    "time bool": (with_fields(with_note(timestamp=True)), Reason.WRONG_TYPE, "note.timestamp"),
    "time text": (with_fields(with_note(timestamp="1")), Reason.WRONG_TYPE, "note.timestamp"),
    "time 2**70 + 1": (
        with_fields(with_note(timestamp=2**70 + 1)),
        Reason.NOT_EXACT,
        "note.timestamp",
    ),
    "metadata list": (
        with_fields(with_note(metadata=[1])),
        Reason.WRONG_TYPE,
        "note.metadata",
    ),
    "metadata nan": (
        with_fields(with_note(metadata={"a": [1, {"b": NAN}]})),
        Reason.NOT_FINITE,
        'note.metadata["a"][1]["b"]',
    ),
    "metadata infinite": (
        with_fields(with_note(metadata={"a": INFINITY})),
        Reason.NOT_FINITE,
        'note.metadata["a"]',
    ),
    "metadata int key": (
        with_fields(with_note(metadata={"a": {1: "x"}})),
        Reason.NOT_JSON,
        'note.metadata["a"]',
    ),
    "metadata surrogate": (
        with_fields(with_note(metadata={"a": SURROGATE})),
        Reason.LONE_SURROGATE,
        'note.metadata["a"]',
    ),
    "metadata surrogate key": (
        with_fields(with_note(metadata={SURROGATE: 1})),
        Reason.LONE_SURROGATE,
        "note.metadata",
    ),
    "metadata 2**70": (
        with_fields(with_note(metadata={"a": 2**70})),
        Reason.OUT_OF_RANGE,
        'note.metadata["a"]',
    ),
    "metadata below 64 bit": (
        with_fields(with_note(metadata={"a": -(2**63) - 1})),
        Reason.OUT_OF_RANGE,
        'note.metadata["a"]',
    ),
    "metadata bytes": (
        with_fields(with_note(metadata={"a": b"x"})),
        Reason.NOT_JSON,
        'note.metadata["a"]',
    ),
    "metadata tuple": (
        with_fields(with_note(metadata={"a": (1,)})),
        Reason.NOT_JSON,
        'note.metadata["a"]',
    ),
    "metadata function": (
        with_fields(with_note(metadata={"a": deep})),
        Reason.NOT_JSON,
        'note.metadata["a"]',
    ),
    "metadata numpy": (
        with_fields(with_note(metadata={"a": np.float64(1)})),
        Reason.NOT_JSON,
        'note.metadata["a"]',
    ),
    "metadata subclass": (
        with_fields(with_note(metadata={"a": FakeText("x")})),
        Reason.NOT_JSON,
        'note.metadata["a"]',
    ),
    "vector nan": (
        with_fields(vector=np.array([1.0, NAN])),
        Reason.NOT_FINITE,
        "vector[1]",
    ),
    "vector infinite float32": (
        with_fields(vector=np.array([1, 2, INFINITY], np.float32)),
        Reason.NOT_FINITE,
        "vector[2]",
    ),
    "vector of two dimensions": (
        with_fields(vector=np.zeros((2, 2))),
        Reason.WRONG_DIMENSION,
        "vector",
    ),
    "vector of no dimension": (
        with_fields(vector=np.array(1.0)),
        Reason.WRONG_DIMENSION,
        "vector",
    ),
    "vector of text": (
        with_fields(vector=np.array(["1", "2"])),
        Reason.WRONG_TYPE,
        "vector",
    ),
    "vector of bools": (
        with_fields(vector=np.array([True, False])),
        Reason.WRONG_TYPE,
        "vector",
    ),
    "vector of complex": (
        with_fields(vector=np.array([1j])),
        Reason.WRONG_TYPE,
        "vector",
    ),
    "vector of objects": (
        with_fields(vector=np.array([1.0, None], object)),
        Reason.WRONG_TYPE,
        "vector",
    ),
    "vector text": (with_fields(vector="12"), Reason.WRONG_TYPE, "vector"),
    "embedding id empty": (with_fields(embedding_id=""), Reason.EMPTY, "embedding_id"),
    "embedding id int": (with_fields(embedding_id=1), Reason.WRONG_TYPE, "embedding_id"),
    "namespace text": (with_fields(namespace="ab"), Reason.WRONG_TYPE, "namespace"),
    "namespace of ints": (with_fields(namespace=(1,)), Reason.WRONG_TYPE, "namespace[0]"),
    "namespace starting empty": (
        with_fields(namespace=("", "a")),
        Reason.EMPTY,
        "namespace[0]",
    ),
    "namespace surrogate": (
        with_fields(namespace=("a", SURROGATE)),
        Reason.LONE_SURROGATE,
        "namespace[1]",
    ),
    "namespace too deep": (
        with_fields(namespace=("a",) * 33),
        Reason.TOO_LARGE,
        "namespace",
    ),
}


class BadRecordPart(BackendSuiteBase):
    """A bad record among good ones: none is written, and the error names which and where."""

    @pytest.mark.parametrize("case", BAD_RECORDS)
    def test_put_of_a_bad_record_is_refused_and_its_place_named(
        self, memory: MemoryBackend, case: str
    ) -> None:
        bad, reason, where = BAD_RECORDS[case]
        with self.refused(memory, ContractError, reason) as caught:
            self.put(memory, record("good"), bad)
        assert caught.value.where == f"records[1].{where}"

    def test_metadata_nested_too_deep_is_refused(self, memory: MemoryBackend) -> None:
        bad = with_fields(with_note(metadata={"a": deep(2000)}))
        with self.refused(memory, ContractError, Reason.TOO_DEEP):
            self.put(memory, bad)

    def test_metadata_that_contains_itself_is_refused(self, memory: MemoryBackend) -> None:
        loop: dict[str, object] = {}
        loop["self"] = loop
        with self.refused(memory, ContractError, Reason.TOO_DEEP):
            self.put(memory, with_fields(with_note(metadata=loop)))

    @pytest.mark.parametrize("item", [None, "a", 1, {"id": "a"}, with_note()])
    def test_put_of_something_that_is_no_record_is_refused(
        self, memory: MemoryBackend, item: object
    ) -> None:
        with self.refused(memory, ContractError, Reason.WRONG_TYPE):
            self.put(memory, record("good"), cast("MemoryRecord", item))

    @pytest.mark.parametrize("records", [None, 1, "ab", {"a"}, iter(())])
    def test_put_request_without_a_sequence_is_refused(
        self, memory: MemoryBackend, records: object
    ) -> None:
        with self.refused(memory, ContractError, Reason.WRONG_TYPE):
            self.untyped(memory, "put_request", records)

    def test_contract_error_is_a_value_error_of_an_invalid_request(
        self, memory: MemoryBackend
    ) -> None:
        with pytest.raises(ValueError) as caught:
            self.put(memory, BAD_RECORDS["id empty"][0])
        assert isinstance(caught.value, ContractError)
        assert caught.value.kind is MemoryErrorKind.INVALID_REQUEST


BAD_REQUESTS: dict[str, tuple[str, tuple[object, ...], dict[str, object], Reason]] = {
    "limit 0": ("scan_request", (), {"limit": 0}, Reason.OUT_OF_RANGE),
    "limit -1": ("scan_request", (), {"limit": -1}, Reason.OUT_OF_RANGE),
    "limit 2**70": ("scan_request", (), {"limit": 2**70}, Reason.OUT_OF_RANGE),
    "limit True": ("scan_request", (), {"limit": True}, Reason.WRONG_TYPE),
    "limit 1.0": ("scan_request", (), {"limit": 1.0}, Reason.WRONG_TYPE),
    "limit None": ("scan_request", (), {"limit": None}, Reason.WRONG_TYPE),
    "scan namespace": ("scan_request", (), {"namespace": "a"}, Reason.WRONG_TYPE),
    "scan range": ("scan_request", (), {"time_range": (1, 2)}, Reason.WRONG_TYPE),
    "get no sequence": ("get_request", (None,), {}, Reason.WRONG_TYPE),
    "get text": ("get_request", ("abc",), {}, Reason.WRONG_TYPE),
    "get int id": ("get_request", (("a", 1),), {}, Reason.WRONG_TYPE),
    "get empty id": ("get_request", (("a", ""),), {}, Reason.EMPTY),
    "get surrogate": ("get_request", ((SURROGATE,),), {}, Reason.LONE_SURROGATE),
    "delete int id": ("delete_request", ((1,),), {}, Reason.WRONG_TYPE),
    "delete empty id": ("delete_request", (("",),), {}, Reason.EMPTY),
    "count range": ("count_request", (), {"time_range": 5}, Reason.WRONG_TYPE),
    "count namespace": ("count_request", (), {"namespace": ("",)}, Reason.EMPTY),
    "clear namespace": ("clear_request", (), {"namespace": None}, Reason.WRONG_TYPE),
    "meta key empty": ("meta_get_request", ("",), {}, Reason.EMPTY),
    "meta key int": ("meta_get_request", (1,), {}, Reason.WRONG_TYPE),
    "set key empty": ("meta_set_request", ("", 1), {}, Reason.EMPTY),
    "set key surrogate": ("meta_set_request", (SURROGATE, 1), {}, Reason.LONE_SURROGATE),
    "set nan": ("meta_set_request", ("k", {"a": NAN}), {}, Reason.NOT_FINITE),
    "set int key": ("meta_set_request", ("k", {1: 2}), {}, Reason.NOT_JSON),
    "set 2**70": ("meta_set_request", ("k", [2**70]), {}, Reason.OUT_OF_RANGE),
    "set bytes": ("meta_set_request", ("k", b"x"), {}, Reason.NOT_JSON),
    "set surrogate": ("meta_set_request", ("k", SURROGATE), {}, Reason.LONE_SURROGATE),
    "set tuple": ("meta_set_request", ("k", (1,)), {}, Reason.NOT_JSON),
}
BAD_RANGES: dict[str, tuple[object, object, Reason]] = {
    "reversed": (30, 10, Reason.OUT_OF_RANGE),
    "nan": (NAN, None, Reason.NOT_FINITE),
    "infinite": (None, INFINITY, Reason.NOT_FINITE),
    "text": ("1", None, Reason.WRONG_TYPE),
    "bool": (True, None, Reason.WRONG_TYPE),
}


class BadRequestPart(BackendSuiteBase):
    """Requests check themselves."""

    @pytest.mark.parametrize("case", BAD_REQUESTS)
    def test_bad_request_is_refused(self, memory: MemoryBackend, case: str) -> None:
        name, arguments, options, reason = BAD_REQUESTS[case]
        self.put(memory, record("a"))
        with self.refused(memory, ContractError, reason):
            self.untyped(memory, name, *arguments, **options)

    @pytest.mark.parametrize("case", BAD_RANGES)
    def test_bad_time_range_is_refused(self, case: str) -> None:
        from fmemory.record_models import TimeRange

        start, end, reason = BAD_RANGES[case]
        with pytest.raises(ContractError) as caught:
            cast("Callable[..., TimeRange]", TimeRange)(start, end)
        assert caught.value.reason is reason

    def test_backend_offers_its_eight_request_classes(self, memory: MemoryBackend) -> None:
        names = ("put", "get", "delete", "scan", "count", "meta_get", "meta_set", "clear")
        kinds = [getattr(memory, f"{name}_request") for name in names]
        assert all(isinstance(kind, type) for kind in kinds)

    def test_backend_accepts_an_extended_request(self, memory: MemoryBackend) -> None:
        extended = type("Extended", (memory.count_request,), {})
        assert memory.count(extended()).count == 0
