"""The operations that the state machine draws, of few values, so that they meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np
from hypothesis import strategies as st

from fmemory._json_values import JsonValue
from fmemory.backend import MemoryBackend
from fmemory.errors import MemoryBackendError
from fmemory.record_models import MemoryRecord, Note
from fmemory.testing._sessions_samples import checkpoint, entry, features, manifest, said

NAMESPACES = ((), ("n",), ("n", "m"), ("n.m",), ("loaded",))
IDS = ("a", "b", "c", "d")
SESSIONS = ("s1", "s2", "s3")
STREAMS = (("tools",), ("tools", "shell"))
KEYS = ("k", "embedding_id")

record_values = st.builds(
    lambda record_id, timestamp, vector, text, embedding_id, namespace: MemoryRecord.create(
        Note(record_id, text, timestamp, {"text": text}), vector, embedding_id, namespace
    ),
    st.sampled_from(IDS),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, 1e300]),
    st.sampled_from([[], [0.5, -1.0], np.array([0.1, 3.0], np.float32), [1.0, 2.0, 3.0]]),
    st.sampled_from(["", "tea", "é\x00漢"]),
    st.sampled_from([None, "m"]),
    st.sampled_from(NAMESPACES[:4]),
)
spaces = st.sampled_from(NAMESPACES[:4])
sessions = st.sampled_from(SESSIONS)
some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=5)
messages = st.lists(st.sampled_from(["hi", "", "ü\x00"]), max_size=4).map(lambda one: said(*one))
feature_lists = st.lists(st.sampled_from(["f1", "f2", "f3"]), max_size=3, unique=True)
json_values: st.SearchStrategy[JsonValue] = st.sampled_from(
    [None, 1, 1.0, True, "x", [1, {"a": None}], {"": []}]
)
audits = st.fixed_dictionaries(
    {
        "actor": st.sampled_from([None, "ann", "bob"]),
        "run_id": st.sampled_from([None, "run-1"]),
        "reason": st.sampled_from([None, "to see"]),
    }
)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: its name, and its arguments for whichever backend runs it."""

    name: str
    arguments: Callable[[MemoryBackend], tuple[object, ...]]
    options: dict[str, object]
    run_id: str | None = None

    def on(self, memory: object, requests: MemoryBackend) -> object:
        """Run it, and give its result or its typed error."""
        operation: Callable[..., object] = getattr(memory, self.name)
        try:
            return operation(*self.arguments(requests), **self.options)
        except MemoryBackendError as error:
            return error


def put_step(drawn: list[MemoryRecord]) -> Step:
    return Step("put", lambda memory: (memory.put_request(tuple(drawn)),), {})


record_steps = st.one_of(
    st.lists(record_values, min_size=1, max_size=5).map(put_step),
    st.lists(record_values, min_size=1, max_size=1).map(put_step),
    st.builds(
        lambda ids, space: Step(
            "delete", lambda memory: (memory.delete_request(tuple(ids), space),), {}
        ),
        some_ids,
        spaces,
    ),
    st.builds(
        lambda space: Step("clear", lambda memory: (memory.clear_request(space),), {}), spaces
    ),
    st.builds(
        lambda key, value, space: Step(
            "set_meta", lambda memory: (memory.meta_set_request(key, value, space),), {}
        ),
        st.just("k"),
        json_values,
        spaces,
    ),
)
session_steps = st.one_of(
    st.builds(
        lambda one, text: Step("save_manifest", lambda _m: (one, manifest(one, text)), {}),
        sessions,
        st.sampled_from(["x", "y"]),
    ),
    st.builds(
        lambda one, number: Step(
            "append_progress_entry", lambda _m: (one, entry(number)), {}, "run-1"
        ),
        sessions,
        st.integers(0, 3),
    ),
    st.builds(
        lambda one, ids: Step("replace_feature_list", lambda _m: (one, features(*ids)), {}),
        sessions,
        feature_lists,
    ),
    st.builds(
        lambda one, name, passes: Step("update_feature_pass", lambda _m: (one, name, passes), {}),
        sessions,
        st.sampled_from(["f1", "f2"]),
        st.booleans(),
    ),
    st.builds(
        lambda one, number: Step(
            "record_run_checkpoint", lambda _m: (one, checkpoint(number, "run-2")), {}, "run-2"
        ),
        sessions,
        st.integers(0, 3),
    ),
    st.builds(
        lambda one, texts: Step("append_transcript_messages", lambda _m: (one, texts), {}),
        sessions,
        messages,
    ),
)
batch_steps = st.lists(st.one_of(record_steps, session_steps), min_size=1, max_size=4)


def with_key(step: Step, key: str) -> Step:
    """The same step under an idempotency key."""
    if step.name not in {"put", "delete", "clear", "set_meta"}:
        return Step(step.name, step.arguments, {**step.options, "event_id": key}, step.run_id)

    def arguments(memory: MemoryBackend) -> tuple[object, ...]:
        (request,) = step.arguments(memory)
        return (msgspec.structs.replace(cast("msgspec.Struct", request), event_id=key),)

    return Step(step.name, arguments, step.options, step.run_id)
