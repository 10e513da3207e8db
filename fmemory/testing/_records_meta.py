"""Meta values, and namespaces that stay apart for every operation."""

from __future__ import annotations

from typing import cast

import pytest

from fmemory._json_values import JsonValue
from fmemory.backend import MemoryBackend
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._samples import (
    NAMESPACES,
    UNTYPED,
    count,
    get_ids,
    record,
    scan_ids,
)

VALUES: tuple[JsonValue, ...] = (
    None,
    True,
    False,
    0,
    -(2**63),
    2**64 - 1,
    1.0,
    0.1 + 0.2,
    5e-324,
    -0.0,
    "",
    "a\x00b",
    "é and é, 漢字, \U0001f600",
    [],
    {},
    [1, 1.0, True, None, "1", [[]]],
    {"": {"a.b": [{"deep": {"er": None}}]}},
)


class MetaPart(BackendSuiteBase):
    """What `get_meta` and `set_meta` promise."""

    def test_meta_that_was_never_set_is_none(self, memory: MemoryBackend) -> None:
        assert self.get_meta(memory, "k") is None

    @pytest.mark.parametrize("value", VALUES, ids=repr)
    def test_meta_value_comes_back_with_its_types(
        self, memory: MemoryBackend, value: JsonValue
    ) -> None:
        self.set_meta(memory, "k", value)
        assert repr(self.get_meta(memory, "k")) == repr(value)

    def test_set_meta_returns_the_value(self, memory: MemoryBackend) -> None:
        request = memory.meta_set_request("k", {"a": [1]})
        assert memory.set_meta(request).value == {"a": [1]}

    def test_later_value_replaces_an_earlier_one(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "k", {"old": 1})
        self.set_meta(memory, "k", ["new"])
        assert self.get_meta(memory, "k") == ["new"]

    def test_keys_are_apart(self, memory: MemoryBackend) -> None:
        keys = ["k", "K", "k.a", "k ", "ü"]
        for key in keys:
            self.set_meta(memory, key, key)
        assert [self.get_meta(memory, key) for key in keys] == keys

    def test_given_value_can_be_changed_afterwards(self, memory: MemoryBackend) -> None:
        value: dict[str, JsonValue] = {"list": [1]}
        self.set_meta(memory, "k", value)
        cast("list[JsonValue]", value["list"]).append(2)
        assert self.get_meta(memory, "k") == {"list": [1]}

    def test_received_value_can_be_changed(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "k", {"list": [1]})
        received = cast("dict[str, JsonValue]", self.get_meta(memory, "k"))
        cast("list[JsonValue]", received["list"]).append(2)
        assert self.get_meta(memory, "k") == {"list": [1]}

    def test_value_in_the_result_of_set_meta_can_be_changed(self, memory: MemoryBackend) -> None:
        result = memory.set_meta(memory.meta_set_request("k", {"list": [1]}))
        cast("dict[str, JsonValue]", result.value)["list"] = 5
        assert self.get_meta(memory, "k") == {"list": [1]}

    def test_setting_an_equal_value_writes_nothing(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "k", {"a": [1, 2.5]})
        with self.nothing_written(memory):
            self.set_meta(memory, "k", {"a": [1, 2.5]})

    def test_meta_is_no_record(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "k", "v")
        assert (count(memory), scan_ids(memory), get_ids(memory, ["k"])) == (0, [], [])

    def test_deleting_all_records_keeps_meta(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "k", "v")
        self.put(memory, record("k"))
        self.delete(memory, "k")
        assert self.get_meta(memory, "k") == "v"

    @needs(Capability.PERSISTENT)
    def test_meta_is_there_after_a_reopen(self, stores: Stores) -> None:
        memory = stores.open()
        self.set_meta(memory, "k", {"a": 1}, ("a",))
        assert self.get_meta(stores.reopen(memory), "k", ("a",)) == {"a": 1}

    @pytest.mark.parametrize("operation", ["get_meta", "set_meta"])
    def test_meta_operation_of_another_type_than_its_request_is_refused(
        self, memory: MemoryBackend, operation: str
    ) -> None:
        self.refuses_each(memory, operation, UNTYPED)


class NamespacesPart(BackendSuiteBase):
    """Isolation, label by label."""

    @pytest.mark.parametrize("namespace", NAMESPACES, ids=repr)
    def test_record_of_a_namespace_is_in_no_other(
        self, memory: MemoryBackend, namespace: tuple[str, ...]
    ) -> None:
        self.put(memory, record("x", namespace=namespace))
        assert [one for one in NAMESPACES if scan_ids(memory, one)] == [namespace]

    def test_every_operation_keeps_to_its_namespace(self, memory: MemoryBackend) -> None:
        for number, one in enumerate(NAMESPACES):
            self.put(memory, *(record(f"x{i}", i, namespace=one) for i in range(number + 1)))
            self.set_meta(memory, "k", number, one)
        for number, one in enumerate(NAMESPACES):
            assert count(memory, one) == number + 1
            assert scan_ids(memory, one, limit=2) == [f"x{i}" for i in range(number + 1)]
            assert get_ids(memory, [f"x{number}", f"x{number + 1}"], one) == [f"x{number}"]
            assert self.get_meta(memory, "k", one) == number

    def test_clear_of_each_namespace_leaves_all_others(self, memory: MemoryBackend) -> None:
        for one in NAMESPACES:
            self.put(memory, record("x", namespace=one))
        for done, one in enumerate(NAMESPACES, 1):
            self.clear(memory, one)
            assert [count(memory, left) for left in NAMESPACES[done:]] == [1] * (
                len(NAMESPACES) - done
            )

    def test_record_names_its_namespace(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x", namespace=("a", "", "ü")))
        (found,) = memory.scan(memory.scan_request(namespace=("a", "", "ü"))).records
        assert found.namespace == ("a", "", "ü")

    def test_composed_and_decomposed_labels_are_two_namespaces(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x", namespace=("\u00e9",)))
        assert scan_ids(memory, ("e\u0301",)) == []

    def test_sessions_and_namespaces_of_one_name_are_apart(self, memory: MemoryBackend) -> None:
        self.put(memory, record("x", namespace=("session", "s1")))
        assert not memory.is_initialized("s1")
