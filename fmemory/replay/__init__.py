"""Finding what broke a run: reads a log, live or finished, recorded or imported; writes nothing.

Every function takes the memory first and gives frozen values with `to_dict` and `to_json`. What is
erased, forgotten, lost or damaged is named in them and never left out silently.
"""

from fmemory.replay._runs import runs
from fmemory.replay.models import (
    ByteShare,
    EventLine,
    FeatureFlip,
    NoteLine,
    Regression,
    RunReport,
    RunState,
    RunSummary,
    TimeGap,
    ToolError,
    UnansweredCall,
    UnreadableEvent,
)

__all__ = [
    "ByteShare",
    "EventLine",
    "FeatureFlip",
    "NoteLine",
    "Regression",
    "RunReport",
    "RunState",
    "RunSummary",
    "TimeGap",
    "ToolError",
    "UnansweredCall",
    "UnreadableEvent",
    "runs",
]
