"""Finding what broke a run: reads a log, live or finished, recorded or imported; writes nothing.

Every function takes the memory first and gives frozen values with `to_dict` and `to_json`. What is
erased, forgotten, lost or damaged is named in them and never left out silently.
"""

from fmemory.replay._bisect import (
    Bisection,
    BisectionStep,
    Check,
    Verdict,
    bisect,
    feature_check,
    session_state,
    text_check,
)
from fmemory.replay._blame import Attribution, BlamedPart, ChangeKind, blame
from fmemory.replay._change_models import Change, Delta, Part
from fmemory.replay._changes import changes
from fmemory.replay._compare import (
    CallAt,
    CallParting,
    FeatureDifference,
    LinesDifference,
    MessageParting,
    ResultAt,
    ResultParting,
    RunDiff,
    TextAt,
    compare,
)
from fmemory.replay._grep import Match, Matches, TextPlace, grep
from fmemory.replay._page import page
from fmemory.replay._records import FoundRecord, FoundRecords, records
from fmemory.replay._report import report
from fmemory.replay._runs import runs
from fmemory.replay._transcript import (
    TranscriptCall,
    TranscriptEntry,
    TranscriptResult,
    transcript,
)
from fmemory.replay._trouble import EVENT_TYPES, tells_error
from fmemory.replay.models import (
    ByteShare,
    EventLine,
    FeatureFlip,
    NoteLine,
    Regression,
    RunReport,
    RunSort,
    RunState,
    RunSummary,
    TimeGap,
    ToolError,
    UnansweredCall,
    UnreadableEvent,
)

__all__ = [
    "EVENT_TYPES",
    "Attribution",
    "Bisection",
    "BisectionStep",
    "BlamedPart",
    "ByteShare",
    "CallAt",
    "CallParting",
    "Change",
    "ChangeKind",
    "Check",
    "Delta",
    "EventLine",
    "FeatureDifference",
    "FeatureFlip",
    "FoundRecord",
    "FoundRecords",
    "LinesDifference",
    "Match",
    "Matches",
    "MessageParting",
    "NoteLine",
    "Part",
    "Regression",
    "ResultAt",
    "ResultParting",
    "RunDiff",
    "RunReport",
    "RunSort",
    "RunState",
    "RunSummary",
    "TextAt",
    "TextPlace",
    "TimeGap",
    "ToolError",
    "TranscriptCall",
    "TranscriptEntry",
    "TranscriptResult",
    "UnansweredCall",
    "UnreadableEvent",
    "Verdict",
    "bisect",
    "blame",
    "changes",
    "compare",
    "feature_check",
    "grep",
    "page",
    "records",
    "report",
    "runs",
    "session_state",
    "tells_error",
    "text_check",
    "transcript",
]
