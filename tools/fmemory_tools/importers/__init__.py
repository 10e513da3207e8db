"""Readers of other programs' files: each turns a file into a plan, and `apply` writes the plan.

Parsing touches no store and writing parses nothing, so what an import would do can be looked at,
and tested, without a memory.
"""

from fmemory_tools.importers.plan import (
    BadLine,
    BadSource,
    NotesPlan,
    SessionPlan,
    SessionsPlan,
    Source,
    Step,
)

__all__ = [
    "BadLine",
    "BadSource",
    "NotesPlan",
    "SessionPlan",
    "SessionsPlan",
    "Source",
    "Step",
]
