"""The memory file: records as JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO, TypeAlias

if TYPE_CHECKING:
    from fmemory.backend import MemoryBackend, MemoryView

Source: TypeAlias = "str | os.PathLike[str] | TextIO"
Target: TypeAlias = "str | os.PathLike[str] | TextIO"


def dump_file(view: MemoryView, target: Target, namespace: Sequence[str] = ()) -> int: ...
def load_file(
    backend: MemoryBackend, source: Source, namespace: Sequence[str] | None = None
) -> int: ...
