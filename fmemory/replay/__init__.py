"""Find what broke a run: runs, reports and replays of what a log says. It never writes."""

from fmemory.replay._change_models import Change, Delta, Part
from fmemory.replay._changes import changes

__all__ = [
    "Change",
    "Delta",
    "Part",
    "changes",
]
