"""Any value that the contract accepts comes back as it was; any other leaves nothing behind.

Goal: no text, number or nesting is changed on its way through a store, a reopen or a memory file.
Method: Hypothesis draws whole records and messages, valid ones and ones with one bad value; each is
written to both backends and read back by every way there is. What would have to break: an encoder
or decoder that is lossy for some value, or a check that lets such a value pass.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmemory
from fmemory import (
    ContractError,
    InMemoryMemoryBackend,
    JournalBackend,
    JsonObject,
    JsonValue,
    MemoryRecord,
    Message,
    NewEvent,
    Note,
    Role,
    ToolCall,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = texts.filter(bool)
numbers = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
vectors = st.one_of(
    st.lists(numbers, max_size=5).map(lambda one: np.array(one, np.float64)),
    st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5
    ).map(lambda one: np.array(one, np.float32)),
)
record_values = st.builds(
    MemoryRecord,
    st.builds(Note, names, texts, numbers, objects),
    vectors,
    st.none() | names,
    st.just(("n",)),
)
message_values = st.builds(
    Message,
    st.sampled_from(Role),
    texts,
    blocks=st.lists(json_values, max_size=2).map(tuple),
    name=st.none() | texts,
    tool_calls=st.lists(st.builds(ToolCall, names, names, objects | texts), max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    is_error=st.booleans(),
    metadata=objects,
)
BOUNDED = settings(max_examples=40, deadline=None, database=None, print_blob=True)


@contextmanager
def both_backends() -> Iterator[list[JournalBackend]]:
    """A new store of each kind; the segments one is at `path`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        InMemoryMemoryBackend() as memory,
        fmemory.open(Path(folder) / "store", durability="os") as segments,
    ):
        yield [memory, segments]


def identity(one: MemoryRecord) -> tuple[object, ...]:
    vector = np.asarray(one.vector)
    return (repr(one.note), vector.dtype.name, vector.tobytes(), one.embedding_id, one.namespace)


@BOUNDED
@given(st.lists(record_values, max_size=4, unique_by=lambda one: one.id))
def test_records_come_back_as_they_were(given_records: list[MemoryRecord]) -> None:
    expected = sorted(map(identity, given_records), key=repr)
    with both_backends() as backends:
        for memory in backends:
            memory.put(memory.put_request(tuple(given_records)))
            scanned = memory.scan(memory.scan_request(namespace=("n",), limit=2))
            rest = list(memory.iter_all(namespace=("n",), page_size=1))
            found = memory.get(memory.get_request(tuple(one.id for one in given_records), ("n",)))
            events = [kept for event in memory.events() for kept in event.records]
            assert [one.id for one in scanned.records] == [one.id for one in rest[:2]]
            for ways in (rest, found.records, events):
                whole = [one for one in ways if isinstance(one, MemoryRecord)]
                assert sorted(map(identity, whole), key=repr) == expected


@BOUNDED
@given(st.lists(record_values, max_size=4, unique_by=lambda one: one.id))
def test_records_come_back_from_a_memory_file(given_records: list[MemoryRecord]) -> None:
    with both_backends() as backends:
        memory, segments = backends
        memory.put(memory.put_request(tuple(given_records)))
        text = io.StringIO()
        memory.dump(text, ("n",))
        segments.load(io.StringIO(text.getvalue()))
        source = list(memory.iter_all(namespace=("n",)))
        target = list(segments.iter_all(namespace=("n",)))
        assert [repr(one.note) for one in target] == [repr(one.note) for one in source]
        for kept, was in zip(target, source, strict=True):
            assert kept.vector.tolist() == was.vector.tolist()
            assert kept.embedding_id == was.embedding_id


@BOUNDED
@given(st.lists(message_values, max_size=4))
def test_messages_come_back_as_they_were(given_messages: list[Message]) -> None:
    with both_backends() as backends:
        for memory in backends:
            memory.append_transcript_messages("s", given_messages)
            found = memory.load_transcript_messages("s")
            assert [repr(one) for one in found] == [repr(one) for one in given_messages]


@BOUNDED
@given(json_values | st.binary(max_size=20), st.none() | names)
def test_event_data_comes_back_as_it_was(data: JsonValue | bytes, event_id: str | None) -> None:
    with both_backends() as backends:
        for memory in backends:
            memory.append(("tools",), (NewEvent("tool.finished", data, event_id),))
            found = memory.event(1)
            assert (repr(found.data), found.event_id) == (repr(data), event_id)


@BOUNDED
@given(
    objects, st.sampled_from([float("nan"), float("inf"), 2**64, -(2**63) - 1, b"x", "\ud800", ()])
)
def test_one_bad_value_anywhere_refuses_the_whole_put(metadata: JsonObject, bad: JsonValue) -> None:
    good = MemoryRecord(Note("good", "", 1.0, {}), np.zeros(1))
    holed: JsonObject = {**metadata, "bad": [{"deep": bad}]}
    with both_backends() as backends:
        for memory in backends:
            wrong = MemoryRecord(Note("wrong", "", 1.0, holed), np.zeros(1))
            with pytest.raises(ContractError) as caught:
                memory.put(memory.put_request((good, wrong)))
            assert caught.value.where == 'records[1].note.metadata["bad"][0]["deep"]'
            assert memory.head().seq == 0
