"""Somebody else's store, without a log: the abstract contract can be implemented in a page."""

from __future__ import annotations

import json

from fmemory.testing import Capability, MemoryBackendSuite, ModelBackend


class TestThirdParty(MemoryBackendSuite):
    def open_backend(self, location: str) -> ModelBackend:
        del location  # nothing outlives a handle, so every store is a new one
        return ModelBackend()


def test_report_names_every_capability_and_counts_what_is_skipped() -> None:
    report = TestThirdParty.capability_report()
    assert not any(row.declared for row in report.rows)
    assert report.skip_count > 0
    assert {row.name for row in report.rows} >= {"PERSISTENT", "LOG", "TIME_TRAVEL"}


def test_report_says_the_same_as_text_and_as_json() -> None:
    report = TestThirdParty.capability_report()
    dumped = json.loads(report.to_json())
    assert dumped["run_count"] == report.run_count
    assert all(
        one.value in str(report) for one in Capability if one.value in dumped["capabilities"]
    )
