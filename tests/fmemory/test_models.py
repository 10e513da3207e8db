"""Models: they check themselves, keep nothing of the caller's, and convert to plain data."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory import log_models, record_models, session_models
from fmemory._model import Model
from fmemory.errors import ContractError, DuplicateRecord, Reason
from fmemory.log_models import ErasedRecord, Event, NewEvent, Receipt, StreamPage, StreamSummary
from fmemory.record_models import (
    ID_CHARACTERS_MAX,
    REQUEST_ITEMS_MAX,
    SCAN_LIMIT_MAX,
    ClearRequest,
    CountRequest,
    DeleteRequest,
    GetRequest,
    GetResult,
    MemoryRecord,
    MetaGetRequest,
    MetaSetRequest,
    Note,
    PutRequest,
    ScanRequest,
    ScanResult,
    ScoredRecord,
    TimeRange,
    VectorBlock,
    check_namespace,
    check_put,
    check_record,
    check_records,
    check_vector,
)
from fmemory.session_models import (
    BootstrapState,
    FeatureRecord,
    InitPlan,
    InitShell,
    InitStep,
    Message,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionInfo,
    SessionManifest,
    SessionPage,
    ToolCall,
)

NOW = datetime(2026, 1, 31, 12, 30, 0, 123456, tzinfo=UTC)
NAN = float("nan")
INF = float("inf")


def note(**changes: object) -> Note:
    """A bare note: its constructor checks nothing."""
    fields: dict[str, Any] = {"id": "n1", "text": "tea", "timestamp": 1.0, "metadata": {}}
    return Note(**{**fields, **changes})


def record(vector: object = (1.0, 2.0), **changes: Any) -> MemoryRecord:
    """A bare record: its constructor checks nothing."""
    given_note = changes.pop("note", note())
    return MemoryRecord(given_note, vector, **changes)  # type: ignore[arg-type]


RECORD = MemoryRecord.create(note(metadata={"a": [1, None]}), [1.0, 2.0], "model", ("u", ""))
MANIFEST = SessionManifest(
    "s1",
    "main",
    "go on",
    init_plan=InitPlan([InitStep.command("make", ["x"]), InitStep.shell(InitShell.SH, "ls")]),
    metadata={"a": 1.5},
)
MESSAGE = Message(
    "assistant",
    "hi",
    blocks=[{"type": "text", "text": "hi"}, "x"],
    name="ada",
    tool_calls=[ToolCall("c1", "f", {"a": [1]}), ToolCall("c2", "g", "{")],
    tool_call_id="c0",
    is_error=True,
    id="m1",
    created_at=NOW,
    metadata={"k": "v"},
)
FEATURE = FeatureRecord("f1", "core", "works", ["open", "look"], True)
STATE = BootstrapState(
    MANIFEST, (FEATURE,), (ProgressEntry("r", "did"),), (RunCheckpoint.started("r"),), 3
)
EXAMPLES: list[Any] = [
    note(metadata={"a": 1}),
    RECORD,
    TimeRange(1, None),
    PutRequest([RECORD], event_id="e", expected_revision=0),
    GetRequest(["a", "b"], ("u", "")),
    GetResult((RECORD,), ("x",)),
    DeleteRequest(["a"], event_id="e"),
    ScanRequest(TimeRange(1, 2), ("u",), 10, "cursor"),
    ScanResult((RECORD,), "next"),
    CountRequest(TimeRange(end=2.5)),
    MetaGetRequest("k", ("u",)),
    MetaSetRequest("k", {"a": [None]}, ("u",), expected_revision=3),
    ClearRequest(("u",)),
    ScoredRecord(RECORD, 0.5),
    VectorBlock(("a", "b"), np.array([1.0, 2.0]), np.ones((2, 3))),
    VectorBlock((), np.empty(0), np.empty((0, 0))),
    Receipt(1, 2, 3, True),
    NewEvent("tool.finished", {"a": 1}, "e", NOW),
    NewEvent("tool.output", b"\0\xff"),
    Event(1, ("session", "s"), 1, "x", NOW, occurred_at=NOW, data=[1]),
    Event(1, ("s",), 1, "tool.output", NOW, data=b"\0"),
    Event(2, ("records",), 1, "records_put", NOW, records=(RECORD, ErasedRecord("a", 1.0))),
    StreamPage((StreamSummary(("a",), 1, 1, 1, 1, NOW),), "c"),
    MANIFEST,
    MESSAGE,
    STATE,
    SessionPage((SessionInfo("s", 1, 1, NOW, True),)),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: type(one).__name__)
def test_a_model_comes_back_from_its_plain_data(example: Any) -> None:
    kind = type(example)
    assert kind.from_dict(example.to_dict()) == example
    assert kind.from_json(example.to_json()) == example
    assert json.loads(example.to_json()) == example.to_dict()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: type(one).__name__)
def test_a_schema_names_exactly_the_keys_of_the_plain_data(example: Any) -> None:
    schema = type(example).json_schema()
    definition = schema["$defs"][type(example).__name__]
    assert set(example.to_dict()) <= set(definition["properties"])
    assert set(definition["required"]) <= set(example.to_dict())
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: type(one).__name__)
def test_an_unknown_key_is_refused(example: Any) -> None:
    with pytest.raises(ContractError) as caught:
        type(example).from_dict({**example.to_dict(), "zzz": 1})
    assert caught.value.reason is Reason.UNKNOWN_FIELD


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: type(one).__name__)
def test_a_missing_key_is_refused_by_name(example: Any) -> None:
    kind = type(example)
    for field in msgspec.structs.fields(kind):
        plain = example.to_dict()
        if field.required and field.name in plain and field.name != "metadata":
            del plain[field.name]
            with pytest.raises(ContractError) as caught:
                kind.from_dict(plain)
            assert (caught.value.where, caught.value.reason) == (field.name, Reason.MISSING_FIELD)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: type(one).__name__)
def test_an_instance_is_frozen(example: Any) -> None:
    with pytest.raises(AttributeError):
        setattr(example, example.__struct_fields__[0], None)


def test_there_is_an_example_or_a_reason_for_every_model() -> None:
    modules = (record_models, session_models, log_models)
    models = {
        name
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, msgspec.Struct) and name in module.__all__
    }
    nested = {"ErasedRecord", "StreamSummary", "FeatureRecord", "InitPlan", "InitStep"}
    nested |= {"InitCommand", "InitShellScript", "ProgressEntry", "RunCheckpoint", "SessionInfo"}
    nested |= {"ToolCall"}
    numbers_only = {"PutResult", "DeleteResult", "ClearResult", "CountResult", "MetaResult"}
    numbers_only |= {"Stats", "StreamStats", "TypeStats", "Health", "AutoCompact", "CompactResult"}
    shown = {type(example).__name__ for example in EXAMPLES}
    assert models == shown | nested | numbers_only


REFUSED: list[tuple[Callable[[], object], str, Reason]] = [
    (lambda: GetRequest("abc"), "ids", Reason.WRONG_TYPE),
    (lambda: GetRequest({"a"}), "ids", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: GetRequest(["a", ""]), "ids[1]", Reason.EMPTY),
    (lambda: GetRequest(["a", 1]), "ids[1]", Reason.WRONG_TYPE),  # type: ignore[list-item]
    (lambda: GetRequest(["a", "\ud800"]), "ids[1]", Reason.LONE_SURROGATE),
    (lambda: GetRequest(["a"], "user"), "namespace", Reason.WRONG_TYPE),
    (lambda: GetRequest(["a"], ("", "b")), "namespace[0]", Reason.EMPTY),
    (lambda: GetRequest(["a"], ("a", 1)), "namespace[1]", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: GetRequest(["a"], ["x"] * 33), "namespace", Reason.TOO_LARGE),
    (lambda: GetRequest(["a"], ["x" * 4097]), "namespace[0]", Reason.TOO_LARGE),
    (lambda: ScanRequest(limit=0), "limit", Reason.OUT_OF_RANGE),
    (lambda: ScanRequest(limit=-1), "limit", Reason.OUT_OF_RANGE),
    (lambda: ScanRequest(limit=SCAN_LIMIT_MAX + 1), "limit", Reason.OUT_OF_RANGE),
    (lambda: ScanRequest(limit=True), "limit", Reason.WRONG_TYPE),
    (lambda: ScanRequest(limit=1.0), "limit", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: ScanRequest((1, 2)), "time_range", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: ScanRequest(cursor=b"x"), "cursor", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: TimeRange(2, 1), "start", Reason.OUT_OF_RANGE),
    (lambda: TimeRange(NAN), "start", Reason.NOT_FINITE),
    (lambda: TimeRange(end=INF), "end", Reason.NOT_FINITE),
    (lambda: TimeRange(True), "start", Reason.WRONG_TYPE),
    (lambda: TimeRange("1"), "start", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: TimeRange(2**53 + 1), "start", Reason.NOT_EXACT),
    (lambda: TimeRange(10**400), "start", Reason.NOT_EXACT),
    (lambda: PutRequest([1]), "records[0]", Reason.WRONG_TYPE),  # type: ignore[list-item]
    (lambda: PutRequest(RECORD), "records", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: PutRequest([], event_id=""), "event_id", Reason.EMPTY),
    (lambda: PutRequest([], event_id="x" * 1025), "event_id", Reason.TOO_LARGE),
    (lambda: PutRequest([], expected_revision=-1), "expected_revision", Reason.OUT_OF_RANGE),
    (lambda: MetaGetRequest(""), "key", Reason.EMPTY),
    (lambda: MetaSetRequest("k", NAN), "value", Reason.NOT_FINITE),
    (lambda: MetaSetRequest("k", {"a": (1,)}), 'value["a"]', Reason.NOT_JSON),  # type: ignore[dict-item]
    (lambda: NewEvent("plain"), "type", Reason.BAD_VALUE),
    (lambda: NewEvent(""), "type", Reason.EMPTY),
    (lambda: NewEvent("a.b", {1, 2}), "data", Reason.NOT_JSON),  # type: ignore[arg-type]
    (lambda: NewEvent("a.b", occurred_at=datetime.now()), "occurred_at", Reason.NAIVE_TIME),
    (lambda: SessionManifest("", "b", "o"), "session_id", Reason.EMPTY),
    (lambda: SessionManifest("s", "b", "o", 0), "schema_version", Reason.OUT_OF_RANGE),
    (
        lambda: SessionManifest("s", "b", "o", metadata={"a": 2**70}),
        'metadata["a"]',
        Reason.OUT_OF_RANGE,
    ),
    (lambda: SessionManifest("s", None, "o"), "active_branch", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: FeatureRecord("f", "c", "d", "steps"), "steps", Reason.WRONG_TYPE),
    (lambda: FeatureRecord("f", "c", "d", passes=1), "passes", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: ProgressEntry("r", "s", datetime.now()), "created_at", Reason.NAIVE_TIME),
    (lambda: ProgressEntry("r", "s", NOW.date()), "created_at", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: RunCheckpoint("r", NOW, status="done"), "status", Reason.BAD_VALUE),  # type: ignore[arg-type]
    (lambda: Message("narrator"), "role", Reason.BAD_VALUE),  # type: ignore[arg-type]
    (lambda: Message("user", None), "content", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: Message("user", "\ud800"), "content", Reason.LONE_SURROGATE),
    (lambda: Message("user", blocks=[{"a": INF}]), 'blocks[0]["a"]', Reason.NOT_FINITE),
    (lambda: Message("user", tool_calls=[1]), "tool_calls[0]", Reason.WRONG_TYPE),  # type: ignore[list-item]
    (lambda: ToolCall("c", "f", 1), "arguments", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: ToolCall("", "f"), "id", Reason.EMPTY),
    (lambda: InitStep.shell("fish", "x"), "shell", Reason.BAD_VALUE),  # type: ignore[arg-type]
    (lambda: Receipt(1, 2, 3, 1), "durable", Reason.WRONG_TYPE),  # type: ignore[arg-type]
    (lambda: VectorBlock(("a",), np.zeros(2), np.zeros((1, 2))), "", Reason.WRONG_DIMENSION),
]


@pytest.mark.parametrize(
    ("build", "where", "reason"),
    REFUSED,
    ids=[inspect.getsource(one[0]).strip()[9:60] for one in REFUSED],
)
def test_a_bad_value_is_refused_by_path(
    build: Callable[[], object], where: str, reason: Reason
) -> None:
    with pytest.raises(ContractError) as caught:
        build()
    assert (caught.value.where, caught.value.reason) == (where, reason)


RECORDS_REFUSED: list[tuple[object, str, Reason]] = [
    (record(note=note(id="")), "note.id", Reason.EMPTY),
    (record(note=note(id=1)), "note.id", Reason.WRONG_TYPE),
    (record(note=note(id="\ud800")), "note.id", Reason.LONE_SURROGATE),
    (record(note=note(id="x" * (ID_CHARACTERS_MAX + 1))), "note.id", Reason.TOO_LARGE),
    (record(note=note(text=None)), "note.text", Reason.WRONG_TYPE),
    (record(note=note(text="a\udfff")), "note.text", Reason.LONE_SURROGATE),
    (record(note=note(timestamp=NAN)), "note.timestamp", Reason.NOT_FINITE),
    (record(note=note(timestamp=-INF)), "note.timestamp", Reason.NOT_FINITE),
    (record(note=note(timestamp=True)), "note.timestamp", Reason.WRONG_TYPE),
    (record(note=note(timestamp="1")), "note.timestamp", Reason.WRONG_TYPE),
    (record(note=note(timestamp=2**53 + 1)), "note.timestamp", Reason.NOT_EXACT),
    (record(note=note(metadata=None)), "note.metadata", Reason.WRONG_TYPE),
    (record(note=note(metadata={"a": NAN})), 'note.metadata["a"]', Reason.NOT_FINITE),
    (record(note=note(metadata={1: 1})), "note.metadata", Reason.NOT_JSON),
    (record(note=None), "note", Reason.WRONG_TYPE),
    (record(vector=[1.0, NAN]), "vector[1]", Reason.NOT_FINITE),
    (record(vector=np.array([INF, 1.0])), "vector[0]", Reason.NOT_FINITE),
    (
        record(vector=[1e400]),
        "vector[0]",
        Reason.NOT_FINITE,
    ),
    (record(vector=np.zeros((2, 2))), "vector", Reason.WRONG_DIMENSION),
    (record(vector=[[1.0], [2.0]]), "vector", Reason.WRONG_DIMENSION),
    (record(vector=[[1.0], [2.0, 3.0]]), "vector", Reason.WRONG_TYPE),
    (record(vector=np.zeros(2, complex)), "vector", Reason.WRONG_TYPE),
    (record(vector=np.array([1.0, None])), "vector", Reason.WRONG_TYPE),
    (record(vector=np.array([True])), "vector", Reason.WRONG_TYPE),
    (record(vector=np.array(["1"])), "vector", Reason.WRONG_TYPE),
    (record(vector=[1.0, True]), "vector[1]", Reason.WRONG_TYPE),
    (record(vector=[1.0, "2"]), "vector[1]", Reason.WRONG_TYPE),
    (record(vector=[1.0, None]), "vector[1]", Reason.WRONG_TYPE),
    (record(vector=[0.5, 2**53 + 1]), "vector[1]", Reason.NOT_EXACT),
    (record(vector=[2**53 + 1]), "vector[0]", Reason.NOT_EXACT),
    (record(vector=[2**70]), "vector[0]", Reason.NOT_EXACT),
    (record(vector="12"), "vector", Reason.WRONG_TYPE),
    (record(vector=None), "vector", Reason.WRONG_TYPE),
    (record(vector=np.float64(1)), "vector", Reason.WRONG_TYPE),
    (record(vector=np.ma.masked_array([1.0], [True])), "vector", Reason.WRONG_TYPE),
    (record(embedding_id=""), "embedding_id", Reason.EMPTY),
    (record(embedding_id=1), "embedding_id", Reason.WRONG_TYPE),
    (record(namespace="user"), "namespace", Reason.WRONG_TYPE),
    (record(namespace=("",)), "namespace[0]", Reason.EMPTY),
    (note(), "", Reason.WRONG_TYPE),
]


@pytest.mark.parametrize(
    ("bad", "where", "reason"), RECORDS_REFUSED, ids=range(len(RECORDS_REFUSED))
)
def test_a_bad_record_is_refused_alone_and_among_others(
    bad: object, where: str, reason: Reason
) -> None:
    for check, path in (
        (lambda: check_record(bad), where),
        (lambda: check_records([RECORD, bad]), f"records[1].{where}".rstrip(".")),
        (
            lambda: check_records([record(np.ones(2)), record(np.ones(2)), bad], "r"),
            f"r[2].{where}".rstrip("."),
        ),
    ):
        with pytest.raises(ContractError) as caught:
            check()
        assert (caught.value.where, caught.value.reason) == (path, reason)


@pytest.mark.parametrize(
    ("vector", "dtype"),
    [
        (np.array([1, 2], np.float32), "float32"),
        (np.array([1, 2], ">f4"), "float32"),
        (np.array([1, 2], np.float64), "float64"),
        (np.array([1, 2], ">f8"), "float64"),
        (np.array([1, 2], np.float16), "float64"),
        (np.array([1, 2], np.longdouble), "float64"),
        (np.array([1, 2], np.int8), "float64"),
        (np.array([1, 2], np.uint64), "float64"),
        (np.arange(4.0)[1:3], "float64"),
        (np.arange(2.0, 0.0, -1.0)[::-1], "float64"),
        ([1, 2], "float64"),
        ((1.0, 2), "float64"),
        ([np.float32(1), np.float32(2)], "float32"),
        (range(1, 3), "float64"),
    ],
    ids=repr,
)
def test_a_vector_is_stored_as_float32_or_float64(vector: object, dtype: str) -> None:
    checked = check_vector(vector)
    assert checked.tolist() == [1.0, 2.0]
    assert checked.dtype == np.dtype(dtype).newbyteorder("<")
    assert checked.flags.c_contiguous


@pytest.mark.parametrize("vector", [[], (), np.empty(0), np.empty(0, np.float32), np.empty(0, int)])
def test_no_embedding_is_an_empty_float64_vector(vector: object) -> None:
    checked = check_vector(vector)
    assert checked.shape == (0,)
    assert checked.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_numbers_are_finite(dtype: type[np.float32] | type[np.float64]) -> None:
    vector = np.full(3, np.finfo(dtype).max, dtype)
    assert check_records([record(vector)])[0].vector is vector


def test_what_needs_no_conversion_is_not_copied() -> None:
    given_record = record(np.ones(2))
    assert check_records([given_record]) == [given_record]
    assert check_records([given_record])[0] is given_record


def test_what_needs_conversion_is_converted_without_touching_the_original() -> None:
    given_record = record([1, 2], note=note(timestamp=3), namespace=["a", ""])
    checked = check_records([given_record])[0]
    assert (checked.note.timestamp, type(checked.note.timestamp)) == (3.0, float)
    assert checked.namespace == ("a", "")
    unchanged: list[object] = [given_record.vector, given_record.namespace]
    assert unchanged == [[1, 2], ["a", ""]]


def test_numpy_timestamps_are_taken_as_floats() -> None:
    checked = check_record(record(note=note(timestamp=np.float64(1.5))))
    assert type(checked.note.timestamp) is float


@pytest.mark.parametrize("id_", ["\0", "a\0b", "é", "🎉", " ", "x" * ID_CHARACTERS_MAX])
def test_any_other_text_is_an_id(id_: str) -> None:
    assert check_record(record(note=note(id=id_))).id == id_


@pytest.mark.parametrize("namespace", [(), ("a",), ("a", ""), ["a", "", "b"], ("a.b", "/")])
def test_labels_behind_the_first_may_be_empty(namespace: object) -> None:
    assert check_namespace(namespace) == tuple(namespace)  # type: ignore[arg-type]


def test_a_repeated_id_is_refused_in_one_namespace() -> None:
    with pytest.raises(DuplicateRecord) as caught:
        check_put(PutRequest([record(), record(), record(namespace=("a",))]))
    assert (caught.value.ids, caught.value.namespace) == (("n1",), ())
    assert caught.value.reason is Reason.RECORD_REPEATED


def test_a_repeated_id_is_fine_in_two_namespaces() -> None:
    assert len(check_put(PutRequest([record(), record(namespace=("a",))]))) == 2


def test_a_revision_is_expected_of_one_namespace_only() -> None:
    with pytest.raises(ContractError) as caught:
        check_put(PutRequest([record(), record(namespace=("a",))], expected_revision=1))
    assert caught.value.where == "expected_revision"


def test_create_fills_in_what_is_not_given() -> None:
    first, second = Note.create("a"), Note.create("a")
    assert first.id != second.id
    assert abs(first.timestamp - datetime.now(UTC).timestamp()) < 60
    assert first.metadata == {}


def test_create_copies() -> None:
    metadata: dict[str, Any] = {"a": [1]}
    vector = np.ones(2)
    created = MemoryRecord.create(Note.create("a", metadata=metadata), vector)
    metadata["a"].append(2)
    vector[0] = 5.0
    assert created.note.metadata == {"a": [1]}
    assert created.vector.tolist() == [1.0, 1.0]


def test_models_copy_what_can_change() -> None:
    metadata: dict[str, Any] = {"a": [1]}
    blocks: list[Any] = [{"b": [1]}]
    message = Message("user", blocks=blocks, metadata=metadata)
    metadata["a"].append(2)
    blocks[0]["b"].append(2)
    assert (message.metadata, message.blocks) == ({"a": [1]}, ({"b": [1]},))


def test_sequences_become_tuples() -> None:
    assert GetRequest(["a"], ["n"]) == GetRequest(("a",), ("n",))
    assert FeatureRecord("f", "c", "d", ["s"]).steps == ("s",)


def test_values_of_enums_become_members() -> None:
    assert Message("user").role is Role.USER
    assert RunCheckpoint("r", NOW, status="failed").status is RunStatus.FAILED  # type: ignore[arg-type]


@pytest.mark.parametrize("hours", [-12, 0, 5.5, 14])
def test_times_are_kept_in_utc(hours: float) -> None:
    local = NOW.astimezone(timezone(timedelta(hours=hours)))
    entry = ProgressEntry("r", "s", local)
    assert entry.created_at == NOW
    assert entry.created_at.tzinfo is UTC
    assert entry.to_dict()["created_at"] == "2026-01-31T12:30:00.123456Z"


def test_a_time_beyond_the_calendar_is_refused() -> None:
    early = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))
    with pytest.raises(ContractError) as caught:
        ProgressEntry("r", "s", early)
    assert caught.value.reason is Reason.OUT_OF_RANGE


def test_records_are_equal_by_value_and_dtype() -> None:
    one = record(np.array([1.0, 2.0]))
    assert one == record(np.array([1.0, 2.0]))
    assert one != record(np.array([1.0, 3.0]))
    assert one != record(np.array([1.0, 2.0], np.float32))
    assert one != record(np.array([1.0]))
    assert one != record(np.array([1.0, 2.0]), namespace=("a",))
    assert one != "n1"
    assert GetResult((one,)) == GetResult((record(np.array([1.0, 2.0])),))


def test_models_of_plain_values_can_be_keys() -> None:
    assert len({TimeRange(1, 2), TimeRange(1.0, 2.0), TimeRange(1)}) == 2


def test_a_subclass_is_not_equal_to_its_base() -> None:
    class Tagged(ScanRequest, frozen=True):
        tag: str = ""

    assert Tagged(limit=3, tag="x").limit == 3
    assert Tagged() != ScanRequest()
    with pytest.raises(ContractError):
        Tagged(tag=1)  # type: ignore[arg-type]


def test_a_schema_that_cannot_be_given_is_an_error_of_the_contract() -> None:
    class Odd(Model, frozen=True):
        value: complex

    with pytest.raises(ContractError) as caught:
        Odd.json_schema()
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("text", ["", "{", "[]", "nul", '{"start": NaN}', '{"start":1,"start":2}'])
def test_what_is_not_json_of_the_model_is_refused(text: str) -> None:
    with pytest.raises(ContractError):
        TimeRange.from_json(text)


@pytest.mark.parametrize("text", [b"\xff{}", "[" * 100_000, 5, None])
def test_json_text_is_text(text: Any) -> None:
    with pytest.raises(ContractError):
        TimeRange.from_json(text)


def test_an_error_in_nested_data_names_its_place() -> None:
    plain = STATE.to_dict()
    plain["checkpoints"][0]["started_at"] = "yesterday"  # type: ignore[index, call-overload]
    with pytest.raises(ContractError) as caught:
        BootstrapState.from_dict(plain)
    assert caught.value.where == "checkpoints[0].started_at"


def test_a_naive_time_in_plain_data_is_refused() -> None:
    with pytest.raises(ContractError) as caught:
        ProgressEntry.from_dict(
            {"run_id": "r", "summary": "s", "created_at": "2026-01-31T12:00:00"}
        )
    assert caught.value.reason is Reason.NAIVE_TIME


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=6),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_numbers_of_a_record_come_back_exactly(vector: list[float], timestamp: float) -> None:
    given_record = MemoryRecord.create(note(timestamp=timestamp), vector)
    again = MemoryRecord.from_json(given_record.to_json())
    assert again.vector.tobytes() == given_record.vector.tobytes()
    assert math.copysign(1, again.note.timestamp) == math.copysign(1, timestamp)
    assert again == given_record


def test_a_checkpoint_ends_no_earlier_than_it_began() -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    assert RunCheckpoint("r", later).failed("x").completed_at == later


def test_a_checkpoint_keeps_its_note_unless_given_another() -> None:
    started = RunCheckpoint("r", NOW, note="a")
    assert (started.succeeded().note, started.failed("b").note) == ("a", "b")


def test_a_manifest_copies_with_one_change() -> None:
    changed = (
        MANIFEST.with_active_branch("b")
        .with_current_objective("o")
        .with_schema_version(2)
        .with_harness_version("v1")
        .with_last_known_good_commit("abc")
        .with_init_plan(None)
        .with_metadata({"x": 1})
    )
    assert changed == SessionManifest("s1", "b", "o", 2, "v1", "abc", None, {"x": 1})


def test_unequal_is_the_opposite_of_equal_for_models_and_records() -> None:
    one, same = FeatureRecord("a", "b", "c"), FeatureRecord("a", "b", "c")
    assert (one != same) is False
    assert one != FeatureRecord("z", "b", "c")
    record, again = (MemoryRecord.create(Note.create("t", id="n", timestamp=1)) for _ in range(2))
    assert (record != again) is False


def test_a_block_of_vectors_may_have_more_rows_than_a_request_may_name() -> None:
    count = REQUEST_ITEMS_MAX + 1
    block = VectorBlock(("n",) * count, np.zeros(count), np.zeros((count, 1), np.float32))
    assert len(block) == count
