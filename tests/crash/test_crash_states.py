"""After a power cut at any moment of any short program, the promises of the program hold.

Goal: P1, P3 and P4 against a disk that keeps what was synced and any part of what was not. Method:
every program of two operations (longer ones by option) and some long ones run on a recording disk;
after each call and each promise, the states that a cut may leave are built and opened. What would
have to break: an acknowledgement before its sync, a name before its content, an order of syncs, a
verdict that takes torn bytes for damage or the other way round.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from fmemory_segments import Log
from fmemory_segments.errors import LogPoisoned
from tests.crash.disk import Disk, RecordingFileSystem, build
from tests.crash.mistakes import MISTAKES
from tests.crash.programs import Program, long_program, short_programs
from tests.crash.settings import ROUNDS, chooser
from tests.crash.states import ForgetfulFileSystem, Search
from tests.segments.log_tools import contents, events_only, opens, say

LONG_PROGRAMS = ROUNDS
SAMPLES = ROUNDS

COMPACTING = ("batch", "delete", "compact")
SYNCS: dict[str, Program] = {
    "GroupSync._lead_or_wait": ("put",),
    "_give_names": COMPACTING,
    "_put_right": ("soft", "reopen"),
    "_write": COMPACTING,
    "_write_manifest": COMPACTING,
    "create_segment": (),
    "forget_tmp": ("put", "roll", "compact", "delete", "compact"),
    "publish_segment": ("put",),
    "remove_files": COMPACTING,
    "seal": ("soft", "roll"),
}
"""Every place that syncs, and a program that needs it to."""


def test_power_cut_in_any_short_program_keeps_its_promises(tmp_path: Path) -> None:
    search = Search(tmp_path, chooser("short programs"))
    assert search.complaint(short_programs(), samples=SAMPLES, all_steps=False) == ""
    print(f"{search.count} states")


def test_power_cut_in_long_programs_keeps_their_promises(tmp_path: Path) -> None:
    choose = chooser("long programs")
    search = Search(tmp_path, choose)
    programs = [long_program(choose) for _ in range(LONG_PROGRAMS)]
    assert search.complaint(programs, samples=SAMPLES) == ""
    print(f"{search.count} states")


def test_power_cut_while_a_doubtful_tail_is_moved_loses_nothing(tmp_path: Path) -> None:
    """The failed sync lost nothing yet; what follows must not lose it either."""
    choose = chooser("moved tail")
    source, disk = tmp_path / "source", tmp_path / "disk"
    moments: list[Disk] = []
    fails = [False]
    is_moving = [False]

    class Failing(RecordingFileSystem):
        def datasync(self, fd: int) -> None:
            super().datasync(fd)
            if fails[0]:
                raise OSError(5, "Input/output error")

    def after() -> None:
        if is_moving[0]:
            moments.append(fs.disk.copy())

    fs = Failing(after)
    log = Log.open(source, fs=fs)
    say(log, b"safe")
    fails[0] = True
    with pytest.raises(LogPoisoned):
        say(log, b"in doubt", b"this too")
    log.close()
    fails[0] = False
    is_moving[0] = True
    with Log.open(source, fs=fs) as again:
        whole = contents(again)
    for number, moment in enumerate(moments):
        for _ in range(3 * ROUNDS):
            build(disk, moment.cut(choose), source)
            found = opens(disk)
            assert isinstance(found, list), (number, found)
            assert events_only(found, 3) == events_only(whole, 3), number
            shutil.rmtree(disk)


# What would have to break, broken: the search has to tell.


def test_every_place_that_syncs_is_known(tmp_path: Path) -> None:
    places: set[str] = set()
    disk = partial(ForgetfulFileSystem, place="", places=places)
    search = Search(tmp_path, chooser("places"), disk)
    for program in [*short_programs(2), COMPACTING]:
        search.record(program)
    assert places == set(SYNCS)


@pytest.mark.parametrize("place", SYNCS)
def test_crash_states_tell_of_a_sync_that_is_left_out(tmp_path: Path, place: str) -> None:
    disk = partial(ForgetfulFileSystem, place=place, places=set())
    search = Search(tmp_path, chooser(place), disk)
    assert search.complaint([SYNCS[place]], samples=1, all_steps=False) != ""


@pytest.mark.parametrize(
    ("mistake", "program"),
    [
        ("acknowledges_before_the_sync", ("put",)),
        ("tells_tip_before_the_sync", ("put",)),
        ("trusts_a_stale_seal", ("soft", "roll")),
        ("skips_the_checksum_of_data", ("roll",)),
        ("backs_up_what_is_not_synced", ("soft", "backup")),
        ("calls_a_backup_done_before_its_sync", ("put", "backup")),
    ],
)
def test_crash_states_tell_of_a_planted_mistake(
    tmp_path: Path, mistake: str, program: Program
) -> None:
    search = Search(tmp_path, chooser(mistake))
    assert search.complaint([program], samples=5) == ""
    search = Search(tmp_path, chooser(mistake))
    with MISTAKES[mistake]():
        assert search.complaint([program], samples=5) != ""
