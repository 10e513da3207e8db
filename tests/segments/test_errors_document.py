"""docs/errors.md lists every reason of the log, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from fmemory_segments import LogReason

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"


def test_document_lists_the_reasons_of_the_log_in_their_order() -> None:
    _, _, section = DOCUMENT.read_text(encoding="utf-8").partition("## Reasons of the log")
    listed = re.findall(r"^\| `(\w+)` \| .+ \|$", section, re.MULTILINE)
    assert listed == [reason.value for reason in LogReason]
