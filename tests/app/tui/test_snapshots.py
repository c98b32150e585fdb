"""Images of the screen, each of one size, machine and time. They are valid for one version of
Textual only.

After an intended change: `pytest --snapshot-update tests/app/tui/test_snapshots.py`, then look at
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import textual
from fakes import CpuLoad, Feed, Machine, guest, tasks
from make import stopped
from textual.pilot import Pilot
from waiting import until_true

from perftop.model.kinds import Episode
from perftop.tui.app import PerfTopApp
from perftop.tui.stream import LiveSource

MADE_WITH = "8.2.8"

pytestmark = pytest.mark.skipif(
    textual.__version__ != MADE_WITH, reason=f"the pictures are of Textual {MADE_WITH}"
)
S = 1_000_000_000
Check = Callable[..., bool]


def mixed(cores: int) -> Machine:
    """A mix of loads: shared cores, half-used ones, idle ones, and one with a low clock."""
    machine = Machine(cores=cores, ceiling_hz=3.1e9)
    kinds = [
        (CpuLoad(1.0, ipc=0.42, kernel=0.004), CpuLoad(1.0, ipc=0.42, kernel=0.004)),
        (CpuLoad(0.98, ipc=1.85), CpuLoad(0.0)),
        (CpuLoad(0.42, kernel=0.31, alone=0.2), CpuLoad(0.4, kernel=0.3, alone=0.18)),
        (CpuLoad(0.001, 1.2e9), CpuLoad(0.002, 1.2e9)),
        (CpuLoad(0.0), CpuLoad(0.96, ipc=1.25, involuntary=0.012)),
    ]
    for core in range(cores):
        for thread, does in enumerate(kinds[core % len(kinds)]):
            machine.does[core + thread * cores] = does
    machine.does[6] = CpuLoad(0.98, 2.48e9, ipc=0.98)
    return machine


def taken(source: LiveSource, seq: int) -> bool:
    return source.interval is not None and source.interval.seq >= seq


def shot(
    compare: Check, machine: Machine, size: tuple[int, int], keys: Sequence[str] = "",
    episodes: Sequence[Episode] = (), **more: Any,
) -> None:  # fmt: skip
    feed = Feed(machine)
    source = stopped(LiveSource(feed.open, 200_000_000))

    async def before(pilot: Pilot[None]) -> None:
        await until_true(lambda: source.has_started, "a session")
        source.session.ended.extend([episode for episode in episodes if episode.end_ns is not None])
        source.session.detector.running += [e for e in episodes if e.end_ns is None]
        names = ["lammps", "python3", "postgres", "nginx"] * 8
        for seq in range(1, 9):
            feed.frames(2, records=tasks(names), **more)
            await until_true(partial(taken, source, seq), "an interval")
            await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()

    assert compare(PerfTopApp(source), terminal_size=size, run_before=before)


def test_wide(snap_compare: Check) -> None:
    shot(snap_compare, mixed(32), (160, 50), "jj")


def test_small(snap_compare: Check) -> None:
    shot(snap_compare, mixed(8), (80, 24))


def test_guest(snap_compare: Check) -> None:
    does = {0: CpuLoad(0.62, system=0.2, steal=0.08), 1: CpuLoad(0.11, system=0.05)}
    shot(snap_compare, guest(does), (120, 30))


def test_without_colour(snap_compare: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shot(snap_compare, mixed(8), (120, 30))


def test_light(snap_compare: Check) -> None:
    shot(snap_compare, mixed(8), (120, 30), "T")


def test_heat_map(snap_compare: Check) -> None:
    shot(snap_compare, mixed(64), (80, 24), "2v")


def test_time(snap_compare: Check) -> None:
    shot(snap_compare, mixed(16), (120, 30), "3[[[")


def test_table(snap_compare: Check) -> None:
    shot(snap_compare, mixed(8), (160, 30), "4j")


EPISODES = (
    Episode("offline", [9], -30 * S, -20 * S, cause="hotplug"),
    Episode("ramp", [1, 9], S // 10, 3 * S // 10, 2.1e9),
    Episode("steal", [3], S // 2, S, 0.2, "hypervisor", {"ticks": 10}),
    Episode("involuntary-halt", [0, 2, 4], 6 * S // 10, 9 * S // 10, 0.0104, "clock-change"),
    Episode("turbo-drop", [*range(16)], 8 * S // 10, None, 6.2e8, "power-pl1",
            {"limit reason": "bit 10 (PL1) in 9 of 10 polls", "power_w": 150}),
)  # fmt: skip


def calm() -> Machine:
    """A machine without episodes of its own."""
    return Machine(cores=8, ceiling_hz=3.0e9)


def test_episodes(snap_compare: Check) -> None:
    shot(snap_compare, calm(), (120, 30), "5j", EPISODES)


def test_episodes_on_axes(snap_compare: Check) -> None:
    shot(snap_compare, calm(), (80, 24), "3[[[", EPISODES)


def test_core_page(snap_compare: Check) -> None:
    shot(snap_compare, mixed(8), (160, 50), ["j", "j", "enter", "[", "[", "["])


def test_filter_with_an_error(snap_compare: Check) -> None:
    shot(snap_compare, mixed(8), (120, 30), ["/", *"util>"])
