"""Cores that differ from the rest of their package; scales of metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

import made
import numpy as np
import pytest
from fakes import CpuLoad, Machine, observe
from hypothesis import given
from hypothesis import strategies as st

from perftop.model.numbers import Number
from perftop.session.values import COLUMNS_BY_KEY, cpu_values
from perftop.tui.shared.sheet import field_scale, heat_fields
from perftop.tui.views.heat_layout import Outlier, Peers

CLOCK, UTIL, INVOLUNTARY = (COLUMNS_BY_KEY[key] for key in ("busy_hz", "util", "involuntary"))


def judged(machine: Machine, field: Number) -> list[Outlier]:
    session, interval = observe(machine)
    return Peers(session).outliers(field, cpu_values(session, interval, field.key), interval)


def far(machine: Machine, field: Number) -> list[int]:
    return [result.core for result in judged(machine, field)]


def packages(cores: int, **changes: Any) -> dict[str, Any]:
    """Two packages with half of the cores each."""
    rows = [dataclasses.replace(row, package=row.cpu % cores // (cores // 2))
            for row in made.topology(cores)]  # fmt: skip
    groups = [[row.cpu for row in rows if row.package == package] for package in (0, 1)]
    return {"topology": rows, "packages": groups, **changes}


def test_a_slow_core_is_reported_with_the_median() -> None:
    result = judged(Machine(cores=8, does={11: CpuLoad(0.9, 2.48e9)}), CLOCK)
    assert [(o.core, o.row) for o in result] == [(3, 11)]
    assert result[0].median == pytest.approx(3e9, rel=1e-3)


def test_noise_is_not_an_outlier() -> None:
    m = Machine(cores=8, does={3: CpuLoad(0.5, 2.95e9), 4: CpuLoad(0.6)})
    assert far(m, CLOCK) == far(m, UTIL) == []
    assert judged(Machine(cores=8), COLUMNS_BY_KEY["both"]) == []


def test_more_difference_is_required_among_scattered_values() -> None:
    alike = {cpu: CpuLoad(0.5) for cpu in range(32)}
    spread = {cpu: CpuLoad(0.4 + 0.2 * (cpu % 2)) for cpu in range(32)}
    high = {3: CpuLoad(0.9), 19: CpuLoad(0.9)}
    assert far(Machine(cores=16, does=alike | high), UTIL) == [3]
    assert far(Machine(cores=16, does=spread | high), UTIL) == []


def test_a_core_is_compared_within_its_package() -> None:
    slow = {cpu: CpuLoad(0.9, 2.4e9) for core in range(4) for cpu in (core, core + 8)}
    assert far(Machine(cores=8, does=slow, changes=packages(8)), CLOCK) == []
    one = slow | {6: CpuLoad(0.9, 2.4e9)}
    assert far(Machine(cores=8, does=one, changes=packages(8)), CLOCK) == [6]


def test_cores_are_compared_within_their_type() -> None:
    rows = [dataclasses.replace(r, type="E" if r.cpu % 32 > 27 else "P") for r in made.topology(32)]
    slow = {cpu: CpuLoad(0.9, 2.0e9) for core in range(28, 32) for cpu in (core, core + 32)}
    assert far(Machine(cores=32, does=slow, changes={"topology": rows}), CLOCK) == []
    assert sorted(far(Machine(cores=32, does=slow), CLOCK)) == [28, 29, 30, 31]


def test_a_common_value_is_not_an_outlier() -> None:
    few = {cpu: CpuLoad(0.95) for cpu in (0, 1)}
    many = {cpu: CpuLoad(0.95) for cpu in range(5)}
    rest = {cpu: CpuLoad(0.02) for cpu in range(32)}
    assert sorted(far(Machine(cores=16, does=rest | few), UTIL)) == [0, 1]
    assert far(Machine(cores=16, does=rest | many), UTIL) == []


def test_a_sleeping_core_is_not_an_outlier_in_clock() -> None:
    m = Machine(cores=8, does={2: CpuLoad(0.02, 1.2e9), 10: CpuLoad(0.0)})
    assert far(m, CLOCK) == []


def test_a_few_percent_of_halts_are_an_outlier() -> None:
    m = Machine(cores=8, does={5: CpuLoad(0.5, involuntary=0.03)})
    assert far(m, INVOLUNTARY) == [5]
    assert far(m, UTIL) == []


def test_three_cores_are_too_few_for_an_outlier() -> None:
    assert judged(Machine(cores=3, does={1: CpuLoad(0.9, 2e9)}), CLOCK) == []


@given(st.lists(st.floats(2.99e9, 3.01e9), min_size=16, max_size=16), st.integers(0, 15),
       st.sampled_from([1.2e9, 2.4e9, 4.2e9]))  # fmt: skip
def test_a_distant_value_is_always_an_outlier(clocks: list[float], at: int, hz: float) -> None:
    session, interval = OBSERVED
    values = np.array(clocks)
    values[at] = hz
    result = Peers(session).outliers(CLOCK, values, interval)
    assert [o.row for o in result] == [at]


OBSERVED = observe(Machine(cores=8))


# --- metrics and their scales


def test_metrics_have_names_and_include_states_if_cores_have_siblings() -> None:
    names = {field.key: field.plain_name for field in heat_fields(OBSERVED[0])}
    assert list(names)[:5] == ["util", "busy_hz", "ipc", "involuntary", "both"]
    assert names["util"] == "busy time"
    assert "both" not in {field.key for field in heat_fields(observe(Machine(threads=1))[0])}


def test_all_cpus_of_a_core_have_its_states() -> None:
    session, interval = OBSERVED
    both = cpu_values(session, interval, "both")
    assert both == pytest.approx([0.5] * 16, abs=0.01)


@given(st.lists(st.floats(0.8e9, 4.0e9), min_size=1, max_size=8), st.floats(-1e7, 1e7))
def test_a_scale_covers_all_values_and_rarely_changes(clocks: list[float], more: float) -> None:
    values = np.array(clocks)
    first = field_scale(CLOCK, values)
    assert first.low <= values.min()
    assert values.max() <= first.high
    assert first.levels(values).max() <= 11
    there = values + more
    second = field_scale(CLOCK, there, first)
    assert second.low <= there.min()
    assert there.max() <= second.high
    assert field_scale(CLOCK, values, second) == second or not second.covers(first)


def test_small_shares_have_their_own_scale() -> None:
    assert field_scale(UTIL, np.array([0.1])).high == 1.0
    assert field_scale(INVOLUNTARY, np.array([0.001, np.nan])).high == 0.02
    assert field_scale(INVOLUNTARY, np.array([0.03])).high == 0.05
    assert field_scale(INVOLUNTARY, np.array([np.nan])).high == 0.02
