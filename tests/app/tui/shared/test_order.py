"""The order of rows, and values that filters must not change."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import CpuLoad, Machine, observe, task_records
from nightly import cases_by_day
from played_apps import running_app

from perftop.model.kinds import Episode
from perftop.session.selection import parse_filter
from perftop.tui.overview import columns
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.row_numbers import ordered_rows
from perftop.tui.shared.view_settings import ViewSettings


def order(machine: Machine, key: str, *, reverse: bool = False, **more: Any) -> list[int]:
    session, interval = observe(machine, **more)
    settings = ViewSettings(order=key, reverse=reverse)
    return ordered_rows(Cores(session), settings, session, interval)


RISING = {cpu: CpuLoad(0.1 + 0.2 * cpu, 2e9 + 1e8 * cpu) for cpu in range(4)}
SIBLINGS_IDLE = {cpu: CpuLoad(0.0) for cpu in range(4, 8)}
ONE_HALTED = {0: CpuLoad(0.5, 2e9), 1: CpuLoad(0.0), 2: CpuLoad(0.5, 3e9), 3: CpuLoad(0.5, 2.5e9)}
HIGH_IPC_OF_A_RESTING_SIBLING = {
    0: CpuLoad(0.9, ipc=1.0), 4: CpuLoad(0.05, ipc=3.0), 1: CpuLoad(0.9, ipc=2.0),
    5: CpuLoad(0.0),
}  # fmt: skip
STOLEN = {0: CpuLoad(0.9, steal=0.01), 4: CpuLoad(0.05, steal=0.4), 1: CpuLoad(0.5, steal=0.2)}
TASKS = task_records(["c", "", "a", "B"])


@pytest.mark.parametrize(("loads", "key", "first_cpus", "last_cpus"), [
    *((RISING | SIBLINGS_IDLE, key, [3, 2, 1, 0], [0, 1, 2, 3]) for key in ("lp0", "util")),
    (RISING | SIBLINGS_IDLE, "busy_hz", [3, 2, 1, 0], [0, 1, 2, 3]),
    # the value of the core is that of its busiest CPU
    (HIGH_IPC_OF_A_RESTING_SIBLING, "ipc", [1, 2, 3, 0], [0, 3, 2, 1]),
    (STOLEN, "steal", [0, 1, 2, 3], [3, 2, 1, 0]),  # the value of the core is that of its worst CPU
    (ONE_HALTED | SIBLINGS_IDLE, "busy_hz", [2, 3, 0, 1], [0, 3, 2, 1]),  # unknown values come last
    ({cpu: CpuLoad(0.5 + 1e-5 * cpu) for cpu in range(8)}, "util", [0, 1, 2, 3], [3, 2, 1, 0]),
    ({}, "task", [2, 3, 0, 1], [0, 3, 2, 1]),
])  # fmt: skip
def test_rows_are_sorted_by_their_displayed_values(
    loads: dict[int, CpuLoad], key: str, first_cpus: list[int], last_cpus: list[int]
) -> None:
    machine = Machine(cores=4, loads={**loads})
    assert order(machine, key, records=TASKS) == first_cpus
    assert order(machine, key, reverse=True, records=TASKS) == last_cpus


def test_victims_come_before_busy_cores() -> None:
    session, interval = observe(Machine(loads={cpu: CpuLoad(0.9) for cpu in range(8)}))
    cores, settings = Cores(session), ViewSettings(order="worst first")
    assert ordered_rows(cores, settings, session, interval)[0] == 0
    session.detector.running.append(Episode("neighbour", [2], 0, None, 0.31, "sibling"))
    assert ordered_rows(cores, settings, session, interval)[0] == 2


def test_cores_of_a_package_that_loses_come_before_busier_ones() -> None:
    loads = {cpu: CpuLoad(0.9 if cpu % 4 > 1 else 0.5) for cpu in range(8)}
    machine = Machine(ceiling_hz=3.0e9, loads=loads)
    session, interval = observe(machine)
    cores, settings = Cores(session), ViewSettings(order="worst first")
    assert ordered_rows(cores, settings, session, interval)[:2] == [2, 3]
    session.detector.running.append(Episode("turbo-drop", [0, 1, 4, 5], 0, None, 6e8, "power-pl1"))
    assert ordered_rows(cores, settings, session, interval)[:2] == [0, 1]


def test_a_filter_without_matches_does_not_move_columns() -> None:
    session, _ = observe(Machine())
    every, nobody = (
        columns.grid_columns(session, Cores(session, mask), 120)
        for mask in (None, frozenset[int]())
    )
    assert every == nobody


@pytest.mark.parametrize(
    "name", cases_by_day(["overview", "heat", "table", "time"], ["heat", "table"])
)
async def test_lines_cached_before_a_filter_are_not_used(name: str) -> None:
    async with running_app(Machine()) as run:
        screen = run.monitor
        await run.pilot.press(*"4231")
        await run.pilot.press("4" if name == "overview" else "1")
        await screen.action_view(name)  # the view has no size before the next layout
        view = screen.view
        screen.settings.filter = parse_filter("0")
        screen._apply_filter()
        for to in (1, -1):
            view.action_end(to)  # type: ignore[attr-defined]
        assert screen.settings.cpu == 0
