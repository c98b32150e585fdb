"""The numbers and the episodes of rows: scales, the busiest CPU, and the worst episode of a row."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from fakes import CpuLoad, Machine, observe

from perftop.model.confidence import Hypervisor, TaskOnCpu
from perftop.model.kinds import Episode
from perftop.session.values import COLUMNS_BY_KEY
from perftop.tui.shared import row_numbers
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes, find_losing_index, gap_cause
from perftop.tui.shared.row_numbers import RowNumbers, Scale, ViewSettings, field_scale


@pytest.mark.parametrize(("key", "values", "ends"), [
    ("util", [0.01, nan], (0.0, 1.0)), ("steal", [0.02], (0.0, 0.02)),
    ("steal", [0.021], (0.0, 0.05)), ("steal", [1.5], (0.0, 1.0)),
    ("busy_hz", [2.0e9, 3.1e9], (2.0e9, 3.2e9)), ("busy_hz", [3.0e9, 3.1e9], (2.4e9, 3.2e9)),
    ("busy_hz", [2.9e9, 3.2e9], (2.4e9, 3.2e9)), ("busy_hz", [nan], (0.0, 1.0)),
    ("ipc", [1.2], (0.0, 1.5)), ("ipc", [1.0], (0.0, 1.0)), ("ipc", [0.1], (0.0, 1.0)),
])  # fmt: skip
def test_a_scale_has_round_ends(key: str, values: list[float], ends: tuple[float, float]) -> None:
    scale = field_scale(COLUMNS_BY_KEY[key], np.array(values))
    assert (scale.low, scale.high) == pytest.approx(ends)


@pytest.mark.parametrize(("previous", "is_kept"), [
    (Scale(0.0, 2.5), True), (Scale(0.0, 2.51), False), (Scale(0.0, 0.5), False),
    (Scale(0.1, 1.0), False), (Scale(-0.1, 1.0), True),
])  # fmt: skip
def test_a_scale_is_kept_while_it_fits(previous: Scale, is_kept: bool) -> None:
    scale = field_scale(COLUMNS_BY_KEY["ipc"], np.array([1.0]), previous)
    assert scale == (previous if is_kept else Scale(0.0, 1.0))


def test_steps_of_a_scale_end_at_its_ends() -> None:
    scale = Scale(1.0, 3.0)
    values = [-inf, 0.5, 1.0, 1.17, 2.0, 2.99, 3.0, inf, nan]
    assert scale.levels(np.array(values)).tolist() == [0, 0, 0, 1, 6, 11, 11, 11, -1]
    assert [scale.level(value) for value in (2.0, nan)] == [6, -1]


@pytest.mark.parametrize(("util", "hz", "index"), [
    ([0.2, 0.5], [1e9, 1e9], 1), ([0.502, 0.498], [1e9, 1e9], 0), ([0.498, 0.502], [1e9, 1e9], 0),
    ([0.5, 0.5], [nan, 1e9], 1), ([0.51, 0.5], [nan, 1e9], 0), ([nan, 0.0], [1e9, nan], 1),
])  # fmt: skip
def test_the_busiest_cpu_rarely_changes(util: list[float], hz: list[float], index: int) -> None:
    assert row_numbers.busiest_cpu_indexes(np.array(util), np.array(hz)) == index


def test_a_core_shows_its_busiest_cpu_or_the_highest_steal() -> None:
    values = np.array([0.1, 0.3, nan])
    shown = {
        key: float(row_numbers.core_values(key, values, np.array(0)))
        for key in ("util", "steal", "involuntary", "idle")
    }
    assert shown == {"util": 0.1, "steal": 0.3, "involuntary": 0.3, "idle": 0.1}


@pytest.mark.parametrize(("util", "hz", "is_below"), [
    (0.5, 3.03e9, True), (0.5, 3.05e9, False), (0.11, 2e9, True), (0.09, 2e9, False),
])  # fmt: skip
def test_a_clock_is_below_its_ceiling_by_more_than_five_per_cent_at_work(
    util: float, hz: float, is_below: bool
) -> None:
    session, interval = observe(Machine(cores=1, threads=1, loads={0: CpuLoad(util, hz)}))
    numbers = RowNumbers(session, Cores(session), interval)
    assert numbers.is_below_ceiling.tolist() == [is_below]


@pytest.mark.parametrize(("order", "reverse", "rows"), [
    ("topology", False, [0, 1, 2, 3]), ("topology", True, [3, 2, 1, 0]),
    ("worst first", False, [3, 1, 2, 0]), ("util", False, [1, 2, 3, 0]),
    ("util", True, [0, 3, 2, 1]), ("task", False, [2, 0, 1, 3]), ("task", True, [0, 2, 1, 3]),
    ("never heard of", False, [0, 1, 2, 3]), ("halt", False, [0, 3, 2, 1]),
])  # fmt: skip
def test_rows_are_ordered_as_asked(order: str, reverse: bool, rows: list[int]) -> None:
    """CPU 3 loses to the memory. CPUs 0 and 2 have tasks."""
    loads = {cpu: CpuLoad(util) for cpu, util in enumerate((0.1, 0.7, 0.4, 0.3))}
    machine = Machine(cores=4, threads=1, loads=loads)
    records = {"tasks": {"0": [7, "make", 0.1], "2": [8, "Cc1", 0.4]}}
    session, interval = observe(machine, records=records)
    session.detector.running[:] = [Episode("neighbour", [3], 0, None, 0.3, "memory")]
    settings = ViewSettings(order=order, reverse=reverse)
    assert row_numbers.ordered_rows(Cores(session), settings, session, interval) == rows


@pytest.mark.parametrize(("held_s", "selected_s", "names"), [
    (None, None, ""), (None, (1, 2), "A"), ((1, 2), None, "A"), ((1, 2), (1, 2), "A"),
    ((1, 2), (1, 3), "AB"),
])  # fmt: skip
def test_a_selected_range_is_b_only_beside_another_held_range(
    held_s: tuple[int, int] | None, selected_s: tuple[int, int] | None, names: str
) -> None:
    session, _ = observe(Machine(cores=1), 40)
    settings = ViewSettings()
    for ends_s, is_held in ((held_s, True), (selected_s, False)):
        if ends_s is not None:
            start_ns, end_ns = (session.hello.raw_ns + s * 10**9 for s in ends_s)
            interval = session.interval_at(end_ns, end_ns - start_ns)
            assert interval is not None
            if is_held:
                settings.held_range = interval, None
            else:
                settings.range_ns = start_ns, end_ns
    assert "".join(settings.ranges_ns) == names


# --- episodes


DROP = Episode("turbo-drop", [0, 1, 2, 3], 0, None, 6.2e8, "thermal")


@pytest.mark.parametrize(("utils", "is_wide"), [
    ((0.5, 0.5, 0.5, 0.5), True), ((0.5, 0.05, 0.05, 0.05), False), ((0.5, 0.11, 0.05, 0.05), True),
    ((0.5, 0.09, 0.05, 0.05), False),
])  # fmt: skip
def test_a_drop_of_several_busy_cpus_affects_the_package(
    utils: tuple[float, ...], is_wide: bool
) -> None:
    loads = {cpu: CpuLoad(util) for cpu, util in enumerate(utils)}
    session, interval = observe(Machine(cores=4, threads=1, loads=loads))
    session.detector.running[:] = [DROP]
    episodes = RowEpisodes(session, interval)
    worst = episodes.worst_on([0])
    assert worst is not None
    assert (worst.is_victim, worst.style) == ((False, "text") if is_wide else (True, "alarm"))
    assert worst.package_wide_keys == (frozenset({"busy_hz"}) if is_wide else frozenset())
    assert worst.lowered_numbers == (frozenset() if is_wide else frozenset({(0, "busy_hz")}))
    assert episodes.package_episodes(0) == ([DROP], [DROP] if is_wide else [])
    assert episodes.worst_on([4]) is None


@pytest.mark.parametrize(("cpus", "is_wide"), [([0, 1], True), ([0], False), ([0, 1, 2], True)])
def test_half_of_the_busy_cpus_are_the_package(cpus: list[int], is_wide: bool) -> None:
    session, interval = observe(Machine(cores=4, threads=1))
    drop = Episode("turbo-drop", cpus, 0, None, 6.2e8, "thermal")
    session.detector.running[:] = [drop]
    episodes = RowEpisodes(session, interval)
    assert episodes.is_package_wide(drop, 0) is is_wide


@pytest.mark.parametrize(("episode", "index"), [
    (Episode("neighbour", [5], 0, None, 0.3, "sibling"), 1),
    (Episode("neighbour", [7], 0, None, 0.3, "sibling"), None), (DROP, None),
])  # fmt: skip
def test_the_first_cpu_with_a_lowered_ipc_is_marked(episode: Episode, index: int | None) -> None:
    assert find_losing_index([4, 5], [episode]) == index


@pytest.mark.parametrize(("kind", "cause", "gap"), [
    ("license", "", "licence"), ("ramp", "", "ramp"), ("throttle", "power-pl1", "heat"),
    ("turbo-drop", "thermal", "heat"), ("turbo-drop", "vr", "heat"),
    ("turbo-drop", "prochot", "heat"), ("turbo-drop", "current", "power"),
    ("turbo-drop", "power-pl2", "power"), ("turbo-drop", "hwp", "policy"),
    ("turbo-drop", "policy", "policy"), ("turbo-drop", "license", "licence"),
    ("turbo-drop", "made-up", "unknown"),
])  # fmt: skip
def test_a_gap_below_the_ceiling_has_a_cause(kind: str, cause: str, gap: str) -> None:
    assert gap_cause(kind, cause) == gap


TAKER, OTHER = TaskOnCpu(9, "stream", 1), TaskOnCpu(8, "restic", 0)


@pytest.mark.parametrize(("kind", "cause", "evidence", "name"), [
    ("steal", "hypervisor", {}, "hypervisor"), ("turbo-drop", "thermal", {}, ""),
    ("neighbour", "sibling", {}, "make 7"), ("neighbour", "memory", {}, ""),
    ("neighbour", "memory", {"who": Hypervisor("KVM")}, "hypervisor"),
    ("neighbour", "memory", {"who": [OTHER, TAKER]}, "restic 8"),
    ("neighbour", "memory", {"who": [TAKER]}, "stream 9"),
])  # fmt: skip
def test_the_culprit_is_the_task_on_the_row_if_there_is_one(
    kind: str, cause: str, evidence: dict[str, Any], name: str
) -> None:
    session, interval = observe(Machine(cores=2, threads=1))
    session.detector.running[:] = [Episode(kind, [0], 0, None, 0.3, cause, evidence)]
    episodes = RowEpisodes(session, interval)
    worst = episodes.worst_on([0, 1])
    assert worst is not None
    assert episodes.culprit_name(worst, {0: "lmp 6", 1: "make 7"}) == name
